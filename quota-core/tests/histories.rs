//! Random histories of the gate against the reference model: the same decisions, balances and receipts at every step.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use quota_core::refusal::Wait;
use quota_core::store::memory::{Bounds, Memory};
use quota_core::testkit::history::{self, Ask, By, FREEZABLE, MODELS, POLICIES, PRINCIPALS, RUNS, Report, Step};
use quota_core::testkit::{Fault, Yielding};
use quota_core::{Decision, Gate, ManualClock, Policy, Principal, Request, Usage};

const SECOND: u64 = 1_000_000_000;
const HOUR: i64 = 3600 * SECOND as i64;

fn step() -> impl Strategy<Value = Step> {
    let amount = || prop::sample::select(vec![0u64, 1, 10, 100, 999, 1500, 4000, 9000]);
    let lease = || 0usize..40;
    let report = prop_oneof![
        4 => (amount(), amount()).prop_map(|(input, output)| Report::Used(input, output)),
        1 => Just(Report::NotRun),
        1 => Just(Report::Failed),
        1 => Just(Report::Unknown),
    ];
    let by = prop::sample::select(vec![By::Handle, By::Lease, By::Request]);
    let pass = prop::sample::select(vec![
        1,
        1_000_000,
        SECOND / 3,
        SECOND,
        7 * SECOND,
        29_999_999_999,
        30 * SECOND,
        121 * SECOND,
        7200 * SECOND,
        86_400 * SECOND,
    ]);
    let wall = prop::sample::select(vec![-30 * HOUR, -HOUR, -1, 5 * SECOND as i64, HOUR, 26 * HOUR]);
    let fault = prop::sample::select(vec![Fault::Before, Fault::After]);
    let percent = prop::sample::select(vec![0u8, 21, 71, 91, 255]);
    prop_oneof![
        20 => ask().prop_map(Step::Admit),
        6 => lease().prop_map(Step::Again),
        2 => ask().prop_map(Step::Preview),
        2 => (ask(), prop::option::of(lease())).prop_map(|(ask, end)| Step::Wait(ask, end)),
        2 => lease().prop_map(Step::Sent),
        1 => lease().prop_map(Step::Renew),
        2 => (lease(), amount()).prop_map(|(lease, output)| Step::Extend(lease, output)),
        2 => (lease(), amount()).prop_map(|(lease, output)| Step::Follow(lease, output)),
        6 => (lease(), amount(), amount()).prop_map(|(lease, input, output)| Step::Settle(lease, input, output)),
        6 => (lease(), report, by).prop_map(|(lease, report, by)| Step::Finish(lease, report, by)),
        3 => lease().prop_map(Step::Cancel),
        1 => (lease(), prop::option::of(amount())).prop_map(|(lease, seen)| Step::Abandon(lease, seen)),
        3 => lease().prop_map(Step::Drop),
        5 => pass.prop_map(Step::Pass),
        1 => wall.prop_map(Step::Wall),
        1 => Just(Step::Sweep),
        2 => (0..POLICIES).prop_map(Step::Reload),
        2 => percent.prop_map(Step::Press),
        1 => (0..FREEZABLE).prop_map(Step::Freeze),
        2 => (0..FREEZABLE).prop_map(Step::Thaw),
        2 => (0..PRINCIPALS, 0..MODELS, amount()).prop_map(|(who, model, output)| Step::Teach(who, model, output)),
        5 => (fault, prop::bool::weighted(0.2)).prop_map(|(fault, second)| Step::Fail(fault, second)),
    ]
}

fn ask() -> impl Strategy<Value = Ask> {
    let amount = || prop::sample::select(vec![0u64, 1, 10, 100, 999, 1500, 4000, 9000]);
    let choices = prop::sample::select(vec![1u64, 1, 1, 3]);
    let model = prop::sample::select(vec![0usize, 0, 0, 0, 1, 1, 1, 2]);
    let id = prop_oneof![1 => Just(None), 1 => (0usize..9).prop_map(Some)];
    let run = prop_oneof![2 => Just(None), 1 => (0..RUNS, 0u64..4).prop_map(Some)];
    (0..PRINCIPALS, model, amount(), amount(), choices, any::<bool>(), id, run).prop_map(
        |(who, model, input, output, choices, stream, id, run)| Ask {
            who,
            model,
            input,
            output,
            choices,
            stream,
            id,
            run,
        },
    )
}

fn plain(who: usize, model: usize, output: u64) -> Ask {
    Ask { who, model, input: 10, output, choices: 1, stream: false, id: None, run: None }
}

/// What histories have found, shrunk.
#[test]
fn what_was_found_is_mended() {
    let named = |ask: Ask| Ask { id: Some(1), ..ask };
    let a = || Step::Admit(plain(3, 0, 100));
    for steps in [
        // A soft amount that would be passed beside a limit whose requests wait.
        vec![Step::Admit(plain(0, 0, 1)), Step::Admit(plain(1, 0, 1)), Step::Admit(plain(2, 0, 1)), {
            Step::Wait(Ask { choices: 3, ..plain(0, 0, 9000) }, Some(0))
        }],
        // A lesser form of which a repeat is told, under the same policy, under other steps, and under none.
        vec![
            a(),
            a(),
            Step::Admit(named(plain(3, 0, 100))),
            Step::Again(2),
            Step::Reload(1),
            Step::Again(2),
            { Step::Reload(2) },
            Step::Again(2),
        ],
    ] {
        history::run::<Memory>(&steps);
        history::run::<Yielding>(&steps);
    }
}

/// As many as `PROPTEST_CASES` says, or few enough for every run of the tests.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").map_or(100, |cases| cases.parse().expect("PROPTEST_CASES is a number"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_memory_store_is_the_model(steps in prop::collection::vec(step(), 1..60)) {
        history::run::<Memory>(&steps);
    }

    #[test]
    fn a_store_that_is_awaited_is_the_model(steps in prop::collection::vec(step(), 1..30)) {
        history::run::<Yielding>(&steps);
    }

    /// Whatever the limits, a request that was refused passes exactly when it was told to, and not a nanosecond earlier.
    #[test]
    fn a_promised_instant_is_exact(
        rpm in 1u64..5000, burst in 1u64..50, tpm in 1000u64..1_000_000, rpd in 1u64..40, cents in 1u64..50,
        seconds in 1u64..5000, start in 0u64..100 * 86_400 * SECOND,
        steps in prop::collection::vec((0u64..3 * SECOND, 0u64..500, 1u64..500), 1..80),
    ) {
        let text = format!("
models: {{m: {{price: {{input: 1, output: 3}}}}}}
global: {{windows: [{{name: odd, meter: requests, seconds: {seconds}, hard: 30, window: fixed}}]}}
tenants:
  t:
    rpm: {{hard: {rpm}, burst: {burst}}}
    tpm: {{hard: {tpm}, hold: worst_case}}
    rpd: {rpd}
    hourly_budget_usd: 0.{cents:02}
    models: {{m: {{}}}}");
        let clock = Arc::new(ManualClock::at(1_800_000_000 * SECOND + start));
        let store = Memory::new(Bounds { rows: 16, open_leases: 256 });
        let gate = Gate::builder(Policy::from_yaml(&text).unwrap()).store(store).clock(clock.clone()).build();
        let who = Principal::builder("t").build();
        for (pause, input, output) in steps {
            clock.advance(Duration::from_nanos(pause));
            let request = Request::chat("m").input_tokens(input).max_output_tokens(output);
            let refusal = match gate.admit(&who, &request) {
                Decision::Allow(lease) => {
                    prop_assert!(lease.settle(Usage::tokens(input, output)).is_ok());
                    continue;
                }
                Decision::Reject(refusal) => refusal,
                other => panic!("{other:?}"),
            };
            let wait = match refusal.wait {
                Wait::After(wait) => wait,
                Wait::Never => continue,
                Wait::Unknown => panic!("no gauge is here: {refusal:?}"),
            };
            clock.advance(wait - Duration::from_nanos(1));
            let early = gate.admit(&who, &request);
            prop_assert_eq!(early.refusal().map(|refusal| refusal.wait), Some(Wait::After(Duration::from_nanos(1))));
            clock.advance(Duration::from_nanos(1));
            match gate.admit(&who, &request) {
                Decision::Allow(lease) => {
                    prop_assert!(lease.settle(Usage::tokens(input, output)).is_ok());
                }
                other => panic!("not at {wait:?}: {other:?} after {refusal:?}"),
            }
        }
    }
}
