//! The keeper: the thread that sweeps a gate, ended before the interpreter is.

use pyo3::prelude::*;
use pyo3::pyclass::{PyTraverseError, PyVisit};
use quota_core::keeper::Keeper as CoreKeeper;

use crate::gate::{Gate, forks};

/// The thread that sweeps a gate.
#[pyclass(module = "quota", weakref)]
pub struct Keeper {
    keeper: Option<CoreKeeper>,
    forks: u64,
    /// What it sweeps: the thread calls what the gate was handed.
    gate: Py<Gate>,
}

impl Keeper {
    pub fn new(keeper: CoreKeeper, gate: Py<Gate>) -> Keeper {
        Keeper { keeper: Some(keeper), forks: forks(), gate }
    }

    /// Not under a borrow of a `Keeper`, which would last as long as the thread is waited for.
    fn end(keeper: Option<CoreKeeper>, of: u64) {
        let Some(keeper) = keeper else { return };
        if of != forks() {
            // The thread is in the other process: there is nobody to be waited for.
            std::mem::forget(keeper);
            return;
        }
        // It waits for the thread, which may be asking for the interpreter to wake somebody.
        let mut keeper = Some(keeper);
        Python::try_attach(|py| py.detach(|| drop(keeper.take())));
        // Where the interpreter is going down the thread gets no answer from it and ends by itself.
        std::mem::forget(keeper);
    }
}

#[pymethods]
impl Keeper {
    /// Stops it. The second time nothing happens.
    fn stop(slf: &Bound<'_, Self>) -> PyResult<()> {
        let (keeper, of) = {
            let mut keeper = slf.try_borrow_mut()?;
            (keeper.keeper.take(), keeper.forks)
        };
        Keeper::end(keeper, of);
        Ok(())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.gate)
    }

    /// Whether it sweeps still; not in a process that was forked off.
    #[getter]
    fn is_running(&self) -> bool {
        self.keeper.is_some() && self.forks == forks()
    }

    fn __repr__(&self) -> &'static str {
        if self.is_running() { "Keeper(runs)" } else { "Keeper(stopped)" }
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exc))]
    fn __exit__(slf: &Bound<'_, Self>, _exc: &Bound<'_, pyo3::types::PyTuple>) -> PyResult<bool> {
        Keeper::stop(slf)?;
        Ok(false)
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        Keeper::end(self.keeper.take(), self.forks);
    }
}
