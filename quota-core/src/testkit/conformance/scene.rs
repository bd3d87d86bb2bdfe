//! The scene of a check: a gate on a fresh store with a clock that stands still, and one principal.
//!
//! Floor 5. Invariant: every answer has been waited for before the check goes on.

use std::sync::Arc;
use std::time::Duration;

use crate::gate::{Decision, Gate, Lease};
use crate::lease::{EndError, LeaseId, Receipt, Record};
use crate::policy::Policy;
use crate::principal::Principal;
use crate::refusal::{Balance, Refusal};
use crate::request::Request;
use crate::store::Name;
use crate::store::memory::Bounds;
use crate::testkit::TestStore;
use crate::time::ManualClock;
use crate::usage::{Outcome, Usage};

/// When every check begins: noon, so that a lease's life and an unresolved one's age end on the same day.
const START: &str = "2026-11-30T12:00:00Z";

/// How long a lease of these checks lives without a heartbeat.
pub(super) const LIFE: Duration = Duration::from_secs(60);

/// How long one of them may stay unresolved.
pub(super) const AGE: Duration = Duration::from_secs(3600);

/// A nanosecond.
pub(super) const TICK: Duration = Duration::from_nanos(1);

/// A model `m` at $1 a million tokens, so that a token costs 100 units, and a tenant `acme` with these limits.
pub(super) fn policy(limits: &str) -> Policy {
    let text = format!(
        "settings: {{lease_ttl_ms: 60000, unresolved_after_ms: 3600000}}
models: {{m: {{price: {{input: 1, output: 1}}}}}}
tenants: {{acme: {{models: {{m: {{}}}}, {limits}}}, other: {{models: {{m: {{}}}}}}}}"
    );
    Policy::from_yaml(&text).unwrap_or_else(|errors| panic!("{errors}"))
}

/// Limits with room for a few requests of every meter.
pub(super) const ROOMY: &str = "rpm: 60, tpm: {hard: 60000, hold: worst_case}, tpd: {hard: 1000000, hold: worst_case},
    daily_budget_usd: 1.00, monthly_budget_usd: 20, max_inflight: 8, max_streams: 8";

/// A request of so many tokens in and at most so many out.
pub(super) fn request(id: &str, input: u64, output: u64) -> Request {
    Request::chat("m").id(id).input_tokens(input).max_output_tokens(output)
}

/// What a check works with.
pub struct Scene<S: TestStore> {
    /// The gate on the store.
    pub gate: Gate<S>,
    /// Its clock.
    pub clock: Arc<ManualClock>,
    /// A principal of the tenant `acme`.
    pub who: Principal,
}

impl<S: TestStore> Scene<S> {
    /// A gate for a policy on a store of the usual size.
    pub fn new(policy: Policy) -> Scene<S> {
        Scene::bounded(policy, Bounds { rows: 256, open_leases: 256 })
    }

    /// A gate on a store with these bounds.
    pub fn bounded(policy: Policy, bounds: Bounds) -> Scene<S> {
        Scene::on(S::fresh(bounds), policy)
    }

    /// A gate on a store.
    pub fn on(store: S, policy: Policy) -> Scene<S> {
        let clock = Arc::new(ManualClock::at_instant(START).expect("an instant"));
        let gate = Gate::builder(policy).store(store).clock(clock.clone()).build();
        Scene { gate, clock, who: Principal::builder("acme").build() }
    }

    /// Asks the gate.
    pub fn admit(&self, request: &Request) -> Decision<Lease<S>> {
        self.admit_as(&self.who, request)
    }

    /// Asks the gate for somebody else.
    pub fn admit_as(&self, who: &Principal, request: &Request) -> Decision<Lease<S>> {
        S::wait(self.gate.admit(who, request))
    }

    /// The lease of a request that must be admitted.
    #[track_caller]
    pub fn lease(&self, request: &Request) -> Lease<S> {
        match self.admit(request) {
            Decision::Allow(lease) | Decision::Degrade(lease, _) => lease,
            other => panic!("{other:?}"),
        }
    }

    /// The refusal of a request that must not be admitted.
    #[track_caller]
    pub fn refusal(&self, request: &Request) -> Arc<Refusal> {
        match self.admit(request) {
            Decision::Reject(refusal) => refusal,
            other => panic!("{other:?}"),
        }
    }

    /// Marks a lease as sent.
    pub fn sent(&self, lease: &Lease<S>) -> bool {
        S::wait(lease.sent())
    }

    /// Settles with so many tokens in and out.
    pub fn settle(&self, lease: &Lease<S>, input: u64, output: u64) -> Result<Receipt, EndError> {
        S::wait(lease.settle(Usage::tokens(input, output)))
    }

    /// Cancels.
    pub fn cancel(&self, lease: &Lease<S>) -> Result<Receipt, EndError> {
        S::wait(lease.cancel())
    }

    /// Settles by the lease's id.
    pub fn settle_late(&self, lease: LeaseId, input: u64, output: u64) -> Result<Receipt, EndError> {
        S::wait(self.gate.finalize(Name::Lease(lease), Outcome::Final(Usage::tokens(input, output))))
    }

    /// Sweeps everything that is due.
    pub fn sweep(&self) -> usize {
        S::wait(self.gate.sweep(usize::MAX))
    }

    /// Moves the clock.
    pub fn pass(&self, time: Duration) {
        self.clock.advance(time);
    }

    /// Every balance of the principal, shared scopes too.
    pub fn balances(&self) -> Vec<Balance> {
        S::wait(self.gate.balances(&self.who, true))
    }

    /// One balance.
    #[track_caller]
    pub fn balance(&self, limit: &str) -> Balance {
        let found = self.balances().into_iter().find(|balance| &*balance.limit == limit);
        found.unwrap_or_else(|| panic!("no limit {limit}"))
    }

    /// How much of a limit is in use.
    #[track_caller]
    pub fn used(&self, limit: &str) -> u64 {
        self.balance(limit).used
    }

    /// How much of a limit is left.
    #[track_caller]
    pub fn left(&self, limit: &str) -> u64 {
        self.balance(limit).remaining
    }

    /// The lease as it stands in the store.
    pub fn find(&self, lease: LeaseId) -> Option<Record> {
        S::wait(self.gate.store().find(Name::Lease(lease), |record| record))
    }

    /// How many leases are open: held or unresolved.
    pub fn open(&self) -> usize {
        S::wait(self.gate.store().open(usize::MAX, |open| open.len()))
    }

    /// The names of a request's entries.
    pub fn story(&self, request_id: &str) -> Vec<&'static str> {
        self.gate.explain(request_id).iter().map(|entry| entry.event.name()).collect()
    }
}
