//! SQLite that fails: writers killed, files damaged, full, held by others.

use std::{
    io::{BufRead, BufReader},
    os::unix::fs::PermissionsExt,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use agentsession_store::{Category, Options, SharedStore, StoreError, connect, migrate};
use rand::{Rng, SeedableRng, rngs::StdRng};
use transcript::{Attempt, SessionUid, Turn};

use crate::{
    disk::SmallDisk,
    work::{append, assert_sound, writer},
};

fn url(folder: &tempfile::TempDir) -> String {
    format!("sqlite://{}/store.db", folder.path().display())
}

async fn open(folder: &tempfile::TempDir) -> SharedStore {
    connect(&url(folder), &Options::default()).await.unwrap()
}

/// What the killed process does: appends for ever and prints what was acknowledged. Not a test of its own.
#[tokio::test(flavor = "multi_thread")]
async fn child_that_writes_until_it_is_killed() {
    let Ok(url) = std::env::var("STORE_FAULTS_CHILD_URL") else { return };
    let session = std::env::var("STORE_FAULTS_CHILD_SESSION").unwrap();
    let store = connect(&url, &Options::default()).await.unwrap();
    let writer = agentsession_store::Writer {
        session: SessionUid(session),
        turn: Turn(1),
        attempt: Attempt(1),
        quota_bytes: 1 << 30,
    };
    let mut next = store.ledger(&writer.session).await.unwrap().session.unwrap().last_seq.0 as u32;
    loop {
        append(&store, &writer, next, next + 7).await.unwrap();
        next += 7;
        println!("acknowledged {next}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_killed_at_any_moment_loses_nothing_it_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let session = writer(&open(&folder).await).await.session;
    let mut rng = StdRng::seed_from_u64(20_261_130);
    for _ in 0..12 {
        let url = url(&folder);
        let session_text = session.0.clone();
        let after = Duration::from_millis(rng.random_range(30..400));
        let acknowledged =
            tokio::task::spawn_blocking(move || run_child_and_kill_it(&url, &session_text, after)).await.unwrap();
        let store = open(&folder).await;
        assert_sound(&store, &session, acknowledged).await;
    }
    assert!(assert_sound(&open(&folder).await, &session, 1).await > 0);
}

/// Kills the child so long after its first acknowledgement; the last one it gave.
fn run_child_and_kill_it(url: &str, session: &str, after: Duration) -> u32 {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "sqlite::child_that_writes_until_it_is_killed", "--nocapture"])
        .env("STORE_FAULTS_CHILD_URL", url)
        .env("STORE_FAULTS_CHILD_SESSION", session)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let stdout = BufReader::new(child.stdout.take().unwrap());
    let (sender, first) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        let mut last = 0;
        for line in stdout.lines().map_while(Result::ok) {
            if let Some((_, number)) = line.split_once("acknowledged ") {
                // A line cut by the kill may be a shorter number: still one that was acknowledged.
                last = number.parse().unwrap_or(last);
                let _ = sender.send(());
            }
        }
        last
    });
    first.recv_timeout(Duration::from_secs(30)).unwrap();
    std::thread::sleep(after);
    child.kill().unwrap();
    child.wait().unwrap();
    reader.join().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_file_is_private_and_migrated_again_without_harm() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder).await;
    let writer = writer(&store).await;
    append(&store, &writer, 0, 10).await.unwrap();
    for name in ["store.db", "store.db-wal", "store.db-shm"] {
        let mode = std::fs::metadata(folder.path().join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    migrate(&url(&folder), &Options::default()).await.unwrap();
    let second = open(&folder).await;
    assert_eq!(assert_sound(&second, &writer.session, 10).await, 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_file_is_refused_with_the_way_out_and_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let content = b"this is no database, but somebody's only copy of something".repeat(100);
    std::fs::write(&path, &content).unwrap();
    let text = match connect(&url(&folder), &Options::default()).await {
        Err(StoreError::Unusable(text)) => text,
        other => panic!("{other:?}"),
    };
    assert!(text.contains("backup") && text.contains(".recover") && text.contains("left as it is"), "{text}");
    assert_eq!(std::fs::read(&path).unwrap(), content);
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_that_rot_while_the_store_is_open_are_said() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder).await;
    let writer = writer(&store).await;
    append(&store, &writer, 0, 5000).await.unwrap();
    drop(store);
    let path = folder.path().join("store.db");
    wait_until_closed(&folder).await;
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..].fill(0xa5);
    std::fs::write(&path, &bytes).unwrap();
    let store = open(&folder).await;
    let error = store.progress(&writer.session, writer.turn).await.unwrap_err();
    assert_eq!(error.category(), Category::Unusable, "{error:?}");
}

/// The writer closes the file a moment after the store is dropped.
async fn wait_until_closed(folder: &tempfile::TempDir) {
    for _ in 0..200 {
        if !folder.path().join("store.db-wal").exists() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_is_said_and_spares_what_fits() {
    let folder = tempfile::tempdir().unwrap();
    let Some(disk) = SmallDisk::mount(folder.path()) else { return };
    let store = open(&folder).await;
    let writer = writer(&store).await;
    let mut stored = 0;
    let full = loop {
        match append(&store, &writer, stored, stored + 200).await {
            Ok(_) => stored += 200,
            Err(error) => break error,
        }
        assert!(stored < 200_000, "the disk is never full");
    };
    assert_eq!(full.category(), Category::Full, "{full:?}");
    assert_eq!(assert_sound(&store, &writer.session, stored).await, stored);
    disk.enlarge();
    append(&store, &writer, stored, stored + 200).await.unwrap();
    assert_sound(&store, &writer.session, stored + 200).await;
    drop(store);
    wait_until_closed(&folder).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn somebody_elses_lock_ends_the_wait_not_the_store() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options { append_timeout: Duration::from_secs(1), ..Options::default() };
    let store = connect(&url(&folder), &options).await.unwrap();
    let writer = writer(&store).await;
    let other = sqlx::SqlitePool::connect(&url(&folder)).await.unwrap();
    let held = other.begin_with("begin immediate").await.unwrap();
    let began = Instant::now();
    let refused = append(&store, &writer, 0, 10).await.unwrap_err();
    assert_eq!(refused.category(), Category::Unavailable, "{refused:?}");
    assert!(began.elapsed() < Duration::from_secs(3));
    held.rollback().await.unwrap();
    append(&store, &writer, 0, 10).await.unwrap();
    assert_eq!(assert_sound(&store, &writer.session, 10).await, 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_that_the_database_refuses_is_named_and_spares_its_neighbours() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder).await;
    let other = sqlx::SqlitePool::connect(&url(&folder)).await.unwrap();
    let trigger = "create trigger odd before insert on agent_session_parts when new.part like '%\"delta\":\"77 %' \
                   begin select raise(abort, 'no seventy-seven'); end";
    sqlx::raw_sql(trigger).execute(&other).await.unwrap();
    let writer = writer(&store).await;
    let refused = append(&store, &writer, 0, 200).await.unwrap_err();
    assert_eq!(refused.category(), Category::Refused);
    let cause = std::error::Error::source(&refused).unwrap().to_string();
    assert!(cause.contains("part 1.77") && cause.contains("no seventy-seven"), "{cause}");
    let present = store.progress(&writer.session, writer.turn).await.unwrap().present;
    assert_eq!(present.runs(), [(0, 77), (78, 200)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn twelve_sessions_a_reader_and_a_vacuum_lose_no_part() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder).await;
    let mut writers = Vec::new();
    for _ in 0..12 {
        writers.push(writer(&store).await);
    }
    let tasks: Vec<_> = writers
        .iter()
        .cloned()
        .map(|writer| {
            let store = store.clone();
            tokio::spawn(async move {
                for batch in 0..30 {
                    while append(&store, &writer, batch * 10, batch * 10 + 10).await.is_err() {}
                }
            })
        })
        .collect();
    let vacuum = {
        let url = url(&folder);
        tokio::spawn(async move {
            let other = sqlx::SqlitePool::connect(&url).await.unwrap();
            // It may find the file busy; that the writers do not mind is the point.
            let _ = sqlx::raw_sql("vacuum").execute(&other).await;
        })
    };
    let reader = {
        let (store, session) = (store.clone(), writers[0].session.clone());
        tokio::spawn(async move {
            for _ in 0..20 {
                let seen = crate::work::rows(&store, &session).await.len() as u32;
                assert_sound(&store, &session, seen).await;
            }
        })
    };
    for task in tasks {
        task.await.unwrap();
    }
    reader.await.unwrap();
    vacuum.await.unwrap();
    for writer in &writers {
        assert_eq!(assert_sound(&store, &writer.session, 300).await, 300);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_goes_away_leaves_the_store_sound() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder).await;
    let writer = writer(&store).await;
    for wait in 0..30_u64 {
        let impatient = tokio::time::timeout(Duration::from_micros(wait * 150), append(&store, &writer, 0, 300));
        let _ = impatient.await;
    }
    append(&store, &writer, 0, 300).await.unwrap();
    assert_eq!(assert_sound(&store, &writer.session, 300).await, 300);
}
