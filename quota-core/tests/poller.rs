//! The poller against servers on the loopback: good, slow, cut off, refusing, too long, gone and back.
#![cfg(feature = "poller")]

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use quota_core::gpu::{Dialect, GpuBackend, ReplicaLoad, Reported};
use quota_core::poller::{PollFault, PollPlan, PollState, Poller};
use quota_core::time::{Clock, ManualClock, SystemClock};

/// How long anything may take before the test fails; nothing waits that long.
const PATIENCE: Duration = Duration::from_secs(20);

const METRICS: &str = "vllm:num_requests_running{model_name=\"a\"} 3\nvllm:kv_cache_usage_perc{model_name=\"a\"} 0.5\n";

/// What the server does with the next request.
#[derive(Clone)]
enum Answer {
    /// A status, headers and a body of the length that it says.
    Whole(u16, String),
    /// Says more bytes than come, and closes.
    Cut(String),
    /// The head, then a byte now and then.
    Trickle,
    /// Nothing; the connection stays open.
    Silence,
}

/// A server that answers each request as it has been told last.
struct Server {
    address: SocketAddr,
    answer: Arc<Mutex<Answer>>,
    paths: Arc<Mutex<Vec<String>>>,
    connections: Arc<AtomicU32>,
    requests: Arc<AtomicU32>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    fn start(answer: Answer) -> Server {
        Server::at(SocketAddr::from(([127, 0, 0, 1], 0)), answer)
    }

    fn at(address: SocketAddr, answer: Answer) -> Server {
        let listener = TcpListener::bind(address).unwrap();
        let mut server = Server {
            address: listener.local_addr().unwrap(),
            answer: Arc::new(Mutex::new(answer)),
            paths: Arc::default(),
            connections: Arc::default(),
            requests: Arc::default(),
            stop: Arc::default(),
            thread: None,
        };
        let (answer, paths) = (server.answer.clone(), server.paths.clone());
        let (connections, requests, stop) = (server.connections.clone(), server.requests.clone(), server.stop.clone());
        server.thread = Some(std::thread::spawn(move || {
            let mut threads = Vec::new();
            for stream in listener.incoming() {
                if stop.load(Ordering::SeqCst) {
                    break;
                }
                let Ok(stream) = stream else { continue };
                connections.fetch_add(1, Ordering::SeqCst);
                stream.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
                let (answer, paths, requests, stop) = (answer.clone(), paths.clone(), requests.clone(), stop.clone());
                threads.push(std::thread::spawn(move || serve(stream, &answer, &paths, &requests, &stop)));
            }
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        }));
        server
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    fn now_answers(&self, answer: Answer) {
        *self.answer.lock().unwrap() = answer;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

/// The path of the next request on a connection; `None` when it is closed or the server stops.
fn request(reader: &mut BufReader<TcpStream>, stop: &AtomicBool) -> Option<String> {
    let (mut head, mut line) = (Vec::new(), String::new());
    while !stop.load(Ordering::SeqCst) {
        match reader.read_line(&mut line) {
            Ok(0) => return None,
            Ok(_) if line.trim().is_empty() => {
                let first: &String = head.first()?;
                return first.split(' ').nth(1).map(str::to_owned);
            }
            Ok(_) => head.push(std::mem::take(&mut line)),
            Err(error) if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {}
            Err(_) => return None,
        }
    }
    None
}

fn serve(
    stream: TcpStream,
    answer: &Mutex<Answer>,
    paths: &Mutex<Vec<String>>,
    requests: &AtomicU32,
    stop: &AtomicBool,
) {
    let mut writer = stream.try_clone().unwrap();
    let mut reader = BufReader::new(stream);
    while let Some(path) = request(&mut reader, stop) {
        requests.fetch_add(1, Ordering::SeqCst);
        paths.lock().unwrap().push(path);
        let answer = answer.lock().unwrap().clone();
        let head = |status: u16, length: usize| {
            format!("HTTP/1.1 {status} It\r\ncontent-type: text/plain\r\ncontent-length: {length}\r\n\r\n")
        };
        // Whether the poller still listens is not this side's concern.
        let _ = match answer {
            Answer::Whole(status, body) => writer.write_all(format!("{}{body}", head(status, body.len())).as_bytes()),
            Answer::Cut(body) => {
                let _ = writer.write_all(format!("{}{body}", head(200, body.len() + 10)).as_bytes());
                return;
            }
            Answer::Trickle => {
                let _ = writer.write_all(head(200, 1 << 20).as_bytes());
                while !stop.load(Ordering::SeqCst) && writer.write_all(b"#").is_ok() {
                    // Reading is the wait: up to 10 ms, unless the other side has closed.
                    if let Ok(0) = reader.fill_buf().map(<[u8]>::len) {
                        return;
                    }
                }
                Ok(())
            }
            Answer::Silence => Ok(()),
        };
    }
}

fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::yield_now();
    }
}

fn plan(urls: &[String]) -> PollPlan {
    let mut plan = PollPlan::new(Dialect::Vllm, urls);
    plan.interval = Duration::from_millis(5);
    plan.max_backoff = Duration::from_millis(40);
    plan.timeout = Duration::from_millis(300);
    plan
}

fn pool(replicas: u16) -> Arc<Reported> {
    Arc::new(Reported::new(replicas, Duration::from_secs(3600)))
}

/// The newest sample, or nothing if none has come.
fn sample(pool: &Reported, replica: usize, clock: &impl Clock) -> Option<ReplicaLoad> {
    pool.load(clock.now()).replicas.into_iter().nth(replica).filter(|load| !load.stale)
}

fn started(plan: PollPlan, pool: &Arc<Reported>) -> (Poller, Arc<SystemClock>) {
    let clock = Arc::new(SystemClock::new());
    (Poller::start(plan, pool.clone(), clock.clone()).unwrap(), clock)
}

/// Waits until a fetch that began after this call has ended with this fault.
fn until_fault(poller: &Poller, fault: Option<PollFault>) -> PollState {
    let before = poller.state(0).unwrap().fetches;
    // The fetch that was under way may have had the answer before.
    until(&format!("{fault:?}"), || poller.state(0).filter(|state| state.fetches > before + 1 && state.fault == fault))
}

#[test]
fn what_servers_tell_arrives() {
    let a = Server::start(Answer::Whole(200, METRICS.into()));
    let b =
        Server::start(Answer::Whole(200, format!("{METRICS}junk\nvllm:num_requests_waiting{{model_name=\"b\"}} 9\n")));
    let pool = pool(2);
    let mut plan = plan(&[a.url(), b.url() + "/other?x=1"]);
    plan.model = Some("a".into());
    let (poller, clock) = started(plan, &pool);
    for replica in 0..2 {
        let load = until("a sample", || sample(&pool, replica, &*clock));
        assert_eq!((load.running, load.waiting, load.kv_used_ppm), (Some(3), None, Some(500_000)));
        assert!(load.as_of.is_some_and(|as_of| as_of <= clock.now().mono));
    }
    let state = until("its state", || poller.state(1).filter(|state| state.fetches > 0));
    assert_eq!((state.fault, state.failures, state.bad_lines), (None, 0, 1));
    assert_eq!(state.models, ["a", "b"]);
    a.now_answers(Answer::Whole(200, METRICS.replace("} 3", "} 4")));
    until("the next sample", || sample(&pool, 0, &*clock).filter(|load| load.running == Some(4)));
    until("some fetches", || (a.requests.load(Ordering::SeqCst) > 5).then_some(()));
    assert_eq!(a.connections.load(Ordering::SeqCst), 1, "one connection for all");
    assert_eq!((&*a.paths.lock().unwrap()[0], &*b.paths.lock().unwrap()[0]), ("/metrics", "/other?x=1"));
    assert_eq!(poller.state(2), None);
}

#[test]
fn a_failure_writes_nothing_and_is_told() {
    let server = Server::start(Answer::Whole(200, METRICS.into()));
    let pool = pool(1);
    let mut plan = plan(&[server.url()]);
    plan.max_bytes = 4096;
    let (poller, clock) = started(plan, &pool);
    let good = Answer::Whole(200, METRICS.into());
    for (answer, fault) in [
        (Answer::Whole(500, METRICS.replace("} 3", "} 9")), PollFault::Status(500)),
        (Answer::Whole(302, METRICS.replace("} 3", "} 9")), PollFault::Status(302)),
        (Answer::Whole(200, format!("{}{METRICS}", "#\n".repeat(4096))), PollFault::TooLong),
        (Answer::Whole(200, "<html>".into()), PollFault::NoFigures),
        (Answer::Cut(METRICS.replace("} 3", "} 9")), PollFault::Connection),
        (Answer::Trickle, PollFault::TimedOut),
        (Answer::Silence, PollFault::TimedOut),
    ] {
        server.now_answers(answer);
        until_fault(&poller, Some(fault));
        // The sample of before the fault, and not what came with it.
        let before = sample(&pool, 0, &*clock).unwrap_or_default();
        assert_ne!(before.running, Some(9), "{fault}");
        server.now_answers(good.clone());
        assert_eq!(until_fault(&poller, None).failures, 0, "after {fault}");
        let after = sample(&pool, 0, &*clock).unwrap();
        assert!(after.as_of > before.as_of && after.running == Some(3), "after {fault}");
    }
}

#[test]
fn a_server_that_went_away_is_found_again() {
    let server = Server::start(Answer::Whole(200, METRICS.into()));
    let (pool, address) = (pool(1), server.address);
    let (poller, clock) = started(plan(&[server.url()]), &pool);
    until("a sample", || sample(&pool, 0, &*clock));
    drop(server);
    let state = until_fault(&poller, Some(PollFault::Connection));
    assert!(state.failures > 0);
    let _back = Server::at(address, Answer::Whole(200, METRICS.replace("} 3", "} 8")));
    until("the sample after it", || sample(&pool, 0, &*clock).filter(|load| load.running == Some(8)));
}

#[test]
fn a_server_without_figures_is_there() {
    let server = Server::start(Answer::Whole(200, r#"{"models":[{"name":"acme:8b"}]}"#.into()));
    let pool = pool(1);
    let mut plan = plan(&[server.url()]);
    plan.dialect = Dialect::Ollama;
    let (poller, clock) = started(plan, &pool);
    let load = until("a sample", || sample(&pool, 0, &*clock));
    assert!(load.is_empty() && !load.stale, "{load:?}");
    let state = until("its state", || poller.state(0).filter(|state| state.fetches > 0));
    assert_eq!((state.fault, &*state.models), (None, &["acme:8b".to_owned()][..]));
    server.now_answers(Answer::Whole(200, "Ollama is running".into()));
    until_fault(&poller, Some(PollFault::Unreadable));
}

/// The thread fetches when its clock says so: one that stands still has the first fetch only.
#[test]
fn the_clock_says_when() {
    let server = Server::start(Answer::Whole(500, String::new()));
    let (pool, clock) = (pool(1), Arc::new(ManualClock::at(1_000_000_000)));
    let mut plan = plan(&[server.url()]);
    plan.interval = Duration::from_millis(100);
    plan.max_backoff = Duration::from_secs(3600);
    let poller = Poller::start(plan, pool, clock.clone()).unwrap();
    let fetches = || poller.state(0).map_or(0, |state| state.fetches);
    for failures in 1..6 {
        until("a fetch", || (fetches() == failures).then_some(()));
        // After so many failures the pause is 100 ms × 2^failures; a nanosecond before its end there is no fetch.
        let pause = Duration::from_millis(100 << failures);
        clock.advance(pause - Duration::from_nanos(1));
        assert_eq!(fetches(), failures);
        clock.advance(Duration::from_nanos(1));
    }
    until("the last fetch", || (fetches() == 6).then_some(()));
    assert_eq!(server.requests.load(Ordering::SeqCst), 6);
}

/// Far from the next fetch.
#[test]
fn dropping_stops_at_once() {
    let server = Server::start(Answer::Whole(200, METRICS.into()));
    let pool = pool(1);
    let mut plan = plan(&[server.url()]);
    plan.interval = Duration::from_secs(3600);
    let (poller, clock) = started(plan, &pool);
    until("a sample", || sample(&pool, 0, &*clock));
    let before = Instant::now();
    drop(poller);
    assert!(before.elapsed() < PATIENCE);
    assert_eq!(server.requests.load(Ordering::SeqCst), 1);
    assert_eq!(Arc::strong_count(&pool), 1, "the thread is gone");
}
