//! Deadlines: who of a lane has waited longest, without touching the others when one leaves.
//!
//! Floor 2. Invariant: each waiting job of the lane has one entry here; entries of others are passed over, and are fewer than four times those
//! of waiting jobs and some.

use std::collections::{BTreeSet, VecDeque};

use super::jobs::{Filed, JobId, Jobs};

/// So many entries for each job that waits, and some, before those of others are cleared away: a pass over them then costs each
/// arrival little more than one look at a job.
const STALE: usize = 4;

/// See [`STALE`].
const SPARE: usize = 64;

/// Entries that a look for the oldest goes over at most.
const LOOKS: usize = 32;

/// The waiting jobs of a lane by deadline.
#[derive(Debug, Default)]
pub(super) struct Deadlines {
    /// In the order of arrival, which is that of deadlines. The entry of a job that left stays until it is met or there are
    /// too many.
    line: VecDeque<(u64, JobId)>,
    /// Those that came back after their entry was gone, or whose deadline is before that of one that came earlier.
    others: BTreeSet<(u64, JobId)>,
    /// How many of `line` wait.
    waiting: usize,
}

impl Deadlines {
    /// Enters a job that begins to wait, or waits again.
    pub(super) fn enter<T>(&mut self, jobs: &mut Jobs<T>, at: u32) {
        let (id, deadline) = (jobs.id(at), jobs[at].deadline);
        match jobs[at].filed {
            // Its entry is still there.
            Filed::InLine => self.waiting += 1,
            Filed::Aside => {}
            Filed::Not if self.line.back().is_none_or(|(last, _)| *last <= deadline) => {
                self.line.push_back((deadline, id));
                jobs[at].filed = Filed::InLine;
                self.waiting += 1;
                if self.line.len() > STALE * self.waiting + SPARE {
                    self.clear_away(jobs);
                }
            }
            Filed::Not => {
                self.others.insert((deadline, id));
                jobs[at].filed = Filed::Aside;
            }
        }
    }

    /// Takes out a job that no longer waits.
    pub(super) fn leave<T>(&mut self, jobs: &mut Jobs<T>, at: u32) {
        match jobs[at].filed {
            Filed::InLine => self.waiting -= 1,
            Filed::Aside => {
                self.others.remove(&(jobs[at].deadline, jobs.id(at)));
                jobs[at].filed = Filed::Not;
            }
            Filed::Not => {}
        }
    }

    /// The job with the earliest deadline.
    pub(super) fn first<T>(&mut self, jobs: &mut Jobs<T>) -> Option<u32> {
        while let Some((_, id)) = self.line.front() {
            if jobs.waits(*id) {
                break;
            }
            jobs.forget_entry(*id);
            self.line.pop_front();
        }
        let first = self.line.front().copied().into_iter().chain(self.others.first().copied()).min();
        first.map(|(_, id)| id.at)
    }

    /// The deadline that comes first, or one before it: an entry may be of a job that no longer waits.
    pub(super) fn next(&self) -> Option<u64> {
        if self.waiting + self.others.len() == 0 {
            return None;
        }
        let line = self.line.front().map(|(deadline, _)| *deadline);
        line.into_iter().chain(self.others.first().map(|(deadline, _)| *deadline)).min()
    }

    /// Some of the oldest that wait, the oldest first.
    pub(super) fn oldest<T>(&self, jobs: &Jobs<T>) -> impl Iterator<Item = u32> {
        let line = self.line.iter().take(LOOKS).filter(|(_, id)| jobs.waits(*id)).copied();
        let mut some: Vec<(u64, JobId)> = line.chain(self.others.iter().take(LOOKS).copied()).collect();
        some.sort_unstable();
        some.into_iter().map(|(_, id)| id.at)
    }

    fn clear_away<T>(&mut self, jobs: &mut Jobs<T>) {
        self.line.retain(|(_, id)| {
            let waits = jobs.waits(*id);
            if !waits {
                jobs.forget_entry(*id);
            }
            waits
        });
    }
}
