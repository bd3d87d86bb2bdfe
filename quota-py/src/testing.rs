//! What tests need: a clock that stands still, and the journal's sums beside the live accounts.

use std::sync::Arc;
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use quota_core as core;
use quota_core::journal::{Event, replay};
use quota_core::meter::At;
use quota_core::policy::plan::Window;
use quota_core::time::{Clock, Period, parse_instant, show_instant};
use quota_core::{Decision, Store};

use crate::convert::Count;
use crate::gate::Gate;

/// A clock that stands still until it is moved.
#[pyclass(frozen, module = "quota.testing")]
pub struct ManualClock(pub Arc<core::ManualClock>);

fn instant(text: &str) -> PyResult<u64> {
    parse_instant(text).map_err(|error| PyValueError::new_err(error.to_string()))
}

#[pymethods]
impl ManualClock {
    /// A clock that stands at an RFC 3339 instant.
    #[new]
    #[pyo3(signature = (at="2026-03-02T12:00:00Z"))]
    fn new(at: &str) -> PyResult<ManualClock> {
        Ok(ManualClock(Arc::new(core::ManualClock::at(instant(at)?))))
    }

    /// Moves it forward.
    #[pyo3(signature = (ms=Count(0), *, ns=Count(0)))]
    fn advance(&self, ms: Count, ns: Count) {
        self.0.advance(Duration::from_millis(ms.0).saturating_add(Duration::from_nanos(ns.0)));
    }

    /// Sets the wall clock alone, as the operating system does when it corrects it.
    fn set_wall(&self, at: &str) -> PyResult<()> {
        self.0.set_wall(instant(at)?);
        Ok(())
    }

    /// The wall time in nanoseconds since 1970.
    #[getter]
    fn wall_ns(&self) -> u64 {
        self.0.now().wall
    }

    /// The engine's time in nanoseconds.
    #[getter]
    fn mono_ns(&self) -> u64 {
        self.0.now().mono
    }

    fn __repr__(&self) -> String {
        format!("ManualClock({:?})", show_instant(self.0.now().wall))
    }
}

/// What the journal adds up to beside what the live accounts say: entries that are missing, accounts compared, and those
/// that differ.
#[pyfunction]
pub fn _replay(py: Python<'_>, gate: &Gate) -> (u64, usize, Vec<String>) {
    let gate = gate.of_this_process();
    py.detach(|| {
        let (replayed, now) = (replay(gate.journal()), gate.now());
        let (mut compared, mut differ) = (0, Vec::new());
        gate.journal().scan(&mut |entry| {
            let Event::Admitted(record) = &entry.event else { return true };
            let lineup = &record.claim.terms.deal.lineup;
            let words = gate.store().read(lineup.clone(), |words| words).unwrap_or_default();
            for (bound, word) in lineup.limits().zip(words) {
                let period = match &bound.column.window {
                    Window::Fixed(calendar) => calendar.period(now.wall),
                    Window::Rolling { .. } | Window::Held | Window::Run => Period::default(),
                };
                let live = bound.rule.read(word, &At { now, period }).used;
                let told = replayed.used(bound.scope, &bound.limit, now, period);
                compared += 1;
                if told != Some(live) {
                    differ.push(format!("{} {}: {told:?}, live {live}", bound.scope, bound.limit));
                }
            }
            true
        });
        (replayed.missing, compared, differ)
    })
}

/// Does nothing: what a call costs.
#[pyfunction]
#[pyo3(signature = (first=None, second=None))]
#[allow(unused_variables)]
pub fn _nothing(first: Option<&Bound<'_, PyAny>>, second: Option<&Bound<'_, PyAny>>) {}

/// Admits and settles so many times without Python in between: what the binding's own cost is measured against.
#[pyfunction]
pub fn _floor(
    py: Python<'_>,
    gate: &Gate,
    who: &crate::principal::Principal,
    request: &crate::request::Request,
    times: u32,
) {
    let gate = gate.of_this_process();
    py.detach(|| {
        for _ in 0..times {
            if let Decision::Allow(lease) = gate.admit(&who.0, &request.inner) {
                let _ = lease.settle(core::Usage::tokens(10, 10));
            }
        }
    });
}
