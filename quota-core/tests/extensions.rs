//! Leases that are extended, across the periods of their limits too: what is held, and where a correction goes.

use std::sync::Arc;
use std::time::Duration;

use quota_core::lease::Record;
use quota_core::store::memory::{Bounds, Memory};
use quota_core::units::Pico;
use quota_core::{Decision, Gate, Lease, ManualClock, Name, Policy, Principal, Reason, Request, Store, Usage};

const DAY: Duration = Duration::from_secs(86_400);

struct Bench {
    gate: Gate,
    clock: Arc<ManualClock>,
    who: Principal,
}

impl Bench {
    fn new(limits: &str) -> Bench {
        let text = format!(
            "settings: {{lease_ttl_ms: 864000000}}
models: {{m: {{price: {{input: 0.001, output: 0.001}}}}}}
tenants: {{t: {{{limits}, models: {{m: {{}}}}}}}}"
        );
        let clock = Arc::new(ManualClock::at_instant("2026-11-28T12:00:00Z").unwrap());
        let gate = Gate::builder(Policy::from_yaml(&text).unwrap()).clock(clock.clone()).build();
        Bench { gate, clock, who: Principal::builder("t").build() }
    }

    fn admit(&self, input: u64, output: u64) -> Lease {
        match self.gate.admit(&self.who, &Request::chat("m").input_tokens(input).max_output_tokens(output)) {
            Decision::Allow(lease) => lease,
            other => panic!("{other:?}"),
        }
    }

    fn record(&self, lease: &Lease) -> Record {
        self.gate.store().find(Name::Lease(lease.id()), |record| record).expect("it is known")
    }

    fn used(&self, limit: &str) -> u64 {
        let balances = self.gate.balances(&self.who, true);
        balances.iter().find(|balance| &*balance.limit == limit).expect("the limit").used
    }
}

const DAILY: &str = "tpd: {hard: 1000, hold: worst_case}";

#[test]
fn extensions_within_a_period_are_one_hold_and_those_of_another_a_second() {
    let bench = Bench::new(DAILY);
    let lease = bench.admit(40, 60);
    let more = |bench: &Bench| bench.record(&lease).more().iter().map(|hold| hold.amount).collect::<Vec<_>>();
    lease.extend(20).unwrap();
    lease.extend(30).unwrap();
    assert_eq!((more(&bench), bench.used("tpd")), (vec![50], 150));
    bench.clock.advance(DAY);
    lease.extend(70).unwrap();
    lease.extend(7).unwrap();
    assert_eq!((more(&bench), bench.used("tpd")), (vec![50, 77], 77));
}

#[test]
fn extensions_of_a_rate_are_one_hold_whenever_they_were_taken() {
    let bench = Bench::new("tpm: {hard: 60000, burst: 1000, hold: worst_case}");
    let lease = bench.admit(40, 60);
    for _ in 0..3 {
        bench.clock.advance(Duration::from_millis(10));
        lease.extend(100).unwrap();
    }
    let record = bench.record(&lease);
    assert_eq!(record.more().iter().map(|hold| hold.amount).collect::<Vec<_>>(), [300]);
}

/// Held: 100 on the first day, 50 on the second, 70 on the third. What was used fills the earlier days first; the third gets
/// what is left, of which its balance tells.
#[test]
fn usage_fills_the_holds_of_earlier_periods_first() {
    for (used, left) in [(20, 0), (100, 0), (149, 0), (151, 1), (180, 30), (220, 70), (300, 150)] {
        let bench = Bench::new(DAILY);
        let lease = bench.admit(10, 90);
        for more in [50, 70] {
            bench.clock.advance(DAY);
            lease.extend(more).unwrap();
        }
        assert_eq!(bench.used("tpd"), 70);
        lease.settle(Usage::tokens(10, used - 10)).unwrap();
        assert_eq!(bench.used("tpd"), left, "{used}");
    }
}

/// Amounts of money are held rounded up to a unit of 1e-8 USD; a cost is exact.
#[test]
fn the_worst_case_is_what_was_agreed_until_it_is_raised() {
    let bench = Bench::new("daily_budget_usd: 1");
    // A tenth of a unit each.
    let lease = bench.admit(1, 2);
    assert_eq!((bench.used("daily_budget_usd"), bench.record(&lease).worst_cost()), (1, Pico(3000)));
    lease.extend(20).unwrap();
    assert_eq!((bench.used("daily_budget_usd"), bench.record(&lease).worst_cost()), (3, Pico(30_000)));
}

/// Eight rows, of which the users of one tenant have three.
#[test]
fn a_row_that_extensions_held_in_is_given_away_once_it_is_at_rest() {
    let limits = "users: {max_inflight: 1, tpm: {hard: 60000, burst: 1000, hold: worst_case}}";
    let text = format!("models: {{m: {{}}}}\ntenants: {{t: {{{limits}, models: {{m: {{}}}}}}}}");
    let clock = Arc::new(ManualClock::at_instant("2026-11-28T12:00:00Z").unwrap());
    let store = Memory::new(Bounds { rows: 8, open_leases: 16 });
    let gate = Gate::builder(Policy::from_yaml(&text).unwrap()).store(store).clock(clock.clone()).build();
    let ask = |user: u32| {
        let who = Principal::builder("t").user(format!("u{user}")).build();
        gate.admit(&who, &Request::chat("m").input_tokens(10).max_output_tokens(10))
    };
    for round in 0..3 {
        let leases: Vec<Lease> = (0..3)
            .map(|user| match ask(3 * round + user) {
                Decision::Allow(lease) => lease,
                other => panic!("round {round}: {other:?}"),
            })
            .collect();
        for lease in &leases {
            lease.extend(10).unwrap();
            lease.extend(10).unwrap();
        }
        // Those of before have no rows any more, and don't take what they find in their places for theirs.
        clock.advance(Duration::from_secs(2));
        assert_eq!(ask(99).reason(), Some(Reason::AccountsExhausted));
        if round > 0 {
            assert_eq!(ask(0).reason(), Some(Reason::AccountsExhausted), "round {round}");
        }
        leases.iter().for_each(|lease| assert!(lease.settle(Usage::tokens(10, 5)).is_ok()));
        clock.advance(Duration::from_secs(600));
    }
}
