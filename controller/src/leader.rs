//! Leader election by a Lease.
//!
//! A lease fences nothing: every write to the store and to the API server is safe with two leaders. The election is there so that two
//! replicas do not do everything twice. Who loses the lease ends its process: a fresh one is the only one without old plans.

use kube::Client;
use kube_lease_manager::LeaseManagerBuilder;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// How long a lease that is not renewed is valid, in seconds.
const DURATION: u64 = 15;
/// How much earlier its holder renews it, in seconds; also the clock skew between nodes that is borne.
const GRACE: u64 = 5;

/// The election did not work.
#[derive(Debug, thiserror::Error)]
pub enum LeaderError {
    /// The Lease could not be read or made.
    #[error("lease {namespace}/{name} could not be prepared (rights to get, create and patch leases are needed)", name = crds::names::LEASE)]
    Prepare {
        /// Namespace of the Lease.
        namespace: String,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Another process holds the lease now.
    #[error("the lease was lost; ending, so that a fresh process begins without old plans")]
    Lost,
    /// Shut down before the lease was had.
    #[error("shut down while waiting for the lease")]
    ShutDown,
}

/// A lease that is held.
#[derive(Debug)]
pub struct Leadership {
    held: watch::Receiver<bool>,
}

impl Leadership {
    /// Waits until this process is the leader.
    ///
    /// # Errors
    /// [`LeaderError::Prepare`] and [`LeaderError::ShutDown`].
    pub async fn acquire(
        client: Client,
        namespace: &str,
        identity: &str,
        shutdown: &CancellationToken,
    ) -> Result<Self, LeaderError> {
        let manager = LeaseManagerBuilder::new(client, crds::names::LEASE)
            .with_namespace(namespace)
            .with_identity(identity)
            .with_field_manager(format!("{}-{identity}", crds::names::LEASE))
            .with_duration(DURATION)
            .with_grace(GRACE)
            .build()
            .await
            .map_err(|source| LeaderError::Prepare { namespace: namespace.to_owned(), source: Box::new(source) })?;
        let (mut held, _task) = manager.watch().await;
        tracing::info!(lease.namespace = namespace, identity, "waiting for the lease");
        let acquired = tokio::select! {
            () = shutdown.cancelled() => return Err(LeaderError::ShutDown),
            acquired = held.wait_for(|held| *held) => acquired.is_ok(),
        };
        if !acquired {
            return Err(LeaderError::Lost);
        }
        tracing::info!(identity, "leading");
        Ok(Self { held })
    }

    /// Waits until the lease is lost.
    pub async fn lost(mut self) -> LeaderError {
        let _ = self.held.wait_for(|held| !*held).await;
        LeaderError::Lost
    }
}
