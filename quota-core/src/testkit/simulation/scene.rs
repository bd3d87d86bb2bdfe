//! The scene of a seed: its policies, who asks under them, and how long it goes on.
//!
//! Floor 5. Invariant: the policies of a scene differ in amounts and in what is done about them, never in which limits
//! there are; every rate's unit refills in whole nanoseconds.

use std::fmt::Write;
use std::sync::Arc;

use super::dice::Dice;
use super::ledger::{Price, Terms};
use super::load::Load;
use crate::gpu::simulated::Shape;
use crate::policy::Policy;
use crate::principal::Principal;
use crate::store::memory::Bounds;
use crate::time::parse_instant;

/// The model whose answers are there after a time that nobody's load changes, and the one that runs in the pool.
pub(super) const MODELS: [&str; 2] = ["swift", "large"];
/// The pool.
pub(super) const POOL: &str = "h200";
/// The users of each tenant; none of them is the tenant's own traffic.
pub(super) const USERS: [&str; 3] = ["", "u", "v"];
/// The longest that a request waits in a lane, in nanoseconds, by the lane's place; `batch` waits longer.
pub(super) const LANES: [(&str, u64); 2] = [("interactive", 3_000_000_000), ("batch", 10_000_000_000)];

const MILLI: u64 = 1_000_000;

/// What a seed is about.
pub(super) struct Scene {
    pub(super) load: Load,
    /// The first is in force at the beginning.
    pub(super) policies: Vec<Policy>,
    /// By tenant and user.
    pub(super) people: Vec<Vec<Principal>>,
    pub(super) bounds: Bounds,
    pub(super) pool: Shape,
    /// When it begins, Unix nanoseconds.
    pub(super) start: u64,
    /// One request in so many is used in an odd way; 0 for none.
    pub(super) oddity: u64,
    /// Whether the store fails, the clock is corrected, the policy changes and replicas go.
    pub(super) faults: bool,
    /// Whether the journal is kept whole and replayed at the end.
    pub(super) replays: bool,
}

impl Scene {
    pub(super) fn of(seed: u64, requests: u64, dice: &mut Dice) -> Scene {
        let load = Load::ALL[(seed % Load::ALL.len() as u64) as usize];
        let tenants = dice.within((2, 8)) as usize;
        let people = (0..tenants).map(|tenant| {
            let person = |user: &&str| match *user {
                "" => Principal::builder(format!("t{tenant}")).build(),
                user => Principal::builder(format!("t{tenant}")).user(user).build(),
            };
            USERS.iter().map(person).collect()
        });
        let tight = dice.below(3);
        let policies = [(); 3].map(|()| policy(tenants, tight, dice));
        let open_leases = if dice.one_in(6) { 24 } else { 4096 };
        // Midnight in UTC, which begins a month, or in Shanghai, is somewhere inside.
        let midnight = dice.one_of(&["2026-12-01T00:00:00Z", "2026-11-30T16:00:00Z"]);
        let midnight = parse_instant(midnight).expect("an instant");
        let start = midnight - dice.below(requests * load.shape().gap);
        let calm = dice.one_in(4);
        let oddity = if calm { 0 } else { dice.within((2, 8)) };
        let faults = !calm && dice.one_in(2);
        let shape = Shape {
            replicas: 2,
            max_running: 16,
            kv_tokens: 200_000,
            prefill_chunk: 8192,
            per_prefill_token: 10_000,
            progress_every: 32,
            ..Shape::P4
        };
        Scene {
            load,
            // Without faults the first stays in force.
            policies: policies[..if faults { 3 } else { 1 }].iter().map(|text| parsed(text)).collect(),
            people: people.collect(),
            bounds: Bounds { rows: 1024, open_leases },
            pool: shape,
            start,
            oddity,
            faults,
            replays: (seed / Load::ALL.len() as u64).is_multiple_of(4),
        }
    }

    pub(super) fn terms(&self) -> Terms {
        let open = self.bounds.open_leases as usize;
        Terms { life: 5000 * MILLI, age: 20_000 * MILLI, open, unresolved: (open as u64 / 8).max(16) }
    }

    pub(super) fn prices() -> Vec<(Arc<str>, Price)> {
        let prices = [Price { input: 150_000, output: 600_000 }, Price { input: 2_500_000, output: 10_125_000 }];
        MODELS.iter().map(|model| Arc::from(*model)).zip(prices).collect()
    }
}

fn parsed(text: &str) -> Policy {
    Policy::from_yaml(text).unwrap_or_else(|errors| panic!("{errors}\n{text}"))
}

/// A policy with limits of every kind in every scope; `tight` from 0 to 2.
fn policy(tenants: usize, tight: u64, dice: &mut Dice) -> String {
    let mut amount = |all: &[u64]| {
        let least = (all.len() as u64 - 1).saturating_sub(tight);
        all[dice.within((least / 2, all.len() as u64 - 1)) as usize]
    };
    let (requests, tokens): ([u64; 5], [u64; 4]) =
        ([60, 600, 1200, 6000, 60_000], [60_000, 600_000, 6_000_000, 60_000_000]);
    let mut text = format!(
        "
settings: {{lease_ttl_ms: 5000, unresolved_after_ms: 20000}}
queues:
  interactive: {{weight: 4, max_wait_ms: 3000, max_queue: {}}}
  batch: {{weight: 1, max_wait_ms: 10000}}
global: {{rps: {}, max_inflight: {}}}
cost_centers: {{lab: {{daily_budget_usd: {}, timezone: Asia/Shanghai}}}}
models:
  swift: {{price: {{input: 0.15, output: 0.6}}, limits: {{max_streams: {}}}}}
  large: {{price: {{input: 2.5, output: 10.125}}, pool: h200, limits: {{output_tpm: {{hard: {}, hold: worst_case}}}}}}
degrade: [{{when: {{pool_above: 97, model: large}}, model: swift}}]
tenants:",
        amount(&[5, 50, 500]),
        amount(&[50, 200, 1000, 5000]),
        amount(&[20, 100, 500]),
        amount(&[1, 10, 1000]),
        amount(&[10, 100, 500]),
        amount(&tokens),
    );
    for tenant in 0..tenants {
        let center = if tenant % 2 == 0 { "cost_center: lab, " } else { "lane: batch, " };
        let exceed = ["reject", "queue"][amount(&[0, 1]) as usize];
        let hold = ["worst_case", "p95", "adaptive"][amount(&[0, 1, 2]) as usize];
        let _ = write!(
            text,
            "
  t{tenant}:
    {{{center}weight: {}, rpm: {{hard: {}, burst: {}}}, tpm: {{hard: {}, hold: {hold}}}, monthly_budget_usd: {},
    max_inflight: {{hard: {}, on_exceed: {exceed}}}, max_streams: {}, users: {{rpm: {}, input_tpd: {}}},
    windows: [{{name: tens, meter: requests, seconds: 10, hard: {}, window: fixed, on_exceed: {exceed}}}],
    models: {{swift: {{tpd: {{hard: {}, hold: worst_case}}}}, large: {{rpd: {}}}}}}}",
            amount(&[1, 2, 5]),
            amount(&requests),
            amount(&[5, 50, 500]),
            amount(&tokens),
            amount(&[1, 10, 1000]),
            amount(&[4, 40, 200]),
            amount(&[2, 20, 100]),
            amount(&requests),
            amount(&[20_000, 2_000_000, 200_000_000]),
            amount(&[20, 200, 20_000]),
            amount(&[100_000, 10_000_000, 1_000_000_000]),
            amount(&[100, 1000, 100_000]),
        );
    }
    text
}
