//! Jobs: the requests that a pool's round robin holds, waiting or dispatched, in one arena.
//!
//! Floor 2. Invariant: a queued job is in its flow's line unless it is set aside.

use super::ring::NONE;
use crate::work::{Tokens, WorkRates};

/// A job: a request that waits or is being served. An id whose job has left finds nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId {
    pub(super) at: u32,
    pub(super) generation: u32,
}

/// The most tokens that a job counts for in the pool's memory.
pub const MAX_KEPT: u64 = (1 << 24) - 1;

/// What a job is expected to take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Demand {
    /// The input, and the output that is expected (not the most that is allowed).
    pub tokens: Tokens,
    /// What a token of it takes.
    pub rates: WorkRates,
    /// Whether output will be reported while it is made. If so, half of what is expected is charged at the start, and
    /// the rest as it comes.
    pub reports_progress: bool,
}

impl Demand {
    /// What is charged when it is dispatched, in milli-units of work.
    pub fn charge(&self) -> u64 {
        let output = if self.reports_progress { self.tokens.output / 2 } else { self.tokens.output };
        Tokens { output, ..self.tokens }.work(&self.rates)
    }

    /// The tokens that it is expected to keep in memory on average, its input and half of its output; at most [`MAX_KEPT`].
    pub fn kept(&self) -> u64 {
        Tokens { output: self.tokens.output / 2, ..self.tokens }.kept().min(MAX_KEPT)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Free,
    /// In its flow's line.
    Queued,
    /// Out of its flow's line until it is brought back; its deadline goes on.
    Aside,
    Dispatched,
}

/// Where the entry is that a job has among its lane's deadlines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Filed {
    Not,
    /// In the line by arrival, whether the job waits or not.
    InLine,
    /// Among the others; only while it waits.
    Aside,
}

#[derive(Debug)]
pub(super) struct Job<T> {
    pub(super) item: Option<T>,
    generation: u32,
    pub(super) flow: u32,
    /// In the flow's line.
    next: u32,
    prev: u32,
    pub(super) state: State,
    pub(super) filed: Filed,
    pub(super) demand: Demand,
    /// Milli-units of work charged so far.
    pub(super) charged: u64,
    /// Output reported so far, in tokens.
    pub(super) seen: u32,
    /// Tokens that the valve counts for it, at most [`MAX_KEPT`].
    pub(super) kept: u32,
    /// Its place in the order of arrival, wrapping.
    number: u32,
    /// Nanoseconds of engine time.
    pub(super) arrived: u64,
    pub(super) deadline: u64,
}

/// The ends of a line of jobs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ends {
    pub(super) head: u32,
    tail: u32,
}

impl Default for Ends {
    fn default() -> Ends {
        Ends { head: NONE, tail: NONE }
    }
}

#[derive(Debug)]
pub(super) struct Jobs<T> {
    slots: Vec<Job<T>>,
    free: u32,
    most: usize,
    /// Jobs that were ever put in, wrapping.
    arrivals: u32,
}

impl<T> std::ops::Index<u32> for Jobs<T> {
    type Output = Job<T>;

    fn index(&self, at: u32) -> &Job<T> {
        &self.slots[at as usize]
    }
}

impl<T> std::ops::IndexMut<u32> for Jobs<T> {
    fn index_mut(&mut self, at: u32) -> &mut Job<T> {
        &mut self.slots[at as usize]
    }
}

impl<T> Jobs<T> {
    pub(super) fn new(most: usize) -> Jobs<T> {
        Jobs { slots: Vec::new(), free: NONE, most: most.min(NONE as usize), arrivals: 0 }
    }

    /// Puts a job into the arena, in no line yet; gives the item back if the arena is full.
    pub(super) fn insert(&mut self, item: T, flow: u32, demand: Demand, now: u64, deadline: u64) -> Result<u32, T> {
        let at = match self.free {
            NONE if self.slots.len() >= self.most => return Err(item),
            NONE => self.slots.len() as u32,
            free => free,
        };
        let generation = match self.slots.get(at as usize) {
            Some(slot) => slot.generation,
            None => 0,
        };
        let job = Job {
            item: Some(item),
            generation,
            flow,
            next: NONE,
            prev: NONE,
            state: State::Queued,
            filed: Filed::Not,
            demand,
            charged: 0,
            seen: 0,
            kept: demand.kept() as u32,
            number: self.arrivals,
            arrived: now,
            deadline,
        };
        match self.slots.get_mut(at as usize) {
            Some(slot) => {
                self.free = slot.next;
                *slot = job;
            }
            None => self.slots.push(job),
        }
        self.arrivals = self.arrivals.wrapping_add(1);
        Ok(at)
    }

    pub(super) fn id(&self, at: u32) -> JobId {
        JobId { at, generation: self[at].generation }
    }

    /// The place of a job that has not left.
    pub(super) fn find(&self, id: JobId) -> Option<u32> {
        let job = self.slots.get(id.at as usize)?;
        (job.generation == id.generation && job.state != State::Free).then_some(id.at)
    }

    /// Takes a job that is in no line out of the arena.
    pub(super) fn remove(&mut self, at: u32) -> Option<T> {
        let free = self.free;
        let job = &mut self[at];
        job.generation = job.generation.wrapping_add(1);
        job.state = State::Free;
        job.next = free;
        let item = job.item.take();
        self.free = at;
        item
    }

    pub(super) fn push_back(&mut self, line: &mut Ends, at: u32) {
        (self[at].prev, self[at].next) = (line.tail, NONE);
        match line.tail {
            NONE => line.head = at,
            tail => self[tail].next = at,
        }
        line.tail = at;
    }

    /// Puts a job back into a line by its arrival. It belongs near the head: those before it came back too.
    pub(super) fn put_back(&mut self, line: &mut Ends, at: u32) {
        let earlier = |jobs: &Jobs<T>, other: u32| (jobs[other].number.wrapping_sub(jobs[at].number) as i32) < 0;
        let (mut before, mut next) = (NONE, line.head);
        while next != NONE && earlier(self, next) {
            (before, next) = (next, self[next].next);
        }
        (self[at].prev, self[at].next) = (before, next);
        match before {
            NONE => line.head = at,
            before => self[before].next = at,
        }
        match next {
            NONE => line.tail = at,
            next => self[next].prev = at,
        }
    }

    pub(super) fn unlink(&mut self, line: &mut Ends, at: u32) {
        let (prev, next) = (self[at].prev, self[at].next);
        match prev {
            NONE => line.head = next,
            prev => self[prev].next = next,
        }
        match next {
            NONE => line.tail = prev,
            next => self[next].prev = prev,
        }
    }

    /// Whether this job is there and waits.
    pub(super) fn waits(&self, id: JobId) -> bool {
        self.find(id).is_some_and(|at| self[at].state != State::Dispatched)
    }

    /// Notes that the job, if it is still there, has no entry among the deadlines any more.
    pub(super) fn forget_entry(&mut self, id: JobId) {
        if let Some(at) = self.find(id) {
            self[at].filed = Filed::Not;
        }
    }
}

impl JobId {
    /// Both halves in one word.
    pub(in crate::scheduler) fn pack(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.at)
    }

    pub(in crate::scheduler) fn unpack(word: u64) -> JobId {
        JobId { at: word as u32, generation: (word >> 32) as u32 }
    }
}
