//! Hostile use: each bound is reached on purpose. What is beyond it is refused with its own reason, what is open stays,
//! others go on, memory stays within the bound, and afterwards everything is as before.
//!
//! | bound | value | at it | reached by |
//! |---|---|---|---|
//! | accounts (rows) | `Bounds::rows` | `accounts_exhausted`; those at rest make room | [`accounts`] |
//! | accounts of users and runs | three quarters of the rows, half of that for one tenant | the same; other tenants go on | [`accounts`] |
//! | open leases | `Bounds::open_leases` | `leases_exhausted` | [`open_leases`] |
//! | ended leases and their ids | twice the open ones | an older one is forgotten, none of the last half | [`remembered_ids`] |
//! | unresolved leases of a tenant | an eighth of the open ones, at least 16 | one more is taken as used in full | [`unresolved_leases`] |
//! | places of a lane, of a tenant | the policy's `max_queue` | `queue_full` | [`queue_places`] |
//! | requests and flows of a pool | 65,536 each, `Settings` | `queue_full` | [`requests_and_flows_of_a_pool`] |
//! | requests in flight in a pool | `MAX_IN_FLIGHT`, 2^20 − 1 | a larger capacity counts as that | `queue_faults` `absurd_figures_do_no_harm` |
//! | tries for one limit | two at a time, then two for each that succeeds | the others wait | `queue_faults` `a_release_lets_few_try…`, `tries_do_not_pile_up…` |
//! | journal | `Ring::new`, 32,768 entries | the oldest of its kind goes, refusals never push out what was charged | [`journal_entries`] |
//! | names, ids, tiers, choices | 256, 128, 64 bytes; 128 choices | `request_invalid`, its texts cut | [`names_and_ids`] |
//! | a name of a principal | 4,096 bytes | the rest is not kept; `request_invalid` | `principal` `names_that_are_too_long…` |
//! | amounts | 2^52 − 1 | `request_too_large`, nothing wraps | [`amounts`] |
//! | text that is counted exactly | 512 KiB | the rest is estimated | [`texts`] |
//! | prompts of a body, its depth | 2,048; 64 | `request_invalid` | [`bodies`] |
//! | event of a stream | `max_event`, 1 MiB | it passes unread and is counted | [`stream_events`] |
//! | labels of metrics | tenants and models of the policy, `*`, and one for strangers | made-up names add none | [`labels`] |
//! | what a tenant takes | 400 B loaded, 1,400 B more with its route and its principal | | [`tenants`] |
//! | rosters | 65,536 | all are found again when they are needed | [`rosters`] |
//! | refused requests remembered | 65,536 | those that are over go, then all | [`refused_requests`] |
//! | alerts remembered | 2^18 marks | all are forgotten, and told once more | `gate/alert` `what_is_remembered_is_bounded` |
//! | limits of a request | 64 windows a scope | all are held | [`limits`]; `policy` `one_scope_has_bounded_windows…` |
//! | keys beside the policy's | `MAX_KEYS`, 65,536 | `KeyError::KeysFull`; those that have ended make room | `keys` `keys_are_bounded…` |
//! | secrets of a key; keys above a key; its limits | 4; 8; 16 KiB | `SecretsFull`; `Invalid`; `Limits` | [`secrets_and_limits_of_a_key`] |
//! | a key's text | 1,024 bytes | `key_unknown` | [`secrets_and_limits_of_a_key`] |
//! | policy: bytes, values, depth | 16 MiB, 1,048,576, 32 | `too_large` | [`policies`]; `policy/node` `bounds_stop_bombs_early` |
//! | policy: what it compiles into; overrides of a limit | 2,000,000; 64 | `too_large` | `policy` `what_a_plan_repeats…`, `one_scope_has…` |
//! | price list; variants of a price | 32 MiB; 16 | an error | `policy/price_list` `depth_is_bounded`, `policy/price/build` `variants_are_bounded` |
//! | errors of a report | 1,000 told | the rest are counted | `policy/error` `a_report_is_bounded…` |
//! | what servers tell | 8 MiB of text, 1 MiB of JSON, 16 KiB of header, 16 models, 256 ranks | it is not read, or the replica is stale | `gpu/exposition` `a_text_has_a_bound`, `gpu/dialect` `texts_have_bounds`, `many_models_and_ranks…` |
//! | items of a rate-limit header | 16 | the tightest stay | `respond/headers` `the_list_is_bounded…` |
//! | runs of agents | a run takes rows like a user | `accounts_exhausted`; forgotten an hour after its end | `agent_runs` `runs_are_bounded_and_expire` |
//! | open leases on one row | 2^24 | `leases_exhausted` | none: it takes 16 million leases |
//! | subscribers to alerts, frozen targets | none | only the host and its operators add them | |

#![allow(unsafe_code)] // For the allocator that counts; an allocator is unsafe by its trait.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use quota_core::estimate::body;
use quota_core::gate::{KeyError, KeySpec};
use quota_core::gpu::FixedPool;
use quota_core::journal::{Event, Ring};
use quota_core::lease::State;
use quota_core::refusal::{Refusal, Wait};
use quota_core::scheduler::drr::End;
use quota_core::scheduler::{Arrival, Capacity, Scheduler, Settings, Why};
use quota_core::store::Memory;
use quota_core::store::memory::Bounds;
use quota_core::usage::{Dialect, Outcome, StreamReader};
use quota_core::work::Tokens;
use quota_core::{
    Decision, EndError, Gate, Lease, ManualClock, Name, Policy, Principal, Reason, Request, Store, Usage, observe,
};
use serde_json::json;

/// Counts the bytes that each thread has and the most that it had: tests run beside each other.
struct Counting;

thread_local! {
    static LIVE: Cell<i64> = const { Cell::new(0) };
    static MOST: Cell<i64> = const { Cell::new(0) };
}

fn count(bytes: i64) {
    // A thread that ends has no cells any more, and nobody asks for its sums.
    let _ = LIVE.try_with(|live| {
        live.set(live.get() + bytes);
        MOST.try_with(|most| most.set(most.get().max(live.get())))
    });
}

// SAFETY: every call is handed to the system's allocator as it came; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller's promise is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as i64 - layout.size() as i64);
        // SAFETY: as above.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What this thread has more after something than before, and the most that it had more meanwhile, in bytes.
fn memory<R>(act: impl FnOnce() -> R) -> (R, i64, i64) {
    let before = LIVE.get();
    MOST.set(before);
    let result = act();
    (result, LIVE.get() - before, MOST.get() - before)
}

const KIB: i64 = 1 << 10;
const MIB: i64 = 1 << 20;

struct Scene {
    gate: Gate,
    clock: Arc<ManualClock>,
}

fn scene_of(policy: &str, bounds: Bounds, entries: usize) -> Scene {
    let clock = Arc::new(ManualClock::at_instant("2026-11-30T12:00:00Z").unwrap());
    let policy = Policy::from_yaml(policy).unwrap_or_else(|errors| panic!("{errors}"));
    let builder = Gate::builder(policy).store(Memory::new(bounds)).journal(Ring::new(entries)).clock(clock.clone());
    Scene { gate: builder.pool("h200", FixedPool::new(1, 1, None)).build(), clock }
}

/// A few entries of the journal only, so that what is measured is not the journal.
fn scene(policy: &str, bounds: Bounds) -> Scene {
    scene_of(policy, bounds, 64)
}

fn who(tenant: &str) -> Principal {
    Principal::builder(tenant).build()
}

fn user(tenant: &str, nth: usize) -> Principal {
    Principal::builder(tenant).user(format!("user{nth}")).build()
}

fn ask() -> Request {
    Request::chat("m").input_tokens(1).max_output_tokens(1)
}

impl Scene {
    fn admit(&self, who: &Principal, request: &Request) -> Lease {
        match self.gate.admit(who, request) {
            Decision::Allow(lease) => lease,
            other => panic!("{} {:?}", other.action(), other.refusal()),
        }
    }

    fn refuse(&self, who: &Principal, request: &Request) -> Arc<Refusal> {
        match self.gate.admit(who, request) {
            Decision::Reject(refusal) => refusal,
            other => panic!("{} is no refusal", other.action()),
        }
    }

    fn pass(&self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds));
        self.gate.sweep(usize::MAX);
    }

    fn open(&self) -> usize {
        self.gate.store().open(usize::MAX, |open| open.len())
    }

    /// That a request passes and leaves nothing.
    fn serves(&self, who: &Principal) {
        let lease = self.admit(who, &ask());
        lease.settle(Usage::tokens(1, 1)).unwrap();
    }
}

#[test]
fn accounts() {
    let policy = "
models: {m: {}}
tenants:
  hog: {users: {rpm: 60, max_inflight: 2}, models: {m: {}}}
  other: {rpd: 1000000, users: {rpm: 60, max_inflight: 2}, models: {m: {}}}";
    let scene = scene(policy, Bounds { rows: 64, open_leases: 1024 });
    let mut open = Vec::new();
    let refused = (0..64).find_map(|nth| match scene.gate.admit(&user("hog", nth), &ask()) {
        Decision::Allow(lease) => {
            open.push(lease);
            None
        }
        Decision::Reject(refusal) => Some(refusal),
        other => panic!("{}", other.action()),
    });
    assert_eq!((refused.unwrap().reason, open.len()), (Reason::AccountsExhausted, 24), "half of three quarters");
    let ((), grown, _) = memory(|| {
        for nth in 0..5000 {
            assert_eq!(scene.refuse(&user("hog", 1000 + nth), &ask()).reason, Reason::AccountsExhausted);
        }
    });
    assert!(grown < 64 * KIB, "{grown} bytes for 5,000 users that have no account");
    // Another tenant has its own, and its users theirs.
    scene.serves(&who("other"));
    let others: Vec<_> = (0..20).map(|nth| scene.admit(&user("other", nth), &ask())).collect();
    for lease in open.into_iter().chain(others) {
        assert!(!lease.settle(Usage::tokens(1, 1)).unwrap().is_repeat());
    }
    scene.pass(2);
    scene.serves(&user("hog", 99));
}

#[test]
fn open_leases() {
    let policy = "models: {m: {}}\ntenants: {hog: {rpd: 1000000, models: {m: {}}}, other: {models: {m: {}}}}";
    let scene = scene(policy, Bounds { rows: 64, open_leases: 256 });
    let mut leases: Vec<_> = (0..256).map(|nth| scene.admit(&who("hog"), &ask().id(format!("r{nth}")))).collect();
    let used = scene.gate.balances(&who("hog"), true)[0].used;
    let ((), grown, _) = memory(|| {
        for nth in 0..5000 {
            let refusal = scene.refuse(&who("hog"), &ask().id(format!("more{nth}")));
            assert_eq!((refusal.reason, refusal.wait), (Reason::LeasesExhausted, Wait::Unknown));
        }
    });
    assert!(grown < 64 * KIB, "{grown} bytes for 5,000 requests that were refused");
    assert_eq!((scene.open(), scene.gate.balances(&who("hog"), true)[0].used), (256, used));
    leases.pop().unwrap().cancel().unwrap();
    scene.serves(&who("other"));
    assert!(leases.iter().all(|lease| !lease.settle(Usage::tokens(1, 1)).unwrap().is_repeat()));
    scene.serves(&who("hog"));
    assert_eq!(scene.open(), 0);
}

#[test]
fn remembered_ids() {
    let policy = "models: {m: {}}\ntenants: {acme: {models: {m: {}}}}";
    let (acme, bound) = (who("acme"), 128);
    let scene = scene(policy, Bounds { rows: 16, open_leases: bound });
    let ended = |from: u32, to: u32| {
        for nth in from..to {
            scene.admit(&acme, &ask().id(format!("r{nth}"))).settle(Usage::tokens(1, 1)).unwrap();
        }
    };
    let kept = scene.admit(&acme, &ask().id("kept"));
    ended(0, 20 * bound);
    let ((), grown, _) = memory(|| ended(20 * bound, 60 * bound));
    assert!(grown < 64 * KIB, "{grown} bytes more for {} more leases", 40 * bound);
    // As many as may be open are remembered; what is open is not forgotten for them.
    for nth in 60 * bound - bound + 1..60 * bound {
        assert_eq!(scene.refuse(&acme, &ask().id(format!("r{nth}"))).reason, Reason::RequestAlreadyEnded, "{nth}");
    }
    let late = scene.gate.finalize(Name::Request("r0".into()), Outcome::Final(Usage::tokens(1, 1)));
    assert!(matches!(late, Err(EndError::Unknown(_))), "{late:?}");
    assert!(!scene.admit(&acme, &ask().id("r0")).is_repeat(), "a forgotten id is a new one");
    assert!(!kept.settle(Usage::tokens(1, 1)).unwrap().is_repeat());
}

#[test]
fn unresolved_leases() {
    let policy = "
settings: {unresolved_after_ms: 60000}
models: {m: {}}
tenants: {hog: {rpd: 1000000, models: {m: {}}}, other: {models: {m: {}}}}";
    let scene = scene(policy, Bounds { rows: 16, open_leases: 256 });
    for _ in 0..100 {
        drop(scene.admit(&who("hog"), &ask()));
    }
    assert_eq!(
        (scene.open(), scene.gate.unresolved(1000).len()),
        (32, 32),
        "an eighth; the others were closed as used"
    );
    assert_eq!(scene.gate.balances(&who("hog"), true)[0].used, 100);
    let id = scene.gate.unresolved(1)[0].claim.id;
    let other = scene.admit(&who("other"), &ask());
    let others = other.id();
    drop(other);
    let record = scene.gate.store().find(Name::Lease(others), |record| record).unwrap();
    assert!(matches!(&*record.state(), State::Unresolved(_)), "another tenant has its own part");
    // One that is resolved makes room for one more.
    assert!(scene.gate.finalize(Name::Lease(id), Outcome::Final(Usage::tokens(1, 1))).unwrap().is_late());
    drop(scene.admit(&who("hog"), &ask()));
    assert_eq!(scene.gate.unresolved(1000).len(), 33);
    // To say once more of one that its usage is unknown changes nothing, at the bound as anywhere.
    assert!(scene.gate.finalize(Name::Lease(others), Outcome::Final(Usage::tokens(1, 1))).unwrap().is_late());
    let last = scene.gate.unresolved(1)[0].claim.id;
    assert!(scene.gate.finalize(Name::Lease(last), Outcome::FailedWithoutUsage).unwrap().is_repeat());
    assert_eq!(scene.gate.unresolved(1000).len(), 32);
    scene.pass(61);
    assert_eq!(scene.open(), 0);
    scene.serves(&who("hog"));
}

#[test]
fn queue_places() {
    let policy = "
models: {m: {pool: h200}}
queues: {chat: {max_wait_ms: 60000, max_queue: 8}}
tenants: {hog: {max_queue: 5, models: {m: {}}}, second: {models: {m: {}}}, third: {models: {m: {}}}}";
    let scene = scene(policy, Bounds { rows: 16, open_leases: 64 });
    let runs = scene.admit(&who("third"), &ask());
    let wait = |tenant: &str| match scene.gate.admit(&who(tenant), &ask()) {
        Decision::Queue(queued) => queued,
        other => panic!("{} {:?}", other.action(), other.refusal()),
    };
    let mut places: Vec<_> = (0..5).map(|_| wait("hog")).collect();
    let ((), grown, _) = memory(|| {
        for _ in 0..2000 {
            assert_eq!(scene.refuse(&who("hog"), &ask()).reason, Reason::QueueFull);
        }
    });
    assert!(grown < 64 * KIB, "{grown} bytes for 2,000 requests that may not wait");
    places.extend((0..3).map(|_| wait("second")));
    assert_eq!(scene.refuse(&who("second"), &ask()).reason, Reason::QueueFull, "the lane is full");
    // All that wait get their turn, and then the queue is empty.
    runs.settle(Usage::tokens(1, 1)).unwrap();
    let mut served = 0;
    for round in 0..16 {
        places = std::mem::take(&mut places)
            .into_iter()
            .filter_map(|queued| {
                let tenant = queued.refusal.tenant.clone();
                match scene.gate.admit_again(queued, &who(&tenant), &ask()) {
                    Decision::Allow(lease) => {
                        lease.settle(Usage::tokens(1, 1)).unwrap();
                        served += 1;
                        None
                    }
                    Decision::Queue(queued) => Some(queued),
                    other => panic!("round {round}: {} {:?}", other.action(), other.refusal()),
                }
            })
            .collect();
    }
    assert_eq!((served, places.len()), (8, 0));
    scene.serves(&who("hog"));
}

#[test]
fn requests_and_flows_of_a_pool() {
    let settings = Settings { max_requests: 50, max_flows: 10, early_refusal: false, ..Settings::default() };
    let scheduler = Scheduler::new(&settings, Capacity::requests(1));
    let arrival = |tenant: &str| Arrival::new(tenant, "default", Tokens::new(10, 0, 10));
    let runs = scheduler.enter(arrival("t0"), 1).unwrap();
    let mut places = Vec::new();
    let refused = (0..100).find_map(|nth| match scheduler.arrive(arrival(&format!("t{nth}")), 2) {
        Ok(place) => {
            places.push(place);
            None
        }
        Err(refused) => Some(refused.why),
    });
    assert_eq!((refused, places.len()), (Some(Why::Full), 10), "so many tenants");
    while let Ok(place) = scheduler.arrive(arrival("t1"), 3) {
        places.push(place);
    }
    assert_eq!(places.len(), 49, "and so many requests, with the one that runs");
    let (_, grown, _) = memory(|| (0..5000).filter(|_| scheduler.arrive(arrival("t1"), 4).is_ok()).count());
    assert!(grown < 64 * KIB, "{grown} bytes for 5,000 that may not wait");
    places.clear();
    assert!(runs.end(End::NeverStarted, 5));
    assert!(scheduler.enter(arrival("t1"), 6).is_some());
}

#[test]
fn journal_entries() {
    let policy = "models: {m: {}}\ntenants: {acme: {rpd: 10, models: {m: {}}}}";
    let scene = scene_of(policy, Bounds { rows: 16, open_leases: 64 }, 256);
    for _ in 0..10 {
        scene.serves(&who("acme"));
    }
    let refuse = |times: usize| {
        for nth in 0..times {
            assert_eq!(scene.refuse(&who("acme"), &ask()).reason, Reason::RequestQuotaExceeded);
            assert_eq!(scene.refuse(&who("nobody"), &ask().id(format!("{nth}"))).reason, Reason::TenantUnknown);
        }
    };
    refuse(200);
    let ((), grown, _) = memory(|| refuse(3000));
    assert!(grown < 64 * KIB, "{grown} bytes for 6,000 more entries");
    let (mut moved, mut refused) = (0, 0);
    scene.gate.journal().scan(&mut |entry| {
        match entry.event {
            Event::Admitted(_) | Event::Ended(_) => moved += 1,
            Event::Refused(_) => refused += 1,
            _ => {}
        }
        true
    });
    assert_eq!((moved, refused, scene.gate.journal().dropped()), (20, 64, 0), "a quarter is for refusals");
}

#[test]
fn names_and_ids() {
    let policy = "models: {m: {}}\ntenants: {acme: {models: {m: {}}}}";
    let scene = scene(policy, Bounds { rows: 16, open_leases: 64 });
    let (acme, long) = (who("acme"), "x".repeat(1 << 20));
    let hostile = [
        (acme.clone(), ask().id("i".repeat(129)), "129"),
        (acme.clone(), ask().id(""), "0 bytes"),
        (acme.clone(), ask().id(long.as_str()), "1048576"),
        (acme.clone(), ask().run_id(long.as_str()), "1048576"),
        (acme.clone(), ask().service_tier("t".repeat(65)), "65"),
        (acme.clone(), Request { user: Some("u".repeat(257).into()), ..ask() }, "257"),
        (acme.clone(), ask().choices(129), "129"),
        (acme.clone(), ask().choices(0), "0"),
        (acme.clone(), Request { model: long.as_str().into(), ..ask() }, "1048576"),
        (who(&long), ask(), "256"),
        (Principal::builder("acme").app(long.as_str()).build(), ask(), "256"),
    ];
    let (refused, grown, _) = memory(|| hostile.map(|(who, request, told)| (scene.refuse(&who, &request), told)));
    for (refusal, told) in &refused {
        assert_eq!(refusal.reason, Reason::RequestInvalid, "{refusal:?}");
        assert!(refusal.message().contains(told) && refusal.message().len() < 400, "{}", refusal.message());
    }
    assert!(grown < 64 * KIB, "{grown} bytes are kept of names of a megabyte");
    // At the bound itself they pass.
    let all = ask().id("i".repeat(128)).run_id("r".repeat(128)).service_tier("t".repeat(64)).choices(128);
    scene.admit(&user("acme", 1), &Request { user: Some("u".repeat(256).into()), ..all }).cancel().unwrap();
}

#[test]
fn amounts() {
    let policy = "
models: {m: {price: {input: 1, output: 1}}, free: {}}
tenants: {acme: {tpm: 1000, rpd: 1000, daily_budget_usd: 1, models: {m: {}}}, open: {tpd: 1125899906842623, models: {free: {}}}}";
    let scene = scene(policy, Bounds { rows: 16, open_leases: 64 });
    for (input, output) in [(u64::MAX, 1), (1, u64::MAX), (u64::MAX, u64::MAX), (1 << 52, 1 << 52), (1001, 0)] {
        let refusal = scene.refuse(&who("acme"), &ask().input_tokens(input).max_output_tokens(output));
        assert_eq!((refusal.reason, refusal.wait), (Reason::RequestTooLarge, Wait::Never), "{input} {output}");
    }
    let lease = scene.admit(&who("open"), &Request { model: "free".into(), ..ask() });
    let receipt = lease.settle(Usage::tokens(u64::MAX, u64::MAX)).unwrap();
    assert_eq!(receipt.charged().get(quota_core::Meter::Total), (1 << 52) - 1, "amounts are cut, they do not wrap");
    assert!(scene.gate.balances(&who("open"), true)[0].used >= (1 << 50) - 1);
    scene.serves(&who("acme"));
}

#[test]
fn texts() {
    let policy = "models: {m: {tokenizer: o200k_base}, n: {}}\ntenants: {acme: {models: {m: {}, n: {}}}}";
    let scene = scene(policy, Bounds { rows: 16, open_leases: 64 });
    // The vocabulary is loaded once, and stays.
    scene.admit(&who("acme"), &Request::chat("m").text("a").max_output_tokens(1)).cancel().unwrap();
    for (text, least) in
        [("word ".repeat(400_000), 300_000), (" ".repeat(1 << 20), 1), ("\u{4e2d}".repeat(200_000), 50_000)]
    {
        for model in ["m", "n"] {
            let request = Request::chat(model).text(text.as_str()).max_output_tokens(1);
            let (lease, _, most) = memory(|| scene.admit(&who("acme"), &request));
            assert!(lease.input_tokens() >= least, "{model}: {} tokens", lease.input_tokens());
            assert!(most < 8 * MIB, "{most} bytes to count {} of text", text.len());
            lease.cancel().unwrap();
        }
    }
}

#[test]
fn bodies() {
    let nested = |depth: usize| (0..depth).fold(json!("x"), |inner, _| json!({ "a": inner }));
    let with = |key: &str, value| {
        let mut body = json!({ "model": "m", "messages": [{ "role": "user", "content": "hi" }] });
        body[key] = value;
        body
    };
    let tool = |depth| {
        with("tools", json!([{ "type": "function", "function": { "name": "f", "parameters": nested(depth) } }]))
    };
    assert!(body::openai_chat(tool(20)).is_ok());
    assert!(body::openai_chat(tool(100)).is_err(), "deeper than is looked into");
    assert!(body::openai_chat(with("n", json!(body::MAX_CHOICES))).is_ok());
    assert!(body::openai_chat(with("n", json!(body::MAX_CHOICES + 1))).is_err());
    let prompts = |count: usize| json!({ "model": "m", "input": vec!["x"; count] });
    assert!(body::openai_embeddings(prompts(body::MAX_PROMPTS)).is_ok());
    let told = body::openai_embeddings(prompts(body::MAX_PROMPTS + 1)).unwrap_err().to_string();
    assert!(told.len() < 200, "{told}");
}

#[test]
fn stream_events() {
    let bound = 4096;
    let mut reader = StreamReader::new(Dialect::OpenAiChat).max_event(bound);
    let piece = vec![b'x'; 1000];
    let mut passed = 0;
    let ((), _, most) = memory(|| {
        reader.feed(b"data: {\"choices\":[{\"delta\":{\"content\":\"", |segment| passed += segment.len());
        for _ in 0..16_000 {
            reader.feed(&piece, |segment| passed += segment.len());
        }
        reader.feed(b"\"}}]}\n\n", |segment| passed += segment.len());
    });
    assert!(passed > 16_000_000 && most < 64 * KIB, "{passed} bytes passed, {most} were kept");
    let usage = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":2,\"total_tokens\":9}}\n\n";
    reader.feed(usage.as_bytes(), |_| ());
    let end = reader.finish(|_| ());
    let Outcome::Final(usage) = end.outcome else { panic!("{:?}", end.outcome) };
    assert_eq!((usage.total(), end.anomalies), (9, 1), "what comes after it is read");
}

#[test]
fn labels() {
    let policy = "models: {m: {}}\ntenants: {acme: {models: {m: {}}}, open: {models: {\"*\": {}}}}";
    let scene = scene(policy, Bounds { rows: 64, open_leases: 64 });
    let hostile = |from: usize, to: usize| {
        for nth in from..to {
            assert_eq!(scene.refuse(&who(&format!("t{nth}")), &ask()).reason, Reason::TenantUnknown);
            let made_up = Request { model: format!("m{nth}").into(), ..ask() };
            assert_eq!(scene.refuse(&who("acme"), &made_up).reason, Reason::ModelNotAllowed);
            scene.admit(&who("open"), &made_up).cancel().unwrap();
            scene.admit(&user("acme", nth), &ask()).cancel().unwrap();
        }
    };
    hostile(0, 500);
    let series =
        |text: &str| text.lines().map(|line| line.rsplit_once(' ').unwrap().0.to_owned()).collect::<HashSet<_>>();
    let before = series(&observe::prometheus(&scene.gate));
    hostile(500, 3000);
    let after = series(&observe::prometheus(&scene.gate));
    assert_eq!(before.symmetric_difference(&after).collect::<Vec<_>>(), Vec::<&String>::new());
    assert!(after.iter().all(|line| !line.contains("t2999") && !line.contains("m2999")));
}

#[test]
fn rosters() {
    let policy = "models: {m: {}}\ntenants: {acme: {rpd: 10000000, models: {m: {}}}}";
    let scene = scene(policy, Bounds { rows: 16, open_leases: 64 });
    let people = |from: usize, to: usize| {
        for nth in from..to {
            scene.admit(&user("acme", nth), &ask()).cancel().unwrap();
        }
    };
    let ((), grown, _) = memory(|| people(0, 1000));
    let each = grown / 1000;
    let ((), grown, most) = memory(|| people(1000, 140_000));
    // A map that grows has two tables for a while.
    assert!(grown < 66_000 * each && most < 130_000 * each, "{grown} and at most {most} bytes, {each} a roster");
    scene.serves(&user("acme", 0));
}

#[test]
fn tenants() {
    let tenants: usize = 16_000;
    let names: String = (0..tenants).map(|nth| format!("  t{nth}: {{}}\n")).collect();
    let limits = "{rpm: 1000, max_inflight: 9, users: {rpd: 1000}, models: {m: {tpm: 1000000}}}";
    let policy = format!("models: {{m: {{}}}}\ndefaults: {limits}\ntenants:\n{names}");
    // Three scopes each: the tenant, its model, its user.
    let bounds = Bounds { rows: 3 * tenants as u32, open_leases: 64 };
    let (scene, loaded, _) = memory(|| scene(&policy, bounds));
    let serve = || (0..tenants).for_each(|nth| scene.serves(&user(&format!("t{nth}"), nth)));
    let ((), asked, _) = memory(serve);
    let [loaded, asked] = [loaded, asked].map(|bytes| bytes / tenants as i64);
    assert!(loaded < 400 && asked < 1400, "{loaded} and {asked} bytes a tenant");
}

#[test]
fn refused_requests() {
    let policy = "models: {m: {}}\ntenants: {acme: {rpm: {hard: 1}, models: {m: {}}}, other: {models: {m: {}}}}";
    let scene = scene(policy, Bounds { rows: 16, open_leases: 64 });
    scene.serves(&who("acme"));
    let storm = |from: u64, to: u64| {
        for nth in from..to {
            assert_eq!(scene.refuse(&who("acme"), &ask().fingerprint(nth)).reason, Reason::RequestRateExceeded);
        }
    };
    let ((), grown, _) = memory(|| storm(0, 2000));
    let each = grown / 2000;
    let ((), grown, most) = memory(|| storm(2000, 140_000));
    // A map that grows has two tables for a while.
    assert!(grown < 66_000 * each && most < 130_000 * each, "{grown} and at most {most} bytes, {each} a request");
    scene.serves(&who("other"));
    scene.pass(61);
    scene.serves(&who("acme"));
}

#[test]
fn limits() {
    let windows = |hard: u64| {
        let window = |nth: u64| format!("{{name: w{nth}, meter: requests, seconds: {}, hard: {hard}}}", 60 + nth);
        (0..64).map(window).collect::<Vec<_>>().join(", ")
    };
    let policy = format!(
        "global: {{windows: [{0}]}}\nmodels: {{m: {{limits: {{windows: [{0}]}}}}}}\ntenants: {{acme: {{windows: [{0}], \
         users: {{windows: [{0}]}}, models: {{m: {{windows: [{0}]}}}}}}, other: {{models: {{m: {{}}}}}}}}",
        windows(3)
    );
    let scene = scene(&policy, Bounds { rows: 256, open_leases: 64 });
    let someone = user("acme", 1);
    let leases: Vec<_> = (0..3).map(|_| scene.admit(&someone, &ask())).collect();
    assert_eq!(leases[0].claim().holds().len(), 5 * 64);
    let refusal = scene.refuse(&someone, &ask());
    assert_eq!((refusal.reason, refusal.shortages.len()), (Reason::RequestRateExceeded, 5 * 64));
    leases.iter().for_each(|lease| drop(lease.cancel().unwrap()));
    assert!(scene.gate.balances(&someone, true).iter().all(|balance| balance.used == 0));
    scene.serves(&who("other"));
}

#[test]
fn secrets_and_limits_of_a_key() {
    let policy = "models: {m: {}}\ntenants: {acme: {models: {m: {}}}}";
    let scene = scene(policy, Bounds { rows: 64, open_leases: 64 });
    let gate = &scene.gate;
    let made = gate.issue_key(KeySpec { id: Some("k0".into()), ..KeySpec::new("acme") }, "ops").unwrap();
    let hour = Duration::from_secs(3600);
    let rotated: Vec<_> = (0..3).map(|_| gate.rotate_key("acme", "k0", hour, "ops").unwrap()).collect();
    assert_eq!(gate.rotate_key("acme", "k0", hour, "ops").unwrap_err(), KeyError::SecretsFull("k0".into()));
    for secret in rotated.iter().chain([&made]).map(|issued| issued.secret.expose()) {
        assert!(gate.authenticate(secret).is_ok(), "those that there are still work");
    }
    let child = |nth: usize| KeySpec {
        id: Some(format!("k{nth}").into()),
        parent: Some(format!("k{}", nth - 1).into()),
        ..KeySpec::new("acme")
    };
    let deepest = (1..20).find(|nth| gate.issue_key(child(*nth), "ops").is_err()).unwrap();
    assert_eq!(deepest, 8, "eight keys in a line");
    let long = format!("rpm: 5 #{}", "x".repeat(16 << 10));
    let spec = KeySpec { limits: long, ..KeySpec::new("acme") };
    assert!(matches!(gate.issue_key(spec, "ops").unwrap_err(), KeyError::Invalid(_) | KeyError::Limits(_)));
    let ((), grown, _) = memory(|| {
        for length in [0, 1025, 1 << 20] {
            assert_eq!(gate.authenticate(&"k".repeat(length)).unwrap_err().reason, Reason::KeyUnknown);
        }
    });
    assert!(grown < 8 * KIB, "{grown} bytes are kept of keys that are none");
    let who = gate.authenticate(made.secret.expose()).unwrap();
    scene.serves(&who);
}

#[test]
fn policies() {
    let too_large = |text: &str| {
        let (errors, grown, most) = memory(|| Policy::from_yaml(text).unwrap_err());
        let told = errors.to_string();
        assert!(told.len() < 1000, "{told}");
        drop(errors);
        assert!(grown < MIB && most < 64 * MIB, "{grown} and at most {most} bytes for {} of text", text.len());
        told
    };
    assert!(too_large(&" ".repeat((16 << 20) + 1)).contains("16777216"));
    let deep = too_large(&format!("{}{}", "[".repeat(100_000), "]".repeat(100_000)));
    assert!(deep.contains("recursion limit"), "{deep}: the parser stops before there is a tree");
    let deep = too_large(&format!("{}{}", "[".repeat(40), "]".repeat(40)));
    assert!(deep.contains("nested deeper than 32"), "{deep}");
    let bomb = (1..10).fold("x0: &a0 [1, 2, 3, 4, 5, 6, 7, 8, 9]\n".to_owned(), |text, nth| {
        let before = format!("*a{}, ", nth - 1).repeat(10);
        format!("{text}x{nth}: &a{nth} [{}]\n", before.trim_end_matches(", "))
    });
    assert!(too_large(&bomb).contains("1048576"));
    // The policy in force is not touched by one that is refused.
    let scene = scene("models: {m: {}}\ntenants: {acme: {models: {m: {}}}}", Bounds { rows: 16, open_leases: 64 });
    scene.serves(&who("acme"));
}
