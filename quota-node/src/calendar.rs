//! Calendars: the periods of fixed windows.

use napi::{Env, Result};
use napi_derive::napi;
use quota_core::time::{self, Unit, show_instant};

use crate::convert::instant;
use crate::count::type_error;

/// What belongs to some units alone.
#[napi(object, object_to_js = false)]
#[derive(Default)]
pub struct CalendarOptions {
    pub seconds: Option<u32>,
    pub start_day: Option<u8>,
}

/// One period of a fixed window.
#[napi(object, object_from_js = false)]
pub struct Period {
    /// Counts up by one from each period to the next.
    pub number: u32,
    /// The first instant that belongs to it, as RFC 3339 in UTC.
    pub start: String,
    /// The first instant that does not.
    pub end: String,
}

/// A fixed window's unit in a time zone.
#[napi]
pub struct Calendar(time::Calendar);

#[napi]
impl Calendar {
    #[napi(constructor)]
    pub fn new(env: Env, unit: String, zone: Option<String>, options: Option<CalendarOptions>) -> Result<Calendar> {
        let CalendarOptions { seconds, start_day } = options.unwrap_or_default();
        if seconds.is_some() != (unit == "seconds") {
            return Err(type_error(env, "seconds are told with the unit 'seconds', and with no other"));
        }
        if start_day.is_some() && unit != "month" {
            return Err(type_error(env, "a start day is told with the unit 'month', and with no other"));
        }
        let unit = match (unit.as_str(), seconds, start_day) {
            ("day", ..) => Unit::Day,
            ("week", ..) => Unit::Week,
            ("month", _, None) => Unit::Month { start_day: 1 },
            ("month", _, Some(start_day @ 1..=31)) => Unit::Month { start_day },
            ("month", ..) => return Err(type_error(env, "startDay is 1 to 31")),
            ("seconds", Some(seconds @ 1..), _) => Unit::Seconds(seconds),
            ("seconds", ..) => return Err(type_error(env, "seconds is 1 to 2^32 - 1")),
            (other, ..) => {
                return Err(type_error(env, format!("unit is 'day', 'week', 'month' or 'seconds', not {other:?}")));
            }
        };
        let calendar = time::Calendar::new(unit, zone.as_deref().unwrap_or("UTC"));
        calendar.map(Calendar).map_err(|error| type_error(env, error.to_string()))
    }

    /// The period that holds an RFC 3339 instant.
    #[napi]
    pub fn period(&self, env: Env, at: String) -> Result<Period> {
        let period = self.0.period(instant(&env, &at)?);
        Ok(Period { number: period.number, start: show_instant(period.start), end: show_instant(period.end) })
    }
}
