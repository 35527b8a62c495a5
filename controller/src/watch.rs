//! The watches of one namespace, or of all: sessions into their reconciles, Pods into the index. Caches hold only what decisions need.

use std::{collections::HashSet, sync::Arc};

use crds::names;
use futures::{Stream, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt,
    core::Resource,
    runtime::{Config, Controller, WatchStreamExt, reflector, watcher},
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tokio_util::sync::CancellationToken;
use transcript::SessionUid;

use crate::{
    context::Context,
    directory::Guarded,
    follow::SessionRef,
    metrics::{WatchLabel, Watched},
    reconcile::{after_error, reconcile},
    sweep,
};

/// One watched namespace, or all of them.
#[derive(Clone, Debug)]
pub struct Scope {
    /// `None` is all.
    pub namespace: Option<String>,
}

impl Scope {
    /// The objects of this scope.
    pub fn api<K>(&self, client: &Client) -> Api<K>
    where
        K: Resource<Scope = k8s_openapi::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        match &self.namespace {
            Some(namespace) => Api::namespaced(client.clone(), namespace),
            None => Api::all(client.clone()),
        }
    }
}

/// Runs the watches and reconciles of a scope until shut down.
pub async fn run(scope: Scope, context: Context, shutdown: CancellationToken) {
    let (pokes, poked) = mpsc::unbounded_channel();
    context.directory.add_queue(scope.namespace.clone(), pokes);
    let pods = tokio::spawn(watch_pods(scope.clone(), context.clone(), shutdown.clone()));

    let (reader, writer) = reflector::store::<Guarded>();
    let sessions = watch_sessions(&scope, &context).reflect(writer).touched_objects();
    let sessions = sessions.take_until(shutdown.clone().cancelled_owned());
    let stop = shutdown.clone();
    let config = Config::default().concurrency(0);
    wait_for_pods(&context, &shutdown).await;
    Controller::for_stream(sessions, reader)
        .with_config(config)
        .reconcile_on(UnboundedReceiverStream::new(poked))
        .graceful_shutdown_on(async move { stop.cancelled().await })
        .run(reconcile, |object, error, context| after_error(&object, error, &context), Arc::new(context.clone()))
        // Results were logged and counted where they came about.
        .for_each(|_| futures::future::ready(()))
        .await;
    if let Err(error) = pods.await {
        tracing::error!(%error, "the Pod watch ended");
    }
}

/// Decisions before the first complete list of Pods would take every Pod for gone.
pub async fn wait_for_pods(context: &Context, shutdown: &CancellationToken) {
    while !context.pods.is_synced() && !shutdown.is_cancelled() {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

fn watch_sessions(
    scope: &Scope,
    context: &Context,
) -> impl Stream<Item = watcher::Result<watcher::Event<Guarded>>> + Send + use<> {
    let api: Api<Guarded> = match &scope.namespace {
        Some(namespace) => Api::namespaced(context.client.clone(), namespace),
        None => Api::all(context.client.clone()),
    };
    let (scope, context, mut listing) = (scope.clone(), context.clone(), HashSet::new());
    let errors = context.metrics.watch_errors.get_or_create_owned(&WatchLabel { resource: Watched::Sessions });
    watcher(api, watcher::Config::default())
        .default_backoff()
        .modify(trim)
        .inspect_ok(move |event| learn(&scope, &context, &mut listing, event))
        .inspect_err(move |error| {
            errors.inc();
            tracing::warn!(error = %crate::exec::error_chain(error), "watch of AgentSessions broke, goes on");
        })
}

/// What nobody here reads is not kept: managedFields are three quarters of an object.
fn trim(object: &mut Guarded) {
    let metadata = object.meta_mut();
    metadata.managed_fields = None;
    if let Some(annotations) = metadata.annotations.as_mut() {
        annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
    }
}

/// Notes where sessions are. A complete list that lacks one says that it is gone, as a deletion does: it may have happened in a gap of the watch.
fn learn(scope: &Scope, context: &Context, listing: &mut HashSet<SessionUid>, event: &watcher::Event<Guarded>) {
    match event {
        watcher::Event::Apply(object) | watcher::Event::InitApply(object) => {
            if let (Some(uid), Some(namespace)) = (object.meta().uid.clone().map(SessionUid), object.namespace()) {
                let session = SessionRef { namespace, name: object.name_any() };
                listing.insert(uid.clone());
                context.directory.learn(uid, session);
            }
        }
        watcher::Event::Delete(object) => {
            if let Some(uid) = object.meta().uid.clone() {
                sweep::gone(context, SessionUid(uid));
            }
        }
        watcher::Event::Init => listing.clear(),
        watcher::Event::InitDone => {
            let known = context.directory.known(scope.namespace.as_deref());
            for uid in known.into_iter().filter(|uid| !listing.contains(uid)) {
                sweep::gone(context, uid);
            }
            listing.clear();
        }
    }
}

async fn watch_pods(scope: Scope, context: Context, shutdown: CancellationToken) {
    let api: Api<Pod> = scope.api(&context.client);
    let config = watcher::Config::default().labels(names::LABEL_SESSION_UID);
    let errors = context.metrics.watch_errors.get_or_create_owned(&WatchLabel { resource: Watched::Pods });
    let events = watcher(api, config).default_backoff().take_until(shutdown.cancelled_owned());
    let mut events = std::pin::pin!(events);
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => {
                let deleted = match &event {
                    watcher::Event::Delete(pod) => pod.uid(),
                    _ => None,
                };
                for session in context.pods.apply(event) {
                    context.directory.poke(&session);
                }
                if let Some(pod) = deleted {
                    context.followers.stop(&pod.into());
                }
            }
            Err(error) => {
                errors.inc();
                tracing::warn!(error = %crate::exec::error_chain(&error), "watch of Pods broke, goes on");
            }
        }
    }
}
