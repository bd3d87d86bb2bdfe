//! Waiting in front of a pool: the simulated one in time, and servers that tell their load.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use gateway::call::Patience;
use gateway::figures::figures;
use gateway::identity::Identity;
use gateway::pools::Metrics;
use gateway::server::Config;
use gateway::simulated::{QUICK, Simulation};
use gateway::source::Source;
use gateway::upstream::Upstream;
use quota_core::gpu::simulated::Shape;
use quota_core::gpu::{Dialect, GpuBackend};
use quota_core::poller::PollPlan;
use quota_core::scheduler::{Counts, Figures};
use quota_core::{Lease, Principal, Request};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::harness::*;

const QUEUES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/queues.yaml");

/// One request after the other, so that who goes next is seen by who ends next.
const NARROW: Shape = Shape { replicas: 1, max_running: 1, step: 200_000, ..QUICK };

async fn waiting_server(upstream: Upstream, metrics: Option<Metrics>) -> Server {
    let source = Source { policy: Some(QUEUES.into()), prices: None };
    let (identity, patience) = (Identity::default(), Patience::default());
    start_by(Config { source, upstream, metrics, identity, admin_key: ADMIN.into(), max_body: MAX_BODY, patience })
        .await
}

async fn paced(shape: Shape) -> Arc<Server> {
    Arc::new(waiting_server(Upstream::Simulated(Simulation::paced(shape)), None).await)
}

/// `n` answers of 24 words.
fn answers(n: u64) -> Value {
    let mut body = chat("sim-chat");
    (body["max_tokens"], body["n"]) = (24.into(), n.into());
    body
}

fn queue(server: &Server) -> Figures {
    let pools = server.gateway.gate.pools();
    pools.into_iter().find(|pool| &*pool.pool == "sim").unwrap().queue
}

fn waiting(server: &Server) -> u64 {
    queue(server).lanes.iter().map(|lane| lane.queued).sum()
}

fn sum(server: &Server, count: fn(&Counts) -> u64) -> u64 {
    queue(server).lanes.iter().map(|lane| count(&lane.counts)).sum()
}

/// Waits until something holds.
async fn holds(what: &str, mut look: impl FnMut() -> bool) {
    let held = async {
        while !look() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(tokio::time::timeout(DEADLINE, held).await.is_ok(), "never: {what}");
}

/// Takes the whole pool, as long as the lease is kept.
fn occupy(server: &Server) -> Lease {
    let gate = &server.gateway.gate;
    let request = Request::chat("sim-chat").input_tokens(1).max_output_tokens(1);
    gate.admit(&Principal::builder("light").build(), &request).lease().unwrap()
}

/// Who got their answers, in that order.
#[derive(Default)]
struct Order {
    tasks: JoinSet<()>,
    ended: Arc<Mutex<Vec<&'static str>>>,
}

impl Order {
    /// Lines up `count` requests.
    async fn line_up(&mut self, server: &Arc<Server>, key: &'static str, count: u64, body: &Value) {
        let before = waiting(server);
        for _ in 0..count {
            let (server, body, ended) = (server.clone(), body.clone(), self.ended.clone());
            self.tasks.spawn(async move {
                let answer = server.chat(key, &body).await;
                assert_eq!(answer.status, 200, "{}", answer.text);
                assert!(answer.header("x-quota-waited-ms").unwrap().parse::<u64>().unwrap() > 0);
                ended.lock().unwrap().push(key);
            });
        }
        holds("all wait", || waiting(server) == before + count).await;
    }

    fn count(&self, key: &str) -> u64 {
        self.ended.lock().unwrap().iter().filter(|ended| **ended == key).count() as u64
    }

    /// How many of `other` have ended when all `count` of `key` have.
    async fn others_until(&self, key: &'static str, count: u64, other: &str) -> u64 {
        holds("all have ended", || self.count(key) == count).await;
        let ended = self.ended.lock().unwrap();
        let last = ended.iter().rposition(|ended| *ended == key).unwrap();
        ended[..last].iter().filter(|ended| **ended == other).count() as u64
    }
}

#[tokio::test]
async fn tenants_share_a_full_pool_by_tokens() {
    let server = paced(NARROW).await;
    let place = occupy(&server);
    let mut order = Order::default();
    order.line_up(&server, "heavy", 30, &answers(4)).await;
    order.line_up(&server, "light", 20, &answers(1)).await;
    place.cancel().unwrap();
    let heavy = order.others_until("light", 20, "heavy").await;
    // Twenty answers beside some five times four: neither behind all of the other's, nor one request for one.
    assert!((4..=8).contains(&heavy), "{heavy}");
    assert!(waiting(&server) > 15);
}

#[tokio::test]
async fn interactive_requests_go_before_batch() {
    let server = paced(NARROW).await;
    let place = occupy(&server);
    let mut order = Order::default();
    order.line_up(&server, "night", 20, &answers(1)).await;
    order.line_up(&server, "heavy", 10, &answers(1)).await;
    place.cancel().unwrap();
    let batch = order.others_until("heavy", 10, "night").await;
    // Eight for one, and what a lane may run ahead.
    assert!(batch <= 4, "{batch}");
    holds("batch is served too", || order.count("night") == 20).await;
}

#[tokio::test]
async fn who_leaves_while_it_waits_frees_its_place() {
    let server = paced(NARROW).await;
    let place = occupy(&server);
    let asker = server.clone();
    let asks = tokio::spawn(async move { asker.chat("heavy", &answers(1)).await.status });
    holds("it waits", || waiting(&server) == 1).await;
    asks.abort();
    holds("it has left", || waiting(&server) == 0).await;
    assert_eq!(sum(&server, |counts| counts.left), 1);
    place.cancel().unwrap();
    let answer = server.chat("heavy", &answers(1)).await;
    assert_eq!((answer.status, answer.header("x-quota-waited-ms")), (200, None));
    assert_eq!(server.story(&answer).await, ["admitted", "settled"]);
}

/// The reason that a refusal tells, in either manner.
fn reason(answer: &Answer) -> Value {
    let error = &answer.json()["error"];
    [&error["reason"], &error["details"]["reason"]].into_iter().find(|word| word.is_string()).unwrap().clone()
}

#[tokio::test]
async fn who_waits_in_vain_is_told_in_its_manner() {
    let server = paced(NARROW).await;
    let _place = occupy(&server);
    for answer in [server.chat("impatient", &answers(1)).await, server.messages("impatient", &chat("sim-chat")).await] {
        assert_eq!((answer.status, reason(&answer)), (503, json!("queue_timeout")), "{}", answer.text);
        assert!(answer.header("retry-after").is_some() && answer.text.contains("`impatient`"), "{}", answer.text);
        assert_eq!(server.story(&answer).await, ["queued", "refused"]);
    }
    let page = server.operator(Method::GET, "/metrics", "").await.text;
    for line in [
        r#"quota_pool_in_flight{pool="sim"} 1"#,
        r#"quota_pool_in_flight_limit{pool="sim"} 1"#,
        r#"quota_pool_pressure_percent{pool="sim"} 100"#,
        r#"quota_queue_unserved_total{pool="sim",lane="impatient",tenant="light",outcome="timed_out"} 2"#,
    ] {
        assert!(page.contains(line), "{line} is not in {page}");
    }
}

#[tokio::test]
async fn who_would_wait_in_vain_is_not_let_in() {
    // An answer takes some 50 ms: more than eight that wait are too many for the lane, once that is known.
    let server = paced(Shape { step: 2_000_000, ..NARROW }).await;
    let told = Arc::new([AtomicBool::new(false), AtomicBool::new(false)]);
    let mut askers = JoinSet::new();
    for asker in 0..24 {
        let (server, told) = (server.clone(), told.clone());
        askers.spawn(async move {
            while !told.iter().all(|told| told.load(Ordering::Relaxed)) {
                let answer = match asker % 2 {
                    0 => server.chat("short", &answers(1)).await,
                    _ => server.messages("short", &chat("sim-chat")).await,
                };
                if answer.status == 200 {
                    continue;
                }
                let why = reason(&answer);
                assert!(why == "queue_timeout" || why == "model_pool_overloaded", "{}", answer.text);
                assert_eq!(answer.status, 503);
                assert!(answer.header("retry-after").unwrap().parse::<u64>().unwrap() > 0);
                told[asker % 2].fetch_or(why == "model_pool_overloaded", Ordering::Relaxed);
            }
        });
    }
    let all = async { while askers.join_next().await.transpose().unwrap().is_some() {} };
    assert!(tokio::time::timeout(DEADLINE, all).await.is_ok(), "nobody was told that the pool is overloaded");
}

#[tokio::test]
async fn a_simulated_stream_comes_as_its_tokens_do() {
    let simulation = Simulation::paced(Shape { step: 20_000_000, ..NARROW });
    let (replicas, clock) = simulation.replicas().unwrap();
    let inside = || {
        let load = replicas.load(quota_core::time::Clock::now(&clock));
        load.replicas[0].running.unwrap() + load.replicas[0].waiting.unwrap()
    };
    let server = waiting_server(Upstream::Simulated(simulation.clone()), None).await;
    let mut body = streamed("sim-chat");
    body["max_tokens"] = json!(24);
    let mut stream = server.post_open("heavy", "/v1/chat/completions", &body).await;
    assert!(stream.chunk().await.unwrap().is_some());
    assert_eq!((inside(), queue(&server).valve.in_flight), (1, 1), "the head is there long before the end");
    let rest = stream.text().await.unwrap();
    assert!(rest.contains("one. ") && rest.ends_with("[DONE]\n\n"), "{rest}");
    holds("its room is free", || queue(&server).valve.in_flight == 0).await;
    assert_eq!(inside(), 0);
    assert!(queue(&server).to_first_token > Duration::ZERO, "the queue is told how far a stream is");
    // A body that is dropped is an answer that goes on for nobody.
    let answer = simulation.answer("/chat/completions", body.to_string().as_bytes()).await;
    assert_eq!(inside(), 1);
    drop(answer);
    assert_eq!(inside(), 0);
    body["messages"][0]["content"] = json!("river ".repeat(200_000));
    let long = simulation.answer("/chat/completions", body.to_string().as_bytes()).await;
    assert_eq!(long.status(), 400, "longer than a replica's memory");
}

/// What the server below tells nothing at.
const SILENT: u64 = u64::MAX;

/// A server of one replica that tells how many wait inside it.
async fn telling(waits: Arc<AtomicU64>, priority_hints: bool) -> Metrics {
    let page = move || async move {
        let waits = waits.load(Ordering::Relaxed);
        if waits == SILENT {
            return String::new();
        }
        format!("vllm:num_requests_running{{engine=\"0\"}} 9\nvllm:num_requests_waiting{{engine=\"0\"}} {waits}\n")
    };
    let url = listen(Router::new().route("/metrics", get(page))).await;
    let mut plan = PollPlan::new(Dialect::Vllm, [url]);
    plan.interval = Duration::from_millis(20);
    Metrics { pool: None, plan, max_running: Some(64), priority_hints }
}

#[tokio::test]
async fn a_pool_closes_when_its_servers_have_too_many_waiting() {
    let waits = Arc::new(AtomicU64::new(0));
    let (url, _) = recording().await;
    let metrics = telling(waits.clone(), false).await;
    let server = waiting_server(Upstream::http(&url, None).unwrap(), Some(metrics)).await;
    assert_eq!(queue(&server).valve.most, 16, "a quarter of what was declared");
    assert_eq!(server.chat("heavy", &answers(1)).await.status, 200);
    waits.store(5, Ordering::Relaxed);
    holds("it closes", || queue(&server).valve.most < 16).await;
    waits.store(40, Ordering::Relaxed);
    holds("it closes faster", || queue(&server).valve.most < 11).await;
    let page = server.operator(Method::GET, "/metrics", "").await.text;
    assert!(page.contains("quota_pool_stale_seconds{pool=\"sim\"}"), "{page}");
    let faults = || figures(&server.gateway)["pools"]["lines"][0]["faults"].clone();
    assert_eq!(faults(), json!([]));
    waits.store(SILENT, Ordering::Relaxed);
    holds("it is told", || faults() == json!(["replica 0: no figure of the model in the answer"])).await;
}

#[tokio::test]
async fn a_refusal_by_the_upstream_closes_its_pool() {
    for status in [StatusCode::SERVICE_UNAVAILABLE, StatusCode::TOO_MANY_REQUESTS] {
        let url = listen(Router::new().fallback(move || async move { status })).await;
        let metrics = telling(Arc::default(), false).await;
        let server = waiting_server(Upstream::http(&url, None).unwrap(), Some(metrics)).await;
        assert_eq!(server.chat("heavy", &answers(1)).await.status, status.as_u16());
        holds("it closes", || queue(&server).valve.most == 11).await;
        assert_eq!(queue(&server).valve.in_flight, 0);
    }
}

#[tokio::test]
async fn the_upstream_is_told_whose_turn_it_is_by_nobody_else() {
    let (url, seen) = recording().await;
    let mut body = answers(1);
    body["priority"] = json!(-9);
    for (hints, told) in [(true, [json!(0), json!(1)]), (false, [Value::Null, Value::Null])] {
        let metrics = telling(Arc::default(), hints).await;
        let server = waiting_server(Upstream::http(&url, None).unwrap(), Some(metrics)).await;
        for (key, told) in ["heavy", "night"].iter().zip(told) {
            assert_eq!(server.chat(key, &body).await.status, 200);
            assert_eq!(seen.lock().unwrap().last().unwrap().2["priority"], told, "{key}");
        }
    }
}
