//! Postgres that fails, one server a test.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use agentsession_store::{Category, Options, Role, SharedStore, StoreError, connect, migrate, testing::TestPostgres};

use crate::work::{append, assert_sound, until_ok, writer};

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
    let store = store_on(&server, &impatient()).await;
    let writer = writer(&store).await;
    // Ten connections, all of which say read-only for as long as they live, as those to a demoted server do.
    let all = (0..10).map(|_| store.ledger(&writer.session));
    futures::future::join_all(all).await.into_iter().for_each(|ledger| drop(ledger.unwrap()));
    let made = "select count(*) from pg_stat_activity where application_name = 'agentsession'";
    let before: u32 = server.psql("postgres", made).unwrap().parse().unwrap();
    assert!(before >= 2, "{before} connections");
    server.set_read_only(true).unwrap();
    until_err(async || append(&store, &writer, 0, 10).await).await;
    server.set_read_only(false).unwrap();
    until_ok(async || append(&store, &writer, 0, 10).await).await;
    // One refusal condemns all that were made before it: those that are used next are new.
    for _ in 0..before {
        store.ledger(&writer.session).await.unwrap();
    }
    let age = "select coalesce(max(extract(epoch from clock_timestamp() - backend_start)), 0) < 30 from pg_stat_activity \
               where application_name = 'agentsession' and state_change > clock_timestamp() - interval '1 second'";
    assert_eq!(server.psql("postgres", age).unwrap(), "t");
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
    let Some(disk) = SmallDisk::mount() else {
        // Only root may mount; CI is root.
        assert!(!is_root(), "root could not mount a small disk");
        return;
    };
    let server = start();
    disk.give_to_postgres();
    let store = store_on(&server, &impatient()).await;
    server.psql("postgres", &format!("create tablespace small location '{}'", disk.path())).unwrap();
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

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").unwrap().uid() == 0
}

/// Eight MiB of memory as a file system.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mounted = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=8m", "tmpfs"])
            .arg(folder.path())
            .stderr(std::process::Stdio::null())
            .status()
            .ok()?;
        mounted.success().then_some(Self(folder))
    }

    fn path(&self) -> String {
        format!("{}/tablespace", self.0.path().display())
    }

    fn give_to_postgres(&self) {
        use std::os::unix::fs::{MetadataExt, PermissionsExt};
        std::fs::create_dir(self.path()).unwrap();
        let entry = std::fs::read_to_string("/etc/passwd").unwrap();
        let line = entry.lines().find(|line| line.starts_with("postgres:")).unwrap();
        let uid = line.split(':').nth(2).unwrap().parse().unwrap();
        std::os::unix::fs::chown(self.path(), Some(uid), None).unwrap();
        std::fs::set_permissions(self.0.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(std::fs::metadata(self.path()).unwrap().uid(), uid);
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}
