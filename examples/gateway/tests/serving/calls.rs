//! Chat completions and embeddings, in front of the simulated pool and of servers that misbehave.

use std::sync::Arc;
use std::time::Duration;

use gateway::call::Patience;
use gateway::source::Source;
use gateway::upstream::Upstream;
use quota_core::Meter;
use quota_core::gate::Counter;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::harness::*;

#[tokio::test]
async fn a_chat_is_charged_what_the_upstream_reports() {
    let server = simulated().await;
    let answer = server.chat("acme", &chat("sim-chat")).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let usage = &answer.json()["usage"];
    assert_eq!((&usage["prompt_tokens"], &usage["completion_tokens"]), (&json!(7), &json!(10)));
    assert_eq!(server.used("acme", "daily_budget_usd"), COST);
    assert_eq!(server.used("acme", "max_inflight"), 0);
    assert_eq!(answer.header("x-ratelimit-limit-requests"), Some("100000"));
    assert_eq!(answer.header("x-ratelimit-remaining-requests"), Some("99999"));
    assert!(answer.header("ratelimit").unwrap().contains("\"tenant:acme/tpm\""));
    assert_eq!(server.story(&answer).await, ["admitted", "settled"]);
    // An alias runs on its upstream, at its price.
    assert_eq!(server.chat("acme", &chat("alias")).await.json()["model"], "sim-chat");
    assert_eq!(server.used("acme", "daily_budget_usd"), 2 * COST);
    let mut two = chat("sim-chat");
    two["n"] = json!(2);
    assert_eq!(server.chat("acme", &two).await.json()["choices"].as_array().unwrap().len(), 2);
    assert_eq!(server.used("acme", "daily_budget_usd"), 3 * COST + 10 * 200);
}

#[tokio::test]
async fn a_stream_is_passed_through_and_its_usage_only_on_request() {
    let server = simulated().await;
    for (options, with_usage) in [(Value::Null, false), (json!({ "include_usage": true }), true)] {
        let mut body = streamed("sim-chat");
        body["stream_options"] = options;
        let answer = server.chat("acme", &body).await;
        assert_eq!((answer.status, answer.header("content-type")), (200, Some("text/event-stream")));
        let events = answer.events();
        assert_eq!(events.last().map(String::as_str), Some("[DONE]"));
        let chunks: Vec<Value> = events.iter().filter_map(|event| serde_json::from_str(event).ok()).collect();
        let text: String = chunks.iter().filter_map(|c| c["choices"][0]["delta"]["content"].as_str()).collect();
        assert_eq!(text, "The pool is simulated and every word of it counts ");
        assert_eq!(chunks.iter().any(|chunk| chunk.get("usage").is_some()), with_usage);
        let reports = chunks.iter().filter(|chunk| chunk["usage"]["completion_tokens"] == 10).count();
        assert_eq!(reports, with_usage as usize);
    }
    server.until(Counter::Settled, 2).await;
    assert_eq!(server.used("acme", "daily_budget_usd"), 2 * COST);
}

#[tokio::test]
async fn embeddings_are_charged_for_their_input() {
    let server = simulated().await;
    let body = json!({ "model": "sim-embed", "input": ["four", "eight by"] });
    let answer = server.post("acme", "/v1/embeddings", &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(answer.json()["data"].as_array().unwrap().len(), 2);
    assert_eq!(server.used("acme", "daily_budget_usd"), 3 * 2);
}

#[tokio::test]
async fn refusals_speak_as_the_providers_do() {
    let server = simulated().await;
    assert_eq!(server.chat("slow", &chat("sim-chat")).await.status, 200);
    assert_eq!(server.chat("poor", &chat("sim-chat")).await.status, 200);
    let mut dear = chat("sim-chat");
    dear["max_tokens"] = json!(1000);
    let mut long = chat("sim-chat");
    long["messages"][0]["content"] = json!("river ".repeat(10_000));
    for (key, body, status, code, reason) in [
        ("slow", chat("sim-chat"), 429, "rate_limit_exceeded", "request_rate_exceeded"),
        ("poor", chat("sim-chat"), 402, "insufficient_quota", "budget_exceeded"),
        ("poor", dear, 400, "request_too_large", "request_too_large"),
        ("nobody", chat("sim-chat"), 401, "invalid_api_key", "key_unknown"),
        ("revoked", chat("sim-chat"), 401, "invalid_api_key", "key_revoked"),
        ("slow", chat("sim-slow"), 403, "model_not_found", "model_not_allowed"),
        ("acme", long, 400, "context_length_exceeded", "context_length_exceeded"),
    ] {
        let answer = server.chat(key, &body).await;
        let error = &answer.json()["error"];
        assert_eq!(answer.status, status, "{}", answer.text);
        assert_eq!((&error["code"], &error["reason"]), (&json!(code), &json!(reason)));
        assert_eq!(answer.header("retry-after").is_some(), status == 429, "{reason}");
        assert!(answer.header("x-request-id").is_some());
        let told = answer.text + &format!("{:?}", answer.headers);
        assert!(!told.contains(&format!("test-{key}")) && !told.contains("rivers"), "{told}");
    }
}

#[tokio::test]
async fn each_endpoint_has_its_manner() {
    let server = simulated().await;
    let answer = server.messages("slow", &chat("sim-slow")).await;
    let told = answer.json();
    assert_eq!(
        (answer.status, &told["type"], &told["error"]["type"]),
        (403, &json!("error"), &json!("permission_error"))
    );
    assert!(answer.header("request-id").is_some() && answer.header("x-request-id").is_none());
    let answer = server.post("acme", "/v1/messages/batches", &chat("sim-chat")).await;
    assert_eq!((answer.status, &answer.json()["error"]["type"]), (404, &json!("not_found_error")));
    let answer = server.post("acme", "/v1/nothing", &json!({})).await;
    assert_eq!((answer.status, answer.code().as_str()), (404, "not_found"));
}

#[tokio::test]
async fn bodies_are_checked_and_bounded() {
    let server = simulated().await;
    let key = ("authorization", "Bearer test-acme");
    for (body, param) in [
        ("", None),
        ("{\"model\": \"sim-chat\", sesame", None),
        ("[1]", Some("body")),
        ("{}", Some("model")),
        ("{\"model\": \"sim-chat\"}", Some("messages")),
        ("{\"model\": \"sim-chat\", \"messages\": \"sesame\"}", Some("messages")),
        ("{\"model\": \"sim-chat\", \"messages\": [], \"max_tokens\": -1}", Some("max_tokens")),
        ("{\"model\": \"sim-chat\", \"messages\": [], \"n\": 1000}", Some("n")),
        (
            "{\"model\": \"sim-chat\", \"messages\": [], \"stream\": true, \"stream_options\": 1}",
            Some("stream_options"),
        ),
        (&format!("{}{}", "[".repeat(5000), "]".repeat(5000)), None),
    ] {
        let answer = server.answer(Method::POST, "/v1/chat/completions", &[key], body.into()).await;
        assert_eq!((answer.status, answer.code().as_str()), (400, "request_invalid"), "{body}");
        assert_eq!(answer.json()["error"]["param"].as_str(), param, "{body}");
        assert!(!answer.text.contains("sesame"), "{}", answer.text);
    }
    for size in [MAX_BODY + 1, 3 * MAX_BODY] {
        let body = vec![b' '; size];
        let answer = server.answer(Method::POST, "/v1/chat/completions", &[key], body).await;
        assert_eq!((answer.status, answer.code().as_str()), (413, "body_too_large"));
        assert!(answer.text.contains(&size.to_string()) && answer.text.contains("100000"), "{}", answer.text);
    }
    let pieces = tokio_stream::iter((0..30).map(|_| Ok::<_, std::io::Error>(vec![b' '; 10_000])));
    let request = server.client.post(format!("{}/v1/chat/completions", server.url)).header(key.0, key.1);
    let response = request.body(reqwest::Body::wrap_stream(pieces)).send().await.unwrap();
    assert_eq!(response.status().as_u16(), 413);
    assert_eq!(server.used("acme", "rpd"), 0);
}

#[tokio::test]
async fn a_large_body_passes_whole_and_leaves_room_for_others() {
    let (url, seen) = recording().await;
    let server = Arc::new(in_front_of(&url).await);
    let mut large = chat("sim-chat");
    large["metadata"] = json!({ "note": "one more river ".repeat(MAX_BODY * 9 / 10 / 15) });
    let mut askers = JoinSet::new();
    for _ in 0..8 {
        for body in [large.clone(), chat("sim-chat")] {
            let server = server.clone();
            askers.spawn(async move { server.chat("acme", &body).await });
        }
    }
    for answer in askers.join_all().await {
        assert_eq!(answer.status, 200, "{}", answer.text);
    }
    let seen = seen.lock().unwrap();
    let long = seen.iter().filter(|(.., body)| body["metadata"] == large["metadata"]).count();
    assert_eq!((long, seen.len()), (8, 16));
    assert_eq!(server.used("acme", "max_inflight"), 0);
}

#[tokio::test]
async fn nothing_but_the_key_says_whose_request_it_is_and_where_it_goes() {
    let (url, seen) = recording().await;
    let server = in_front_of(&url).await;
    let mut body = chat("alias");
    body["api_base"] = json!("http://127.0.0.1:1");
    body["base_url"] = json!("http://127.0.0.1:1");
    body["api_key"] = json!("another");
    body["max_tokens"] = json!(5000);
    body["user"] = json!("ann");
    let headers = [
        ("authorization", "Bearer test-acme"),
        ("x-tenant-id", "poor"),
        ("x-tenant", "poor"),
        ("openai-organization", "poor"),
        ("x-upstream-url", "http://127.0.0.1:1"),
        ("x-request-id", "chosen"),
        ("cookie", "secret"),
    ];
    let answer = server.answer(Method::POST, "/v1/chat/completions", &headers, body.to_string().into()).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_ne!(answer.header("x-request-id"), Some("chosen"));
    assert_eq!((server.used("acme", "rpd"), server.used("poor", "daily_budget_usd")), (1, 0));
    let seen = seen.lock().unwrap();
    let (path, headers, sent) = &seen[0];
    assert_eq!((seen.len(), path.as_str()), (1, "/v1/chat/completions"));
    assert_eq!(headers.get("authorization").unwrap(), "Bearer own-key");
    for name in
        ["x-tenant-id", "x-tenant", "openai-organization", "x-upstream-url", "x-request-id", "cookie", "x-api-key"]
    {
        assert!(!headers.contains_key(name), "{name}");
    }
    assert_eq!((&sent["model"], &sent["max_tokens"]), (&json!("sim-chat"), &json!(1000)));
    assert!(["api_base", "base_url", "api_key"].iter().all(|name| sent.get(name).is_none()), "{sent}");
}

#[tokio::test]
async fn a_lesser_form_is_what_runs() {
    let (url, seen) = recording().await;
    let server = in_front_of(&url).await;
    let mut body = streamed("dear");
    body["tools"] = json!([{ "type": "web_search" }, { "type": "function", "function": { "name": "sum" } }]);
    let answer = server.chat("soft", &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(answer.header("x-quota-degraded"), Some("0;soft_limit_passed"));
    let seen = seen.lock().unwrap();
    let sent = &seen[0].2;
    assert_eq!((&sent["model"], &sent["max_tokens"]), (&json!("sim-chat"), &json!(8)));
    assert_eq!(sent["tools"], json!([{ "type": "function", "function": { "name": "sum" } }]));
    assert_eq!(sent["stream_options"], json!({ "include_usage": true }));
}

#[tokio::test]
async fn a_stream_whose_asker_leaves_is_settled_all_the_same() {
    let server = simulated().await;
    let headers = [("authorization", "Bearer test-acme")];
    let body = streamed("sim-slow").to_string().into_bytes();
    let mut response = server.send(Method::POST, "/v1/chat/completions", &headers, body).await;
    assert!(response.chunk().await.unwrap().is_some());
    assert_eq!(server.used("acme", "max_inflight"), 1);
    drop(response);
    server.until(Counter::Settled, 1).await;
    assert_eq!(server.used("acme", "daily_budget_usd"), COST);
    assert_eq!(server.used("acme", "max_inflight"), 0);
    // And one whose asker leaves before there is an answer.
    let body = chat("sim-slow").to_string();
    let request = server.client.post(format!("{}/v1/chat/completions", server.url)).body(body);
    let request = request.header("authorization", "Bearer test-acme").timeout(Duration::from_millis(60)).send();
    assert!(request.await.is_err());
    server.until(Counter::Settled, 2).await;
    assert_eq!(server.used("acme", "daily_budget_usd"), 2 * COST);
}

#[tokio::test]
async fn an_upstream_that_fails_before_the_first_byte() {
    let server = simulated().await;
    for body in [chat("sim-error-before"), streamed("sim-error-before")] {
        let answer = server.chat("acme", &body).await;
        assert_eq!((answer.status, answer.code().as_str()), (502, "upstream_failed"));
        assert_eq!(server.story(&answer).await, ["admitted", "unresolved"]);
    }
    // A refusal was not run: nothing is charged.
    let before = server.used("acme", "daily_budget_usd");
    let answer = server.chat("acme", &chat("sim-429")).await;
    assert_eq!((answer.status, answer.code().as_str()), (429, "upstream_busy"));
    assert_eq!(answer.header("retry-after"), Some("7"));
    assert_eq!(server.used("acme", "daily_budget_usd"), before);
    assert_eq!(server.used("acme", "max_inflight"), 0);
}

#[tokio::test]
async fn an_upstream_that_is_not_there_costs_nothing() {
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", gone.local_addr().unwrap());
    drop(gone);
    let server = in_front_of(&url).await;
    let answer = server.chat("acme", &chat("sim-chat")).await;
    assert_eq!((answer.status, answer.code().as_str()), (502, "upstream_unreachable"));
    assert_eq!((server.used("acme", "daily_budget_usd"), server.used("acme", "rpd")), (0, 0));
}

/// A server that reads a request, writes these bytes and closes.
async fn raw(answer: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1/", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let mut request = [0; 64 << 10];
            let _ = socket.read(&mut request).await;
            let _ = socket.write_all(answer.as_bytes()).await;
            let _ = socket.shutdown().await;
        }
    });
    url
}

#[tokio::test]
async fn an_upstream_that_breaks_off_is_not_free() {
    const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    for (sent, stream) in
        [("", false), ("", true), (HEAD, true), ("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{", false)]
    {
        let server = in_front_of(&raw(sent).await).await;
        let answer = server.chat("acme", &if stream { streamed("sim-chat") } else { chat("sim-chat") }).await;
        assert_eq!((answer.status, answer.code().as_str()), (502, "upstream_broken"), "{sent}");
        assert_eq!(server.counted(Counter::Unresolved), 1);
        assert!(server.used("acme", "daily_budget_usd") >= COST);
    }
}

/// A server that sends one word of a stream, or nothing at all, and then nothing more.
async fn silent(answer: Option<&'static str>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok((mut socket, _)) = listener.accept().await {
            let mut request = [0; 64 << 10];
            let _ = socket.read(&mut request).await;
            let _ = socket.write_all(answer.unwrap_or_default().as_bytes()).await;
            open.push(socket);
        }
    });
    url
}

#[tokio::test]
async fn an_upstream_that_falls_silent_is_not_waited_for_forever() {
    const WORD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n\
        data: {\"choices\":[{\"delta\":{\"content\":\"four\"}}]}\n\n";
    let short = Duration::from_millis(100);
    let patience = Patience { answer: short, idle: short, ..Patience::default() };
    let source = || Source { policy: Some(POLICY.into()), prices: None };
    let upstream = Upstream::http(&silent(None).await, None).unwrap();
    let server = start_with(source(), upstream, patience).await;
    let answer = server.chat("acme", &chat("sim-chat")).await;
    assert_eq!((answer.status, answer.code().as_str()), (504, "upstream_late"));
    let upstream = Upstream::http(&silent(Some(WORD)).await, None).unwrap();
    let server = start_with(source(), upstream, patience).await;
    let answer = server.chat("acme", &streamed("sim-chat")).await;
    let events = answer.events();
    assert_eq!((answer.status, events.len()), (200, 2));
    assert!(events[1].contains("upstream_late"), "{}", answer.text);
    // Nobody is there to read on for, and the upstream is silent: it is given up before its own time is over.
    let patience = Patience { left: Duration::ZERO, ..Patience::default() };
    let upstream = Upstream::http(&silent(Some(WORD)).await, None).unwrap();
    let server = start_with(source(), upstream, patience).await;
    let headers = [("authorization", "Bearer test-acme")];
    let body = streamed("sim-chat").to_string().into_bytes();
    let mut response = server.send(Method::POST, "/v1/chat/completions", &headers, body).await;
    assert!(response.chunk().await.unwrap().is_some());
    drop(response);
    server.until(Counter::Unresolved, 1).await;
}

#[tokio::test]
async fn a_stream_that_breaks_off_ends_with_an_error_and_what_was_seen() {
    let server = simulated().await;
    let answer = server.chat("acme", &streamed("sim-error-mid-stream")).await;
    assert_eq!(answer.status, 200);
    let events = answer.events();
    let last: Value = serde_json::from_str(events.last().unwrap()).unwrap();
    assert_eq!(last["error"]["code"], "upstream_broken");
    assert!(!events.iter().any(|event| event == "[DONE]"));
    server.until(Counter::Unresolved, 1).await;
    let listed = server.operator(Method::GET, "/admin/unresolved", "").await.json();
    let lease = &listed["unresolved"][0];
    assert_eq!((&lease["cause"], &lease["tenant"]), (&json!("upstream_failed"), &json!("acme")));
    // `The pool is `: a token a word at least, and the five bytes of the second are more than one.
    assert_eq!(lease["seen"]["output_tokens"], 4);
    assert_eq!(server.used("acme", "max_inflight"), 0);
}

#[tokio::test]
async fn usage_that_never_comes_stays_charged_until_it_is_told() {
    let server = simulated().await;
    for body in [chat("sim-no-usage"), streamed("sim-no-usage")] {
        let answer = server.chat("acme", &body).await;
        assert_eq!(answer.status, 200);
        let id = answer.header("x-request-id").unwrap();
        let path = format!("/admin/requests/{id}/usage");
        let usage = r#"{"usage": {"prompt_tokens": 7, "completion_tokens": 10}}"#;
        server.until(Counter::Unresolved, server.counted(Counter::Resolved) + 1).await;
        let settled = server.operator(Method::POST, &path, usage).await;
        assert_eq!((settled.status, &settled.json()["late"]), (200, &json!(true)));
        let again = server.operator(Method::POST, &path, usage).await;
        assert_eq!((again.status, &again.json()["repeat"]), (200, &json!(true)));
        let other = server.operator(Method::POST, &path, r#"{"prompt_tokens": 8, "completion_tokens": 10}"#).await;
        assert_eq!((other.status, other.code().as_str()), (409, "lease_conflict"));
        assert_eq!(server.story(&answer).await, ["admitted", "unresolved", "settled"]);
    }
    assert_eq!(server.used("acme", "daily_budget_usd"), 2 * COST);
    let none =
        server.operator(Method::POST, "/admin/requests/none/usage", r#"{"input_tokens": 1, "output_tokens": 1}"#).await;
    assert_eq!((none.status, none.code().as_str()), (404, "lease_unknown"));
}

#[tokio::test]
async fn requests_wait_where_the_policy_lets_them() {
    let server = simulated().await;
    let headers = [("authorization", "Bearer test-queue")];
    let first =
        server.send(Method::POST, "/v1/chat/completions", &headers, streamed("sim-slow").to_string().into()).await;
    let impatient = server.chat("impatient", &chat("sim-chat")).await;
    let error = &impatient.json()["error"];
    assert_eq!((impatient.status, &error["reason"]), (503, &json!("queue_timeout")));
    assert!(error["message"].as_str().unwrap().contains("waited"), "{error}");
    assert!(impatient.header("retry-after").is_some());
    // It is admitted once the first has ended.
    let body = chat("sim-chat");
    let (_, second) = tokio::join!(first.text(), server.chat("queue", &body));
    assert_eq!(second.status, 200, "{}", second.text);
    assert!(second.header("x-quota-waited-ms").is_some());
    assert_eq!(server.story(&second).await.last().map(String::as_str), Some("settled"));
    assert_eq!(server.counted(Counter::Queued), 2);
    assert!(server.gateway.gate.snapshot().waiting_lanes().values().all(|waiting| *waiting == 0));
}

#[tokio::test]
async fn an_idempotency_key_runs_once_in_its_tenant() {
    let server = simulated().await;
    let body = || streamed("sim-slow").to_string().into_bytes();
    let headers = |key: &'static str| [("authorization", key), ("idempotency-key", "order-1")];
    let path = "/v1/chat/completions";
    let first = server.send(Method::POST, path, &headers("Bearer test-acme"), body()).await;
    assert_eq!(first.headers().get("x-request-id").unwrap(), "acme:order-1");
    let second = server.answer(Method::POST, path, &headers("Bearer test-acme"), body()).await;
    assert_eq!((second.status, second.code().as_str()), (409, "request_in_progress"));
    assert_eq!(second.header("x-should-retry"), Some("false"));
    assert_eq!(server.answer(Method::POST, path, &headers("Bearer test-queue"), body()).await.status, 200);
    first.text().await.unwrap();
    server.until(Counter::Settled, 2).await;
    let third = server.answer(Method::POST, path, &headers("Bearer test-acme"), body()).await;
    assert_eq!((third.status, third.code().as_str()), (409, "request_already_ended"));
    assert_eq!(server.used("acme", "rpd"), 1);
    let bad = [("authorization", "Bearer test-acme"), ("idempotency-key", "a:b")];
    assert_eq!(server.answer(Method::POST, path, &bad, body()).await.status, 400);
}

#[tokio::test]
async fn a_key_sees_its_own_balances_only() {
    let server = simulated().await;
    server.chat("acme", &chat("sim-chat")).await;
    let answer = server.answer(Method::GET, "/v1/quota", &[("authorization", "Bearer test-acme")], vec![]).await;
    let quota = answer.json();
    assert_eq!((answer.status, &quota["tenant"], &quota["key"]), (200, &json!("acme"), &json!("acme")));
    let limits = quota["limits"].as_array().unwrap();
    let budget = limits.iter().find(|limit| limit["limit"] == "daily_budget_usd").unwrap();
    let usd = |amount: u64| json!(Meter::Money.show(amount));
    assert_eq!((&budget["hard"], &budget["used"]), (&json!("100"), &usd(COST)));
    assert!(limits.iter().all(|limit| limit["scope"].as_str().unwrap().starts_with("tenant:acme")));
    let stranger = server.answer(Method::GET, "/v1/quota", &[("authorization", "Bearer none")], vec![]).await;
    assert_eq!(stranger.status, 401);
}

#[tokio::test]
async fn the_operator_needs_the_admin_key() {
    let server = simulated().await;
    let all = [
        (Method::GET, "/metrics"),
        (Method::GET, "/admin/unresolved"),
        (Method::GET, "/admin/requests/x"),
        (Method::POST, "/admin/requests/x/usage"),
        (Method::POST, "/admin/reload"),
    ];
    for (method, path) in all {
        for key in ["Bearer test-acme", "Bearer ", "", "the-operator"] {
            let answer = server.answer(method.clone(), path, &[("authorization", key)], vec![]).await;
            assert_eq!((answer.status, answer.code().as_str()), (401, "admin_key_needed"), "{path} {key}");
        }
    }
    assert_eq!(server.operator(Method::GET, "/admin/requests/x", "").await.status, 404);
}

/// Reads a page of metrics strictly: every line a comment or `name{labels} number`, every name announced.
fn parse(page: &str) -> Vec<(String, f64)> {
    assert!(page.ends_with("# EOF\n"));
    let mut announced = Vec::new();
    let mut found = Vec::new();
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            announced.push(rest.split(' ').next().unwrap().to_owned());
        }
        if line.starts_with('#') {
            continue;
        }
        let (series, value) = line.rsplit_once(' ').unwrap();
        let name = series.split('{').next().unwrap().trim_end_matches("_total");
        assert!(announced.iter().any(|one| one == name), "{line}");
        found.push((series.to_owned(), value.parse().unwrap()));
    }
    found
}

#[tokio::test]
async fn metrics_tell_what_happened() {
    let server = simulated().await;
    server.chat("acme", &chat("sim-chat")).await;
    server.chat("acme", &chat("sim-no-usage")).await;
    server.chat("slow", &chat("sim-chat")).await;
    server.chat("slow", &chat("sim-chat")).await;
    server.chat("nobody", &chat("sim-chat")).await;
    let answer = server.operator(Method::GET, "/metrics", "").await;
    assert!(answer.header("content-type").unwrap().starts_with("application/openmetrics-text"));
    let page = parse(&answer.text);
    for (series, value) in [
        (r#"quota_decisions_total{tenant="acme",model="sim-chat",action="allow"}"#, 1.0),
        (r#"quota_refusals_total{tenant="slow",model="sim-chat",reason="request_rate_exceeded"}"#, 1.0),
        (r#"quota_lane_decisions_total{lane="interactive",action="reject"}"#, 1.0),
        (r#"quota_global_refusals_total{reason="key_unknown"}"#, 1.0),
        (r#"quota_global_open_leases{state="unresolved"}"#, 1.0),
        (r#"quota_charged_usd_total{tenant="acme",model="sim-chat"}"#, COST as f64 / 1e8),
    ] {
        assert_eq!(page.iter().find(|(name, _)| name == series).map(|(_, value)| *value), Some(value), "{series}");
    }
    assert!(!answer.text.contains("test-") && !answer.text.contains("rivers"));
}

#[tokio::test]
async fn a_bad_policy_is_told_and_changes_nothing() {
    let folder = std::env::temp_dir().join(format!("gateway-reload-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("policy.yaml");
    let policy = std::fs::read_to_string(POLICY).unwrap();
    std::fs::write(&file, &policy).unwrap();
    let server = start(Source { policy: Some(file.clone()), prices: None }, instant()).await;
    assert_eq!(server.chat("acme", &chat("sim-chat")).await.status, 200);
    let digest = server.gateway.gate.digest();

    std::fs::write(&file, policy.replace("max_inflight: 20", "max_inflite: 20")).unwrap();
    let answer = server.operator(Method::POST, "/admin/reload", "").await;
    assert_eq!((answer.status, answer.code().as_str()), (400, "policy_invalid"));
    assert!(answer.text.contains("max_inflite") && answer.text.contains("max_inflight"), "{}", answer.text);
    assert_eq!(server.gateway.gate.digest(), digest);
    assert_eq!(server.chat("acme", &chat("sim-chat")).await.status, 200);

    std::fs::write(&file, policy.replace("daily_budget_usd: 100", "daily_budget_usd: 0.00005")).unwrap();
    let answer = server.operator(Method::POST, "/admin/reload", "").await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_ne!(server.gateway.gate.digest(), digest);
    // What was spent before is still spent.
    let refused = server.chat("acme", &chat("sim-chat")).await;
    assert_eq!((refused.status, refused.code().as_str()), (402, "insufficient_quota"), "{}", refused.text);
    std::fs::remove_dir_all(&folder).unwrap();
}
