//! Keys that are made while the gate runs. A secret is shown once, and by its own field alone.

use napi::{Env, Result};
use napi_derive::napi;
use quota_core as core;
use quota_core::gate::{KeySpec, KeyState};
use quota_core::time::show_instant;

use crate::count::Count;
use crate::{convert, errors};

/// What a key is made of.
#[napi(object, object_to_js = false)]
pub struct KeyOptions {
    pub tenant: String,
    pub author: String,
    pub id: Option<String>,
    pub parent: Option<String>,
    pub app: Option<String>,
    pub env: Option<String>,
    pub user: Option<String>,
    pub lane: Option<String>,
    pub names_users: Option<bool>,
    pub expires: Option<String>,
    pub models: Option<Vec<String>>,
    /// In the words of the policy's `keys`.
    pub limits: Option<String>,
}

impl KeyOptions {
    /// The key to make, and who makes it.
    pub fn spec(self, env: &Env) -> Result<(KeySpec, String)> {
        let spec = KeySpec {
            id: self.id.map(Into::into),
            parent: self.parent.map(Into::into),
            app: self.app.map(Into::into),
            env: self.env.map(Into::into),
            user: self.user.map(Into::into),
            lane: self.lane.map(Into::into),
            names_users: self.names_users.unwrap_or(false),
            expires: self.expires.map(|text| convert::instant(env, &text)).transpose()?,
            models: self.models.map(|models| models.into_iter().map(Into::into).collect()),
            limits: self.limits.unwrap_or_default(),
            ..KeySpec::new(self.tenant)
        };
        Ok((spec, self.author))
    }
}

/// Who does something to a key.
#[napi(object, object_to_js = false)]
pub struct KeyAct {
    pub author: String,
    /// For how long the earlier secrets of a rotated key go on.
    pub overlap_ms: Option<Count>,
}

/// A new secret, with the id of the key that it opens.
#[napi]
pub struct IssuedKey(core::gate::Issued);

#[napi]
impl IssuedKey {
    #[napi(getter)]
    pub fn id(&self) -> &str {
        &self.0.id
    }

    /// The secret. It is nowhere else: who loses it has to rotate the key.
    #[napi(getter)]
    pub fn secret(&self) -> &str {
        self.0.secret.expose()
    }

    /// From when on the key is refused, as an RFC 3339 instant.
    #[napi(getter)]
    pub fn expires(&self) -> Option<String> {
        self.0.expires.map(show_instant)
    }
}

pub fn issued(env: &Env, issued: std::result::Result<core::gate::Issued, core::gate::KeyError>) -> Result<IssuedKey> {
    issued.map(IssuedKey).map_err(|error| errors::key(env, &error))
}

/// What there is to know of a key; neither its secret nor a digest of it is among that.
#[napi(object, object_from_js = false, use_nullable = true)]
pub struct Key {
    pub id: String,
    pub tenant: String,
    /// The id of the key that it narrows.
    pub parent: Option<String>,
    pub app: Option<String>,
    pub env: Option<String>,
    pub user: Option<String>,
    pub lane: Option<String>,
    /// The models that it may use; nothing for all of its parent's, or of its tenant's.
    pub models: Option<Vec<String>>,
    pub expires: Option<String>,
    /// `active`, `expired` or `revoked`, by itself or by a parent.
    pub state: &'static str,
    /// Whether the policy has it; otherwise it lives as long as the gate.
    pub in_policy: bool,
    /// How many secrets open it.
    pub secrets: u32,
}

impl Key {
    pub fn of(view: &core::gate::KeyView) -> Key {
        let plan = &view.plan;
        let text = |text: &Option<std::sync::Arc<str>>| text.as_deref().map(ToOwned::to_owned);
        let mut models: Option<Vec<String>> =
            plan.models.as_ref().map(|models| models.iter().map(ToString::to_string).collect());
        models.iter_mut().for_each(|models| models.sort_unstable());
        Key {
            id: plan.id.to_string(),
            tenant: plan.tenant.to_string(),
            parent: text(&plan.parent),
            app: text(&plan.app),
            env: text(&plan.env),
            user: text(&plan.user),
            lane: text(&plan.lane),
            models,
            expires: plan.expires.map(show_instant),
            state: match view.state {
                KeyState::Active => "active",
                KeyState::Expired => "expired",
                KeyState::Revoked => "revoked",
            },
            in_policy: view.in_policy,
            secrets: u32::try_from(view.secrets).unwrap_or(u32::MAX),
        }
    }
}
