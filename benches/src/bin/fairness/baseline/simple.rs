//! Orders that look at requests only: first come, so many a minute, and one each in turn.

use std::collections::VecDeque;

use super::{Order, Queues};
use crate::load::SECOND;
use crate::rule::Ask;

/// First come, first served.
#[derive(Debug, Default)]
pub struct Fcfs {
    visits: u64,
}

impl Order for Fcfs {
    fn arrive(&mut self, _ask: &Ask, _queues: &Queues) -> bool {
        true
    }

    fn choose(&mut self, queues: &Queues) -> Option<usize> {
        // One queue would do; the visits of a search over the tenants' queues are not the rule's.
        self.visits += 1;
        queues.busy().min_by_key(|tenant| queues.waiting[*tenant].front().map(|ask| ask.id))
    }

    fn sent(&mut self, _ask: &Ask, _queues: &Queues) {}

    fn progress(&mut self, _ask: &Ask, _before: u64, _out: u64) {}

    fn done(&mut self, _ask: &Ask, _told: u64, _out: u64) {}

    fn visits(&self) -> u64 {
        self.visits
    }
}

/// First come, first served, of at most so many requests of a tenant in any minute; the rest is refused.
#[derive(Debug)]
pub struct Rpm {
    most: u64,
    inner: Fcfs,
    /// The moments of each tenant's requests of the last minute.
    recent: Vec<VecDeque<u64>>,
}

impl Rpm {
    /// At most so many a minute.
    pub fn new(most: u64) -> Rpm {
        Rpm { most, inner: Fcfs::default(), recent: vec![] }
    }
}

impl Order for Rpm {
    fn arrive(&mut self, ask: &Ask, _queues: &Queues) -> bool {
        if self.recent.len() <= ask.tenant {
            self.recent.resize_with(ask.tenant + 1, VecDeque::new);
        }
        let recent = &mut self.recent[ask.tenant];
        while recent.front().is_some_and(|at| at + 60 * SECOND <= ask.at) {
            recent.pop_front();
        }
        let free = (recent.len() as u64) < self.most;
        if free {
            recent.push_back(ask.at);
        }
        free
    }

    fn choose(&mut self, queues: &Queues) -> Option<usize> {
        self.inner.choose(queues)
    }

    fn sent(&mut self, _ask: &Ask, _queues: &Queues) {}

    fn progress(&mut self, _ask: &Ask, _before: u64, _out: u64) {}

    fn done(&mut self, _ask: &Ask, _told: u64, _out: u64) {}

    fn visits(&self) -> u64 {
        self.inner.visits()
    }
}

/// As many requests of each tenant in turn as it has weight.
#[derive(Debug, Default)]
pub struct Wrr {
    at: usize,
    /// Requests that the tenant in turn has had in it.
    had: u64,
    visits: u64,
}

impl Order for Wrr {
    fn arrive(&mut self, _ask: &Ask, _queues: &Queues) -> bool {
        true
    }

    fn choose(&mut self, queues: &Queues) -> Option<usize> {
        if queues.len == 0 {
            return None;
        }
        self.visits += 1;
        self.at %= queues.waiting.len();
        while queues.waiting[self.at].front().is_none_or(|first| self.had >= first.weight) {
            self.at = (self.at + 1) % queues.waiting.len();
            self.had = 0;
        }
        Some(self.at)
    }

    fn sent(&mut self, _ask: &Ask, _queues: &Queues) {
        self.had += 1;
    }

    fn progress(&mut self, _ask: &Ask, _before: u64, _out: u64) {}

    fn done(&mut self, _ask: &Ask, _told: u64, _out: u64) {}

    fn visits(&self) -> u64 {
        self.visits
    }
}
