//! A proxy in front of the API server that makes exec connections fail as real networks make them fail.
//!
//! It speaks plain HTTP/1.1 to the operator, on loopback, and TLS with the rights of the test's kubeconfig to the API server. Requests pass as
//! they are, and those that write are noted; of an upgraded connection (exec) it reads the WebSocket frames that come from the server, so that
//! a fault can fall into the middle of the output, or change the order of output and status.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow};
use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Empty, Full, combinators::BoxBody};
use hyper::{body::Incoming, client::conn::http1::SendRequest, service::service_fn};
use hyper_util::rt::TokioIo;
use kube::{client::ConfigExt as _, config::Kubeconfig};
use rustls::pki_types::ServerName;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Notify,
    task::JoinHandle,
};
use tokio_rustls::TlsConnector;

use crate::test::Test;

mod relay;

/// What goes wrong. Byte counts are of the remote command's standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The connection breaks in the middle of a frame.
    Cut {
        /// After so many bytes.
        after: u64,
    },
    /// The WebSocket is closed in good order, and no status was ever sent.
    Close {
        /// After so many bytes.
        after: u64,
    },
    /// Nothing more comes, and the connection stays open.
    Hang {
        /// After so many bytes.
        after: u64,
    },
    /// The status `Success` comes, and the rest of the output after it.
    StatusFirst {
        /// After so many bytes.
        after: u64,
    },
    /// The status is swallowed; the output is whole.
    NoStatus,
    /// The output comes slowly.
    Throttle {
        /// Bytes in a second.
        per_second: u64,
    },
    /// The request is answered with this HTTP status and goes no further.
    Refuse(u16),
}

/// A request that may change something: any method but GET, HEAD and OPTIONS. An exec is a GET.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The method.
    pub method: String,
    /// The path, without its query.
    pub path: String,
}

/// A fault and the requests that it falls on.
#[derive(Debug)]
struct Rule {
    part_of_url: String,
    fault: Fault,
    times: u32,
    hits: u32,
}

/// The proxy. It ends with this value, and so do its connections.
pub struct FaultProxy {
    /// A kubeconfig that leads through it.
    pub kubeconfig: PathBuf,
    rules: Arc<Mutex<Vec<Rule>>>,
    writes: Arc<Mutex<Vec<Write>>>,
    cut: Arc<Notify>,
    listener: JoinHandle<()>,
}

type Body = BoxBody<Bytes, hyper::Error>;

/// Where requests go.
struct Upstream {
    host: String,
    port: u16,
    tls: TlsConnector,
    rules: Arc<Mutex<Vec<Rule>>>,
    writes: Arc<Mutex<Vec<Write>>>,
    cut: Arc<Notify>,
}

impl FaultProxy {
    /// Starts a proxy in front of the test's cluster.
    ///
    /// # Errors
    /// When the kubeconfig has no TLS, or there is no port.
    pub async fn start(test: &Test) -> Result<Self> {
        let config = &test.cluster.config;
        let (rules, cut) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Notify::new()));
        let writes = Arc::new(Mutex::new(Vec::new()));
        let upstream = Arc::new(Upstream {
            host: config.cluster_url.host().context("a cluster without host")?.to_owned(),
            port: config.cluster_url.port_u16().unwrap_or(443),
            tls: TlsConnector::from(Arc::new(config.rustls_client_config()?)),
            rules: Arc::clone(&rules),
            writes: Arc::clone(&writes),
            cut: Arc::clone(&cut),
        });
        let socket = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = socket.local_addr()?;
        let listener = tokio::spawn(async move {
            // Dropped with this task, and every connection with it.
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = socket.accept().await {
                connections.spawn(serve(stream, Arc::clone(&upstream)));
                while connections.try_join_next().is_some() {}
            }
        });
        let kubeconfig = test.dir.join("proxy.kubeconfig");
        std::fs::write(&kubeconfig, through(&test.cluster.kubeconfig, &format!("http://{address}"))?)?;
        Ok(Self { kubeconfig, rules, writes, cut, listener })
    }

    /// Lets a fault fall on the next `times` requests whose path or query contains `part_of_url`, such as `command=read`.
    pub fn inject(&self, part_of_url: &str, fault: Fault, times: u32) {
        let rule = Rule { part_of_url: part_of_url.to_owned(), fault, times, hits: 0 };
        self.rules.lock().unwrap_or_else(PoisonError::into_inner).push(rule);
    }

    /// Breaks every exec that is open.
    pub fn cut(&self) {
        self.cut.notify_waiters();
    }

    /// Takes all faults away.
    pub fn heal(&self) {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner).iter_mut().for_each(|rule| rule.times = rule.hits);
    }

    /// The writes that came so far, in their order, whatever became of them.
    #[must_use]
    pub fn writes(&self) -> Vec<Write> {
        self.writes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How many requests a fault has fallen on.
    #[must_use]
    pub fn hits(&self) -> u32 {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner).iter().map(|rule| rule.hits).sum()
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

/// A copy of a kubeconfig in which every cluster is at `server`.
fn through(kubeconfig: &std::path::Path, server: &str) -> Result<String> {
    let mut file = Kubeconfig::read_from(kubeconfig)?;
    for cluster in file.clusters.iter_mut().filter_map(|named| named.cluster.as_mut()) {
        cluster.server = Some(server.to_owned());
        cluster.certificate_authority = None;
        cluster.certificate_authority_data = None;
    }
    Ok(serde_json::to_string(&file)?)
}

async fn serve(stream: TcpStream, upstream: Arc<Upstream>) {
    let service = service_fn(|request| {
        let upstream = Arc::clone(&upstream);
        async move {
            let answer = upstream.pass(request).await;
            Ok::<_, std::convert::Infallible>(answer.unwrap_or_else(|error| refusal(502, &format!("{error:#}"))))
        }
    });
    // A client that goes away in the middle is what these tests are about.
    hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades()
        .await
        .ok();
}

impl Upstream {
    async fn pass(&self, mut request: Request<Incoming>) -> Result<Response<Body>> {
        self.note(&request);
        let fault = self.fault(&request.uri().to_string());
        if let Some(Fault::Refuse(status)) = fault {
            return Ok(refusal(status, "refused by a test"));
        }
        let upgrade = request.headers().contains_key(header::UPGRADE).then(|| hyper::upgrade::on(&mut request));
        let authority = format!("{}:{}", self.host, self.port);
        request.headers_mut().insert(header::HOST, authority.parse()?);
        let mut response = self.connect().await?.send_request(request).await?;
        let (Some(client), StatusCode::SWITCHING_PROTOCOLS) = (upgrade, response.status()) else {
            return Ok(response.map(BodyExt::boxed));
        };
        let server = hyper::upgrade::on(&mut response);
        let cut = Arc::clone(&self.cut).notified_owned();
        tokio::spawn(async move {
            let (client, server) = (client.await?, server.await?);
            tokio::select! {
                result = relay::run(TokioIo::new(client), TokioIo::new(server), fault) => result.map_err(|error| anyhow!(error)),
                () = cut => Ok(()),
            }
        });
        Ok(response.map(|_| Empty::new().map_err(|never| match never {}).boxed()))
    }

    async fn connect(&self) -> Result<SendRequest<Incoming>> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
        stream.set_nodelay(true)?;
        let name = ServerName::try_from(self.host.clone())?;
        let stream = self.tls.connect(name, stream).await?;
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        // Its error is the request's error as well.
        tokio::spawn(connection.with_upgrades());
        Ok(sender)
    }

    fn note(&self, request: &Request<Incoming>) {
        if request.method().is_safe() {
            return;
        }
        let write = Write { method: request.method().to_string(), path: request.uri().path().to_owned() };
        self.writes.lock().unwrap_or_else(PoisonError::into_inner).push(write);
    }

    fn fault(&self, url: &str) -> Option<Fault> {
        let mut rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        let rule = rules.iter_mut().find(|rule| rule.hits < rule.times && url.contains(&rule.part_of_url))?;
        rule.hits += 1;
        Some(rule.fault)
    }
}

fn refusal(status: u16, why: &str) -> Response<Body> {
    let body = Full::new(Bytes::from(why.to_owned())).map_err(|never| match never {}).boxed();
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY);
    response
}

/// How long a hung connection is held, at most; longer than any deadline of the operator's.
const HUNG: Duration = Duration::from_secs(900);
