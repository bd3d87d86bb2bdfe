//! Calendars: the periods of fixed windows.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use quota_core::time::{self, Unit, show_instant};

use crate::convert::Small;
use crate::keys::instant;

/// A fixed window's unit in a time zone.
#[pyclass(frozen, module = "quota", eq)]
#[derive(PartialEq)]
pub struct Calendar(time::Calendar);

#[pymethods]
impl Calendar {
    /// `unit` is `day`, `week` (from Monday), `month` (from its `start_day`, the first if left out; the last day of a month
    /// that has no such day), or `seconds`, so many of them, aligned to 1970. `zone` is an IANA time zone.
    #[new]
    #[pyo3(signature = (unit, zone="UTC", *, seconds=None, start_day=None))]
    fn new(unit: &str, zone: &str, seconds: Option<Small<u32>>, start_day: Option<Small<u8>>) -> PyResult<Calendar> {
        let (seconds, start_day) = (seconds.map(|count| count.0), start_day.map(|day| day.0));
        if seconds.is_some() != (unit == "seconds") {
            return Err(PyTypeError::new_err("seconds are told with the unit 'seconds', and with no other"));
        }
        if start_day.is_some() && unit != "month" {
            return Err(PyTypeError::new_err("a start day is told with the unit 'month', and with no other"));
        }
        let unit = match (unit, seconds, start_day) {
            ("day", ..) => Unit::Day,
            ("week", ..) => Unit::Week,
            ("month", _, None) => Unit::Month { start_day: 1 },
            ("month", _, Some(start_day @ 1..=31)) => Unit::Month { start_day },
            ("month", ..) => return Err(PyValueError::new_err("start_day is 1 to 31")),
            ("seconds", Some(seconds @ 1..), _) => Unit::Seconds(seconds),
            ("seconds", ..) => return Err(PyValueError::new_err("seconds is 1 to 2^32 - 1")),
            (other, ..) => {
                let message = format!("unit is 'day', 'week', 'month' or 'seconds', not {other:?}");
                return Err(PyValueError::new_err(message));
            }
        };
        time::Calendar::new(unit, zone).map(Calendar).map_err(|error| PyValueError::new_err(error.to_string()))
    }

    /// The period that holds an RFC 3339 instant.
    fn period(&self, at: &str) -> PyResult<Period> {
        Ok(Period(self.0.period(instant(at)?)))
    }

    fn __repr__(&self) -> String {
        let zone = self.0.zone();
        match self.0.unit() {
            Unit::Seconds(seconds) => format!("Calendar('seconds', {zone:?}, seconds={seconds})"),
            Unit::Day => format!("Calendar('day', {zone:?})"),
            Unit::Week => format!("Calendar('week', {zone:?})"),
            Unit::Month { start_day } => format!("Calendar('month', {zone:?}, start_day={start_day})"),
        }
    }
}

/// One period of a fixed window.
#[pyclass(frozen, module = "quota", eq, hash)]
#[derive(PartialEq, Eq)]
pub struct Period(time::Period);

impl std::hash::Hash for Period {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (self.0.number, self.0.start, self.0.end).hash(state);
    }
}

#[pymethods]
impl Period {
    /// Counts up by one from each period to the next.
    #[getter]
    fn number(&self) -> u32 {
        self.0.number
    }

    /// The first instant that belongs to it, as RFC 3339 in UTC.
    #[getter]
    fn start(&self) -> String {
        show_instant(self.0.start)
    }

    /// The first instant that does not.
    #[getter]
    fn end(&self) -> String {
        show_instant(self.0.end)
    }

    fn __repr__(&self) -> String {
        format!("Period({}, {:?} to {:?})", self.0.number, self.start(), self.end())
    }
}
