//! Streams by themselves: usage and output read from a streamed answer without a lease.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use quota_core as core;
use quota_core::usage::StreamReader as CoreReader;

use crate::convert::Small;
use crate::usage::{Outcome, Usage, dialect};

/// Reads the usage of a streamed answer as it passes.
#[pyclass(module = "quota")]
pub struct StreamReader(Option<CoreReader>);

fn over() -> PyErr {
    PyValueError::new_err("the stream has been finished")
}

#[pymethods]
impl StreamReader {
    #[new]
    #[pyo3(signature = (dialect="auto", *, strip_usage=false, max_event=None))]
    fn new(dialect: &str, strip_usage: bool, max_event: Option<Small<usize>>) -> PyResult<StreamReader> {
        let mut reader = CoreReader::new(self::dialect(dialect)?).strip_usage(strip_usage);
        if let Some(bytes) = max_event {
            reader = reader.max_event(bytes.0);
        }
        Ok(StreamReader(Some(reader)))
    }

    /// Takes the next bytes of the upstream and gives those that go on to the asker.
    fn feed<'py>(&mut self, py: Python<'py>, chunk: &Bound<'py, PyBytes>) -> PyResult<Bound<'py, PyBytes>> {
        let reader = self.0.as_mut().ok_or_else(over)?;
        let mut passed = Vec::with_capacity(chunk.as_bytes().len());
        reader.feed(chunk.as_bytes(), |bytes| passed.extend_from_slice(bytes));
        Ok(PyBytes::new(py, &passed))
    }

    /// Output tokens so far.
    #[getter]
    fn output_so_far(&self) -> PyResult<u64> {
        self.0.as_ref().map(CoreReader::output_so_far).ok_or_else(over)
    }

    /// Ends the stream, also one that broke off. Once.
    fn finish(&mut self) -> PyResult<StreamEnd> {
        let reader = self.0.take().ok_or_else(over)?;
        let mut tail = Vec::new();
        let end = reader.finish(|bytes| tail.extend_from_slice(bytes));
        Ok(StreamEnd { end, tail })
    }
}

/// What a stream came to.
#[pyclass(frozen, module = "quota")]
pub struct StreamEnd {
    end: core::usage::StreamEnd,
    tail: Vec<u8>,
}

#[pymethods]
impl StreamEnd {
    /// What the stream comes to.
    #[getter]
    fn outcome(&self) -> Outcome {
        Outcome(self.end.outcome.clone())
    }

    /// What is known if the outcome is not final.
    #[getter]
    fn seen(&self) -> Option<Usage> {
        self.end.seen.clone().map(Usage)
    }

    /// Whether an event said that the answer failed.
    #[getter]
    fn failed(&self) -> bool {
        self.end.failed
    }

    /// Whether the stream said that it is at its end.
    #[getter]
    fn done(&self) -> bool {
        self.end.done
    }

    /// Events that could not be read.
    #[getter]
    fn anomalies(&self) -> u32 {
        self.end.anomalies
    }

    /// Bytes that were held back and go on to the asker.
    #[getter]
    fn tail<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.tail)
    }

    fn __repr__(&self) -> String {
        format!("StreamEnd({})", self.outcome().__repr__())
    }
}
