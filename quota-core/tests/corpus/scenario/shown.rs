//! What a step came to, as data: amounts are counts, money is decimal text, what is absent is null.

use std::sync::Arc;

use quota_core::gate::Offer;
use quota_core::journal::replay;
use quota_core::policy::plan::Window;
use quota_core::time::Period;
use quota_core::units::Amounts;
use quota_core::{Balance, Decision, EndError, Gate, Lease, Meter, Principal, Receipt, Refusal, Store, Wait};
use serde_json::{Map, Value, json};

type Found = Map<String, Value>;

type Column = (&'static str, fn(&Balance) -> Value);

/// The columns of a balance.
pub const BALANCES: [Column; 5] = [
    ("remaining", |balance| amount(balance.meter, balance.remaining)),
    ("used", |balance| amount(balance.meter, balance.used)),
    ("hard", |balance| amount(balance.meter, balance.hard)),
    ("soft", |balance| json!(balance.soft.map(|soft| amount(balance.meter, soft)))),
    ("resets_ms", |balance| json!(balance.resets_in.map(|time| time.as_nanos().div_ceil(1_000_000) as u64))),
];

/// Whether `found` has what is wanted: each member of an object, as many elements of a list, equal scalars; in `says`,
/// each part of the text.
pub fn holds(at: &str, found: &Value, want: &Value) -> Result<(), String> {
    match (found, want) {
        (Value::Object(found), Value::Object(want)) => want.iter().try_for_each(|(key, want)| {
            let found = found.get(key).ok_or(format!("there is no `{at}{key}`, only {:?}", found.keys()))?;
            match (key.as_str(), found.as_str(), want.as_array()) {
                ("says", Some(text), Some(parts)) => {
                    let missing = parts.iter().find(|part| !part.as_str().is_some_and(|part| text.contains(part)));
                    missing.map_or(Ok(()), |part| Err(format!("{at}says {text:?}, without {part}")))
                }
                _ => holds(&format!("{at}{key}."), found, want),
            }
        }),
        (Value::Array(found), Value::Array(want)) if found.len() == want.len() => {
            found.iter().zip(want).enumerate().try_for_each(|(n, (f, w))| holds(&format!("{at}{n}."), f, w))
        }
        _ if found == want => Ok(()),
        _ => Err(format!("{} is {found}, not {want}", at.trim_end_matches('.'))),
    }
}

fn amount(meter: Meter, amount: u64) -> Value {
    if meter == Meter::Money { json!(meter.show(amount)) } else { json!(amount) }
}

pub fn amounts(amounts: &Amounts) -> Found {
    Meter::ALL.into_iter().map(|meter| (meter.name().into(), amount(meter, amounts.get(meter)))).collect()
}

pub fn decision<L>(decision: &Decision<L>, granted: impl Fn(&L) -> Found) -> Found {
    let mut found = match decision {
        Decision::Allow(lease) => granted(lease),
        Decision::Degrade(lease, degradation) => {
            let mut found = granted(lease);
            let detail = json!({
                "step": degradation.step,
                "limit": degradation.limit,
                "model": degradation.model,
                "max_output_tokens": degradation.max_output_tokens,
                "disable_tools": degradation.disable_tools,
                "lane": degradation.lane,
            });
            found.insert("degraded".into(), detail);
            found
        }
        Decision::Queue(queued) => {
            let mut found = refusal(&queued.refusal);
            found.insert("lane".into(), json!(queued.lane));
            found.insert("max_wait_ms".into(), json!(queued.max_wait.as_millis() as u64));
            found
        }
        Decision::Reject(refused) => refusal(refused),
    };
    found.insert("action".into(), json!(decision.action()));
    found.insert("reason".into(), json!(decision.reason().map(|reason| reason.code())));
    found
}

pub fn lease(lease: &Lease) -> Found {
    let terms = &lease.claim().terms;
    let passed: Vec<String> = lease.soft_passed().map(|(scope, limit)| format!("{scope} {limit}")).collect();
    let found = json!({
        "model": lease.model(),
        "lane": lease.lane(),
        "input_tokens": lease.input_tokens(),
        "max_output_tokens": lease.max_output_tokens(),
        "expected_output": terms.output_expected,
        "worst_usd": terms.worst_cost.to_string(),
        "soft_passed": passed,
        "repeat": lease.is_repeat(),
    });
    object(found)
}

pub fn offer(offer: &Offer) -> Found {
    object(json!({
        "model": offer.model,
        "lane": offer.lane,
        "input_tokens": offer.input_tokens,
        "max_output_tokens": offer.max_output_tokens,
        "worst_usd": offer.worst_cost.to_string(),
    }))
}

pub fn refusal(refusal: &Refusal) -> Found {
    let shortage = |shortage: &quota_core::refusal::Shortage| {
        json!({
            "scope": shortage.scope,
            "limit": shortage.limit,
            "shared": shortage.shared,
            "hard": amount(shortage.meter, shortage.hard),
            "used": amount(shortage.meter, shortage.used),
            "asked": amount(shortage.meter, shortage.asked),
            "retry_after_ms": shortage.wait.millis(),
        })
    };
    let limits: Vec<String> = refusal.shortages.iter().map(|s| format!("{} {}", s.scope, s.limit)).collect();
    object(json!({
        "reason": refusal.reason.code(),
        "status": refusal.reason.status(),
        "tenant": refusal.tenant,
        "retry_after_ms": refusal.wait.millis(),
        "wait": match refusal.wait { Wait::After(_) => "after", Wait::Unknown => "unknown", Wait::Never => "never" },
        "limits": limits,
        "shortages": refusal.shortages.iter().map(shortage).collect::<Vec<_>>(),
        "fits": { "max_output_tokens": refusal.fits.max_output_tokens, "models": refusal.fits.models },
        "says": refusal.message(),
        "receipt": refusal.receipt.as_ref().map(|receipt| Value::Object(self::receipt(receipt))),
    }))
}

fn receipt(receipt: &Receipt) -> Found {
    let of = |of: &dyn Fn(Meter) -> u64| -> Value {
        Meter::ALL.into_iter().map(|meter| (meter.name().to_owned(), amount(meter, of(meter)))).collect()
    };
    object(json!({
        "outcome": receipt.outcome(),
        "request": receipt.request_id(),
        "cost": receipt.cost().to_string(),
        "late": receipt.is_late(),
        "repeat": receipt.is_repeat(),
        "held": of(&|meter| receipt.held().get(meter)),
        "charged": of(&|meter| receipt.charged().get(meter)),
        "returned": of(&|meter| receipt.returned(meter)),
        "overrun": of(&|meter| receipt.overrun(meter)),
        "assumed": receipt.outcome() == "settled" && receipt.usage().is_none(),
    }))
}

/// The receipt, or the error: its code, its words, and the field of a conflict.
pub fn ended(ended: Result<Receipt, EndError>) -> Found {
    match ended {
        Ok(receipt) => self::receipt(&receipt),
        Err(error) => {
            let (field, first, second) = match &error {
                EndError::Conflict { field, first, second, .. } => (Some(*field), Some(first), Some(second)),
                _ => (None, None, None),
            };
            object(json!({ "error": error.code(), "field": field, "first": first, "second": second }))
        }
    }
}

pub fn extended(extended: Result<(), Arc<Refusal>>) -> Found {
    match extended {
        Ok(()) => object(json!({ "extended": true })),
        Err(refused) => {
            let mut found = refusal(&refused);
            found.insert("extended".into(), json!(false));
            found
        }
    }
}

pub fn principal(who: &Principal) -> Found {
    object(json!({
        "tenant": who.tenant(), "app": who.app(), "env": who.env(), "user": who.user(), "lane": who.lane(),
        "key": who.key(), "reason": null,
    }))
}

/// What the journal adds up to, beside what the live accounts say: those that differ. Every lease that the store still
/// remembers tells of its limits.
pub fn replayed(gate: &Gate) -> Found {
    let (replayed, now) = (replay(gate.journal()), gate.now());
    let (mut compared, mut differ) = (0, Vec::new());
    let mut check = |lineup: &std::sync::Arc<quota_core::account::Lineup>| {
        let words = gate.store().read(lineup.clone(), |words| words).unwrap_or_default();
        for (bound, word) in lineup.limits().zip(words) {
            let period = match &bound.column.window {
                Window::Fixed(calendar) => calendar.period(now.wall),
                Window::Rolling { .. } | Window::Held | Window::Run => Period::default(),
            };
            let live = bound.rule.read(word, &quota_core::meter::At { now, period }).used;
            let told = replayed.used(bound.scope, &bound.limit, now, period);
            compared += 1;
            if told != Some(live) {
                differ.push(format!("{} {}: {told:?}, live {live}", bound.scope, bound.limit));
            }
        }
    };
    gate.journal().scan(&mut |entry| {
        if let quota_core::journal::Event::Admitted(record) = &entry.event {
            check(&record.claim.terms.deal.lineup);
        }
        true
    });
    object(json!({ "missing": replayed.missing, "differ": differ, "compared": compared > 0 }))
}

fn object(value: Value) -> Found {
    match value {
        Value::Object(found) => found,
        other => Found::from_iter([("value".into(), other)]),
    }
}
