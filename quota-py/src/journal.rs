//! The journal: its entries as dictionaries, and handing them on to an object of the host's.

use pyo3::prelude::*;
use pyo3::types::PyList;
use quota_core as core;
use quota_core::journal::{Entry, Ring};

use crate::callback::Callback;
use crate::convert::python;

/// The entries that a gate's journal held when it was asked, oldest first, each as a dictionary.
#[pyclass(module = "quota")]
pub struct Entries {
    left: std::vec::IntoIter<Entry>,
    dropped: u64,
}

impl Entries {
    /// Those after a number.
    pub fn of(gate: &core::Gate, after: Option<u64>) -> Entries {
        let mut entries = Vec::new();
        gate.journal().scan(&mut |entry| {
            if after.is_none_or(|after| entry.seq > after) {
                entries.push(entry.clone());
            }
            true
        });
        Entries { left: entries.into_iter(), dropped: gate.journal().dropped() }
    }
}

#[pymethods]
impl Entries {
    /// How many entries other than refusals were written and had gone when the journal was asked.
    #[getter]
    fn dropped(&self) -> u64 {
        self.dropped
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.left.next().map(|entry| python(py, &entry.to_json())).transpose()
    }

    fn __length_hint__(&self) -> usize {
        self.left.len()
    }

    fn __repr__(&self) -> String {
        format!("Entries(left={}, dropped={})", self.left.len(), self.dropped)
    }
}

pub fn list<'py>(py: Python<'py>, entries: &[Entry]) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    for entry in entries {
        list.append(python(py, &entry.to_json())?)?;
    }
    Ok(list)
}

/// The usual journal, which hands every entry to the host's object as well, by its method.
pub fn telling(object: &Bound<'_, PyAny>) -> PyResult<(Ring, Callback)> {
    let push = object.getattr("push").map_err(|_| {
        let kind = crate::convert::kind(object);
        pyo3::exceptions::PyTypeError::new_err(format!("a journal has a method `push(entry)`, {kind} has none"))
    })?;
    let push = Callback::new(push.unbind());
    let told = push.clone();
    let ring = Ring::default().telling(move |entry| {
        // What it raised has been told.
        let _ = told.call(|push| push.call1((python(push.py(), &entry.to_json())?,)).map(|_| ()));
    });
    Ok((ring, push))
}
