//! Connections of askers: each belongs to one worker, a thread with connections to the upstream of its own.
//!
//! Invariant: a request stays with its worker, so that no socket of it wakes another thread.

use std::convert::Infallible;
use std::io;
use std::num::NonZeroUsize;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Method, Request};
use axum::response::Response;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinSet;
use tokio::time::{interval, sleep, timeout};

use crate::endpoint::Endpoint;
use crate::server::{Gateway, router};
use crate::upstream::Upstream;

/// How long a connection is kept on which no whole head of a request comes.
const HEAD: Duration = Duration::from_secs(75);
/// How long requests may go on after the signal to stop.
const GRACE: Duration = Duration::from_secs(10);
/// How often each worker looks at its clock: sooner than a call's first timer ends, which lasts a second mostly.
const TICK: Duration = Duration::from_millis(500);
/// How long no connection is taken where the system has no room for one.
const PAUSE: Duration = Duration::from_secs(1);

/// Serves a gateway on so many workers until it is asked to stop, and then lets requests come to their end.
///
/// # Errors
/// A worker can't be started, or a request had not ended in time.
pub async fn serve(
    listener: TcpListener,
    gateway: Arc<Gateway>,
    workers: NonZeroUsize,
    asked_to_stop: impl Future<Output = ()>,
) -> Result<(), String> {
    let started = (0..workers.get()).map(|_| Worker::start(&gateway)).collect::<io::Result<Vec<_>>>();
    let mut workers = started.map_err(|why| format!("no worker: {why}"))?;
    let mut stop = pin!(asked_to_stop);
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((connection, _)) => take(&workers, connection),
                Err(why) if is_of_one_connection(&why) => {}
                Err(_) => sleep(PAUSE).await,
            },
            () = &mut stop => break,
        }
    }
    drop(listener);
    gateway.dashboard.close();
    let ends: JoinSet<()> = workers.iter_mut().map(|worker| std::mem::take(&mut worker.open).shutdown()).collect();
    let late = |_| format!("requests were cut off {} s after the signal to stop", GRACE.as_secs());
    timeout(GRACE, ends.join_all()).await.map(drop).map_err(late)
}

/// Hands a connection to the worker with the fewest.
fn take(workers: &[Worker], connection: TcpStream) {
    // The pieces of a stream are small: each would wait for the acknowledgement of the one before. Where one of these
    // fails, the connection is broken already.
    let Ok(connection) = connection.set_nodelay(true).and_then(|()| connection.into_std()) else { return };
    if let Some(worker) = workers.iter().min_by_key(|worker| worker.open.count()) {
        worker.tasks.spawn(worker.desk.clone().attend(connection, worker.open.watcher()));
    }
}

/// Whether what failed is one connection, and the next one may be better.
fn is_of_one_connection(why: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(why.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

/// A thread and what it works on.
struct Worker {
    /// There until the worker is dropped.
    runtime: Option<Runtime>,
    tasks: Handle,
    desk: Arc<Desk>,
    open: GracefulShutdown,
}

impl Worker {
    fn start(gateway: &Arc<Gateway>) -> io::Result<Worker> {
        // Of one thread, which hands its tasks on to another while it is at work on a large body.
        let runtime = Builder::new_multi_thread().worker_threads(1).thread_name("worker").enable_all().build()?;
        let upstream = Arc::new(gateway.upstream.apart());
        let others = TowerToHyperService::new(router(gateway.clone()));
        let desk = Arc::new(Desk { gateway: gateway.clone(), upstream, others });
        let tasks = runtime.handle().clone();
        // A timer that ends before all others has the runtime woken by a system call, which each call's would be.
        tasks.spawn(async {
            let mut ticks = interval(TICK);
            loop {
                ticks.tick().await;
            }
        });
        Ok(Worker { runtime: Some(runtime), tasks, desk, open: GracefulShutdown::new() })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // To wait for its thread would hold up the one that drops it.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// What answers the requests of a worker.
struct Desk {
    gateway: Arc<Gateway>,
    upstream: Arc<Upstream>,
    /// The routes that spend nothing.
    others: TowerToHyperService<Router>,
}

impl Desk {
    async fn attend(self: Arc<Desk>, connection: std::net::TcpStream, watcher: Watcher) {
        let Ok(connection) = TcpStream::from_std(connection) else { return };
        let answers = service_fn(move |request| {
            let desk = self.clone();
            async move { Ok::<_, Infallible>(desk.answer(request).await) }
        });
        let mut http = http1::Builder::new();
        let served =
            http.timer(TokioTimer::new()).header_read_timeout(HEAD).serve_connection(TokioIo::new(connection), answers);
        // It fails where the asker breaks off or speaks no HTTP; nobody is there to be told.
        let _ = watcher.watch(served).await;
    }

    async fn answer(&self, request: Request<Incoming>) -> Response {
        match Endpoint::of(request.uri().path()).filter(|_| request.method() == Method::POST) {
            Some(endpoint) => {
                let (head, body) = request.into_parts();
                self.gateway.spend(endpoint, &self.upstream, head.headers, body).await
            }
            None => match self.others.call(request.map(Body::new)).await {
                Ok(response) => response,
                Err(never) => match never {},
            },
        }
    }
}
