//! The command line. Every flag is also an environment variable, `AGENTSESSION_<FLAG>`.

use std::net::SocketAddr;

/// Runs coding agents as AgentSessions and keeps their conversations.
///
/// Exit codes: 0 done or shut down in order, 1 an error (the last line says which), 2 a flag that is none.
#[derive(Debug, clap::Parser)]
#[command(name = "agentsession", version, max_term_width = 100)]
pub struct Cli {
    /// What is logged.
    #[command(flatten)]
    pub log: Log,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Settings of the log.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Log")]
pub struct Log {
    /// Filter, such as info or info,agentsession_controller=debug
    #[arg(long = "log", env = "AGENTSESSION_LOG", default_value = "info", global = true)]
    pub filter: String,

    /// Format of the log
    #[arg(long, env = "AGENTSESSION_LOG_FORMAT", default_value = "text", value_enum, global = true)]
    pub log_format: Format,
}

/// Format of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// What to do.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Controller and gateway in one process: the small installation, on SQLite
    Serve(Box<Serve>),
    /// The controller alone; several replicas need --leader-elect and Postgres
    Controller(Box<Controller>),
    /// The gateway alone
    Gateway(Box<Gateway>),
    /// Brings the store's schema up to date and grants each role its rights; may be repeated
    Migrate(Migrate),
    /// Prints the CustomResourceDefinition of AgentSession as YAML
    Crd,
    /// Lets sessions go: ends and harvests what runs, takes our finalizers off. Before an uninstall
    Release(Release),
}

/// Where transcripts are stored.
#[derive(Clone, clap::Args)]
#[command(next_help_heading = "Store")]
pub struct Store {
    /// sqlite:///path/of/file or postgres://user@host/database; never logged
    #[arg(long = "store", env = "AGENTSESSION_STORE", hide_env_values = true)]
    pub url: String,

    /// Connections to Postgres, or readers of SQLite
    #[arg(long, env = "AGENTSESSION_STORE_CONNECTIONS", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub store_connections: u32,

    /// Postgres stands behind a pooler in transaction mode (pgbouncer)
    #[arg(long, env = "AGENTSESSION_STORE_TRANSACTION_POOLER")]
    pub store_transaction_pooler: bool,
}

/// The URL may hold a password.
impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("connections", &self.store_connections).finish_non_exhaustive()
    }
}

/// `serve`.
#[derive(Debug, clap::Args)]
pub struct Serve {
    #[command(flatten)]
    pub store: Store,
    #[command(flatten)]
    pub controller: controller::Args,
    #[command(flatten)]
    pub gateway: gateway::Args,
}

/// `controller`.
#[derive(Debug, clap::Args)]
pub struct Controller {
    #[command(flatten)]
    pub store: Store,
    #[command(flatten)]
    pub controller: controller::Args,
}

/// `gateway`.
#[derive(Debug, clap::Args)]
pub struct Gateway {
    #[command(flatten)]
    pub store: Store,
    #[command(flatten)]
    pub gateway: gateway::Args,

    /// Address of /livez, /readyz and /metrics
    #[arg(long, env = "AGENTSESSION_OPS_LISTEN", default_value = "127.0.0.1:9090")]
    pub ops_listen: SocketAddr,
}

/// `migrate`.
#[derive(Debug, clap::Args)]
pub struct Migrate {
    #[command(flatten)]
    pub store: Store,

    /// Database role of the controller, which must exist; nothing is granted when it is not given
    #[arg(long, env = "AGENTSESSION_CONTROLLER_ROLE")]
    pub controller_role: Option<String>,

    /// Database role of the gateway, which must exist; nothing is granted when it is not given
    #[arg(long, env = "AGENTSESSION_GATEWAY_ROLE")]
    pub gateway_role: Option<String>,
}

/// `release`.
#[derive(Debug, clap::Args)]
pub struct Release {
    /// Every session of the watched namespaces; there is no smaller choice yet, so that it is said
    #[arg(long, required = true)]
    pub all: bool,

    /// Namespaces to look after; empty is all
    #[arg(long, env = "AGENTSESSION_WATCH_NAMESPACES", value_delimiter = ',')]
    pub watch_namespaces: Vec<String>,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_flag_is_an_environment_variable_as_well() {
        for command in Cli::command().get_subcommands() {
            for arg in command.get_arguments().filter(|arg| arg.get_long() != Some("all")) {
                let id = arg.get_id().as_str();
                if matches!(id, "help" | "version") {
                    continue;
                }
                let env = arg.get_env().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
                assert!(env.starts_with("AGENTSESSION_"), "{} --{id} has {env:?}", command.get_name());
            }
        }
    }

    #[test]
    fn the_url_of_the_store_is_never_printed() {
        let store =
            Store { url: "postgres://u:secret@h/d".to_owned(), store_connections: 3, store_transaction_pooler: false };
        assert!(!format!("{store:?}").contains("secret"));
    }
}
