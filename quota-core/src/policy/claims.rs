//! Claims: which of the verified claims of an asker (those of a JWT, say) name its tenant, app, user and so on.
//!
//! Floor 1. Invariant: a claim that does not say plainly what it is asked for is told of, never guessed at or skipped.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;

use super::compile::Compiler;
use super::document::Table;
use super::error::ErrorKind;
use super::fields::{Cursor, Fields, Name};
use super::tenants::Tenants;
use crate::principal::MAX_NAME;

/// Where one name of a principal comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimPlan {
    /// The claim: a key of the claims as it stands, or else a path of keys with dots between.
    pub claim: Arc<str>,
    /// What each of its values stands for; `None` if it stands for itself.
    pub map: Option<HashMap<Arc<str>, Arc<str>>>,
}

/// Where the names of a principal come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimsPlan {
    /// The tenant; it has to be there.
    pub tenant: ClaimPlan,
    /// The app.
    pub app: Option<ClaimPlan>,
    /// The environment.
    pub env: Option<ClaimPlan>,
    /// The user.
    pub user: Option<ClaimPlan>,
    /// The lane.
    pub lane: Option<ClaimPlan>,
    /// The id of a key, whose limits and standing hold too.
    pub key: Option<ClaimPlan>,
}

impl ClaimPlan {
    /// The name that the claims give; `None` if the claim is absent or null.
    ///
    /// # Errors
    /// The claim is no text, empty, longer than [`MAX_NAME`] bytes, has a control character, or is not in the map. The
    /// message names the claim and never shows its value.
    pub fn name(&self, claims: &Value) -> Result<Option<Arc<str>>, String> {
        let wrong = |what: &str| Err(format!("claim `{}`: {what}", self.claim));
        let text = match self.find(claims) {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::String(text)) => text,
            Some(Value::Bool(_)) => return wrong("found a boolean, where text belongs"),
            Some(Value::Number(_)) => return wrong("found a number, where text belongs"),
            Some(Value::Array(_)) => return wrong("found a list, where text belongs"),
            Some(Value::Object(_)) => return wrong("found an object, where text belongs"),
        };
        if text.trim().is_empty() {
            return wrong("found an empty text");
        }
        if text.len() > MAX_NAME {
            return wrong(&format!("found {} bytes; allowed: {MAX_NAME}", text.len()));
        }
        if text.chars().any(char::is_control) {
            return wrong("found a control character");
        }
        match &self.map {
            None => Ok(Some(text.as_str().into())),
            Some(map) => match map.get(text.as_str()) {
                Some(name) => Ok(Some(name.clone())),
                None => wrong("found a value that the policy does not map"),
            },
        }
    }

    fn find<'v>(&self, claims: &'v Value) -> Option<&'v Value> {
        claims.get(&*self.claim).or_else(|| self.claim.split('.').try_fold(claims, |at, key| at.as_object()?.get(key)))
    }
}

/// The section of a policy as it is written.
#[derive(Debug)]
pub(crate) struct ClaimsDoc {
    tenant: ClaimDoc,
    app: Option<ClaimDoc>,
    env: Option<ClaimDoc>,
    user: Option<ClaimDoc>,
    lane: Option<ClaimDoc>,
    key: Option<ClaimDoc>,
}

#[derive(Debug)]
struct ClaimDoc {
    claim: Name,
    map: Option<Table<Name>>,
}

pub(crate) fn claims(f: &mut Fields<'_>) -> Option<ClaimsDoc> {
    let tenant = f.need("tenant", "The claim that names the tenant", claim).flatten();
    let (app, env, user, lane, key) = (
        f.get("app", "The claim that names the app", claim).flatten(),
        f.get("env", "The claim that names the environment", claim).flatten(),
        f.get("user", "The claim that names the user", claim).flatten(),
        f.get("lane", "The claim that names the lane", claim).flatten(),
        f.get("key", "The claim that names a key by its id", claim).flatten(),
    );
    Some(ClaimsDoc { tenant: tenant?, app, env, user, lane, key })
}

/// A claim's name or path, or a record with a map of its values.
fn claim(c: Cursor<'_>) -> Option<Option<ClaimDoc>> {
    c.map_or(
        |c| {
            c.record("claim", |f| {
                let claim = f.need("claim", "Its name, or a path with dots between", |c| c.name());
                let map =
                    f.get("map", "What each of its values stands for; others are refused", |c| c.table(|c| c.name()));
                Some(ClaimDoc { claim: claim?, map })
            })
        },
        |c| c.name().map(|claim| Some(ClaimDoc { claim, map: None })),
    )
}

/// The section compiled: what maps stand for is looked up where the policy defines it.
pub(super) fn plan(doc: &ClaimsDoc, tenants: &Tenants, compiler: &mut Compiler<'_, '_>) -> ClaimsPlan {
    let stands_for = doc.tenant.map.iter().flatten().map(|(_, name)| name);
    for name in stands_for.filter(|name| !tenants.contains_key(&name.value)) {
        let message = format!("no tenant `{}`", name.value);
        let names = tenants.keys().map(|name| &**name);
        compiler.report.unknown(&name.at, ErrorKind::UnknownName, &message, &name.value, names);
    }
    for name in doc.lane.iter().flat_map(|lane| lane.map.iter().flatten()).map(|(_, name)| name) {
        compiler.lane_name(name);
    }
    let plan = |doc: &ClaimDoc| ClaimPlan {
        claim: doc.claim.value.clone(),
        map: doc.map.as_ref().map(|map| map.iter().map(|(from, to)| (from.value.clone(), to.value.clone())).collect()),
    };
    let [app, env, user, lane, key] =
        [&doc.app, &doc.env, &doc.user, &doc.lane, &doc.key].map(|doc| doc.as_ref().map(plan));
    ClaimsPlan { tenant: plan(&doc.tenant), app, env, user, lane, key }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_claim_is_found_as_it_stands_or_by_its_path() {
        let claims = json!({
            "org": "acme", "a.b": "whole", "a": {"b": "path", "c": {"d": "deep"}}, "https://x.example/org": "url",
            "n": 5, "t": true, "l": ["x"], "o": {}, "e": " ", "z": null, "long": "x".repeat(257), "nl": "a\nb",
        });
        let find = |claim: &str| ClaimPlan { claim: claim.into(), map: None }.name(&claims);
        for (claim, name) in [
            ("org", Some("acme")),
            ("a.b", Some("whole")),
            ("a.c.d", Some("deep")),
            ("https://x.example/org", Some("url")),
            ("none", None),
            ("org.none", None),
            ("a..c", None),
            ("z", None),
        ] {
            assert_eq!(find(claim).unwrap().as_deref(), name, "{claim}");
        }
        for (claim, what) in [
            ("n", "number"),
            ("t", "boolean"),
            ("l", "list"),
            ("o", "object"),
            ("e", "empty"),
            ("long", "257"),
            ("nl", "control"),
        ] {
            assert!(find(claim).unwrap_err().contains(what), "{claim}");
        }
        let mapped = ClaimPlan { claim: "org".into(), map: Some([("acme".into(), "a".into())].into()) };
        assert_eq!(mapped.name(&claims).unwrap().as_deref(), Some("a"));
        assert!(mapped.name(&json!({"org": "other"})).unwrap_err().contains("does not map"));
        for none in [json!(null), json!([1]), json!("org")] {
            assert_eq!(mapped.name(&none), Ok(None), "{none}");
        }
    }
}
