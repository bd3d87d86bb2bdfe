//! A gateway that listens, and what it is asked.

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::HeaderMap;
use gateway::call::Patience;
use gateway::identity::Identity;
use gateway::serve::serve;
use gateway::server::{Config, Gateway};
use gateway::simulated::Simulation;
use gateway::source::Source;
use gateway::upstream::Upstream;
use quota_core::Principal;
use quota_core::gate::Counter;
use reqwest::{Client, Method, Response};
use serde_json::{Value, json};
use tokio::net::TcpListener;

pub const POLICY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/policy.yaml");
pub const ADMIN: &str = "the-operator";
pub const MAX_BODY: usize = 100_000;
const WORKERS: NonZeroUsize = NonZeroUsize::new(2).unwrap();
/// How long a test waits for what must happen.
pub const DEADLINE: Duration = Duration::from_secs(20);

/// A gateway that listens.
pub struct Server {
    pub url: String,
    pub gateway: Arc<Gateway>,
    pub client: Client,
}

/// What came back.
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub text: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|why| panic!("{why}: {}", self.text))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub fn code(&self) -> String {
        self.json()["error"]["code"].as_str().unwrap_or_default().to_owned()
    }

    /// The data of a stream's events.
    pub fn events(&self) -> Vec<String> {
        let lines = self.text.lines().filter_map(|line| line.strip_prefix("data: "));
        lines.map(str::to_owned).collect()
    }

    /// The same as JSON, without what is none.
    pub fn json_events(&self) -> Vec<Value> {
        self.events().iter().filter_map(|event| serde_json::from_str(event).ok()).collect()
    }
}

pub async fn listen(app: Router) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await });
    url
}

pub async fn start(source: Source, upstream: Upstream) -> Server {
    start_with(source, upstream, Patience::default()).await
}

pub async fn start_with(source: Source, upstream: Upstream, patience: Patience) -> Server {
    let identity = Identity::default();
    let (admin_key, metrics) = (ADMIN.into(), None);
    start_by(Config { source, upstream, metrics, identity, admin_key, max_body: MAX_BODY, patience }).await
}

pub async fn start_by(config: Config) -> Server {
    let gateway = Gateway::new(config).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(serve(listener, gateway.clone(), WORKERS, std::future::pending()));
    // The client's provider of TLS is one for the process; the second call finds it installed, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Server { url, gateway, client: Client::new() }
}

/// The simulated pool, whose answers are there at once.
pub fn instant() -> Upstream {
    Upstream::Simulated(Simulation::instant())
}

pub async fn simulated() -> Server {
    start(Source { policy: Some(POLICY.into()), prices: None }, instant()).await
}

pub async fn in_front_of(url: &str) -> Server {
    start(Source { policy: Some(POLICY.into()), prices: None }, Upstream::http(url, Some("own-key")).unwrap()).await
}

pub fn chat(model: &str) -> Value {
    json!({ "model": model, "max_tokens": 10, "messages": [{ "role": "user", "content": "Name three rivers." }] })
}

pub fn streamed(model: &str) -> Value {
    let mut body = chat(model);
    body["stream"] = json!(true);
    body
}

impl Server {
    pub async fn send(&self, method: Method, path: &str, headers: &[(&str, &str)], body: Vec<u8>) -> Response {
        let mut request = self.client.request(method, format!("{}{path}", self.url)).body(body);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.send().await.unwrap()
    }

    pub async fn answer(&self, method: Method, path: &str, headers: &[(&str, &str)], body: Vec<u8>) -> Answer {
        let response = self.send(method, path, headers, body).await;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        Answer { status, headers, text: response.text().await.unwrap() }
    }

    pub async fn post(&self, key: &str, path: &str, body: &Value) -> Answer {
        let bearer = format!("Bearer test-{key}");
        self.answer(Method::POST, path, &[("authorization", &bearer)], body.to_string().into()).await
    }

    /// The same, before the end of the answer.
    pub async fn post_open(&self, key: &str, path: &str, body: &Value) -> Response {
        let bearer = format!("Bearer test-{key}");
        self.send(Method::POST, path, &[("authorization", &bearer)], body.to_string().into()).await
    }

    pub async fn chat(&self, key: &str, body: &Value) -> Answer {
        self.post(key, "/v1/chat/completions", body).await
    }

    /// Posts as Anthropic's clients do.
    pub async fn messages(&self, key: &str, body: &Value) -> Answer {
        let key = format!("test-{key}");
        let headers = [("x-api-key", key.as_str()), ("anthropic-version", "2023-06-01")];
        self.answer(Method::POST, "/v1/messages", &headers, body.to_string().into()).await
    }

    pub async fn get(&self, key: &str, path: &str) -> Answer {
        let bearer = format!("Bearer test-{key}");
        self.answer(Method::GET, path, &[("authorization", &bearer)], vec![]).await
    }

    pub async fn operator(&self, method: Method, path: &str, body: &str) -> Answer {
        let bearer = format!("Bearer {ADMIN}");
        self.answer(method, path, &[("authorization", &bearer)], body.to_owned().into()).await
    }

    /// What the limits of a tenant show as used.
    pub fn used(&self, tenant: &str, limit: &str) -> u64 {
        let balances = self.gateway.gate.balances(&Principal::builder(tenant).build(), true);
        balances.iter().find(|balance| &*balance.limit == limit).unwrap().used
    }

    pub fn counted(&self, counter: Counter) -> u64 {
        self.gateway.gate.snapshot().models.values().map(|tally| tally.get(counter)).sum()
    }

    /// Waits until so much has been counted.
    pub async fn until(&self, counter: Counter, count: u64) {
        let reached = async {
            while self.counted(counter) < count {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let waited = tokio::time::timeout(DEADLINE, reached).await;
        assert!(waited.is_ok(), "{counter:?} is {} and not {count}", self.counted(counter));
    }

    pub async fn story(&self, answer: &Answer) -> Vec<String> {
        let id = answer.header("x-request-id").or_else(|| answer.header("request-id")).unwrap();
        let path = format!("/admin/requests/{id}");
        let entries = self.operator(Method::GET, &path, "").await.json();
        entries["entries"].as_array().unwrap().iter().map(|e| e["event"].as_str().unwrap().to_owned()).collect()
    }
}

/// `10 + 7` tokens at 1 and 2 dollars a million, in units of 1e-8 USD.
pub const COST: u64 = 7 * 100 + 10 * 200;

pub type Seen = Arc<Mutex<Vec<(String, HeaderMap, Value)>>>;

/// The simulated pool as a server that keeps what it was sent.
pub async fn recording() -> (String, Seen) {
    let seen = Seen::default();
    let keep = seen.clone();
    let app = Router::new().fallback(move |request: Request| {
        let keep = keep.clone();
        async move {
            let (parts, body) = request.into_parts();
            let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
            let path = parts.uri.path().to_owned();
            keep.lock().unwrap().push((path.clone(), parts.headers, serde_json::from_slice(&body).unwrap()));
            Simulation::instant().answer(path.trim_start_matches("/v1"), &body).await
        }
    });
    (listen(app).await, seen)
}
