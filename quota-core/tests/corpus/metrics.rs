//! Metrics: what inference servers tell of their load, and the priorities that they are told.

use quota_core::gpu::{Dialect, Unreadable};
use serde_json::{Map, Value, json};

/// A case has `dialect`, and `text` (lines) with `load`, and `model`, `bad_lines` (none if left out) and `models` if
/// given; or `text` with `error`; or `rank` with `priority`.
pub fn run(case: &Value) -> Result<(), String> {
    let dialect = case["dialect"].as_str().and_then(Dialect::parse).ok_or("dialect")?;
    if let Some(rank) = case["rank"].as_u64().and_then(|rank| u8::try_from(rank).ok()) {
        let hint = dialect.priority(rank).map(|hint| json!({"field": hint.field, "value": hint.value}));
        return expect("priority", &case["priority"], &hint.unwrap_or_default());
    }
    let lines: Vec<&str> = case["text"].as_array().ok_or("text")?.iter().filter_map(Value::as_str).collect();
    let read = match dialect.read(&lines.join("\n"), case["model"].as_str()) {
        Ok(read) => read,
        Err(error) => {
            let name = match error {
                Unreadable::TooLong(_) => "too_long",
                Unreadable::NotJson(_) => "not_json",
                _ => "unknown_form",
            };
            return expect("error", &case["error"], &name.into());
        }
    };
    let load = &read.load;
    let figures = [
        ("running", load.running),
        ("waiting", load.waiting),
        ("kv_used_ppm", load.kv_used_ppm.map(u64::from)),
        ("kv_tokens", load.kv_tokens),
        ("max_running", load.max_running),
        ("preemptions", load.preemptions),
    ];
    let told: Map<String, Value> = figures.into_iter().filter_map(|(k, v)| Some((k.to_owned(), v?.into()))).collect();
    expect("load", &case["load"], &told.into())?;
    expect("age", &json!([null, false]), &json!([load.as_of, load.stale]))?;
    expect("bad_lines", &json!(case["bad_lines"].as_u64().unwrap_or(0)), &read.bad_lines.into())?;
    match case.get("models") {
        Some(models) => expect("models", models, &json!(read.models)),
        None => Ok(()),
    }
}

fn expect(what: &str, wanted: &Value, got: &Value) -> Result<(), String> {
    match wanted == got {
        true => Ok(()),
        false => Err(format!("{what}: got {got}, wanted {wanted}")),
    }
}
