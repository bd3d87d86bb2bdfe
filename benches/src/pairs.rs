//! Taking from eight limits and settling, in three ways: the gate, a mutex around eight words, a rate limiter's checks.

use std::num::NonZeroU32;
use std::sync::Mutex;

use governor::{DefaultDirectRateLimiter, DefaultKeyedRateLimiter, Quota, RateLimiter};
use quota_core::meter::{At, Budget, Gauge, Rate, Rule};
use quota_core::store::memory::{Bounds, Memory};
use quota_core::time::{Clock, Now, Period, SECOND};
use quota_core::{Decision, Gate, Lease, Policy, Principal, Request, Usage};

/// Tenants of the policy.
pub const TENANTS: usize = 2;

/// Users where their rows are meant to be cold.
pub const USERS: usize = 100_000;

/// Tokens held and tokens used by each turn.
const HELD: u64 = 1500;
const USED: u64 = 1200;

/// Eight limits in three scopes: the tenant, its model, its user. None is ever reached but the first tenant's daily budget, if
/// that is small.
fn policy(daily: &str) -> Policy {
    Policy::from_yaml(&policy_text(daily)).expect("the policy above is valid")
}

fn policy_text(daily: &str) -> String {
    let tenant = |daily| {
        format!(
            "
    tpm: 1000000000000
    max_inflight: 10000000
    daily_budget_usd: {daily}
    monthly_budget_usd: 11000000
    users: {{rpm: 1000000000, tpd: 1000000000000000}}
    models: {{small: {{rpm: 1000000000, max_inflight: 10000000}}}}"
        )
    };
    let daily = |n| if n == 0 { daily } else { "11000000" };
    let tenants: String = (0..TENANTS).map(|n| format!("  t{n}:{}\n", tenant(daily(n)))).collect();
    format!("models: {{small: {{price: {{input: 1, output: 1}}}}}}\ntenants:\n{tenants}")
}

/// The gate with its memory store, ring journal and system clock.
pub struct Gated {
    gate: Gate<Memory>,
    who: Vec<Principal>,
    request: Request,
}

impl Gated {
    /// A gate for so many users, dealt over the tenants.
    pub fn new(users: usize) -> Gated {
        let bounds = Bounds { rows: (users * 2).max(1024) as u32, open_leases: 1 << 14 };
        let principal = |n: usize| Principal::builder(format!("t{}", n % TENANTS)).user(format!("u{n}")).build();
        Gated {
            gate: Gate::builder(policy("11000000")).store(Memory::new(bounds)).build(),
            who: (0..users).map(principal).collect(),
            request: Request::chat("small").input_tokens(HELD - 500).max_output_tokens(500),
        }
    }

    /// A handle for a thread of its own.
    pub fn handle(&self) -> Gate<Memory> {
        self.gate.clone()
    }

    /// Admits and settles for one user.
    pub fn turn(&self, gate: &Gate<Memory>, user: usize) {
        self.run(gate, user, &self.request);
    }

    /// As [`turn`](Gated::turn), under a request id.
    pub fn turn_with_id(&self, gate: &Gate<Memory>, user: usize, id: &str) {
        self.run(gate, user, &self.request.clone().id(id));
    }

    /// A gate for so many tenants with the same eight limits each, one principal a tenant, and as many rows as they take.
    pub fn tenants(tenants: usize) -> Gated {
        let limits = "
  tpm: 1000000000000
  max_inflight: 10000000
  daily_budget_usd: 11000000
  monthly_budget_usd: 11000000
  users: {rpm: 1000000000, tpd: 1000000000000000}
  models: {small: {rpm: 1000000000, max_inflight: 10000000}}";
        let names: String = (0..tenants).map(|n| format!("  t{n}: {{}}\n")).collect();
        let text =
            format!("models: {{small: {{price: {{input: 1, output: 1}}}}}}\ndefaults:{limits}\ntenants:\n{names}");
        let principal = |n: usize| Principal::builder(format!("t{n}")).user(format!("u{n}")).build();
        // Three scopes each: the tenant, its model, its user.
        Gated::of(&text, (0..tenants).map(principal).collect(), tenants * 3, 1 << 14)
    }

    /// A gate with so many limits (1 to 32) on its one tenant, in as many scopes as that takes.
    pub fn limits(limits: usize) -> Gated {
        let windows: String = (0..limits)
            .map(|n| format!("{{name: w{n}, meter: tokens, seconds: {}, hard: 1000000000000}}, ", 60 + n))
            .collect();
        let text = format!(
            "models: {{small: {{price: {{input: 1, output: 1}}}}}}\ntenants: {{t0: {{windows: [{windows}], models: {{small: {{}}}}}}}}"
        );
        Gated::of(&text, vec![Principal::builder("t0").build()], 0, 1 << 14)
    }

    fn of(text: &str, who: Vec<Principal>, rows: usize, open_leases: u32) -> Gated {
        let policy = Policy::from_yaml(text).expect("the policy above is valid");
        let bounds = Bounds { rows: rows.max(1024) as u32, open_leases };
        let request = Request::chat("small").input_tokens(HELD - 500).max_output_tokens(500);
        Gated { gate: Gate::builder(policy).store(Memory::new(bounds)).build(), who, request }
    }

    /// A gate whose first tenant has used up its budget, and so many leases of the other that are open.
    pub fn exhausted(open: usize, clock: impl Clock) -> (Gated, Vec<Lease>) {
        let bounds = Bounds { rows: 1024, open_leases: (1 << 14).max(open as u32 + 1024) };
        let gate = Gate::builder(policy("0.002")).store(Memory::new(bounds)).clock(clock).build();
        let gated = Gated { gate, ..Gated::new(TENANTS) };
        let admit = |user: usize| match gated.gate.admit(&gated.who[user], &gated.request) {
            Decision::Allow(lease) => lease,
            _ => unreachable!("it fits once, and the other's always"),
        };
        admit(0).settle(Usage::tokens(USED - 200, 200)).expect("the first ending");
        let open = (0..open).map(|_| admit(1)).collect();
        (gated, open)
    }

    /// Asks for one user, and is refused.
    pub fn refusal(&self, gate: &Gate<Memory>, user: usize) {
        let Decision::Reject(refusal) = gate.admit(&self.who[user], &self.request) else {
            unreachable!("it is used up")
        };
        std::hint::black_box(refusal);
    }

    fn run(&self, gate: &Gate<Memory>, user: usize, request: &Request) {
        let Decision::Allow(lease) = gate.admit(&self.who[user], request) else { unreachable!("no limit is reached") };
        lease.settle(Usage::tokens(USED - 200, 200)).expect("the first ending");
    }
}

/// A gate with room for many open leases.
pub struct LeasesOpen {
    /// The gate.
    pub gated: Gated,
}

impl LeasesOpen {
    /// Room for so many, and some more.
    pub fn new(leases: usize) -> LeasesOpen {
        let text = policy_text("11000000");
        let who = vec![Principal::builder("t0").user("u0").build()];
        LeasesOpen { gated: Gated::of(&text, who, 0, leases as u32 + 1024) }
    }

    /// Opens so many leases.
    pub fn open(&self, leases: usize) -> Vec<Lease> {
        let one = |_| {
            let decision = self.gated.gate.admit(&self.gated.who[0], &self.gated.request);
            decision.lease().expect("no limit is reached")
        };
        (0..leases).map(one).collect()
    }
}

/// The floor: a mutex around the same eight words, and the same pure functions on them; no ids, no leases, no journal.
pub struct Floor {
    rules: [Rule; 8],
    accounts: Vec<Mutex<[u64; 8]>>,
}

impl Floor {
    /// So many accounts.
    pub fn new(accounts: usize) -> Floor {
        let (minute, much) = (60 * SECOND, 1 << 40);
        let rate = || Rule::Rate(Rate::new(much, minute, much));
        let budget = || Rule::Budget(Budget::new(1 << 49, 50));
        let gauge = || Rule::Gauge(Gauge::new(much));
        Floor {
            rules: [rate(), gauge(), budget(), budget(), rate(), gauge(), rate(), budget()],
            accounts: (0..accounts).map(|_| Mutex::default()).collect(),
        }
    }

    /// Takes from all eight words, then corrects them.
    pub fn turn(&self, account: usize, turn: u64) {
        let at = At { now: Now::at((1 << 60) + turn * 100), period: Period { number: 7, start: 0, end: u64::MAX } };
        let mut marks = [0; 8];
        let mut words = self.accounts[account].lock().expect("nobody panics here");
        let before = *words;
        for ((rule, word), mark) in self.rules.iter().zip(before).zip(&mut marks) {
            let Ok(taken) = rule.take(word, self.amount(rule, HELD), &at) else { unreachable!("no limit is reached") };
            *mark = taken.mark;
        }
        for ((rule, word), mark) in self.rules.iter().zip(words.iter_mut()).zip(&mut marks) {
            let Ok(taken) = rule.take(*word, self.amount(rule, HELD), &at) else { unreachable!("no limit is reached") };
            (*word, *mark) = (taken.word, taken.mark);
        }
        drop(words);
        let mut words = self.accounts[account].lock().expect("nobody panics here");
        for ((rule, word), mark) in self.rules.iter().zip(words.iter_mut()).zip(&marks) {
            let used = if matches!(rule, Rule::Gauge(_)) { 0 } else { USED };
            *word = rule.correct(*word, *mark, self.amount(rule, HELD), used, &at);
        }
    }

    fn amount(&self, rule: &Rule, tokens: u64) -> u64 {
        if matches!(rule, Rule::Gauge(_)) { 1 } else { tokens }
    }
}

/// The peer: eight limiters of the crate `governor`, asked in turn. They can't give back, so there is no settling, and
/// what the first of them took stays taken when a later one refuses.
pub struct Peer {
    direct: Vec<[DefaultDirectRateLimiter; 6]>,
    keyed: [DefaultKeyedRateLimiter<u64>; 2],
}

impl Peer {
    /// Six limiters a tenant and two keyed by user.
    pub fn new() -> Peer {
        let much = NonZeroU32::MAX;
        let quota = || Quota::per_second(NonZeroU32::new(1_000_000_000).unwrap_or(much)).allow_burst(much);
        Peer {
            direct: (0..TENANTS).map(|_| std::array::from_fn(|_| RateLimiter::direct(quota()))).collect(),
            keyed: std::array::from_fn(|_| RateLimiter::keyed(quota())),
        }
    }

    /// Asks all eight.
    pub fn turn(&self, tenant: usize, user: usize) {
        let some = NonZeroU32::new(10).unwrap_or(NonZeroU32::MIN);
        let direct = self.direct[tenant].iter().all(|limiter| matches!(limiter.check_n(some), Ok(Ok(()))));
        let key = user as u64;
        let keyed = self.keyed.iter().all(|limiter| matches!(limiter.check_key_n(&key, some), Ok(Ok(()))));
        assert!(direct && keyed, "no limit is reached");
    }
}

impl Default for Peer {
    fn default() -> Peer {
        Peer::new()
    }
}
