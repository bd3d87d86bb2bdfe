//! Usage: an upstream's status and body, and what they mean.

use quota_core::usage::{Dialect, Outcome, Usage, outcome_of, without_content};
use serde_json::{Map, Value, json};

/// A case has `dialect`, `status` (null: no connection), `body`; and `state`, with `code` if unresolved, `normalized`
/// (fields that are not named are zero) if final, where `estimate` stands in for an input that is missing.
pub fn run(case: &Value) -> Result<(), String> {
    let dialect = case["dialect"].as_str().and_then(Dialect::from_name).ok_or("no such dialect")?;
    let status = match &case["status"] {
        Value::Null => None,
        status => Some(status.as_u64().and_then(|status| u16::try_from(status).ok()).ok_or("status")?),
    };
    let body = Some(&case["body"]).filter(|body| !body.is_null());
    let mut got = Map::new();
    let outcome = outcome_of(status, dialect, body);
    let lean = body.and_then(|body| without_content(body.to_string().as_bytes()));
    if outcome_of(status, dialect, lean.as_ref()) != outcome {
        return Err("the answer without its content means something else".into());
    }
    match outcome {
        Outcome::Final(usage) => {
            got.insert("state".into(), json!("final"));
            let estimate = case["estimate"].as_u64().unwrap_or(0);
            got.insert("normalized".into(), normalized(&usage.or_input(estimate)));
        }
        Outcome::Unresolved(why) => {
            got.insert("state".into(), json!("unresolved"));
            got.insert("code".into(), json!(why.code()));
            if case.get("message").is_some() {
                got.insert("message".into(), json!(why.to_string()));
            }
        }
        Outcome::FailedWithoutUsage => {
            got.insert("state".into(), json!("failed_without_usage"));
        }
        Outcome::NotRun => {
            got.insert("state".into(), json!("not_run"));
        }
    }
    let known = ["id", "about", "dialect", "status", "body", "estimate"];
    let wanted: Map<_, _> = case
        .as_object()
        .ok_or("not an object")?
        .clone()
        .into_iter()
        .filter(|(k, _)| !known.contains(&k.as_str()))
        .collect();
    match got == wanted {
        true => Ok(()),
        false => Err(format!("got {}, wanted {}", Value::from(got), Value::from(wanted))),
    }
}

/// Every field that is not zero, and the totals.
pub(crate) fn normalized(usage: &Usage) -> Value {
    let mut fields = Map::new();
    for (name, count) in [
        ("input_uncached", usage.input_uncached),
        ("input_cache_read", usage.input_cache_read),
        ("input_cache_write_5m", usage.input_cache_write_5m),
        ("input_cache_write_1h", usage.input_cache_write_1h),
        ("input_cache_write_other", usage.input_cache_write_other),
        ("input_audio", usage.input_audio),
        ("input_image", usage.input_image),
        ("input_video", usage.input_video),
        ("output_text", usage.output_text),
        ("output_reasoning", usage.output_reasoning),
        ("output_audio", usage.output_audio),
        ("output_image", usage.output_image),
        ("audio_millis", usage.audio_millis),
        ("web_searches", usage.web_searches),
        ("search_units", usage.search_units),
        ("pages", usage.pages),
        ("images", usage.images),
        ("anomalies", usage.anomalies as u64),
    ] {
        if count > 0 {
            fields.insert(name.into(), count.into());
        }
    }
    fields.insert("input_total".into(), usage.input_total().into());
    fields.insert("output_total".into(), usage.output_total().into());
    if let Some(cost) = usage.provider_cost {
        fields.insert("provider_cost".into(), cost.to_string().into());
    }
    if let Some(tier) = &usage.service_tier {
        fields.insert("service_tier".into(), tier.as_str().into());
    }
    if usage.input_missing {
        fields.insert("input_missing".into(), true.into());
    }
    fields.into()
}
