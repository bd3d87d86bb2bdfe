//! Real threads on few accounts: nothing is ever past a hard amount, nothing is lost, nothing is written twice.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use quota_core::gate::{Gate, Lease};
use quota_core::journal::{Event, Ring, replay};
use quota_core::lease::{LeaseId, Receipt, Record, State};
use quota_core::store::Memory;
use quota_core::store::memory::Bounds;
use quota_core::time::{Calendar, Period, Unit};
use quota_core::usage::Outcome;
use quota_core::{Decision, ManualClock, Meter, Name, Policy, Principal, Reason, Request, Usage};

/// Threads that ask; more than the machine may have processors, so that some are always stopped half way.
const THREADS: u64 = 4;

/// Numbers that look random; the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n
    }
}

struct Stage {
    gate: Gate,
    clock: Arc<ManualClock>,
    people: Vec<Principal>,
}

/// What one thread saw.
#[derive(Default)]
struct Seen {
    leases: Vec<LeaseId>,
    refused: usize,
    fresh_endings: usize,
}

impl Stage {
    fn new(policy: &str, bounds: Bounds, people: Vec<Principal>) -> Stage {
        let clock = Arc::new(ManualClock::at_instant("2026-11-30T00:00:00Z").unwrap());
        let gate = Gate::builder(Policy::from_yaml(policy).unwrap())
            .store(Memory::new(bounds))
            .journal(Ring::new(1 << 20))
            .clock(clock.clone())
            .build();
        Stage { gate, clock, people }
    }

    /// Ends a lease in one of the ways that there are, never with more than it holds.
    fn end(&self, lease: Lease, dice: &mut Dice) -> usize {
        let (input, output) = (dice.below(lease.input_tokens() + 1), dice.below(lease.max_output_tokens() + 1));
        let usage = Usage::tokens(input, output);
        let fresh = |receipt: Result<Receipt, _>| receipt.is_ok_and(|receipt: Receipt| !receipt.is_repeat()) as usize;
        let late = |id| fresh(self.gate.finalize(Name::Lease(id), Outcome::Final(usage.clone())));
        match dice.below(8) {
            0 | 1 => fresh(lease.cancel()),
            2 => {
                let id = lease.id();
                drop(lease);
                1 + late(id)
            }
            3 => {
                drop(lease);
                1
            }
            _ => {
                lease.sent();
                let first = fresh(lease.settle(usage.clone()));
                first + fresh(lease.settle(usage))
            }
        }
    }

    fn work(&self, seed: u64, turns: u64) -> Seen {
        let gate = self.gate.clone();
        let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let mut seen = Seen::default();
        let mut kept: Vec<Lease> = Vec::new();
        for turn in 0..turns {
            let who = &self.people[dice.below(self.people.len() as u64) as usize];
            let mut request =
                Request::chat("m").input_tokens(dice.below(50)).max_output_tokens(dice.below(50)).stream(turn % 3 == 0);
            if turn % 2 == 0 {
                request = request.id(format!("{seed}-{turn}"));
            }
            match gate.admit(who, &request) {
                Decision::Allow(lease) => {
                    seen.leases.push(lease.id());
                    kept.push(lease);
                }
                Decision::Reject(_) => seen.refused += 1,
                other => panic!("{other:?}"),
            }
            if kept.len() > dice.below(3) as usize {
                let at = dice.below(kept.len() as u64) as usize;
                seen.fresh_endings += self.end(kept.swap_remove(at), &mut dice);
            }
        }
        for lease in kept {
            seen.fresh_endings += self.end(lease, &mut dice);
        }
        seen
    }

    /// Looks at the balances over and over until told to stop: nothing may be past its hard amount.
    fn watch(&self, stop: &AtomicBool) -> usize {
        let mut looks = 0;
        while !stop.load(Ordering::Relaxed) || looks == 0 {
            for who in &self.people {
                for balance in self.gate.balances(who, true) {
                    assert!(balance.used <= balance.hard, "{balance:?}");
                }
            }
            looks += 1;
        }
        looks
    }

    /// Runs the threads, and `beside` in another until they are done.
    fn run(&self, turns: u64, beside: impl Fn() + Sync) -> Vec<Seen> {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let workers: Vec<_> = (1..=THREADS).map(|seed| scope.spawn(move || self.work(seed, turns))).collect();
            let watcher = scope.spawn(|| self.watch(&stop));
            let other = scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    beside();
                    std::thread::yield_now();
                }
            });
            let seen: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
            // Before anything can panic, or the other two would go on for ever.
            stop.store(true, Ordering::Relaxed);
            assert!(watcher.join().unwrap() > 0);
            other.join().unwrap();
            seen.into_iter().map(Result::unwrap).collect()
        })
    }

    /// Resolves everything, then adds up: accounts, journal and replay must say the same.
    fn settle_up(&self) -> HashMap<LeaseId, Record> {
        for _ in 0..2 {
            self.clock.advance(Duration::from_secs(3600));
            self.gate.sweep(usize::MAX);
        }
        assert!(self.gate.store_is_empty());
        let (mut admitted, mut last): (HashMap<LeaseId, usize>, HashMap<LeaseId, Record>) = Default::default();
        let mut endings: HashMap<(LeaseId, &str), usize> = HashMap::new();
        self.gate.journal().scan(&mut |entry| {
            match &entry.event {
                Event::Admitted(record) => *admitted.entry(record.claim.id).or_default() += 1,
                Event::Ended(record) => {
                    *endings.entry((record.claim.id, record.state_name())).or_default() += 1;
                    if !record.is_open() {
                        last.insert(record.claim.id, record.clone());
                    }
                }
                _ => {}
            }
            true
        });
        assert!(admitted.values().all(|count| *count == 1), "an admission twice");
        assert!(endings.values().all(|count| *count == 1), "an ending twice");
        assert_eq!(admitted.len(), last.len(), "an admission without an ending");
        assert!(last.keys().all(|id| admitted.contains_key(id)), "an ending without an admission");
        last
    }

    /// What all leases were charged, by scope and limit.
    fn charged(last: &HashMap<LeaseId, Record>) -> HashMap<(Arc<str>, Arc<str>), u64> {
        let mut sums = HashMap::new();
        for record in last.values() {
            let charged = match &*record.state() {
                State::Settled(_) => record.charged(),
                _ => Default::default(),
            };
            for bound in record.claim.terms.deal.lineup.limits() {
                let sum = sums.entry((bound.scope.clone(), bound.limit.clone())).or_insert(0);
                *sum += charged.get(bound.meter);
            }
        }
        sums
    }

    /// Each budget holds the sum of what its leases were charged, each gauge nothing; and so does the replay.
    fn adds_up(&self, last: &HashMap<LeaseId, Record>) {
        let charged = Stage::charged(last);
        let (now, replayed) = (self.gate.now(), replay(self.gate.journal()));
        let day = Calendar::new(Unit::Day, "UTC").unwrap().period(now.wall);
        let mut looked_at = 0;
        for who in &self.people {
            for balance in self.gate.balances(who, true).iter().filter(|balance| !balance.rolling) {
                let sum = if balance.meter.is_held() {
                    0
                } else {
                    charged.get(&(balance.scope.clone(), balance.limit.clone())).copied().unwrap_or(0)
                };
                assert_eq!(balance.used, sum, "{balance:?}");
                let period = if balance.meter.is_held() { Period::default() } else { day };
                let again = replayed.used(&balance.scope, &balance.limit, now, period).unwrap_or(0);
                assert_eq!(again, sum, "replayed: {balance:?}");
                looked_at += 1;
            }
        }
        assert!(looked_at > 0);
    }
}

trait Empty {
    fn store_is_empty(&self) -> bool;
}

impl Empty for Gate {
    fn store_is_empty(&self) -> bool {
        use quota_core::Store;
        self.store().open(usize::MAX, |open| open.is_empty())
    }
}

fn tenant(name: &str) -> Principal {
    Principal::builder(name).build()
}

const BOUNDS: Bounds = Bounds { rows: 64, open_leases: 1 << 14 };

#[test]
fn one_hot_tenant() {
    let policy = "
settings: {lease_ttl_ms: 60000, unresolved_after_ms: 60000}
models: {m: {price: {input: 1, output: 1}}}
tenants:
  acme:
    rpm: 1000000
    tpm: {hard: 600000, hold: worst_case}
    tpd: {hard: 400000, hold: worst_case}
    daily_budget_usd: 0.30
    max_inflight: 5
    max_streams: 2
    models: {m: {}}
";
    let stage = Stage::new(policy, BOUNDS, vec![tenant("acme")]);
    let seen = stage.run(3000, || ());
    let last = stage.settle_up();
    stage.adds_up(&last);
    let admitted: usize = seen.iter().map(|seen| seen.leases.len()).sum();
    let refused: usize = seen.iter().map(|seen| seen.refused).sum();
    assert_eq!(admitted, last.len());
    assert!(admitted > 1000 && refused > 100, "{admitted} admitted, {refused} refused: no contention");
    let mut entries = 0;
    stage.gate.journal().scan(&mut |entry| {
        entries += matches!(entry.event, Event::Refused(_)) as usize;
        true
    });
    assert_eq!(entries, refused, "each refusal once");
}

#[test]
fn two_tenants_that_share_scopes() {
    let policy = "
settings: {lease_ttl_ms: 60000, unresolved_after_ms: 60000}
global: {max_inflight: 6, rpd: 1000000}
cost_centers: {lab: {daily_budget_usd: 0.50, max_inflight: 5}}
models: {m: {price: {input: 1, output: 1}, limits: {tpd: {hard: 900000, hold: worst_case}, max_streams: 2}}}
tenants:
  one: {cost_center: lab, max_inflight: 3, tpd: {hard: 300000, hold: worst_case}, models: {m: {max_inflight: 3}}}
  two: {cost_center: lab, max_inflight: 4, models: {m: {daily_budget_usd: 0.2}}}
";
    let stage = Stage::new(policy, BOUNDS, vec![tenant("one"), tenant("two")]);
    let seen = stage.run(3000, || ());
    let last = stage.settle_up();
    stage.adds_up(&last);
    let refused: usize = seen.iter().map(|seen| seen.refused).sum();
    assert!(last.len() > 1000 && refused > 100, "{} admitted, {refused} refused: no contention", last.len());
}

#[test]
fn endings_meet_the_sweeper() {
    let policy = "
settings: {lease_ttl_ms: 1000, unresolved_after_ms: 2000}
models: {m: {price: {input: 1, output: 1}}}
tenants:
  acme: {tpd: {hard: 10000000, hold: worst_case}, daily_budget_usd: 100, max_inflight: 1000, models: {m: {}}}
";
    let stage = Stage::new(policy, BOUNDS, vec![tenant("acme")]);
    let turns = AtomicUsize::new(0);
    stage.run(3000, || {
        // No more than the day has, so that all is charged to one period.
        if turns.fetch_add(1, Ordering::Relaxed) < 200_000 {
            stage.clock.advance(Duration::from_millis(200));
        }
        stage.gate.sweep(64);
    });
    let last = stage.settle_up();
    let expired = last.values().filter(|record| match &*record.state() {
        State::Settled(settled) => settled.late,
        _ => false,
    });
    assert!(expired.count() > 10, "the sweeper never met a lease");
    stage.adds_up(&last);
}

#[test]
fn users_come_and_go() {
    let policy = "
settings: {lease_ttl_ms: 3600000, unresolved_after_ms: 60000}
models: {m: {price: {input: 1, output: 1}}}
tenants:
  acme:
    tpd: {hard: 100000000, hold: worst_case}
    max_inflight: 1000
    users: {rpm: 600, tpm: {hard: 6000, hold: worst_case}, max_inflight: 2}
    models: {m: {}}
";
    let people = (0..60).map(|nth| Principal::builder("acme").user(format!("u{nth}")).build()).collect();
    let stage = Stage::new(policy, Bounds { rows: 40, open_leases: 1 << 14 }, people);
    let seen = stage.run(1500, || stage.clock.advance(Duration::from_millis(1)));
    let last = stage.settle_up();
    stage.adds_up(&last);
    assert_eq!(last.len(), seen.iter().map(|seen| seen.leases.len()).sum::<usize>());
    assert!(last.len() > 500, "{} admitted", last.len());
}

/// Threads that ask for the same ids at the same time: each id is taken once, owned once, settled once.
#[test]
fn duplicates_are_taken_once() {
    let policy = "
settings: {lease_ttl_ms: 60000, unresolved_after_ms: 60000}
models: {m: {price: {input: 1, output: 1}}}
tenants: {acme: {tpd: {hard: 100000000, hold: worst_case}, max_inflight: 64, models: {m: {}}}}
";
    let stage = Stage::new(policy, BOUNDS, vec![tenant("acme")]);
    let ids = 1500;
    let count = || (0..ids).map(|_| AtomicUsize::new(0)).collect::<Vec<_>>();
    let (owners, endings) = (count(), count());
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let gate = stage.gate.clone();
                for id in 0..ids {
                    let request = Request::chat("m").id(format!("r{id}")).input_tokens(6).max_output_tokens(4);
                    match gate.admit(&stage.people[0], &request) {
                        Decision::Allow(lease) => {
                            owners[id].fetch_add(!lease.is_repeat() as usize, Ordering::Relaxed);
                            // Repeats may settle too; the same figures are the same ending.
                            let receipt = lease.settle(Usage::tokens(5, 2)).unwrap();
                            endings[id].fetch_add(!receipt.is_repeat() as usize, Ordering::Relaxed);
                        }
                        Decision::Reject(refusal) => {
                            assert_eq!(refusal.reason, Reason::RequestAlreadyEnded);
                            assert_eq!(refusal.receipt.as_ref().unwrap().charged().get(Meter::Total), 7);
                        }
                        other => panic!("{other:?}"),
                    }
                }
            });
        }
    });
    for id in 0..ids {
        assert_eq!(owners[id].load(Ordering::Relaxed), 1, "r{id}");
        assert_eq!(endings[id].load(Ordering::Relaxed), 1, "r{id}");
    }
    let last = stage.settle_up();
    assert_eq!(last.len(), ids);
    stage.adds_up(&last);
}
