//! Keys of a tenant: their records built, and the rule that a child only narrows its parents.
//!
//! Floor 1. Invariant: a compiled key's parents exist, form no circle, and nothing in it is wider than they are.

use std::collections::HashMap;
use std::sync::Arc;

use super::build::{Builder, Purpose};
use super::compile::Compiler;
use super::document::{Document, KeyDoc};
use super::error::{ErrorKind, Origin, PolicyErrors, Report};
use super::fields::{Name, read};
use super::limits::limits;
use super::node::parse;
use super::plan::{KeyPlan, Limit};
use super::tenants::Tenants;
use crate::key::Digest;
use crate::time::show_instant;

/// The most keys from one to its topmost parent, both counted: each is a scope of its requests.
pub const MAX_KEY_DEPTH: usize = 8;

/// The longest text of the limits of a key that is made at run time, in bytes.
pub const MAX_KEY_LIMITS: usize = 16 << 10;

/// The keys of one tenant, by id.
pub(super) fn keys(
    tenant: &Arc<str>,
    docs: &[KeyDoc],
    zone: &Arc<str>,
    compiler: &mut Compiler<'_, '_>,
) -> HashMap<Arc<str>, Arc<KeyPlan>> {
    let mut keys = HashMap::with_capacity(docs.len());
    for doc in docs {
        let plan = KeyPlan {
            id: doc.id.value.clone(),
            tenant: tenant.clone(),
            parent: doc.parent.as_ref().map(|parent| parent.value.clone()),
            app: doc.app.clone(),
            env: doc.env.clone(),
            user: doc.user.clone(),
            lane: doc.lane.as_ref().map(|lane| lane.value.clone()),
            names_users: doc.names_users,
            expires: doc.expires,
            revoked: doc.revoked,
            models: doc.models.as_ref().map(|models| models.iter().map(|model| model.value.clone()).collect()),
            limits: compiler.builder.limits(&doc.limits, zone, Purpose::Run, compiler.report),
        };
        keys.insert(plan.id.clone(), Arc::new(plan));
        if let Some(lane) = &doc.lane {
            compiler.lane_name(lane);
        }
        for model in doc.models.iter().flatten() {
            match &*model.value {
                "*" => compiler.report.add(&model.at, ErrorKind::BadValue, "a key without `models` may use any"),
                _ => compiler.model_name(model, false),
            }
        }
    }
    for (doc, parent) in docs.iter().filter_map(|doc| Some((doc, doc.parent.as_ref()?))) {
        narrows(&keys, doc, parent, compiler.report);
    }
    keys
}

/// Tells what is wrong between a key and its parents.
fn narrows(keys: &HashMap<Arc<str>, Arc<KeyPlan>>, doc: &KeyDoc, parent: &Name, report: &mut Report) {
    let mut parents: Vec<&KeyPlan> = Vec::new();
    let mut next = Some(&parent.value);
    while let Some(id) = next {
        if *id == doc.id.value {
            return report.add(&parent.at, ErrorKind::Cycle, format!("`{id}` is its own parent, or a parent of one"));
        }
        let Some(plan) = keys.get(id) else {
            // A parent's own parent is told of where it stands.
            if parents.is_empty() {
                let names = keys.keys().map(|name| &**name);
                report.unknown(&parent.at, ErrorKind::UnknownName, &format!("no key `{id}`"), id, names);
            }
            return;
        };
        if parents.iter().any(|other| other.id == *id) {
            return; // a circle above this key, told of where it stands
        }
        parents.push(plan);
        if parents.len() == MAX_KEY_DEPTH {
            let message = format!("more than {MAX_KEY_DEPTH} keys from this one to its topmost parent");
            return report.add(&parent.at, ErrorKind::TooLarge, message);
        }
        next = plan.parent.as_ref();
    }
    for message in wider(&keys[&doc.id.value], &parents) {
        report.add(&parent.at, ErrorKind::Conflict, message);
    }
}

/// A name that a key may fix.
type Field = fn(&KeyPlan) -> Option<&Arc<str>>;

/// In what a key would be wider than its parents, the nearest first: a sentence for each.
pub(crate) fn wider(key: &KeyPlan, parents: &[&KeyPlan]) -> Vec<String> {
    let mut wider = Vec::new();
    let fixed: [(&str, Field); 4] = [
        ("app", |key| key.app.as_ref()),
        ("env", |key| key.env.as_ref()),
        ("user", |key| key.user.as_ref()),
        ("lane", |key| key.lane.as_ref()),
    ];
    for (what, value) in fixed {
        let above = parents.iter().find_map(|parent| Some((&parent.id, value(parent)?)));
        if let (Some(own), Some((parent, above))) = (value(key), above)
            && own != above
        {
            wider.push(format!("`{what}` is `{own}`, where its parent `{parent}` has `{above}`"));
        }
    }
    if key.names_users
        && let Some(parent) = parents.iter().find(|parent| !parent.names_users)
    {
        wider.push(format!("`names_users`, which its parent `{}` may not", parent.id));
    }
    let above = parents.iter().find_map(|parent| Some((&parent.id, parent.expires?)));
    if let (Some(own), Some((parent, above))) = (key.expires, above)
        && own > above
    {
        let (own, above) = (show_instant(own), show_instant(above));
        wider.push(format!("it expires at {own}, its parent `{parent}` at {above}"));
    }
    let above = parents.iter().find_map(|parent| Some((&parent.id, parent.models.as_ref()?)));
    if let (Some(own), Some((parent, above))) = (&key.models, above)
        && let Some(model) = own.difference(above).min()
    {
        wider.push(format!("the model `{model}`, which its parent `{parent}` may not use"));
    }
    wider
}

/// The keys of all tenants, by digest.
pub(super) fn by_digest(document: &Document, tenants: &Tenants, report: &mut Report) -> HashMap<Digest, Arc<KeyPlan>> {
    let mut keys = HashMap::new();
    let mut lines: HashMap<Digest, u32> = HashMap::new();
    for (tenant, doc) in &document.tenants {
        let Some(plan) = tenants.get(&tenant.value) else { continue };
        let mut ids: HashMap<&str, u32> = HashMap::new();
        for key in &doc.keys {
            if let Some(line) = ids.insert(&key.id.value, key.id.at.line) {
                let message = format!("`{}` is the id of the key on line {line} too", key.id.value);
                report.add(&key.id.at, ErrorKind::Duplicate, message);
            }
            if let Some(line) = lines.insert(key.sha256.value, key.sha256.at.line) {
                let message = format!("the digest is that of the key on line {line} too");
                report.add(&key.sha256.at, ErrorKind::Duplicate, message);
            }
            keys.extend(plan.keys.get(&key.id.value).map(|plan| (key.sha256.value, plan.clone())));
        }
    }
    keys
}

/// The limits of a key that is made at run time, from a mapping in the policy's own words (`rpm: 5`), in a zone.
///
/// # Errors
/// Everything that is wrong with the text, in one report.
pub(crate) fn key_limits(text: &str, zone: &Arc<str>) -> Result<Vec<Limit>, PolicyErrors> {
    let mut report = Report::default();
    if text.len() > MAX_KEY_LIMITS {
        let message = format!("{} bytes; at most {MAX_KEY_LIMITS} are read", text.len());
        report.add(&Origin::default(), ErrorKind::TooLarge, message);
        return Err(report.finish("limits"));
    }
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    let docs = parse(text, &mut report).and_then(|node| read(&node, &mut report, limits)).unwrap_or_default();
    let built = Builder::default().limits(&docs, zone, Purpose::Run, &mut report);
    if report.is_empty() { Ok(built) } else { Err(report.finish("limits")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(id: &str, change: impl FnOnce(&mut KeyPlan)) -> KeyPlan {
        let mut key = KeyPlan { id: id.into(), ..KeyPlan::default() };
        change(&mut key);
        key
    }

    #[test]
    fn a_child_narrows_the_nearest_parent_that_says_anything() {
        let top = key("top", |k| {
            k.app = Some("a".into());
            k.expires = Some(2_000_000_000);
            k.models = Some(["m".into(), "n".into()].into());
        });
        let middle = key("middle", |k| k.names_users = true);
        let parents = [&middle, &top];
        let told = |change: fn(&mut KeyPlan)| wider(&key("child", change), &parents).join("; ");
        for (change, want) in [
            ((|_| ()) as fn(&mut KeyPlan), ""),
            (|k| k.app = Some("a".into()), ""),
            (|k| k.app = Some("b".into()), "`app` is `b`, where its parent `top` has `a`"),
            (|k| k.env = Some("b".into()), ""),
            (|k| k.names_users = true, "`names_users`, which its parent `top` may not"),
            (|k| k.expires = Some(2_000_000_000), ""),
            (
                |k| k.expires = Some(3_000_000_000),
                "it expires at 1970-01-01T00:00:03Z, its parent `top` at 1970-01-01T00:00:02Z",
            ),
            (|k| k.models = Some(["n".into()].into()), ""),
            (|k| k.models = Some([].into()), ""),
            (|k| k.models = Some(["n".into(), "x".into()].into()), "the model `x`, which its parent `top` may not use"),
        ] {
            assert_eq!(told(change), want);
        }
    }

    #[test]
    fn limits_are_read_in_the_words_of_a_policy() {
        let zone: Arc<str> = "UTC".into();
        let names = |text: &str| {
            let limits = key_limits(text, &zone).map_err(|errors| errors.to_string())?;
            Ok::<_, String>(limits.iter().map(|limit| format!("{} {}", limit.name, limit.hard)).collect::<Vec<_>>())
        };
        assert_eq!(names("rpm: 5\ndaily_budget_usd: 2"), Ok(vec!["rpm 5".into(), "daily_budget_usd 200000000".into()]));
        assert_eq!(names("{limits: {tpm: {soft: 3, hard: 4}}}"), Ok(vec!["tpm 4".into()]));
        assert_eq!(names(" \n"), Ok(vec![]));
        for (text, want) in [
            ("rmp: 5", "limits:1:1 rmp: unknown key; did you mean `rpm`?"),
            ("rpm: {alert_percent: 5}", "`rpm` has neither `hard` nor `soft`"),
            ("5", "a mapping"),
            ("tenants: {}", "unknown key"),
            (&" ".repeat(MAX_KEY_LIMITS + 1), "at most 16384"),
        ] {
            assert!(names(text).unwrap_err().contains(want), "{text:.20}: {:?}", names(text));
        }
    }
}
