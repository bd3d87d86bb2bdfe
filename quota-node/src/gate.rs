//! The gate: convert, call, convert.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use napi::bindgen_prelude::{Either3, Function};
use napi::{Env, Result};
use napi_derive::napi;
use quota_core as core;
use quota_core::gate::Target;
use quota_core::gpu::Reported;
use quota_core::keeper::Keeper as CoreKeeper;
use quota_core::lease::Record;
use quota_core::observe;
use quota_core::store::Memory;
use quota_core::store::memory::Bounds;

use crate::alert::Subscription;
use crate::callback::{Callback, Text};
use crate::convert::{self, Amounts, number};
use crate::count::{Count, Whole32, type_error};
use crate::decision::{Decided, PreviewData};
use crate::estimate::{Answer, HostEstimator, Question};
use crate::journal;
use crate::keys::{IssuedKey, Key, KeyAct, KeyOptions, issued};
use crate::lease::ReceiptData;
use crate::policy::Policy;
use crate::pools::{FixedPool, HostPool, LastLoad, ReplicaLoad, ReportedPool};
use crate::principal::Principal;
use crate::refusal::{Balance, headers};
use crate::request::Request;
use crate::simulated::SimulatedPool;
use crate::testing::ManualClock;
use crate::usage::{Given, Usage, outcome};
use crate::{calls, errors, host};

/// The bounds of a store's bounds, see [`Bounds`].
const MAX_ROWS: u64 = (1 << 24) - 256;
const MAX_OPEN_LEASES: u64 = 1 << 30;

/// The parts that a gate is built of.
#[napi(js_name = "_Parts")]
pub struct Parts {
    builder: Option<core::GateBuilder<Memory>>,
    reported: HashMap<String, Arc<Reported>>,
}

impl Parts {
    fn change(&mut self, change: impl FnOnce(core::GateBuilder<Memory>) -> core::GateBuilder<Memory>) {
        self.builder = self.builder.take().map(change);
    }
}

#[napi]
impl Parts {
    #[napi(constructor)]
    pub fn new(policy: &Policy) -> Parts {
        Parts { builder: Some(core::Gate::builder(policy.0.clone())), reported: HashMap::new() }
    }

    #[napi]
    pub fn clock(&mut self, clock: &ManualClock) {
        self.change(|builder| builder.clock(clock.0.clone()));
    }

    #[napi]
    pub fn bounds(&mut self, env: Env, max_rows: Option<Count>, max_open_leases: Option<Count>) -> Result<()> {
        let usual = Bounds::default();
        let rows = max_rows.map_or(u64::from(usual.rows), |count| count.0);
        let open_leases = max_open_leases.map_or(u64::from(usual.open_leases), |count| count.0);
        if !(1..=MAX_ROWS).contains(&rows) || !(1..=MAX_OPEN_LEASES).contains(&open_leases) {
            let message = format!("maxRows is 1 to {MAX_ROWS}, maxOpenLeases 1 to {MAX_OPEN_LEASES}");
            return Err(type_error(env, message));
        }
        let bounds = Bounds { rows: rows as u32, open_leases: open_leases as u32 };
        self.change(|builder| builder.store(Memory::new(bounds)));
        Ok(())
    }

    #[napi]
    pub fn pool(&mut self, name: String, pool: Either3<&FixedPool, &ReportedPool, &SimulatedPool>) {
        match pool {
            Either3::A(fixed) => self.change(|builder| builder.pool(name, fixed.pool.clone())),
            Either3::B(reported) => {
                self.reported.insert(name.clone(), reported.pool.clone());
                self.change(|builder| builder.pool(name, reported.pool.clone()));
            }
            Either3::C(simulated) => self.change(|builder| builder.pool(name, simulated.pool.clone())),
        }
    }

    /// A pool of the host's: `load(nowNs)`, and what to do where JavaScript can't be asked at once.
    #[napi]
    pub fn host_pool(
        &mut self,
        env: Env,
        name: String,
        load: Function<'_, f64, Option<Vec<ReplicaLoad>>>,
        posted: Function<'_, f64, ()>,
        last: &LastLoad,
        reports: bool,
    ) -> Result<()> {
        let pool = HostPool::new(Callback::new(env, load, posted)?, last, reports);
        self.change(|builder| builder.pool(name, pool));
        Ok(())
    }

    #[napi]
    pub fn estimator(
        &mut self,
        env: Env,
        estimate: Function<'_, Question, Answer>,
        posted: Function<'_, Question, ()>,
    ) -> Result<()> {
        let estimator = HostEstimator(Callback::new(env, estimate, posted)?);
        self.change(|builder| builder.estimator(estimator));
        Ok(())
    }

    #[napi]
    pub fn journal(&mut self, env: Env, push: Function<'_, Text, ()>, posted: Function<'_, Text, ()>) -> Result<()> {
        let ring = journal::telling(env, push, posted)?;
        self.change(|builder| builder.journal(ring));
        Ok(())
    }
}

/// What is frozen, or let go on.
#[napi(object, object_to_js = false)]
pub struct FreezeOptions {
    pub author: String,
    pub reason: Option<String>,
    pub tenant: Option<String>,
    pub key: Option<String>,
    pub model: Option<String>,
}

/// What is frozen, with the reason.
#[napi(object, object_from_js = false, use_nullable = true)]
pub struct Frozen {
    pub target: String,
    pub reason: String,
}

/// Requests in flight in a pool, and those that wait for it.
#[napi(object, object_from_js = false, use_nullable = true)]
pub struct PoolLoad {
    pub in_flight: f64,
    pub waiting: f64,
}

/// A lease whose usage is unknown.
#[napi(object, object_from_js = false, use_nullable = true)]
pub struct Unresolved {
    pub lease_id: String,
    pub request_id: Option<String>,
    pub tenant: String,
    pub model: String,
    /// Why: `dropped`, `expired`, `no_usage` or `upstream_failed`.
    pub cause: &'static str,
    /// The best-known figures.
    pub seen: Option<Usage>,
    pub held: Amounts,
    pub worst_usd: String,
}

impl Unresolved {
    fn of(record: &Record) -> Option<Unresolved> {
        let unresolved = record.unresolved()?;
        let terms = &record.claim.terms;
        Some(Unresolved {
            lease_id: record.claim.id.to_string(),
            request_id: terms.request_id.as_deref().map(ToOwned::to_owned),
            tenant: terms.deal.principal.tenant().to_owned(),
            model: terms.deal.model.to_string(),
            cause: unresolved.cause.name(),
            seen: unresolved.seen.as_ref().map(|seen| Usage((**seen).clone())),
            held: Amounts::of(&record.held_amounts()),
            worst_usd: terms.worst_cost.to_string(),
        })
    }
}

/// Where principals' requests are decided.
#[napi]
pub struct Gate {
    pub(crate) gate: core::Gate,
    /// Pools whose replicas report, by name.
    reported: HashMap<String, Arc<Reported>>,
}

fn at_most(count: Option<Count>, usual: usize) -> usize {
    count.map_or(usual, |count| usize::try_from(count.0).unwrap_or(usize::MAX))
}

#[napi]
impl Gate {
    #[napi(constructor)]
    pub fn new(env: Env, parts: &mut Parts) -> Result<Gate> {
        let builder = parts.builder.take().ok_or_else(|| type_error(env, "the parts have become a gate"))?;
        Ok(Gate { gate: builder.build(), reported: std::mem::take(&mut parts.reported) })
    }

    /// The principal of a bearer key, with or without `Bearer ` before it. Throws `Refused`.
    #[napi]
    pub fn authenticate(&self, env: Env, bearer: String) -> Result<Principal> {
        self.gate.authenticate(&bearer).map(Principal).map_err(|refusal| errors::refused(&env, &refusal))
    }

    #[napi(js_name = "_principalFromClaims")]
    pub fn principal_from_claims(&self, env: Env, claims: String) -> Result<Principal> {
        let claims = convert::parse(&env, &claims)?;
        self.gate.principal_from_claims(&claims).map(Principal).map_err(|refusal| errors::refused(&env, &refusal))
    }

    #[napi(js_name = "_issueKey")]
    pub fn issue_key(&self, env: Env, options: KeyOptions) -> Result<IssuedKey> {
        let (spec, author) = options.spec(&env)?;
        issued(&env, self.gate.issue_key(spec, author))
    }

    /// Gives a key another secret. The earlier ones work for `overlapMs` more. Throws `KeyActError`.
    #[napi]
    pub fn rotate_key(&self, env: Env, tenant: String, id: String, act: KeyAct) -> Result<IssuedKey> {
        let overlap = Duration::from_millis(act.overlap_ms.map_or(0, |time| time.0));
        issued(&env, self.gate.rotate_key(&tenant, &id, overlap, act.author))
    }

    /// Revokes a key with all its secrets, and its children with it; `false` if it had been. Throws `KeyActError`.
    #[napi]
    pub fn revoke_key(&self, env: Env, tenant: String, id: String, act: KeyAct) -> Result<bool> {
        self.gate.revoke_key(&tenant, &id, act.author).map_err(|error| errors::key(&env, &error))
    }

    /// The keys of a tenant, in the order of their ids.
    #[napi]
    pub fn keys(&self, tenant: String) -> Vec<Key> {
        self.gate.keys(&tenant).iter().map(Key::of).collect()
    }

    /// The call that decides about a principal's request.
    #[napi(js_name = "_admitting")]
    pub fn admitting<'env>(&self, env: &'env Env) -> Result<Function<'env, (), Decided>> {
        calls::admit(env, host::leases(env)?, &self.gate)
    }

    #[napi(js_name = "_preview")]
    pub fn preview(&self, who: &Principal, request: &Request) -> PreviewData {
        PreviewData::of(self.gate.preview(&who.0, &request.0))
    }

    #[napi(js_name = "_finalize")]
    pub fn finalize(
        &self,
        env: Env,
        given: Given<'_>,
        request_id: Option<String>,
        lease_id: Option<String>,
    ) -> Result<ReceiptData> {
        let name = match (request_id, lease_id) {
            (Some(id), None) => core::Name::Request(id.into()),
            (None, Some(id)) => core::Name::Lease(
                id.parse().map_err(|error: core::lease::NotLeaseId| type_error(env, error.to_string()))?,
            ),
            _ => return Err(type_error(env, "either requestId or leaseId is wanted")),
        };
        let ended = self.gate.finalize(name, outcome(given));
        ended.map(|receipt| ReceiptData::of(&receipt)).map_err(|error| errors::end(&env, &error))
    }

    #[napi(js_name = "_balances")]
    pub fn balances(
        &self,
        env: Env,
        who: &Principal,
        run_id: Option<String>,
        operator: Option<bool>,
    ) -> Result<Vec<Balance>> {
        let balances = match (run_id, operator.unwrap_or(false)) {
            (Some(_), true) => {
                return Err(type_error(env, "a run's balances are told to its tenant: without operator"));
            }
            (Some(run), false) => self.gate.run_balances(&who.0, &run),
            (None, operator) => self.gate.balances(&who.0, operator),
        };
        Ok(balances.into_iter().map(Balance).collect())
    }

    #[napi(js_name = "_explain")]
    pub fn explain(&self, request_id: String) -> String {
        journal::list(&self.gate.explain(&request_id))
    }

    #[napi(js_name = "_recent")]
    pub fn recent(&self, tenant: String, last_ms: Count) -> String {
        journal::list(&self.gate.recent(&tenant, last_ms.0.saturating_mul(1_000_000)))
    }

    #[napi(js_name = "_journal")]
    pub fn journal(&self, after: Option<Count>) -> String {
        journal::entries(&self.gate, after.map(|count| count.0))
    }

    #[napi(js_name = "_onAlert")]
    pub fn on_alert(
        &self,
        env: Env,
        told: Function<'_, Text, ()>,
        posted: Function<'_, Text, ()>,
    ) -> Result<Subscription> {
        Ok(Subscription::new(&self.gate, Callback::new(env, told, posted)?))
    }

    #[napi(js_name = "_snapshot")]
    pub fn snapshot(&self) -> String {
        self.gate.snapshot().to_json().to_string()
    }

    /// Leases whose usage is unknown, the oldest first.
    #[napi]
    pub fn unresolved(&self, at_most: Option<Count>) -> Vec<Unresolved> {
        let records = self.gate.unresolved(self::at_most(at_most, 1000));
        records.iter().filter_map(Unresolved::of).collect()
    }

    /// Puts another policy in force, at once and whole. Open leases keep their terms, accounts what they hold.
    #[napi]
    pub fn reload(&self, policy: &Policy) {
        self.gate.reload(&policy.0);
    }

    /// Ends leases whose deadline has passed and waits that have lasted too long; how many leases. About once a second, or
    /// let a keeper do it.
    #[napi]
    pub fn sweep(&self, at_most: Option<Count>) -> f64 {
        self.gate.sweep(self::at_most(at_most, 4096)) as f64
    }

    #[napi(js_name = "_keeper")]
    pub fn keeper(&self, env: Env, interval_ms: Option<Count>) -> Result<Keeper> {
        let interval = interval_ms.map_or(1000, |time| time.0);
        if interval == 0 {
            return Err(type_error(env, "intervalMs is 1 or more"));
        }
        let keeper = CoreKeeper::start(self.gate.clone(), Duration::from_millis(interval));
        keeper
            .map(|keeper| Keeper(Some(keeper)))
            .map_err(|error| errors::other(&env, "keeper_not_started", error.to_string()))
    }

    /// The digest of the policy in force.
    #[napi(getter)]
    pub fn digest(&self) -> String {
        self.gate.digest().to_string()
    }

    #[napi(js_name = "_report")]
    pub fn report(&self, pool: String, replica: Whole32, load: ReplicaLoad, amend: Option<bool>) -> bool {
        let Some(pool) = self.reported.get(&pool) else { return false };
        let (now, load) = (self.gate.now(), load.core());
        match amend.unwrap_or(false) {
            true => pool.amend(replica.0 as usize, load, now),
            false => pool.report(replica.0 as usize, load, now),
        }
    }

    /// Refuses every request of a tenant, of a key of a tenant, or of a model from now on.
    #[napi]
    pub fn freeze(&self, env: Env, options: FreezeOptions) -> Result<()> {
        let FreezeOptions { author, reason, tenant, key, model } = options;
        let reason = reason.ok_or_else(|| type_error(env, "a reason is wanted"))?;
        self.gate.freeze(target(env, tenant, key, model)?, reason, author);
        Ok(())
    }

    /// Lets it go on; `false` if it was not frozen.
    #[napi]
    pub fn thaw(&self, env: Env, options: FreezeOptions) -> Result<bool> {
        let FreezeOptions { author, tenant, key, model, .. } = options;
        Ok(self.gate.thaw(&target(env, tenant, key, model)?, author))
    }

    /// What is frozen, with the reason.
    #[napi]
    pub fn frozen(&self) -> Vec<Frozen> {
        let shown = |freeze: &Arc<core::gate::Freeze>| Frozen {
            target: freeze.target.label(),
            reason: freeze.reason.to_string(),
        };
        self.gate.frozen().iter().map(shown).collect()
    }

    #[napi(js_name = "_headers")]
    pub fn headers(&self, env: Env, who: &Principal, manner: Option<String>) -> Result<Vec<Vec<String>>> {
        headers(env, &self.gate.balances(&who.0, false), manner.as_deref(), self.gate.now().wall)
    }

    /// States how full a pool is, in percent, for steps of degrading; `false` for a pool that the policy does not name.
    #[napi]
    pub fn set_pressure(&self, pool: String, percent: Count) -> bool {
        self.gate.set_pressure(&pool, percent.0.min(100) as u8)
    }

    /// How full a pool is, in percent.
    #[napi]
    pub fn pressure(&self, pool: String) -> Option<u8> {
        self.gate.pressure(&pool)
    }

    /// Requests in flight in a pool, and those that wait for it; `null` for a pool that there is not.
    #[napi]
    pub fn pool_load(&self, pool: String) -> Option<PoolLoad> {
        let figures = self.gate.scheduler(&pool)?.figures()?;
        let waiting = figures.lanes.iter().map(|lane| lane.queued).sum();
        Some(PoolLoad { in_flight: number(figures.valve.in_flight), waiting: number(waiting) })
    }

    /// The most by which the open leases could together pass what they hold.
    #[napi]
    pub fn overshoot(&self) -> Amounts {
        Amounts::of(&self.gate.overshoot())
    }

    /// The figures of the gate in the OpenMetrics text format, which Prometheus reads.
    #[napi]
    pub fn metrics(&self) -> String {
        observe::prometheus(&self.gate)
    }
}

fn target(env: Env, tenant: Option<String>, key: Option<String>, model: Option<String>) -> Result<Target> {
    match (tenant, key, model) {
        (Some(tenant), None, None) => Ok(Target::Tenant(tenant.into())),
        (Some(tenant), Some(key), None) => Ok(Target::Key { tenant: tenant.into(), key: key.into() }),
        (None, None, Some(model)) => Ok(Target::Model(model.into())),
        _ => Err(type_error(env, "a tenant, a tenant and a key of it, or a model is wanted")),
    }
}

/// The thread that sweeps a gate.
#[napi]
pub struct Keeper(Option<CoreKeeper>);

#[napi]
impl Keeper {
    /// Stops it. The second time nothing happens.
    #[napi]
    pub fn stop(&mut self) {
        self.0 = None;
    }

    #[napi(getter)]
    pub fn is_running(&self) -> bool {
        self.0.is_some()
    }
}
