//! Stand-ins for what a test cannot have for real: an agent that does what its script says, and a model behind a real agent.
//!
//! `acp` speaks the Agent Client Protocol on stdio, as any agent does that the driver starts. `model` answers the APIs that real agents call.

use std::{net::SocketAddr, path::PathBuf, process::ExitCode};

use clap::{Parser, Subcommand};

mod acp;
mod model;
mod perform;
mod script;

#[derive(Parser)]
#[command(about, version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Be an agent on stdio. The script comes in the prompt (YAML), or from a file; any other prompt gets a short default conversation.
    Acp {
        /// Take the steps from this file instead of the prompt.
        #[arg(long, value_name = "FILE")]
        script: Option<PathBuf>,
        /// Where the driver's logs are, for the steps that write to them.
        #[arg(long, value_name = "DIR", default_value = "/agentsession/log")]
        log_dir: PathBuf,
    },
    /// Be a model: OpenAI chat completions and responses, Anthropic messages, Gemini.
    Model {
        /// Address to listen on.
        #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9911")]
        listen: SocketAddr,
        /// The command that the model asks the agent to run.
        #[arg(long, value_name = "SHELL", default_value = model::DEFAULT_COMMAND)]
        command: String,
    },
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Acp { script, log_dir } => acp::run(script.as_deref(), &log_dir),
        Command::Model { listen, command } => model::serve(listen, &command),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
