//! A real pgbouncer in transaction mode between store and server.

use std::{
    fs,
    net::{TcpListener, TcpStream},
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use agentsession_store::{Options, connect, migrate, testing::TestPostgres};

use crate::{
    disk::postgres_user,
    work::{append, assert_sound, writer},
};

struct Pooler(Child);

impl Drop for Pooler {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Two server connections for everybody, taken anew for each transaction.
fn start(folder: &Path, server: &TestPostgres) -> (Pooler, u16) {
    let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let settings = format!(
        "[databases]\ntest_0 = user=postgres host=127.0.0.1 port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nauth_type = any\n\
         unix_socket_dir =\npool_mode = transaction\ndefault_pool_size = 2\nmax_client_conn = 500\n",
        server.port()
    );
    let file = folder.join("pgbouncer.ini");
    fs::write(&file, settings).unwrap();
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
    let (uid, gid) = postgres_user();
    let mut command = Command::new("/usr/sbin/pgbouncer");
    command.arg("-q").arg(&file).uid(uid).gid(gid).stdout(Stdio::null()).stderr(Stdio::null());
    let pooler = Pooler(command.spawn().unwrap());
    for _ in 0..100 {
        if TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return (pooler, port);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("pgbouncer did not come up")
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root and the package pgbouncer"]
async fn fifty_sessions_work_behind_a_pooler_in_transaction_mode() {
    let server = TestPostgres::start().unwrap();
    migrate(&server.database().unwrap(), &Options::default()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (_pooler, port) = start(folder.path(), &server);
    let url = format!("postgres://postgres@127.0.0.1:{port}/test_0");
    let options = Options { transaction_pooler: true, max_connections: 20, ..Options::default() };
    let store = connect(&url, &options).await.unwrap();
    let tasks = (0..50).map(|_| {
        let store = store.clone();
        tokio::spawn(async move {
            let writer = writer(&store).await;
            for batch in 0..6 {
                append(&store, &writer, batch * 20, batch * 20 + 30).await.unwrap();
                store.progress(&writer.session, writer.turn).await.unwrap();
            }
            assert_eq!(assert_sound(&store, &writer.session, 130).await, 130);
        })
    });
    for task in futures::future::join_all(tasks).await {
        task.unwrap();
    }
    let locks = "select count(*) from pg_locks where locktype = 'advisory'";
    assert_eq!(server.psql("test_0", locks).unwrap(), "0");
    assert_eq!(server.psql("test_0", "select count(*) from agent_session_parts").unwrap(), "6500");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root and the package pgbouncer"]
async fn without_the_option_the_pooler_is_named() {
    let server = TestPostgres::start().unwrap();
    migrate(&server.database().unwrap(), &Options::default()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (_pooler, port) = start(folder.path(), &server);
    let url = format!("postgres://postgres@127.0.0.1:{port}/test_0");
    let store = connect(&url, &Options::default()).await.unwrap();
    let error = store.ping().await.unwrap_err();
    let text = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
    assert!(text.contains("startup parameter") || text.contains("pooler"), "{text}");
}
