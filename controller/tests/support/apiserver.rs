//! An API server on loopback that knows one Pod: it answers look-ups, and exec by WebSocket (v5 or v4.channel.k8s.io), with scripted faults.

use std::{
    collections::VecDeque,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use futures::{SinkExt, StreamExt};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream},
    net::{TcpListener, TcpStream},
};
use tokio_tungstenite::{
    WebSocketStream, accept_hdr_async,
    tungstenite::{
        Message,
        handshake::server::{Request, Response},
    },
};
use tokio_util::task::AbortOnDropHandle;

use super::pod::Pod;

/// What the server does with one exec.
#[derive(Clone, Copy, Debug)]
pub enum Script {
    /// What a good one does.
    Serve,
    /// Answers the upgrade with this HTTP status.
    Http(u16),
    /// Reads the upgrade and never answers.
    Mute,
    /// RST after so many bytes of stdout.
    Reset(usize),
    /// Close frame and FIN after so many bytes, without a status.
    CloseWithoutStatus(usize),
    /// Nothing more after so many bytes.
    Stall(usize),
    /// A Success status after so many bytes; the rest comes behind it.
    StatusEarly(usize),
    /// The remote is done, the server says nothing of it and keeps the socket.
    NeverCloses,
    /// A status frame that is no JSON, after so many bytes.
    BrokenStatus(usize),
}

pub struct ApiServer {
    pub address: SocketAddr,
    shared: Arc<Shared>,
    _accepting: AbortOnDropHandle<()>,
}

struct Shared {
    pod: Arc<Pod>,
    object: Mutex<Option<serde_json::Value>>,
    protocol: &'static str,
    scripts: Mutex<VecDeque<Script>>,
    queries: Mutex<Vec<String>>,
    live: AtomicUsize,
}

struct Living(Arc<Shared>);

impl Drop for Living {
    fn drop(&mut self) {
        self.0.live.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The Pod object of a healthy agent Pod.
pub fn healthy(uid: &str) -> serde_json::Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "p", "namespace": "team-a", "uid": uid},
        "status": {"phase": "Running", "containerStatuses": [
            {"name": "agent", "image": "i", "imageID": "", "ready": true, "restartCount": 0,
             "state": {"terminated": {"exitCode": 137}}},
            {"name": "recorder", "image": "i", "imageID": "", "ready": true, "restartCount": 0,
             "state": {"running": {"startedAt": "2026-11-30T18:00:00Z"}}},
        ]},
    })
}

impl ApiServer {
    pub async fn start(pod: &Arc<Pod>, protocol: &'static str, scripts: impl IntoIterator<Item = Script>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            pod: Arc::clone(pod),
            object: Mutex::new(Some(healthy(super::target().uid.as_str()))),
            protocol,
            scripts: Mutex::new(scripts.into_iter().collect()),
            queries: Mutex::default(),
            live: AtomicUsize::new(0),
        });
        let accepting = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Self { address, shared, _accepting: AbortOnDropHandle::new(accepting) }
    }

    /// A client of this server.
    pub fn client(&self) -> kube::Client {
        let mut config = kube::Config::new(format!("http://{}", self.address).parse().unwrap());
        // No second guesses in a test that counts.
        config.connect_timeout = Some(std::time::Duration::from_secs(1));
        kube::Client::try_from(config).unwrap()
    }

    pub fn set_pod(&self, object: Option<serde_json::Value>) {
        *self.shared.object.lock().unwrap() = object;
    }

    /// Query strings of the execs so far.
    pub fn queries(&self) -> Vec<String> {
        self.shared.queries.lock().unwrap().clone()
    }

    /// Exec connections that are open now.
    pub fn live(&self) -> usize {
        self.shared.live.load(Ordering::SeqCst)
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let shared = Arc::clone(&shared);
        tokio::spawn(async move { serve(stream, shared).await });
    }
}

async fn serve(mut stream: TcpStream, shared: Arc<Shared>) {
    let mut head = [0; 4096];
    let head = loop {
        let count = stream.peek(&mut head).await.unwrap_or(0);
        if count == 0 {
            return;
        }
        if let Some(end) = head[..count].windows(4).position(|four| four == b"\r\n\r\n") {
            break String::from_utf8_lossy(&head[..end]).into_owned();
        }
    };
    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
    let Some((_, query)) = path.split_once("/exec?") else {
        let object = shared.object.lock().unwrap().clone();
        return match object {
            Some(object) => answer(&mut stream, 200, &object).await,
            None => answer(&mut stream, 404, &failure(404, "NotFound")).await,
        };
    };
    shared.queries.lock().unwrap().push(query.to_owned());
    shared.live.fetch_add(1, Ordering::SeqCst);
    let _living = Living(Arc::clone(&shared));
    let script = shared.scripts.lock().unwrap().pop_front().unwrap_or(Script::Serve);
    match script {
        Script::Http(code) => answer(&mut stream, code, &failure(code, "Forbidden")).await,
        Script::Mute => {
            // Until the client gives up.
            let mut rest = Vec::new();
            let _ = stream.read_to_end(&mut rest).await;
        }
        script => exec(stream, &shared, script, query).await,
    }
}

fn failure(code: u16, reason: &str) -> serde_json::Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "no", "reason": reason, "code": code})
}

async fn answer(stream: &mut TcpStream, code: u16, body: &serde_json::Value) {
    let body = body.to_string();
    let head = format!(
        "HTTP/1.1 {code} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    let mut request = vec![0; 8192];
    let _ = stream.read(&mut request).await;
    let _ = stream.write_all(head.as_bytes()).await;
    let _ = stream.write_all(body.as_bytes()).await;
    let _ = stream.shutdown().await;
}

async fn exec(stream: TcpStream, shared: &Shared, script: Script, query: &str) {
    let argv: Vec<String> = query
        .split('&')
        .filter_map(|pair| pair.strip_prefix("command="))
        .map(|word| word.replace("%2F", "/"))
        .collect();
    let protocol = shared.protocol;
    #[expect(clippy::result_large_err, reason = "the callback's type is the library's")]
    let choose = |_: &Request, mut response: Response| {
        response.headers_mut().insert("sec-websocket-protocol", protocol.parse().unwrap());
        Ok(response)
    };
    let Ok(socket) = accept_hdr_async(stream, choose).await else { return };
    let (stdin, remote_stdin) = tokio::io::duplex(64 << 10);
    let (remote_stdout, stdout) = tokio::io::duplex(64 << 10);
    let remote = shared.pod.exec(argv, remote_stdin, remote_stdout);
    let carrying = carry(socket, stdin, stdout, script);
    // The remote goes with its connection, as it does when its stdin is closed.
    tokio::pin!(remote, carrying);
    let mut code = None;
    loop {
        tokio::select! {
            exit = &mut remote, if code.is_none() => code = Some(exit),
            mut socket = &mut carrying => {
                if let (Some(socket), Script::Serve) = (&mut socket, script) {
                    let code = match code { Some(code) => code, None => remote.await };
                    let _ = socket.send(status(code)).await;
                    let _ = socket.close(None).await;
                    while let Some(Ok(_)) = socket.next().await {}
                }
                return;
            }
        }
    }
}

fn status(code: i32) -> Message {
    let status = match code {
        0 => json!({"metadata": {}, "status": "Success"}),
        code => json!({"metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
            "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]}}),
    };
    channel(3, status.to_string().as_bytes())
}

fn channel(number: u8, bytes: &[u8]) -> Message {
    Message::binary([&[number], bytes].concat())
}

/// Carries both directions. Gives the socket back when the remote's stdout has ended.
async fn carry(
    mut socket: WebSocketStream<TcpStream>,
    stdin: DuplexStream,
    mut stdout: DuplexStream,
    script: Script,
) -> Option<WebSocketStream<TcpStream>> {
    let mut stdin = Some(stdin);
    let mut buffer = vec![0; 16 << 10];
    let mut sent = 0;
    let _ = socket.send(channel(1, b"")).await;
    loop {
        tokio::select! {
            count = stdout.read(&mut buffer) => {
                let Ok(count @ 1..) = count else {
                    if let Script::NeverCloses = script {
                        while let Some(Ok(_)) = socket.next().await {}
                    }
                    return Some(socket);
                };
                let Some(at) = strikes(script, sent, count) else {
                    sent += count;
                    socket.send(channel(1, &buffer[..count])).await.ok()?;
                    continue;
                };
                socket.send(channel(1, &buffer[..at])).await.ok()?;
                return fail(socket, script, &buffer[at..count]).await;
            }
            message = socket.next() => match message {
                Some(Ok(Message::Binary(bytes))) if bytes.first() == Some(&0) => {
                    if let Some(stdin) = &mut stdin {
                        let _ = stdin.write_all(&bytes[1..]).await;
                    }
                }
                Some(Ok(Message::Binary(bytes))) if bytes.as_ref() == [255, 0] => drop(stdin.take()),
                Some(Ok(Message::Close(_))) | None | Some(Err(_)) => return None,
                Some(Ok(_)) => {}
            }
        }
    }
}

/// Where in the next `count` bytes the fault strikes.
fn strikes(script: Script, sent: usize, count: usize) -> Option<usize> {
    let (Script::Reset(at)
    | Script::CloseWithoutStatus(at)
    | Script::Stall(at)
    | Script::StatusEarly(at)
    | Script::BrokenStatus(at)) = script
    else {
        return None;
    };
    (sent..sent + count).contains(&at).then(|| at - sent)
}

async fn fail(
    mut socket: WebSocketStream<TcpStream>,
    script: Script,
    rest: &[u8],
) -> Option<WebSocketStream<TcpStream>> {
    match script {
        Script::Reset(_) => {
            socket.get_ref().set_zero_linger().unwrap();
            return None;
        }
        Script::CloseWithoutStatus(_) => {
            let _ = socket.close(None).await;
        }
        Script::StatusEarly(_) => {
            let _ = socket.send(status(0)).await;
            let _ = socket.send(channel(1, rest)).await;
        }
        Script::BrokenStatus(_) => {
            let _ = socket.send(channel(3, b"{")).await;
        }
        Script::Serve | Script::Http(_) | Script::Mute | Script::Stall(_) | Script::NeverCloses => {}
    }
    // Until the client goes.
    while let Some(Ok(_)) = socket.next().await {}
    None
}
