//! What every order of service is to the harness: it is told what happens and says what goes to the pool.

use quota_core::gpu::Load;

/// A request that arrives at the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    /// The attempt; grows with the moment of arrival.
    pub id: u64,
    /// The tenant's place.
    pub tenant: usize,
    /// The tenant's weight.
    pub weight: u64,
    /// The lane.
    pub lane: usize,
    /// Tokens of the prompt.
    pub input: u64,
    /// What the answer's length is thought to be.
    pub expected: u64,
    /// The longest that the answer may become, as the sender says.
    pub declared: u64,
    /// Whether the answer's growth will be told.
    pub reports_progress: bool,
    /// When it arrived.
    pub at: u64,
}

/// A request that is not taken in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused {
    /// Nanoseconds after which to try again, where the rule knows.
    pub retry_after: Option<u64>,
}

/// What a rule has decided about a request that waited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It goes to the pool.
    Sent(u64),
    /// It has waited too long.
    Expired(u64),
}

/// An order of service with its valve.
pub trait Rule {
    /// A request arrives.
    fn arrive(&mut self, ask: &Ask, now: u64) -> Result<(), Refused>;

    /// Decides as much as can be decided now.
    fn decide(&mut self, now: u64, verdicts: &mut Vec<Verdict>);

    /// A sent request has given its first token.
    fn first_token(&mut self, id: u64, now: u64);

    /// A sent request's answer has so many tokens by now.
    fn progress(&mut self, id: u64, out: u64, now: u64);

    /// A sent request is complete.
    fn settle(&mut self, id: u64, out: u64, now: u64);

    /// The sender has gone while the request waited.
    fn withdraw(&mut self, id: u64, now: u64);

    /// The sender has gone after so many tokens, or the pool has lost the request.
    fn cancel(&mut self, id: u64, out: u64, now: u64);

    /// When something has to be decided even if nothing happens.
    fn due(&self) -> Option<u64>;

    /// How full the pool says it is; told once a second where the run says so.
    fn report(&mut self, _load: &Load, _now: u64) {}

    /// Tenants looked at, and requests chosen by it.
    fn visits(&self) -> (u64, u64);

    /// Requests that the valve lets into the pool at the moment.
    fn width(&self) -> u64;

    /// Whether a request waits although it could go to the pool.
    fn idles(&mut self, now: u64) -> bool;

    /// The parts of the printed bound, where the rule has one.
    fn bound(&self) -> Option<Bound> {
        None
    }
}

/// Parts of the bound on the difference between two tenants, in work.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bound {
    /// The largest quantum of a tenant of weight 1 that was in force.
    pub quantum: f64,
}
