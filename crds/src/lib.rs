//! API types of agentsession.dev: AgentSession, its conditions and reasons.
