//! A Postgres of one's own for tests: made in a temporary folder, on a loopback port, with its durability on, and gone with the test process
//! whatever becomes of it.
//!
//! Needs the server's programs (Debian: package `postgresql`). A machine without them fails the test with a sentence: a suite that skips is a
//! suite that lies.

use std::{
    fs,
    io::{self, Write as _},
    net::TcpListener,
    os::unix::{fs::MetadataExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// What went wrong while a test's Postgres was made or moved.
#[derive(Debug, thiserror::Error)]
pub enum TestPostgresError {
    /// The programs are not installed.
    #[error("PostgreSQL is not installed (no initdb under /usr/lib/postgresql/*/bin): apt-get install postgresql")]
    NotInstalled,
    /// Run as root, and there is no `postgres` user to run the server as.
    #[error("PostgreSQL does not run as root and there is no user named postgres")]
    NoUser,
    /// A program failed.
    #[error("{program} failed: {output}")]
    Program {
        /// Which.
        program: String,
        /// What it said.
        output: String,
    },
    /// The server did not answer in time.
    #[error("the server did not come up; its log ends with: {0}")]
    NotUp(String),
    /// The file system or a process said no.
    #[error("while {what}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

type Result<T, E = TestPostgresError> = std::result::Result<T, E>;

fn io(what: &'static str) -> impl Fn(io::Error) -> TestPostgresError {
    move |source| TestPostgresError::Io { what, source }
}

/// How long the server may take to come up, recovery after a kill included.
const UP: Duration = Duration::from_secs(60);

/// A running server with the superuser `postgres`, who needs no password on loopback.
#[derive(Debug)]
pub struct TestPostgres {
    bin: PathBuf,
    dir: PathBuf,
    port: u16,
    user: Option<(u32, u32)>,
    server: Mutex<Option<Server>>,
    databases: AtomicU32,
    // Last, so that the folder goes after the server.
    folder: tempfile::TempDir,
}

/// A shell that started the server and ends it when its stdin is closed, by whatever end of this process.
#[derive(Debug)]
struct Server {
    shell: Child,
    stdin: Option<ChildStdin>,
}

/// Waits for a word: `keep` = end the server and leave its folder, anything else, and the end of this process is one, = take the folder too.
const WATCHDOG: &str = r#""$@" >>"$PGDATA/server.log" 2>&1 </dev/null & pid=$!
read -r word
kill -QUIT $pid 2>/dev/null
wait $pid
[ "$word" = keep ] || rm -rf "$FOLDER""#;

impl TestPostgres {
    /// Makes a cluster in a temporary folder and starts it.
    ///
    /// # Errors
    /// See [`TestPostgresError`].
    pub fn start() -> Result<Self> {
        let bin = find_programs()?;
        let user = run_as()?;
        let folder = tempfile::Builder::new().prefix("agentsession-pg-").tempdir().map_err(io("making a folder"))?;
        if let Some((uid, gid)) = user {
            std::os::unix::fs::chown(folder.path(), Some(uid), Some(gid)).map_err(io("giving the folder away"))?;
        }
        let made = Self {
            dir: folder.path().join("data"),
            bin,
            port: free_port()?,
            user,
            server: Mutex::new(None),
            databases: AtomicU32::new(0),
            folder,
        };
        let init = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync", "-D"];
        made.run(made.command("initdb").args(init).arg(&made.dir))?;
        made.resume_start()?;
        Ok(made)
    }

    /// Starts a server that was stopped or killed, and waits until it answers.
    ///
    /// # Errors
    /// See [`TestPostgresError`].
    pub fn resume_start(&self) -> Result<()> {
        let mut command = Command::new("sh");
        command.args(["-c", WATCHDOG, "watchdog"]).arg(self.bin.join("postgres"));
        command.arg("-D").arg(&self.dir).arg("-k").arg(&self.dir);
        command.args(["-h", "127.0.0.1", "-p", &self.port.to_string(), "-c", "max_connections=200"]);
        command
            .env("PGDATA", &self.dir)
            .env("FOLDER", self.folder.path())
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        self.become_user(&mut command);
        let mut shell = command.spawn().map_err(io("starting the server"))?;
        let stdin = shell.stdin.take();
        *self.server.lock().unwrap_or_else(PoisonError::into_inner) = Some(Server { shell, stdin });
        let deadline = Instant::now() + UP;
        while Instant::now() < deadline {
            if self.psql("postgres", "select 1").is_ok() {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(50));
        }
        let log = fs::read_to_string(self.dir.join("server.log")).unwrap_or_default();
        Err(TestPostgresError::NotUp(log.lines().rev().take(5).collect::<Vec<_>>().join(" | ")))
    }

    /// Stops the server at once, as an operator's immediate shutdown: what was committed survives, by recovery.
    ///
    /// # Errors
    /// See [`TestPostgresError`].
    pub fn stop(&self) -> Result<()> {
        let Some(mut server) = self.server.lock().unwrap_or_else(PoisonError::into_inner).take() else { return Ok(()) };
        if let Some(mut stdin) = server.stdin.take() {
            // A shell that has gone already left no server behind.
            let _ = stdin.write_all(b"keep\n");
        }
        server.shell.wait().map_err(io("waiting for the server")).map(drop)
    }

    /// Kills every process of the server with SIGKILL.
    ///
    /// # Errors
    /// See [`TestPostgresError`].
    pub fn kill(&self) -> Result<()> {
        // Stopped first: the main process would otherwise start new children meanwhile.
        self.pause()?;
        signal("KILL", &self.processes()?)?;
        self.stop()
    }

    /// Stops and starts.
    ///
    /// # Errors
    /// See [`TestPostgresError`].
    pub fn restart(&self) -> Result<()> {
        self.stop()?;
        self.resume_start()
    }

    /// Suspends every process with SIGSTOP: the server accepts connections and says nothing.
    ///
    /// # Errors
    /// See [`TestPostgresError`].
    pub fn pause(&self) -> Result<()> {
        signal("STOP", &self.processes()?)
    }

    /// Lets a suspended server go on.
    ///
    /// # Errors
    /// See [`TestPostgresError`].
    pub fn unpause(&self) -> Result<()> {
        signal("CONT", &self.processes()?)
    }

    /// Makes every new transaction read-only, as on a server that was demoted, or undoes it.
    ///
    /// # Errors
    /// See [`TestPostgresError`].
    pub fn set_read_only(&self, on: bool) -> Result<()> {
        let value = if on { "on" } else { "off" };
        self.psql("postgres", &format!("alter system set default_transaction_read_only = {value}"))?;
        self.psql("postgres", "set default_transaction_read_only = off; select pg_reload_conf()").map(drop)
    }

    /// Makes an empty database and returns its URL.
    ///
    /// # Errors
    /// See [`TestPostgresError`].
    pub fn database(&self) -> Result<String> {
        let name = format!("test_{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.psql("postgres", &format!("create database {name}"))?;
        Ok(self.url(&name, "postgres"))
    }

    /// The URL of a database for a role.
    #[must_use]
    pub fn url(&self, database: &str, role: &str) -> String {
        format!("postgres://{role}@127.0.0.1:{}/{database}", self.port)
    }

    /// What the server has logged.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.join("server.log")).unwrap_or_default()
    }

    /// The loopback port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Runs statements as the superuser, also while the server is set read-only, and returns what they print, unaligned.
    ///
    /// # Errors
    /// See [`TestPostgresError`].
    pub fn psql(&self, database: &str, sql: &str) -> Result<String> {
        let mut command = self.command("psql");
        command.env("PGOPTIONS", "-c default_transaction_read_only=off").env("PGCONNECT_TIMEOUT", "5");
        command.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-U", "postgres", "-h", "127.0.0.1"]);
        command.args(["-p", &self.port.to_string(), "-d", database, "-c", sql]);
        self.run(&mut command)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.bin.join(program));
        command.env_clear().env("PATH", "/usr/bin:/bin").env("LC_ALL", "C").current_dir("/");
        self.become_user(&mut command);
        command
    }

    fn become_user(&self, command: &mut Command) {
        if let Some((uid, gid)) = self.user {
            command.uid(uid).gid(gid);
        }
    }

    #[expect(clippy::unused_self, reason = "reads as one of the server's own actions")]
    fn run(&self, command: &mut Command) -> Result<String> {
        let output = command.output().map_err(io("running a program of PostgreSQL"))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned());
        }
        Err(TestPostgresError::Program {
            program: Path::new(command.get_program()).display().to_string(),
            output: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }

    /// The main process and its children.
    fn processes(&self) -> Result<Vec<String>> {
        let file = fs::read_to_string(self.dir.join("postmaster.pid")).map_err(io("reading the server's pid"))?;
        let main = file.lines().next().unwrap_or_default().trim().to_owned();
        let mut found = vec![main.clone()];
        for entry in fs::read_dir("/proc").map_err(io("listing processes"))?.flatten() {
            // The parent is the second field after the name, which stands in parentheses and may hold anything.
            let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
            let parent = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1).map(str::to_owned));
            if parent.as_deref() == Some(main.as_str()) {
                found.extend(entry.file_name().into_string().ok());
            }
        }
        Ok(found)
    }
}

impl Drop for TestPostgres {
    fn drop(&mut self) {
        // A paused server would not see that it is to end.
        let _ = self.unpause();
        let _ = self.stop();
    }
}

fn signal(name: &str, processes: &[String]) -> Result<()> {
    // Some may have ended meanwhile: kill then says so and signals the others all the same.
    let done = Command::new("kill").arg(format!("-{name}")).args(processes).stderr(Stdio::null()).status();
    done.map_err(io("sending a signal")).map(drop)
}

fn find_programs() -> Result<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").map_err(|_| TestPostgresError::NotInstalled)?;
    let mut found: Vec<_> = versions
        .flatten()
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse::<u32>().ok()?, entry.path().join("bin"))))
        .filter(|(_, bin)| bin.join("initdb").exists())
        .collect();
    found.sort();
    found.pop().map(|(_, bin)| bin).ok_or(TestPostgresError::NotInstalled)
}

/// Whom to run the server as; `None` when this process is not root, and so is good enough.
fn run_as() -> Result<Option<(u32, u32)>> {
    if fs::metadata("/proc/self").map_err(io("asking who this is"))?.uid() != 0 {
        return Ok(None);
    }
    let users = fs::read_to_string("/etc/passwd").map_err(io("reading the list of users"))?;
    let postgres = users.lines().find_map(|line| {
        let mut fields = line.strip_prefix("postgres:")?.split(':').skip(1);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    });
    postgres.map(Some).ok_or(TestPostgresError::NoUser)
}

fn free_port() -> Result<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(io("looking for a free port"))?;
    Ok(listener.local_addr().map_err(io("looking for a free port"))?.port())
}
