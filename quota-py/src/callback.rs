//! Callbacks: calling what the host has written in Python, from whatever thread the core happens to be in.
//!
//! Invariant: nothing of ours is held meanwhile, no exception gets out, and none vanishes: it goes to `sys.unraisablehook`.

use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;

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

/// Calls a host's object; `None` where it raised, or nobody is there to be called any more.
pub fn call<R>(object: &Py<PyAny>, run: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<R>) -> Option<R> {
    attached(|py| {
        let object = object.bind(py);
        run(object).map_err(|error| tell(error, object)).ok()
    })
    .flatten()
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
