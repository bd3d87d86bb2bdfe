//! The models that a key may use, as OpenAI lists models.
//!
//! Invariant: a model that a request would be refused for not being allowed is not listed.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use quota_core::Principal;
use quota_core::gate::KeyView;
use serde_json::{Value, json};

use crate::answer::Fault;
use crate::server::Gateway;

/// The list.
pub fn list(gateway: &Gateway, who: &Principal) -> Value {
    json!({ "object": "list", "data": allowed(gateway, who).iter().map(|name| model(name)).collect::<Vec<_>>() })
}

/// One of the list.
///
/// # Errors
/// It is not in the list.
pub fn one(gateway: &Gateway, who: &Principal, name: &str) -> Result<Value, Fault> {
    if allowed(gateway, who).contains(name) {
        return Ok(model(name));
    }
    Err(Fault::new(404, "model_not_found", "There is no such model for this key.").param("model"))
}

fn model(name: &str) -> Value {
    json!({ "id": name, "object": "model", "created": 0, "owned_by": "gateway" })
}

/// What the tenant may use, as far as neither the key nor one of its parents narrows it.
fn allowed(gateway: &Gateway, who: &Principal) -> BTreeSet<Arc<str>> {
    let plan = gateway.plan();
    let Some(tenant) = plan.tenants.get(who.tenant()) else { return BTreeSet::new() };
    let mut names: BTreeSet<Arc<str>> = tenant.models.keys().cloned().collect();
    if tenant.any_model.is_some() {
        names.extend(plan.models.keys().cloned());
    }
    let keys = gateway.gate.keys(who.tenant());
    let keys: HashMap<&str, &KeyView> = keys.iter().map(|key| (&*key.plan.id, key)).collect();
    let mut next = who.key();
    // No key is its own parent; the bound is for one that would be.
    for _ in 0..keys.len() {
        let Some(key) = next.and_then(|id| keys.get(id)) else { break };
        if let Some(models) = &key.plan.models {
            names.retain(|name| models.contains(name));
        }
        next = key.plan.parent.as_deref();
    }
    names
}
