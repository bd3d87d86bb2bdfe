//! Checks of what a reservation takes and what it leaves alone.
//!
//! Floor 5. Invariant: see [`conformance`](super).

use std::time::Duration;

use super::scene::{LIFE, ROOMY, Scene, TICK, policy, request};
use crate::gate::Decision;
use crate::lease::LeaseId;
use crate::reason::Reason;
use crate::refusal::Wait;
use crate::store::Name;
use crate::testkit::TestStore;
use crate::units::{Meter, Usd};
use crate::usage::{Outcome, Usage};

fn usd(text: &str) -> u64 {
    text.parse::<Usd>().expect("an amount").units()
}

/// $1.00 left today, $20 this month, one free slot: reserve $0.06, see $0.94, settle at $0.04, get $0.02 back once.
pub fn worked_example<S: TestStore>() {
    let limits = "tpd: {hard: 1000000, hold: worst_case}, daily_budget_usd: 1, monthly_budget_usd: 20, max_inflight: 1";
    let scene = Scene::<S>::new(policy(limits));
    let lease = scene.lease(&request("r1", 40_000, 20_000));
    let left = |limit| scene.left(limit);
    assert_eq!(left("daily_budget_usd"), usd("0.94"));
    assert_eq!(left("monthly_budget_usd"), usd("19.94"));
    assert_eq!((left("tpd"), left("max_inflight")), (940_000, 0));
    let refusal = scene.refusal(&request("r2", 40_000, 20_000));
    assert_eq!(refusal.reason, Reason::ConcurrencyExceeded);
    assert_eq!(refusal.shortages.len(), 1, "{refusal:?}");
    assert_eq!(left("daily_budget_usd"), usd("0.94"));

    assert!(scene.sent(&lease));
    let receipt = scene.settle(&lease, 30_000, 10_000).unwrap();
    assert_eq!((receipt.outcome(), receipt.is_late(), receipt.is_repeat()), ("settled", false, false));
    assert_eq!(receipt.returned(Meter::Money), usd("0.02"));
    assert_eq!((receipt.cost().to_string(), receipt.charged().get(Meter::Total)), ("0.04".to_owned(), 40_000));
    let after = (left("daily_budget_usd"), left("monthly_budget_usd"), left("tpd"), left("max_inflight"));
    assert_eq!(after, (usd("0.96"), usd("19.96"), 960_000, 1));

    let again = scene.settle(&lease, 30_000, 10_000).unwrap();
    assert!(again.is_repeat());
    let outcome = Outcome::Final(Usage::tokens(30_000, 10_000));
    assert!(S::wait(scene.gate.finalize(Name::Request("r1".into()), outcome)).unwrap().is_repeat());
    drop(lease);
    assert_eq!((left("daily_budget_usd"), left("tpd"), left("max_inflight")), (usd("0.96"), 960_000, 1));
}

/// Whatever the limit, as many requests are admitted as fit its hard amount, and not one more.
pub fn l1_no_admission_passes_a_hard_amount<S: TestStore>() {
    for (limits, name, fit, reason) in [
        ("rpm: 3", "rpm", 3, Reason::RequestRateExceeded),
        ("rpm: {hard: 60, burst: 2}", "rpm", 2, Reason::RequestRateExceeded),
        ("rpd: 3", "rpd", 3, Reason::RequestQuotaExceeded),
        ("tpm: {hard: 3500, hold: worst_case}", "tpm", 3, Reason::TokenRateExceeded),
        ("tpm: {hard: 3000, hold: worst_case, window: fixed}", "tpm", 3, Reason::TokenRateExceeded),
        ("input_tpd: 1400", "input_tpd", 2, Reason::TokenQuotaExceeded),
        ("output_tpm: {hard: 1200, hold: worst_case}", "output_tpm", 3, Reason::OutputTokenRateExceeded),
        ("daily_budget_usd: 0.003", "daily_budget_usd", 3, Reason::BudgetExceeded),
        ("hourly_budget_usd: 0.00299999", "hourly_budget_usd", 2, Reason::BudgetExceeded),
        ("max_inflight: 2", "max_inflight", 2, Reason::ConcurrencyExceeded),
        ("max_inflight: 0", "max_inflight", 0, Reason::ConcurrencyExceeded),
    ] {
        let scene = Scene::<S>::new(policy(limits));
        let mut leases = Vec::new();
        for nth in 0..fit {
            leases.push(scene.lease(&request(&format!("r{nth}"), 600, 400)));
            let balance = scene.balance(name);
            assert!(balance.used <= balance.hard, "{limits}: {balance:?}");
        }
        let refusal = scene.refusal(&request("one more", 600, 400));
        assert_eq!(refusal.reason, reason, "{limits}");
        let shortage = &refusal.shortages[0];
        assert!(shortage.used.saturating_add(shortage.asked) > shortage.hard, "{limits}: {shortage:?}");
    }
}

/// A refused request leaves every account as it was and opens nothing, whichever of its limits had no room.
pub fn l4_a_refusal_changes_nothing<S: TestStore>() {
    let limits = [
        ("rpm", "60", "0"),
        ("tpm", "{hard: 60000, hold: worst_case}", "{hard: 1500, hold: worst_case}"),
        ("tpd", "{hard: 60000, hold: worst_case}", "{hard: 1500, hold: worst_case}"),
        ("daily_budget_usd", "1", "0.0015"),
        ("monthly_budget_usd", "1", "0.0015"),
        ("max_inflight", "8", "1"),
    ];
    for (short, ..) in limits {
        for backwards in [false, true] {
            let amount = |(name, roomy, tight): (&str, &str, &str)| {
                format!("{name}: {}", if name == short { tight } else { roomy })
            };
            let mut lines = limits.map(amount);
            if backwards {
                lines.reverse();
            }
            let scene = Scene::<S>::new(policy(&lines.join(", ")));
            let _first = scene.admit(&request("first", 600, 400));
            let (before, open) = (scene.balances(), scene.open());
            let refusal = scene.refusal(&request("second", 600, 400));
            assert_eq!(&*refusal.shortages[0].limit, short);
            assert_eq!(scene.balances(), before, "{short}");
            assert_eq!(scene.open(), open, "{short}");
        }
    }
}

/// A preview answers as an admission would and takes nothing.
pub fn l4_a_preview_changes_nothing<S: TestStore>() {
    let scene = Scene::<S>::new(policy("daily_budget_usd: 0.0015, max_inflight: 8"));
    for action in ["allow", "reject"] {
        let before = scene.balances();
        let preview = S::wait(scene.gate.preview(&scene.who, &request(action, 600, 400)));
        assert_eq!(preview.action(), action);
        assert_eq!(scene.balances(), before);
        assert!(scene.story(action).is_empty(), "a preview is not written");
        let decision = scene.admit(&request(action, 600, 400));
        assert_eq!((decision.action(), decision.reason()), (action, preview.reason()));
        if let Some(lease) = decision.lease() {
            assert!(scene.sent(&lease));
            scene.settle(&lease, 600, 400).unwrap();
        }
    }
}

/// Extending holds more on every limit, or on none; the settlement gives back what is left of both.
pub fn an_extension_raises_all_or_nothing<S: TestStore>() {
    let limits = "tpd: {hard: 10000, hold: worst_case}, daily_budget_usd: 0.0025, max_inflight: 1, rpd: 5";
    let scene = Scene::<S>::new(policy(limits));
    let lease = scene.lease(&request("r", 600, 400));
    S::wait(lease.extend(1000)).unwrap();
    assert_eq!((scene.used("tpd"), scene.used("daily_budget_usd")), (2000, usd("0.002")));
    assert_eq!((scene.used("max_inflight"), scene.used("rpd")), (1, 1));
    let before = scene.balances();
    let refusal = S::wait(lease.extend(1000)).unwrap_err();
    assert_eq!(refusal.reason, Reason::BudgetExceeded);
    assert_eq!(scene.balances(), before);
    assert!(scene.sent(&lease));
    let receipt = scene.settle(&lease, 600, 700).unwrap();
    assert_eq!((receipt.held().get(Meter::Total), receipt.returned(Meter::Total)), (2000, 700));
    assert_eq!((scene.used("tpd"), scene.used("daily_budget_usd")), (1300, usd("0.0013")));
    assert_eq!((scene.used("max_inflight"), scene.used("rpd")), (0, 1));
    assert_eq!(scene.story("r"), ["admitted", "extended", "refused", "settled"]);
}

/// A lease that has ended can't be extended, and takes nothing.
pub fn an_extension_needs_an_open_lease<S: TestStore>() {
    let scene = Scene::<S>::new(policy(ROOMY));
    let lease = scene.lease(&request("r", 600, 400));
    scene.cancel(&lease).unwrap();
    let refusal = S::wait(lease.extend(10)).unwrap_err();
    assert_eq!((refusal.reason, refusal.wait), (Reason::RequestAlreadyEnded, Wait::Never));
    assert_eq!((scene.used("tpd"), scene.used("max_inflight")), (0, 0));
}

/// Of a hold on a rate, only what time has not refilled yet comes back.
pub fn a_rate_gives_back_only_what_lies_ahead<S: TestStore>() {
    let scene = Scene::<S>::new(policy("tpm: {hard: 60000, hold: worst_case}"));
    let lease = scene.lease(&request("r", 20_000, 10_000));
    scene.pass(Duration::from_secs(10));
    assert_eq!(scene.used("tpm"), 20_000);
    scene.settle(&lease, 15_000, 10_000).unwrap();
    assert_eq!(scene.used("tpm"), 15_000);
    let lease = scene.lease(&request("s", 20_000, 10_000));
    let _other = scene.lease(&request("t", 10_000, 5_000));
    assert_eq!(scene.used("tpm"), 60_000);
    scene.pass(LIFE - TICK);
    assert_eq!(scene.used("tpm"), 1);
    scene.cancel(&lease).unwrap();
    assert_eq!(scene.used("tpm"), 1, "what is refilled is not paid twice");
}

/// A refused request passes exactly when it was told to come back, and not a nanosecond earlier.
pub fn a_wait_is_exact_to_the_nanosecond<S: TestStore>() {
    for limits in ["rpm: 7", "tpm: {hard: 9999, hold: worst_case}", "rpd: 1", "hourly_budget_usd: 0.0017"] {
        let scene = Scene::<S>::new(policy(limits));
        let mut refusal = None;
        for nth in 0..20 {
            scene.pass(Duration::from_nanos(333));
            if let Decision::Reject(refused) = scene.admit(&request(&format!("r{nth}"), 600, 400)) {
                refusal = Some(refused);
                break;
            }
        }
        let refusal = refusal.unwrap_or_else(|| panic!("{limits}: never refused"));
        let Wait::After(wait) = refusal.wait else { panic!("{limits}: {refusal:?}") };
        scene.pass(wait - TICK);
        assert_eq!(scene.refusal(&request("early", 600, 400)).wait, Wait::After(TICK), "{limits}");
        scene.pass(TICK);
        drop(scene.lease(&request("in time", 600, 400)));
    }
}

/// A stream has a slot of its own beside the request's.
pub fn streams_are_counted_beside_requests<S: TestStore>() {
    let scene = Scene::<S>::new(policy("max_inflight: 3, max_streams: 1"));
    let stream = scene.lease(&request("s", 1, 1).stream(true));
    let plain = scene.lease(&request("p", 1, 1));
    assert_eq!((scene.used("max_inflight"), scene.used("max_streams")), (2, 1));
    assert_eq!(scene.refusal(&request("s2", 1, 1).stream(true)).reason, Reason::StreamsExceeded);
    scene.settle(&stream, 1, 1).unwrap();
    assert_eq!((scene.used("max_inflight"), scene.used("max_streams")), (1, 0));
    scene.cancel(&plain).unwrap();
    assert_eq!(scene.used("max_inflight"), 0);
}

/// A limit in shadow is counted and reported, and refuses nobody.
pub fn shadow_counts_and_never_refuses<S: TestStore>() {
    let limits = "rpm: {hard: 2, mode: shadow}, rpd: {hard: 2, mode: shadow}, max_inflight: {hard: 2, mode: shadow}";
    let scene = Scene::<S>::new(policy(limits));
    let leases: Vec<_> = (0..5).map(|nth| scene.lease(&request(&format!("r{nth}"), 1, 1))).collect();
    assert_eq!((scene.used("rpd"), scene.used("max_inflight")), (5, 5));
    assert_eq!(scene.left("rpm"), 0);
    for lease in &leases {
        scene.cancel(lease).unwrap();
    }
    assert_eq!((scene.used("rpm"), scene.used("rpd"), scene.used("max_inflight")), (0, 0, 0));
}

/// Another policy changes amounts, not what is in use: a rate keeps its share, a budget and a gauge their amounts.
pub fn a_reload_refills_nothing<S: TestStore>() {
    let limits = |rpm, tpd, slots| format!("rpm: {rpm}, tpd: {{hard: {tpd}, hold: worst_case}}, max_inflight: {slots}");
    let scene = Scene::<S>::new(policy(&limits(10, 10_000, 5)));
    let leases: Vec<_> = (0..5).map(|nth| scene.lease(&request(&format!("r{nth}"), 600, 400))).collect();
    scene.gate.reload(&policy(&limits(20, 20_000, 5)));
    assert_eq!((scene.used("rpm"), scene.used("tpd"), scene.used("max_inflight")), (10, 5000, 5));
    scene.gate.reload(&policy(&limits(10, 3_000, 2)));
    assert_eq!((scene.used("rpm"), scene.used("tpd"), scene.used("max_inflight")), (5, 5000, 5));
    let refusal = scene.refusal(&request("more", 600, 400));
    let short: Vec<_> = refusal.shortages.iter().map(|shortage| &*shortage.limit).collect();
    assert_eq!(short, ["tpd", "max_inflight"]);
    // Leases of the first policy end on its terms and give their slots back.
    for lease in &leases {
        scene.settle(lease, 100, 100).unwrap();
    }
    assert_eq!((scene.used("tpd"), scene.used("max_inflight")), (1000, 0));
}

/// An id that no lease has, or whose tag is not the store's, names nothing.
pub fn an_unknown_lease_is_told<S: TestStore>() {
    let scene = Scene::<S>::new(policy(ROOMY));
    let lease = scene.lease(&request("r", 600, 400));
    let mut text = lease.id().to_string();
    let last = text.pop().expect("digits");
    text.push(if last == '0' { '1' } else { '0' });
    let forged: LeaseId = text.parse().expect("an id");
    let before = scene.balances();
    assert_eq!(scene.settle_late(forged, 1, 1).unwrap_err().code(), "lease_unknown");
    assert!(scene.find(forged).is_none());
    let nameless = S::wait(scene.gate.finalize(Name::Request("nobody".into()), Outcome::NotRun));
    assert_eq!(nameless.unwrap_err().code(), "lease_unknown");
    assert_eq!(scene.balances(), before);
}
