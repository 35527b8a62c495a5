//! Schema and rights: migrated twice, at once, by role; what is missing is named at start.

use agentsession_store::{
    Category, Options, Role, Roles, SharedStore, StoreError, connect, migrate, testing::TestPostgres,
};

use crate::work::{append, writer};

fn start() -> TestPostgres {
    TestPostgres::start().unwrap_or_else(|error| panic!("a real Postgres is part of this suite: {error}"))
}

fn with_roles() -> Options {
    let roles = Roles { controller: Some("the controller".to_owned()), gateway: Some("the_\"gate%way'".to_owned()) };
    Options { roles, ..Options::default() }
}

const CREATE_ROLES: &str = r#"create role "the controller" login; create role "the_""gate%way'" login"#;
const GATEWAY: &str = r#""the_""gate%way'""#;

async fn as_role(server: &TestPostgres, role: &str) -> SharedStore {
    connect(&server.url("test_0", role), &Options::default()).await.unwrap()
}

async fn as_gateway(server: &TestPostgres) -> SharedStore {
    as_role(server, "the_%22gate%25way%27").await
}

fn lacks(answer: Result<(), StoreError>) -> String {
    match answer {
        Err(StoreError::Unusable(text)) => text,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn migrating_again_and_at_once_changes_nothing() {
    let server = start();
    let url = server.database().unwrap();
    let at_once = (0..4).map(|_| {
        let url = url.clone();
        tokio::spawn(async move { migrate(&url, &Options::default()).await })
    });
    for done in futures::future::join_all(at_once).await {
        done.unwrap().unwrap();
    }
    let store = connect(&url, &Options::default()).await.unwrap();
    let writer = writer(&store).await;
    append(&store, &writer, 0, 10).await.unwrap();
    migrate(&url, &Options::default()).await.unwrap();
    assert_eq!(store.ledger(&writer.session).await.unwrap().session.unwrap().parts, 10);
    assert_eq!(server.psql("test_0", "select count(*) from _sqlx_migrations").unwrap(), "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_database_names_its_way_out() {
    let server = start();
    let store = connect(&server.database().unwrap(), &Options::default()).await.unwrap();
    let text = lacks(store.check(Role::Gateway).await);
    assert!(text.contains("agent_sessions") && text.contains("agentsession migrate"), "{text}");
    let used = store.ledger(&"nobody".into()).await.unwrap_err();
    assert_eq!(used.category(), Category::Unusable);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_that_does_not_exist_is_named() {
    let server = start();
    let url = server.database().unwrap();
    let text = lacks(migrate(&url, &with_roles()).await);
    assert!(text.contains("the controller"), "{text}");
    assert_eq!(server.psql("test_0", "select to_regclass('agent_sessions') is null").unwrap(), "t");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_role_can_do_its_work_and_no_more() {
    let server = start();
    let url = server.database().unwrap();
    server.psql("postgres", CREATE_ROLES).unwrap();
    migrate(&url, &with_roles()).await.unwrap();
    let controller = as_role(&server, "the%20controller").await;
    let gateway = as_gateway(&server).await;
    controller.check(Role::Controller).await.unwrap();
    gateway.check(Role::Gateway).await.unwrap();
    let text = lacks(gateway.check(Role::Controller).await);
    assert!(text.contains("delete on agent_sessions") && text.contains("insert on agent_session_turns"), "{text}");

    let writer = writer(&controller).await;
    assert_eq!(append(&gateway, &writer, 0, 5).await.unwrap().inserted, 5);
    assert_eq!(append(&controller, &writer, 0, 6).await.unwrap().inserted, 1);
    gateway.progress(&writer.session, writer.turn).await.unwrap();
    for refused in [
        gateway.delete_session(&writer.session).await.map(drop),
        gateway.mark_deleted(&writer.session).await,
        gateway.begin_harvest(&writer.session, writer.turn, writer.attempt).await.map(drop),
        gateway.open_attempt(&writer.session, 1.into(), "nonce").await.map(drop),
    ] {
        assert_eq!(refused.unwrap_err().category(), Category::Unusable);
    }
    assert!(controller.delete_session(&writer.session).await.unwrap());
    assert_eq!(server.psql("test_0", "select count(*) from agent_session_parts").unwrap(), "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_grant_is_named_at_start_and_given_back_by_migrate() {
    let server = start();
    let url = server.database().unwrap();
    server.psql("postgres", CREATE_ROLES).unwrap();
    migrate(&url, &with_roles()).await.unwrap();
    let gateway = as_gateway(&server).await;
    server.psql("test_0", &format!("revoke select on attach_nonces from {GATEWAY}")).unwrap();
    server.psql("test_0", &format!("revoke update (bytes) on agent_sessions from {GATEWAY}")).unwrap();
    server.psql("test_0", &format!("grant delete on agent_sessions to {GATEWAY}")).unwrap();
    let text = lacks(gateway.check(Role::Gateway).await);
    assert!(text.contains("select on attach_nonces") && text.contains("update (bytes) on agent_sessions"), "{text}");
    assert!(!text.contains("select on agent_sessions"), "{text}");
    migrate(&url, &with_roles()).await.unwrap();
    gateway.check(Role::Gateway).await.unwrap();
    let kept = format!("select has_table_privilege('{}', 'agent_sessions', 'delete')", "the_\"gate%way''");
    assert_eq!(server.psql("test_0", &kept).unwrap(), "f");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_role_for_everything_can_migrate_again() {
    let server = start();
    server.database().unwrap();
    server.psql("postgres", "create role everything login; grant create on database test_0 to everything").unwrap();
    server.psql("test_0", "grant create on schema public to everything").unwrap();
    let url = server.url("test_0", "everything");
    let roles = Roles { controller: Some("everything".to_owned()), gateway: Some("everything".to_owned()) };
    let options = Options { roles, ..Options::default() };
    for _ in 0..2 {
        migrate(&url, &options).await.unwrap();
    }
    let store = connect(&url, &options).await.unwrap();
    store.check(Role::Controller).await.unwrap();
    store.check(Role::Gateway).await.unwrap();
    let writer = writer(&store).await;
    assert!(store.delete_session(&writer.session).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_in_another_encoding_is_refused() {
    let server = start();
    server
        .psql("postgres", "create database latin encoding 'LATIN1' template template0 lc_collate 'C' lc_ctype 'C'")
        .unwrap();
    let url = server.url("latin", "postgres");
    migrate(&url, &Options::default()).await.unwrap();
    let store = connect(&url, &Options::default()).await.unwrap();
    let text = lacks(store.check(Role::Controller).await);
    assert!(text.contains("UTF8"), "{text}");
}
