//! Held: who is out of turn because a limit of its own had no room, until something is given back there or some time has passed.
//!
//! Floor 2. Invariant: those that are held for a scope try again in the order in which they arrived, a few at a time; a scope
//! for which anyone is held has a time at which the next will.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::drr::{FlowId, JobId};
use crate::sync::{AtomicU32, Ordering};

/// A flow whose turn is suspended, or one job of a flow that goes on without it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Who {
    Flow(FlowId),
    Job(JobId),
}

#[derive(Debug)]
struct Scope {
    /// By arrival; a flow that has tried goes behind the others.
    waiting: BTreeMap<u64, Who>,
    /// When the next try, in nanoseconds of engine time.
    due: u64,
}

#[derive(Debug)]
struct Entry {
    scope: Arc<str>,
    order: u64,
    /// The part of the tenants' [`Names`] that it is counted in.
    part: usize,
}

#[derive(Debug, Default)]
pub(super) struct Held {
    entries: HashMap<Who, Entry, ahash::RandomState>,
    scopes: HashMap<Arc<str>, Scope, ahash::RandomState>,
    by_due: BTreeSet<(u64, Arc<str>)>,
    hints: Arc<Hints>,
}

impl Held {
    pub(super) fn new(hints: Arc<Hints>) -> Held {
        Held { hints, ..Held::default() }
    }

    /// Holds someone of a tenant for a scope, in the place that its arrival gives it; the scope's next try is at `due` at the latest.
    pub(super) fn insert(&mut self, who: Who, scope: &Arc<str>, order: u64, due: u64, tenant: &str) {
        self.remove(who);
        let part = Names::part(tenant);
        self.hints.tenants.add(part, 1);
        self.entries.insert(who, Entry { scope: scope.clone(), order, part });
        let new = || {
            self.hints.scopes.add(Names::part(scope), 1);
            Scope { waiting: BTreeMap::new(), due: u64::MAX }
        };
        let state = self.scopes.entry(scope.clone()).or_insert_with(new);
        state.waiting.insert(order, who);
        let due = due.min(state.due);
        self.set_due(scope, due);
    }

    pub(super) fn remove(&mut self, who: Who) {
        let Some(Entry { scope, order, part }) = self.entries.remove(&who) else { return };
        self.hints.tenants.add(part, -1);
        let Some(state) = self.scopes.get_mut(&scope) else { return };
        state.waiting.remove(&order);
        if state.waiting.is_empty() {
            self.by_due.remove(&(state.due, scope.clone()));
            self.scopes.remove(&scope);
            self.hints.scopes.add(Names::part(&scope), -1);
        }
    }

    /// Who of a scope tries next: a job, which is no longer held then, or a flow, which is and goes behind the others.
    pub(super) fn next_of(&mut self, scope: &Arc<str>, behind: u64) -> Option<Who> {
        let state = self.scopes.get_mut(scope)?;
        let (&order, &who) = state.waiting.first_key_value()?;
        match who {
            Who::Job(_) => self.remove(who),
            Who::Flow(_) => {
                state.waiting.remove(&order);
                state.waiting.insert(behind, who);
                if let Some(entry) = self.entries.get_mut(&who) {
                    entry.order = behind;
                }
            }
        }
        Some(who)
    }

    /// The scope that is held for, where someone is.
    pub(super) fn scope_of(&self, who: Who) -> Option<&Arc<str>> {
        self.entries.get(&who).map(|entry| &entry.scope)
    }

    /// A scope whose time to try has come; the next is at `then`.
    pub(super) fn pop_due(&mut self, now: u64, then: u64) -> Option<Arc<str>> {
        let (_, scope) = self.by_due.first().filter(|(due, _)| *due <= now)?;
        let scope = scope.clone();
        self.set_due(&scope, then);
        Some(scope)
    }

    /// When the first scope is due.
    pub(super) fn next_due(&self) -> Option<u64> {
        self.by_due.first().map(|(due, _)| *due)
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Brings a scope's next try forward to `due`.
    pub(super) fn hasten(&mut self, scope: &Arc<str>, due: u64) {
        if self.scopes.get(scope).is_some_and(|state| due < state.due) {
            self.set_due(scope, due);
        }
    }

    fn set_due(&mut self, scope: &Arc<str>, due: u64) {
        if let Some(state) = self.scopes.get_mut(scope) {
            self.by_due.remove(&(state.due, scope.clone()));
            state.due = due;
            self.by_due.insert((due, scope.clone()));
        }
    }
}

/// Jobs that try for a scope that they or their flows were held for: from being let try to what comes of it.
#[derive(Debug, Default)]
pub(super) struct Trying {
    jobs: HashMap<JobId, Arc<str>, ahash::RandomState>,
    /// How many there are, by scope.
    scopes: HashMap<Arc<str>, usize, ahash::RandomState>,
}

impl Trying {
    /// Notes a job, unless it tries for something already; tells whether it was noted.
    pub(super) fn insert(&mut self, job: JobId, scope: Arc<str>) -> bool {
        if self.jobs.contains_key(&job) {
            return false;
        }
        *self.scopes.entry(scope.clone()).or_default() += 1;
        self.jobs.insert(job, scope);
        true
    }

    /// The scope that a job tried for.
    pub(super) fn remove(&mut self, job: JobId) -> Option<Arc<str>> {
        let scope = self.jobs.remove(&job)?;
        if let Some(count) = self.scopes.get_mut(&scope) {
            *count -= 1;
            if *count == 0 {
                self.scopes.remove(&scope);
            }
        }
        Some(scope)
    }

    /// How many try for a scope.
    pub(super) fn of(&self, scope: &str) -> usize {
        self.scopes.get(scope).copied().unwrap_or(0)
    }
}

/// What others read of who is held, to leave out messages that would change nothing.
#[derive(Debug, Default)]
pub(super) struct Hints {
    /// How many are held, by tenant.
    pub(super) tenants: Names,
    /// Scopes that anyone is held for.
    pub(super) scopes: Names,
}

/// Parts that names are counted in, so that one is not taken for another too often.
const PARTS: usize = if cfg!(quota_loom) { 2 } else { 256 };

/// Counts by name: names that fall together are counted together.
#[derive(Debug)]
pub(super) struct Names([AtomicU32; PARTS]);

impl Default for Names {
    fn default() -> Names {
        Names(std::array::from_fn(|_| AtomicU32::new(0)))
    }
}

impl Names {
    /// Whether any of this name may be counted.
    pub(super) fn may_have(&self, name: &str) -> bool {
        // ORDERING: relaxed; a hint: who is held beside this was not there before.
        self.0[Names::part(name)].load(Ordering::Relaxed) > 0
    }

    fn add(&self, part: usize, change: i32) {
        // ORDERING: relaxed; only the thread that decides counts, see `may_have`.
        self.0[part].fetch_add(change as u32, Ordering::Relaxed);
    }

    /// FNV-1a: what a host can make fall together only makes requests go through the queue.
    fn part(name: &str) -> usize {
        let hash = name
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
        (hash ^ hash >> 32) as usize % PARTS
    }
}
