//! The simulated pool in time: an answer comes as fast as the replicas give its tokens.
//!
//! Invariant: one task drives the pool, and only while a request is inside; a run that is dropped leaves the pool.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use quota_core::gpu::simulated::{Event, Shape, SimulatedPool, SubmitError};
use quota_core::time::{Clock, SystemClock};
use tokio::sync::{Notify, watch};
use tokio::time::sleep;

/// Replicas for trying things out: an answer of 24 tokens takes some 30 ms, and a few clients fill the pool.
pub const QUICK: Shape = Shape {
    replicas: 2,
    max_running: 16,
    kv_tokens: 160_000,
    prefill_chunk: 8192,
    reserve_in_full: false,
    step: 1_000_000,
    per_prefill_token: 2_000,
    per_sequence: 20_000,
    per_resident_token: 1,
    progress_every: 1,
};

/// A simulated pool and who waits for its tokens.
pub(super) struct Pace {
    pub(super) pool: Arc<SimulatedPool>,
    pub(super) clock: Arc<SystemClock>,
    inside: Mutex<Inside>,
    /// Something may be due earlier than it was.
    earlier: Notify,
}

#[derive(Default)]
struct Inside {
    /// Where each request's tokens are counted.
    counts: HashMap<u64, watch::Sender<u64>>,
    next: u64,
    driven: bool,
}

/// A request inside; dropped, it leaves.
pub(super) struct Run {
    pace: Arc<Pace>,
    id: u64,
    out: watch::Receiver<u64>,
}

/// The replica of a run is gone.
#[derive(Debug)]
pub(super) struct Lost;

impl Pace {
    pub(super) fn new(shape: Shape) -> Pace {
        Pace {
            // Every token is told of.
            pool: Arc::new(SimulatedPool::new(Shape { progress_every: 1, ..shape })),
            clock: Arc::new(SystemClock::new()),
            inside: Mutex::default(),
            earlier: Notify::new(),
        }
    }

    /// Puts a request in.
    pub(super) fn submit(self: &Arc<Self>, input: u64, output: u64) -> Result<Run, SubmitError> {
        let mut inside = self.inside();
        let id = inside.next;
        self.pool.submit(self.clock.now(), id, input, output)?;
        inside.next += 1;
        let (count, out) = watch::channel(0);
        inside.counts.insert(id, count);
        if inside.driven {
            self.earlier.notify_one();
        } else {
            inside.driven = true;
            tokio::spawn(self.clone().drive());
        }
        Ok(Run { pace: self.clone(), id, out })
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets time pass in the pool until nobody is inside.
    async fn drive(self: Arc<Self>) {
        loop {
            self.pool.advance(self.clock.now(), |event| self.tell(event));
            {
                let mut inside = self.inside();
                if inside.counts.is_empty() {
                    inside.driven = false;
                    return;
                }
            }
            // While a request is inside, a step is under way.
            let due = self.pool.next_event().unwrap_or(u64::MAX);
            let left = Duration::from_nanos(due.saturating_sub(self.clock.now().mono));
            tokio::select! {
                () = sleep(left) => {}
                () = self.earlier.notified() => {}
            }
        }
    }

    fn tell(&self, event: Event) {
        let (id, out, ended) = match event {
            Event::FirstToken { id, .. } => (id, 1, false),
            Event::Progress { id, out, .. } => (id, out, false),
            Event::Finished { id, out, .. } => (id, out, true),
            // Its count ends where it is.
            Event::Lost { id, .. } => return drop(self.inside().counts.remove(&id)),
            Event::Prefilled { .. } | Event::Preempted { .. } => return,
        };
        let mut inside = self.inside();
        if let Some(count) = inside.counts.get(&id) {
            count.send_replace(out);
        }
        if ended {
            inside.counts.remove(&id);
        }
    }
}

impl Run {
    /// Waits until the answer has so many tokens.
    pub(super) async fn reached(&self, tokens: u64) -> Result<(), Lost> {
        self.out.clone().wait_for(|out| *out >= tokens).await.map(drop).map_err(|_| Lost)
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if self.pace.inside().counts.remove(&self.id).is_some() {
            self.pace.pool.cancel(self.pace.clock.now(), self.id);
            self.pace.earlier.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quota_core::gpu::GpuBackend;

    /// Two sequences of a replica that takes one are served one after the other; a third that leaves is not served.
    #[tokio::test]
    async fn who_is_inside_gets_its_tokens_in_time() {
        let pace = Arc::new(Pace::new(Shape { replicas: 1, max_running: 1, ..QUICK }));
        let began = pace.clock.now().mono;
        let [one, two, three] = [3, 2, 9].map(|output| pace.submit(10, output).unwrap());
        assert_eq!(pace.pool.load(pace.clock.now()).replicas[0].waiting, Some(2));
        drop(three);
        assert_eq!(pace.pool.load(pace.clock.now()).replicas[0].waiting, Some(1));
        two.reached(2).await.unwrap();
        one.reached(3).await.unwrap();
        assert!(pace.clock.now().mono - began >= 5 * QUICK.step);
        assert!(pace.inside().counts.is_empty() && one.reached(4).await.is_err());
        assert_eq!(pace.submit(QUICK.kv_tokens, 1).map(drop), Err(SubmitError::TooLong));
        // It is driven again after it was at rest, and a replica that goes takes its request along.
        let four = pace.submit(10, 1_000_000_000 / QUICK.step).unwrap();
        four.reached(1).await.unwrap();
        pace.pool.remove_replica(pace.clock.now(), 0);
        pace.earlier.notify_one();
        assert!(four.reached(u64::MAX).await.is_err());
    }
}
