//! What idempotence costs: one harvest of a whole log against the fastest write there is that promises nothing.
//!
//! `cargo bench -p agentsession-store --bench append`. Rounds are interleaved, figures are medians; a ratio compares two medians of the same run.
//! Throughput ratios (higher is better): plain write ÷ idempotent write. Time ratios (lower is better): repeated ÷ fresh. Prints one JSON object a
//! line.

use std::time::{Duration, Instant};

use agentsession_store::{
    NewPart, NewSession, NewTurn, Options, SharedStore, Writer, connect, migrate, testing::TestPostgres,
};
use rand::{Rng, SeedableRng, rngs::StdRng};
use sqlx::{AssertSqlSafe, Connection, PgConnection, SqliteConnection};
use transcript::{Attempt, PartIndex, SessionUid, Turn};

type Failed = Box<dyn std::error::Error + Send + Sync>;

const ROUNDS: usize = 7;
const PARTS: usize = 49_704;

/// The parts of a long turn: half of them small deltas, a few tool outputs; 16.7 MB, median 150 bytes, largest 69 KB.
fn parts() -> Vec<String> {
    let mut rng = StdRng::seed_from_u64(16_700_000);
    let mut texts = Vec::with_capacity(PARTS);
    for number in 0..PARTS {
        let size = if rng.random_bool(0.93) {
            rng.random_range(100..200)
        } else {
            let tail: f64 = rng.random_range(0.006..1.0);
            (372.0 * tail.powf(-1.15)) as usize
        };
        let head = format!("{{\"type\":\"text-delta\",\"id\":\"{number}\",\"delta\":\"");
        let fill = size.min(69_000).saturating_sub(head.len() + 2);
        texts.push(format!("{head}{}\"}}", "lorem ipsum ".repeat(fill / 12 + 1).split_at(fill).0));
    }
    texts
}

fn median(times: &mut [Duration]) -> f64 {
    times.sort();
    times[times.len() / 2].as_secs_f64()
}

async fn writer(store: &SharedStore) -> Result<Writer, Failed> {
    let uid = SessionUid(uuid::Uuid::new_v4().to_string());
    let session = NewSession {
        uid: uid.clone(),
        namespace: "bench".to_owned(),
        namespace_uid: "bench".to_owned(),
        name: "bench".to_owned(),
        mode: "Autonomous".to_owned(),
    };
    store.ensure_session(&session).await?;
    let turn = NewTurn { session: uid.clone(), turn: Turn(1), client_id: None, prompt: "go".to_owned() };
    store.accept_turn(&turn).await?;
    store.start_turn(&uid, Turn(1), Attempt(1), &"pod".into(), "image").await?;
    Ok(Writer { session: uid, turn: Turn(1), attempt: Attempt(1), quota_bytes: u64::MAX })
}

/// The three ways in which a log meets the store.
#[derive(Default)]
struct Appends {
    fresh: Vec<Duration>,
    again: Vec<Duration>,
    mostly: Vec<Duration>,
}

impl Appends {
    async fn round(&mut self, store: &SharedStore, texts: &[String]) -> Result<(), Failed> {
        let new: Vec<_> = texts
            .iter()
            .zip(0..)
            .map(|(part, index)| NewPart { index: PartIndex(index), part: part.as_str() })
            .collect();
        let whole = writer(store).await?;
        self.fresh.push(timed(store, &whole, &new, PARTS).await?);
        self.again.push(timed(store, &whole, &new, 0).await?);
        let seventy = writer(store).await?;
        let present: Vec<_> = new.iter().copied().filter(|part| part.index.0 % 10 < 7).collect();
        store.append(&seventy, &present).await?;
        self.mostly.push(timed(store, &seventy, &new, PARTS - present.len()).await?);
        Ok(())
    }

    fn report(mut self, backend: &str, plain_name: &str, mut plain: Vec<Duration>, goal: f64) {
        let (fresh, again, mostly) = (median(&mut self.fresh), median(&mut self.again), median(&mut self.mostly));
        let plain = median(&mut plain);
        let print = |case: &str, (taken, limit): (f64, f64), name: &str, (ratio, goal, at_least): (f64, f64, bool)| {
            let line = serde_json::json!({
                "figure": "append", "case": format!("{backend}, {case}"), "parts": PARTS, "runs": ROUNDS,
                "ms": round(taken * 1e3), "limit": name, "limit_ms": round(limit * 1e3),
                "ratio": round(ratio), "goal": goal, "at_least": at_least,
            });
            println!("{line}");
        };
        print("throughput, all new", (fresh, plain), plain_name, (plain / fresh, goal, true));
        print("the same again", (again, fresh), "all new", (again / fresh, 0.2, false));
        print("70 % present", (mostly, fresh), "all new", (mostly / fresh, 0.6, false));
    }
}

fn round(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

async fn timed(
    store: &SharedStore,
    writer: &Writer,
    parts: &[NewPart<'_>],
    expected: usize,
) -> Result<Duration, Failed> {
    let began = Instant::now();
    let appended = store.append(writer, parts).await?;
    let took = began.elapsed();
    if appended.inserted as usize != expected {
        return Err(format!("{} inserted, {expected} expected", appended.inserted).into());
    }
    Ok(took)
}

/// A binary COPY into the same keyed table, with a commit and nothing else.
async fn plain_copy(connection: &mut PgConnection, texts: &[String]) -> Result<Duration, Failed> {
    let session = uuid::Uuid::new_v4().to_string();
    let began = Instant::now();
    let mut tx = connection.begin().await?;
    let mut copy = tx
        .copy_in_raw("copy agent_session_parts (seq, created_at, turn, part_index, digest, session_uid, part) from stdin (format binary)")
        .await?;
    let mut chunk = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0".to_vec();
    for (text, number) in texts.iter().zip(0_i64..) {
        chunk.extend_from_slice(&7_i16.to_be_bytes());
        for value in [number + 1, 0, 1, number, 0] {
            chunk.extend_from_slice(&8_i32.to_be_bytes());
            chunk.extend_from_slice(&value.to_be_bytes());
        }
        for value in [session.as_bytes(), text.as_bytes()] {
            chunk.extend_from_slice(&i32::try_from(value.len())?.to_be_bytes());
            chunk.extend_from_slice(value);
        }
        if chunk.len() > 256 << 10 {
            copy.send(chunk.as_slice()).await?;
            chunk.clear();
        }
    }
    chunk.extend_from_slice(&(-1_i16).to_be_bytes());
    copy.send(chunk.as_slice()).await?;
    copy.finish().await?;
    tx.commit().await?;
    Ok(began.elapsed())
}

async fn bench_postgres(texts: &[String]) -> Result<(), Failed> {
    let server = TestPostgres::start()?;
    let url = server.database()?;
    migrate(&url, &Options::default()).await?;
    let store = connect(&url, &Options::default()).await?;
    let mut connection = PgConnection::connect(&url).await?;
    let (mut plain, mut appends) = (Vec::new(), Appends::default());
    for _ in 0..ROUNDS {
        // A checkpoint in the middle of a round would be charged to whoever runs then.
        sqlx::raw_sql("checkpoint").execute(&mut connection).await?;
        plain.push(plain_copy(&mut connection, texts).await?);
        sqlx::raw_sql("checkpoint").execute(&mut connection).await?;
        appends.round(&store, texts).await?;
    }
    appends.report("postgres", "plain COPY into the same keyed table", plain, 0.9);
    Ok(())
}

/// Rows of a hundred into a table of the same columns without any key, under the same durability.
async fn keyless_insert(connection: &mut SqliteConnection, texts: &[String]) -> Result<Duration, Failed> {
    let values = |rows: usize| {
        let row = |row: usize| {
            let first = 4 + row * 4;
            format!("($1, $2, $3, ${first}, ${}, ${}, ${})", first + 1, first + 2, first + 3)
        };
        format!("insert into keyless values {}", (0..rows).map(row).collect::<Vec<_>>().join(", "))
    };
    let (hundred, mut seq) = (values(100), 0_i64);
    let began = Instant::now();
    sqlx::raw_sql("begin immediate").execute(&mut *connection).await?;
    for chunk in texts.chunks(100) {
        let sql = if chunk.len() == 100 { hundred.clone() } else { values(chunk.len()) };
        let mut query = sqlx::query(AssertSqlSafe(sql)).bind(1_i64).bind(1_i64).bind(0_i64);
        for text in chunk {
            query = query.bind(seq).bind(seq + 1).bind(0_i64).bind(text.as_str());
            seq += 1;
        }
        query.execute(&mut *connection).await?;
    }
    sqlx::raw_sql("commit").execute(&mut *connection).await?;
    Ok(began.elapsed())
}

async fn bench_sqlite(texts: &[String]) -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let url = format!("sqlite://{}/store.db", folder.path().display());
    let store = connect(&url, &Options::default()).await?;
    let keyless_url = format!("sqlite://{}/keyless.db?mode=rwc", folder.path().display());
    let mut connection = SqliteConnection::connect(&keyless_url).await?;
    sqlx::raw_sql("pragma journal_mode = wal; pragma synchronous = full").execute(&mut connection).await?;
    let columns =
        "session integer, turn integer, created_at integer, part_index integer, id integer, digest integer, part text";
    sqlx::raw_sql(AssertSqlSafe(format!("create table keyless ({columns}) strict"))).execute(&mut connection).await?;
    let (mut plain, mut appends) = (Vec::new(), Appends::default());
    for _ in 0..ROUNDS {
        plain.push(keyless_insert(&mut connection, texts).await?);
        appends.round(&store, texts).await?;
    }
    appends.report("sqlite", "insert into a table without keys", plain, 0.7);
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Failed> {
    let texts = parts();
    let mut sizes: Vec<_> = texts.iter().map(String::len).collect();
    sizes.sort_unstable();
    eprintln!(
        "{PARTS} parts, {:.1} MB, p50 {} B, max {} B, {ROUNDS} rounds",
        sizes.iter().sum::<usize>() as f64 / 1e6,
        sizes[PARTS / 2],
        sizes[PARTS - 1]
    );
    bench_sqlite(&texts).await?;
    bench_postgres(&texts).await
}
