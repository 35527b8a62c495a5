//! Postgres that fails, one server a test.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use agentsession_store::{
    Category, Options, Role, Roles, SharedStore, StoreError, connect, migrate, testing::TestPostgres,
};

use crate::{
    disk::SmallDisk,
    work::{append, assert_sound, until_ok, writer},
};

fn start() -> TestPostgres {
    TestPostgres::start().unwrap_or_else(|error| panic!("a real Postgres is part of this suite: {error}"))
}

/// Bounds short enough for a test.
fn impatient() -> Options {
    Options {
        connect_timeout: Duration::from_secs(2),
        append_timeout: Duration::from_secs(2),
        read_timeout: Duration::from_secs(2),
        ..Options::default()
    }
}

async fn store_on(server: &TestPostgres, options: &Options) -> SharedStore {
    let url = server.database().unwrap();
    migrate(&url, options).await.unwrap();
    connect(&url, options).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_killed_in_mid_append_loses_nothing_acknowledged_and_doubles_nothing() {
    let server = Arc::new(start());
    let store = store_on(&server, &impatient()).await;
    let writer = writer(&store).await;
    for round in 0..3_u64 {
        let killer = {
            let server = Arc::clone(&server);
            tokio::task::spawn_blocking(move || {
                std::thread::sleep(Duration::from_millis(150 + 130 * round));
                server.kill().unwrap();
            })
        };
        let mut acknowledged = store.ledger(&writer.session).await.unwrap().session.unwrap().last_seq.0 as u32;
        let mut attempted = acknowledged;
        while append(&store, &writer, attempted, attempted + 40).await.is_ok() {
            attempted += 40;
            acknowledged = attempted;
        }
        killer.await.unwrap();
        let again = Arc::clone(&server);
        tokio::task::spawn_blocking(move || again.resume_start().unwrap()).await.unwrap();
        let stored = until_ok(async || store.ledger(&writer.session).await).await.session.unwrap().last_seq.0 as u32;
        assert!(stored == acknowledged || stored == acknowledged + 40, "{stored} stored, {acknowledged} acknowledged");
        let retried = until_ok(async || append(&store, &writer, acknowledged, acknowledged + 40).await).await;
        assert_eq!(retried.inserted + retried.already, 40);
        assert_sound(&store, &writer.session, acknowledged + 40).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_server_is_said_and_heals_by_itself() {
    let server = start();
    let store = store_on(&server, &impatient()).await;
    let writer = writer(&store).await;
    append(&store, &writer, 0, 100).await.unwrap();
    server.set_read_only(true).unwrap();
    let refused = until_err(async || append(&store, &writer, 100, 200).await).await;
    assert_eq!(refused.category(), Category::Unavailable, "{refused:?}");
    let ping = store.ping().await.unwrap_err();
    assert_eq!(ping.category(), Category::Unavailable, "{ping:?}");
    store.ledger(&writer.session).await.unwrap();
    server.set_read_only(false).unwrap();
    until_ok(async || append(&store, &writer, 100, 500).await).await;
    assert_eq!(assert_sound(&store, &writer.session, 500).await, 500);
    store.ping().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_to_a_demoted_server_are_thrown_away() {
    let server = start();
    let url = server.database().unwrap();
    server.psql("postgres", "create role app login; alter role app set default_transaction_read_only = on").unwrap();
    let roles = Roles { controller: Some("app".to_owned()), gateway: None };
    migrate(&url, &Options { roles, ..impatient() }).await.unwrap();
    let writer = writer(&connect(&url, &impatient()).await.unwrap()).await;

    // Connections that are read-only for as long as they live, as those to a demoted server are.
    let store = connect(&server.url("test_0", "app"), &impatient()).await.unwrap();
    let all = (0..10).map(|_| store.ledger(&writer.session));
    futures::future::join_all(all).await.into_iter().for_each(|ledger| drop(ledger.unwrap()));
    let open = "select count(*) from pg_stat_activity where usename = 'app'";
    assert!(server.psql("postgres", open).unwrap().parse::<u32>().unwrap() >= 4);
    assert_eq!(append(&store, &writer, 0, 10).await.unwrap_err().category(), Category::Unavailable);

    // One refusal condemns all that were made before it: from now on every call gets a new one.
    server.psql("postgres", "alter role app reset default_transaction_read_only").unwrap();
    let calls = (1..5).map(|batch| append(&store, &writer, 0, batch * 10));
    assert!(futures::future::join_all(calls).await.into_iter().all(|appended| appended.is_ok()));
    store.ping().await.unwrap();
    assert_eq!(assert_sound(&store, &writer.session, 40).await, 40);
}

/// Settings reach a server's processes a moment after the reload.
async fn until_err<T: std::fmt::Debug>(mut call: impl AsyncFnMut() -> agentsession_store::Result<T>) -> StoreError {
    for _ in 0..50 {
        if let Err(error) = call().await {
            return error;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("never refused")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hung_server_hangs_nobody_and_is_used_again_when_it_goes_on() {
    let server = start();
    let store = store_on(&server, &impatient()).await;
    let writer = writer(&store).await;
    append(&store, &writer, 0, 10).await.unwrap();
    server.pause().unwrap();
    let began = Instant::now();
    let calls = (0..30).map(|_| append(&store, &writer, 10, 20));
    let answers = futures::future::join_all(calls).await;
    assert!(answers.iter().all(|answer| matches!(answer, Err(StoreError::Unavailable { .. }))), "{answers:?}");
    let reads = tokio::join!(store.ledger(&writer.session), store.ping());
    assert!(reads.0.is_err() && reads.1.is_err());
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    server.unpause().unwrap();
    until_ok(async || append(&store, &writer, 10, 20).await).await;
    assert_eq!(assert_sound(&store, &writer.session, 20).await, 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_is_down_at_start_comes_up_by_itself() {
    let server = start();
    let url = server.database().unwrap();
    migrate(&url, &Options::default()).await.unwrap();
    server.stop().unwrap();
    let store = connect(&url, &impatient()).await.unwrap();
    for answer in [store.ping().await, store.check(Role::Controller).await] {
        assert_eq!(answer.unwrap_err().category(), Category::Unavailable);
    }
    server.resume_start().unwrap();
    until_ok(async || store.check(Role::Controller).await).await;
    let writer = writer(&store).await;
    append(&store, &writer, 0, 10).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_between_calls_is_not_seen() {
    let server = start();
    let store = store_on(&server, &impatient()).await;
    let writer = writer(&store).await;
    for round in 0..3 {
        server.restart().unwrap();
        append(&store, &writer, round * 10, round * 10 + 10).await.unwrap();
    }
    assert_eq!(assert_sound(&store, &writer.session, 30).await, 30);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_somebody_holds_ends_the_wait_not_the_store() {
    let server = start();
    let store = store_on(&server, &impatient()).await;
    let writer = writer(&store).await;
    let holder = std::thread::scope(|scope| {
        let held = scope.spawn(|| {
            server
                .psql("test_0", "begin; select 1 from agent_sessions for update; select pg_sleep(3); commit")
                .unwrap();
        });
        std::thread::sleep(Duration::from_millis(700));
        let began = Instant::now();
        let handle = tokio::runtime::Handle::current();
        let waited = tokio::task::block_in_place(|| handle.block_on(append(&store, &writer, 0, 10)));
        let elapsed = began.elapsed();
        held.join().unwrap();
        (waited, elapsed)
    });
    assert_eq!(holder.0.unwrap_err().category(), Category::Unavailable);
    assert!(holder.1 < Duration::from_secs(3), "{:?}", holder.1);
    append(&store, &writer, 0, 10).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_that_the_database_refuses_is_named_and_spares_its_neighbours() {
    let server = start();
    let store = store_on(&server, &impatient()).await;
    server.psql("test_0", "alter table agent_session_parts add check (part not like '%\"delta\":\"77 %')").unwrap();
    let writer = writer(&store).await;
    let refused = append(&store, &writer, 0, 200).await.unwrap_err();
    assert_eq!(refused.category(), Category::Refused);
    let cause = std::error::Error::source(&refused).unwrap().to_string();
    assert!(cause.contains("part 1.77") && cause.contains("check constraint") && !cause.contains("zzz"), "{cause}");
    assert!(!format!("{refused:?}").contains("zzz"), "{refused:?}");
    let present = store.progress(&writer.session, writer.turn).await.unwrap().present;
    assert_eq!(present.runs(), [(0, 77), (78, 200)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_prepared_under_a_name_behind_a_pooler() {
    let server = start();
    server.psql("postgres", "alter system set log_statement = 'all'").unwrap();
    server.psql("postgres", "select pg_reload_conf()").unwrap();
    for (transaction_pooler, named) in [(false, true), (true, false)] {
        let options = Options { transaction_pooler, ..impatient() };
        let store = store_on(&server, &options).await;
        let before = server.log().len();
        let writer = writer(&store).await;
        append(&store, &writer, 0, 300).await.unwrap();
        append(&store, &writer, 0, 301).await.unwrap();
        store.progress(&writer.session, writer.turn).await.unwrap();
        store.ping().await.unwrap();
        assert_eq!(assert_sound(&store, &writer.session, 301).await, 301);
        let log = server.log().split_off(before);
        assert_eq!(log.contains("execute sqlx_s_"), named, "{log}");
        assert_eq!(log.contains("execute <unnamed>"), transaction_pooler, "{log}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_is_said_and_what_fits_stays() {
    let folder = tempfile::tempdir().unwrap();
    let Some(disk) = SmallDisk::mount(folder.path()) else { return };
    let tablespace = disk.folder_for_postgres();
    let server = start();
    let store = store_on(&server, &impatient()).await;
    server.psql("postgres", &format!("create tablespace small location '{tablespace}'")).unwrap();
    server.psql("test_0", "alter table agent_session_parts set tablespace small").unwrap();
    let writer = writer(&store).await;
    let mut stored = 0;
    let full = loop {
        match append(&store, &writer, stored, stored + 300).await {
            Ok(_) => stored += 300,
            Err(error) => break error,
        }
        assert!(stored < 200_000, "the disk is never full");
    };
    assert_eq!(full.category(), Category::Full, "{full:?}");
    assert_eq!(assert_sound(&store, &writer.session, stored).await, stored);
    server.psql("test_0", "alter table agent_session_parts set tablespace pg_default").unwrap();
    append(&store, &writer, stored, stored + 300).await.unwrap();
    assert_sound(&store, &writer.session, stored + 300).await;
}
