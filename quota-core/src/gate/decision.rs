//! Decisions: the four answers of the gate.
//!
//! Floor 3. Invariant: every answer but `allow` carries a reason.

use std::sync::Arc;
use std::time::Duration;

use crate::reason::Reason;
use crate::refusal::Refusal;
use crate::scheduler::Place;

/// The gate's answer. `L` is a [`Lease`](crate::Lease) from `admit`, an [`Offer`] from `preview`.
#[derive(Debug)]
pub enum Decision<L> {
    /// Admitted as asked.
    Allow(L),
    /// Admitted in a lesser form.
    Degrade(L, Degradation),
    /// Not now: it may wait in its lane.
    Queue(Queued),
    /// Not admitted.
    Reject(Arc<Refusal>),
}

impl<L> Decision<L> {
    /// `allow`, `degrade`, `queue` or `reject`.
    pub fn action(&self) -> &'static str {
        match self {
            Decision::Allow(_) => "allow",
            Decision::Degrade(..) => "degrade",
            Decision::Queue(_) => "queue",
            Decision::Reject(_) => "reject",
        }
    }

    /// Why it is not a plain allow; `None` for one.
    pub fn reason(&self) -> Option<Reason> {
        match self {
            Decision::Allow(_) => None,
            Decision::Degrade(_, degradation) => Some(degradation.reason),
            Decision::Queue(queued) => Some(queued.refusal.reason),
            Decision::Reject(refusal) => Some(refusal.reason),
        }
    }

    /// The lease of an admitted request, degraded or not.
    pub fn lease(self) -> Option<L> {
        match self {
            Decision::Allow(lease) | Decision::Degrade(lease, _) => Some(lease),
            Decision::Queue(_) | Decision::Reject(_) => None,
        }
    }

    /// The refusal of a request that was not admitted.
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Decision::Queue(queued) => Some(&queued.refusal),
            Decision::Reject(refusal) => Some(refusal),
            Decision::Allow(_) | Decision::Degrade(..) => None,
        }
    }
}

/// In which lesser form a request was admitted. The gateway must run it in this form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Degradation {
    /// The step's place in the list of the policy that was in force.
    pub step: u16,
    /// Why: [`Reason::SoftLimitPassed`], [`Reason::PoolPressure`], or the reason of the limit that had no room. A repeat, which
    /// finds its lease open, is told `SoftLimitPassed` of either sort of limit.
    pub reason: Reason,
    /// The limit that called for it; under pressure the pool. For a repeat the limit that the step names, empty where it names
    /// none.
    pub limit: Arc<str>,
    /// The model to run on.
    pub model: Arc<str>,
    /// The largest output over all choices.
    pub max_output_tokens: u64,
    /// Tools to take out of the request.
    pub disable_tools: Vec<Arc<str>>,
    /// The lane to run in.
    pub lane: Arc<str>,
}

/// A request that may wait. It has a place in its tenant's queue until this is dropped; [`Gate::wait`](crate::Gate::wait) makes a future of it.
#[derive(Debug)]
pub struct Queued {
    /// The lane to wait in.
    pub lane: Arc<str>,
    /// The longest that the lane lets it wait.
    pub max_wait: Duration,
    /// What had no room, and when it will.
    pub refusal: Arc<Refusal>,
    /// The pool that it waits for; empty where nothing but its own limits keeps it out.
    pub pool: Arc<str>,
    /// `None` in a preview.
    pub(super) place: Option<Place>,
}

/// What `preview` found that `admit` would hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// The model that it would run on.
    pub model: Arc<str>,
    /// The lane.
    pub lane: Arc<str>,
    /// The input that would be reserved, in tokens.
    pub input_tokens: u64,
    /// The largest output over all choices, in tokens.
    pub max_output_tokens: u64,
    /// The worst case in money.
    pub worst_cost: crate::units::Pico,
}
