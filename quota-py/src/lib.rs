//! The native part of the Python package `quota`: objects of `quota-core` as Python's, and nothing decided.
//!
//! Each method converts, calls and converts. What may wait, for another thread or for the length of a text, lets go of the
//! interpreter meanwhile; a waker asks for it, and holds nothing then. Waiting in an event loop is written in Python
//! (`python/quota/_acquire.py`) over `Decision._wake_by`.

mod alert;
mod calendar;
mod callback;
mod convert;
mod decision;
mod errors;
mod estimate;
mod gate;
mod journal;
mod keeper;
mod keys;
mod lease;
mod policy;
mod pools;
mod price;
mod principal;
mod reader;
mod refusal;
mod request;
mod scheduler;
mod simulated;
mod testing;
mod upstream;
mod usage;
mod wake;

/// The module `quota._native`.
#[pyo3::pymodule(gil_used = false)]
mod _native {
    #[pymodule_export]
    use crate::alert::{Alert, Subscription};
    #[pymodule_export]
    use crate::calendar::{Calendar, Period};
    #[pymodule_export]
    use crate::convert::Amounts;
    #[pymodule_export]
    use crate::decision::{Decision, Preview};
    #[pymodule_export]
    use crate::estimate::{TokenCount, count_tokens, estimate};
    #[pymodule_export]
    use crate::gate::{_forked, Gate};
    #[pymodule_export]
    use crate::journal::Entries;
    #[pymodule_export]
    use crate::keeper::Keeper;
    #[pymodule_export]
    use crate::keys::{IssuedKey, Key};
    #[pymodule_export]
    use crate::lease::{Lease, Receipt, Stream, Unresolved};
    #[pymodule_export]
    use crate::policy::{LimitOverride, Policy, PolicyFault, PolicyLimit};
    #[pymodule_export]
    use crate::pools::{FixedPool, LoadReport, ReplicaLoad, ReportedPool, priority_hint, read_load};
    #[pymodule_export]
    use crate::price::{Cost, CostLine, Price, PriceList};
    #[pymodule_export]
    use crate::principal::Principal;
    #[pymodule_export]
    use crate::reader::{StreamEnd, StreamReader};
    #[pymodule_export]
    use crate::refusal::{Balance, Degradation, Fits, Offer, Refusal, Shortage, balance_headers};
    #[pymodule_export]
    use crate::request::Request;
    #[pymodule_export]
    use crate::scheduler::{Lane, Place, Scheduler, Turn};
    #[pymodule_export]
    use crate::simulated::{SimulatedEvent, SimulatedPool};
    #[pymodule_export]
    use crate::testing::{_floor, _nothing, _replay, ManualClock};
    #[pymodule_export]
    use crate::upstream::{UpstreamError, UpstreamLimit, UpstreamLimits, upstream_wait_ms};
    #[pymodule_export]
    use crate::usage::{Outcome, Usage};
    use pyo3::prelude::*;

    #[pymodule_init]
    fn fill(module: &Bound<'_, PyModule>) -> PyResult<()> {
        let retry = |reason: &quota_core::Reason| match reason.retry() {
            quota_core::reason::Retry::Soon => "soon",
            quota_core::reason::Retry::NextPeriod => "next_period",
            quota_core::reason::Retry::No => "no",
        };
        let reasons = quota_core::Reason::ALL.iter();
        let rows: Vec<_> = reasons.map(|row| (row.code(), row.status(), retry(row), row.text())).collect();
        module.add("_reasons", rows)?;
        module.add("EXACT_TOKENIZERS", pyo3::types::PyTuple::new(module.py(), crate::estimate::exact_tokenizers())?)?;
        module.add("METRICS_CONTENT_TYPE", quota_core::observe::CONTENT_TYPE)?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
