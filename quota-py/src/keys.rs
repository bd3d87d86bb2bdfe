//! Keys that are made while the gate runs. A secret is shown once, and by its own field alone.

use pyo3::prelude::*;
use pyo3::types::PyString;
use quota_core as core;
use quota_core::gate::KeyState;
use quota_core::time::{parse_instant, show_instant};

use crate::{convert, errors};

/// A new secret, with the id of the key that it opens.
#[pyclass(frozen, module = "quota")]
pub struct IssuedKey(pub core::gate::Issued);

#[pymethods]
impl IssuedKey {
    /// The id of the key.
    #[getter]
    fn id(&self) -> &str {
        &self.0.id
    }

    /// The secret. It is nowhere else: who loses it has to rotate the key.
    #[getter]
    fn secret(&self) -> &str {
        self.0.secret.expose()
    }

    /// From when on the key is refused, as an RFC 3339 instant.
    #[getter]
    fn expires(&self) -> Option<String> {
        self.0.expires.map(show_instant)
    }

    fn __repr__(&self) -> String {
        format!("IssuedKey({:?}, secret=(hidden))", &*self.0.id)
    }
}

/// What there is to know of a key; neither its secret nor a digest of it is among that.
#[pyclass(frozen, module = "quota")]
pub struct Key(pub core::gate::KeyView);

#[pymethods]
impl Key {
    /// Its id, unique in the tenant.
    #[getter]
    fn id(&self) -> &str {
        &self.0.plan.id
    }

    /// The tenant that it belongs to.
    #[getter]
    fn tenant(&self) -> &str {
        &self.0.plan.tenant
    }

    /// The id of the key that it narrows.
    #[getter]
    fn parent(&self) -> Option<&str> {
        self.0.plan.parent.as_deref()
    }

    /// The app that it stands for.
    #[getter]
    fn app(&self) -> Option<&str> {
        self.0.plan.app.as_deref()
    }

    /// The environment that it stands for.
    #[getter]
    fn env(&self) -> Option<&str> {
        self.0.plan.env.as_deref()
    }

    /// The user that it stands for.
    #[getter]
    fn user(&self) -> Option<&str> {
        self.0.plan.user.as_deref()
    }

    /// The lane of its requests.
    #[getter]
    fn lane(&self) -> Option<&str> {
        self.0.plan.lane.as_deref()
    }

    /// The models that it may use; `None` for all of its parent's, or of its tenant's.
    #[getter]
    fn models(&self) -> Option<Vec<&str>> {
        let mut models: Vec<&str> = self.0.plan.models.as_ref()?.iter().map(|model| &**model).collect();
        models.sort_unstable();
        Some(models)
    }

    /// From when on it is refused, as an RFC 3339 instant.
    #[getter]
    fn expires(&self) -> Option<String> {
        self.0.plan.expires.map(show_instant)
    }

    /// `active`, `expired` or `revoked`, by itself or by a parent.
    #[getter]
    fn state(&self) -> &'static str {
        match self.0.state {
            KeyState::Active => "active",
            KeyState::Expired => "expired",
            KeyState::Revoked => "revoked",
        }
    }

    /// Whether the policy has it; otherwise it lives as long as the gate.
    #[getter]
    fn in_policy(&self) -> bool {
        self.0.in_policy
    }

    /// How many secrets open it.
    #[getter]
    fn secrets(&self) -> usize {
        self.0.secrets
    }

    fn __repr__(&self) -> String {
        format!("Key({:?}, tenant={:?}, {})", &*self.0.plan.id, &*self.0.plan.tenant, self.state())
    }
}

/// An instant as text, in nanoseconds.
pub fn instant(text: &str) -> PyResult<u64> {
    parse_instant(text).map_err(|error| pyo3::exceptions::PyValueError::new_err(error.to_string()))
}

/// Limits in the words of the policy's `keys`: text, or a dictionary.
pub fn limits(object: Option<&Bound<'_, PyAny>>) -> PyResult<String> {
    match object {
        None => Ok(String::new()),
        Some(text) if text.is_instance_of::<PyString>() => Ok(text.str()?.to_cow()?.into_owned()),
        Some(other) => convert::ordered_text(other),
    }
}

pub fn issued(py: Python<'_>, issued: Result<core::gate::Issued, core::gate::KeyError>) -> PyResult<IssuedKey> {
    issued.map(IssuedKey).map_err(|error| errors::key(py, &error))
}
