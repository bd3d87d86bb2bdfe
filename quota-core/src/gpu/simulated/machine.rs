//! The simulated pool itself: replicas that step at moments of their own, driven by whoever holds the clock.
//!
//! Floor 2. Invariant: the same calls give the same events, and every submitted request ends exactly once.

use std::collections::HashMap;
use std::fmt;

use super::replica::{Replica, Sequence};
use super::{Event, Shape};
use crate::gpu::Load;

/// Why a request can't be taken in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SubmitError {
    /// It would never fit into a replica's memory.
    TooLong,
    /// The pool has no replica.
    NoReplica,
    /// A request with this id is inside already.
    Duplicate,
}

impl fmt::Display for SubmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SubmitError::TooLong => "prompt and answer are longer than a replica's memory",
            SubmitError::NoReplica => "the pool has no replica",
            SubmitError::Duplicate => "a request with this id is in the pool",
        })
    }
}

impl std::error::Error for SubmitError {}

/// A pool of replicas as a machine of discrete events, with continuous batching at the granularity of a step.
///
/// It has no clock: the host hands in moments, in nanoseconds that never fall, and goes from event to event.
///
/// ```
/// use quota_core::gpu::simulated::{Event, Shape, Simulator};
///
/// let mut pool = Simulator::new(Shape::P4);
/// pool.submit(0, 7, 1000, 3)?;
/// let mut events = Vec::new();
/// while let Some(at) = pool.next_event() {
///     pool.advance(at, &mut |event| events.push(event));
/// }
/// // A step of 12 ms and 0.06 ms for each of a thousand prompt tokens.
/// assert_eq!(events[1], Event::FirstToken { id: 7, at: 72_000_000 });
/// assert!(matches!(events.last(), Some(Event::Finished { id: 7, out: 3, .. })));
/// # Ok::<(), quota_core::gpu::simulated::SubmitError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Simulator {
    shape: Shape,
    /// A replica that was taken away leaves an empty place, so that the others keep theirs.
    replicas: Vec<Option<Replica>>,
    /// Where each request is.
    places: HashMap<u64, usize>,
    /// The latest moment that was handed in.
    clock: u64,
    /// Kept for its memory.
    done: Vec<u64>,
}

impl Simulator {
    /// An empty pool.
    pub fn new(shape: Shape) -> Simulator {
        let replicas = (0..shape.replicas).map(|_| Some(Replica::default())).collect();
        Simulator { shape, replicas, places: HashMap::new(), clock: 0, done: Vec::new() }
    }

    /// What the pool is made of; `replicas` is how many it started with.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Replicas that are there now.
    pub fn replicas(&self) -> usize {
        self.replicas.iter().flatten().count()
    }

    /// Requests inside.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether no request is inside.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Gives a request to the least loaded replica: the one whose batch or memory, whichever is fuller, is the least full with
    /// all that waits for it. Events up to `now` have to be taken first, by [`advance`](Self::advance).
    ///
    /// # Errors
    /// It does not fit into any replica, there is none, or the id is in use.
    pub fn submit(&mut self, now: u64, id: u64, input: u64, output: u64) -> Result<(), SubmitError> {
        self.clock = self.clock.max(now);
        if input.max(1).saturating_add(output.max(1)) > self.shape.kv_tokens {
            return Err(SubmitError::TooLong);
        }
        if self.places.contains_key(&id) {
            return Err(SubmitError::Duplicate);
        }
        let there =
            self.replicas.iter_mut().enumerate().filter_map(|(place, replica)| Some((place, replica.as_mut()?)));
        let (place, replica) =
            there.min_by_key(|(place, replica)| (replica.fill(&self.shape), *place)).ok_or(SubmitError::NoReplica)?;
        self.places.insert(id, place);
        replica.push(Sequence::new(id, input, output), self.clock, &self.shape);
        Ok(())
    }

    /// Lets a request go; gives how many tokens its answer had, or nothing where no such request is inside.
    ///
    /// Its memory is free at once; the step that it is part of takes as long as it would have.
    pub fn cancel(&mut self, now: u64, id: u64) -> Option<u64> {
        self.clock = self.clock.max(now);
        let place = self.places.remove(&id)?;
        let sequence = self.replicas[place].as_mut()?.remove(id, &self.shape)?;
        Some(sequence.out)
    }

    /// When something happens next, if nothing else is done.
    pub fn next_event(&self) -> Option<u64> {
        self.next_step().map(|(at, _)| at)
    }

    /// The step that ends first; of two at the same moment that of the earlier replica.
    fn next_step(&self) -> Option<(u64, usize)> {
        let ends = |(place, replica): (usize, &Option<Replica>)| Some((replica.as_ref()?.ends?, place));
        self.replicas.iter().enumerate().filter_map(ends).min()
    }

    /// Lets time pass up to `to`, and tells of all that happens, in the order in which it does.
    pub fn advance(&mut self, to: u64, on: &mut impl FnMut(Event)) {
        while let Some((at, place)) = self.next_step().filter(|(at, _)| *at <= to) {
            let Some(replica) = self.replicas[place].as_mut() else { break };
            replica.end(at, &self.shape, &mut self.done, on);
            for id in self.done.drain(..) {
                self.places.remove(&id);
            }
            replica.begin(at, &self.shape, on);
        }
        self.clock = self.clock.max(to);
    }

    /// Adds an empty replica.
    pub fn add_replica(&mut self) {
        match self.replicas.iter_mut().find(|replica| replica.is_none()) {
            Some(place) => *place = Some(Replica::default()),
            None => self.replicas.push(Some(Replica::default())),
        }
    }

    /// Takes the replica at this place away, with all that is in it; tells of each request that is lost.
    pub fn remove_replica(&mut self, now: u64, place: usize, on: &mut impl FnMut(Event)) {
        self.clock = self.clock.max(now);
        let Some(replica) = self.replicas.get_mut(place).and_then(Option::take) else { return };
        for sequence in replica.into_sequences() {
            self.places.remove(&sequence.id);
            on(Event::Lost { id: sequence.id, out: sequence.out, at: self.clock });
        }
    }

    /// How full each replica is.
    pub fn load(&self, now: u64) -> Load {
        Load { replicas: self.replicas.iter().flatten().map(|replica| replica.load(now, &self.shape)).collect() }
    }

    /// That the books are right, for tests.
    #[cfg(test)]
    pub(super) fn check(&self) {
        self.replicas.iter().flatten().for_each(|replica| replica.check(&self.shape));
        assert_eq!(self.places.len(), self.replicas.iter().flatten().map(|replica| replica.len()).sum::<usize>());
    }
}
