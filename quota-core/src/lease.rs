//! Leases: the states that a reservation goes through, as steps between immutable records.
//!
//! Floor 2. Invariant: a lease leaves the held state once, and every repeat of an ending finds what the first one did.

mod brief;
pub(crate) mod figures;
mod receipt;
mod record;

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::str::FromStr;
use std::sync::Arc;

use self::brief::Words;
pub use self::receipt::Receipt;
use self::record::First;
pub use self::record::{Cause, End, EndError, Record, Settled, State, Unresolved};
pub(crate) use self::record::{Ending, Stand};
use crate::account::{Asks, Lineup};
use crate::estimate::InputEstimate;
use crate::policy::price::Price;
use crate::principal::Principal;
use crate::sync::{AtomicU32, AtomicU64, OnceBox, Ordering};
use crate::tally::Tally;
use crate::time::Now;
use crate::units::{Meter, Pico, Usd};

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
    /// The account's word after the taking; for explanations, see [`Clause::used`](crate::account::Clause::used).
    pub word: u64,
}

/// What was taken of the limits of a lineup: of each the account's word afterwards, at the limit's place.
///
/// Amount and mark of a hold follow from its word and the terms, see [`Terms::hold`]; the few that don't stand by themselves.
/// Eight limits need no allocation.
#[derive(Debug, Clone, Default)]
#[repr(C)]
pub struct Holds {
    // What has to be let go of stands first, as in `Terms`.
    beyond: Option<Box<Beyond>>,
    words: [u64; 8],
}

/// What few takings have.
#[derive(Debug, Clone, Default)]
struct Beyond {
    /// All words, where there are more than eight.
    words: Vec<u64>,
    /// Holds that don't follow, in the order of their limits: where the amount depended on what was in use, a bucket in shadow
    /// was empty, or a lease was extended.
    apart: Vec<Hold>,
}

impl Holds {
    /// Room for so many limits.
    #[inline(always)]
    pub(crate) fn blank(limits: usize) -> Holds {
        let beyond = (limits > 8).then(|| Box::new(Beyond { words: vec![0; limits], apart: Vec::new() }));
        Holds { beyond, words: [0; 8] }
    }

    /// The words, at least one for each limit.
    #[inline(always)]
    pub(crate) fn words(&self) -> &[u64] {
        match &self.beyond {
            Some(beyond) if !beyond.words.is_empty() => &beyond.words,
            _ => &self.words,
        }
    }

    #[inline(always)]
    pub(crate) fn words_mut(&mut self) -> &mut [u64] {
        match &mut self.beyond {
            Some(beyond) if !beyond.words.is_empty() => &mut beyond.words,
            _ => &mut self.words,
        }
    }

    /// Whether all holds follow from their words.
    #[inline(always)]
    pub(crate) fn all_follow(&self) -> bool {
        self.beyond.as_ref().is_none_or(|beyond| beyond.apart.is_empty())
    }

    /// Puts a hold at its limit's place, and keeps it if it does not follow. A limit may be taken from several times before a
    /// taking stands.
    #[cold]
    pub(crate) fn put(&mut self, hold: Hold, follows: bool) {
        self.words_mut()[hold.limit as usize] = hold.word;
        if follows && self.all_follow() {
            return;
        }
        let kept = &mut self.beyond.get_or_insert_default().apart;
        match (kept.binary_search_by_key(&hold.limit, |hold| hold.limit), follows) {
            (Ok(at), false) => kept[at] = hold,
            (Ok(at), true) => drop(kept.remove(at)),
            (Err(at), false) => kept.insert(at, hold),
            (Err(_), true) => {}
        }
    }

    fn apart(&self, limit: u16) -> Option<Hold> {
        let kept = &self.beyond.as_ref()?.apart;
        kept.binary_search_by_key(&limit, |hold| hold.limit).ok().map(|at| kept[at])
    }
}

/// What is agreed with a principal about a model in a lane: the same for all of its requests, and shared by them.
#[derive(Debug)]
pub struct Deal {
    /// Who asks.
    pub principal: Principal,
    /// The model that requests run on (after degrading).
    pub model: Arc<str>,
    /// The model's name in counters and learned figures: its own, or `*` for one that the policy does not name.
    pub group: Arc<str>,
    /// The lane.
    pub lane: Arc<str>,
    /// The model's own price; `None` if it has none.
    pub price: Option<Arc<Price>>,
    /// Nanoseconds that a lease lives without a heartbeat.
    pub ttl: u64,
    /// Nanoseconds that it may stay unresolved.
    pub unresolved_ttl: u64,
    /// The limits that requests are reserved on.
    pub lineup: Arc<Lineup>,
    /// Where the endings of its leases are counted: with the tenant and model, and with the lane.
    pub(crate) tallies: [Arc<Tally>; 2],
}

/// What was agreed when the request was admitted: everything that is needed to settle it later, from anywhere.
///
/// What has to be let go of stands first: a lease is forgotten long after it has ended, when its memory is cold.
#[derive(Debug, Clone)]
#[repr(C)]
pub struct Terms {
    /// What it has in common with other requests.
    pub deal: Arc<Deal>,
    /// What few requests have.
    pub rare: Option<Box<Rare>>,
    /// The request id, where there is one.
    pub request_id: Option<Arc<str>>,
    /// The estimated input, with what settled requests have taught.
    pub input: InputEstimate,
    /// The input as the method alone guessed it.
    pub input_guess: u64,
    /// The largest output over all choices that the reservation allows for.
    pub output_ceiling: u64,
    /// The output that was held on limits that hold the learned percentile.
    pub output_expected: u64,
    /// The worst case in money; what is charged while the usage is unknown.
    pub worst_cost: Pico,
    /// The money that was held on limits that hold the learned percentile.
    pub expected_cost: Usd,
    /// The largest output of one choice that the request stated as it came.
    pub max_output_tokens: Option<u64>,
    /// How many answers are generated.
    pub choices: u64,
    /// Whether the answer is streamed.
    pub stream: bool,
    /// Whether the input is known to have no audio, image or video.
    pub text_only: bool,
}

/// What is agreed with few requests.
#[derive(Debug, Clone, Default)]
pub struct Rare {
    /// The run of an agent that it is a step of.
    pub run_id: Option<Arc<str>>,
    /// The calls of tools that the step newly carries.
    pub tool_calls: u64,
    /// How it came, where it runs in a lesser form; what a repeat under its id is compared with.
    pub lesser: Option<Lesser>,
    /// The dearest price of the policy where the model's own is unknown and the policy reckons with that.
    pub guessed_price: Option<Arc<Price>>,
    /// The service tier asked for; it prices a usage that names none.
    pub service_tier: Option<Arc<str>>,
}

impl Rare {
    /// Itself, unless there is nothing in it.
    pub(crate) fn boxed(self) -> Option<Box<Rare>> {
        let Rare { run_id, tool_calls, lesser, guessed_price, service_tier } = &self;
        let nothing = run_id.is_none()
            && *tool_calls == 0
            && lesser.is_none()
            && guessed_price.is_none()
            && service_tier.is_none();
        (!nothing).then(|| Box::new(self))
    }
}

/// A request that runs in a lesser form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lesser {
    /// The place of the degrade step that was applied, in the policy that was in force.
    pub step: u16,
    /// Tools to take out of the request.
    pub disable_tools: Vec<Arc<str>>,
    /// Whether the pressure on a pool called for it.
    pub by_pressure: bool,
    /// The pool whose pressure called for it, or the limit that the step names.
    pub named: Option<Arc<str>>,
    /// The model that was asked for.
    pub model: Arc<str>,
    /// The worst case in money of the request as it came.
    pub worst_cost: Pico,
}

impl Deal {
    /// The same on other accounts.
    pub(crate) fn on(&self, lineup: Arc<Lineup>) -> Deal {
        let Deal { principal, model, group, lane, price, tallies, ttl, unresolved_ttl, lineup: _ } = self;
        Deal {
            principal: principal.clone(),
            model: model.clone(),
            group: group.clone(),
            lane: lane.clone(),
            price: price.clone(),
            tallies: tallies.clone(),
            ttl: *ttl,
            unresolved_ttl: *unresolved_ttl,
            lineup,
        }
    }
}

impl Terms {
    /// The model that was asked for, and the worst case in money as the request came.
    fn asked(&self) -> (&str, Pico) {
        match self.lesser() {
            Some(lesser) => (&lesser.model, lesser.worst_cost),
            None => (&self.deal.model, self.worst_cost),
        }
    }

    /// What is held on a limit that counts this meter and holds the worst case.
    #[inline]
    pub fn worst(&self, meter: Meter) -> u64 {
        self.held(meter, self.output_ceiling, || self.worst_cost.to_usd())
    }

    /// What is held on a limit that counts this meter and holds the learned length of the output.
    #[inline]
    pub fn likely(&self, meter: Meter) -> u64 {
        self.held(meter, self.output_expected, || self.expected_cost)
    }

    #[inline]
    fn held(&self, meter: Meter, output: u64, cost: impl FnOnce() -> Usd) -> u64 {
        match meter {
            Meter::Requests | Meter::InFlight | Meter::Steps | Meter::RunTime => 1,
            Meter::Input => self.input.reserve,
            Meter::Output => output,
            Meter::Total => self.input.reserve.saturating_add(output),
            Meter::Money => cost().units(),
            Meter::Streams => self.stream as u64,
            Meter::ToolCalls => self.tool_calls(),
        }
    }

    /// What is held of a limit (by its place in the lineup), of what was taken under these terms.
    ///
    /// # Panics
    /// Where the lineup has no such limit.
    pub fn hold(&self, holds: &Holds, limit: u16) -> Hold {
        self.hold_by(&self.asks(), holds, limit)
    }

    /// The same by what [`asks`](Terms::asks) gave, for who looks at several.
    fn hold_by(&self, asks: &Asks, holds: &Holds, limit: u16) -> Hold {
        if let Some(apart) = holds.apart(limit) {
            return apart;
        }
        let (spot, word) = (&self.deal.lineup.spots()[limit as usize], holds.words()[limit as usize]);
        Hold { limit, amount: asks.get(spot.asked), mark: spot.rule.mark(word), word }
    }

    /// What is asked of limits whose amount does not depend on what is in use.
    #[inline(always)]
    pub(crate) fn asks(&self) -> Asks {
        let mut asks = [0; 16];
        for meter in Meter::ALL {
            asks[meter as usize] = self.worst(meter);
        }
        for (at, meter) in Asks::LIKELY.into_iter().enumerate() {
            asks[Asks::FIRST_LIKELY + at] = self.likely(meter);
        }
        Asks(asks)
    }

    pub(crate) fn lesser(&self) -> Option<&Lesser> {
        self.rare.as_ref()?.lesser.as_ref()
    }

    pub(crate) fn guessed_price(&self) -> Option<&Arc<Price>> {
        self.rare.as_ref()?.guessed_price.as_ref()
    }

    /// The run of an agent that it is a step of.
    pub fn run_id(&self) -> Option<&Arc<str>> {
        self.rare.as_ref()?.run_id.as_ref()
    }

    /// The calls of tools that the step newly carries.
    pub fn tool_calls(&self) -> u64 {
        self.rare.as_ref().map_or(0, |rare| rare.tool_calls)
    }

    /// The service tier asked for; it prices a usage that names none.
    pub fn service_tier(&self) -> Option<&str> {
        self.rare.as_ref()?.service_tier.as_deref()
    }

    /// The place of the policy's degrade step that was applied, if any.
    pub fn degraded(&self) -> Option<u16> {
        self.lesser().map(|lesser| lesser.step)
    }

    /// The price that it will be settled at; `None` if it has none.
    pub fn price(&self) -> Option<&Arc<Price>> {
        self.guessed_price().or(self.deal.price.as_ref())
    }

    /// Whether the price is another model's, because its own is unknown and the policy reckons with the dearest.
    pub fn price_is_guess(&self) -> bool {
        self.guessed_price().is_some()
    }

    /// Whether another request under the same id asks no more than this one did, so that it can share its lease.
    pub(crate) fn cover(&self, other: &Terms) -> bool {
        let output = match (self.max_output_tokens, other.max_output_tokens) {
            (Some(first), Some(second)) => second <= first,
            (Some(_), None) => false,
            (None, _) => true,
        };
        // On the same model the cost follows from the rest; what is learned meanwhile makes no other request of it.
        let ((model, worst), (other_model, other_worst)) = (self.asked(), other.asked());
        let cost = other_model == model || other_worst <= worst;
        output
            && cost
            && other.input_guess <= self.input_guess
            && other.choices <= self.choices
            && (self.stream || !other.stream)
    }
}

/// An admitted request: its terms, its holds, and how it stands.
// What its forgetting has to look at stands first, as in `Terms`.
#[derive(Debug)]
#[repr(C)]
pub struct Claim {
    /// How far it has come: `OPEN`, then perhaps `WRITING`, then one of the others for good. Raised by whoever ends or extends
    /// it first.
    stage: AtomicU32,
    /// Engine time at which it expires. Raised by heartbeats, read by the sweeper.
    deadline: AtomicU64,
    /// Whether the request has left (`SENT`), will not leave (`KEPT_BACK`), or neither yet. Set once, by whoever sends or
    /// cancels first.
    departure: AtomicU32,
    /// Whether the admission is in the journal, whether the lease has an owner, and whether its ending is in the journal where
    /// that was its first step.
    pub(crate) noted: Noted,
    /// The first step out of the state in which it was opened, where `stage` says `STEPPED`. Set once.
    first: OnceBox<First>,
    /// What was agreed.
    pub terms: Terms,
    /// What was taken; its amounts by [`Claim::holds`].
    pub(crate) taken: Holds,
    /// The lease's id.
    pub id: LeaseId,
    /// When it was admitted.
    pub at: Now,
    /// How it ended, where `stage` says `SETTLED` or `CANCELLED`.
    brief: Words,
}

/// A lease stands as it was opened.
const OPEN: u32 = 0;
/// It does, and a thread has the right to end it in the lease's own words.
const WRITING: u32 = 1;
/// It was settled, in its own words.
const SETTLED: u32 = 2;
/// It was cancelled, in its own words.
const CANCELLED: u32 = 3;
/// It went on by a step in a box of its own.
const STEPPED: u32 = 4;

/// The terms of a request on its way to a lease, in the memory that the lease will have: what is agreed is written down
/// once and moved nowhere.
#[derive(Debug)]
pub struct Draft(Arc<Claim>);

impl Draft {
    /// A draft of these terms.
    #[inline(always)]
    pub fn new(terms: Terms) -> Draft {
        let (nowhere, never) = (LeaseId { slot: 0, generation: 0, tag: 0 }, Now::at(0));
        Draft(Arc::new(Claim::new(nowhere, terms, never, Holds::default())))
    }

    /// The lease that comes of it.
    pub fn open(mut self, id: LeaseId, at: Now, taken: Holds) -> Arc<Claim> {
        let claim = self.claim();
        (claim.id, claim.at, claim.taken) = (id, at, taken);
        claim.deadline = AtomicU64::new(at.mono.saturating_add(claim.terms.deal.ttl));
        self.0
    }

    fn claim(&mut self) -> &mut Claim {
        match Arc::get_mut(&mut self.0) {
            Some(claim) => claim,
            // It is handed out by `open` alone, which takes the draft.
            None => unreachable!("a draft is nobody else's"),
        }
    }
}

impl Clone for Draft {
    fn clone(&self) -> Draft {
        Draft::new(self.0.terms.clone())
    }
}

impl Deref for Draft {
    type Target = Terms;

    fn deref(&self) -> &Terms {
        &self.0.terms
    }
}

impl DerefMut for Draft {
    fn deref_mut(&mut self) -> &mut Terms {
        &mut self.claim().terms
    }
}

/// Whether something has been written into the journal: of all who see it, exactly one is told to write it.
///
/// A store's answer can be lost on its way. The work is then done and nobody has noted it; whoever meets it next, by
/// repeating the operation, is the first to see it.
///
/// Layout: bit 0 once it is written, bit 1 once a handle on it was given out, bit 2 once an ending is written that was the
/// first step. Set by whoever meets it.
#[derive(Debug, Default)]
pub(crate) struct Noted(AtomicU32);

impl Noted {
    /// `true` for the first who asks, `false` for everybody else.
    pub(crate) fn first(&self) -> bool {
        // ORDERING: relaxed; only that one of all is the first matters, what it writes came with the record itself.
        self.0.fetch_or(1, Ordering::Relaxed) & 1 == 0
    }

    /// Whether this is the first who asks for an ending that was the first step, and whether it is for what came before.
    pub(crate) fn first_and_before(&self) -> (bool, bool) {
        // ORDERING: relaxed, as in `first`.
        let before = self.0.fetch_or(5, Ordering::Relaxed);
        (before & 4 == 0, before & 1 == 0)
    }

    /// Whether the beginning and an ending that was the first step are both written.
    pub(crate) fn is_whole(&self) -> bool {
        // ORDERING: relaxed, as in `first`.
        self.0.load(Ordering::Relaxed) & 5 == 5
    }

    /// As [`first`](Noted::first), and whether this is the first to get a handle.
    pub(crate) fn first_and_owner(&self) -> (bool, bool) {
        // ORDERING: relaxed, as in `first`.
        let before = self.0.fetch_or(3, Ordering::Relaxed);
        (before & 1 == 0, before & 2 == 0)
    }
}

/// Neither sent nor cancelled.
const UNDECIDED: u32 = 0;
/// Bytes were about to leave.
const SENT: u32 = 1;
/// A cancellation came first.
const KEPT_BACK: u32 = 2;

impl Claim {
    #[inline(always)]
    pub(crate) fn new(id: LeaseId, terms: Terms, at: Now, taken: Holds) -> Claim {
        let deadline = AtomicU64::new(at.mono.saturating_add(terms.deal.ttl));
        let (departure, noted, first) = (AtomicU32::new(UNDECIDED), Noted::default(), OnceBox::empty());
        let (stage, brief) = (AtomicU32::new(OPEN), Words::default());
        Claim { id, terms, at, taken, deadline, departure, noted, first, stage, brief }
    }

    /// What was taken when it was admitted, limit by limit in the order of its lineup.
    pub fn holds(&self) -> impl ExactSizeIterator<Item = Hold> + Clone + '_ {
        let asks = self.terms.asks();
        (0..self.terms.deal.lineup.len()).map(move |at| self.terms.hold_by(&asks, &self.taken, at as u16))
    }

    /// The amount in use on the account of one of its holds after it was taken.
    pub fn used_after(&self, hold: &Hold) -> u64 {
        self.terms.deal.lineup.limit(hold.limit).used(hold.word, self.at)
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

    /// Reads what its forgetting will look at; nothing follows from it but that it is near.
    #[cfg(not(quota_loom))]
    pub(crate) fn fetch(&self) {
        std::hint::black_box((self.deadline(), self.terms.request_id.is_some(), self.taken.all_follow()));
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
        match self.departure.compare_exchange(UNDECIDED, how, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => true,
            Err(first) => first == how,
        }
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

    fn terms(model: &str, worst_cost: u128) -> Terms {
        let deal = Deal {
            principal: Principal::builder("t").build(),
            model: model.into(),
            group: model.into(),
            lane: "".into(),
            price: None,
            ttl: 1,
            unresolved_ttl: 1,
            lineup: Arc::new(Lineup::new([])),
            tallies: Default::default(),
        };
        Terms {
            deal: Arc::new(deal),
            rare: None,
            request_id: None,
            input: InputEstimate { expected: 9, reserve: 9, exact: true },
            input_guess: 9,
            output_ceiling: 9,
            output_expected: 9,
            worst_cost: Pico(worst_cost),
            expected_cost: Usd::ZERO,
            max_output_tokens: None,
            choices: 1,
            stream: false,
            text_only: true,
        }
    }

    fn lesser(model: &str, worst_cost: u128) -> Lesser {
        let (model, worst_cost) = (model.into(), Pico(worst_cost));
        Lesser { step: 0, disable_tools: Vec::new(), by_pressure: false, named: None, model, worst_cost }
    }

    #[test]
    fn a_request_for_another_model_is_covered_where_it_costs_no_more() {
        let first = terms("a", 50);
        for (model, cost, covered) in [
            ("a", 50, true),
            // On the same model what has been learned meanwhile may cost more.
            ("a", 51, true),
            ("b", 49, true),
            ("b", 50, true),
            ("b", 51, false),
        ] {
            assert_eq!(first.cover(&terms(model, cost)), covered, "{model} for {cost}");
        }
        // One that runs in a lesser form is compared as it came.
        let lesser = lesser("dear", 90);
        let first = Terms { rare: Rare { lesser: Some(lesser), ..Rare::default() }.boxed(), ..first };
        assert!(first.cover(&terms("dear", 99)) && first.cover(&terms("a", 90)) && !first.cover(&terms("a", 91)));
    }

    #[test]
    fn rare_terms_take_memory_where_there_are_any() {
        assert!(Rare::default().boxed().is_none());
        let some = [
            Rare { run_id: Some("r".into()), ..Rare::default() },
            Rare { tool_calls: 1, ..Rare::default() },
            Rare { lesser: Some(lesser("m", 0)), ..Rare::default() },
            Rare { service_tier: Some("flex".into()), ..Rare::default() },
        ];
        assert!(some.into_iter().all(|rare| rare.boxed().is_some()));
    }
}
