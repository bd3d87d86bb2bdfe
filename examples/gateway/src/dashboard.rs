//! The dashboard: a page at `/`, and its figures once a second for as long as somebody watches.
//!
//! Invariant: the page holds no data and loads nothing from elsewhere; the figures need the admin key.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use axum::routing::get;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;

use crate::answer::{Fault, Manner};
use crate::figures::figures;
use crate::operator;
use crate::server::Gateway;

const PAGE: &str = include_str!("../dashboard/index.html");
const SCRIPT: &str = include_str!("../dashboard/dashboard.js");
const STYLE: &str = include_str!("../dashboard/dashboard.css");
/// Scripts and styles of the gateway's own only, none within the page, and no text that becomes markup.
const SECURITY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";
/// How often figures are sent.
const EVERY: Duration = Duration::from_secs(1);
/// How long a watcher may take to read them.
const READER: Duration = Duration::from_secs(30);
/// How many may watch at the same time: each costs a look at everything once a second.
const WATCHERS: usize = 16;

/// Who watches.
pub struct Dashboard {
    seats: Arc<Semaphore>,
    closing: watch::Sender<bool>,
}

impl Default for Dashboard {
    fn default() -> Dashboard {
        Dashboard { seats: Arc::new(Semaphore::new(WATCHERS)), closing: watch::Sender::new(false) }
    }
}

impl Dashboard {
    /// Ends the streams of all who watch, so that the process need not wait for them. Later ones end at once.
    pub fn close(&self) {
        self.closing.send_replace(true);
    }
}

pub(crate) fn routes() -> Router<Arc<Gateway>> {
    Router::new()
        .route("/", get(|| async { asset("text/html; charset=utf-8", PAGE) }))
        .route("/dashboard.js", get(|| async { asset("text/javascript; charset=utf-8", SCRIPT) }))
        .route("/dashboard.css", get(|| async { asset("text/css; charset=utf-8", STYLE) }))
        .route("/admin/dashboard/events", get(events))
}

fn asset(kind: &'static str, text: &'static str) -> Response {
    let mut response = Response::new(Body::from(text));
    for (name, value) in [
        (header::CONTENT_TYPE, kind),
        (header::CONTENT_SECURITY_POLICY, SECURITY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-cache"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// The figures as server-sent events, whole each time.
async fn events(State(gateway): State<Arc<Gateway>>, headers: HeaderMap) -> Response {
    if let Err(response) = operator::admit(&gateway, &headers) {
        return *response;
    }
    let Ok(seat) = gateway.dashboard.seats.clone().try_acquire_owned() else {
        let told = format!("{WATCHERS} watch the dashboard, the most that may.");
        return Manner::OpenAi.fault(&Fault::new(503, "dashboard_full", told).header("retry-after", "10"));
    };
    let (pieces, receiver) = mpsc::channel(1);
    tokio::spawn(show(gateway, seat, pieces));
    let events = ReceiverStream::new(receiver).map(Ok::<Bytes, std::convert::Infallible>);
    let mut response = Response::new(Body::from_stream(events));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Sends figures until the watcher leaves, reads too slowly, or the process stops.
async fn show(gateway: Arc<Gateway>, _seat: OwnedSemaphorePermit, pieces: mpsc::Sender<Bytes>) {
    let mut closing = gateway.dashboard.closing.subscribe();
    let mut beat = interval(EVERY);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = beat.tick() => {}
            () = pieces.closed() => return,
            _ = closing.wait_for(|closing| *closing) => return,
        }
        // Every tenant and open lease is looked at: not on a thread that requests wait for.
        let seen = gateway.clone();
        let Ok(figures) = tokio::task::spawn_blocking(move || figures(&seen)).await else { return };
        let sent = timeout(READER, pieces.send(format!("data: {figures}\n\n").into()));
        tokio::select! {
            sent = sent => if !matches!(sent, Ok(Ok(()))) { return },
            _ = closing.wait_for(|closing| *closing) => return,
        }
    }
}
