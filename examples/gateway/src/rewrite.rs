//! The upstream's body: the asker's, with the model, the output bound and the tools that were agreed.
//!
//! Invariant: nothing in it can send the request elsewhere or let it cost more than was reserved; what is not changed
//! stands as it was written.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use quota_core::gpu::PriorityHint;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use crate::answer::{Fault, Manner};
use crate::endpoint::Endpoint;

/// Members by which some upstreams let a body choose address, account or another model, or go before others; in order.
const IGNORED: [&str; 16] = [
    "api_base",
    "api_key",
    "api_version",
    "base_url",
    "custom_llm_provider",
    "deployment_id",
    "extra_body",
    "extra_headers",
    "fallbacks",
    "headers",
    "mock_response",
    "model_list",
    "organization",
    "priority",
    "tenant_id",
    "user_config",
];

/// What was agreed on.
#[derive(Debug, Clone, Default)]
pub struct Agreed {
    /// The upstream's name of the model.
    pub model: Arc<str>,
    /// The most output tokens of one choice.
    pub max_output_tokens: u64,
    /// Tools to leave out.
    pub disable_tools: Vec<Arc<str>>,
    /// What tells the upstream whose turn it is.
    pub priority: Option<PriorityHint>,
}

/// A body for the upstream.
#[derive(Debug, PartialEq, Eq)]
pub struct Rewritten {
    /// JSON.
    pub body: Vec<u8>,
    /// Whether the asker has not asked for the usage that the stream will have.
    pub strip_usage: bool,
}

/// A body's members; what is not changed is lent from it.
type Members<'a> = BTreeMap<String, Cow<'a, RawValue>>;

/// Rewrites a body.
///
/// # Errors
/// A fault if it is not an object, or a member that is to be changed is not of its type.
pub fn rewrite(endpoint: &Endpoint, body: &[u8], stream: bool, agreed: &Agreed) -> Result<Rewritten, Fault> {
    let written: BTreeMap<String, &RawValue> =
        serde_json::from_slice(body).map_err(|_| invalid("body", "an object"))?;
    let kept = written.into_iter().filter(|(name, _)| IGNORED.binary_search(&&**name).is_err());
    let mut members: Members = kept.map(|(name, raw)| (name, Cow::Borrowed(raw))).collect();
    set(&mut members, "model", &*agreed.model);
    bound(&mut members, endpoint.bounds, agreed.max_output_tokens);
    if let Some(hint) = agreed.priority.filter(|_| endpoint.manner == Manner::OpenAi) {
        set(&mut members, hint.field, hint.value);
    }
    if endpoint.manner == Manner::Anthropic {
        bound_thinking(&mut members, agreed.max_output_tokens)?;
    }
    if !agreed.disable_tools.is_empty() {
        remove_tools(&mut members, &agreed.disable_tools)?;
    }
    let strip_usage = stream && endpoint.usage_on_request && !ask_for_usage(&mut members)?;
    // What is added is short.
    let mut rewritten = Vec::with_capacity(body.len() + 128);
    serde_json::to_writer(&mut rewritten, &members).map_err(|_| invalid("body", "JSON"))?;
    Ok(Rewritten { body: rewritten, strip_usage })
}

fn invalid(field: &str, allowed: &str) -> Fault {
    Fault::new(400, "request_invalid", format!("The request is malformed: {field}; allowed: {allowed}.")).param(field)
}

fn set(members: &mut Members<'_>, name: &str, value: impl Into<Value>) {
    // A value made here has text keys and finite numbers only, so it always becomes JSON.
    if let Ok(raw) = to_raw_value(&value.into()) {
        members.insert(name.to_owned(), Cow::Owned(raw));
    }
}

/// Names by which upstreams let a body bound its output.
const BOUNDS: [&str; 3] = ["max_completion_tokens", "max_output_tokens", "max_tokens"];

/// Caps every bound of the endpoint, sets one if there is none, and leaves out those that are not the endpoint's.
fn bound(members: &mut Members<'_>, names: &[&str], most: u64) {
    let mut bounded = false;
    for name in BOUNDS {
        let asked = members.remove(name).and_then(|raw| serde_json::from_str::<Option<u64>>(raw.get()).ok()).flatten();
        if let Some(asked) = asked.filter(|_| names.contains(&name)) {
            set(members, name, asked.min(most));
            bounded = true;
        }
    }
    if let Some(first) = names.first().filter(|_| !bounded) {
        set(members, first, most);
    }
}

/// The least that thinking may be given in Anthropic's manner.
const MIN_THINKING: u64 = 1024;

/// Thinking is part of the output, and has to be given less than all of it: what was agreed may be less than was asked.
fn bound_thinking(members: &mut Members<'_>, most: u64) -> Result<(), Fault> {
    let Some(raw) = members.get("thinking") else { return Ok(()) };
    let mut thinking: Value = serde_json::from_str(raw.get()).map_err(|_| invalid("thinking", "an object"))?;
    if thinking.get("budget_tokens").and_then(Value::as_u64).is_none_or(|budget| budget < most) {
        return Ok(());
    }
    if most > MIN_THINKING {
        thinking["budget_tokens"] = (most - 1).into();
        set(members, "thinking", thinking);
    } else {
        members.remove("thinking");
    }
    Ok(())
}

fn remove_tools(members: &mut Members<'_>, names: &[Arc<str>]) -> Result<(), Fault> {
    let is_named = |tool: &Value| {
        let own = [&tool["function"]["name"], &tool["name"], &tool["type"]];
        own.iter().any(|name| name.as_str().is_some_and(|name| names.iter().any(|one| **one == *name)))
    };
    let named = |raw: &RawValue| serde_json::from_str::<Value>(raw.get()).is_ok_and(|tool| is_named(&tool));
    for (list, choice) in [("tools", "tool_choice"), ("functions", "function_call")] {
        let Some(raw) = members.get(list).filter(|raw| raw.get() != "null") else { continue };
        let tools: Vec<&RawValue> = serde_json::from_str(raw.get()).map_err(|_| invalid(list, "a list"))?;
        let kept: Vec<&RawValue> = tools.into_iter().filter(|tool| !named(tool)).collect();
        let none = kept.is_empty();
        let raw = to_raw_value(&kept).map_err(|_| invalid(list, "a list"))?;
        members.insert(list.to_owned(), Cow::Owned(raw));
        if none {
            members.remove(list);
            members.remove("parallel_tool_calls");
        }
        if none || members.get(choice).is_some_and(|choice| named(choice)) {
            members.remove(choice);
        }
    }
    if names.iter().any(|name| &**name == "web_search") {
        members.remove("web_search_options");
    }
    Ok(())
}

/// Makes a stream end with its usage; tells whether the asker wanted that anyway.
fn ask_for_usage(members: &mut Members<'_>) -> Result<bool, Fault> {
    let options = members.get("stream_options").map(|raw| serde_json::from_str::<Value>(raw.get()));
    let mut options = match options {
        None | Some(Ok(Value::Null)) => Value::Object(Default::default()),
        Some(Ok(options @ Value::Object(_))) => options,
        Some(_) => return Err(invalid("stream_options", "an object")),
    };
    let wants = options["include_usage"] == Value::Bool(true);
    options["include_usage"] = Value::Bool(true);
    set(members, "stream_options", options);
    Ok(wants)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::{CHAT, COMPLETIONS, EMBEDDINGS, MESSAGES, RESPONSES};
    use serde_json::json;

    fn agreed(max_output_tokens: u64) -> Agreed {
        Agreed { model: "m".into(), max_output_tokens, ..Agreed::default() }
    }

    fn run(endpoint: &Endpoint, body: Value, stream: bool, agreed: &Agreed) -> (Value, bool) {
        let rewritten = rewrite(endpoint, body.to_string().as_bytes(), stream, agreed).unwrap();
        (serde_json::from_slice(&rewritten.body).unwrap(), rewritten.strip_usage)
    }

    #[test]
    fn bounds_are_capped_and_never_raised() {
        for (endpoint, asked, want) in [
            (CHAT, json!({}), json!({ "max_completion_tokens": 100 })),
            (CHAT, json!({ "max_tokens": 7 }), json!({ "max_tokens": 7 })),
            (CHAT, json!({ "max_tokens": 700 }), json!({ "max_tokens": 100 })),
            (
                CHAT,
                json!({ "max_tokens": 7, "max_completion_tokens": 700 }),
                json!({ "max_tokens": 7, "max_completion_tokens": 100 }),
            ),
            (CHAT, json!({ "max_tokens": null, "max_output_tokens": 900 }), json!({ "max_completion_tokens": 100 })),
            (COMPLETIONS, json!({ "max_completion_tokens": 9 }), json!({ "max_tokens": 100 })),
            (RESPONSES, json!({ "max_tokens": 9, "max_output_tokens": 101 }), json!({ "max_output_tokens": 100 })),
            (MESSAGES, json!({ "max_tokens": 99 }), json!({ "max_tokens": 99 })),
            (EMBEDDINGS, json!({ "max_tokens": 99 }), json!({})),
        ] {
            let (mut body, _) = run(&endpoint, asked.clone(), false, &agreed(100));
            assert_eq!(body.as_object_mut().unwrap().remove("model"), Some(json!("m")));
            assert_eq!(body, want, "{} {asked}", endpoint.path);
        }
    }

    #[test]
    fn thinking_stays_below_the_bound() {
        let thinking = |budget: u64| json!({ "type": "enabled", "budget_tokens": budget });
        for (budget, most, want) in [
            (2000, 4000, Some(thinking(2000))),
            (4000, 4000, Some(thinking(3999))),
            (4000, 1025, Some(thinking(1024))),
            (4000, 1024, None),
            (4000, 8, None),
        ] {
            let asked = json!({ "max_tokens": 8000, "thinking": thinking(budget) });
            let (body, _) = run(&MESSAGES, asked, false, &agreed(most));
            assert_eq!(body.get("thinking"), want.as_ref(), "{budget} of {most}");
        }
    }

    #[test]
    fn what_would_redirect_it_is_left_out() {
        let asked = json!({ "model": "alias", "api_base": "http://x", "api_key": "k", "tenant_id": "t", "top_k": 3 });
        let (body, _) = run(&EMBEDDINGS, asked, false, &agreed(1));
        assert_eq!(body, json!({ "model": "m", "top_k": 3 }));
        let asked: Value = IGNORED.into_iter().map(|name| (name.to_owned(), json!("x"))).collect();
        assert_eq!(run(&EMBEDDINGS, asked, false, &agreed(1)).0, json!({ "model": "m" }));
    }

    #[test]
    fn streams_end_with_their_usage() {
        for (asked, wants) in [
            (json!({}), false),
            (json!({ "stream_options": null }), false),
            (json!({ "stream_options": { "include_usage": false } }), false),
            (json!({ "stream_options": { "include_usage": true } }), true),
        ] {
            let (body, strip) = run(&CHAT, asked.clone(), true, &agreed(1));
            assert_eq!((strip, &body["stream_options"]["include_usage"]), (!wants, &json!(true)), "{asked}");
        }
        for endpoint in [RESPONSES, MESSAGES] {
            let (body, strip) = run(&endpoint, json!({}), true, &agreed(1));
            assert_eq!((strip, body.get("stream_options")), (false, None));
        }
        let fault = rewrite(&CHAT, br#"{"stream_options":"no"}"#, true, &agreed(1)).unwrap_err();
        assert_eq!(fault.param.as_deref(), Some("stream_options"));
    }

    #[test]
    fn tools_are_taken_away_and_the_rest_stands_as_written() {
        let agreed = Agreed { disable_tools: vec!["web_search".into()], ..Agreed::default() };
        let search = json!({ "type": "web_search" });
        let (body, _) = run(
            &EMBEDDINGS,
            json!({ "tools": [search], "tool_choice": "auto", "web_search_options": {} }),
            false,
            &agreed,
        );
        assert_eq!(body, json!({ "model": "" }));
        let asked = r#"{"tools":[{"type":"function","function":{"name":"web_search"}},{"type":"function","function":{"name":"sum","parameters":{"z":1.0,"a":2}}}],"tool_choice":{"type":"function","function":{"name":"web_search"}}}"#;
        let body = rewrite(&EMBEDDINGS, asked.as_bytes(), false, &agreed).unwrap().body;
        let kept = r#""tools":[{"type":"function","function":{"name":"sum","parameters":{"z":1.0,"a":2}}}]"#;
        assert_eq!(String::from_utf8(body).unwrap(), format!(r#"{{"model":"",{kept}}}"#));
    }
}
