//! Cases of kind `respond`: a refusal as data, rendered in both manners; or balances, as rate-limit headers.
//!
//! Headers must be exactly those stated; a body must hold at least the members stated.

use quota_core::refusal::{Balance, Refusal};
use quota_core::respond::{Headers, Response, anthropic, headers, openai};
use quota_core::time::parse_instant;
use serde::Deserialize;
use serde_json::Value;

pub fn run(case: &Value) -> Result<(), String> {
    if let Some(balances) = case["balances"].as_array() {
        return run_balances(case, balances);
    }
    let refusal = Refusal::deserialize(&case["refusal"]).map_err(|error| error.to_string())?;
    check("openai", &openai::response(&refusal), &case["openai"])?;
    check("anthropic", &anthropic::response(&refusal), &case["anthropic"])?;
    frame("openai", &openai::stream_error(&refusal), "data: ", &openai::response(&refusal).body)?;
    frame("anthropic", &anthropic::stream_error(&refusal), "event: error\ndata: ", &anthropic::response(&refusal).body)
}

fn run_balances(case: &Value, balances: &[Value]) -> Result<(), String> {
    let now = parse_instant(text(case, "now")?).map_err(|e| e.to_string())?;
    let balances =
        balances.iter().map(Balance::deserialize).collect::<Result<Vec<_>, _>>().map_err(|error| error.to_string())?;
    same_headers("openai", &headers::openai(&balances), &case["openai"])?;
    same_headers("anthropic", &headers::anthropic(&balances, now), &case["anthropic"])?;
    same_headers("ietf", &headers::ietf(&balances), &case["ietf"])
}

fn check(manner: &str, found: &Response, want: &Value) -> Result<(), String> {
    if want["status"].as_u64() != Some(found.status as u64) {
        return Err(format!("{manner}: status {}, want {}", found.status, want["status"]));
    }
    same_headers(manner, &found.headers, &want["headers"])?;
    holds(&format!("{manner}: body"), &found.body, &want["body"])
}

/// One server-sent event with the body as its only `data` line.
fn frame(manner: &str, found: &str, start: &str, body: &Value) -> Result<(), String> {
    let data = found.strip_prefix(start).and_then(|rest| rest.strip_suffix("\n\n"));
    match data.filter(|data| !data.contains(['\n', '\r'])).map(serde_json::from_str::<Value>) {
        Some(Ok(value)) if value == *body => Ok(()),
        _ => Err(format!("{manner}: stream frame {found:?}")),
    }
}

fn same_headers(manner: &str, found: &Headers, want: &Value) -> Result<(), String> {
    let want = want.as_object().ok_or(format!("{manner}: no headers in the case"))?;
    for (name, value) in found {
        if !value.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
            return Err(format!("{manner}: {name} is not printable ASCII: {value:?}"));
        }
        if want.get(*name).and_then(Value::as_str) != Some(value) {
            return Err(format!("{manner}: {name}: {value}, want {:?}", want.get(*name)));
        }
    }
    if found.len() != want.len() {
        return Err(format!("{manner}: headers {found:?}, want {want:?}"));
    }
    Ok(())
}

/// Whether `found` holds what `want` states: every member of an object, every element of a list, equal scalars.
fn holds(at: &str, found: &Value, want: &Value) -> Result<(), String> {
    match (found, want) {
        (Value::Object(found), Value::Object(want)) => want.iter().try_for_each(|(key, want)| {
            let found = found.get(key).ok_or(format!("{at}.{key}: absent"))?;
            holds(&format!("{at}.{key}"), found, want)
        }),
        (Value::Array(found), Value::Array(want)) if found.len() == want.len() => found
            .iter()
            .zip(want)
            .enumerate()
            .try_for_each(|(n, (found, want))| holds(&format!("{at}[{n}]"), found, want)),
        _ if found == want => Ok(()),
        _ => Err(format!("{at}: {found}, want {want}")),
    }
}

fn text<'a>(value: &'a Value, key: &str) -> Result<&'a str, String> {
    value[key].as_str().ok_or(format!("no text `{key}` in {value}"))
}
