//! Pools: what is declared of them, what their servers tell, and what the servers are told.

use std::sync::Arc;
use std::time::Duration;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use quota_core as core;
use quota_core::gpu::{Dialect, GpuBackend, Load, Reported, Unreadable};
use quota_core::time::Now;

use crate::callback::Callback;
use crate::convert::{Count, Small};
use crate::simulated::SimulatedPool;
use crate::{convert, errors};

/// A pool of replicas that are all alike, of which only the capacity is known.
#[pyclass(frozen, module = "quota", eq)]
#[derive(Clone, PartialEq)]
pub struct FixedPool {
    pub pool: core::gpu::FixedPool,
    /// How many replicas there are.
    #[pyo3(get)]
    replicas: u16,
    /// The most requests that a replica runs at once.
    #[pyo3(get)]
    max_running: u64,
    /// The tokens that a replica's memory for keys and values holds.
    #[pyo3(get)]
    kv_tokens: Option<u64>,
}

#[pymethods]
impl FixedPool {
    #[new]
    #[pyo3(signature = (*, replicas, max_running, kv_tokens=None))]
    fn new(replicas: Small<u16>, max_running: Count, kv_tokens: Option<Count>) -> FixedPool {
        let replicas = replicas.0;
        let (max_running, kv_tokens) = (max_running.0, kv_tokens.map(|tokens| tokens.0));
        FixedPool {
            pool: core::gpu::FixedPool::new(replicas, max_running, kv_tokens),
            replicas,
            max_running,
            kv_tokens,
        }
    }

    fn __repr__(&self) -> String {
        format!("FixedPool(replicas={}, max_running={})", self.replicas, self.max_running)
    }
}

/// A pool whose replicas report: the newest sample of each, until it is too old. `Gate.report` puts samples in.
#[pyclass(frozen, module = "quota")]
pub struct ReportedPool {
    pub pool: Arc<Reported>,
    /// How many replicas there are.
    #[pyo3(get)]
    replicas: u16,
}

#[pymethods]
impl ReportedPool {
    /// `max_running` and `kv_tokens` stand in where samples tell none.
    #[new]
    #[pyo3(signature = (*, replicas, ttl_ms, max_running=None, kv_tokens=None))]
    fn new(replicas: Small<u16>, ttl_ms: Count, max_running: Option<Count>, kv_tokens: Option<Count>) -> ReportedPool {
        let replicas = replicas.0;
        let pool = Reported::new(replicas, Duration::from_millis(ttl_ms.0));
        let pool = pool.declaring(max_running.map(|count| count.0), kv_tokens.map(|count| count.0));
        ReportedPool { pool: Arc::new(pool), replicas }
    }

    fn __repr__(&self) -> String {
        format!("ReportedPool(replicas={})", self.replicas)
    }
}

/// Any kind of pool, as a gate takes it.
#[derive(FromPyObject)]
pub enum Pool<'py> {
    Fixed(Bound<'py, FixedPool>),
    Reported(Bound<'py, ReportedPool>),
    Simulated(Bound<'py, SimulatedPool>),
    Host(Bound<'py, PyAny>),
}

impl Pool<'_> {
    /// The pool as the core has it, and the host's method that it calls, if it is the host's.
    pub fn backend(&self) -> PyResult<(Arc<dyn GpuBackend>, Option<Callback>)> {
        Ok(match self {
            Pool::Fixed(pool) => (Arc::new(pool.get().pool.clone()), None),
            Pool::Reported(pool) => (pool.get().pool.clone(), None),
            Pool::Simulated(pool) => (pool.get().pool.clone(), None),
            Pool::Host(pool) => {
                let pool = HostPool::new(pool)?;
                let load = pool.load.clone();
                (Arc::new(pool), Some(load))
            }
        })
    }
}

/// A pool of the host's: an object with `load(now_ns)`, and `reports()` if it does not measure. What could not be asked is stale.
struct HostPool {
    load: Callback,
    reports: bool,
}

impl HostPool {
    fn new(pool: &Bound<'_, PyAny>) -> PyResult<HostPool> {
        let load = pool.getattr_opt("load")?.ok_or_else(|| {
            let message = format!("a pool has a method `load(now_ns)`, {} has none", convert::kind(pool));
            PyTypeError::new_err(message)
        })?;
        let reports = match pool.getattr_opt("reports")? {
            Some(reports) => reports.call0()?.extract()?,
            None => true,
        };
        Ok(HostPool { load: Callback::new(load.unbind()), reports })
    }
}

impl GpuBackend for HostPool {
    fn load(&self, now: Now) -> Load {
        let replicas = self.load.call(|load| {
            let replicas: Vec<Bound<'_, ReplicaLoad>> = load.call1((now.mono,))?.extract()?;
            Ok(replicas.iter().map(|replica| replica.get().0.clone()).collect())
        });
        Load { replicas: replicas.unwrap_or_default() }
    }

    fn reports(&self) -> bool {
        self.reports
    }
}

/// What one replica reports; a figure that its server does not tell is `None`.
#[pyclass(frozen, module = "quota", eq)]
#[derive(Clone, PartialEq)]
pub struct ReplicaLoad(pub core::gpu::ReplicaLoad);

#[pymethods]
impl ReplicaLoad {
    #[new]
    #[pyo3(signature = (
        *, running=None, waiting=None, kv_used_ppm=None, kv_tokens=None, max_running=None, preemptions=None, as_of_ns=None,
        stale=false
    ))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        running: Option<Count>,
        waiting: Option<Count>,
        kv_used_ppm: Option<Small<u32>>,
        kv_tokens: Option<Count>,
        max_running: Option<Count>,
        preemptions: Option<Count>,
        as_of_ns: Option<Count>,
        stale: bool,
    ) -> ReplicaLoad {
        let count = |count: Option<Count>| count.map(|count| count.0);
        ReplicaLoad(core::gpu::ReplicaLoad {
            running: count(running),
            waiting: count(waiting),
            kv_used_ppm: kv_used_ppm.map(|part| part.0),
            kv_tokens: count(kv_tokens),
            max_running: count(max_running),
            preemptions: count(preemptions),
            as_of: count(as_of_ns),
            stale,
        })
    }

    /// Requests in the running batch.
    #[getter]
    fn running(&self) -> Option<u64> {
        self.0.running
    }

    /// Requests that wait inside the server.
    #[getter]
    fn waiting(&self) -> Option<u64> {
        self.0.waiting
    }

    /// The part of the memory for keys and values that is in use, in millionths.
    #[getter]
    fn kv_used_ppm(&self) -> Option<u32> {
        self.0.kv_used_ppm
    }

    /// How many tokens that memory holds.
    #[getter]
    fn kv_tokens(&self) -> Option<u64> {
        self.0.kv_tokens
    }

    /// The most requests that run at once.
    #[getter]
    fn max_running(&self) -> Option<u64> {
        self.0.max_running
    }

    /// Requests thrown back for lack of memory since the server started.
    #[getter]
    fn preemptions(&self) -> Option<u64> {
        self.0.preemptions
    }

    /// The gate's time at which it was measured; `None` where it is declared.
    #[getter]
    fn as_of_ns(&self) -> Option<u64> {
        self.0.as_of
    }

    /// Whether the figures no longer hold, because they are too old.
    #[getter]
    fn stale(&self) -> bool {
        self.0.stale
    }

    fn __repr__(&self) -> String {
        let load = &self.0;
        let known = [
            ("running", load.running),
            ("waiting", load.waiting),
            ("kv_used_ppm", load.kv_used_ppm.map(u64::from)),
            ("kv_tokens", load.kv_tokens),
            ("max_running", load.max_running),
            ("preemptions", load.preemptions),
            ("as_of_ns", load.as_of),
        ];
        let known = known.into_iter().filter_map(|(name, figure)| Some(format!("{name}={}", figure?)));
        let stale = load.stale.then(|| "stale=True".to_owned());
        format!("ReplicaLoad({})", known.chain(stale).collect::<Vec<_>>().join(", "))
    }
}

/// What a server's text tells.
#[pyclass(frozen, module = "quota")]
pub struct LoadReport(core::gpu::Read);

#[pymethods]
impl LoadReport {
    /// The figures of the replica.
    #[getter]
    fn load(&self) -> ReplicaLoad {
        ReplicaLoad(self.0.load.clone())
    }

    /// Lines that could not be read and were passed over.
    #[getter]
    fn bad_lines(&self) -> u32 {
        self.0.bad_lines
    }

    /// The models that the text names.
    #[getter]
    fn models(&self) -> Vec<&str> {
        self.0.models.iter().map(String::as_str).collect()
    }

    fn __repr__(&self) -> String {
        format!("LoadReport({}, bad_lines={})", self.load().__repr__(), self.0.bad_lines)
    }
}

fn dialect(name: &str) -> PyResult<Dialect> {
    Dialect::parse(name).ok_or_else(|| PyValueError::new_err(format!("no kind of inference server is called {name:?}")))
}

/// Reads what an inference server tells of its load: the text of its metrics, its JSON, or an ORCA header. Raises
/// `InputError`.
#[pyfunction]
#[pyo3(signature = (server, text, *, model=None))]
pub fn read_load(py: Python<'_>, server: &str, text: &str, model: Option<&str>) -> PyResult<LoadReport> {
    let dialect = dialect(server)?;
    py.detach(|| dialect.read(text, model)).map(LoadReport).map_err(|error| {
        let code = match error {
            Unreadable::TooLong(_) => "too_long",
            Unreadable::NotJson(_) => "not_json",
            _ => "unknown_form",
        };
        errors::input(py, code, error.to_string())
    })
}

/// What an engine with a queue of its own is told of a lane's rank: the name of a field of the body, and its value.
#[pyfunction]
pub fn priority_hint(server: &str, rank: Small<u8>) -> PyResult<Option<(&'static str, i64)>> {
    Ok(dialect(server)?.priority(rank.0).map(|hint| (hint.field, hint.value)))
}
