//! The one writer: a task that owns the connection and lets calls that wait share a commit.
//!
//! A commit under `synchronous=FULL` is one wait for the disk, whatever it holds. So the task takes every call that waits, gives each its own
//! savepoint in one transaction, commits, and only then answers. A fence that refuses one call rolls back to that call's savepoint; an
//! error of the database undoes the whole transaction, and each call is tried again alone, so that none fails for its neighbour.

use async_trait::async_trait;
use sqlx::{ConnectOptions, Connection, SqliteConnection, sqlite::SqliteConnectOptions};
use tokio::sync::{mpsc, oneshot};

use super::tx::SqliteTx;
use crate::{
    Result, StoreError,
    classify::{failed, shared, unavailable},
    error::Category,
    ops::{Op, Tx},
};

/// Calls that may wait before callers are held back.
const QUEUE: usize = 256;
/// Calls that share a commit, at most.
const SHARED_CALLS: usize = 64;
/// Bytes that share a commit, at most: past this the transaction, not the disk's wait, is what costs.
const SHARED_BYTES: u64 = 8 << 20;
const COMMITTING: &str = "committing to SQLite";

/// Asks the writer whether it can write at all.
pub(super) struct Touch;

#[async_trait]
impl Op for Touch {
    type Out = ();
    const NAME: &'static str = "asking whether the store takes writes";

    async fn run<T: Tx>(&self, _tx: &mut T) -> Result<()> {
        // The immediate transaction around it is the proof.
        Ok(())
    }
}

/// The way to the writer. When the last one goes, the task closes the file.
#[derive(Clone)]
pub(super) struct Handle(mpsc::Sender<Box<dyn Job>>);

impl Handle {
    /// Runs a call and waits until it is committed.
    pub(super) async fn perform<O: Op + 'static>(&self, op: O) -> Result<O::Out> {
        let gone = || unavailable(O::NAME, "the writer has ended");
        let (reply, answer) = oneshot::channel();
        self.0.send(Box::new(Call { op, out: None, reply })).await.map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }
}

/// Starts the task on an open connection.
pub(super) fn spawn(connect: SqliteConnectOptions, connection: SqliteConnection) -> Handle {
    let (sender, receiver) = mpsc::channel(QUEUE);
    tokio::spawn(Writer { connect, connection: Some(connection) }.serve(receiver));
    Handle(sender)
}

/// A call without its types.
#[async_trait]
trait Job: Send {
    fn name(&self) -> &'static str;
    fn bytes(&self) -> u64;
    /// Whether nobody waits for it any more.
    fn abandoned(&self) -> bool;
    /// Runs it and keeps what it returns. An error is only one of the database: a fence's is kept as the result.
    async fn run(&mut self, connection: &mut SqliteConnection) -> Result<Ran>;
    /// Answers with what was kept, or with why it was not committed.
    fn answer(self: Box<Self>, committed: Result<()>);
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Ran {
    Done,
    Fenced,
}

struct Call<O: Op> {
    op: O,
    out: Option<Result<O::Out>>,
    reply: oneshot::Sender<Result<O::Out>>,
}

#[async_trait]
impl<O: Op> Job for Call<O> {
    fn name(&self) -> &'static str {
        O::NAME
    }

    fn bytes(&self) -> u64 {
        self.op.bytes()
    }

    fn abandoned(&self) -> bool {
        self.reply.is_closed()
    }

    async fn run(&mut self, connection: &mut SqliteConnection) -> Result<Ran> {
        match self.op.run(&mut SqliteTx { connection, operation: O::NAME }).await {
            Ok(out) => {
                self.out = Some(Ok(out));
                Ok(Ran::Done)
            }
            Err(error) if error.category() == Category::Fenced => {
                self.out = Some(Err(error));
                Ok(Ran::Fenced)
            }
            Err(error) => Err(error),
        }
    }

    fn answer(self: Box<Self>, committed: Result<()>) {
        let out = match committed {
            Ok(()) => self.out.unwrap_or_else(|| Err(unavailable(O::NAME, "the call was not run"))),
            Err(error) => Err(error),
        };
        // The caller may have gone; what it wrote stands, and it would find it when it tries again.
        let _ = self.reply.send(out);
    }
}

/// Why a transaction was not committed.
enum Failure {
    /// It could not begin: nothing can be written.
    Begin(StoreError),
    /// Something in it failed; all of it is undone.
    Inside(StoreError),
}

struct Writer {
    connect: SqliteConnectOptions,
    /// `None` after a failure: the next transaction begins on a new connection.
    connection: Option<SqliteConnection>,
}

impl Writer {
    async fn serve(mut self, mut queue: mpsc::Receiver<Box<dyn Job>>) {
        while let Some(first) = queue.recv().await {
            let mut jobs = take_waiting(first, &mut queue);
            jobs.retain(|job| !job.abandoned());
            self.together(jobs).await;
        }
        if let Some(connection) = self.connection.take()
            && let Err(error) = connection.close().await
        {
            tracing::warn!(%error, "closing the SQLite file failed");
        }
    }

    /// One transaction for all; when it fails inside, one for each.
    async fn together(&mut self, mut jobs: Vec<Box<dyn Job>>) {
        let failure = match self.transaction(&mut jobs).await {
            Ok(()) => return jobs.into_iter().for_each(|job| job.answer(Ok(()))),
            Err(failure) => failure,
        };
        match failure {
            Failure::Inside(_) if jobs.len() > 1 => {
                for job in jobs {
                    let mut alone = vec![job];
                    let done = self.transaction(&mut alone).await.map_err(|failure| match failure {
                        Failure::Begin(error) | Failure::Inside(error) => error,
                    });
                    answer_all(alone, &done);
                }
            }
            Failure::Begin(error) | Failure::Inside(error) => answer_all(jobs, &Err(error)),
        }
    }

    async fn transaction(&mut self, jobs: &mut [Box<dyn Job>]) -> Result<(), Failure> {
        let Some(name) = jobs.first().map(|job| job.name()) else { return Ok(()) };
        let begin = |error: sqlx::Error| Failure::Begin(failed(name, &error));
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.connect.connect().await.map_err(begin)?,
        };
        // On every error the connection is dropped, and with it the transaction.
        sqlx::raw_sql("begin immediate").execute(&mut connection).await.map_err(begin)?;
        let alone = jobs.len() == 1;
        for job in jobs {
            run_in_savepoint(&mut connection, job.as_mut(), alone).await.map_err(Failure::Inside)?;
        }
        let commit = sqlx::raw_sql("commit").execute(&mut connection).await;
        commit.map_err(|error| Failure::Inside(failed(COMMITTING, &error)))?;
        self.connection = Some(connection);
        Ok(())
    }
}

async fn run_in_savepoint(connection: &mut SqliteConnection, job: &mut dyn Job, alone: bool) -> Result<()> {
    let name = job.name();
    let fail = |error: sqlx::Error| failed(name, &error);
    if alone {
        // A fence refuses before anything is written, and an empty commit is nothing.
        return job.run(connection).await.map(drop);
    }
    sqlx::raw_sql("savepoint call").execute(&mut *connection).await.map_err(fail)?;
    if job.run(connection).await? == Ran::Fenced {
        sqlx::raw_sql("rollback to call").execute(&mut *connection).await.map_err(fail)?;
    }
    sqlx::raw_sql("release call").execute(&mut *connection).await.map_err(fail)?;
    Ok(())
}

fn take_waiting(first: Box<dyn Job>, queue: &mut mpsc::Receiver<Box<dyn Job>>) -> Vec<Box<dyn Job>> {
    let mut bytes = first.bytes();
    let mut jobs = vec![first];
    while jobs.len() < SHARED_CALLS && bytes < SHARED_BYTES {
        let Ok(job) = queue.try_recv() else { break };
        bytes = bytes.saturating_add(job.bytes());
        jobs.push(job);
    }
    jobs
}

fn answer_all(jobs: Vec<Box<dyn Job>>, committed: &Result<()>) {
    for job in jobs {
        let answer = match committed {
            Ok(()) => Ok(()),
            Err(error) => Err(shared(error)),
        };
        job.answer(answer);
    }
}
