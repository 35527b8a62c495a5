//! Who may read what, and what everybody else is told.

#[cfg(test)]
mod support;

use std::time::Duration;

use serde_json::json;
use support::{
    SESSION, World,
    api::Mood,
    memory::{noon, record, turn},
};

const ALICE: &[(&str, &str)] = &[("authorization", "Bearer alice-token")];

fn world_with_a_session() -> World {
    let world = World::new();
    world.store.put(record("fix-login", "uid-1"), vec![turn(1, "hello")], &[]);
    world.api.session("team-a", "fix-login", "uid-1", &json!({"phase": "Running", "acceptedTurns": 1}));
    world
}

#[tokio::test]
async fn a_token_with_the_right_reads() {
    let world = world_with_a_session();
    assert_eq!(world.get(SESSION).await.status, 200);
    let calls = [
        "TokenReview",
        "SubjectAccessReview",
        "/apis/agentsession.dev/v1alpha1/namespaces/team-a/agentsessions/fix-login",
    ];
    assert_eq!(world.api.calls(), calls);
    let reviews = world.api.reviews();
    assert_eq!(reviews[0]["spec"], json!({"token": "alice-token", "audiences": ["agentsession"]}));
    assert_eq!(
        reviews[1]["spec"],
        json!({
            "user": "alice", "uid": "uid-of-alice", "groups": ["people"], "extra": {"scopes": ["a", "b"]},
            "resourceAttributes": {
                "group": "agentsession.dev", "resource": "agentsessions", "subresource": "transcript", "verb": "get",
                "namespace": "team-a", "name": "fix-login",
            },
        })
    );
}

#[tokio::test]
async fn the_token_may_come_in_our_own_header() {
    let world = world_with_a_session();
    assert_eq!(world.get_with(SESSION, &[("x-agentsession-token", "alice-token")]).await.status, 200);
    let both = [("authorization", "Basic dTpw"), ("x-agentsession-token", "alice-token")];
    assert_eq!(world.get_with(SESSION, &both).await.status, 200);
}

#[tokio::test]
async fn a_token_for_the_api_server_itself_is_taken_too() {
    let world = world_with_a_session();
    world.api.token("plain", "bob", None);
    world.api.allow("bob", Some("team-a"), Some("fix-login"));
    assert_eq!(world.get_with(SESSION, &[("authorization", "Bearer plain")]).await.status, 200);
    assert_eq!(world.api.calls()[..2], ["TokenReview", "TokenReview"]);

    let old_server = world_with_a_session();
    old_server.api.silent_about_audiences();
    assert_eq!(old_server.get(SESSION).await.status, 200);
}

#[tokio::test]
async fn a_token_for_somebody_else_is_none() {
    let world = world_with_a_session();
    world.api.token("vault", "alice", Some("vault"));
    assert_eq!(
        world.get_with(SESSION, &[("authorization", "Bearer vault")]).await.error(),
        (401, "unauthenticated".into())
    );
}

#[tokio::test]
async fn without_a_good_token_there_is_401_and_the_way_to_one() {
    let world = world_with_a_session();
    for (headers, asked) in [
        (vec![], 0),
        (vec![("authorization", "Basic dTpw")], 0),
        (vec![("authorization", "Bearer not a token")], 0),
        (vec![("authorization", "Bearer forged")], 2),
    ] {
        let answer = world.get_with(SESSION, &headers).await;
        assert_eq!(answer.error(), (401, "unauthenticated".into()));
        assert_eq!(answer.header("www-authenticate"), Some("Bearer realm=\"agentsession\""));
        assert!(answer.message().contains("kubectl create token"));
        assert_eq!(world.api.calls().len(), asked, "{headers:?}");
    }
}

#[tokio::test]
async fn forbidden_and_absent_look_the_same() {
    let world = world_with_a_session();
    world.api.token("eve-token", "eve", Some("agentsession"));
    let absent = World::new();
    absent.api.token("eve-token", "eve", Some("agentsession"));
    absent.api.allow("eve", None, None);
    let eve = [("authorization", "Bearer eve-token")];
    for path in [
        SESSION.to_owned(),
        format!("{SESSION}/stream"),
        format!("{SESSION}/transcript"),
        format!("{SESSION}?uid=uid-1"),
    ] {
        let forbidden = world.get_with(&path, &eve).await;
        assert_eq!(forbidden.error(), (404, "not_found".into()));
        assert_eq!(forbidden, absent.get_with(&path, &eve).await, "{path}");
    }
    let message = world.get_with(SESSION, &eve).await.message();
    for word in ["fix-login", "team-a", "agentsessions/transcript"] {
        assert!(message.contains(word), "{message}");
    }
    // Who may not list a namespace does not learn whether it exists.
    let list = world.get_with("/v1/namespaces/team-a/agentsessions", &eve).await;
    assert_eq!(list.error(), (404, "not_found".into()));
}

#[tokio::test]
async fn a_right_to_one_session_is_not_one_to_the_next() {
    let world = world_with_a_session();
    world.store.put(record("other", "uid-2"), vec![turn(1, "hello")], &[]);
    world.api.token("carol-token", "carol", Some("agentsession"));
    world.api.allow("carol", Some("team-a"), Some("fix-login"));
    let carol = [("authorization", "Bearer carol-token")];
    assert_eq!(world.get_with(SESSION, &carol).await.status, 200);
    for path in ["/v1/namespaces/team-a/agentsessions/other", "/v1/namespaces/team-a/agentsessions"] {
        assert_eq!(world.get_with(path, &carol).await.status, 404);
    }
    // A UID does not open what the name does not.
    assert_eq!(world.get_with(&format!("{SESSION}?uid=uid-2"), &carol).await.status, 404);
}

#[tokio::test]
async fn path_tricks_are_refused_alike_and_reach_nobody() {
    let world = world_with_a_session();
    world.get(SESSION).await;
    world.api.calls();
    for path in [
        "/v1/namespaces/team-a/agentsessions/..",
        "/v1/namespaces/team-a/agentsessions/..%2f..%2fsecrets",
        "/v1/namespaces/team-a/agentsessions/fix-login%2fstream",
        "/v1/namespaces/team-a/agentsessions/%66ix-login%00",
        "/v1/namespaces/team-a/agentsessions/%ff%fe",
        "/v1/namespaces/../agentsessions/fix-login",
        "/v1/namespaces/team-a%2f..%2fkube-system/agentsessions/fix-login",
        "/v1/namespaces/..%2f..%2fapi/agentsessions/fix-login/stream",
        "/v1/namespaces/TEAM-A/agentsessions/fix-login/transcript",
        "/v1/namespaces/team-a/agentsessions/fix-login?uid=../../x",
        "/v1/namespaces/team-a/agentsessions//stream",
        "/v1/namespaces//agentsessions/fix-login/stream",
        "/v1/namespaces//agentsessions",
        "/v1/namespaces/..%2f/agentsessions",
        "/v1/namespaces/team-a/agentsessions/",
        "//v1/namespaces/team-a/agentsessions/fix-login",
        "/v1/../metrics",
        "/",
    ] {
        assert_eq!(world.get(path).await.error(), (404, "not_found".into()), "{path}");
    }
    assert_eq!(world.api.calls(), Vec::<String>::new(), "a path that names nothing is no question");
}

#[tokio::test]
async fn history_of_an_earlier_namespace_takes_the_right_everywhere() {
    let world = World::new();
    let mut old = record("fix-login", "uid-1");
    old.namespace_uid = "ns-0".to_owned();
    old.deleted_at = Some(noon());
    world.store.put(old, vec![turn(1, "hello")], &[]);
    for path in [SESSION.to_owned(), format!("{SESSION}/transcript?uid=uid-1"), format!("{SESSION}/stream")] {
        assert_eq!(world.get(&path).await.error(), (404, "not_found".into()), "{path}");
    }
    assert_eq!(world.get("/v1/namespaces/team-a/agentsessions").await.json()["sessions"], json!([]));

    world.api.token("root-token", "root", Some("agentsession"));
    world.api.allow("root", None, None);
    let root = [("authorization", "Bearer root-token")];
    assert_eq!(world.get_with(SESSION, &root).await.status, 200);
    let list = world.get_with("/v1/namespaces/team-a/agentsessions", &root).await.json();
    assert_eq!(list["sessions"][0]["uid"], "uid-1");
}

#[tokio::test]
async fn history_of_a_namespace_that_is_gone_takes_the_right_everywhere() {
    let world = World::new();
    world.api.allow("alice", Some("gone"), None);
    let mut old = record("fix-login", "uid-1");
    old.namespace = "gone".to_owned();
    world.store.put(old, vec![turn(1, "hello")], &[]);
    assert_eq!(world.get("/v1/namespaces/gone/agentsessions/fix-login").await.status, 404);
}

#[tokio::test]
async fn history_of_the_present_namespace_is_read_after_the_object_is_gone() {
    let world = World::new();
    let mut old = record("fix-login", "uid-1");
    old.deleted_at = Some(noon());
    world.store.put(old, vec![turn(1, "hello")], &[]);
    assert_eq!(world.get(SESSION).await.json()["session"]["uid"], "uid-1");
}

#[tokio::test]
async fn an_api_server_that_does_not_answer_is_503_and_says_so() {
    for (kind, mood) in [
        ("TokenReview", Mood::Gone),
        ("TokenReview", Mood::Status(500)),
        ("SubjectAccessReview", Mood::Gone),
        ("SubjectAccessReview", Mood::Status(403)),
        ("agentsessions", Mood::Status(500)),
        ("agentsessions", Mood::Status(403)),
    ] {
        let world = world_with_a_session();
        world.api.mood(kind, mood);
        let answer = world.get(SESSION).await;
        assert_eq!(answer.error(), (503, "cluster_unavailable".into()), "{kind} {mood:?}");
        assert_eq!(answer.header("retry-after"), Some("5"));
        assert!(!answer.text().contains("refused") && !answer.text().contains("scripted"), "{}", answer.text());
        world.api.mood(kind, Mood::Fine);
        assert_eq!(world.get(SESSION).await.status, 200, "an outage is not remembered");
    }
}

#[tokio::test]
async fn a_namespace_that_cannot_be_looked_up_is_503() {
    let world = World::new();
    world.store.put(record("fix-login", "uid-1"), vec![turn(1, "hello")], &[]);
    world.api.mood("namespaces", Mood::Status(403));
    assert_eq!(world.get(SESSION).await.error(), (503, "cluster_unavailable".into()));
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_hangs_is_503_after_the_timeout() {
    let world = world_with_a_session();
    world.api.mood("TokenReview", Mood::Hang);
    let began = tokio::time::Instant::now();
    assert_eq!(world.get(SESSION).await.error(), (503, "cluster_unavailable".into()));
    assert_eq!(began.elapsed().as_secs(), 5);
}

#[tokio::test]
async fn a_store_that_is_down_is_503_and_names_no_host() {
    let world = world_with_a_session();
    world.store.set_down(true);
    for path in [
        SESSION.to_owned(),
        format!("{SESSION}/stream"),
        format!("{SESSION}/transcript"),
        "/v1/namespaces/team-a/agentsessions".into(),
    ] {
        let answer = world.get(&path).await;
        assert_eq!(answer.error(), (503, "store_unavailable".into()), "{path}");
        assert_eq!(answer.header("retry-after"), Some("5"));
        assert!(!answer.text().contains("db.internal"), "{}", answer.text());
    }
}

#[tokio::test(start_paused = true)]
async fn answers_are_believed_for_ten_seconds_and_no_longer() {
    let world = world_with_a_session();
    assert_eq!(world.get(SESSION).await.status, 200);
    world.api.calls();
    world.api.revoke("alice-token");
    tokio::time::advance(Duration::from_millis(9_900)).await;
    assert_eq!(world.get(SESSION).await.status, 200);
    assert_eq!(world.api.calls().len(), 1, "only the object was looked up");
    tokio::time::advance(Duration::from_millis(200)).await;
    assert_eq!(world.get(SESSION).await.status, 401);
}

#[tokio::test(start_paused = true)]
async fn a_right_that_was_just_given_is_seen_soon() {
    let world = world_with_a_session();
    world.api.token("eve-token", "eve", Some("agentsession"));
    let eve = [("authorization", "Bearer eve-token")];
    assert_eq!(world.get_with(SESSION, &eve).await.status, 404);
    world.api.allow("eve", Some("team-a"), None);
    tokio::time::advance(Duration::from_secs(2)).await;
    assert_eq!(world.get_with(SESSION, &eve).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_bad_tokens_leaves_known_ones_alone() {
    let world = world_with_a_session();
    assert_eq!(world.get(SESSION).await.status, 200);
    // Every question about a stranger hangs; alice's answer has grown old and must be asked anew.
    tokio::time::advance(Duration::from_secs(11)).await;
    world.api.mood("TokenReview", Mood::Hang);
    let flood: Vec<_> = (0..100)
        .map(|i| {
            let (router, token) = (world.router(), format!("Bearer bad-{i}"));
            tokio::spawn(async move {
                let request = http::Request::get(SESSION).header("authorization", token);
                tower::ServiceExt::oneshot(router, request.body(axum::body::Body::empty()).unwrap())
                    .await
                    .unwrap()
                    .status()
            })
        })
        .collect();
    tokio::time::advance(Duration::from_millis(1)).await;
    world.api.mood("TokenReview", Mood::Fine);
    let began = tokio::time::Instant::now();
    assert_eq!(world.get_with(SESSION, ALICE).await.status, 200);
    assert!(began.elapsed() < Duration::from_millis(100), "{:?}", began.elapsed());
    for bad in flood {
        assert!([401, 503].contains(&bad.await.unwrap().as_u16()));
    }
}

#[tokio::test]
async fn metrics_name_nobody() {
    let world = world_with_a_session();
    world.get(SESSION).await;
    world.get("/v1/namespaces/team-a/agentsessions/nobody").await;
    world.get("/no-such-path").await;
    let text = world.metrics();
    for line in [
        r#"agentsession_gateway_requests_total{route="session",code="200"} 1"#,
        r#"agentsession_gateway_requests_total{route="session",code="404"} 1"#,
        r#"agentsession_gateway_requests_total{route="other",code="404"} 1"#,
        r#"agentsession_gateway_cluster_calls_total{call="TokenReview",result="Answered"} 1"#,
        r#"agentsession_gateway_access_decisions_total{check="SubjectAccessReview",granted="true"} 2"#,
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    for name in ["team-a", "fix-login", "nobody", "alice", "uid-1"] {
        assert!(!text.contains(name), "{name} is in\n{text}");
    }
}
