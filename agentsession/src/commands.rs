//! What each command does.

use anyhow::Context;
use controller::watch::Scope;
use store::Options;

use crate::{
    cli::{Command, Migrate, Release, Store},
    roles,
};

/// Runs a command to its end.
pub fn run(command: Command) -> anyhow::Result<()> {
    // Both kube and sqlx bring rustls; one provider is chosen for the process, or the first connection would panic.
    rustls::crypto::ring::default_provider()
        .install_default()
        .map_err(|_| anyhow::anyhow!("another TLS provider was installed before"))?;
    match command {
        Command::Crd => {
            print!("{}", crds::custom_resource_definition_yaml()?);
            Ok(())
        }
        command => runtime()?.block_on(run_async(command)),
    }
}

fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().context("no threads to run on")
}

async fn run_async(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Serve(args) => roles::serve(*args).await,
        Command::Controller(args) => roles::controller(*args).await,
        Command::Gateway(args) => roles::gateway(*args).await,
        Command::Migrate(args) => migrate(args).await,
        Command::Release(args) => release(args).await,
        Command::Crd => Ok(()),
    }
}

async fn migrate(args: Migrate) -> anyhow::Result<()> {
    let mut options = options(&args.store);
    options.roles.controller = args.controller_role;
    options.roles.gateway = args.gateway_role;
    store::migrate(&args.store.url, &options).await.context("the store could not be migrated")?;
    tracing::info!("the store's schema is up to date");
    Ok(())
}

async fn release(args: Release) -> anyhow::Result<()> {
    let client = roles::client().await?;
    let namespaces: Vec<String> = args.watch_namespaces.into_iter().filter(|name| !name.is_empty()).collect();
    let scopes = if namespaces.is_empty() {
        vec![Scope { namespace: None }]
    } else {
        namespaces.into_iter().map(|namespace| Scope { namespace: Some(namespace) }).collect()
    };
    let released = controller::release::run(&client, &scopes, |line| println!("{line}")).await?;
    println!("released: {} by the controller, {} by force", released.by_controller, released.by_force);
    Ok(())
}

/// How the store is opened.
pub fn options(store: &Store) -> Options {
    Options {
        max_connections: store.store_connections,
        transaction_pooler: store.store_transaction_pooler,
        ..Options::default()
    }
}
