//! The policy: loaded whole, or everything that is wrong with it.

use napi::bindgen_prelude::Either;
use napi::{Env, Result};
use napi_derive::napi;
use quota_core as core;
use quota_core::policy::plan;
use quota_core::time::show_instant;

use crate::convert::amount;
use crate::errors;
use crate::price::{Price, PriceList};

/// One thing that is wrong with a policy, or doubtful.
#[napi(object, object_from_js = false, use_nullable = true)]
pub struct PolicyFault {
    pub path: String,
    pub line: u32,
    pub column: u32,
    pub code: &'static str,
    pub message: String,
}

/// A scope by what it belongs to; with nothing set it is what all tenants share.
#[napi(object, object_to_js = false)]
#[derive(Default)]
pub struct ScopeOptions {
    pub tenant: Option<String>,
    pub model: Option<String>,
    pub app: Option<String>,
    pub key: Option<String>,
    pub users: Option<bool>,
    pub runs: Option<bool>,
    pub cost_center: Option<String>,
}

/// Another amount of a limit for a while.
#[napi(object, object_from_js = false)]
pub struct LimitOverride {
    /// From when on, as an RFC 3339 instant.
    pub starts: String,
    /// Until when.
    pub expires: String,
    pub hard: Either<f64, String>,
    pub burst: Either<f64, String>,
}

/// One limit of one scope of a policy.
#[napi(object, object_from_js = false, use_nullable = true)]
pub struct PolicyLimit {
    /// Its short name (`rpm`, `daily_budget_usd`), or the name given to a free window.
    pub name: String,
    /// What is counted.
    pub meter: &'static str,
    /// Over what: `rolling 60 s`, `fixed 60 s`, `day Europe/Berlin`, `week UTC`, `month UTC from 1`, `held` or `run`.
    pub window: String,
    pub hard: Either<f64, String>,
    pub soft: Option<Either<f64, String>>,
    pub burst: Either<f64, String>,
    pub mode: &'static str,
    pub on_exceed: &'static str,
    pub hold: &'static str,
    pub alert_percent: Option<u8>,
    pub overrides: Vec<LimitOverride>,
}

impl PolicyLimit {
    fn of(limit: &plan::Limit) -> PolicyLimit {
        let figure = |figure| amount(limit.meter, figure);
        let over = |over: &plan::Override| LimitOverride {
            starts: show_instant(over.starts),
            expires: show_instant(over.expires),
            hard: figure(over.hard),
            burst: figure(over.burst),
        };
        PolicyLimit {
            name: limit.name.to_string(),
            meter: limit.meter.name(),
            window: limit.window.to_string(),
            hard: figure(limit.hard),
            soft: limit.soft.map(figure),
            burst: figure(limit.burst),
            mode: limit.mode.name(),
            on_exceed: limit.on_exceed.name(),
            hold: limit.hold.name(),
            alert_percent: limit.alert_percent,
            overrides: limit.overrides.iter().map(over).collect(),
        }
    }
}

/// The document of all quotas, prices and queues, checked and compiled.
#[napi]
pub struct Policy(pub(crate) core::Policy);

fn loaded(env: &Env, loaded: std::result::Result<core::Policy, core::policy::PolicyErrors>) -> Result<Policy> {
    loaded.map(Policy).map_err(|wrong| errors::policy(env, &wrong))
}

#[napi]
impl Policy {
    /// Loads a file of YAML or JSON, and the price list that it names.
    #[napi(factory)]
    pub fn from_file(env: Env, path: String) -> Result<Policy> {
        loaded(&env, core::Policy::from_file(path))
    }

    /// Loads YAML.
    #[napi(factory)]
    pub fn from_yaml(env: Env, text: String) -> Result<Policy> {
        loaded(&env, core::Policy::from_yaml(&text))
    }

    /// Loads JSON.
    #[napi(factory)]
    pub fn from_json(env: Env, text: String) -> Result<Policy> {
        loaded(&env, core::Policy::from_json(&text))
    }

    #[napi(js_name = "_withPrices")]
    pub fn with_prices(&self, prices: &PriceList) -> Policy {
        Policy(self.0.clone().with_prices(prices.0.clone()))
    }

    /// The limits of one scope; those of the scopes around it hold too. Throws `InputError` (`scope_unknown`) for a scope
    /// that the policy does not have.
    #[napi]
    pub fn limits(&self, env: Env, of: Option<ScopeOptions>) -> Result<Vec<PolicyLimit>> {
        let of = of.unwrap_or_default();
        let scope = core::policy::ScopeOf {
            tenant: of.tenant.as_deref(),
            model: of.model.as_deref(),
            app: of.app.as_deref(),
            key: of.key.as_deref(),
            users: of.users.unwrap_or(false),
            runs: of.runs.unwrap_or(false),
            cost_center: of.cost_center.as_deref(),
        };
        let limits = self.0.limits(scope).map_err(|error| errors::input(&env, "scope_unknown", error.to_string()))?;
        Ok(limits.iter().map(PolicyLimit::of).collect())
    }

    /// The names of the tenants, sorted.
    #[napi(getter)]
    pub fn tenants(&self) -> Vec<String> {
        let mut names: Vec<String> = self.0.plan().tenants.keys().map(|name| name.to_string()).collect();
        names.sort_unstable();
        names
    }

    /// The price of a model, an alias having its upstream's; `null` for one that the policy does not price.
    #[napi]
    pub fn price(&self, model: String) -> Option<Price> {
        self.0.plan().models.get(model.as_str())?.price.clone().map(Price)
    }

    /// What is allowed and probably not meant.
    #[napi(getter)]
    pub fn warnings(&self) -> Vec<PolicyFault> {
        let fault = |fault: &core::policy::PolicyError| PolicyFault {
            path: fault.path.clone(),
            line: fault.line,
            column: fault.column,
            code: fault.kind.code(),
            message: fault.message.clone(),
        };
        self.0.warnings().iter().map(fault).collect()
    }

    /// The SHA-256 of the document's text.
    #[napi(getter)]
    pub fn digest(&self) -> &str {
        self.0.digest()
    }

    #[napi(js_name = "_schema")]
    pub fn schema() -> String {
        core::Policy::schema().to_string()
    }
}
