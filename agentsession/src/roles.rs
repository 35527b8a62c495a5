//! The long-running roles: what runs side by side, and how it ends.

use std::{sync::Arc, time::Duration};

use anyhow::Context;
use controller::{
    Controller,
    ops::{Check, Ops},
};
use kube::Client;
use prometheus_client::registry::Registry;
use store::{Category, Role, SharedStore};
use tokio::{signal::unix::SignalKind, task::JoinSet};
use tokio_util::sync::CancellationToken;

use crate::{cli, commands::options};

/// Pause between two looks at a store that does not answer yet.
const STORE_RETRY: Duration = Duration::from_secs(5);

/// `serve`: both halves in one process.
pub async fn serve(args: cli::Serve) -> anyhow::Result<()> {
    let client = client().await?;
    let store = open(&args.store, &[Role::Controller]).await?;
    let mut registry = Registry::default();
    let metrics = gateway::Metrics::register(&mut registry);
    let ops_listen = args.controller.ops_listen;
    let controller = Controller::new(args.controller, client.clone(), Arc::clone(&store), &mut registry)?;
    let ops = Ops::new(registry, controller.checks());
    let shutdown = CancellationToken::new();
    let mut tasks = JoinSet::new();
    tasks.spawn(ops_task(ops, ops_listen, shutdown.clone()));
    tasks.spawn(controller_task(controller, shutdown.clone()));
    tasks.spawn(gateway_task(args.gateway, store, client, metrics, shutdown.clone()));
    until_one_ends(tasks, shutdown).await
}

/// `controller`.
pub async fn controller(args: cli::Controller) -> anyhow::Result<()> {
    let client = client().await?;
    let store = open(&args.store, &[Role::Controller]).await?;
    let mut registry = Registry::default();
    let ops_listen = args.controller.ops_listen;
    let controller = Controller::new(args.controller, client, store, &mut registry)?;
    let ops = Ops::new(registry, controller.checks());
    let shutdown = CancellationToken::new();
    let mut tasks = JoinSet::new();
    tasks.spawn(ops_task(ops, ops_listen, shutdown.clone()));
    tasks.spawn(controller_task(controller, shutdown.clone()));
    until_one_ends(tasks, shutdown).await
}

/// `gateway`.
pub async fn gateway(args: cli::Gateway) -> anyhow::Result<()> {
    let client = client().await?;
    let store = open(&args.store, &[Role::Gateway]).await?;
    let mut registry = Registry::default();
    let metrics = gateway::Metrics::register(&mut registry);
    let ops = Ops::new(registry, vec![("store", store_check(&store))]);
    let shutdown = CancellationToken::new();
    let mut tasks = JoinSet::new();
    tasks.spawn(ops_task(ops, args.ops_listen, shutdown.clone()));
    tasks.spawn(gateway_task(args.gateway, store, client, metrics, shutdown.clone()));
    until_one_ends(tasks, shutdown).await
}

/// The cluster that this process is in, or that the kubeconfig names.
pub async fn client() -> anyhow::Result<Client> {
    Client::try_default().await.context(
        "no cluster to talk to: neither a ServiceAccount nor a kubeconfig (KUBECONFIG, ~/.kube/config) could be used",
    )
}

/// Opens the store and checks what the roles need. One that is down is waited for in the background: the process comes up not ready. One
/// that is not what this build needs ends it now, and not at a user's first replay.
async fn open(args: &cli::Store, roles: &[Role]) -> anyhow::Result<SharedStore> {
    let store = store::connect(&args.url, &options(args)).await.context("the store cannot be opened (--store)")?;
    for role in roles {
        match store.check(*role).await {
            Ok(()) => {}
            Err(error) if error.category() == Category::Unavailable => {
                tracing::warn!(error = chain(&error), "the store does not answer yet; not ready until it does");
                tokio::spawn(check_later(Arc::clone(&store), *role));
            }
            Err(error) => return Err(error).context("the store is not what this version needs"),
        }
    }
    Ok(store)
}

async fn check_later(store: SharedStore, role: Role) {
    loop {
        tokio::time::sleep(STORE_RETRY).await;
        match store.check(role).await {
            Ok(()) => {
                tracing::info!("the store answers");
                return;
            }
            Err(error) if error.category() == Category::Unavailable => {}
            Err(error) => {
                // The whole process is of no use without it; its supervisor starts it anew and says so.
                tracing::error!(error = chain(&error), "the store is not what this version needs");
                std::process::exit(1);
            }
        }
    }
}

fn store_check(store: &SharedStore) -> Check {
    let store = Arc::clone(store);
    Arc::new(move || {
        let store = Arc::clone(&store);
        Box::pin(async move { store.ping().await.map_err(|error| chain(&error)) })
    })
}

async fn ops_task(ops: Ops, address: std::net::SocketAddr, shutdown: CancellationToken) -> anyhow::Result<()> {
    Ok(ops.serve(address, shutdown).await?)
}

async fn controller_task(controller: Controller, shutdown: CancellationToken) -> anyhow::Result<()> {
    Ok(controller.run(shutdown).await?)
}

async fn gateway_task(
    args: gateway::Args,
    store: SharedStore,
    client: Client,
    metrics: gateway::Metrics,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    Ok(gateway::run(args, store, client, metrics, shutdown).await?)
}

/// Runs until a signal, or until one part ends; then all are shut down, and the first error is the process'.
async fn until_one_ends(mut tasks: JoinSet<anyhow::Result<()>>, shutdown: CancellationToken) -> anyhow::Result<()> {
    let mut terminate = tokio::signal::unix::signal(SignalKind::terminate()).context("no signal handler")?;
    let mut interrupt = tokio::signal::unix::signal(SignalKind::interrupt()).context("no signal handler")?;
    let mut result = Ok(());
    let first = tokio::select! {
        _ = terminate.recv() => None,
        _ = interrupt.recv() => None,
        ended = tasks.join_next() => ended,
    };
    if let Some(ended) = first {
        result = flatten(ended);
    }
    tracing::info!("shutting down");
    shutdown.cancel();
    while let Some(ended) = tasks.join_next().await {
        result = result.and(flatten(ended));
    }
    result
}

fn flatten(ended: Result<anyhow::Result<()>, tokio::task::JoinError>) -> anyhow::Result<()> {
    ended.context("a part of the process panicked")?
}

fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
