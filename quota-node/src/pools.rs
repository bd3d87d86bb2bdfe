//! Pools: what is declared of them, what their servers tell, and what the servers are told.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use napi::{Env, Result};
use napi_derive::napi;
use quota_core as core;
use quota_core::gpu::{Dialect, GpuBackend, Load, Reported, Unreadable};
use quota_core::time::Now;

use crate::callback::Callback;
use crate::convert::number;
use crate::count::{Count, Whole8, Whole16, Whole32, plain, type_error};
use crate::errors;

/// What is known of a pool of replicas.
#[napi(object, object_to_js = false)]
pub struct FixedPoolOptions {
    pub replicas: Whole16,
    pub max_running: Count,
    pub kv_tokens: Option<Count>,
}

/// A pool of replicas that are all alike, of which only the capacity is known.
#[napi]
pub struct FixedPool {
    pub(crate) pool: core::gpu::FixedPool,
    replicas: u16,
    max_running: u64,
    kv_tokens: Option<u64>,
}

#[napi]
impl FixedPool {
    #[napi(constructor)]
    pub fn new(options: FixedPoolOptions) -> FixedPool {
        let (replicas, max_running, kv_tokens) = (options.replicas.0, options.max_running.0, plain(options.kv_tokens));
        let pool = core::gpu::FixedPool::new(replicas, max_running, kv_tokens);
        FixedPool { pool, replicas, max_running, kv_tokens }
    }

    #[napi(getter)]
    pub fn replicas(&self) -> u16 {
        self.replicas
    }

    #[napi(getter)]
    pub fn max_running(&self) -> f64 {
        number(self.max_running)
    }

    #[napi(getter)]
    pub fn kv_tokens(&self) -> Option<f64> {
        self.kv_tokens.map(number)
    }
}

/// What a pool that reports begins with.
#[napi(object, object_to_js = false)]
pub struct ReportedPoolOptions {
    pub replicas: Whole16,
    pub ttl_ms: Count,
    pub max_running: Option<Count>,
    pub kv_tokens: Option<Count>,
}

/// A pool whose replicas report: the newest sample of each, until it is too old. `gate.report` puts samples in.
#[napi]
pub struct ReportedPool {
    pub(crate) pool: Arc<Reported>,
    replicas: u16,
}

#[napi]
impl ReportedPool {
    /// `maxRunning` and `kvTokens` stand in where samples tell none.
    #[napi(constructor)]
    pub fn new(options: ReportedPoolOptions) -> ReportedPool {
        let pool = Reported::new(options.replicas.0, Duration::from_millis(options.ttl_ms.0));
        let pool = pool.declaring(plain(options.max_running), plain(options.kv_tokens));
        ReportedPool { pool: Arc::new(pool), replicas: options.replicas.0 }
    }

    #[napi(getter)]
    pub fn replicas(&self) -> u16 {
        self.replicas
    }
}

/// What one replica reports; a figure that its server does not tell is absent.
#[napi(object)]
pub struct ReplicaLoad {
    /// Requests in the running batch.
    pub running: Option<Count>,
    /// Requests that wait inside the server.
    pub waiting: Option<Count>,
    /// The part of the memory for keys and values that is in use, in millionths.
    pub kv_used_ppm: Option<Whole32>,
    /// How many tokens that memory holds.
    pub kv_tokens: Option<Count>,
    /// The most requests that run at once.
    pub max_running: Option<Count>,
    /// Requests thrown back for lack of memory since the server started.
    pub preemptions: Option<Count>,
    /// The gate's time at which this was measured; absent where it is declared.
    pub as_of_ns: Option<Count>,
    /// Whether the figures no longer hold.
    pub stale: Option<bool>,
}

impl ReplicaLoad {
    pub fn of(load: &core::gpu::ReplicaLoad) -> ReplicaLoad {
        let figure = |figure: Option<u64>| figure.map(Count);
        ReplicaLoad {
            running: figure(load.running),
            waiting: figure(load.waiting),
            kv_used_ppm: load.kv_used_ppm.map(Whole32),
            kv_tokens: figure(load.kv_tokens),
            max_running: figure(load.max_running),
            preemptions: figure(load.preemptions),
            as_of_ns: figure(load.as_of),
            stale: load.stale.then_some(true),
        }
    }

    pub fn core(self) -> core::gpu::ReplicaLoad {
        core::gpu::ReplicaLoad {
            running: plain(self.running),
            waiting: plain(self.waiting),
            kv_used_ppm: self.kv_used_ppm.map(|part| part.0),
            kv_tokens: plain(self.kv_tokens),
            max_running: plain(self.max_running),
            preemptions: plain(self.preemptions),
            as_of: plain(self.as_of_ns),
            stale: self.stale.unwrap_or(false),
        }
    }
}

/// The newest that a pool of the host's has told.
#[napi(js_name = "_LastLoad")]
pub struct LastLoad(Arc<Mutex<Load>>);

#[napi]
impl LastLoad {
    #[napi(constructor)]
    #[allow(clippy::new_without_default)]
    pub fn new() -> LastLoad {
        LastLoad(Arc::default())
    }

    #[napi]
    pub fn set(&self, replicas: Vec<ReplicaLoad>) {
        *lock(&self.0) = load(Some(replicas));
    }
}

fn lock(load: &Mutex<Load>) -> MutexGuard<'_, Load> {
    load.lock().unwrap_or_else(PoisonError::into_inner)
}

fn load(replicas: Option<Vec<ReplicaLoad>>) -> Load {
    Load { replicas: replicas.into_iter().flatten().map(ReplicaLoad::core).collect() }
}

/// A pool of the host's. Asked from another thread it tells the last that it knows, and asks for the next time.
pub struct HostPool {
    ask: Callback<f64, Option<Vec<ReplicaLoad>>>,
    last: Arc<Mutex<Load>>,
    reports: bool,
}

impl HostPool {
    pub fn new(ask: Callback<f64, Option<Vec<ReplicaLoad>>>, last: &LastLoad, reports: bool) -> HostPool {
        HostPool { ask, last: last.0.clone(), reports }
    }
}

impl GpuBackend for HostPool {
    fn load(&self, now: Now) -> Load {
        if let Some(told) = self.ask.call(number(now.mono)) {
            *lock(&self.last) = load(told);
        }
        lock(&self.last).clone()
    }

    fn reports(&self) -> bool {
        self.reports
    }
}

/// What a server's text tells.
#[napi(object, object_from_js = false, use_nullable = true)]
pub struct LoadReport {
    pub load: ReplicaLoad,
    /// Lines that could not be read and were passed over.
    pub bad_lines: u32,
    /// The models that the text names.
    pub models: Vec<String>,
}

fn dialect(env: &Env, name: &str) -> Result<Dialect> {
    Dialect::parse(name).ok_or_else(|| type_error(*env, format!("no kind of inference server is called {name:?}")))
}

/// Reads what an inference server tells of its load: the text of its metrics, its JSON, or an ORCA header. Throws
/// `InputError`.
#[napi(js_name = "_readLoad")]
pub fn read_load(env: Env, server: String, text: String, model: Option<String>) -> Result<LoadReport> {
    let read = dialect(&env, &server)?.read(&text, model.as_deref()).map_err(|error| {
        let code = match error {
            Unreadable::TooLong(_) => "too_long",
            Unreadable::NotJson(_) => "not_json",
            _ => "unknown_form",
        };
        errors::input(&env, code, error.to_string())
    })?;
    Ok(LoadReport { load: ReplicaLoad::of(&read.load), bad_lines: read.bad_lines, models: read.models })
}

/// A field of a request's body, and its value.
#[napi(object, object_from_js = false, use_nullable = true)]
pub struct PriorityHint {
    pub field: &'static str,
    pub value: i64,
}

/// What an engine with a queue of its own is told of a lane's rank; `null` for one that takes no such hint.
#[napi]
pub fn priority_hint(env: Env, server: String, rank: Whole8) -> Result<Option<PriorityHint>> {
    let hint = dialect(&env, &server)?.priority(rank.0);
    Ok(hint.map(|hint| PriorityHint { field: hint.field, value: hint.value }))
}
