//! Leases: the states that a reservation goes through, as pure steps between immutable records.
//!
//! Floor 2. Invariant: a lease leaves the held state once, and every repeat of an ending finds what the first one did.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::account::{Bound, Lineup};
use crate::estimate::InputEstimate;
use crate::meter::Rule;
use crate::policy::price::Price;
use crate::principal::Principal;
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::time::Now;
use crate::units::{Amounts, Meter, Pico, Usd};
use crate::usage::Usage;

/// Names one lease among all that a store has ever given out.
///
/// Slot and generation find it; the tag, a keyed hash of both, keeps one tenant from naming another's.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct LeaseId {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
    pub(crate) tag: u64,
}

impl fmt::Display for LeaseId {
    /// 32 hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}{:08x}{:016x}", self.slot, self.generation, self.tag)
    }
}

impl fmt::Debug for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text that is not a lease id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a lease id has 32 hexadecimal digits")]
pub struct NotLeaseId;

impl FromStr for LeaseId {
    type Err = NotLeaseId;

    fn from_str(text: &str) -> Result<LeaseId, NotLeaseId> {
        if text.len() != 32 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(NotLeaseId);
        }
        let part = |from: usize, to: usize| u64::from_str_radix(&text[from..to], 16).map_err(|_| NotLeaseId);
        Ok(LeaseId { slot: part(0, 8)? as u32, generation: part(8, 16)? as u32, tag: part(16, 32)? })
    }
}

/// What a lease keeps on one limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hold {
    /// The limit's place in the lineup.
    pub limit: u16,
    /// The amount held.
    pub amount: u64,
    /// What a correction needs to know, see [`Taken`](crate::meter::Taken).
    pub mark: u64,
    /// The amount in use on the account after the taking; for explanations.
    pub used: u64,
}

/// The holds of one taking; eight limits need no allocation of their own.
pub type Holds = SmallVec<[Hold; 8]>;

/// What was agreed when the request was admitted: everything that is needed to settle it later, from anywhere.
#[derive(Debug, Clone)]
pub struct Terms {
    /// The request id, where there is one.
    pub request_id: Option<Arc<str>>,
    /// Who asked.
    pub principal: Principal,
    /// The model that the request runs on (after degrading).
    pub model: Arc<str>,
    /// The model's name in counters and learned figures: its own, or `*` for one that the policy does not name.
    pub group: Arc<str>,
    /// The lane.
    pub lane: Arc<str>,
    /// The run of an agent that it is a step of.
    pub run_id: Option<Arc<str>>,
    /// The calls of tools that the step newly carries.
    pub tool_calls: u64,
    /// The estimated input, with what settled requests have taught.
    pub input: InputEstimate,
    /// The input as the method alone guessed it.
    pub input_guess: u64,
    /// The largest output over all choices that the reservation allows for.
    pub output_ceiling: u64,
    /// The output that was held on limits that hold the learned percentile.
    pub output_expected: u64,
    /// What the request asked for as it came, before it was degraded; what a repeat under its id is compared with.
    pub asked: Asked,
    /// The worst case in money; what is charged while the usage is unknown.
    pub worst_cost: Pico,
    /// The price that it will be settled at; `None` if it has none.
    pub price: Option<Arc<Price>>,
    /// Whether the price is another model's, because its own is unknown and the policy reckons with the dearest.
    pub price_is_guess: bool,
    /// Whether the answer is streamed.
    pub stream: bool,
    /// Whether the input is known to have no audio, image or video.
    pub text_only: bool,
    /// How many answers are generated.
    pub choices: u64,
    /// The service tier asked for; it prices a usage that names none.
    pub service_tier: Option<Arc<str>>,
    /// The place of the policy's degrade step that was applied, if any.
    pub degraded: Option<u16>,
    /// Nanoseconds that the lease lives without a heartbeat.
    pub ttl: u64,
    /// Nanoseconds that it may stay unresolved.
    pub unresolved_ttl: u64,
    /// The limits that it was reserved on.
    pub lineup: Arc<Lineup>,
}

/// What a request said of itself, before anything was learned, capped or degraded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// The model.
    pub model: Arc<str>,
    /// The largest output of one choice, where it was stated.
    pub max_output_tokens: Option<u64>,
    /// The worst case in money of the request as it came.
    pub worst_cost: Pico,
}

impl Terms {
    /// Whether another request under the same id asks no more than this one did, so that it can share its lease.
    pub(crate) fn cover(&self, other: &Terms) -> bool {
        let output = match (self.asked.max_output_tokens, other.asked.max_output_tokens) {
            (Some(first), Some(second)) => second <= first,
            (Some(_), None) => false,
            (None, _) => true,
        };
        // On the same model the cost follows from the rest; what is learned meanwhile makes no other request of it.
        let cost = other.asked.model == self.asked.model || other.asked.worst_cost <= self.asked.worst_cost;
        output
            && cost
            && other.input_guess <= self.input_guess
            && other.choices <= self.choices
            && (self.stream || !other.stream)
    }
}

/// An admitted request: its terms, its holds, and the two things about it that change without a step.
#[derive(Debug)]
pub struct Claim {
    /// The lease's id.
    pub id: LeaseId,
    /// What was agreed.
    pub terms: Terms,
    /// When it was admitted.
    pub at: Now,
    /// What was taken.
    pub holds: Holds,
    /// Engine time at which it expires. Raised by heartbeats, read by the sweeper.
    deadline: AtomicU64,
    /// Whether the request has left (`SENT`), will not leave (`KEPT_BACK`), or neither yet. Set once, by whoever sends or
    /// cancels first.
    departure: AtomicU32,
    /// Whether the admission is in the journal, and whether the lease has an owner.
    pub(crate) noted: Noted,
}

/// Whether something has been written into the journal: of all who see it, exactly one is told to write it.
///
/// A store's answer can be lost on its way. The work is then done and nobody has noted it; whoever meets it next, by
/// repeating the operation, is the first to see it.
///
/// Layout: bit 0 once it is written, bit 1 once a handle on it was given out. Set by whoever meets it.
#[derive(Debug, Default)]
pub(crate) struct Noted(AtomicU32);

impl Noted {
    /// `true` for the first who asks, `false` for everybody else.
    pub(crate) fn first(&self) -> bool {
        // ORDERING: relaxed; only that one of all is the first matters, what it writes came with the record itself.
        self.0.fetch_or(1, Ordering::Relaxed) & 1 == 0
    }

    /// As [`first`](Noted::first), and whether this is the first to get a handle.
    pub(crate) fn first_and_owner(&self) -> (bool, bool) {
        // ORDERING: relaxed, as in `first`.
        let before = self.0.fetch_or(3, Ordering::Relaxed);
        (before & 1 == 0, before & 2 == 0)
    }
}

impl Clone for Noted {
    /// A copy is the beginning of the next record, which is in no journal yet.
    fn clone(&self) -> Noted {
        Noted::default()
    }
}

/// Neither sent nor cancelled.
const OPEN: u32 = 0;
/// Bytes were about to leave.
const SENT: u32 = 1;
/// A cancellation came first.
const KEPT_BACK: u32 = 2;

impl Claim {
    pub(crate) fn new(id: LeaseId, terms: Terms, at: Now, holds: Holds) -> Claim {
        let deadline = AtomicU64::new(at.mono.saturating_add(terms.ttl));
        Claim { id, terms, at, holds, deadline, departure: AtomicU32::new(OPEN), noted: Noted::default() }
    }

    /// Engine time at which it expires unless a heartbeat comes.
    pub fn deadline(&self) -> u64 {
        // ORDERING: relaxed; the deadline is a number by itself, and the sweeper looks again before it expires a lease.
        self.deadline.load(Ordering::Relaxed)
    }

    pub(crate) fn renew(&self, until: u64) {
        // ORDERING: relaxed, as in `deadline`. A maximum, so that a late heartbeat never shortens a life.
        self.deadline.fetch_max(until, Ordering::Relaxed);
    }

    /// Marks the request as leaving; `false` if a cancellation was first, and it must not leave.
    pub(crate) fn mark_sent(&self) -> bool {
        self.depart(SENT)
    }

    /// Makes sure that the request will not leave any more; `false` if it has left.
    pub(crate) fn keep_back(&self) -> bool {
        self.depart(KEPT_BACK)
    }

    /// Sending and cancelling race on one word: the first decides, and is confirmed when it asks again.
    fn depart(&self, how: u32) -> bool {
        // ORDERING: release so that the mark comes with what its owner did before it, acquire so that the loser sees it.
        match self.departure.compare_exchange(OPEN, how, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => true,
            Err(first) => first == how,
        }
    }
}

/// A lease at one moment. Each step of its life makes a new record.
#[derive(Debug, Clone)]
pub struct Record {
    /// What it is about.
    pub claim: Arc<Claim>,
    /// What was taken later, by extending it; at most one hold a limit and period.
    pub more: Vec<Hold>,
    /// How it stands.
    pub state: State,
    /// Whether the step that led here is in the journal.
    pub(crate) noted: Noted,
}

/// How a lease stands.
#[derive(Debug, Clone, PartialEq)]
pub enum State {
    /// Open: everything reserved is held.
    Held,
    /// Charged as reserved because the usage is unknown; slots are free; one late settle corrects it.
    Unresolved(Unresolved),
    /// Charged as used.
    Settled(Box<Settled>),
    /// Given back whole.
    Cancelled(Now),
}

/// Why and since when a usage is unknown.
#[derive(Debug, Clone, PartialEq)]
pub struct Unresolved {
    /// Since when.
    pub since: Now,
    /// Why.
    pub cause: Cause,
    /// The best-known figures, for instance the running count of a stream that broke.
    pub seen: Option<Box<Usage>>,
}

/// Why a usage is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The lease was dropped.
    Dropped,
    /// Its deadline passed.
    Expired,
    /// The upstream's answer carried no usable usage.
    NoUsage,
    /// The upstream failed after the request was sent.
    UpstreamFailed,
}

impl Cause {
    /// The name in journals and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Cause::Dropped => "dropped",
            Cause::Expired => "expired",
            Cause::NoUsage => "no_usage",
            Cause::UpstreamFailed => "upstream_failed",
        }
    }
}

/// What a settled lease was charged.
#[derive(Debug, Clone, PartialEq)]
pub struct Settled {
    /// When.
    pub at: Now,
    /// The provider's figures; `None` where the reservation was taken as used (`assumed`).
    pub usage: Option<Usage>,
    /// What was charged per meter.
    pub amounts: Amounts,
    /// The exact cost.
    pub cost: Pico,
    /// Whether it was unresolved before.
    pub late: bool,
}

/// How a caller wants a lease to end.
#[derive(Debug, Clone)]
pub enum End {
    /// With the provider's figures, priced.
    Settle {
        /// The figures.
        usage: Box<Usage>,
        /// What they come to per meter.
        amounts: Amounts,
        /// Their exact cost.
        cost: Pico,
    },
    /// The request never left.
    Cancel,
    /// The usage is unknown.
    Abandon(Cause, Option<Box<Usage>>),
    /// An unresolved lease has waited long enough: the reservation is taken as used.
    Assume,
}

/// An ending that was refused; nothing changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EndError {
    /// No lease of this id is known: it never was, or it ended so long ago that it is forgotten.
    #[error("no lease `{0}` is known")]
    Unknown(String),
    /// It has ended with other figures.
    #[error("lease {lease} has ended with {field} = {first}; {second} differs, nothing was changed")]
    Conflict {
        /// The lease.
        lease: LeaseId,
        /// The first field that differs.
        field: &'static str,
        /// Its value at the first ending.
        first: String,
        /// Its value now.
        second: String,
    },
    /// A request that was sent can't be cancelled: settle it, or let it be unresolved.
    #[error("lease {0} was sent upstream and can't be cancelled")]
    CancelAfterSent(LeaseId),
    /// The store did not answer; the ending can be repeated.
    #[error("the store does not answer")]
    StoreUnavailable,
}

impl EndError {
    /// The stable code of the error.
    pub const fn code(&self) -> &'static str {
        match self {
            EndError::Unknown(_) => "lease_unknown",
            EndError::Conflict { .. } => "lease_conflict",
            EndError::CancelAfterSent(_) => "cancel_after_sent",
            EndError::StoreUnavailable => "store_unavailable",
        }
    }

    /// Whether the same call may succeed later.
    pub const fn is_retryable(&self) -> bool {
        matches!(self, EndError::StoreUnavailable)
    }
}

/// What an ending does to a record.
#[derive(Debug)]
pub enum Step {
    /// The next record.
    Next(Record),
    /// It had ended the same way before.
    Repeat,
}

impl Record {
    pub(crate) fn held(claim: Claim) -> Record {
        Record { claim: Arc::new(claim), more: Vec::new(), state: State::Held, noted: Noted::default() }
    }

    /// Whether the lease still keeps its slot: held, or waiting to be resolved.
    pub fn is_open(&self) -> bool {
        matches!(self.state, State::Held | State::Unresolved(_))
    }

    /// Whether it was settled with a usage that has no price, or has none for a part of it, and so cost less than it
    /// should have.
    pub fn is_unpriced(&self) -> bool {
        let State::Settled(settled) = &self.state else { return false };
        let ran = settled.usage.as_ref().filter(|usage| usage.requests > 0);
        ran.is_some_and(|usage| self.claim.terms.price.as_ref().is_none_or(|price| price.lacks(usage)))
    }

    /// All that was taken, in order.
    pub fn holds(&self) -> impl Iterator<Item = &Hold> {
        self.claim.holds.iter().chain(&self.more)
    }

    /// Adds holds. One on a limit and window that an extension has raised before raises that hold, so a lease has at
    /// most one hold a limit and period beside those that it was admitted with.
    pub(crate) fn raise(&mut self, holds: &[Hold]) {
        for hold in holds.iter().filter(|hold| hold.amount > 0) {
            let periodic = matches!(self.limit(hold).rule, Rule::Budget(_));
            let same = |before: &&mut Hold| before.limit == hold.limit && (!periodic || before.mark == hold.mark);
            match self.more.iter_mut().find(same) {
                Some(before) => *before = Hold { amount: before.amount.saturating_add(hold.amount), ..*hold },
                None => self.more.push(*hold),
            }
        }
    }

    /// What is held on one limit.
    pub(crate) fn held_on(&self, limit: u16) -> u64 {
        self.holds().filter(|hold| hold.limit == limit).fold(0, |sum, hold| sum.saturating_add(hold.amount))
    }

    /// The limit that a hold is on.
    pub fn limit(&self, hold: &Hold) -> &Bound {
        &self.claim.terms.lineup.limits()[hold.limit as usize]
    }

    /// The largest amount held per meter.
    pub fn held_amounts(&self) -> Amounts {
        let limits = self.claim.terms.lineup.limits();
        let mut amounts = Amounts::default();
        if self.more.is_empty() {
            // One hold a limit.
            for hold in &self.claim.holds {
                let meter = limits[hold.limit as usize].meter;
                amounts.set(meter, amounts.get(meter).max(hold.amount));
            }
            return amounts;
        }
        let mut sums: SmallVec<[(u16, u64); 8]> = SmallVec::new();
        for hold in self.holds() {
            match sums.iter_mut().find(|(limit, _)| *limit == hold.limit) {
                Some((_, sum)) => *sum = sum.saturating_add(hold.amount),
                None => sums.push((hold.limit, hold.amount)),
            }
        }
        for (limit, sum) in sums {
            let meter = limits[limit as usize].meter;
            amounts.set(meter, amounts.get(meter).max(sum));
        }
        amounts
    }

    /// The worst case in money: what was agreed, or what the hold was raised to since.
    pub fn worst_cost(&self) -> Pico {
        let (held, agreed) = (Usd::from_units(self.held_amounts().get(Meter::Money)), self.claim.terms.worst_cost);
        // The hold is rounded up, so it says more only where it was raised.
        if held > agreed.to_usd() { Pico(held.units() as u128 * 10_000) } else { agreed }
    }

    /// The record after an ending.
    ///
    /// # Errors
    /// [`EndError::Conflict`] if it ended otherwise before, [`EndError::CancelAfterSent`].
    pub fn end(&self, end: &End, now: Now) -> Result<Step, EndError> {
        let next = |state| Ok(Step::Next(Record { state, ..self.clone() }));
        let settled =
            |usage, amounts, cost, late| State::Settled(Box::new(Settled { at: now, usage, amounts, cost, late }));
        match (&self.state, end) {
            (State::Held, End::Cancel) if !self.claim.keep_back() => Err(EndError::CancelAfterSent(self.claim.id)),
            (State::Held, End::Cancel) => next(State::Cancelled(now)),
            (State::Held, End::Abandon(cause, seen)) => {
                next(State::Unresolved(Unresolved { since: now, cause: *cause, seen: seen.clone() }))
            }
            (State::Held | State::Unresolved(_), End::Settle { usage, amounts, cost }) => {
                let late = !matches!(self.state, State::Held);
                next(settled(Some((**usage).clone()), *amounts, *cost, late))
            }
            (State::Held | State::Unresolved(_), End::Assume) => {
                let late = !matches!(self.state, State::Held);
                next(settled(None, self.held_amounts().counted(), self.worst_cost(), late))
            }
            (State::Settled(first), End::Settle { usage, .. }) => match first.usage.as_ref() {
                Some(before) => match before.first_difference(usage) {
                    None => Ok(Step::Repeat),
                    Some((field, first, second)) => Err(self.conflict(field, first, second)),
                },
                None => Err(self.conflict("usage", "the reservation".into(), "figures".into())),
            },
            (State::Cancelled(_), End::Cancel) => Ok(Step::Repeat),
            // An ending that says nothing new about one that has ended, or that is unresolved already.
            (_, End::Abandon(..) | End::Assume) => Ok(Step::Repeat),
            (_, End::Cancel) => Err(self.conflict("outcome", self.state_name().into(), "cancelled".into())),
            (State::Cancelled(_), End::Settle { .. }) => {
                Err(self.conflict("outcome", self.state_name().into(), "settled".into()))
            }
        }
    }

    /// What each hold stands at in this record, in the order of [`Record::holds`].
    pub fn standing(&self) -> impl Iterator<Item = (&Hold, u64)> {
        self.corrections().map(|(hold, to)| {
            let freed = self.limit(hold).meter.is_held() && self.state != State::Held;
            (hold, to.unwrap_or(if freed { 0 } else { hold.amount }))
        })
    }

    fn conflict(&self, field: &'static str, first: String, second: String) -> EndError {
        EndError::Conflict { lease: self.claim.id, field, first, second }
    }

    /// The state's name in journals and errors.
    pub fn state_name(&self) -> &'static str {
        match self.state {
            State::Held => "held",
            State::Unresolved(_) => "unresolved",
            State::Settled(_) => "settled",
            State::Cancelled(_) => "cancelled",
        }
    }

    /// What the step that led to this record replaces each hold by, in the order of [`Record::holds`]; `None` where
    /// it leaves the hold alone.
    ///
    /// Of several holds on one limit, all but the last are filled first: the last takes what is left of the usage.
    pub fn corrections(&self) -> impl Iterator<Item = (&Hold, Option<u64>)> {
        let mut spent: SmallVec<[(u16, u64); 8]> = SmallVec::new();
        self.holds().enumerate().map(move |(at, hold)| {
            let meter = self.limit(hold).meter;
            let to = match &self.state {
                State::Held => None,
                State::Cancelled(_) => Some(0),
                State::Unresolved(_) => meter.is_held().then_some(0),
                // A late settle finds the slots free already.
                State::Settled(settled) if meter.is_held() => (!settled.late).then_some(0),
                State::Settled(settled) if settled.usage.is_none() => None,
                // Never extended: one hold a limit.
                State::Settled(settled) if self.more.is_empty() => Some(settled.amounts.get(meter)),
                State::Settled(settled) => {
                    let is_last = !self.holds().skip(at + 1).any(|later| later.limit == hold.limit);
                    let before = spent.iter().find(|(limit, _)| *limit == hold.limit).map_or(0, |(_, sum)| *sum);
                    let left = settled.amounts.get(meter).saturating_sub(before);
                    let here = if is_last { left } else { left.min(hold.amount) };
                    match spent.iter_mut().find(|(limit, _)| *limit == hold.limit) {
                        Some((_, sum)) => *sum += here,
                        None => spent.push((hold.limit, here)),
                    }
                    Some(here)
                }
            };
            (hold, to)
        })
    }
}

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
        let (charged, cost, usage, late) = match &record.state {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_read_back() {
        let id = LeaseId { slot: 7, generation: u32::MAX, tag: 0xfeed };
        assert_eq!(id.to_string().parse(), Ok(id));
        for bad in ["", "7", "zz000000000000000000000000000000", "0000000000000000000000000000000é"] {
            assert_eq!(bad.parse::<LeaseId>(), Err(NotLeaseId), "{bad}");
        }
    }
}
