//! What the endpoints have in common, and what each has of its own.

use gateway::source::Source;
use quota_core::gate::Counter;
use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::*;

const WORDS: &str = "The pool is simulated and every word of it counts ";

/// Each endpoint that generates text: its path, and a body that asks for ten tokens of output for seven of input.
fn endpoints(model: &str) -> [(&'static str, Value); 4] {
    let text = "Name three rivers.";
    let messages = json!([{ "role": "user", "content": text }]);
    let long = "Name three rivers. As few.!!";
    [
        ("/v1/chat/completions", json!({ "model": model, "max_tokens": 10, "messages": messages })),
        ("/v1/completions", json!({ "model": model, "max_tokens": 10, "prompt": long })),
        ("/v1/responses", json!({ "model": model, "max_output_tokens": 10, "input": long })),
        ("/v1/messages", json!({ "model": model, "max_tokens": 10, "messages": messages })),
    ]
}

/// The text of an answer, streamed or not, of any endpoint.
fn text(values: &[Value]) -> String {
    let of = |value: &Value| {
        let places = ["/choices/0/message/content", "/choices/0/delta/content", "/choices/0/text"];
        let more = ["/output/0/content/0/text", "/content/0/text", "/delta/text", "/delta"];
        places.iter().chain(&more).find_map(|place| value.pointer(place)?.as_str().map(str::to_owned))
    };
    values.iter().filter_map(of).collect()
}

#[tokio::test]
async fn all_are_admitted_and_settled_alike() {
    let server = simulated().await;
    let mut count = 0;
    for stream in [false, true] {
        for (path, mut body) in endpoints("sim-chat") {
            body["stream"] = json!(stream);
            let answer = server.post("acme", path, &body).await;
            assert_eq!(answer.status, 200, "{path}: {}", answer.text);
            let values = if stream { answer.json_events() } else { vec![answer.json()] };
            assert_eq!(text(&values), WORDS, "{path}");
            count += 1;
            server.until(Counter::Settled, count).await;
            assert_eq!(server.used("acme", "daily_budget_usd"), count * COST, "{path}");
            assert_eq!(server.story(&answer).await, ["admitted", "settled"]);
        }
    }
    assert_eq!((server.used("acme", "rpd"), server.used("acme", "max_inflight")), (8, 0));
}

#[tokio::test]
async fn streams_of_each_shape_end_as_their_clients_expect() {
    let server = simulated().await;
    for (path, mut body) in endpoints("sim-chat") {
        body["stream"] = json!(true);
        let events = server.post("acme", path, &body).await.events();
        let last = events.last().unwrap();
        match path {
            "/v1/messages" => {
                assert_eq!(last, r#"{"type":"message_stop"}"#);
                assert!(events.iter().any(|event| event.contains(r#""usage":{"output_tokens":10}"#)));
            }
            "/v1/responses" => {
                let last: Value = serde_json::from_str(last).unwrap();
                assert_eq!(
                    (&last["type"], &last["response"]["usage"]["output_tokens"]),
                    (&json!("response.incomplete"), &json!(10))
                );
            }
            // Nobody has asked for the usage.
            _ => assert!(last == "[DONE]" && !events.iter().any(|event| event.contains("usage")), "{path}"),
        }
    }
}

#[tokio::test]
async fn what_goes_wrong_is_told_in_the_endpoints_manner() {
    let server = simulated().await;
    for (model, status, code) in [
        ("sim-error-before", 502, "upstream_failed"),
        ("sim-429", 429, "upstream_busy"),
        ("none", 403, "model_not_allowed"),
    ] {
        for (path, body) in endpoints(model) {
            let answer = server.post("acme", path, &body).await;
            let error = &answer.json()["error"];
            assert_eq!(answer.status, status, "{path}: {}", answer.text);
            let anthropic = path == "/v1/messages";
            assert_eq!(answer.json()["type"] == "error", anthropic);
            let told = match (anthropic, error.get("reason")) {
                (_, Some(reason)) => reason,
                (true, None) => &error["details"]["error_code"],
                (false, None) => &error["code"],
            };
            assert_eq!(told, code, "{path}");
            assert!(answer.header(if anthropic { "request-id" } else { "x-request-id" }).is_some());
        }
    }
}

#[tokio::test]
async fn a_stream_that_breaks_off_ends_with_an_error_event_of_its_shape() {
    let server = simulated().await;
    for (path, mut body) in endpoints("sim-error-mid-stream") {
        body["stream"] = json!(true);
        let answer = server.post("acme", path, &body).await;
        assert_eq!((answer.status, text(&answer.json_events())), (200, "The pool is ".into()), "{path}");
        let named = path == "/v1/messages" || path == "/v1/responses";
        assert_eq!(answer.text.contains("event: error\n"), named, "{path}");
        let last = answer.json_events().pop().unwrap();
        let code =
            if path == "/v1/messages" { &last["error"]["details"]["error_code"] } else { &last["error"]["code"] };
        assert_eq!(code, "upstream_broken", "{path}");
        assert_eq!(last.get("type").is_some(), named);
    }
    server.until(Counter::Unresolved, 4).await;
    let listed = server.operator(Method::GET, "/admin/unresolved", "").await.json();
    for lease in listed["unresolved"].as_array().unwrap() {
        // `The pool is `: three words and a quarter, behind the one that Anthropic's manner counts at the start.
        let seen = &lease["seen"];
        assert!((4..=5).contains(&seen["output_tokens"].as_u64().unwrap()), "{lease}");
        assert!(seen["input_tokens"].as_u64().unwrap() >= 5, "{lease}");
    }
    assert_eq!(server.used("acme", "max_inflight"), 0);
}

#[tokio::test]
async fn a_stream_that_goes_far_beyond_its_bound_is_cut() {
    let server = simulated().await;
    for (path, mut body) in endpoints("sim-overlong") {
        body["stream"] = json!(true);
        let answer = server.post("acme", path, &body).await;
        let events = answer.json_events();
        assert_eq!(answer.status, 200);
        assert!(answer.text.contains("output_limit_passed") && !answer.text.contains("[DONE]"), "{path}");
        assert!(events.last().unwrap().get("error").is_some(), "{path}");
    }
    server.until(Counter::Unresolved, 4).await;
    assert_eq!(server.used("acme", "max_inflight"), 0);
}

#[tokio::test]
async fn a_stream_is_cut_where_a_limit_has_no_room_for_more_of_it() {
    for (path, mut body) in endpoints("sim-chat") {
        let server = simulated().await;
        let bound = if path == "/v1/responses" { "max_output_tokens" } else { "max_tokens" };
        // Answers of one word teach what is held for the next one.
        body[bound] = json!(1);
        for _ in 0..32 {
            assert_eq!(server.post("short", path, &body).await.status, 200);
        }
        assert_eq!(server.used("short", "output_tpd"), 32);
        body[bound] = json!(24);
        body["stream"] = json!(true);
        let answer = server.post("short", path, &body).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
        let events = answer.json_events();
        let error = &events.last().unwrap()["error"];
        let reason = error.get("reason").unwrap_or(&error["details"]["error_code"]);
        assert_eq!(reason, "token_quota_exceeded", "{path}: {}", answer.text);
        assert!(text(&events).starts_with("The pool is simulated") && !answer.text.contains("[DONE]"), "{path}");
        server.until(Counter::Unresolved, 1).await;
        let used = server.used("short", "output_tpd");
        assert!((40..=44).contains(&used), "{path}: {used}");
    }
}

#[tokio::test]
async fn every_answer_to_a_key_has_its_rate_limits() {
    let server = simulated().await;
    let body = |model: &str| endpoints(model)[0].1.clone();
    for (answer, status) in [
        (server.chat("acme", &body("sim-chat")).await, 200),
        (server.chat("acme", &json!({})).await, 400),
        (server.chat("acme", &body("sim-429")).await, 429),
        (server.chat("acme", &body("none")).await, 403),
        (server.get("acme", "/v1/models").await, 200),
        (server.get("acme", "/v1/models/none").await, 404),
        (server.get("acme", "/v1/quota").await, 200),
    ] {
        assert_eq!(answer.status, status, "{}", answer.text);
        assert_eq!(answer.header("x-ratelimit-limit-requests"), Some("100000"), "{status}");
        assert!(answer.header("x-ratelimit-remaining-tokens").is_some() && answer.header("ratelimit").is_some());
    }
    for (model, status) in [("sim-chat", 200), ("none", 403)] {
        let answer = server.messages("acme", &body(model)).await;
        assert_eq!((answer.status, answer.header("anthropic-ratelimit-requests-limit")), (status, Some("100000")));
        assert!(answer.header("anthropic-ratelimit-tokens-remaining").is_some());
        assert!(answer.header("ratelimit-policy").is_some() && answer.header("x-ratelimit-limit-requests").is_none());
    }
    assert!(server.chat("nobody", &body("sim-chat")).await.header("ratelimit").is_none());
}

#[tokio::test]
async fn models_are_those_that_the_key_may_use() {
    let server = simulated().await;
    let names = |answer: Answer| -> Vec<String> {
        let list = answer.json();
        assert_eq!((answer.status, &list["object"]), (200, &json!("list")), "{list}");
        list["data"].as_array().unwrap().iter().map(|model| model["id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(server.get("soft", "/v1/models").await), ["dear", "sim-chat"]);
    assert_eq!(names(server.get("narrow", "/v1/models").await), ["sim-chat"]);
    let every = names(server.get("any", "/v1/models").await);
    assert!(every.contains(&"sim-embed".to_owned()) && every.contains(&"dear".to_owned()), "{every:?}");
    assert_eq!(server.get("narrow", "/v1/models").await.status, 200);
    assert_eq!(server.get("soft", "/v1/models/dear").await.json()["id"], "dear");
    let answer = server.get("narrow", "/v1/models/dear").await;
    assert_eq!((answer.status, answer.code().as_str()), (404, "model_not_found"));
    assert_eq!(server.get("nobody", "/v1/models").await.status, 401);
}

#[tokio::test]
async fn the_upstream_of_messages_is_asked_in_anthropics_manner() {
    let (url, seen) = recording().await;
    let server = in_front_of(&url).await;
    let mut body = endpoints("alias")[3].1.clone();
    body["max_tokens"] = json!(5000);
    let answer = server.messages("acme", &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let seen = seen.lock().unwrap();
    let (path, headers, sent) = &seen[0];
    assert_eq!(path, "/v1/messages");
    assert_eq!(headers.get("x-api-key").unwrap(), "own-key");
    assert_eq!(headers.get("anthropic-version").unwrap(), "2023-06-01");
    assert_eq!((&sent["model"], &sent["max_tokens"]), (&json!("sim-chat"), &json!(1000)));
    assert!(sent.get("max_completion_tokens").is_none());
}

#[tokio::test]
async fn steps_of_a_run_share_its_bounds() {
    let server = simulated().await;
    let body = endpoints("sim-chat")[0].1.to_string();
    let ask = async |run: &str| {
        let headers = [("authorization", "Bearer test-agent"), ("x-agent-run-id", run)];
        server.answer(Method::POST, "/v1/chat/completions", &headers, body.clone().into()).await
    };
    assert_eq!(ask("run-1").await.status, 200);
    assert_eq!(ask("run-1").await.status, 200);
    let refused = ask("run-1").await;
    assert_eq!(refused.json()["error"]["reason"], "run_steps_exceeded", "{}", refused.text);
    assert_eq!(ask("run-2").await.status, 200);
    for run in ["", "a b", &"r".repeat(129)] {
        let answer = ask(run).await;
        assert_eq!((answer.status, answer.code().as_str()), (400, "request_invalid"), "{run}");
        assert!(answer.text.contains("x-agent-run-id"));
    }
}

#[tokio::test]
async fn a_repeat_finds_the_request_in_progress_whatever_its_shape() {
    let (url, seen) = recording().await;
    let server = in_front_of(&url).await;
    for (at, (path, mut body)) in endpoints("sim-slow").into_iter().enumerate() {
        body["stream"] = json!(true);
        let key = format!("order-{at}");
        let headers = [("authorization", "Bearer test-acme"), ("idempotency-key", key.as_str())];
        let first = server.send(Method::POST, path, &headers, body.to_string().into()).await;
        for _ in 0..2 {
            let again = server.answer(Method::POST, path, &headers, body.to_string().into()).await;
            assert_eq!(again.status, 409, "{path}: {}", again.text);
            assert!(again.text.contains("request_in_progress"), "{}", again.text);
            assert_eq!(again.header("x-should-retry"), Some("false"));
        }
        assert!(first.text().await.unwrap().len() > 100);
        server.until(Counter::Settled, at as u64 + 1).await;
    }
    assert_eq!(seen.lock().unwrap().len(), 4);
    assert_eq!(server.used("acme", "daily_budget_usd"), 4 * COST);
}

#[tokio::test]
async fn a_stream_that_outlives_its_lease_keeps_it() {
    let file = std::env::temp_dir().join(format!("gateway-lease-{}.yaml", std::process::id()));
    let policy = std::fs::read_to_string(POLICY).unwrap();
    std::fs::write(&file, policy + "\nsettings: {lease_ttl_ms: 1000}\n").unwrap();
    let server = start(Source { policy: Some(file.clone()), prices: None }, instant()).await;
    std::fs::remove_file(&file).unwrap();
    for (count, (path, mut body)) in endpoints("sim-slow").into_iter().enumerate().filter(|(at, _)| at % 3 == 0) {
        body["stream"] = json!(true);
        body["max_tokens"] = json!(64);
        let mut stream = server.post_open("acme", path, &body).await;
        // Twenty-four words take more than a second.
        while let Some(_word) = stream.chunk().await.unwrap() {
            server.gateway.gate.sweep(100);
        }
        server.until(Counter::Settled, count as u64 / 3 + 1).await;
    }
    assert_eq!(server.counted(Counter::Unresolved), 0);
}
