//! The principal: who asks, as the host has verified it.

use napi_derive::napi;
use quota_core as core;

/// What a principal is made of.
#[napi(object, object_to_js = false)]
pub struct PrincipalOptions {
    pub tenant: String,
    pub app: Option<String>,
    pub env: Option<String>,
    pub user: Option<String>,
    pub lane: Option<String>,
    pub key: Option<String>,
    pub names_users: Option<bool>,
}

/// Who asks.
#[napi]
pub struct Principal(pub(crate) core::Principal);

#[napi]
impl Principal {
    #[napi(constructor)]
    pub fn new(options: PrincipalOptions) -> Principal {
        let PrincipalOptions { tenant, app, env, user, lane, key, names_users } = options;
        let mut builder = core::Principal::builder(tenant).names_users(names_users.unwrap_or(false));
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

    #[napi(getter)]
    pub fn tenant(&self) -> &str {
        self.0.tenant()
    }

    #[napi(getter)]
    pub fn app(&self) -> Option<&str> {
        self.0.app()
    }

    #[napi(getter)]
    pub fn env(&self) -> Option<&str> {
        self.0.env()
    }

    #[napi(getter)]
    pub fn user(&self) -> Option<&str> {
        self.0.user()
    }

    #[napi(getter)]
    pub fn lane(&self) -> Option<&str> {
        self.0.lane()
    }

    /// The id of the key that was presented; never the key.
    #[napi(getter)]
    pub fn key(&self) -> Option<&str> {
        self.0.key()
    }

    /// The same principal acting for a user of the tenant, where it may name one; otherwise unchanged.
    #[napi]
    pub fn on_behalf_of(&self, user: String) -> Principal {
        Principal(self.0.on_behalf_of(&user))
    }

    /// Whether it is the same asker.
    #[napi]
    pub fn equals(&self, other: &Principal) -> bool {
        self.0 == other.0
    }
}
