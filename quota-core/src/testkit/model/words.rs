//! The words of the model: what it says to a request and to an ending, to be compared with what the gate says.
//!
//! Floor 5. Invariant: plain data; nothing here decides.

use std::sync::Arc;

use crate::gate::Degradation;
use crate::lease::{Cause, EndError, Receipt};
use crate::reason::Reason;
use crate::units::{Amounts, Pico};
use crate::usage::Usage;

/// One limit that had no room.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Short {
    /// The scope.
    pub scope: Arc<str>,
    /// The limit's name.
    pub limit: Arc<str>,
    /// What was in use.
    pub used: u64,
    /// What was asked.
    pub asked: u64,
    /// The wait in nanoseconds where a time is known.
    pub nanos: Option<u64>,
    /// Whether it can never fit.
    pub never: bool,
}

/// What the model says to a request.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// Admitted: the lease's place in the model; none in a preview.
    Admit(Option<usize>, Box<Agreed>),
    /// The same request's open lease.
    Open(usize, Box<Agreed>),
    /// Told to wait.
    Queue(Reason, Vec<Short>),
    /// Refused.
    Reject(Reason, Vec<Short>),
    /// Refused: the id has ended.
    Ended(Box<ModelReceipt>),
}

/// The form in which a request is admitted.
#[derive(Debug, Clone, PartialEq)]
pub struct Agreed {
    /// The model to run on.
    pub model: Arc<str>,
    /// The lane to run in.
    pub lane: Arc<str>,
    /// The largest output over all choices.
    pub output: u64,
    /// The worst case in money.
    pub worst: Pico,
    /// How it is less than what was asked.
    pub lesser: Option<Degradation>,
}

/// What the model knows of a receipt.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelReceipt {
    /// How it ended.
    pub outcome: &'static str,
    /// The exact cost.
    pub cost: Pico,
    /// The largest amount held per meter.
    pub held: Amounts,
    /// What is charged per meter.
    pub charged: Amounts,
    /// Whether it was unresolved before.
    pub late: bool,
    /// Whether it repeats an earlier ending.
    pub repeat: bool,
}

impl From<Receipt> for ModelReceipt {
    fn from(receipt: Receipt) -> ModelReceipt {
        ModelReceipt {
            outcome: receipt.outcome(),
            cost: receipt.cost(),
            held: receipt.held(),
            charged: receipt.charged(),
            late: receipt.is_late(),
            repeat: receipt.is_repeat(),
        }
    }
}

/// An ending that the model refuses: the code, and the field that differs.
pub type ModelError = (&'static str, Option<&'static str>);

/// The same of the crate's own error.
pub fn error_of(error: &EndError) -> ModelError {
    let field = match error {
        EndError::Conflict { field, .. } => Some(*field),
        _ => None,
    };
    (error.code(), field)
}

/// How a lease is to end.
#[derive(Debug, Clone)]
pub enum Ending {
    /// With these figures.
    Settle(Box<Usage>),
    /// Never sent.
    Cancel,
    /// Unknown usage.
    Abandon(Cause),
}
