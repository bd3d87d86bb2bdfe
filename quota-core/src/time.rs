//! The time: clocks, and the calendar periods of budgets.
//!
//! Floor 0. Invariant: only this file asks the operating system for the time; everything else is handed [`Now`].

use std::fmt;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::sync::{AtomicU64, Ordering};

/// Nanoseconds in a second.
pub const SECOND: u64 = 1_000_000_000;

/// One moment, on two scales that start at the Unix epoch.
///
/// Rates and deadlines run on `mono`, which never steps; budgets run on `wall`, which the operating system may correct.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Nanoseconds of the engine's clock; never steps back.
    pub mono: u64,
    /// Nanoseconds of Unix time; may be corrected in either direction.
    pub wall: u64,
}

impl Now {
    /// Both scales at the same count of nanoseconds.
    pub const fn at(nanos: u64) -> Now {
        Now { mono: nanos, wall: nanos }
    }
}

/// Where the time comes from; one of the five seams.
pub trait Clock: Send + Sync + 'static {
    /// The present moment.
    fn now(&self) -> Now;
}

/// Nanoseconds of engine time between two looks at the operating system's wall clock.
const LOOK_AT_WALL: u64 = 10_000_000;

/// The operating system's clock.
///
/// The wall time is the engine's time plus an offset that is looked up every 10 ms: a correction of the system's clock
/// is followed that much later, and most calls read one clock instead of two.
#[derive(Debug)]
pub struct SystemClock {
    started: Instant,
    started_wall: u64,
    /// Wall time minus engine time, wrapping. Written by whoever looks at the wall clock, read by all. A thread that is
    /// held up between looking and writing puts an older offset there, until the next look.
    offset: AtomicU64,
    /// Engine time from which the wall clock has to be looked at again. Written and read as `offset`.
    look_at: AtomicU64,
}

impl SystemClock {
    /// A clock whose engine time starts at the wall time of this call.
    pub fn new() -> SystemClock {
        SystemClock {
            started: Instant::now(),
            started_wall: wall_nanos(),
            offset: AtomicU64::new(0),
            look_at: AtomicU64::new(0),
        }
    }
}

impl Default for SystemClock {
    fn default() -> SystemClock {
        SystemClock::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Now {
        // Not by `as_nanos`, whose 128 bits cost more than the clock.
        let elapsed = self.started.elapsed();
        let elapsed = elapsed.as_secs().saturating_mul(SECOND).saturating_add(elapsed.subsec_nanos().into());
        let mono = self.started_wall.saturating_add(elapsed);
        // ORDERING: acquire pairs with the release below: whoever sees the time of the next look sees its offset too.
        if mono < self.look_at.load(Ordering::Acquire) {
            // ORDERING: relaxed; an offset is a number by itself, and any recent one will do.
            return Now { mono, wall: mono.wrapping_add(self.offset.load(Ordering::Relaxed)) };
        }
        let wall = wall_nanos();
        // ORDERING: relaxed, published by the release that follows.
        self.offset.store(wall.wrapping_sub(mono), Ordering::Relaxed);
        // ORDERING: release, see above.
        self.look_at.store(mono.saturating_add(LOOK_AT_WALL), Ordering::Release);
        Now { mono, wall }
    }
}

fn wall_nanos() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX))
}

/// A clock that stands still until it is moved; for tests.
pub struct ManualClock {
    // Nanoseconds. Written by `advance` and `set_wall`, read by `now`. The two are not read as one: a test that moves
    // the clock while others read it sees either value of each.
    mono: AtomicU64,
    wall: AtomicU64,
}

impl ManualClock {
    /// A clock that stands at `nanos` since the Unix epoch on both scales.
    pub fn at(nanos: u64) -> ManualClock {
        ManualClock { mono: AtomicU64::new(nanos), wall: AtomicU64::new(nanos) }
    }

    /// A clock that stands at an RFC 3339 instant.
    ///
    /// # Errors
    /// The text is not such an instant, or lies before 1970.
    pub fn at_instant(rfc3339: &str) -> Result<ManualClock, NotInstant> {
        parse_instant(rfc3339).map(ManualClock::at)
    }

    /// Moves both scales forward.
    pub fn advance(&self, by: Duration) {
        let by = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        // ORDERING: relaxed; a manual clock orders nothing but itself.
        self.mono.fetch_add(by, Ordering::Relaxed);
        self.wall.fetch_add(by, Ordering::Relaxed);
    }

    /// Sets the wall clock alone, as the operating system does when it corrects it.
    pub fn set_wall(&self, nanos: u64) {
        // ORDERING: relaxed, as in `advance`.
        self.wall.store(nanos, Ordering::Relaxed);
    }
}

impl fmt::Debug for ManualClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.now().fmt(f)
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Now {
        // ORDERING: relaxed, as in `advance`.
        Now { mono: self.mono.load(Ordering::Relaxed), wall: self.wall.load(Ordering::Relaxed) }
    }
}

impl<C: Clock> Clock for std::sync::Arc<C> {
    fn now(&self) -> Now {
        (**self).now()
    }
}

/// A text that is not an RFC 3339 instant from 1970 on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an RFC 3339 instant from 1970 on")]
pub struct NotInstant(String);

/// Nanoseconds since the Unix epoch of an RFC 3339 instant, or of a plain date (midnight UTC).
///
/// # Errors
/// The text is neither, or lies before 1970 or after 2554.
pub fn parse_instant(text: &str) -> Result<u64, NotInstant> {
    let bad = || NotInstant(text.chars().take(64).collect());
    let stamp = match text.parse::<jiff::Timestamp>() {
        Ok(stamp) => stamp,
        Err(_) => {
            let date = text.parse::<jiff::civil::Date>().map_err(|_| bad())?;
            date.to_zoned_datetime(jiff::tz::TimeZone::UTC).map_err(|_| bad())?.timestamp()
        }
    };
    u64::try_from(stamp.as_nanosecond()).map_err(|_| bad())
}

/// Nanoseconds since the Unix epoch of an HTTP date (`Mon, 02 Mar 2026 12:01:30 GMT`).
///
/// # Errors
/// The text is not such a date, or lies before 1970 or after 2554.
pub fn parse_http_date(text: &str) -> Result<u64, NotInstant> {
    let bad = || NotInstant(text.chars().take(64).collect());
    let stamp = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(text).map_err(|_| bad())?;
    u64::try_from(stamp.as_nanosecond()).map_err(|_| bad())
}

/// An instant as RFC 3339 in UTC, to the second unless it has a fraction.
pub fn show_instant(nanos: u64) -> String {
    match jiff::Timestamp::from_nanosecond(nanos as i128) {
        Ok(stamp) => stamp.to_string(),
        Err(_) => format!("{nanos} ns after the epoch"),
    }
}

/// How long a fixed window is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Unit {
    /// So many seconds, aligned to the Unix epoch; at least 1.
    Seconds(u32),
    /// A local day.
    Day,
    /// A local week, from Monday.
    Week,
    /// A local month, from this day of it (1 to 31; the last day in a month that has no such day).
    Month {
        /// The day of the month on which a period starts.
        start_day: u8,
    },
}

/// A fixed window's unit in a time zone.
#[derive(Debug, Clone, PartialEq)]
pub struct Calendar {
    unit: Unit,
    zone: jiff::tz::TimeZone,
}

/// One period of a fixed window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Period {
    /// Counts up by one from each period to the next.
    pub number: u32,
    /// The first nanosecond of Unix time that belongs to it.
    pub start: u64,
    /// The first nanosecond of Unix time that does not.
    pub end: u64,
}

/// A name that no time zone has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an IANA time zone")]
pub struct UnknownZone(String);

impl Calendar {
    /// The calendar of a unit in an IANA time zone (`UTC`, `Asia/Shanghai`).
    ///
    /// # Errors
    /// The zone is unknown.
    pub fn new(unit: Unit, zone: &str) -> Result<Calendar, UnknownZone> {
        let zone = jiff::tz::TimeZone::get(zone).map_err(|_| UnknownZone(zone.chars().take(64).collect()))?;
        Ok(Calendar { unit, zone })
    }

    /// The unit.
    pub fn unit(&self) -> Unit {
        self.unit
    }

    /// The time zone's name.
    pub fn zone(&self) -> &str {
        self.zone.iana_name().unwrap_or("UTC")
    }

    /// The period that holds a wall time. A local date begins at its first instant, whatever daylight saving does.
    ///
    /// Cost: some hundred nanoseconds for a calendar unit; a division for seconds.
    pub fn period(&self, wall: u64) -> Period {
        match self.unit {
            Unit::Seconds(length) => {
                let length = length.max(1) as u64 * SECOND;
                let number = wall / length;
                Period { number: number as u32, start: number * length, end: (number + 1).saturating_mul(length) }
            }
            _ => self.civil_period(wall).unwrap_or(Period { number: 0, start: 0, end: u64::MAX }),
        }
    }

    fn civil_period(&self, wall: u64) -> Option<Period> {
        let stamp = jiff::Timestamp::from_nanosecond(wall as i128).ok()?;
        let today = stamp.to_zoned_datetime(self.zone.clone()).date();
        let day_number = |date: jiff::civil::Date| -> i64 {
            let epoch = jiff::civil::date(1970, 1, 1);
            date.since(epoch).map_or(0, |span| span.get_days() as i64)
        };
        let (first, next, number) = match self.unit {
            Unit::Day => (today, today.tomorrow().ok()?, day_number(today)),
            Unit::Week => {
                let since_monday = today.weekday().to_monday_zero_offset() as i64;
                let monday = today.checked_sub(jiff::Span::new().days(since_monday)).ok()?;
                // 1970-01-01 was a Thursday: the Monday before it is day -3.
                let number = (day_number(monday) + 3) / 7;
                (monday, monday.checked_add(jiff::Span::new().days(7)).ok()?, number)
            }
            Unit::Month { start_day } => {
                let first_in = |year: i16, month: i8| -> Option<jiff::civil::Date> {
                    let first = jiff::civil::Date::new(year, month, 1).ok()?;
                    let day = (start_day.clamp(1, 31) as i8).min(first.days_in_month());
                    jiff::civil::Date::new(year, month, day).ok()
                };
                let step = |year: i16, month: i8, by: i8| match month + by {
                    0 => (year - 1, 12),
                    13 => (year + 1, 1),
                    other => (year, other),
                };
                let mut at = (today.year(), today.month());
                if today < first_in(at.0, at.1)? {
                    at = step(at.0, at.1, -1);
                }
                let after = step(at.0, at.1, 1);
                let number = (at.0 as i64 - 1970) * 12 + at.1 as i64 - 1;
                (first_in(at.0, at.1)?, first_in(after.0, after.1)?, number)
            }
            Unit::Seconds(_) => return None,
        };
        let start_of = |date: jiff::civil::Date| -> Option<u64> {
            let zoned = date.to_zoned_datetime(self.zone.clone()).ok()?;
            let first = zoned.start_of_day().ok()?;
            Some(u64::try_from(first.timestamp().as_nanosecond()).unwrap_or(0))
        };
        Some(Period { number: u32::try_from(number).unwrap_or(0), start: start_of(first)?, end: start_of(next)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> u64 {
        parse_instant(text).unwrap()
    }

    #[test]
    fn days_run_from_first_instant_to_first_instant() {
        // The tz database's rules of 2026; in Santiago and Cairo midnight itself is skipped on these dates.
        for (zone, start, end) in [
            ("Europe/Amsterdam", "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z"),
            ("Europe/Amsterdam", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"),
            ("America/New_York", "2026-03-08T05:00:00Z", "2026-03-09T04:00:00Z"),
            ("America/New_York", "2026-11-01T04:00:00Z", "2026-11-02T05:00:00Z"),
            ("America/Santiago", "2026-09-06T04:00:00Z", "2026-09-07T03:00:00Z"),
            ("America/Santiago", "2026-04-04T03:00:00Z", "2026-04-05T04:00:00Z"),
            ("Australia/Lord_Howe", "2026-04-04T13:00:00Z", "2026-04-05T13:30:00Z"),
            ("Asia/Kolkata", "2026-05-31T18:30:00Z", "2026-06-01T18:30:00Z"),
            ("Africa/Cairo", "2026-04-23T22:00:00Z", "2026-04-24T21:00:00Z"),
            ("UTC", "2026-03-29T00:00:00Z", "2026-03-30T00:00:00Z"),
        ] {
            let calendar = Calendar::new(Unit::Day, zone).unwrap();
            let first = calendar.period(at(start));
            assert_eq!((first.start, first.end), (at(start), at(end)), "{zone} {start}");
            assert_eq!(calendar.period(at(end) - 1), first, "{zone} {start}: last nanosecond");
            assert_eq!(calendar.period(at(end)).number, first.number + 1, "{zone} {start}: next");
            assert_eq!(calendar.period(at(start) - 1).number, first.number - 1, "{zone} {start}: before");
        }
    }

    #[test]
    fn months_start_on_their_day_or_their_last() {
        let calendar = Calendar::new(Unit::Month { start_day: 31 }, "UTC").unwrap();
        let period = calendar.period(at("2026-02-27T00:00:00Z"));
        assert_eq!((period.start, period.end), (at("2026-01-31T00:00:00Z"), at("2026-02-28T00:00:00Z")));
        let next = calendar.period(at("2026-02-28T00:00:00Z"));
        assert_eq!((next.number, next.end), (period.number + 1, at("2026-03-31T00:00:00Z")));
        let tokyo = Calendar::new(Unit::Month { start_day: 1 }, "Asia/Tokyo").unwrap();
        assert_eq!(tokyo.period(at("2026-09-12T13:30:00Z")).end, at("2026-09-30T15:00:00Z"));
        let turn = calendar.period(at("2026-12-31T00:00:00Z"));
        assert_eq!(turn.end, at("2027-01-31T00:00:00Z"));
    }

    #[test]
    fn the_system_clock_follows_the_wall_clock() {
        let clock = SystemClock::new();
        let mut last = clock.now();
        for _ in 0..1000 {
            let (before, now, after) = (wall_nanos(), clock.now(), wall_nanos());
            // Exact to the drift of two clocks over 10 ms, and what happens between two of these lines.
            assert!(now.wall + SECOND > before && now.wall < after + SECOND, "{before} {now:?} {after}");
            assert!(now.mono >= last.mono);
            last = now;
        }
        clock.offset.store(5 * SECOND, Ordering::Relaxed);
        clock.look_at.store(0, Ordering::Relaxed);
        let (now, wall) = (clock.now(), wall_nanos());
        assert!(now.wall.abs_diff(wall) < SECOND, "a wrong offset is put right at the next look: {now:?} {wall}");
    }

    #[test]
    fn weeks_start_on_monday() {
        let calendar = Calendar::new(Unit::Week, "UTC").unwrap();
        let period = calendar.period(at("2026-11-30T00:00:00Z"));
        assert_eq!((period.start, period.end), (at("2026-11-30T00:00:00Z"), at("2026-12-07T00:00:00Z")));
        assert_eq!(calendar.period(period.start - 1).number + 1, period.number);
    }

    #[test]
    fn seconds_are_aligned_to_the_epoch() {
        let calendar = Calendar::new(Unit::Seconds(60), "UTC").unwrap();
        let period = calendar.period(at("2026-03-02T12:00:58.7Z"));
        assert_eq!(period.end, at("2026-03-02T12:01:00Z"));
        assert_eq!(calendar.period(period.end).number, period.number + 1);
    }

    #[test]
    fn bad_names_and_instants_are_told() {
        assert_eq!(
            Calendar::new(Unit::Day, "Mars/Olympus").unwrap_err().to_string(),
            "`Mars/Olympus` is not an IANA time zone"
        );
        assert!(parse_instant("yesterday").is_err());
        assert!(parse_instant("1969-12-31T00:00:00Z").is_err());
        assert_eq!(parse_http_date("Mon, 02 Mar 2026 12:01:30 GMT").unwrap(), at("2026-03-02T12:01:30Z"));
        assert!(parse_http_date("2 March 2026").is_err());
        assert_eq!(parse_instant("2027-01-01").unwrap(), at("2027-01-01T00:00:00Z"));
    }
}
