//! The keeper: the one thread that sweeps, for hosts that have no loop of their own.
//!
//! Floor 3. Invariant: it only calls what the host could call itself, and stops when it is dropped.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::gate::Gate;
use crate::store::Memory;

/// Leases ended in one turn.
const AT_MOST: usize = 4096;

/// Sweeps a gate from a thread of its own until it is dropped.
#[derive(Debug)]
pub struct Keeper {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    /// Sweeps every `interval` (a second is usual: the timing wheel's tick).
    ///
    /// # Errors
    /// The operating system gives no thread.
    pub fn start(gate: Gate<Memory>, interval: Duration) -> std::io::Result<Keeper> {
        let (stop, stopped) = channel::<()>();
        let thread = std::thread::Builder::new().name("quota-keeper".into()).spawn(move || {
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(interval) {
                // A full turn means that more may be due.
                while gate.sweep(AT_MOST) == AT_MOST {}
            }
        })?;
        Ok(Keeper { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // The thread ends at once; a panic in it has been reported by itself.
            let _ = thread.join();
        }
    }
}
