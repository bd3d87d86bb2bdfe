//! The keeper: the one thread that sweeps, for hosts that have no loop of their own.
//!
//! Floor 3. Invariant: it only calls what the host could call itself, and stops when it is dropped.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::task::{Wake, Waker};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::gate::Gate;
use crate::store::Memory;

/// Leases ended in one turn.
const AT_MOST: usize = 4096;

/// Sweeps a gate from a thread of its own until it is dropped: every interval, and when somebody in a queue has waited as
/// long as may be or tries again.
#[derive(Debug)]
pub struct Keeper {
    tell: Sender<Told>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    /// Something in a queue is due earlier than it was.
    Earlier,
    Stop,
}

/// Wakes the thread; called by whoever lines up.
struct Alarm(Sender<Told>);

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        // The thread may have stopped: nobody is there to be woken.
        let _ = self.0.send(Told::Earlier);
    }
}

impl Keeper {
    /// Sweeps every `interval` (a second is usual: the timing wheel's tick).
    ///
    /// # Errors
    /// The operating system gives no thread.
    pub fn start(gate: Gate<Memory>, interval: Duration) -> std::io::Result<Keeper> {
        let (tell, told) = channel();
        let alarm = Waker::from(Arc::new(Alarm(tell.clone())));
        let thread = std::thread::Builder::new().name("quota-keeper".into()).spawn(move || {
            while !sleep(&gate, &told, &alarm, interval) {
                // A full turn means that more may be due.
                while gate.sweep(AT_MOST) == AT_MOST {}
            }
        })?;
        Ok(Keeper { tell, thread: Some(thread) })
    }
}

/// Sleeps until the interval is over or something is due; tells whether to stop.
fn sleep(gate: &Gate<Memory>, told: &Receiver<Told>, alarm: &Waker, interval: Duration) -> bool {
    let end = gate.now().mono.saturating_add(u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX));
    // Before the look, so that what becomes due after it is told.
    gate.alarm(alarm);
    loop {
        let until = gate.next_due().map_or(end, |due| due.min(end));
        let left = Duration::from_nanos(until.saturating_sub(gate.now().mono)).min(interval);
        match told.recv_timeout(left) {
            Ok(Told::Earlier) => {}
            Ok(Told::Stop) | Err(RecvTimeoutError::Disconnected) => return true,
            Err(RecvTimeoutError::Timeout) => return false,
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // It fails if the thread has ended already.
        let _ = self.tell.send(Told::Stop);
        if let Some(thread) = self.thread.take() {
            // The thread ends at once; a panic in it has been reported by itself.
            let _ = thread.join();
        }
    }
}
