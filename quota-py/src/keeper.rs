//! The keeper: the thread that sweeps a gate, ended before the interpreter is.

use pyo3::prelude::*;
use quota_core::keeper::Keeper as CoreKeeper;

use crate::gate::forks;

/// The thread that sweeps a gate.
#[pyclass(module = "quota", weakref)]
pub struct Keeper {
    keeper: Option<CoreKeeper>,
    forks: u64,
}

impl Keeper {
    pub fn new(keeper: CoreKeeper) -> Keeper {
        Keeper { keeper: Some(keeper), forks: forks() }
    }

    fn end(&mut self) {
        let Some(keeper) = self.keeper.take() else { return };
        if self.forks != forks() {
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
        // Not under the borrow, which lasts as long as the thread is waited for.
        let mut taken = {
            let mut keeper = slf.try_borrow_mut()?;
            Keeper { keeper: keeper.keeper.take(), forks: keeper.forks }
        };
        taken.end();
        Ok(())
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
        self.end();
    }
}
