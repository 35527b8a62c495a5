//! Watches AgentSessions and Pods, runs agents, harvests and settles their transcripts.
