//! The ledger's accounts: a bucket by the moment at which it is full, a period's sum, a number of slots.
//!
//! Floor 5. Invariant: nothing here is shared with `meter`, `store` or `time`: the rules and the calendars are written
//! down once more, for limits whose unit refills in a whole number of nanoseconds.

use crate::time::Now;

const SECOND: u64 = 1_000_000_000;
const DAY: u64 = 86_400 * SECOND;

/// What a limit lets pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    /// A unit comes back in so many nanoseconds, so many are there at once.
    Rate { unit: u64, burst: u64 },
    /// So many a period.
    Budget { hard: u64, calendar: Calendar },
    /// So many at once.
    Slots { hard: u64 },
}

/// When a period begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Calendar {
    /// Every so many nanoseconds of Unix time.
    Every(u64),
    /// At midnight, where local time is ahead of UTC by so many nanoseconds.
    Day { ahead: u64 },
    /// At the beginning of a month there.
    Month { ahead: u64 },
}

impl Calendar {
    /// Counts up from each period to the next.
    fn number(self, wall: u64) -> u64 {
        match self {
            Calendar::Every(length) => wall / length,
            Calendar::Day { ahead } => (wall + ahead) / DAY,
            Calendar::Month { ahead } => month((wall + ahead) / DAY),
        }
    }
}

/// The number of the month that holds a day, both counted from January 1970.
fn month(day: u64) -> u64 {
    let is_leap = |year: u64| year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
    let leaps = |year: u64| (year - 1) / 4 - (year - 1) / 100 + (year - 1) / 400;
    let begins = |year: u64| 365 * (year - 1970) + leaps(year) - leaps(1970);
    // At most a year too early: leap days are fewer than one in 365.
    let early = 1970 + day / 366;
    let year = if begins(early + 1) <= day { early + 1 } else { early };
    let mut left = day - begins(year);
    let mut months = 12 * (year - 1970);
    for length in [31, if is_leap(year) { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if left < length {
            break;
        }
        (left, months) = (left - length, months + 1);
    }
    months
}

/// What has to be known of a taking to correct it later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    /// When time will have brought all of it back, and what a unit took.
    By { at: u64, unit: u64 },
    /// The period that it was taken in.
    In(u64),
    /// Nothing.
    None,
}

impl Mark {
    /// Whether a later taking of the same lease on the same limit is kept as one with this one.
    pub(super) fn joins(&self, later: &Mark) -> bool {
        match (self, later) {
            (Mark::In(first), Mark::In(second)) => first == second,
            _ => true,
        }
    }
}

/// The running state of a limit in a scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Account {
    /// When the bucket is full.
    Rate(u64),
    /// The latest period that anything was asked of, and what is used of it.
    Budget(Option<u64>, u64),
    /// What is held.
    Slots(u64),
}

impl Account {
    pub(super) fn new(rule: &Rule) -> Account {
        match rule {
            Rule::Rate { .. } => Account::Rate(0),
            Rule::Budget { .. } => Account::Budget(None, 0),
            Rule::Slots { .. } => Account::Slots(0),
        }
    }

    /// The amount in use.
    pub(super) fn used(&self, rule: &Rule, now: Now) -> u64 {
        match (self, rule) {
            (Account::Rate(full), Rule::Rate { unit, .. }) => full.saturating_sub(now.mono).div_ceil(*unit),
            (Account::Budget(latest, used), Rule::Budget { calendar, .. }) => match latest {
                Some(latest) if calendar.number(now.wall) <= *latest => *used,
                _ => 0,
            },
            (Account::Slots(held), _) => *held,
            _ => unreachable!("an account of another rule"),
        }
    }

    /// Whether so much fits.
    pub(super) fn has_room(&self, rule: &Rule, amount: u64, now: Now) -> bool {
        match rule {
            Rule::Rate { unit, burst } => self.lacks(rule, amount, now) == 0 && amount * unit <= burst * unit,
            Rule::Budget { hard, .. } | Rule::Slots { hard } => self.used(rule, now) + amount <= *hard,
        }
    }

    /// The nanoseconds after which a rate has room for so much.
    pub(super) fn lacks(&self, rule: &Rule, amount: u64, now: Now) -> u64 {
        match (self, rule) {
            (Account::Rate(full), Rule::Rate { unit, burst }) => {
                ((*full).max(now.mono) + amount * unit).saturating_sub(now.mono + burst * unit)
            }
            _ => 0,
        }
    }

    pub(super) fn take(&mut self, rule: &Rule, amount: u64, now: Now) -> Mark {
        match (self, rule) {
            (Account::Rate(full), Rule::Rate { unit, .. }) => {
                if amount > 0 {
                    *full = (*full).max(now.mono) + amount * unit;
                }
                Mark::By { at: *full, unit: *unit }
            }
            (Account::Budget(latest, used), Rule::Budget { calendar, .. }) => {
                let present = calendar.number(now.wall);
                if latest.is_none_or(|latest| present > latest) {
                    (*latest, *used) = (Some(present), 0);
                }
                *used += amount;
                Mark::In(latest.unwrap_or(present))
            }
            (Account::Slots(held), _) => {
                *held += amount;
                Mark::None
            }
            _ => unreachable!("an account of another rule"),
        }
    }

    /// Puts what was used in the place of a taking. Time brings a taking back to a rate, used or not: only what has not
    /// come back yet is given. A period that is over stays as it was.
    pub(super) fn correct(&mut self, mark: Mark, taken: u64, used: u64, now: Now) {
        match (self, mark) {
            (Account::Rate(full), Mark::By { at, unit }) => {
                let from = (*full).max(now.mono);
                *full = match taken.checked_sub(used) {
                    Some(less) => from - (less * unit).min(at.saturating_sub(now.mono)).min(from - now.mono),
                    None => from + (used - taken) * unit,
                };
            }
            (Account::Budget(latest, sum), Mark::In(number)) if *latest == Some(number) => *sum = *sum - taken + used,
            (Account::Slots(held), _) => *held = *held - taken + used,
            _ => {}
        }
    }

    /// Whether a taking counts in what is in use: all but those of earlier periods do. `None` for a rate.
    pub(super) fn counts(&self, mark: Mark) -> Option<bool> {
        match (self, mark) {
            (Account::Budget(latest, _), Mark::In(number)) => Some(*latest == Some(number)),
            (Account::Slots(_), _) => Some(true),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn months_are_counted_from_1970() {
        // 2000-02-29, 2026-11-30 and the day after it.
        assert_eq!([0, 30, 31, 11_016, 20_787, 20_788].map(month), [0, 0, 1, 361, 682, 683]);
        // And each month is as long as it is, for the four hundred years that the calendar repeats itself in.
        let lengths = (0..146_097).fold([0; 4800], |mut lengths, day| {
            lengths[month(day) as usize] += 1;
            lengths
        });
        let leaps = (0..400).filter(|year| lengths[year * 12 + 1] == 29).count();
        let wrong = (0..4800).filter(|at| ![28, 29, 30, 31].contains(&lengths[*at])).count();
        assert_eq!((leaps, wrong), (97, 0));
    }

    #[test]
    fn a_bucket_gives_back_what_time_has_not() {
        let (rule, mut account) = (Rule::Rate { unit: 10, burst: 5 }, Account::Rate(0));
        let mark = account.take(&rule, 4, Now::at(1000));
        assert_eq!((account.used(&rule, Now::at(1000)), account.used(&rule, Now::at(1025))), (4, 2));
        assert_eq!(account.lacks(&rule, 3, Now::at(1000)), 20);
        account.correct(mark, 4, 1, Now::at(1025));
        assert_eq!(account.used(&rule, Now::at(1025)), 0);
    }
}
