//! The pace: how much work is served a second, while there is more to serve than fits.
//!
//! Floor 2. Invariant: time without a backlog does not pass here, so that a quiet hour says nothing about what the pool can do.

use crate::time::SECOND;

/// How far back a pace looks, in nanoseconds of busy time.
const WINDOW: u64 = 5 * SECOND;

/// The least busy time that a pace is known after.
const LEAST: u64 = SECOND;

/// Work served over the last five to ten seconds of busy time.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Pace {
    window: u64,
    before: u64,
    current: u64,
}

impl Pace {
    /// Counts work at a moment of busy time.
    pub(super) fn add(&mut self, work: u64, busy: u64) {
        self.turn(busy / WINDOW);
        self.current = self.current.saturating_add(work);
    }

    fn turn(&mut self, window: u64) {
        if window != self.window {
            self.before = if window == self.window + 1 { self.current } else { 0 };
            self.current = 0;
            self.window = window;
        }
    }

    /// Milli-units of work a second; `None` before a second of busy time has passed, and where
    /// nothing was served in the time that is looked at: that says how long a request takes, not how many.
    pub(super) fn per_second(&self, busy: u64) -> Option<u64> {
        let mut now = *self;
        now.turn(busy / WINDOW);
        let into = busy % WINDOW;
        let (work, time) = match now.window {
            0 if into < LEAST => return None,
            0 => (u128::from(now.current), into),
            _ => {
                let rest = u128::from(now.before) * u128::from(WINDOW - into) / u128::from(WINDOW);
                (u128::from(now.current) + rest, WINDOW)
            }
        };
        u64::try_from(work * u128::from(SECOND) / u128::from(time)).ok().filter(|pace| *pace > 0)
    }
}

/// Busy time: the part of the time in which something could be served and waited.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct BusyTime {
    passed: u64,
    since: Option<u64>,
}

impl BusyTime {
    /// Goes on to `now`, from which on there is a backlog or not. Gives the busy time that has passed.
    pub(super) fn turn(&mut self, now: u64, backlog: bool) -> u64 {
        if let Some(since) = self.since {
            self.passed += now.saturating_sub(since);
        }
        self.since = backlog.then_some(now);
        self.passed
    }

    pub(super) fn passed(&self) -> u64 {
        self.passed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quiet_time_does_not_pass() {
        let mut busy = BusyTime::default();
        assert_eq!(busy.turn(10 * SECOND, false), 0);
        assert_eq!(busy.turn(3600 * SECOND, true), 0);
        assert_eq!(busy.turn(3602 * SECOND, false), 2 * SECOND);
        assert_eq!(busy.turn(9000 * SECOND, true), 2 * SECOND);
        assert_eq!(busy.turn(9001 * SECOND, true), 3 * SECOND);
    }

    #[test]
    fn the_pace_follows_what_is_served() {
        let mut pace = Pace::default();
        pace.add(500, SECOND / 2);
        assert_eq!(pace.per_second(SECOND / 2), None);
        assert_eq!(pace.per_second(2 * SECOND), Some(250));
        for second in 1..20 {
            pace.add(1000, second * SECOND - SECOND / 2);
        }
        let seen = pace.per_second(19 * SECOND).unwrap();
        assert!((900..=1100).contains(&seen), "{seen}");
        assert_eq!(pace.per_second(100 * SECOND), None);
    }
}
