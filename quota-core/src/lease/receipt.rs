//! Receipts: what finalizing did.
//!
//! Floor 2. Invariant: a receipt is made of a record alone, so every repeat of an ending gives the same.

use std::sync::Arc;

use super::{LeaseId, Record, State};
use crate::units::{Amounts, Meter, Pico};
use crate::usage::Usage;

/// What finalizing did; the same on every repeat but for `repeat`.
#[derive(Debug, Clone, PartialEq)]
pub struct Receipt {
    /// The lease.
    pub lease: LeaseId,
    /// The request id, where there is one.
    pub request_id: Option<Arc<str>>,
    /// `settled`, `cancelled` or `unresolved`.
    pub outcome: &'static str,
    /// The figures that it was settled with.
    pub usage: Option<Usage>,
    /// The exact cost; zero for a cancelled one, the worst case for an unresolved one.
    pub cost: Pico,
    /// The largest amount held per meter.
    pub held: Amounts,
    /// What is charged per meter.
    pub charged: Amounts,
    /// Whether it was unresolved before.
    pub late: bool,
    /// Whether this ending repeats an earlier one.
    pub repeat: bool,
}

impl Receipt {
    /// The receipt of a lease as it stands.
    pub fn of(record: &Record, repeat: bool) -> Receipt {
        let held = record.held_amounts();
        let (charged, cost, usage, late) = match record.state() {
            State::Settled(settled) => (settled.amounts, settled.cost, settled.usage.clone(), settled.late),
            State::Cancelled(_) => (Amounts::default(), Pico(0), None, false),
            State::Held => (held, record.worst_cost(), None, false),
            State::Unresolved(_) => (held.counted(), record.worst_cost(), None, false),
        };
        Receipt {
            lease: record.claim.id,
            request_id: record.claim.terms.request_id.clone(),
            outcome: record.state_name(),
            usage,
            cost,
            held,
            charged,
            late,
            repeat,
        }
    }

    /// What came back of a meter's hold.
    pub fn returned(&self, meter: Meter) -> u64 {
        self.held.get(meter).saturating_sub(self.charged.get(meter))
    }

    /// What was charged beyond a meter's hold.
    pub fn overrun(&self, meter: Meter) -> u64 {
        self.charged.get(meter).saturating_sub(self.held.get(meter))
    }
}
