//! The journal: every decision and every ending, once, in order; one of the five seams.
//!
//! Floor 2. Invariant: an entry never changes, and holds no prompt text and no key.

#[cfg(all(test, quota_loom))]
mod models;
mod replay;
mod ring;

pub use replay::{Replayed, replay};
pub use ring::Ring;

use std::sync::Arc;

use serde_json::{Value, json};

use crate::lease::{Record, Settled, State};
use crate::policy::price::Line;
use crate::refusal::Refusal;
use crate::time::{Now, show_instant};
use crate::units::{Meter, Usd};

/// One line of the journal.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Counts up by one from each entry to the next, from 0.
    pub seq: u64,
    /// When it was written.
    pub at: Now,
    /// What happened.
    pub event: Event,
}

/// What happened.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Event {
    /// A lease was opened; as asked, or degraded (`terms.degraded()`).
    Admitted(Record),
    /// An open lease holds more; the record has the new holds at its end.
    Extended(Record),
    /// A lease left the held state, or an unresolved one was resolved; the record is the one after.
    Ended(Record),
    /// A request was refused.
    Refused(Arc<Refusal>),
    /// A request was told to wait in a lane.
    Queued(Arc<Refusal>, Arc<str>),
    /// A policy came into force: its digest.
    Loaded(Arc<str>),
    /// Something was frozen: what, by whom, why.
    Frozen(Arc<str>, Arc<str>, Arc<str>),
    /// Something frozen goes on: what, by whom.
    Thawed(Arc<str>, Arc<str>),
    /// A key was made, rotated or revoked.
    KeyChanged(Arc<KeyChange>),
    /// A soft amount or a set percentage was passed, for the first time in its period.
    Alerted(Arc<Alert>),
}

/// A crossing that somebody asked to be told of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alert {
    /// The tenant whose request crossed it.
    pub tenant: Arc<str>,
    /// The scope of the limit.
    pub scope: Arc<str>,
    /// The limit's name.
    pub limit: Arc<str>,
    /// What it counts.
    pub meter: Meter,
    /// The amount that was crossed.
    pub crossed: u64,
    /// The limit's hard amount.
    pub hard: u64,
    /// The amount in use after the request.
    pub used: u64,
    /// Whether it is the soft amount; a percentage of the hard one otherwise.
    pub soft: bool,
}

/// What was done to a key. Neither its secret nor the digest of it is anywhere in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyChange {
    /// The tenant that the key belongs to.
    pub tenant: Arc<str>,
    /// The key's id.
    pub id: Arc<str>,
    /// What was done.
    pub act: KeyAct,
    /// Who did it.
    pub author: Arc<str>,
}

/// What is done to a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyAct {
    /// It was made.
    Issued {
        /// The key that it narrows.
        parent: Option<Arc<str>>,
        /// Unix nanoseconds from which it is refused.
        expires: Option<u64>,
    },
    /// It got a new secret.
    Rotated {
        /// For how many nanoseconds its earlier secrets went on.
        overlap: u64,
    },
    /// It was revoked.
    Revoked,
}

/// Where entries go and where they are read from.
pub trait Journal: Send + Sync + 'static {
    /// Adds an entry. Must not wait for I/O.
    fn append(&self, event: Event, now: Now);

    /// Shows the entries that are still there, oldest first, until `show` says `false`.
    fn scan(&self, show: &mut dyn FnMut(&Entry) -> bool);

    /// Entries other than refusals that were written and are no longer there.
    fn dropped(&self) -> u64;
}

impl Event {
    /// The tenant that it is about; `None` for a policy.
    pub fn tenant(&self) -> Option<&str> {
        match self {
            Event::Admitted(record) | Event::Extended(record) | Event::Ended(record) => {
                Some(record.claim.terms.deal.principal.tenant())
            }
            Event::Refused(refusal) | Event::Queued(refusal, _) => Some(&refusal.tenant),
            Event::Alerted(alert) => Some(&alert.tenant),
            Event::KeyChanged(change) => Some(&change.tenant),
            Event::Loaded(_) | Event::Frozen(..) | Event::Thawed(..) => None,
        }
    }

    /// The request id that it is about.
    pub fn request_id(&self) -> Option<&str> {
        match self {
            Event::Admitted(record) | Event::Extended(record) | Event::Ended(record) => {
                record.claim.terms.request_id.as_deref()
            }
            Event::Refused(refusal) | Event::Queued(refusal, _) => refusal.request_id.as_deref(),
            Event::Loaded(_) | Event::Frozen(..) | Event::Thawed(..) | Event::KeyChanged(_) | Event::Alerted(_) => None,
        }
    }

    /// The event's name.
    pub fn name(&self) -> &'static str {
        match self {
            Event::Admitted(record) if record.claim.terms.degraded().is_some() => "degraded",
            Event::Admitted(_) => "admitted",
            Event::Extended(_) => "extended",
            Event::Ended(record) => record.state_name(),
            Event::Refused(_) => "refused",
            Event::Queued(..) => "queued",
            Event::Loaded(_) => "policy_loaded",
            Event::Frozen(..) => "frozen",
            Event::Thawed(..) => "thawed",
            Event::KeyChanged(change) => match change.act {
                KeyAct::Issued { .. } => "key_issued",
                KeyAct::Rotated { .. } => "key_rotated",
                KeyAct::Revoked => "key_revoked",
            },
            Event::Alerted(_) => "alerted",
        }
    }
}

impl Entry {
    /// The entry with the numbers of its moment, as JSON for operators and their dashboards. Money is decimal text.
    ///
    /// It has figures of scopes that tenants share: it is not for tenants.
    pub fn to_json(&self) -> Value {
        let mut line = json!({ "seq": self.seq, "at": show_instant(self.at.wall), "event": self.event.name() });
        let at = self.at;
        let detail = match &self.event {
            Event::Admitted(record) => admitted(record),
            Event::Extended(record) => json!({
                "lease": record.claim.id.to_string(),
                "added": record.more().iter().map(|hold| hold_line(record, *hold, at)).collect::<Vec<_>>(),
            }),
            Event::Ended(record) => ended(record),
            Event::Refused(refusal) => refused(refusal),
            Event::Queued(refusal, lane) => {
                let mut value = refused(refusal);
                value["lane"] = json!(lane);
                value
            }
            Event::Loaded(digest) => json!({ "digest": digest }),
            Event::Frozen(target, author, reason) => json!({ "target": target, "author": author, "reason": reason }),
            Event::Thawed(target, author) => json!({ "target": target, "author": author }),
            Event::KeyChanged(change) => key_changed(change),
            Event::Alerted(alert) => json!({
                "tenant": alert.tenant,
                "scope": alert.scope,
                "limit": alert.limit,
                "crossed": alert.meter.show(alert.crossed),
                "hard": alert.meter.show(alert.hard),
                "used": alert.meter.show(alert.used),
                "soft": alert.soft,
            }),
        };
        if let (Value::Object(line), Value::Object(detail)) = (&mut line, detail) {
            line.extend(detail);
        }
        line
    }
}

fn key_changed(change: &KeyChange) -> Value {
    let mut value = json!({ "tenant": change.tenant, "key": change.id, "author": change.author });
    match &change.act {
        KeyAct::Issued { parent, expires } => {
            value["parent"] = json!(parent);
            value["expires"] = json!(expires.map(show_instant));
        }
        KeyAct::Rotated { overlap } => value["overlap_ms"] = json!(overlap / 1_000_000),
        KeyAct::Revoked => {}
    }
    value
}

fn hold_line(record: &Record, hold: crate::lease::Hold, at: Now) -> Value {
    let bound = record.limit(&hold);
    json!({
        "scope": bound.scope,
        "limit": bound.limit,
        "hard": bound.meter.show(bound.rule.hard()),
        "held": bound.meter.show(hold.amount),
        "used_after": bound.meter.show(bound.used(hold.word, at)),
        "shadow": bound.shadow,
    })
}

fn admitted(record: &Record) -> Value {
    let terms = &record.claim.terms;
    json!({
        "lease": record.claim.id.to_string(),
        "request_id": terms.request_id,
        "tenant": terms.deal.principal.tenant(),
        "app": terms.deal.principal.app(),
        "user": terms.deal.principal.user(),
        "key": terms.deal.principal.key(),
        "model": terms.deal.model,
        "lane": terms.deal.lane,
        "run": terms.run_id(),
        "degrade_step": terms.degraded(),
        "price_is_guess": terms.price_is_guess(),
        "estimate": {
            "input_guess": terms.input_guess,
            "input_expected": terms.input.expected,
            "input_reserved": terms.input.reserve,
            "exact": terms.input.exact,
            "output_ceiling": terms.output_ceiling,
            "output_expected": terms.output_expected,
            "worst_case_usd": terms.worst_cost.to_string(),
        },
        "holds": record.claim.holds().map(|hold| hold_line(record, hold, record.claim.at)).collect::<Vec<_>>(),
    })
}

fn ended(record: &Record) -> Value {
    let receipt = crate::lease::Receipt::of(record.clone(), false);
    let in_run = record.claim.terms.run_id().is_some();
    let amounts = |of: &dyn Fn(Meter) -> u64| -> Value {
        let counted = Meter::ALL.into_iter().filter(|meter| !meter.is_held() && (in_run || !meter.is_of_runs()));
        counted.map(|meter| (meter.name().to_owned(), json!(meter.show(of(meter))))).collect()
    };
    let mut value = json!({
        "lease": record.claim.id.to_string(),
        "request_id": record.claim.terms.request_id,
        "tenant": record.claim.terms.deal.principal.tenant(),
        "run": record.claim.terms.run_id(),
        "charged": amounts(&|meter| receipt.charged().get(meter)),
        "returned": amounts(&|meter| receipt.returned(meter)),
        "overrun": amounts(&|meter| receipt.overrun(meter)),
        "cost_usd": receipt.cost().to_string(),
        "charged_usd": Usd::from_units(receipt.charged().get(Meter::Money)).to_string(),
        "late": receipt.is_late(),
    });
    if let Some(unresolved) = record.unresolved() {
        value["cause"] = json!(unresolved.cause.name());
    }
    if let State::Settled(settled) = &*record.state() {
        value["assumed"] = json!(settled.usage().is_none());
        value["unpriced"] = json!(record.is_unpriced());
        value["price_is_guess"] = json!(record.claim.terms.price_is_guess());
        value["lines"] = cost_lines(record, settled);
    }
    value
}

/// What the cost is the sum of: per kind of unit, how many, at what rate, and what they came to.
fn cost_lines(record: &Record, settled: &Settled) -> Value {
    let (Some(price), Some(usage)) = (&record.claim.terms.price(), &settled.usage()) else { return json!([]) };
    let lines = price.cost(&price.billed(usage, record.claim.terms.service_tier())).lines;
    let line = |line: &Line| json!({ "item": line.class.key(), "units": line.units, "usd": line.cost.to_string() });
    lines.iter().map(line).collect()
}

fn refused(refusal: &Refusal) -> Value {
    let lines = refusal.shortages.iter().map(|shortage| {
        json!({
            "scope": shortage.scope,
            "limit": shortage.limit,
            "hard": shortage.meter.show(shortage.hard),
            "used": shortage.meter.show(shortage.used),
            "asked": shortage.meter.show(shortage.asked),
            "retry_after_ms": shortage.wait.millis(),
        })
    });
    json!({
        "request_id": refusal.request_id,
        "tenant": refusal.tenant,
        "model": refusal.model,
        "reason": refusal.reason.code(),
        "message": refusal.message(),
        "limits": lines.collect::<Vec<_>>(),
        "retry_after_ms": refusal.wait.millis(),
        "fits": { "max_output_tokens": refusal.fits.max_output_tokens, "models": refusal.fits.models },
    })
}
