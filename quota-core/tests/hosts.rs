//! What a host plugs into a gate may call the gate while it is called, and holds nobody up but who called it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use quota_core::estimate::{Estimator, InputEstimate, Tokenizer};
use quota_core::gate::{Counter, Gate, KeySpec};
use quota_core::gpu::{FixedPool, GpuBackend, Load};
use quota_core::journal::Ring;
use quota_core::store::Memory;
use quota_core::store::memory::Bounds;
use quota_core::time::Now;
use quota_core::usage::Outcome;
use quota_core::{ManualClock, Name, Policy, Principal, Request};

/// Whoever calls itself while it holds something waits for ever: long enough to be sure of it.
const LONGEST: Duration = Duration::from_secs(30);

type Shared = Arc<OnceLock<Gate>>;

fn policy() -> Policy {
    Policy::from_yaml(
        "{models: {m: {pool: h200}}, tenants: {acme: {rpm: {hard: 9, soft: 1, on_exceed: queue}, models: {m: {}}}}}",
    )
    .unwrap()
}

/// Everything that can be asked of a gate by whoever is called from it.
fn calls(gate: &Gate) {
    let who = Principal::builder("acme").build();
    let request = Request::chat("m").input_tokens(1).max_output_tokens(1);
    drop(gate.preview(&who, &request));
    gate.balances(&who, true);
    gate.snapshot();
    gate.recent("acme", u64::MAX);
    gate.keys("acme");
    gate.next_due();
}

/// Runs a test in a thread of its own, so that one that waits for itself fails.
fn in_time(test: impl FnOnce() + Send + 'static) {
    let (done, over) = channel();
    let thread = std::thread::spawn(move || {
        test();
        done.send(()).unwrap();
    });
    let ended = over.recv_timeout(LONGEST);
    assert!(ended != Err(std::sync::mpsc::RecvTimeoutError::Timeout), "it waits for itself");
    thread.join().unwrap();
}

#[test]
fn a_journal_of_the_host_calls_the_gate() {
    in_time(|| {
        let (gate, told) = (Shared::default(), Arc::new(Mutex::new(Vec::new())));
        let (inner, sink) = (gate.clone(), told.clone());
        let ring = Ring::default().telling(move |entry| {
            sink.lock().unwrap().push(entry.event.name());
            inner.get().into_iter().for_each(calls);
            // Acts of operators are journaled too: one within another, but not without end.
            if let (Some(gate), "key_issued", 0..4) = (inner.get(), entry.event.name(), entry.seq) {
                gate.issue_key(KeySpec::new("acme"), "journal").unwrap();
            }
        });
        let gate = gate.get_or_init(|| Gate::builder(policy()).journal(ring).build());
        let issued = gate.issue_key(KeySpec::new("acme"), "ops").unwrap();
        gate.rotate_key("acme", &issued.id, Duration::ZERO, "ops").unwrap();
        gate.revoke_key("acme", &issued.id, "ops").unwrap();
        gate.reload(&policy());
        let told = told.lock().unwrap();
        assert_eq!(told[..2], ["policy_loaded", "key_issued"]);
        assert_eq!(told[told.len() - 3..], ["key_rotated", "key_revoked", "policy_loaded"]);
        assert_eq!(told.len(), 8, "{told:?}");
    });
}

/// The store is full of a lease whose time is over. Whoever needs its room ends it, and the journal that is told of that
/// ends the lease that has just been opened, before its request has been answered.
#[test]
fn an_admission_is_counted_whoever_ends_its_lease_meanwhile() {
    in_time(|| {
        let gate = Shared::default();
        let inner = gate.clone();
        let ring = Ring::default().telling(move |entry| {
            if let (Some(gate), "settled", None) = (inner.get(), entry.event.name(), entry.event.request_id()) {
                gate.finalize(Name::Request("2".into()), Outcome::NotRun).unwrap();
            }
        });
        let text = "{settings: {lease_ttl_ms: 1000, unresolved_after_ms: 1000}, tenants: {acme: {models: {m: {}}}}}";
        let (store, clock) = (Memory::new(Bounds { rows: 1, open_leases: 1 }), Arc::new(ManualClock::at(1 << 60)));
        let builder = Gate::builder(Policy::from_yaml(text).unwrap()).store(store).journal(ring).clock(clock.clone());
        let gate = gate.get_or_init(|| builder.build());
        let who = Principal::builder("acme").build();
        drop(gate.admit(&who, &Request::chat("m")).lease().unwrap());
        clock.advance(Duration::from_secs(3));
        let lease = gate.admit(&who, &Request::chat("m").id("2")).lease().unwrap();
        assert!(!lease.is_repeat() && !lease.is_open());
        let names: Vec<_> = gate.explain("2").iter().map(|entry| entry.event.name()).collect();
        assert_eq!(names, ["admitted", "settled"]);
        let snapshot = gate.snapshot();
        let tallies = snapshot.models.values().chain(snapshot.lanes.values());
        assert!(tallies.map(|tally| tally.get(Counter::Allowed)).eq([2, 2]));
    });
}

#[test]
fn a_backend_of_the_host_calls_the_gate_and_is_shared() {
    struct Asks(Shared, AtomicUsize);
    impl GpuBackend for Asks {
        fn load(&self, now: Now) -> Load {
            let asked = self.1.fetch_add(1, Ordering::Relaxed);
            if let Some(gate) = self.0.get() {
                calls(gate);
                // Reloading asks the backend again.
                if asked == 1 {
                    gate.reload(&policy());
                }
            }
            FixedPool::new(1, 3, None).load(now)
        }
    }
    in_time(|| {
        let gate = Shared::default();
        let asks = Arc::new(Asks(gate.clone(), AtomicUsize::new(0)));
        let shared: Arc<dyn GpuBackend> = asks.clone();
        let gate =
            gate.get_or_init(|| Gate::builder(policy()).pool("h200", asks.clone()).pool("other", shared).build());
        assert_eq!(asks.1.load(Ordering::Relaxed), 2, "once for each pool");
        asks.1.store(1, Ordering::Relaxed);
        gate.reload(&policy());
        gate.sweep(10);
        assert!(asks.1.load(Ordering::Relaxed) >= 6);
        assert_eq!(gate.pools().iter().filter(|pool| pool.gated).count(), 2);
    });
}

#[test]
fn an_estimator_of_the_host_calls_the_gate() {
    struct Counts(Shared);
    impl Estimator for Counts {
        fn estimate(&self, request: &Request, _: Tokenizer) -> InputEstimate {
            if let Some(gate) = self.0.get().filter(|_| request.max_output_tokens == Some(7)) {
                calls(gate);
                gate.reload(&policy());
            }
            InputEstimate { expected: 5, reserve: 6, exact: false }
        }
    }
    in_time(|| {
        let gate = Shared::default();
        let counts = Counts(gate.clone());
        let gate = gate.get_or_init(|| Gate::builder(policy()).estimator(counts).build());
        let who = Principal::builder("acme").build();
        let request = Request::chat("m").text("hi").max_output_tokens(7);
        let lease = gate.admit(&who, &request).lease().unwrap();
        assert_eq!(lease.claim().terms.input.reserve, 6);
    });
}

#[test]
fn a_subscriber_calls_the_gate_and_leaves_it() {
    in_time(|| {
        let (gate, told) = (Shared::default(), Arc::new(Mutex::new(0)));
        let gate = gate.get_or_init(|| Gate::new(policy()));
        let (inner, sink) = (gate.clone(), told.clone());
        let subscriber = gate.subscribe(move |_| {
            *sink.lock().unwrap() += 1;
            calls(&inner);
            inner.reload(&policy());
            inner.unsubscribe(&inner.subscribe(|_| ()));
        });
        let who = Principal::builder("acme").build();
        let request = Request::chat("m").input_tokens(1).max_output_tokens(1);
        let _held: Vec<_> = (0..3).map(|_| gate.admit(&who, &request).lease().unwrap()).collect();
        assert_eq!(*told.lock().unwrap(), 1, "the soft amount is passed once");
        assert!(gate.unsubscribe(&subscriber) && !gate.unsubscribe(&subscriber));
    });
}

#[test]
fn a_snapshot_is_data() {
    let gate = Gate::builder(policy()).pool("h200", FixedPool::new(1, 1, None)).build();
    let who = Principal::builder("acme").build();
    let request = Request::chat("m").input_tokens(1).max_output_tokens(1);
    let _held = gate.admit(&who, &request).lease().unwrap();
    drop(gate.admit(&who, &request));
    drop(gate.admit(&Principal::builder("nobody").build(), &request));
    let shown = gate.snapshot().to_json();
    let line = &shown["models"][0];
    assert_eq!((&line["tenant"], &line["model"]), (&"acme".into(), &"m".into()));
    assert_eq!((&line["allowed"], &line["queued"], &line["usd"]), (&1.into(), &1.into(), &"0".into()));
    assert_eq!(line["reasons"]["model_pool_overloaded"], 1);
    assert_eq!(shown["strangers"]["reasons"]["tenant_unknown"], 1);
    assert_eq!(shown["lanes"][0]["allowed"], 1);
    let pool = shown["pools"].as_array().unwrap().iter().find(|pool| pool["pool"] == "h200").unwrap();
    assert_eq!((&pool["in_flight"], &pool["most"], &pool["percent"]), (&1.into(), &1.into(), &100.into()));
    assert_eq!(pool["lanes"][0]["counts"]["turns"], 1);
}
