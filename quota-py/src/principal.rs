//! The principal: who asks, as the host has verified it.

use pyo3::prelude::*;
use quota_core as core;

/// Who asks.
#[pyclass(frozen, module = "quota", eq, hash)]
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Principal(pub core::Principal);

#[pymethods]
impl Principal {
    #[new]
    #[pyo3(signature = (*, tenant, app=None, env=None, user=None, lane=None, key=None, names_users=false))]
    fn new(
        tenant: &str,
        app: Option<&str>,
        env: Option<&str>,
        user: Option<&str>,
        lane: Option<&str>,
        key: Option<&str>,
        names_users: bool,
    ) -> Principal {
        let mut builder = core::Principal::builder(tenant).names_users(names_users);
        if let Some(app) = app {
            builder = builder.app(app);
        }
        if let Some(env) = env {
            builder = builder.env(env);
        }
        if let Some(user) = user {
            builder = builder.user(user);
        }
        if let Some(lane) = lane {
            builder = builder.lane(lane);
        }
        if let Some(key) = key {
            builder = builder.key(key);
        }
        Principal(builder.build())
    }

    /// The tenant: who owns the quota and pays.
    #[getter]
    fn tenant(&self) -> &str {
        self.0.tenant()
    }

    /// The app.
    #[getter]
    fn app(&self) -> Option<&str> {
        self.0.app()
    }

    /// The environment.
    #[getter]
    fn env(&self) -> Option<&str> {
        self.0.env()
    }

    /// The user of the tenant.
    #[getter]
    fn user(&self) -> Option<&str> {
        self.0.user()
    }

    /// The lane of its requests.
    #[getter]
    fn lane(&self) -> Option<&str> {
        self.0.lane()
    }

    /// The id of the key that was presented; never the key.
    #[getter]
    fn key(&self) -> Option<&str> {
        self.0.key()
    }

    /// The same principal acting for a user of the tenant, where it may name one; otherwise unchanged.
    fn on_behalf_of(&self, user: &str) -> Principal {
        Principal(self.0.on_behalf_of(user))
    }

    fn __repr__(&self) -> String {
        let optional = [
            ("app", self.0.app()),
            ("env", self.0.env()),
            ("user", self.0.user()),
            ("lane", self.0.lane()),
            ("key", self.0.key()),
        ];
        let mut text = format!("Principal(tenant={:?}", self.0.tenant());
        for (name, value) in optional {
            if let Some(value) = value {
                text.push_str(&format!(", {name}={value:?}"));
            }
        }
        text + ")"
    }
}
