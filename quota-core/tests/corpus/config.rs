//! Runs cases of kind `config`: a document is loaded, and it is valid or not, with what is said about it or what came
//! of it.

use quota_core::policy::plan::Limit;
use quota_core::policy::{Policy, PolicyError, ScopeOf};
use serde_json::{Value, json};

pub fn run(case: &Value) -> Result<(), String> {
    let text = match (&case["yaml"], &case["document"]) {
        (Value::String(text), _) => text.clone(),
        (_, document) => document.to_string(),
    };
    let none = Vec::new();
    let list = |key: &str| case[key].as_array().unwrap_or(&none).clone();
    match (Policy::from_yaml(&text), case["valid"].as_bool()) {
        (Ok(policy), Some(true)) => {
            told(policy.warnings(), &list("warnings"))?;
            if let Some(count) = case["warning_count"].as_u64() {
                equal("warnings", &json!(policy.warnings().len()), &json!(count))?;
            }
            for fact in list("limits") {
                check(&policy, &fact).map_err(|what| format!("{what}, of {fact}"))?;
            }
            Ok(())
        }
        (Err(errors), Some(false)) => {
            told(&errors.errors, &list("errors"))?;
            match case["error_count"].as_u64() {
                Some(count) if count != errors.errors.len() as u64 => {
                    Err(format!("{} errors, not {count}:\n{errors}", errors.errors.len()))
                }
                _ => Ok(()),
            }
        }
        (Ok(_), Some(false)) => Err("loads".into()),
        (Err(errors), Some(true)) => Err(format!("does not load:\n{errors}")),
        (_, None) => Err("the case does not say whether it is valid".into()),
    }
}

/// Each wanted error (or warning) is there: path, kind, line where stated, and a part of the message.
fn told(found: &[PolicyError], wanted: &[Value]) -> Result<(), String> {
    for want in wanted {
        let fits = |error: &&PolicyError| {
            want["path"].as_str().is_none_or(|path| path == error.path)
                && want["kind"].as_str().is_none_or(|kind| kind == error.kind.code())
                && want["line"].as_u64().is_none_or(|line| line == error.line as u64)
                && want["says"].as_str().is_none_or(|says| error.message.contains(says))
        };
        if !found.iter().any(|error| fits(&error)) {
            let found: Vec<String> = found.iter().map(|e| format!("{} {e}", e.kind.code())).collect();
            return Err(format!("nothing like {want} in:\n{}", found.join("\n")));
        }
    }
    Ok(())
}

/// A limit of the plan is as stated, or absent.
fn check(policy: &Policy, fact: &Value) -> Result<(), String> {
    let text = |key: &str| fact[key].as_str();
    let of = ScopeOf {
        tenant: text("tenant"),
        model: text("model"),
        app: text("app"),
        key: text("key"),
        users: fact["users"] == true,
        cost_center: text("cost_center"),
        ..ScopeOf::default()
    };
    let scope = policy.limits(of).map_err(|error| error.to_string())?;
    let name = fact["limit"].as_str().unwrap_or_default();
    let limit = scope.iter().find(|limit| *limit.name == *name);
    let Some(limit) = limit else {
        return if fact["absent"] == true { Ok(()) } else { Err("no such limit".into()) };
    };
    if fact["absent"] == true {
        return Err("the limit is there".into());
    }
    let shown = show(limit);
    for (key, want) in fact.as_object().into_iter().flatten() {
        if let Some(found) = shown.get(key) {
            equal(key, found, want)?;
        }
    }
    Ok(())
}

fn show(limit: &Limit) -> Value {
    json!({
        "meter": limit.meter.name(),
        "window": limit.window.to_string(),
        "hard": limit.meter.show(limit.hard),
        "soft": limit.soft.map(|soft| limit.meter.show(soft)),
        "burst": limit.meter.show(limit.burst),
        "mode": limit.mode.name(),
        "on_exceed": limit.on_exceed.name(),
        "hold": limit.hold.name(),
        "alert_percent": limit.alert_percent,
        "overrides": limit.overrides.iter().map(|o| limit.meter.show(o.hard)).collect::<Vec<_>>(),
    })
}

fn equal(what: &str, found: &Value, want: &Value) -> Result<(), String> {
    if found == want { Ok(()) } else { Err(format!("{what} is {found}, not {want}")) }
}
