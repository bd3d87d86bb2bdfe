//! The gate: convert, call, convert.
//!
//! Invariant: what may wait, for a lock of another thread or for the length of a text, has let go of the interpreter.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pyclass::{PyTraverseError, PyVisit};
use pyo3::types::{PyList, PyMapping};
use quota_core as core;
use quota_core::gate::Target;
use quota_core::gpu::Reported;
use quota_core::keeper::Keeper as CoreKeeper;
use quota_core::store::Memory;
use quota_core::store::memory::Bounds;

use crate::alert::Subscription;
use crate::callback::Callback;
use crate::convert::{Amounts, Count, Small, python};
use crate::decision::{Decision, Preview, acquiring};
use crate::estimate::HostEstimator;
use crate::journal::{self, Entries};
use crate::keeper::Keeper;
use crate::lease::{Receipt, Unresolved};
use crate::policy::Policy;
use crate::pools::{Pool, ReplicaLoad};
use crate::principal::Principal;
use crate::refusal::{self, Balance};
use crate::request::Request;
use crate::testing::ManualClock;
use crate::{convert, errors, keys, usage};

/// How many times this process has been forked off, counted in the child. Raised there before anything else runs, read by
/// all.
static FORKS: AtomicU64 = AtomicU64::new(0);

pub fn forks() -> u64 {
    // ORDERING: relaxed; a child begins with one thread.
    FORKS.load(Ordering::Relaxed)
}

/// To be called in a child process after a fork.
#[pyfunction]
pub fn _forked() {
    // ORDERING: relaxed, see `forks`.
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// The bounds of a store's bounds, see [`Bounds`].
const MAX_ROWS: u32 = (1 << 24) - 256;
const MAX_OPEN_LEASES: u32 = 1 << 30;

/// Where principals' requests are decided: `Gate(policy)`.
///
/// `clock` is for tests, `pools` puts valves in front of pools by their names, `journal` is handed every entry too, `estimator`
/// counts the input of requests. `max_rows` bounds the accounts (seven a row), `max_open_leases` the leases that may be open.
#[pyclass(frozen, module = "quota")]
pub struct Gate {
    gate: core::Gate,
    forks: u64,
    /// Pools whose replicas report, by name.
    reported: HashMap<String, Arc<Reported>>,
    /// What it was handed. Whatever calls it but this has the gate, too, so that no cycle is collected out of which it
    /// would be called.
    callbacks: Mutex<Vec<Callback>>,
}

impl Gate {
    /// The core's gate, in the process that it was made in.
    pub fn core(&self, py: Python<'_>) -> PyResult<&core::Gate> {
        match self.forks == forks() {
            true => Ok(&self.gate),
            false => Err(errors::forked(py)),
        }
    }
}

#[pymethods]
impl Gate {
    #[new]
    #[pyo3(signature = (
        policy, *, clock=None, pools=None, journal=None, estimator=None, max_rows=None, max_open_leases=None
    ))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        policy: &Policy,
        clock: Option<&Bound<'_, ManualClock>>,
        pools: Option<&Bound<'_, PyMapping>>,
        journal: Option<&Bound<'_, PyAny>>,
        estimator: Option<&Bound<'_, PyAny>>,
        max_rows: Option<Small<u32>>,
        max_open_leases: Option<Small<u32>>,
    ) -> PyResult<Gate> {
        let (mut builder, mut callbacks) = (core::Gate::builder(policy.0.clone()), Vec::new());
        if max_rows.is_some() || max_open_leases.is_some() {
            let usual = Bounds::default();
            let rows = max_rows.map_or(usual.rows, |rows| rows.0);
            let open_leases = max_open_leases.map_or(usual.open_leases, |leases| leases.0);
            if !(1..=MAX_ROWS).contains(&rows) || !(1..=MAX_OPEN_LEASES).contains(&open_leases) {
                let message = format!("max_rows is 1 to {MAX_ROWS}, max_open_leases 1 to {MAX_OPEN_LEASES}");
                return Err(PyValueError::new_err(message));
            }
            builder = builder.store(Memory::new(Bounds { rows, open_leases }));
        }
        if let Some(clock) = clock {
            builder = builder.clock(clock.get().0.clone());
        }
        if let Some(journal) = journal {
            let (ring, push) = journal::telling(journal)?;
            builder = builder.journal(ring);
            callbacks.push(push);
        }
        if let Some(estimator) = estimator {
            let estimator = HostEstimator::new(estimator)?;
            callbacks.push(estimator.0.clone());
            builder = builder.estimator(estimator);
        }
        let mut reported = HashMap::new();
        for item in pools.map(|pools| pools.items()).transpose()?.iter().flatten() {
            let (name, pool): (String, Pool<'_>) = item.extract()?;
            let (backend, load) = pool.backend()?;
            builder = builder.pool(name.as_str(), backend);
            callbacks.extend(load);
            if let Pool::Reported(pool) = pool {
                reported.insert(name, pool.get().pool.clone());
            }
        }
        let gate = py.detach(|| builder.build());
        Ok(Gate { gate, forks: forks(), reported, callbacks: Mutex::new(callbacks) })
    }

    /// The principal of a bearer key, with or without `Bearer ` before it. Raises `Refused`.
    fn authenticate(&self, py: Python<'_>, bearer: &str) -> PyResult<Principal> {
        self.core(py)?.authenticate(bearer).map(Principal).map_err(|refusal| errors::refused(py, &refusal))
    }

    /// The principal that claims name which the host has verified. Raises `Refused`.
    fn principal_from_claims(&self, py: Python<'_>, claims: &Bound<'_, PyAny>) -> PyResult<Principal> {
        let claims = convert::object(claims)?;
        self.core(py)?.principal_from_claims(&claims).map(Principal).map_err(|refusal| errors::refused(py, &refusal))
    }

    /// Makes a key, with the only sight of its secret. Raises `KeyActError`.
    #[pyo3(signature = (
        *, tenant, author, id=None, parent=None, app=None, env=None, user=None, lane=None, names_users=false, expires=None,
        models=None, limits=None
    ))]
    #[allow(clippy::too_many_arguments)]
    fn issue_key(
        &self,
        py: Python<'_>,
        tenant: &str,
        author: &str,
        id: Option<&str>,
        parent: Option<&str>,
        app: Option<&str>,
        env: Option<&str>,
        user: Option<&str>,
        lane: Option<&str>,
        names_users: bool,
        expires: Option<&str>,
        models: Option<Vec<String>>,
        limits: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<keys::IssuedKey> {
        let spec = core::gate::KeySpec {
            id: id.map(Into::into),
            parent: parent.map(Into::into),
            app: app.map(Into::into),
            env: env.map(Into::into),
            user: user.map(Into::into),
            lane: lane.map(Into::into),
            names_users,
            expires: expires.map(keys::instant).transpose()?,
            models: models.map(|models| models.into_iter().map(Into::into).collect()),
            limits: keys::limits(limits)?,
            ..core::gate::KeySpec::new(tenant)
        };
        let gate = self.core(py)?;
        keys::issued(py, py.detach(|| gate.issue_key(spec, author)))
    }

    /// Gives a key another secret. The earlier ones work for `overlap_ms` more. Raises `KeyActError`.
    #[pyo3(signature = (tenant, id, *, author, overlap_ms=Count(0)))]
    fn rotate_key(
        &self,
        py: Python<'_>,
        tenant: &str,
        id: &str,
        author: &str,
        overlap_ms: Count,
    ) -> PyResult<keys::IssuedKey> {
        let (gate, overlap) = (self.core(py)?, Duration::from_millis(overlap_ms.0));
        keys::issued(py, py.detach(|| gate.rotate_key(tenant, id, overlap, author)))
    }

    /// Revokes a key with all its secrets, and its children with it; `False` if it had been. Raises `KeyActError`.
    #[pyo3(signature = (tenant, id, *, author))]
    fn revoke_key(&self, py: Python<'_>, tenant: &str, id: &str, author: &str) -> PyResult<bool> {
        let gate = self.core(py)?;
        py.detach(|| gate.revoke_key(tenant, id, author)).map_err(|error| errors::key(py, &error))
    }

    /// The keys of a tenant, in the order of their ids.
    fn keys<'py>(&self, py: Python<'py>, tenant: &str) -> PyResult<Bound<'py, PyList>> {
        let gate = self.core(py)?;
        let found = py.detach(|| gate.keys(tenant));
        PyList::new(py, found.into_iter().map(keys::Key))
    }

    /// The newest entries of a tenant's journal, oldest first: those of the last so many milliseconds. For operators.
    #[pyo3(signature = (tenant, *, last_ms))]
    fn recent<'py>(&self, py: Python<'py>, tenant: &str, last_ms: Count) -> PyResult<Bound<'py, PyList>> {
        let gate = self.core(py)?;
        let entries = py.detach(|| gate.recent(tenant, last_ms.0.saturating_mul(1_000_000)));
        journal::list(py, &entries)
    }

    /// Decides about a request at once, and takes what it may use of all limits, or of none.
    ///
    /// The decision has a lease (`allow`, or `degrade` to a lesser form), a place to wait in (`queue`) or a refusal (`reject`);
    /// what is malformed or unknown is refused too, so that this never raises `Refused`. A request whose id has an open lease
    /// of the same principal is given that lease again. The lease has to be ended: `settle`, `cancel`, or a `with` around it.
    fn admit(slf: &Bound<'_, Self>, who: &Bound<'_, Principal>, request: &Bound<'_, Request>) -> PyResult<Decision> {
        let py = slf.py();
        let gate = slf.get().core(py)?;
        let (asker, asked) = (&who.get().0, request.get());
        let decision = match asked.is_long() {
            true => py.detach(|| gate.admit(asker, &asked.inner)),
            false => gate.admit(asker, &asked.inner),
        };
        Decision::of(py, decision, slf, who, request)
    }

    /// Waits for a request's turn, where it has to, and takes what it may use: to be awaited (`await`), entered (`async with`, or `with` in a
    /// thread), or asked for its `result()` in a thread. All of them give the lease or raise `Refused`.
    fn acquire<'py>(
        slf: &Bound<'py, Self>,
        who: &Bound<'py, Principal>,
        request: &Bound<'py, Request>,
    ) -> PyResult<Bound<'py, PyAny>> {
        acquiring(slf.py())?.call1((slf, who, request))
    }

    /// The answer that `admit` would give, without anything taken.
    fn preview(&self, py: Python<'_>, who: &Principal, request: &Request) -> PyResult<Preview> {
        let gate = self.core(py)?;
        let decision = match request.is_long() {
            true => py.detach(|| gate.preview(&who.0, &request.inner)),
            false => gate.preview(&who.0, &request.inner),
        };
        Preview::of(py, decision)
    }

    /// Ends a lease by its request's id or its own: late, or from elsewhere. An `Outcome`, or a usage.
    #[pyo3(signature = (outcome, *, request_id=None, lease_id=None, dialect="auto"))]
    fn finalize(
        &self,
        py: Python<'_>,
        outcome: &Bound<'_, PyAny>,
        request_id: Option<&str>,
        lease_id: Option<&str>,
        dialect: &str,
    ) -> PyResult<Receipt> {
        let name = match (request_id, lease_id) {
            (Some(id), None) => core::Name::Request(id.into()),
            (None, Some(id)) => core::Name::Lease(
                id.parse().map_err(|error: core::lease::NotLeaseId| PyValueError::new_err(error.to_string()))?,
            ),
            _ => return Err(PyTypeError::new_err("either request_id or lease_id is wanted")),
        };
        let outcome = usage::outcome(outcome, dialect)?;
        self.core(py)?.finalize(name, outcome).map(Receipt).map_err(|error| errors::end(py, &error))
    }

    /// The state of every limit that applies to a principal, and of a run of it; of scopes that tenants share for operators
    /// only.
    #[pyo3(signature = (who, *, run_id=None, operator=false))]
    fn balances<'py>(
        &self,
        py: Python<'py>,
        who: &Principal,
        run_id: Option<&str>,
        operator: bool,
    ) -> PyResult<Bound<'py, PyList>> {
        let gate = self.core(py)?;
        let balances = match (run_id, operator) {
            (Some(_), true) => {
                return Err(PyTypeError::new_err("a run's balances are told to its tenant: without operator"));
            }
            (Some(run), false) => gate.run_balances(&who.0, run),
            (None, operator) => gate.balances(&who.0, operator),
        };
        PyList::new(py, balances.into_iter().map(Balance))
    }

    /// The story of one request, oldest first: what the journal still has of it, as JSON objects. For operators.
    fn explain<'py>(&self, py: Python<'py>, request_id: &str) -> PyResult<Bound<'py, PyList>> {
        let gate = self.core(py)?;
        let entries = py.detach(|| gate.explain(request_id));
        journal::list(py, &entries)
    }

    /// What the journal holds, oldest first, each entry a dictionary with its number `seq`; only those after the number `after`
    /// if it is told. For operators.
    #[pyo3(signature = (*, after=None))]
    fn journal(&self, py: Python<'_>, after: Option<Count>) -> PyResult<Entries> {
        let gate = self.core(py)?;
        Ok(py.detach(|| Entries::of(gate, after.map(|after| after.0))))
    }

    /// Calls `callback(alert)` with every alert from now on, until the subscription is stopped; on the thread of the request
    /// that crossed the amount, which waits for it. What it raises goes to `sys.unraisablehook`.
    fn on_alert(slf: &Bound<'_, Self>, callback: &Bound<'_, PyAny>) -> PyResult<Subscription> {
        if !callback.is_callable() {
            let message = format!("a callable is wanted, not {}", convert::kind(callback));
            return Err(PyTypeError::new_err(message));
        }
        Subscription::new(slf, callback.clone().unbind())
    }

    /// Everything that was counted since the gate was made, as plain data: by tenant and model, by lane, of strangers, and the
    /// queues of the pools. Money is decimal text.
    fn snapshot<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let gate = self.core(py)?;
        let snapshot = py.detach(|| gate.snapshot().to_json());
        python(py, &snapshot)
    }

    /// The figures of the gate in the OpenMetrics text format, which Prometheus reads; served as `METRICS_CONTENT_TYPE`.
    fn metrics(&self, py: Python<'_>) -> PyResult<String> {
        let gate = self.core(py)?;
        Ok(py.detach(|| core::observe::prometheus(gate)))
    }

    /// Leases whose usage is unknown, the oldest first.
    #[pyo3(signature = (at_most=Small(1000)))]
    fn unresolved<'py>(&self, py: Python<'py>, at_most: Small<usize>) -> PyResult<Bound<'py, PyList>> {
        let gate = self.core(py)?;
        let records = py.detach(|| gate.unresolved(at_most.0));
        PyList::new(py, records.into_iter().map(Unresolved))
    }

    /// Puts another policy in force, at once and whole. Open leases keep their terms, accounts what they hold.
    fn reload(&self, py: Python<'_>, policy: &Policy) -> PyResult<()> {
        let gate = self.core(py)?;
        py.detach(|| gate.reload(&policy.0));
        Ok(())
    }

    /// Ends leases whose deadline has passed and waits that have lasted too long; how many leases. About once a second, or
    /// let a keeper do it.
    #[pyo3(signature = (at_most=Small(4096)))]
    fn sweep(&self, py: Python<'_>, at_most: Small<usize>) -> PyResult<usize> {
        let gate = self.core(py)?;
        Ok(py.detach(|| gate.sweep(at_most.0)))
    }

    /// Starts a thread that sweeps every interval, and when somebody has waited as long as may be, until it is stopped.
    #[pyo3(signature = (*, interval_ms=Count(1000)))]
    fn keeper(slf: &Bound<'_, Self>, interval_ms: Count) -> PyResult<Py<Keeper>> {
        let py = slf.py();
        if interval_ms.0 == 0 {
            return Err(PyValueError::new_err("interval_ms is 1 or more"));
        }
        let keeper = CoreKeeper::start(slf.get().core(py)?.clone(), Duration::from_millis(interval_ms.0))?;
        let keeper = Py::new(py, Keeper::new(keeper, slf.clone().unbind()))?;
        py.import("quota._acquire")?.getattr("keepers")?.call_method1("add", (&keeper,))?;
        Ok(keeper)
    }

    /// The digest of the policy in force.
    #[getter]
    fn digest(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.core(py)?.digest().to_string())
    }

    /// Puts a replica's newest sample in, measured now; with `amend` only the figures that it has. `False`, and nothing is
    /// kept, for a pool without reports, or a replica that there is not. Looked at by `sweep`.
    #[pyo3(signature = (pool, replica, load, *, amend=false))]
    fn report(
        &self,
        py: Python<'_>,
        pool: &str,
        replica: Small<usize>,
        load: &ReplicaLoad,
        amend: bool,
    ) -> PyResult<bool> {
        let now = self.core(py)?.now();
        let Some(pool) = self.reported.get(pool) else { return Ok(false) };
        Ok(match amend {
            true => pool.amend(replica.0, load.0.clone(), now),
            false => pool.report(replica.0, load.0.clone(), now),
        })
    }

    /// Refuses every request of a tenant, of a key of a tenant, or of a model from now on.
    #[pyo3(signature = (*, author, reason, tenant=None, key=None, model=None))]
    fn freeze(
        &self,
        py: Python<'_>,
        author: &str,
        reason: &str,
        tenant: Option<&str>,
        key: Option<&str>,
        model: Option<&str>,
    ) -> PyResult<()> {
        self.core(py)?.freeze(target(tenant, key, model)?, reason, author);
        Ok(())
    }

    /// Lets it go on; `False` if it was not frozen.
    #[pyo3(signature = (*, author, tenant=None, key=None, model=None))]
    fn thaw(
        &self,
        py: Python<'_>,
        author: &str,
        tenant: Option<&str>,
        key: Option<&str>,
        model: Option<&str>,
    ) -> PyResult<bool> {
        Ok(self.core(py)?.thaw(&target(tenant, key, model)?, author))
    }

    /// What is frozen, with the reason.
    fn frozen(&self, py: Python<'_>) -> PyResult<Vec<(String, String)>> {
        let all = self.core(py)?.frozen();
        Ok(all.iter().map(|freeze| (freeze.target.label(), freeze.reason.to_string())).collect())
    }

    /// A principal's limits as rate-limit headers, in the manner of `openai`, `anthropic` or `ietf`.
    #[pyo3(signature = (who, manner="openai"))]
    fn headers(&self, py: Python<'_>, who: &Principal, manner: &str) -> PyResult<BTreeMap<&'static str, String>> {
        let gate = self.core(py)?;
        let balances = gate.balances(&who.0, false);
        refusal::headers(&balances, manner, gate.now().wall)
    }

    /// States how full a pool is, in percent, for steps of degrading; `False` for a pool that the policy does not name.
    fn set_pressure(&self, py: Python<'_>, pool: &str, percent: Count) -> PyResult<bool> {
        Ok(self.core(py)?.set_pressure(pool, percent.0.min(100) as u8))
    }

    /// How full a pool is, in percent.
    fn pressure(&self, py: Python<'_>, pool: &str) -> PyResult<Option<u8>> {
        Ok(self.core(py)?.pressure(pool))
    }

    /// Requests in flight in a pool, and those that wait for it; `None` for a pool that there is not.
    fn pool_load(&self, py: Python<'_>, pool: &str) -> PyResult<Option<(u64, u64)>> {
        let gate = self.core(py)?;
        // It waits for the thread that decides, which may be asking for the interpreter to wake somebody.
        let figures = py.detach(|| gate.scheduler(pool).and_then(|scheduler| scheduler.figures()));
        Ok(figures.map(|figures| (figures.valve.in_flight, figures.lanes.iter().map(|lane| lane.queued).sum())))
    }

    /// The most by which the open leases could together pass what they hold.
    fn overshoot(&self, py: Python<'_>) -> PyResult<Amounts> {
        let gate = self.core(py)?;
        Ok(Amounts(py.detach(|| gate.overshoot())))
    }

    fn __repr__(&self) -> String {
        format!("Gate({})", self.gate.digest().get(..12).unwrap_or_default())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        // Whoever has the lock has the interpreter, so the collector finds it free.
        self.callbacks.try_lock().map_or(Ok(()), |all| all.iter().try_for_each(|callback| callback.visit(&visit)))
    }

    fn __clear__(&self) {
        // Not under the lock: what goes with them may call the gate.
        let all = std::mem::take(&mut *self.callbacks());
        all.iter().for_each(Callback::let_go);
    }
}

impl Gate {
    pub fn of_this_process(&self) -> &core::Gate {
        &self.gate
    }

    /// Shows a callback to the collector of cycles.
    pub fn keep(&self, callback: Callback) {
        self.callbacks().push(callback);
    }

    /// Calls it no more.
    pub fn let_go(&self, callback: &Callback) {
        self.callbacks().retain(|known| !known.is(callback));
        callback.let_go();
    }

    fn callbacks(&self) -> MutexGuard<'_, Vec<Callback>> {
        self.callbacks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn target(tenant: Option<&str>, key: Option<&str>, model: Option<&str>) -> PyResult<Target> {
    match (tenant, key, model) {
        (Some(tenant), None, None) => Ok(Target::Tenant(tenant.into())),
        (Some(tenant), Some(key), None) => Ok(Target::Key { tenant: tenant.into(), key: key.into() }),
        (None, None, Some(model)) => Ok(Target::Model(model.into())),
        _ => Err(PyTypeError::new_err("a tenant, a tenant and a key of it, or a model is wanted")),
    }
}
