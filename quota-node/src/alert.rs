//! Alerts: soft amounts and set percentages as they are crossed, told to a function of the host's.

use napi_derive::napi;
use quota_core as core;
use quota_core::gate::Subscriber;
use quota_core::units::Meter;
use serde_json::{Value, json};

use crate::callback::{Callback, Text, text};

/// A function that is told of alerts, until it is stopped. Losing it changes nothing.
#[napi]
pub struct Subscription {
    gate: core::Gate,
    subscriber: Option<Subscriber>,
}

impl Subscription {
    pub fn new(gate: &core::Gate, told: Callback<Text, ()>) -> Subscription {
        let subscriber = gate.subscribe(move |alert| {
            // Where it is posted, or nobody is there any more, there is no answer.
            let _ = told.call(text(shown(alert)));
        });
        Subscription { gate: gate.clone(), subscriber: Some(subscriber) }
    }
}

fn shown(alert: &core::journal::Alert) -> Value {
    let amount = |amount| match alert.meter {
        Meter::Money => json!(alert.meter.show(amount)),
        _ => json!(amount),
    };
    json!({
        "tenant": alert.tenant,
        "scope": alert.scope,
        "limit": alert.limit,
        "meter": alert.meter.name(),
        "crossed": amount(alert.crossed),
        "hard": amount(alert.hard),
        "used": amount(alert.used),
        "soft": alert.soft,
    })
}

#[napi]
impl Subscription {
    /// Tells it of no more alerts. `false` if it was stopped before.
    #[napi]
    pub fn stop(&mut self) -> bool {
        self.subscriber.take().is_some_and(|subscriber| self.gate.unsubscribe(&subscriber))
    }
}
