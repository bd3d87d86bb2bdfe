//! The policy: loaded whole, or everything that is wrong with it.

use napi::{Env, Result};
use napi_derive::napi;
use quota_core as core;

use crate::errors;

/// One thing that is wrong with a policy, or doubtful.
#[napi(object, object_from_js = false, use_nullable = true)]
pub struct PolicyFault {
    pub path: String,
    pub line: u32,
    pub column: u32,
    pub code: &'static str,
    pub message: String,
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
        loaded(&env, core::Policy::from_yaml(&text))
    }

    /// The same policy with the prices of a list in LiteLLM's form (JSON text) for models that have none of their own.
    #[napi]
    pub fn with_prices(&self, env: Env, litellm: String) -> Result<Policy> {
        let list = core::policy::price_list::PriceList::litellm(&litellm);
        let list = list.map_err(|error| errors::input(&env, "price_list_invalid", error.to_string()))?;
        Ok(Policy(self.0.clone().with_prices(list)))
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
