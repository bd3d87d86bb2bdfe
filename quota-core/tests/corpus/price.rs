//! Prices: what a usage costs, line by line, and the worst case of a request.

use quota_core::policy::price::{Ask, Price};
use quota_core::policy::price_list::PriceList;
use quota_core::usage::{Dialect, Outcome, Usage, outcome_of};
use serde_json::{Map, Value, json};

/// A case has `price` (as a policy states it) or `litellm` (a list, as text) and `model`; and
/// * `body` with `dialect` (and `status`, 200 if left out): then `cost_usd`, and where they
///   matter `lines`, `fallback`, `unpriced`;
/// * or `ask`: then `worst_case_usd`;
/// * or neither: then `error`, or `listed: false`.
pub fn run(case: &Value) -> Result<(), String> {
    let price = match (case.get("price"), case.get("litellm")) {
        (Some(price), None) => Price::from_yaml(&price.to_string()).map_err(|wrong| wrong.errors[0].message.clone()),
        (None, Some(list)) => {
            let list = PriceList::litellm(list.as_str().ok_or("litellm")?).map_err(|error| error.to_string())?;
            let listed = list.get(case["model"].as_str().ok_or("model")?);
            if let Some(wanted) = case.get("listed") {
                return expect("listed", wanted, &json!(listed.is_some()));
            }
            Ok(Price::clone(&listed.ok_or("not listed")?.price))
        }
        _ => return Err("price or litellm".into()),
    };
    let price = match (price, case.get("error")) {
        (Err(error), Some(wanted)) => return expect("error", wanted, &json!(error)),
        (Ok(_), Some(_)) => return Err("built, where an error was wanted".into()),
        (price, None) => price?,
    };
    if let Some(ask) = case.get("ask") {
        let worst = price.worst_case(&Ask {
            input: ask["input"].as_u64().ok_or("ask.input")?,
            output: ask["output"].as_u64().ok_or("ask.output")?,
            service_tier: ask["service_tier"].as_str(),
            text_only: ask["text_only"].as_bool().unwrap_or(false),
            web_searches: ask["web_searches"].as_u64().unwrap_or(0),
            audio_millis: ask["audio_millis"].as_u64().unwrap_or(0),
        });
        return expect("worst_case_usd", &case["worst_case_usd"], &json!(worst.to_string()));
    }
    charge(&price, case)
}

fn charge(price: &Price, case: &Value) -> Result<(), String> {
    let dialect = case["dialect"].as_str().and_then(Dialect::from_name).ok_or("no such dialect")?;
    let status = case.get("status").map_or(Some(200), |status| status.as_u64()).map(|status| status as u16);
    let usage = match outcome_of(status, dialect, case.get("body")) {
        Outcome::Final(usage) => usage,
        Outcome::NotRun => Usage::not_run(),
        other => return Err(format!("{other:?}")),
    };
    let cost = price.cost(&usage);
    expect("cost_usd", &case["cost_usd"], &json!(cost.exact.to_string()))?;
    expect("the cost without lines", &case["cost_usd"], &json!(price.exact(&usage).to_string()))?;
    expect("fallback", case.get("fallback").unwrap_or(&json!(false)), &json!(cost.fallback))?;
    expect("unpriced", case.get("unpriced").unwrap_or(&json!(false)), &json!(cost.unpriced))?;
    let Some(wanted) = case.get("lines") else {
        return Ok(());
    };
    let lines: Vec<Value> = cost
        .lines
        .iter()
        .map(|line| {
            let mut shown = Map::new();
            shown.insert("item".into(), line.class.key().into());
            shown.insert("units".into(), line.units.into());
            shown.insert("pico".into(), line.rate.into());
            shown.insert("usd".into(), line.cost.to_string().into());
            if line.fallback {
                shown.insert("fallback".into(), true.into());
            }
            shown.into()
        })
        .collect();
    expect("lines", wanted, &Value::from(lines))
}

fn expect(what: &str, wanted: &Value, got: &Value) -> Result<(), String> {
    match wanted == got {
        true => Ok(()),
        false => Err(format!("{what}: got {got}, wanted {wanted}")),
    }
}
