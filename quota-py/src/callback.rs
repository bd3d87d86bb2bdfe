//! Callbacks: calling what the host has written in Python, from whatever thread the core happens to be in.
//!
//! Invariant: nothing of ours is held meanwhile, no exception gets out, and none vanishes: it goes to `sys.unraisablehook`.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use pyo3::pyclass::{PyTraverseError, PyVisit};

/// An object of the host's that a gate calls. The gate shows it to the collector of cycles, and has it let go where that
/// collects the gate with it: it is then called no more.
#[derive(Clone)]
pub struct Callback(Arc<Mutex<Option<Py<PyAny>>>>);

impl Callback {
    pub fn new(object: Py<PyAny>) -> Callback {
        Callback(Arc::new(Mutex::new(Some(object))))
    }

    /// `None` where it raised, or nobody is there to be called any more.
    pub fn call<R>(&self, run: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<R>) -> Option<R> {
        attached(|py| {
            let object = self.object().as_ref().map(|object| object.clone_ref(py))?;
            let object = object.bind(py);
            run(object).map_err(|error| tell(error, object)).ok()
        })
        .flatten()
    }

    pub fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        // Whoever has the lock has the interpreter, so the collector finds it free.
        self.0.try_lock().map_or(Ok(()), |object| visit.call(object.as_ref()))
    }

    pub fn let_go(&self) {
        // What goes with the last reference may call anything.
        let object = self.object().take();
        drop(object);
    }

    pub fn is(&self, other: &Callback) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    fn object(&self) -> MutexGuard<'_, Option<Py<PyAny>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs with the interpreter, unless it is going down. An exception that is on its way in this thread stays so: objects are
/// dropped, and leases given back with them, while one is.
pub fn attached<R>(run: impl FnOnce(Python<'_>) -> R) -> Option<R> {
    Python::try_attach(|py| {
        let under_way = PyErr::take(py);
        let result = run(py);
        if let Some(error) = under_way {
            error.restore(py);
        }
        result
    })
}

fn tell(error: PyErr, object: &Bound<'_, PyAny>) {
    let py = object.py();
    let interrupted = error.is_instance_of::<PyKeyboardInterrupt>(py);
    error.write_unraisable(py, Some(object));
    if interrupted {
        // Meant for the whole program: its main thread gets it again, as soon as it is out of here.
        let again = py.import("_thread").and_then(|threads| threads.call_method0("interrupt_main"));
        if let Err(error) = again {
            error.write_unraisable(py, Some(object));
        }
    }
}
