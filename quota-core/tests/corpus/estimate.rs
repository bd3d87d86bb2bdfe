//! Kind `estimate`: bodies, what is read of them, and what they reserve.

use quota_core::estimate::{Estimator, Standard, Tokenizer, body, images_of, output_of};
use quota_core::request::{InvalidRequest, Request};
use serde_json::Value;

pub fn run(case: &Value) -> Result<(), String> {
    let want = &case["expect"];
    let request = match (read(case)?, want["error"].as_str()) {
        (Err(error), Some(field)) if error.field == field => return Ok(()),
        (Err(error), _) => return Err(error.to_string()),
        (Ok(_), Some(field)) => return Err(format!("not refused at {field}")),
        (Ok(request), None) => request,
    };
    let ceiling = |name: &str| [case["ceilings"][name].as_u64()];
    let output = output_of(&request, &ceiling("per_choice"), &ceiling("total"));
    for (name, found) in [
        ("output", Value::from(output)),
        ("choices", request.choices.into()),
        ("images", images_of(&request).into()),
        ("model", (&*request.model).into()),
        ("stream", request.stream.into()),
        ("user", request.user.as_deref().into()),
        ("service_tier", request.service_tier.as_deref().into()),
    ] {
        if want.get(name).is_some_and(|want| *want != found) {
            return Err(format!("{name} is {found}, want {}", want[name]));
        }
    }
    let reserve = Standard.estimate(&request, Tokenizer::Heuristic).reserve;
    let bound = |name: &str, default| want["input"][name].as_u64().unwrap_or(default);
    if reserve < bound("at_least", 0) || reserve > bound("at_most", u64::MAX) {
        return Err(format!("input is {reserve}, want {}", want["input"]));
    }
    Ok(())
}

fn read(case: &Value) -> Result<Result<Request, InvalidRequest>, String> {
    let content = made(&case["body"]);
    Ok(match case["dialect"].as_str().unwrap_or_default() {
        "openai_chat" => body::openai_chat(content),
        "openai_completions" => body::openai_completions(content),
        "openai_embeddings" => body::openai_embeddings(content),
        "openai_responses" => body::openai_responses(content),
        "anthropic_messages" => body::anthropic_messages(content),
        "gemini_generate_content" => {
            body::gemini_generate_content(case["model"].as_str().ok_or("no model")?, content, false)
        }
        other => return Err(format!("no dialect {other}")),
    })
}

/// The body with its recipes carried out.
fn made(value: &Value) -> Value {
    if let Some(bytes) = value["$zeros"].as_u64() {
        let prefix = value["prefix"].as_str().unwrap_or_default();
        return format!("{prefix}{}", "A".repeat(bytes.div_ceil(3) as usize * 4)).into();
    }
    if let Some(levels) = value["$nest"].as_u64() {
        return (0..levels).fold(Value::Array(Vec::new()), |inner, _| Value::Array(vec![inner]));
    }
    match value {
        Value::Array(list) => list.iter().map(made).collect(),
        Value::Object(map) => map.iter().map(|(key, entry)| (key.clone(), made(entry))).collect(),
        other => other.clone(),
    }
}
