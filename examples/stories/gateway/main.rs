//! A gateway in one handler: who asks, may it run, run it, what did it cost. It serves chat completions on loopback, and asks
//! itself what a client would ask.

use std::error::Error;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use quota_core::estimate::body;
use quota_core::respond::{headers, openai};
use quota_core::usage::{Dialect, outcome_of};
use quota_core::{Gate, ManualClock, Policy, Refusal};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// In a gateway of one's own, a call to the provider.
async fn upstream(body: &Value) -> (u16, Value) {
    if body["messages"][0]["content"] == "fail" {
        return (500, json!({"error": {"message": "out of memory", "type": "server_error"}}));
    }
    let usage = json!({"prompt_tokens": 12, "completion_tokens": 31, "total_tokens": 43});
    (200, json!({"choices": [{"message": {"role": "assistant", "content": "Rhine, Nile, Amazon."}}], "usage": usage}))
}

async fn chat(State(gate): State<Gate>, asked: HeaderMap, bytes: Bytes) -> Response {
    let bearer =
        asked.get("authorization").and_then(|value| value.to_str().ok()?.strip_prefix("Bearer ")).unwrap_or("");
    let who = match gate.authenticate(bearer) {
        Ok(who) => who,
        Err(refusal) => return refuse(&refusal),
    };
    let Ok(mut body) = serde_json::from_slice::<Value>(&bytes) else { return invalid("the body is not JSON") };
    let request = match body::openai_chat(body.clone()) {
        Ok(request) => request,
        Err(error) => return invalid(&error.to_string()),
    };
    // Waits where the policy says so; here it says no at once.
    let lease = match gate.acquire(&who, &request).await {
        Ok(lease) => lease,
        Err(refusal) => return refuse(&refusal),
    };
    body["max_tokens"] = json!(lease.max_output_tokens());
    lease.sent();
    let (status, answer) = upstream(&body).await;
    if let Err(error) = lease.finish(outcome_of(Some(status), Dialect::OpenAiChat, Some(&answer))) {
        eprintln!("{error}"); // the lease stays charged until somebody settles it
    }
    respond(status, headers::openai(&gate.balances(&who, false)), &answer)
}

fn refuse(refusal: &Refusal) -> Response {
    let response = openai::response(refusal);
    respond(response.status, response.headers, &response.body)
}

fn invalid(message: &str) -> Response {
    let error = json!({"message": message, "type": "invalid_request_error", "code": "request_invalid"});
    respond(400, Vec::new(), &json!({"error": error}))
}

fn respond(status: u16, headers: Vec<(&'static str, String)>, body: &Value) -> Response {
    let mut response = (StatusCode::from_u16(status).unwrap_or_default(), body.to_string()).into_response();
    response.headers_mut().insert("content-type", "application/json".parse().expect("a header"));
    for (name, value) in headers {
        response.headers_mut().insert(name, value.parse().expect("printable ASCII"));
    }
    response
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let policy = Policy::from_file(concat!(env!("CARGO_MANIFEST_DIR"), "/gateway/policy.yaml"))?;
    let clock = Arc::new(ManualClock::at_instant("2026-03-02T12:00:00Z")?);
    let gate = Gate::builder(policy).clock(clock).build();
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    let router = Router::new().route("/v1/chat/completions", post(chat)).with_state(gate.clone());
    tokio::spawn(async move { axum::serve(listener, router).await });

    let rivers = r#"{"model":"small","messages":[{"role":"user","content":"Name three rivers."}]}"#;
    let failing = r#"{"model":"small","messages":[{"role":"user","content":"fail"}]}"#;
    let (key, wrong) = ("demo-acme-key", "demo-other-key");
    ask(port, "a request", key, rivers).await?;
    ask(port, "a wrong key", wrong, rivers).await?;
    ask(port, "half a body", key, &rivers[..40]).await?;
    ask(port, "no messages", key, r#"{"model":"small"}"#).await?;
    ask(port, "an upstream that fails", key, failing).await?;
    ask(port, "a request", key, rivers).await?;
    ask(port, "a request", key, rivers).await?;
    ask(port, "a fifth in a minute", key, rivers).await?;
    let who = gate.authenticate(key)?;
    for balance in gate.balances(&who, false) {
        println!("{}: {} used", balance.limit, balance.meter.show(balance.used));
    }
    Ok(())
}

/// Asks and prints the answer's status, what it says about limits, and its text or its error.
async fn ask(port: u16, what: &str, key: &str, body: &str) -> Result<(), Box<dyn Error>> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nauthorization: Bearer {key}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or("no answer")?;
    println!("{what}: {}", &head[9..12]);
    for name in ["retry-after", "x-ratelimit-remaining-requests"] {
        if let Some(line) = head.lines().find(|line| line.starts_with(&format!("{name}: "))) {
            println!("  {line}");
        }
    }
    let body: Value = serde_json::from_str(body)?;
    match body["choices"][0]["message"]["content"].as_str() {
        Some(text) => println!("  {text}"),
        None => {
            println!("  {}", body["error"]["code"].as_str().or(body["error"]["message"].as_str()).unwrap_or_default())
        }
    }
    Ok(())
}
