//! Receipts: what finalizing did.
//!
//! Floor 2. Invariant: a receipt says what a record says, so every repeat of an ending gives the same.

use std::fmt;

use super::{LeaseId, Record, State};
use crate::units::{Amounts, Meter, Pico};
use crate::usage::Usage;

/// What finalizing did; the same on every repeat but for [`is_repeat`](Receipt::is_repeat).
///
/// It keeps the lease's record, and reckons what it is asked for.
#[derive(Clone)]
pub struct Receipt {
    record: Record,
    repeat: bool,
}

impl Receipt {
    /// The receipt of a lease as it stands.
    pub fn of(record: Record, repeat: bool) -> Receipt {
        Receipt { record, repeat }
    }

    /// The lease.
    pub fn lease(&self) -> LeaseId {
        self.record.claim.id
    }

    /// The request id, where there is one.
    pub fn request_id(&self) -> Option<&str> {
        self.record.claim.terms.request_id.as_deref()
    }

    /// `settled`, `cancelled` or `unresolved`.
    pub fn outcome(&self) -> &'static str {
        self.record.state_name()
    }

    /// The figures that it was settled with.
    pub fn usage(&self) -> Option<Usage> {
        match &*self.record.state() {
            State::Settled(settled) => settled.usage(),
            State::Held | State::Unresolved(_) | State::Cancelled(_) => None,
        }
    }

    /// The exact cost; zero for a cancelled one, the worst case for an unresolved one.
    pub fn cost(&self) -> Pico {
        self.record.cost()
    }

    /// The largest amount held per meter.
    pub fn held(&self) -> Amounts {
        self.record.held_amounts()
    }

    /// What is charged per meter.
    pub fn charged(&self) -> Amounts {
        self.record.charged()
    }

    /// Whether it was unresolved before.
    pub fn is_late(&self) -> bool {
        matches!(&*self.record.state(), State::Settled(settled) if settled.late)
    }

    /// Whether this ending repeats an earlier one.
    pub fn is_repeat(&self) -> bool {
        self.repeat
    }

    /// The receipt that the first ending gave.
    pub fn first(self) -> Receipt {
        Receipt { repeat: false, ..self }
    }

    /// What came back of a meter's hold.
    pub fn returned(&self, meter: Meter) -> u64 {
        self.held().get(meter).saturating_sub(self.charged().get(meter))
    }

    /// What was charged beyond a meter's hold.
    pub fn overrun(&self, meter: Meter) -> u64 {
        self.charged().get(meter).saturating_sub(self.held().get(meter))
    }
}

impl PartialEq for Receipt {
    /// Whether both say the same.
    fn eq(&self, other: &Receipt) -> bool {
        self.lease() == other.lease()
            && self.outcome() == other.outcome()
            && self.usage() == other.usage()
            && self.cost() == other.cost()
            && self.held() == other.held()
            && self.charged() == other.charged()
            && (self.is_late(), self.repeat) == (other.is_late(), other.repeat)
    }
}

impl fmt::Debug for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receipt")
            .field("lease", &self.lease())
            .field("request_id", &self.request_id())
            .field("outcome", &self.outcome())
            .field("usage", &self.usage())
            .field("cost", &self.cost())
            .field("held", &self.held())
            .field("charged", &self.charged())
            .field("late", &self.is_late())
            .field("repeat", &self.repeat)
            .finish()
    }
}
