//! The controller dies, or sleeps, at the worst moment. The end is the same as without.

use agentsession_e2e::{
    Draft, Operator, Role, Session, Status, Stored, Test, eventually, pods, postgres::Postgres, run, wait::seconds,
};
use anyhow::{Result, ensure};
use kube::api::PropagationPolicy;

use crate::common::{WELL, check_pieces, has_said};

/// A turn during which the controller dies at `point`, on its way to the end or while the finished session is deleted. Another controller
/// takes over; the end must be the same as if nothing had happened.
async fn crash_at(t: &Test, store: &str, point: &str) -> Result<()> {
    let mut operator = Operator::start(t, t.settings().store(store).failpoint(point)).await?;
    let session = t.apply(Draft::new("crash").turn("- parts: 30\n")).await?;
    let in_deletion = ["release:before", "release:after"].contains(&point);
    if in_deletion {
        session.finished().await?;
        session.delete(PropagationPolicy::Background).await?;
    }
    operator.process.wait(seconds(60)).await?;
    ensure!(operator.process.said().contains("failpoint"), "it did not die at {point}");
    operator.restart(t).await?;
    if !in_deletion {
        let status = session.finished().await?;
        ensure!(status.turn(1)?.summary() == WELL, "{point}: {:?}", status.turn(1)?);
        ensure!(status.attempt == 1, "{point}: attempt {}", status.attempt);
        session.delete(PropagationPolicy::Background).await?;
    }
    session.gone(seconds(30)).await?;
    pods::none(t, &session, seconds(15)).await?;
    let stored = Stored::read(store, &session).await?;
    stored.check()?;
    ensure!(stored.summary(1)? == WELL, "{point}: {}", stored.summary(1)?);
    check_pieces(&stored, 1, 30)?;
    check_one_teardown(t).await
}

/// One Pod was ever made.
async fn check_one_teardown(t: &Test) -> Result<()> {
    let scheduled = t.kubectl(&["get", "events", "--field-selector=reason=Scheduled", "-o", "name"]).await?;
    ensure!(scheduled.lines().count() == 1, "not one Pod: {scheduled}");
    Ok(())
}

macro_rules! crashes {
    ($($name:ident: $point:literal),+ $(,)?) => {
        $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                run(concat!("crash-", stringify!($name)).replace('_', "-").as_str(), async |t| {
                    crash_at(t, &t.sqlite(), $point).await
                })
                .await;
            }
        )+
    };
}

crashes! {
    before_create: "create:before",
    after_create: "create:after",
    before_start: "start:before",
    after_start: "start:after",
    before_deliver: "deliver:before",
    after_deliver: "deliver:after",
    before_harvest: "harvest:before",
    after_harvest: "harvest:after",
    before_settle: "settle:before",
    after_settle: "settle:after",
    before_status: "status:before",
    after_status: "status:after",
    before_delete: "delete:before",
    after_delete: "delete:after",
    before_release_pod: "release-pod:before",
    after_release_pod: "release-pod:after",
    before_release: "release:before",
    after_release: "release:after",
}

#[tokio::test(flavor = "multi_thread")]
async fn on_postgres_too() {
    run("crash-postgres", async |t| {
        let postgres = Postgres::start(t).await?;
        postgres.migrate().await?;
        crash_at(t, &postgres.url(), "harvest:after").await
    })
    .await;
}

/// Two controllers without election. One is paused before the end of the turn, and wakes after the other has finished it.
async fn one_sleeps(t: &Test, store: &str) -> Result<()> {
    let alone = |role| t.settings().store(store).role(role).argument("--leader-elect=false");
    let sleeper = Operator::start(t, alone(Role::Serve)).await?;
    let session = t.apply(Draft::new("two").turn("- parts: 30\n- wait: 5s\n- say: end\n")).await?;
    has_said(t, &session, 30).await?;
    sleeper.process.signal("STOP").await?;
    let waker = Operator::start(t, alone(Role::Controller)).await?;
    let status = session.finished().await?;
    ensure!(status.turn(1)?.summary() == WELL, "{:?}", status.turn(1)?);
    pods::none(t, &session, seconds(15)).await?;
    let before = (Stored::read(store, &session).await?, session.status().await?);
    sleeper.process.signal("CONT").await?;
    caught_up(&sleeper).await?;
    check_unchanged(store, &session, &before).await?;
    let settled = "agentsession_controller_settled_turns_total";
    // A summed counter, so exactly representable.
    let counted = (sleeper.metric(settled).await?, waker.metric(settled).await?);
    ensure!(counted == (0.0, 1.0), "both counted the turn: {counted:?}");
    Ok(())
}

/// Waits until a controller that was paused has had the time to do all that it was about to.
async fn caught_up(operator: &Operator) -> Result<()> {
    eventually("the paused controller to answer", seconds(30), async || {
        Ok(agentsession_e2e::replay::get(&format!("{}/readyz", operator.ops), None).await?.status == 200)
    })
    .await?;
    tokio::time::sleep(seconds(5)).await;
    Ok(())
}

async fn check_unchanged(store: &str, session: &Session, (stored, status): &(Stored, Status)) -> Result<()> {
    let now = Stored::read(store, session).await?;
    ensure!(now.ledger.turns == stored.ledger.turns, "{:?} became {:?}", stored.ledger.turns, now.ledger.turns);
    ensure!(now.parts == stored.parts, "the parts changed");
    ensure!(&session.status().await? == status, "the status changed");
    now.check()
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_controllers_one_wins_and_the_late_one_changes_nothing() {
    run("two-controllers", async |t| one_sleeps(t, &t.sqlite()).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn so_on_postgres() {
    run("two-controllers-postgres", async |t| {
        let postgres = Postgres::start(t).await?;
        postgres.migrate().await?;
        one_sleeps(t, &postgres.url()).await
    })
    .await;
}
