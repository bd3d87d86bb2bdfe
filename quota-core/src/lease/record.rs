//! Records: how a lease stands, and the steps from one state to the next.
//!
//! Floor 2. Invariant: a lease leaves the held state once, and every repeat of an ending finds what the first one did.

use std::borrow::Cow;
use std::sync::Arc;

use smallvec::SmallVec;

use super::brief::{Brief, Tried};
use super::figures::Figures;
use super::{CANCELLED, Claim, Hold, LeaseId, Noted, OPEN, SETTLED, STEPPED, WRITING};
use crate::account::Bound;
use crate::meter::Rule;
use crate::sync::{ArcCell, Ordering};
use crate::time::Now;
use crate::units::{Amounts, Meter, Pico, Usd};
use crate::usage::Usage;

/// How a lease went on that did not end in its own words. One that is extended or becomes unresolved steps on in a cell.
#[derive(Debug)]
pub(crate) enum First {
    /// It has ended, other than in the lease's own words.
    Ended(Stand),
    /// It steps on: the record of now.
    On(ArcCell<Stand>),
}

impl First {
    #[cold]
    fn of(stand: Stand) -> Box<First> {
        Box::new(match stand.state.is_open() {
            false => First::Ended(stand),
            true => First::On(ArcCell::new(Arc::new(stand))),
        })
    }

    /// Which record it makes, if it is the first step.
    fn step(&self) -> Step {
        match self {
            First::Ended(_) => Step::Ended,
            First::On(cell) => cell.load().map_or(Step::Held, Step::On),
        }
    }
}

/// Where a step led.
#[derive(Debug)]
pub(crate) struct Stand {
    /// What was taken later, by extending it; few leases are.
    pub(super) more: Option<Box<[Hold]>>,
    pub(super) state: State,
    /// Whether the step that led here is in the journal, unless it was the first and an ending: then the claim says so, which
    /// is looked at when it is forgotten.
    pub(super) noted: Noted,
}

/// A lease at one moment. Each step of its life makes a new record; an earlier one stays as it is.
///
/// A clone costs one or two reference counts.
#[derive(Debug, Clone)]
pub struct Record {
    /// What it is about.
    pub claim: Arc<Claim>,
    step: Step,
}

/// Which of a lease's records it is.
#[derive(Debug, Clone)]
enum Step {
    /// The first one: held as admitted.
    Held,
    /// The one that ended it, where that was the first step: it stands in the claim, in words or in the box.
    Ended,
    /// Any other.
    On(Arc<Stand>),
}

/// How a lease stands.
#[derive(Debug, Clone, PartialEq)]
pub enum State {
    /// Open: everything reserved is held.
    Held,
    /// Charged as reserved because the usage is unknown; slots are free; one late settle corrects it.
    Unresolved(Unresolved),
    /// Charged as used.
    Settled(Settled),
    /// Given back whole.
    Cancelled(Now),
}

impl State {
    /// Whether the lease still keeps its slot: held, or waiting to be resolved.
    pub fn is_open(&self) -> bool {
        matches!(self, State::Held | State::Unresolved(_))
    }
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

/// What a lease was settled with. What it was charged per meter follows from this and its terms, see [`Record::charged`].
#[derive(Debug, Clone, PartialEq)]
pub struct Settled {
    /// When.
    pub at: Now,
    pub(crate) figures: Option<Figures>,
    /// The exact cost.
    pub cost: Pico,
    /// Whether it was unresolved before.
    pub late: bool,
}

impl Settled {
    /// The provider's figures; `None` where the reservation was taken as used (`assumed`).
    pub fn usage(&self) -> Option<Usage> {
        self.figures.as_ref().map(Figures::usage)
    }
}

/// How a caller wants a lease to end.
#[derive(Debug, Clone)]
// Nearly every one settles, and is looked at where it was made.
#[allow(clippy::large_enum_variant)]
pub enum End {
    /// With the provider's figures, priced.
    Settle {
        /// The figures.
        usage: Usage,
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
// Nearly every one is the larger one.
#[allow(clippy::large_enum_variant)]
pub(crate) enum Ending {
    /// It stands like this next.
    Next(Stand),
    /// It had ended the same way before.
    Repeat,
}

impl Claim {
    /// The lease as it stands.
    #[inline]
    pub(crate) fn now(self: Arc<Claim>) -> Record {
        let step = match self.stage() {
            OPEN | WRITING => Step::Held,
            SETTLED | CANCELLED => Step::Ended,
            _ => self.first.get().map_or(Step::Held, First::step),
        };
        Record { claim: self, step }
    }

    #[inline]
    fn stage(&self) -> u32 {
        // ORDERING: acquire pairs with the release of whoever made the step: its words or its box are there.
        self.stage.load(Ordering::Acquire)
    }

    /// Whether the lease still keeps its slot: held, or waiting to be resolved.
    pub(crate) fn is_open(&self) -> bool {
        match (self.stage(), self.first.get()) {
            (OPEN | WRITING, _) => true,
            (STEPPED, Some(First::On(cell))) => cell.with(|stand| stand.is_none_or(|stand| stand.state.is_open())),
            _ => false,
        }
    }

    /// Steps on from the first state, by words or by a box; the step, unless it has gone on otherwise.
    fn step(&self, next: Stand) -> Option<Step> {
        if let Some(brief) = Brief::of(&next) {
            match self.brief.try_end(&self.stage, &brief) {
                Tried::Done => return Some(Step::Ended),
                Tried::Lost => return None,
                Tried::Taken => {}
            }
        }
        let first = First::of(next);
        let step = first.step();
        let is_ours = self.first.set(first);
        // Whose box it may be: it counts from here on, unless words came first. The stage only ever rises, by others
        // twice at most, so this comes to an end, and nobody waits for whoever has the seat.
        // ORDERING: release publishes the box to those who read the stage with acquire; whoever found the box already there
        // has seen it by the acquire of its own failed attempt, and hands it on. Relaxed loads: the exchange decides.
        let counts = |stage| matches!(stage, OPEN | WRITING).then_some(STEPPED);
        let stepped = self.stage.fetch_update(Ordering::Release, Ordering::Relaxed, counts);
        let stage = stepped.map_or_else(|stage| stage, |_| STEPPED);
        (is_ours && stage == STEPPED).then_some(step)
    }
}

impl Record {
    /// Where it stands, unless that is as it was opened or in the lease's own words.
    fn stand(&self) -> Option<&Stand> {
        match &self.step {
            Step::Held => None,
            Step::On(stand) => Some(stand),
            // ORDERING: relaxed; it was read with acquire when it was found to have ended, and is for good.
            Step::Ended if self.claim.stage.load(Ordering::Relaxed) != STEPPED => None,
            Step::Ended => match self.claim.first.get() {
                Some(First::Ended(stand)) => Some(stand),
                Some(First::On(_)) | None => None,
            },
        }
    }

    /// How it stands.
    #[inline]
    pub fn state(&self) -> Cow<'_, State> {
        match self.stand() {
            Some(stand) => Cow::Borrowed(&stand.state),
            None => Cow::Owned(self.own_state()),
        }
    }

    /// How it stands, where it has no box.
    #[inline]
    fn own_state(&self) -> State {
        match self.step {
            // ORDERING: relaxed, as in `stand`. A stage of another kind has its box, and `stand` finds it.
            Step::Ended => self.claim.brief.state(self.claim.stage.load(Ordering::Relaxed)).unwrap_or(State::Held),
            Step::Held | Step::On(_) => State::Held,
        }
    }

    /// What was taken later, by extending it; at most one hold a limit and period.
    pub fn more(&self) -> &[Hold] {
        self.stand().and_then(|stand| stand.more.as_deref()).unwrap_or_default()
    }

    /// `true` for the first who asks whether the extension that led here is in the journal.
    pub(crate) fn first_to_note_extension(&self) -> bool {
        matches!(&self.step, Step::On(stand) if stand.noted.first())
    }

    /// Whether this is the first who asks whether the ending that led here is in the journal, and whether the admission is
    /// not there either.
    pub(crate) fn first_to_note_ending(&self) -> (bool, bool) {
        match &self.step {
            Step::Held => (false, false),
            Step::Ended => self.claim.noted.first_and_before(),
            Step::On(stand) => match stand.noted.first() {
                true => (true, self.claim.noted.first()),
                false => (false, false),
            },
        }
    }

    /// Steps on, if it still stands like this; gives the record after the step, or of now if somebody else was first.
    pub(crate) fn step(self, next: Stand) -> Result<Record, Record> {
        let Record { claim, step } = self;
        match step {
            Step::Held => match claim.step(next) {
                Some(step) => Ok(Record { claim, step }),
                None => Err(claim.now()),
            },
            Step::On(before) => {
                let next = Arc::new(next);
                let done = match claim.first.get() {
                    Some(First::On(cell)) => cell.swap_if(Some(&before), next.clone()),
                    Some(First::Ended(_)) | None => false,
                };
                if done { Ok(Record { claim, step: Step::On(next) }) } else { Err(claim.now()) }
            }
            // Nothing follows an ending.
            Step::Ended => Err(Record { claim, step }),
        }
    }

    /// Whether the lease still keeps its slot: held, or waiting to be resolved.
    pub fn is_open(&self) -> bool {
        match &self.step {
            Step::Held => true,
            Step::Ended => false,
            Step::On(stand) => stand.state.is_open(),
        }
    }

    /// Whether everything reserved is held.
    pub(crate) fn is_held(&self) -> bool {
        match &self.step {
            Step::Held => true,
            Step::Ended => false,
            Step::On(stand) => stand.state == State::Held,
        }
    }

    /// Why and since when its usage is unknown, where it waits to be resolved.
    pub fn unresolved(&self) -> Option<&Unresolved> {
        match &self.step {
            Step::On(stand) => match &stand.state {
                State::Unresolved(unresolved) => Some(unresolved),
                _ => None,
            },
            Step::Held | Step::Ended => None,
        }
    }

    pub(crate) fn is_unresolved(&self) -> bool {
        self.unresolved().is_some()
    }

    /// Whether it was settled with a usage that has no price, or has none for a part of it, and so cost less than it
    /// should have.
    pub fn is_unpriced(&self) -> bool {
        self.is_unpriced_by(&self.state())
    }

    /// The same, where its state is at hand.
    pub(crate) fn is_unpriced_by(&self, state: &State) -> bool {
        let State::Settled(settled) = state else { return false };
        let ran = settled.figures.as_ref().filter(|figures| figures.requests() > 0);
        ran.is_some_and(|figures| match (self.claim.terms.price(), figures) {
            (None, _) => true,
            // Of most models every token has a price.
            (Some(price), Figures::Plain(_)) if price.has_all_tokens() => false,
            (Some(price), figures) => price.lacks(&figures.usage()),
        })
    }

    /// All that was taken, in order.
    pub fn holds(&self) -> impl Iterator<Item = Hold> {
        self.claim.holds().chain(self.more().iter().copied())
    }

    /// The same with more held. A hold on a limit and window that an extension has raised before raises that hold, so a
    /// lease has at most one hold a limit and period beside those that it was admitted with.
    pub(crate) fn raised(&self, holds: impl Iterator<Item = Hold>) -> Stand {
        let mut more = self.more().to_vec();
        for hold in holds.filter(|hold| hold.amount > 0) {
            let periodic = matches!(self.limit(&hold).rule, Rule::Budget(_));
            let same = |before: &&mut Hold| before.limit == hold.limit && (!periodic || before.mark == hold.mark);
            match more.iter_mut().find(same) {
                Some(before) => *before = Hold { amount: before.amount.saturating_add(hold.amount), ..hold },
                None => more.push(hold),
            }
        }
        Stand { more: Some(more.into()), state: State::Held, noted: Noted::default() }
    }

    /// What is held on one limit.
    pub(crate) fn held_on(&self, limit: u16) -> u64 {
        self.holds().filter(|hold| hold.limit == limit).fold(0, |sum, hold| sum.saturating_add(hold.amount))
    }

    /// The limit that a hold is on.
    pub fn limit(&self, hold: &Hold) -> Bound<'_> {
        self.claim.terms.deal.lineup.limit(hold.limit)
    }

    /// The largest amount held per meter.
    pub fn held_amounts(&self) -> Amounts {
        let limits = self.claim.terms.deal.lineup.spots();
        let mut amounts = Amounts::default();
        if self.more().is_empty() {
            // One hold a limit.
            for hold in self.claim.holds() {
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

    /// What is charged per meter: what was used, or where that is not known what is held; nothing once it is cancelled.
    pub fn charged(&self) -> Amounts {
        self.charged_by(&self.state())
    }

    /// The same, where its state is at hand.
    pub(crate) fn charged_by(&self, state: &State) -> Amounts {
        match state {
            State::Held => self.held_amounts(),
            State::Unresolved(_) => self.held_amounts().counted(),
            State::Cancelled(_) => Amounts::default(),
            State::Settled(settled) => match &settled.figures {
                None => self.held_amounts().counted(),
                Some(figures) => {
                    let calls = if figures.requests() > 0 { self.claim.terms.tool_calls() } else { 0 };
                    figures.amounts(settled.cost.to_usd()).with(Meter::ToolCalls, calls)
                }
            },
        }
    }

    /// The exact cost: of what was used, or where that is not known the worst case; zero once it is cancelled.
    pub fn cost(&self) -> Pico {
        match &*self.state() {
            State::Settled(settled) => settled.cost,
            State::Cancelled(_) => Pico(0),
            State::Held | State::Unresolved(_) => self.worst_cost(),
        }
    }

    /// The worst case in money: what was agreed, or what the hold was raised to since.
    pub fn worst_cost(&self) -> Pico {
        let (held, agreed) = (Usd::from_units(self.held_amounts().get(Meter::Money)), self.claim.terms.worst_cost);
        // The hold is rounded up, so it says more only where it was raised.
        if held > agreed.to_usd() { Pico(held.units() as u128 * 10_000) } else { agreed }
    }

    /// What an ending makes of it.
    ///
    /// # Errors
    /// [`EndError::Conflict`] if it ended otherwise before, [`EndError::CancelAfterSent`].
    pub(crate) fn end(&self, end: &End, now: Now) -> Result<Ending, EndError> {
        let next = |state| {
            let more = self.stand().and_then(|stand| stand.more.clone());
            Ok(Ending::Next(Stand { more, state, noted: Noted::default() }))
        };
        let late = !self.is_held();
        match (&*self.state(), end) {
            (State::Held, End::Cancel) if !self.claim.keep_back() => Err(EndError::CancelAfterSent(self.claim.id)),
            (State::Held, End::Cancel) => next(State::Cancelled(now)),
            (State::Held, End::Abandon(cause, seen)) => {
                next(State::Unresolved(Unresolved { since: now, cause: *cause, seen: seen.clone() }))
            }
            (State::Held | State::Unresolved(_), End::Settle { usage, cost }) => {
                next(State::Settled(Settled { at: now, figures: Some(Figures::of(usage)), cost: *cost, late }))
            }
            (State::Held | State::Unresolved(_), End::Assume) => {
                next(State::Settled(Settled { at: now, figures: None, cost: self.worst_cost(), late }))
            }
            (State::Settled(first), End::Settle { usage, .. }) => match first.usage() {
                Some(before) => match before.first_difference(usage) {
                    None => Ok(Ending::Repeat),
                    Some((field, first, second)) => Err(self.conflict(field, first, second)),
                },
                None => Err(self.conflict("usage", "the reservation".into(), "figures".into())),
            },
            (State::Cancelled(_), End::Cancel) => Ok(Ending::Repeat),
            // An ending that says nothing new about one that has ended, or that is unresolved already.
            (_, End::Abandon(..) | End::Assume) => Ok(Ending::Repeat),
            (_, End::Cancel) => Err(self.conflict("outcome", self.state_name().into(), "cancelled".into())),
            (State::Cancelled(_), End::Settle { .. }) => {
                Err(self.conflict("outcome", self.state_name().into(), "settled".into()))
            }
        }
    }

    /// What each hold stands at in this record, in the order of [`Record::holds`].
    pub fn standing(&self) -> Vec<(Hold, u64)> {
        let mut corrected = self.corrections().into_iter().peekable();
        let mut standing = Vec::new();
        for (nth, hold) in self.holds().enumerate() {
            let freed = self.limit(&hold).meter.is_held() && !self.is_held();
            let kept = if freed { 0 } else { hold.amount };
            let to = corrected.next_if(|(of, ..)| *of == nth);
            standing.push((hold, to.map_or(kept, |(.., to)| to)));
        }
        standing
    }

    fn conflict(&self, field: &'static str, first: String, second: String) -> EndError {
        EndError::Conflict { lease: self.claim.id, field, first, second }
    }

    /// The state's name in journals and errors.
    pub fn state_name(&self) -> &'static str {
        match &*self.state() {
            State::Held => "held",
            State::Unresolved(_) => "unresolved",
            State::Settled(_) => "settled",
            State::Cancelled(_) => "cancelled",
        }
    }

    /// What is charged per meter, where a held lease that was never extended was settled with figures: each of its holds is
    /// replaced by that, and slots come free.
    pub(crate) fn plainly_settled(&self) -> Option<Amounts> {
        let state = self.state();
        let plainly = |settled: &Settled| !settled.late && settled.figures.is_some() && self.more().is_empty();
        matches!(&*state, State::Settled(settled) if plainly(settled)).then(|| self.charged_by(&state))
    }

    /// The holds that the step that led to this record replaces, each with its place in [`Record::holds`], and by what; in that
    /// order.
    ///
    /// Of several holds on one limit, all but the last are filled first: the last takes what is left of the usage.
    pub fn corrections(&self) -> SmallVec<[(usize, Hold, u64); 8]> {
        let mut corrections = SmallVec::new();
        let (limits, state) = (self.claim.terms.deal.lineup.spots(), self.state());
        let extended = !self.more().is_empty();
        let charged = self.charged();
        let mut spent: SmallVec<[(u16, u64); 8]> = SmallVec::new();
        for (at, hold) in self.holds().enumerate() {
            let meter = limits[hold.limit as usize].meter;
            let to = match &*state {
                State::Held => continue,
                State::Cancelled(_) => 0,
                // The slots come free; a late settle finds them so.
                State::Unresolved(_) if meter.is_held() => 0,
                State::Settled(settled) if meter.is_held() && !settled.late => 0,
                State::Unresolved(_) => continue,
                State::Settled(settled) if meter.is_held() || settled.figures.is_none() => continue,
                // One hold a limit.
                State::Settled(_) if !extended => charged.get(meter),
                State::Settled(_) => {
                    let is_last = !self.holds().skip(at + 1).any(|later| later.limit == hold.limit);
                    let before = spent.iter().find(|(limit, _)| *limit == hold.limit).map_or(0, |(_, sum)| *sum);
                    let left = charged.get(meter).saturating_sub(before);
                    let here = if is_last { left } else { left.min(hold.amount) };
                    match spent.iter_mut().find(|(limit, _)| *limit == hold.limit) {
                        Some((_, sum)) => *sum += here,
                        None => spent.push((hold.limit, here)),
                    }
                    here
                }
            };
            corrections.push((at, hold, to));
        }
        corrections
    }
}
