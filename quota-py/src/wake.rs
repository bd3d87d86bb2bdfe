//! Waking: how who waits hears of its turn, in an event loop or in a thread.
//!
//! Invariant: a waker holds no lock while it asks for the interpreter, and who waits for one that may be at work has let
//! go of the interpreter.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};

use pyo3::prelude::*;

use crate::callback::attached;
use crate::convert::Count;

/// Has a loop call `set(future)`; called from any thread.
///
/// It keeps the future and so the task that waits, as whatever a task waits for does: one that nobody else keeps must not
/// vanish while it waits. A task whose loop is gone is therefore kept until its wait ends.
pub struct LoopWaker {
    pub call_soon_threadsafe: Py<PyAny>,
    pub set: Py<PyAny>,
    pub future: Py<PyAny>,
}

impl Wake for LoopWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Where the interpreter is going down nobody is there to be woken; nor where the loop is closed, which is all
        // that this call can fail with.
        attached(|py| self.call_soon_threadsafe.call1(py, (&self.set, &self.future)).is_ok());
    }
}

/// A thread that sleeps until it is woken.
#[derive(Default)]
pub struct Parker {
    woken: Mutex<bool>,
    changed: Condvar,
}

impl Parker {
    /// Sleeps for at most this long; not at all if it has been woken since the last time.
    pub fn park(&self, at_most: Duration) {
        let woken = self.woken.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(woken, at_most, |woken| !*woken);
        *waited.unwrap_or_else(PoisonError::into_inner).0 = false;
    }
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        *self.woken.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }
}

/// How long a thread sleeps before it looks whether a signal has come.
const SLICE: Duration = Duration::from_millis(50);

/// Sleeps until `due` says so, which registers the waker; `false` if the time was over before. Others run meanwhile.
pub fn sleep(
    py: Python<'_>,
    timeout_ms: Option<Count>,
    due: impl Fn(&mut Context<'_>) -> PyResult<bool>,
) -> PyResult<bool> {
    let parker = Arc::new(Parker::default());
    let waker = Waker::from(parker.clone());
    let until = timeout_ms.and_then(|timeout| Instant::now().checked_add(Duration::from_millis(timeout.0)));
    loop {
        if due(&mut Context::from_waker(&waker))? {
            return Ok(true);
        }
        let left = until.map_or(SLICE, |until| until.saturating_duration_since(Instant::now()).min(SLICE));
        if left.is_zero() {
            return Ok(false);
        }
        py.detach(|| parker.park(left));
        py.check_signals()?;
    }
}
