//! What can be set from outside: flags, each also an environment variable.

use std::{net::SocketAddr, time::Duration};

use clap::builder::{TypedValueParser, ValueParser};
use crds::names::TOKEN_AUDIENCE;

/// Settings of the gateway, to be flattened into the arguments of a program.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Gateway")]
#[group(id = "gateway")]
pub struct Args {
    /// Address that the gateway listens on
    #[arg(long, env = "AGENTSESSION_HTTP_LISTEN", default_value = "127.0.0.1:8080")]
    pub http_listen: SocketAddr,

    /// Audience that a token must have; tokens for the API server's own audience are accepted too
    #[arg(long, env = "AGENTSESSION_AUDIENCE", default_value = TOKEN_AUDIENCE)]
    pub audience: String,

    /// Connections held at once; more wait to be accepted
    #[arg(long, env = "AGENTSESSION_HTTP_MAX_CONNECTIONS", default_value_t = 2048, value_parser = count())]
    pub http_max_connections: usize,

    /// Requests worked on at once, up to their headers; more are answered with 503
    #[arg(long, env = "AGENTSESSION_HTTP_MAX_REQUESTS", default_value_t = 256, value_parser = count())]
    pub http_max_requests: usize,

    /// Streams open at once; more are answered with 503. Each holds at most about 2 MiB
    #[arg(long, env = "AGENTSESSION_HTTP_MAX_STREAMS", default_value_t = 256, value_parser = count())]
    pub http_max_streams: usize,

    /// Pages of transcripts held at once; more wait. Each holds at most about 12 MiB until its client has taken it
    #[arg(long, env = "AGENTSESSION_HTTP_MAX_PAGES", default_value_t = 32, value_parser = count())]
    pub http_max_pages: usize,

    /// Time from a request to the headers of its answer
    #[arg(long, env = "AGENTSESSION_HTTP_REQUEST_TIMEOUT", default_value = "30s", value_parser = duration)]
    pub http_request_timeout: Duration,

    /// Time for one call to the API server
    #[arg(long, env = "AGENTSESSION_HTTP_CLUSTER_TIMEOUT", default_value = "5s", value_parser = duration)]
    pub http_cluster_timeout: Duration,

    /// Time that a client may take to send the headers of a request, or to send the next one: longer than proxies keep idle connections
    #[arg(long, env = "AGENTSESSION_HTTP_HEADER_TIMEOUT", default_value = "75s", value_parser = duration)]
    pub http_header_timeout: Duration,

    /// Time for which a client may take nothing of what is sent to it before it is cut
    #[arg(long, env = "AGENTSESSION_HTTP_STALL_TIMEOUT", default_value = "60s", value_parser = duration)]
    pub http_stall_timeout: Duration,

    /// Time that open requests and streams get at shutdown before their connections are cut
    #[arg(long, env = "AGENTSESSION_HTTP_DRAIN_TIMEOUT", default_value = "10s", value_parser = duration)]
    pub http_drain_timeout: Duration,

    /// Time for which the store may fail in the middle of a stream before the stream ends and says so
    #[arg(long, env = "AGENTSESSION_HTTP_STORE_PATIENCE", default_value = "30s", value_parser = duration)]
    pub http_store_patience: Duration,

    /// Interval at which the right to read is checked again while a stream is open
    #[arg(long, env = "AGENTSESSION_HTTP_RECHECK_INTERVAL", default_value = "60s", value_parser = duration)]
    pub http_recheck_interval: Duration,
}

/// The defaults, as `--help` shows them.
impl Default for Args {
    fn default() -> Self {
        Self {
            http_listen: SocketAddr::from(([127, 0, 0, 1], 8080)),
            audience: TOKEN_AUDIENCE.to_owned(),
            http_max_connections: 2048,
            http_max_requests: 256,
            http_max_streams: 256,
            http_max_pages: 32,
            http_request_timeout: Duration::from_secs(30),
            http_cluster_timeout: Duration::from_secs(5),
            http_header_timeout: Duration::from_secs(75),
            http_stall_timeout: Duration::from_secs(60),
            http_drain_timeout: Duration::from_secs(10),
            http_store_patience: Duration::from_secs(30),
            http_recheck_interval: Duration::from_secs(60),
        }
    }
}

/// At least one, and no more than a semaphore takes.
fn count() -> ValueParser {
    clap::value_parser!(u32).range(1..=1_000_000).map(|n| n as usize).into()
}

/// Reads `90s`, `5m` or `1h 30m`; nothing below a millisecond.
fn duration(text: &str) -> Result<Duration, String> {
    let refusal = |why: &str| format!("{text:?} {why}: write a positive duration such as 500ms, 30s or 5m");
    let span: jiff::SignedDuration = text.parse().map_err(|_| refusal("is not a duration"))?;
    let duration = Duration::try_from(span).map_err(|_| refusal("is negative"))?;
    if duration < Duration::from_millis(1) { Err(refusal("is too short")) } else { Ok(duration) }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn flags_default_to_what_default_says() {
        assert_eq!(Program::parse_from(["program"]).args, Args::default());
    }

    #[test]
    fn durations_are_read_as_people_write_them() {
        assert_eq!(duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("1h 30m"), Ok(Duration::from_secs(5400)));
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
        for wrong in ["", "0s", "-5s", "five"] {
            let refusal = duration(wrong).unwrap_err();
            assert!(refusal.contains(&format!("{wrong:?}")) && refusal.contains("30s"), "{refusal}");
        }
    }

    #[test]
    fn a_limit_of_none_is_refused() {
        assert!(Program::try_parse_from(["program", "--http-max-streams", "0"]).is_err());
        assert_eq!(Program::parse_from(["program", "--http-max-streams", "3"]).args.http_max_streams, 3);
    }
}
