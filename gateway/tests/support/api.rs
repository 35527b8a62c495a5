//! A scripted API server: it knows tokens, rights, namespaces and AgentSessions, and it can refuse, hang or be gone. Every call is noted.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use http::{Request, Response};
use kube::client::Body;
use serde_json::{Value, json};

/// How a kind of call is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mood {
    Fine,
    Status(u16),
    Hang,
    Gone,
}

#[derive(Default)]
struct State {
    /// token → user, audience (`None`: the API server's own).
    tokens: HashMap<String, (String, Option<String>)>,
    /// user, namespace (`None`: all), name (`None`: all).
    rights: Vec<(String, Option<String>, Option<String>)>,
    namespaces: HashMap<String, String>,
    sessions: Vec<Value>,
    moods: HashMap<String, Mood>,
    calls: Vec<String>,
    bodies: Vec<Value>,
    /// Whether TokenReview answers with audiences, as servers do that know them.
    silent_about_audiences: bool,
}

#[derive(Clone, Default)]
pub struct Api(Arc<Mutex<State>>);

impl Api {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn token(&self, token: &str, user: &str, audience: Option<&str>) {
        self.0.lock().unwrap().tokens.insert(token.to_owned(), (user.to_owned(), audience.map(str::to_owned)));
    }

    pub fn revoke(&self, token: &str) {
        self.0.lock().unwrap().tokens.remove(token);
    }

    pub fn allow(&self, user: &str, namespace: Option<&str>, name: Option<&str>) {
        let right = (user.to_owned(), namespace.map(str::to_owned), name.map(str::to_owned));
        self.0.lock().unwrap().rights.push(right);
    }

    pub fn deny_all(&self) {
        self.0.lock().unwrap().rights.clear();
    }

    pub fn namespace(&self, name: &str, uid: &str) {
        self.0.lock().unwrap().namespaces.insert(name.to_owned(), uid.to_owned());
    }

    pub fn session(&self, namespace: &str, name: &str, uid: &str, status: &Value) {
        self.0.lock().unwrap().sessions.push(json!({
            "apiVersion": "agentsession.dev/v1alpha1", "kind": "AgentSession",
            "metadata": {"namespace": namespace, "name": name, "uid": uid, "creationTimestamp": "2026-11-30T18:00:00Z"},
            "spec": {"mode": "Autonomous", "turns": [{"prompt": "a secret prompt"}], "aFieldOfTomorrow": {"x": 1}},
            "status": status,
        }));
    }

    pub fn forget_sessions(&self) {
        self.0.lock().unwrap().sessions.clear();
    }

    pub fn silent_about_audiences(&self) {
        self.0.lock().unwrap().silent_about_audiences = true;
    }

    /// From now on, calls of this kind (`TokenReview`, `SubjectAccessReview`, `namespaces`, `agentsessions`) are answered so.
    pub fn mood(&self, kind: &str, mood: Mood) {
        self.0.lock().unwrap().moods.insert(kind.to_owned(), mood);
    }

    /// The calls so far, and forgets them.
    pub fn calls(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap().calls)
    }

    /// The bodies of the reviews so far, and forgets them.
    pub fn reviews(&self) -> Vec<Value> {
        std::mem::take(&mut self.0.lock().unwrap().bodies)
    }

    pub fn client(&self) -> kube::Client {
        let api = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let api = api.clone();
            async move { api.answer(request).await }
        });
        kube::Client::new(service, "default")
    }

    async fn answer(&self, request: Request<Body>) -> Result<Response<Body>, std::io::Error> {
        let (parts, body) = request.into_parts();
        let body = body.collect_bytes().await.unwrap();
        let path = parts.uri.path().to_owned();
        let query = parts.uri.query().unwrap_or_default().to_owned();
        let kind = match path.as_str() {
            "/apis/authentication.k8s.io/v1/tokenreviews" => "TokenReview",
            "/apis/authorization.k8s.io/v1/subjectaccessreviews" => "SubjectAccessReview",
            path if path.contains("/agentsessions") => "agentsessions",
            _ => "namespaces",
        };
        let mood = {
            let mut state = self.0.lock().unwrap();
            let call = if kind.ends_with("Review") { kind.to_owned() } else { path.clone() };
            state.calls.push(call);
            if let Ok(review) = serde_json::from_slice(&body) {
                state.bodies.push(review);
            }
            state.moods.get(kind).copied().unwrap_or(Mood::Fine)
        };
        match mood {
            Mood::Fine => {}
            Mood::Status(code) => return Ok(failure(code, "Scripted")),
            Mood::Hang => std::future::pending().await,
            Mood::Gone => return Err(std::io::Error::other("connection refused")),
        }
        let state = self.0.lock().unwrap();
        Ok(match kind {
            "TokenReview" => state.token_review(&serde_json::from_slice(&body).unwrap()),
            "SubjectAccessReview" => state.access_review(&serde_json::from_slice(&body).unwrap()),
            "agentsessions" => state.agentsessions(&path, &query),
            _ => match path.rsplit('/').next().and_then(|name| state.namespaces.get_key_value(name)) {
                Some((name, uid)) => ok(&json!({
                    "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": {"name": name, "uid": uid}
                })),
                None => failure(404, "NotFound"),
            },
        })
    }
}

impl State {
    fn token_review(&self, review: &Value) -> Response<Body> {
        assert!(review["spec"]["token"].is_string());
        let asked = review["spec"]["audiences"].as_array().map(|all| all[0].as_str().unwrap().to_owned());
        let status = match self.tokens.get(review["spec"]["token"].as_str().unwrap()) {
            Some((user, audience)) if *audience == asked || self.silent_about_audiences => {
                let mut status = json!({
                    "authenticated": true,
                    "user": {"username": user, "uid": format!("uid-of-{user}"), "groups": ["people"], "extra": {"scopes": ["a", "b"]}},
                });
                if !self.silent_about_audiences {
                    status["audiences"] = json!([asked.unwrap_or_else(|| "https://kubernetes.default.svc".to_owned())]);
                }
                status
            }
            _ => json!({"authenticated": false, "error": "invalid bearer token"}),
        };
        created(
            &json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": "x"}, "status": status}),
        )
    }

    fn access_review(&self, review: &Value) -> Response<Body> {
        let (spec, what) = (&review["spec"], &review["spec"]["resourceAttributes"]);
        assert_eq!(what["group"], "agentsession.dev");
        assert_eq!(what["resource"], "agentsessions");
        assert_eq!(what["subresource"], "transcript");
        assert_eq!(what["verb"], "get");
        let allowed = self.rights.iter().any(|(user, namespace, name)| {
            // An attribute that is not asked for means all of them.
            let covers = |right: &Option<String>, asked: &Value| right.is_none() || right.as_deref() == asked.as_str();
            *user == spec["user"] && covers(namespace, &what["namespace"]) && covers(name, &what["name"])
        });
        created(&json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": {}, "status": {"allowed": allowed}
        }))
    }

    fn agentsessions(&self, path: &str, query: &str) -> Response<Body> {
        let (namespace, name) = path
            .strip_prefix("/apis/agentsession.dev/v1alpha1/namespaces/")
            .and_then(|rest| rest.split_once("/agentsessions"))
            .unwrap();
        let mut here = self.sessions.iter().filter(|session| session["metadata"]["namespace"] == namespace);
        match name.strip_prefix('/') {
            Some(name) => match here.find(|session| session["metadata"]["name"] == name) {
                Some(session) => ok(session),
                None => failure(404, "NotFound"),
            },
            None => {
                let number = |key: &str| {
                    let pair = query.split('&').find_map(|pair| pair.strip_prefix(key));
                    pair.map(|value| value.parse::<usize>().unwrap())
                };
                let (from, limit) = (number("continue=").unwrap_or(0), number("limit=").unwrap());
                let all: Vec<&Value> = here.collect();
                let to = all.len().min(from + limit);
                let metadata = if to < all.len() { json!({"continue": to.to_string()}) } else { json!({}) };
                ok(&json!({
                    "apiVersion": "agentsession.dev/v1alpha1", "kind": "AgentSessionList", "metadata": metadata,
                    "items": all[from..to],
                }))
            }
        }
    }
}

fn ok(body: &Value) -> Response<Body> {
    Response::new(Body::from(serde_json::to_vec(body).unwrap()))
}

fn created(body: &Value) -> Response<Body> {
    Response::builder().status(201).body(Body::from(serde_json::to_vec(body).unwrap())).unwrap()
}

fn failure(code: u16, reason: &str) -> Response<Body> {
    let body = json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": "scripted"
    });
    Response::builder().status(code).body(Body::from(serde_json::to_vec(&body).unwrap())).unwrap()
}
