//! The gateway on a real socket: shutdown, readers that stall, senders that stall.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a helper of a test fails as the test does")]

#[cfg(test)]
mod support;

use std::{net::SocketAddr, time::Duration};

use agentsession_gateway::Args;
use support::{
    World,
    memory::{Read, record, settled},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
    time::Instant,
};
use tokio_util::sync::CancellationToken;
use transcript::{Outcome, Verdict};

const STREAM: &str = "GET /v1/namespaces/team-a/agentsessions/fix-login/stream HTTP/1.1\r\nhost: x\r\nauthorization: Bearer alice-token\r\n\r\n";

struct Served {
    world: World,
    address: SocketAddr,
    shutdown: CancellationToken,
    server: JoinHandle<()>,
}

/// A session of `parts` parts of `bytes` each.
async fn served(args: Args, parts: u32, bytes: usize) -> Served {
    let world = World::with(args);
    let part = format!(r#"{{"type":"data-x","data":"{}"}}"#, "a".repeat(bytes));
    let parts: Vec<(u32, u32, &str)> = (0..parts).map(|i| (1, i, part.as_str())).collect();
    world.store.put(
        record("fix-login", "uid-1"),
        vec![settled(1, "hello", Outcome::Succeeded, None, Verdict::Complete, None)],
        &parts,
    );
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let shutdown = CancellationToken::new();
    let server = tokio::spawn(agentsession_gateway::serve(listener, world.gateway.clone(), shutdown.clone()));
    Served { world, address, shutdown, server }
}

impl Served {
    async fn ask(&self, request: &str) -> TcpStream {
        let mut socket = TcpStream::connect(self.address).await.unwrap();
        socket.write_all(request.as_bytes()).await.unwrap();
        socket
    }

    async fn metric(&self, line: &str) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !self.world.metrics().contains(line) {
            assert!(Instant::now() < deadline, "{line} is not in\n{}", self.world.metrics());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

async fn all(mut socket: TcpStream) -> String {
    let mut bytes = Vec::new();
    // A connection that is cut may end by a reset.
    let _ = tokio::time::timeout(Duration::from_secs(20), socket.read_to_end(&mut bytes))
        .await
        .expect("the connection ends");
    String::from_utf8(bytes).unwrap()
}

#[tokio::test]
async fn a_stream_is_served_whole_and_its_connection_used_again() {
    let served = served(Args::default(), 100, 10_000).await;
    let mut socket = served.ask(STREAM).await;
    socket.write_all(STREAM.replace("host: x", "host: x\r\nconnection: close").as_bytes()).await.unwrap();
    let text = all(socket).await;
    assert_eq!(text.matches("HTTP/1.1 200 OK").count(), 2);
    assert_eq!(text.matches("data: [DONE]\n\n\r\n0\r\n\r\n").count(), 2);
    assert_eq!(text.matches("\"type\":\"data-x\"").count(), 200);
    served.shutdown.cancel();
    served.server.await.unwrap();
}

#[tokio::test]
async fn shutdown_lets_a_stream_end() {
    let served = served(Args::default(), 10, 100).await;
    served.world.store.reads_from(0, Read::Slow(Duration::from_millis(300)));
    let socket = served.ask(STREAM).await;
    served.metric("agentsession_gateway_streams 1").await;
    let began = Instant::now();
    served.shutdown.cancel();
    let text = all(socket).await;
    assert!(text.ends_with("data: [DONE]\n\n\r\n0\r\n\r\n"), "{text}");
    served.server.await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert!(TcpStream::connect(served.address).await.is_err(), "nobody listens any more");
}

#[tokio::test]
async fn shutdown_does_not_hang_on_streams_that_do_not_end() {
    let args = Args { http_drain_timeout: Duration::from_millis(300), ..Args::default() };
    let served = served(args, 10, 100).await;
    served.world.store.reads_from(0, Read::Hang);
    let waiting = served.ask(STREAM).await;
    let idle = TcpStream::connect(served.address).await.unwrap();
    served.metric("agentsession_gateway_streams 1").await;
    served.metric("agentsession_gateway_connections 2").await;
    let began = Instant::now();
    served.shutdown.cancel();
    served.server.await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    let text = all(waiting).await;
    assert!(!text.contains("[DONE]") && !text.ends_with("0\r\n\r\n"), "an end was pretended: {text}");
    assert_eq!(all(idle).await, "");
    assert!(served.world.metrics().contains("agentsession_gateway_streams 0"));
}

#[tokio::test]
async fn a_reader_that_takes_nothing_is_cut_and_costs_little() {
    let args = Args { http_stall_timeout: Duration::from_millis(500), ..Args::default() };
    let served = served(args, 200, 1_000_000).await;
    let stalled = served.ask(STREAM).await;
    served.metric("agentsession_gateway_streams 1").await;
    // Others are served meanwhile.
    let (other, text) = (served.ask(&STREAM.replace("host: x", "host: x\r\nconnection: close")).await, Instant::now());
    let other = all(other).await;
    assert_eq!(other.matches("\"type\":\"data-x\"").count(), 200, "{:?}", text.elapsed());
    served.metric(r#"agentsession_gateway_streams_ended_total{end="ClientGone"} 1"#).await;
    served.metric("agentsession_gateway_streams 0").await;
    served.metric("agentsession_gateway_connections 0").await;
    let text = all(stalled).await;
    assert!(text.len() < 32 << 20 && !text.contains("[DONE]"), "{} bytes were taken", text.len());
    served.shutdown.cancel();
    served.server.await.unwrap();
}

#[tokio::test]
async fn a_client_that_goes_away_frees_its_place() {
    let served = served(Args::default(), 10, 100).await;
    served.world.store.reads_from(0, Read::Hang);
    let socket = served.ask(STREAM).await;
    served.metric("agentsession_gateway_streams 1").await;
    drop(socket);
    served.metric("agentsession_gateway_streams 0").await;
    served.metric("agentsession_gateway_connections 0").await;
}

#[tokio::test]
async fn a_sender_that_stalls_is_cut() {
    let args = Args { http_header_timeout: Duration::from_millis(300), ..Args::default() };
    let served = served(args, 1, 1).await;
    let half = served.ask("GET / HTTP/1.1\r\nhost").await;
    let silent = served.ask("").await;
    let idle = served.ask("GET /livez HTTP/1.1\r\nhost: x\r\n\r\n").await;
    for (socket, name) in [(half, "half a head"), (silent, "nothing"), (idle, "no next request")] {
        let text = all(socket).await;
        assert!(name != "no next request" || text.contains("ok"), "{name}: {text}");
    }
    served.metric("agentsession_gateway_connections 0").await;
}

#[tokio::test]
async fn a_head_that_is_too_large_is_refused() {
    let served = served(Args::default(), 1, 1).await;
    let text =
        all(served.ask(&format!("GET /livez HTTP/1.1\r\nhost: x\r\nx: {}\r\n\r\n", "a".repeat(200_000))).await).await;
    assert!(text.starts_with("HTTP/1.1 431") || text.is_empty(), "{text}");
    let good = all(served.ask("GET /livez HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await).await;
    assert!(good.ends_with("ok\n"), "{good}");
}

#[tokio::test]
async fn connections_over_the_limit_wait_for_their_turn() {
    let args = Args { http_max_connections: 1, ..Args::default() };
    let served = served(args, 1, 1).await;
    let first = TcpStream::connect(served.address).await.unwrap();
    served.metric("agentsession_gateway_connections 1").await;
    let second = served.ask("GET /livez HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await;
    drop(first);
    assert!(all(second).await.ends_with("ok\n"));
}

#[tokio::test]
async fn an_address_in_use_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let args = Args { http_listen: taken.local_addr().unwrap(), ..Args::default() };
    let world = World::new();
    let metrics = agentsession_gateway::Metrics::register(&mut prometheus_client::registry::Registry::default());
    let error =
        agentsession_gateway::run(args, world.store.clone(), world.api.client(), metrics, CancellationToken::new())
            .await
            .unwrap_err();
    assert_eq!(error.to_string(), format!("cannot listen on {}", taken.local_addr().unwrap()));
}
