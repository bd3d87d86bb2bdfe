//! The store: where accounts and leases live; one of the five seams.
//!
//! Floor 2. Invariant: a reservation takes from every limit or from none, and a store is handed plain data and the
//! time; it knows no policy.

pub mod memory;

use std::sync::Arc;

use smallvec::SmallVec;

pub use self::memory::Memory;
use crate::account::{Account, Clause, Column, Lineup, Spot};
use crate::lease::{Cause, Claim, Draft, End, EndError, LeaseId, Record};
use crate::meter::{At, Rule, Wait};
use crate::policy::plan::Hold;
use crate::time::{Now, Period};
use crate::units::{Amounts, Meter};
use crate::usage::Usage;

/// What one limit is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    /// The amount to hold.
    pub amount: u64,
    /// The amount to hold instead where the account is near its hard amount; equal to `amount` for most limits.
    pub near: u64,
}

/// One way to admit a request: as asked, or degraded.
#[derive(Debug, Clone)]
pub struct Choice {
    /// What is agreed if it is this one.
    pub terms: Draft,
    /// When it counts; `None` where it is the only one: it always counts, and every shortage ends the search.
    pub when: Option<Box<When>>,
}

/// When a choice counts, beside the others of its request.
#[derive(Debug, Clone, Default)]
pub struct When {
    /// An earlier choice, and the limits of its lineup that call for this one: it counts only if one of them was among
    /// what that choice lacked. `None`: it always counts.
    pub after: Option<(u16, SmallVec<[u16; 2]>)>,
    /// Limits (places in the lineup) whose soft amount must not be passed, or this choice does not count.
    pub within_soft: SmallVec<[u16; 2]>,
    /// Limits whose shortage lets the next choice be tried; a shortage of any other limit ends the search. `None`:
    /// every shortage does.
    pub yields: Option<SmallVec<[u16; 2]>>,
}

impl Choice {
    /// What a limit is asked for.
    pub fn ask(&self, bound: &Clause) -> Ask {
        self.ask_of(bound.meter, bound.hold)
    }

    #[inline(always)]
    pub(crate) fn ask_of(&self, meter: Meter, hold: Hold) -> Ask {
        let (worst, likely) = (self.terms.worst(meter), self.terms.likely(meter));
        match hold {
            Hold::WorstCase => Ask { amount: worst, near: worst },
            Hold::P95 => Ask { amount: likely, near: likely },
            Hold::Adaptive => Ask { amount: likely, near: worst },
        }
    }

    /// Whether some limit's soft amount must not be passed.
    #[inline]
    pub(crate) fn minds_soft(&self) -> bool {
        self.when.as_ref().is_some_and(|when| !when.within_soft.is_empty())
    }

    /// Whether a limit's soft amount must not be passed.
    #[inline]
    pub(crate) fn is_within_soft(&self, limit: u16) -> bool {
        self.when.as_ref().is_some_and(|when| when.within_soft.contains(&limit))
    }

    /// What one limit lacks for this choice, if anything. Pure; every store and the preview ask this same question.
    pub fn lack(&self, at: u16, bound: &Clause, word: u64, now: Now) -> Option<Lack> {
        let &Clause { meter, hold, shadow, soft, .. } = bound;
        self.lack_of(at, (meter, hold, shadow, soft), &bound.rule, word, &bound.at(now))
    }

    #[inline]
    fn lack_of(
        &self,
        at: u16,
        (meter, hold, shadow, soft): (Meter, Hold, bool, Option<u64>),
        rule: &Rule,
        word: u64,
        moment: &At,
    ) -> Option<Lack> {
        let amount = self.ask_of(meter, hold).amount_on(rule, word, moment);
        let lack = |wait, soft| {
            let used = rule.read(word, moment).used;
            Lack { limit: at, used, asked: amount, wait, soft }
        };
        if !shadow && let Err(wait) = rule.take(word, amount, moment) {
            return Some(lack(wait, false));
        }
        let soft = soft.filter(|_| self.is_within_soft(at))?;
        let passed = rule.read(word, moment).used.saturating_add(amount) > soft;
        passed.then(|| lack(Wait::Unknown, true))
    }

    /// What its limits lack by these words, in their order.
    fn lacks(&self, word: impl Fn(u16) -> u64, now: Now) -> impl Iterator<Item = Lack> {
        let spots = self.terms.deal.lineup.spots().iter();
        (0..).zip(spots).filter_map(move |(at, spot)| {
            let &Spot { meter, hold, shadow, soft, .. } = spot;
            self.lack_of(at, (meter, hold, shadow, soft), &spot.rule, word(at), &spot.at(now))
        })
    }

    /// Whether it fits by itself, as the only one: what [`select`] says of it alone.
    pub(crate) fn fits(&self, word: impl Fn(u16) -> u64, now: Now) -> bool {
        self.is_called_for(&[]) && self.lacks(word, now).next().is_none()
    }

    /// Whether what the choices before it lacked calls for this one. One that is not called for lacks nothing and is passed
    /// over.
    pub fn is_called_for(&self, before: &[Lacks]) -> bool {
        let Some((choice, limits)) = self.when.as_ref().and_then(|when| when.after.as_ref()) else { return true };
        let lacks = before.get(*choice as usize);
        lacks.is_some_and(|lacks| lacks.iter().any(|lack| limits.contains(&lack.limit)))
    }

    /// Whether the next choice may be tried after these shortages.
    pub fn yields_to_next(&self, lacks: &[Lack]) -> bool {
        let Some(when) = &self.when else { return false };
        let Some(yields) = &when.yields else { return true };
        lacks.iter().all(|lack| lack.soft || yields.contains(&lack.limit))
    }
}

/// A request for a lease: the first of its choices that fits is taken, whole.
#[derive(Debug, Clone)]
pub struct Reservation {
    /// At least one, in the order in which they are tried; most requests have one.
    pub choices: SmallVec<[Choice; 1]>,
}

/// One limit that had no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lack {
    /// The limit's place in the lineup.
    pub limit: u16,
    /// The amount in use.
    pub used: u64,
    /// The amount that was asked.
    pub asked: u64,
    /// When it will have room.
    pub wait: Wait,
    /// Whether only its soft amount was passed.
    pub soft: bool,
}

/// Limits that had no room, per choice; none for a choice that was passed over.
pub type Lacks = SmallVec<[Lack; 1]>;

/// The answer to a reservation.
#[derive(Debug)]
pub enum Reserved {
    /// Taken; the place of the choice that fitted, and what the earlier choices lacked.
    Taken(Record, usize, Vec<Lacks>),
    /// The request id has an open lease of the same principal; nothing was taken.
    Open(Record),
    /// The request id had a lease of the same principal, which has ended.
    Ended(Record),
    /// The request id belongs to another principal, or to an open lease that holds less than this request asks.
    Conflict,
    /// Nothing fitted: what each choice lacked.
    Short(Vec<Lacks>),
    /// As many leases are open as the store was built for.
    LeasesFull,
    /// As many accounts are in use as the store was built for.
    AccountsFull,
    /// The store does not answer.
    Unavailable,
}

/// Records for the journal that a store met on the way: it ended leases whose deadline had passed, or forgot one whose
/// ending nobody has noted, because the answer that told of it was lost.
pub type Swept = Vec<Record>;

/// The answer to an ending.
#[derive(Debug, Clone)]
pub struct Ended {
    /// The lease as it stands now.
    pub record: Record,
    /// Whether it had ended the same way before.
    pub repeat: bool,
}

/// The answer to an extension.
#[derive(Debug)]
pub enum Extended {
    /// The hold was raised.
    Raised(Record),
    /// A limit has no room for more; the hold stays as it was.
    Short(Lacks),
    /// The lease has ended or was never there.
    Gone,
    /// The store does not answer.
    Unavailable,
}

/// As many accounts are in use as the store was built for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("as many accounts are in use as the store was built for")]
pub struct AccountsFull;

/// A lease to look at or to end: by its own id, or by the request's.
#[derive(Debug, Clone)]
pub enum Name {
    /// The lease's id.
    Lease(LeaseId),
    /// The lease itself, by who has it at hand: a store whose leases live here needs not look for it.
    Claim(Arc<Claim>),
    /// The request's id.
    Request(Arc<str>),
}

/// Where accounts and leases live.
///
/// Every operation is one trip: it is handed plain data and `now`, and calls `then` (pure and short) with the answer.
/// A store at hand does so before it returns, and its [`Answer`](Store::Answer) is the result itself; a store that has
/// to be awaited returns a future of it. What is decided before and after the trip is therefore written once.
///
/// Every operation may be repeated under the same lease or request id when nobody knows whether it arrived. The second
/// time changes nothing, but for [`extend`](Store::extend): a raise that arrived twice holds twice, until the lease ends.
pub trait Store: Send + Sync + Sized + 'static {
    /// A result at hand (`T`), or a future of it.
    type Answer<'a, T: Send + 'a>;

    /// The accounts of these columns in a scope, made if they are new. No trip: a remote store names them only.
    ///
    /// Scopes that come and go with the callers' names (users) say `passing`: they get at most three quarters of the
    /// rows, so that they can't crowd out tenants and keys.
    ///
    /// # Errors
    /// [`AccountsFull`] where the bound is reached and no account is at rest.
    fn bind(&self, scope: &Arc<str>, columns: &[Column], passing: bool, now: Now)
    -> Result<Vec<Account>, AccountsFull>;

    /// Goes on with an answer: at once, or when it has come.
    fn chain<'a, T: Send + 'a, U: Send + 'a>(
        answer: Self::Answer<'a, T>,
        next: impl FnOnce(T) -> Self::Answer<'a, U> + Send + 'a,
    ) -> Self::Answer<'a, U>;

    /// An answer that needs no trip.
    fn ready<'a, T: Send + 'a>(value: T) -> Self::Answer<'a, T>;

    /// An answer as a future, for the one place that awaits it, the queue's ticket.
    fn future<'a, T: Send + 'a>(answer: Self::Answer<'a, T>) -> impl Future<Output = T> + Send + 'a;

    /// Takes the first choice that fits, whole, and opens a lease on it.
    ///
    /// It never admits too much. It can refuse a request that would have fitted while another's partial taking is
    /// being undone; a taking that fails after the check had passed is therefore tried again a few times.
    /// Where nothing fits, leases whose deadline has passed are ended first; they are handed over for the journal.
    fn reserve<'a, T: Send + 'a>(
        &'a self,
        reservation: Reservation,
        now: Now,
        then: impl FnOnce(Reserved, Swept) -> T + Send + 'a,
    ) -> Self::Answer<'a, T>;

    /// Raises the holds of an open lease to at least `to` on every limit that counts one of its meters, all or none. A
    /// limit that holds as much already is left alone, so asking again changes nothing.
    fn extend<'a, T: Send + 'a>(
        &'a self,
        lease: LeaseId,
        to: Amounts,
        periods: SmallVec<[Period; 8]>,
        now: Now,
        then: impl FnOnce(Extended) -> T + Send + 'a,
    ) -> Self::Answer<'a, T>;

    /// Ends a lease, or tells what its first ending was. `price` turns the record into the ending, since only the
    /// record knows what the usage costs; it is called once and must be pure.
    fn end<'a, T: Send + 'a>(
        &'a self,
        name: Name,
        end: impl FnOnce(&Record) -> End + Send + 'a,
        now: Now,
        then: impl FnOnce(Result<Ended, EndError>) -> T + Send + 'a,
    ) -> Self::Answer<'a, T>;

    /// As [`end`](Store::end) with an unknown usage, by an owner that will not wait for the answer.
    fn abandon(
        &self,
        lease: LeaseId,
        cause: Cause,
        seen: Option<Box<Usage>>,
        now: Now,
        then: impl FnOnce(Result<Ended, EndError>) + Send + 'static,
    );

    /// Marks that bytes are about to leave (`sent`), and moves the deadline to `until` if that is later.
    fn touch<'a, T: Send + 'a>(
        &'a self,
        lease: LeaseId,
        sent: bool,
        until: u64,
        then: impl FnOnce(bool) -> T + Send + 'a,
    ) -> Self::Answer<'a, T>;

    /// The words of a lineup's accounts, in its order; 0 for an account that was at rest and has been dropped. `None` if
    /// the store does not answer.
    fn read<'a, T: Send + 'a>(
        &'a self,
        lineup: Arc<Lineup>,
        then: impl FnOnce(Option<SmallVec<[u64; 8]>>) -> T + Send + 'a,
    ) -> Self::Answer<'a, T>;

    /// The lease as it stands.
    fn find<'a, T: Send + 'a>(
        &'a self,
        name: Name,
        then: impl FnOnce(Option<Record>) -> T + Send + 'a,
    ) -> Self::Answer<'a, T>;

    /// Open leases (held and unresolved), at most `at_most`, in no particular order.
    fn open<'a, T: Send + 'a>(
        &'a self,
        at_most: usize,
        then: impl FnOnce(Vec<Record>) -> T + Send + 'a,
    ) -> Self::Answer<'a, T>;

    /// Ends leases whose deadline has passed and closes unresolved ones that have waited long enough; no more than
    /// `at_most`, and none while another thread does. Gives the records that it made, for the journal.
    fn sweep<'a, T: Send + 'a>(
        &'a self,
        now: Now,
        at_most: usize,
        then: impl FnOnce(Vec<Record>) -> T + Send + 'a,
    ) -> Self::Answer<'a, T>;
}

impl Ask {
    /// The amount to hold on an account: `near` where `amount` is less and the account has not room for `near` and a
    /// quarter of its hard amount more.
    pub fn amount_on(&self, rule: &Rule, word: u64, at: &At) -> u64 {
        if self.near == self.amount {
            return self.amount;
        }
        let room = self.near.saturating_add(rule.hard() / 4);
        if rule.read(word, at).remaining < room { self.near } else { self.amount }
    }
}

/// The first choice that fits by these words, with what the earlier ones lacked; or what every choice lacked. One that
/// is not called for is passed over, as if it lacked nothing.
///
/// # Errors
/// No choice fits.
pub fn select(
    choices: &[Choice],
    word: impl Fn(usize, u16) -> u64,
    now: Now,
) -> Result<(usize, Vec<Lacks>), Vec<Lacks>> {
    let mut all: Vec<Lacks> = Vec::new();
    for (at, choice) in choices.iter().enumerate() {
        if !choice.is_called_for(&all) {
            all.push(Lacks::new());
            continue;
        }
        let lacks: Lacks = choice.lacks(|limit| word(at, limit), now).collect();
        if lacks.is_empty() {
            return Ok((at, all));
        }
        let stop = !choice.yields_to_next(&lacks);
        all.push(lacks);
        if stop {
            break;
        }
    }
    Err(all)
}
