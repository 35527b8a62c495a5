//! Bugs that are put into the world's copy of the controller, or its store, to see that the invariants bite.

/// One seeded bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// The Pod is deleted when its log should be read.
    TeardownBeforeSettle,
    /// The session is released as soon as it is being deleted.
    ReleaseBeforeSettle,
    /// The store takes parts from any attempt.
    NoAttemptFence,
    /// A settle overwrites what stands.
    SettleWithoutTest,
    /// A claim of a turn takes it from the Pod that has it.
    StartTurnSteals,
    /// A read that broke off is taken for the whole log.
    NoTrailerCheck,
    /// A Pod of the right name is taken for ours.
    AdoptByName,
    /// The prompt is delivered before the store knows who runs it.
    DeliverBeforeStart,
    /// A pass acts on a view that is older than its own writes.
    NoOwnWritesGuard,
    /// Status is written whatever stands.
    StatusWithoutVersion,
    /// Releasing replaces the whole list of finalizers.
    FinalizersReplaced,
    /// An emptied store's turns are accepted as new ones.
    NoHighWaterMark,
    /// A delivered turn whose Pod is gone goes to the next one.
    RunsAgain,
    /// Pods are deleted by name alone.
    DeleteByName,
    /// A Pod that the cache does not show is taken for gone.
    GoneByCache,
    /// A Pod is made although only the cache says that the earlier one is gone.
    CreateByCache,
    /// Only the cache is asked whether turns of an unknown session were accepted before.
    AcceptByCache,
}

impl Mutation {
    pub const ALL: &'static [Self] = &[
        Self::TeardownBeforeSettle,
        Self::ReleaseBeforeSettle,
        Self::NoAttemptFence,
        Self::SettleWithoutTest,
        Self::StartTurnSteals,
        Self::NoTrailerCheck,
        Self::AdoptByName,
        Self::DeliverBeforeStart,
        Self::NoOwnWritesGuard,
        Self::StatusWithoutVersion,
        Self::FinalizersReplaced,
        Self::NoHighWaterMark,
        Self::RunsAgain,
        Self::DeleteByName,
        Self::GoneByCache,
        Self::CreateByCache,
        Self::AcceptByCache,
    ];
}
