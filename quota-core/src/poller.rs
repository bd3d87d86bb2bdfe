//! The poller: one thread that fetches what inference servers tell of their load.
//!
//! Floor 4. Invariant: it only writes to [`Reported`] what a host could write itself, and stops when it is dropped.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use ureq::http::Uri;

use crate::gpu::exposition::MAX_TEXT;
use crate::gpu::{Dialect, ReplicaLoad, Reported};
use crate::sync::ArcCell;
use crate::time::Clock;

/// The shortest and the longest time that the thread sleeps before it looks at its clock again.
const NAP: (u64, u64) = (1_000_000, 1_000_000_000);

/// What is polled, and how often.
#[derive(Clone)]
#[non_exhaustive]
pub struct PollPlan {
    /// What the servers speak.
    pub dialect: Dialect,
    /// Where they are, `http://host:port`, in the order of the pool's replicas; one without a path of its own gets the
    /// first of the dialect's [`paths`](Dialect::paths). There is no TLS.
    pub urls: Vec<String>,
    /// The model whose series count; without one all count.
    pub model: Option<String>,
    /// From the end of one fetch to the next of the same replica; at least a millisecond. A second at first.
    pub interval: Duration,
    /// How long connecting may take. Half a second at first.
    pub connect_timeout: Duration,
    /// How long a fetch may take in all. Two seconds at first. One thread fetches from one replica after another, so
    /// a replica that hangs keeps the others waiting so long, each time that it is tried.
    pub timeout: Duration,
    /// After each failure in a row the interval doubles, up to this. 30 seconds at first.
    pub max_backoff: Duration,
    /// The most bytes of an answer; never more than [`MAX_TEXT`], as at first.
    pub max_bytes: usize,
}

impl PollPlan {
    /// A plan with the usual times.
    pub fn new<U: Into<String>>(dialect: Dialect, urls: impl IntoIterator<Item = U>) -> PollPlan {
        PollPlan {
            dialect,
            urls: urls.into_iter().map(Into::into).collect(),
            model: None,
            interval: Duration::from_secs(1),
            connect_timeout: Duration::from_millis(500),
            timeout: Duration::from_secs(2),
            max_backoff: Duration::from_secs(30),
            max_bytes: MAX_TEXT,
        }
    }
}

/// Without the addresses, which may hold a name and a password.
impl fmt::Debug for PollPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (replicas, interval) = (self.urls.len(), self.interval);
        let shown = (self.dialect, replicas, &self.model, interval, self.timeout, self.max_backoff);
        f.debug_tuple("PollPlan").field(&shown).finish()
    }
}

/// Why polling can't start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// There are not as many addresses as the pool has replicas.
    #[error("{urls} addresses for {replicas} replicas")]
    Replicas {
        /// Addresses of the plan.
        urls: usize,
        /// Replicas of the pool.
        replicas: usize,
    },
    /// The address of this replica is not `http://host` with a port and a path or without, or it holds a name and a
    /// password. It is not shown, as it may.
    #[error("the address of replica {0} is not `http://host:port/path`")]
    Url(usize),
    /// The dialect is not polled: it comes with responses.
    #[error("{} comes with responses and is not polled", .0.name())]
    NotPolled(Dialect),
    /// The operating system gives no thread.
    #[error("no thread for the poller")]
    Thread(#[from] std::io::Error),
}

/// Why a fetch failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PollFault {
    /// There was no connection, or it broke.
    #[error("no connection, or it broke")]
    Connection,
    /// It took too long.
    #[error("no answer in time")]
    TimedOut,
    /// The server answered with another status than 200; redirections are not followed.
    #[error("status {0}")]
    Status(u16),
    /// The answer is too long.
    #[error("the answer is too long")]
    TooLong,
    /// The answer is not what the dialect says.
    #[error("the answer can't be read")]
    Unreadable,
    /// No figure of the model is in the answer.
    #[error("no figure of the model in the answer")]
    NoFigures,
}

/// How the polling of one replica goes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PollState {
    /// Fetches that ended, well or not.
    pub fetches: u64,
    /// How many of the last ones failed in a row.
    pub failures: u32,
    /// Why the last one failed; `None` if it did not.
    pub fault: Option<PollFault>,
    /// Lines of the last answer that could not be read.
    pub bad_lines: u32,
    /// The models that the last answer named.
    pub models: Vec<String>,
}

/// Polls a pool's replicas from a thread of its own until it is dropped, which waits for a fetch that is under way.
///
/// A sample is as of the moment before its fetch. A failure writes nothing: the replica's last sample grows old and stale.
#[derive(Debug)]
pub struct Poller {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
    states: States,
}

/// Written by the thread, read by all.
#[derive(Clone)]
struct States(Arc<[ArcCell<PollState>]>);

impl fmt::Debug for States {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(ArcCell::load)).finish()
    }
}

impl Poller {
    /// Fetches from all replicas at once, and then again and again. The clock is the one whose time the pool is read with.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(plan: PollPlan, pool: Arc<Reported>, clock: impl Clock) -> Result<Poller, StartError> {
        if plan.urls.len() != pool.replicas() {
            return Err(StartError::Replicas { urls: plan.urls.len(), replicas: pool.replicas() });
        }
        let path = *plan.dialect.paths().first().ok_or(StartError::NotPolled(plan.dialect))?;
        let replica = |(number, url): (usize, &String)| {
            let uri = address(url, path).ok_or(StartError::Url(number))?;
            Ok(Replica { number, uri, due: 0, failures: 0 })
        };
        let replicas = plan.urls.iter().enumerate().map(replica).collect::<Result<Vec<_>, StartError>>()?;
        let states = States(replicas.iter().map(|_| ArcCell::empty()).collect());
        let (stop, stopped) = channel();
        let agent = agent(&plan);
        let fetching = Fetching { plan, pool, clock, agent, states: states.clone(), replicas };
        let thread = std::thread::Builder::new().name("quota-poller".into()).spawn(move || fetching.run(&stopped))?;
        Ok(Poller { stop: Some(stop), thread: Some(thread), states })
    }

    /// How the polling of a replica goes; all zero before its first fetch has ended, `None` for one that there isn't.
    pub fn state(&self, replica: usize) -> Option<PollState> {
        let cell = self.states.0.get(replica)?;
        Some(cell.with(|state| state.map(|state| (**state).clone())).unwrap_or_default())
    }
}

impl Drop for Poller {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic in the thread has been reported by itself.
            let _ = thread.join();
        }
    }
}

/// The address to fetch from: `path` is added to one that has none.
fn address(url: &str, path: &str) -> Option<Uri> {
    let uri: Uri = url.parse().ok()?;
    let plain = uri.scheme_str() == Some("http") && !uri.authority()?.as_str().contains('@');
    if uri.path_and_query().is_some_and(|path| path.as_str() != "/") {
        return plain.then_some(uri);
    }
    let mut parts = uri.into_parts();
    parts.path_and_query = Some(path.parse().ok()?);
    Uri::from_parts(parts).ok().filter(|_| plain)
}

fn agent(plan: &PollPlan) -> ureq::Agent {
    let config = ureq::Agent::config_builder()
        .timeout_global(Some(plan.timeout))
        .timeout_connect(Some(plan.connect_timeout))
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        // A replica is near; what the environment says of proxies is meant for others.
        .proxy(None)
        .max_idle_connections(plan.urls.len())
        .max_idle_connections_per_host(1)
        .max_idle_age(plan.max_backoff.max(plan.interval).saturating_mul(2))
        .user_agent("quota-core");
    config.build().new_agent()
}

struct Replica {
    number: usize,
    uri: Uri,
    /// Nanoseconds of engine time.
    due: u64,
    failures: u32,
}

struct Fetching<C> {
    plan: PollPlan,
    pool: Arc<Reported>,
    clock: C,
    agent: ureq::Agent,
    states: States,
    replicas: Vec<Replica>,
}

impl<C: Clock> Fetching<C> {
    fn run(mut self, stopped: &Receiver<()>) {
        let mut replicas = std::mem::take(&mut self.replicas);
        while let Some(next) = replicas.iter_mut().min_by_key(|replica| replica.due) {
            let wait = next.due.saturating_sub(self.clock.now().mono);
            let stop = match wait {
                0 => stopped.try_recv() == Err(TryRecvError::Disconnected),
                _ => {
                    let nap = Duration::from_nanos(wait.clamp(NAP.0, NAP.1));
                    stopped.recv_timeout(nap) == Err(RecvTimeoutError::Disconnected)
                }
            };
            if stop {
                return;
            }
            if wait == 0 {
                self.turn(next);
            }
        }
    }

    /// Fetches once and says when next.
    fn turn(&self, replica: &mut Replica) {
        let started = self.clock.now();
        let mut state = PollState::default();
        let fault = match self.fetch(&replica.uri, &mut state) {
            Ok(load) => {
                self.pool.report(replica.number, load, started);
                None
            }
            Err(fault) => Some(fault),
        };
        replica.failures = if fault.is_some() { replica.failures.saturating_add(1) } else { 0 };
        let pause = pause(self.plan.interval, replica.failures, self.plan.max_backoff);
        replica.due = self.clock.now().mono.saturating_add(pause);
        (state.failures, state.fault) = (replica.failures, fault);
        let cell = &self.states.0[replica.number];
        state.fetches = cell.with(|before| before.map_or(0, |before| before.fetches)) + 1;
        cell.store(Some(Arc::new(state)));
    }

    fn fetch(&self, uri: &Uri, state: &mut PollState) -> Result<ReplicaLoad, PollFault> {
        let limit = self.plan.max_bytes.min(MAX_TEXT) as u64;
        let mut response = self.agent.get(uri).call().map_err(|error| fault_of(&error))?;
        let status = response.status().as_u16();
        if status != 200 {
            return Err(PollFault::Status(status));
        }
        let body = response.body_mut().with_config().limit(limit).read_to_vec().map_err(|error| fault_of(&error))?;
        let text = String::from_utf8_lossy(&body);
        let read = self.plan.dialect.read(&text, self.plan.model.as_deref()).map_err(|_| PollFault::Unreadable)?;
        (state.bad_lines, state.models) = (read.bad_lines, read.models);
        match read.load.is_empty() && self.plan.dialect.has_figures() {
            true => Err(PollFault::NoFigures),
            false => Ok(read.load),
        }
    }
}

fn fault_of(error: &ureq::Error) -> PollFault {
    match error {
        ureq::Error::Timeout(_) => PollFault::TimedOut,
        ureq::Error::BodyExceedsLimit(_) => PollFault::TooLong,
        _ => PollFault::Connection,
    }
}

/// Nanoseconds to the next fetch after so many failures in a row.
fn pause(interval: Duration, failures: u32, most: Duration) -> u64 {
    let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let interval = nanos(interval).max(NAP.0);
    let doubled = interval.saturating_mul(1 << failures.min(40));
    doubled.min(nanos(most).max(interval))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_within_bounds() {
        let (interval, most) = (Duration::from_millis(100), Duration::from_secs(1));
        let millis = [0, 1, 2, 3, 4, 60, u32::MAX].map(|failures| pause(interval, failures, most) / 1_000_000);
        assert_eq!(millis, [100, 200, 400, 800, 1000, 1000, 1000]);
        assert_eq!(pause(interval, 5, Duration::ZERO), 100_000_000, "never less than the interval");
        assert_eq!(pause(Duration::ZERO, 0, Duration::ZERO), 1_000_000);
        assert_eq!(pause(Duration::MAX, 9, Duration::MAX), u64::MAX);
    }

    #[test]
    fn addresses() {
        for (url, wanted) in [
            ("http://10.0.0.7:8000", Some("http://10.0.0.7:8000/metrics")),
            ("http://10.0.0.7:8000/", Some("http://10.0.0.7:8000/metrics")),
            ("http://a/v1/loads?format=prometheus", Some("http://a/v1/loads?format=prometheus")),
            ("http://[::1]:8000/x", Some("http://[::1]:8000/x")),
            ("https://a/metrics", None),
            ("http://name:word@a/metrics", None),
            ("a:8000", None),
            ("/metrics", None),
            ("", None),
        ] {
            assert_eq!(address(url, "/metrics").map(|uri| uri.to_string()).as_deref(), wanted, "{url}");
        }
    }

    #[test]
    fn what_can_not_start() {
        let start = |dialect, urls: &[&str]| {
            let pool = Arc::new(Reported::new(1, Duration::from_secs(1)));
            let plan = PollPlan::new(dialect, urls.iter().copied());
            Poller::start(plan, pool, crate::time::ManualClock::at(0)).map(drop).unwrap_err().to_string()
        };
        assert_eq!(start(Dialect::Vllm, &[]), "0 addresses for 1 replicas");
        assert_eq!(start(Dialect::Orca, &["http://a"]), "orca comes with responses and is not polled");
        let secret = start(Dialect::Vllm, &["http://name:word@a"]);
        assert_eq!(secret, "the address of replica 0 is not `http://host:port/path`");
    }
}
