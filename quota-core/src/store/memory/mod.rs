//! The memory store: accounts in rows of words, leases in a slab, deadlines on a wheel; one process.
//!
//! Floor 2. Invariant: admitting and settling take no lock: rows change by one swap, leases step by one swap.
//!
//! A reservation checks all rows, then takes row by row in the lineup's order, and undoes what it took if a later row
//! refuses. Ending a lease puts its next record in place first: whoever does that applies the corrections, everybody
//! else finds the ending and repeats its receipt.

#[cfg(all(test, quota_loom))]
mod models;
mod numbered;
pub(crate) mod row;
pub(crate) mod slab;
mod table;
#[cfg(all(test, not(quota_loom)))]
mod table_tests;
mod taking;
#[cfg(all(test, not(quota_loom)))]
mod tests;
mod wheel;

use std::sync::Arc;

use smallvec::SmallVec;

#[cfg(not(feature = "testkit"))]
use self::row::Rows;
/// The rows by themselves, for their benchmark.
#[cfg(feature = "testkit")]
#[doc(hidden)]
pub use self::row::{Header, Rows, Spare, Words};
use self::slab::Slab;
use self::table::Table;
use self::taking::{Asking, Miss, is_owned};
use self::wheel::Wheel;
use super::{AccountsFull, Choice, Ended, Extended, Lacks, Name, Reservation, Reserved, Store, Swept};
use crate::account::{Account, Bound, Column, Lineup};
use crate::lease::{Cause, Claim, Draft, End, EndError, Ending, Holds, LeaseId, Record, State, Terms};
use crate::sync::{AtomicU64, Ordering};
use crate::time::{Now, Period};
use crate::units::{Amounts, Pico};
use crate::usage::Usage;

/// How many times a taking that fails after its check had passed is tried again.
const RETRIES: usize = 8;

/// Leases looked at when a reservation finds no room.
const SWEEP_ON_SHORTAGE: usize = 256;

/// Bounds of a memory store, fixed when it is made.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Rows of seven accounts each: a scope (a tenant, a tenant × model, a user, …) takes one or more. 1 to 2^24 − 256.
    pub rows: u32,
    /// Leases that may be open at once: held, or waiting to be resolved. 1 to 2^28. At least as many ended ones are
    /// remembered with their request ids, the last half as many to end among them. A tenant may have an eighth of them (at least 16) unresolved; one more is taken
    /// as used in full when it is abandoned.
    pub open_leases: u32,
}

impl Default for Bounds {
    /// 65,536 rows (some 6 MB) and 16,384 open leases (some 1 MB, and about 0.45 kB for each of up to 32,768 remembered).
    fn default() -> Bounds {
        Bounds { rows: 1 << 16, open_leases: 1 << 14 }
    }
}

/// The memory store.
pub struct Memory {
    rows: Rows,
    table: Table,
    slab: Slab,
    wheel: Wheel,
    /// How many leases of each tenant are unresolved.
    unresolved: papaya::HashMap<Arc<str>, AtomicU64, ahash::RandomState>,
    /// The most of them a tenant may have.
    most_unresolved: u64,
    /// Request ids of the leases that the slab remembers.
    requests: papaya::HashMap<Arc<str>, LeaseId, ahash::RandomState>,
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Memory {{ rows: {}, open leases: {} }}", self.rows.len(), self.slab.open())
    }
}

impl Default for Memory {
    fn default() -> Memory {
        Memory::new(Bounds::default())
    }
}

impl Memory {
    /// A store with these bounds; all memory but the leases' own is taken now.
    pub fn new(bounds: Bounds) -> Memory {
        let slab = Slab::new(bounds.open_leases);
        let rows = Rows::new(bounds.rows.max(1));
        Memory {
            table: Table::new(&rows),
            rows,
            wheel: Wheel::new(slab.slots()),
            slab,
            unresolved: papaya::HashMap::default(),
            most_unresolved: (bounds.open_leases as u64 / 8).max(16),
            requests: papaya::HashMap::default(),
        }
    }

    fn reserve_now(&self, reservation: Reservation, now: Now) -> (Reserved, Swept) {
        let mut choices = reservation.choices;
        let Some(first) = choices.first() else { return (Reserved::Short(Vec::new()), Vec::new()) };
        if let Some(answer) = self.known(&first.terms) {
            return (answer, Vec::new());
        }
        let mut swept = Swept::new();
        let refused = match self.reserve_once(&mut choices, &mut swept, now) {
            refused @ (Reserved::Short(_) | Reserved::LeasesFull) => refused,
            answer => return (answer, swept),
        };
        swept.extend(self.sweep_now(now, SWEEP_ON_SHORTAGE));
        if swept.is_empty() {
            return (refused, swept);
        }
        (self.reserve_once(&mut choices, &mut swept, now), swept)
    }

    fn reserve_once(&self, choices: &mut SmallVec<[Choice; 1]>, swept: &mut Swept, now: Now) -> Reserved {
        let mut lacks: Vec<Lacks> = Vec::new();
        let mut place = None;
        for at in 0..choices.len() {
            if !choices[at].is_called_for(&lacks) {
                lacks.push(Lacks::new());
                continue;
            }
            let mut holds = Holds::blank(choices[at].terms.deal.lineup.len());
            match self.try_choice(&mut choices[at], &mut place, &mut holds, now) {
                Ok(()) => {
                    let Some(place) = place else { unreachable!("nothing is taken without a place") };
                    let (claim, forgotten) = self.insert(place, choices.swap_remove(at).terms, holds, now);
                    swept.extend(forgotten);
                    return self.open_lease(claim, at, lacks, swept, now);
                }
                Err(Miss::Short(short)) => {
                    let stop = !choices[at].yields_to_next(&short);
                    lacks.push(short);
                    if stop {
                        break;
                    }
                }
                Err(Miss::Crowded) => return self.known(&choices[0].terms).unwrap_or(Reserved::LeasesFull),
                Err(Miss::Stale | Miss::Raced(_)) => return Reserved::AccountsFull,
            }
        }
        // A duplicate of this request may have been admitted between the first look and the shortage, here and above.
        self.known(&choices[0].terms).unwrap_or(Reserved::Short(lacks))
    }

    /// The answer for a request id that is already known.
    fn known(&self, terms: &Terms) -> Option<Reserved> {
        let request_id = terms.request_id.as_ref()?;
        let id = self.requests.pin().get(request_id).copied()?;
        Some(again(self.slab.get(id)?.now(), terms))
    }

    /// Puts a lease into the slab; gives the ended one that was forgotten for it, unless all of it is in the journal.
    fn insert(&self, place: slab::Place<'_>, draft: Draft, holds: Holds, now: Now) -> (Arc<Claim>, Option<Record>) {
        let (claim, forgotten) = self.slab.insert(place, |id| draft.open(id, now, holds));
        if let Some(forgotten) = &forgotten
            && let Some(request_id) = &forgotten.terms.request_id
        {
            let _ = self.requests.pin().remove_if(request_id, |_, id| *id == forgotten.id);
        }
        // Most are told whole by a word of their own: what else they are stays where it is, in cold memory.
        (claim, forgotten.filter(|claim| !claim.noted.is_whole()).map(Claim::now))
    }

    fn open_lease(&self, claim: Arc<Claim>, choice: usize, lacks: Vec<Lacks>, swept: &mut Swept, now: Now) -> Reserved {
        if let Some(first) = self.name(&claim) {
            // Another thread has admitted the same request first: this lease never was.
            let record = claim.clone().now();
            if let Ok(Ending::Next(never_was)) = record.end(&End::Cancel, now)
                && let Ok(record) = self.slab.step(record, never_was)
            {
                // And is not for the journal.
                let _ = record.first_to_note_ending();
                self.undo(&claim.terms, &claim.taken, now);
            } else {
                // This thread stood still until its time was over, and it was swept: it is resolved as one that did not run.
                let not_run = |_: &Record| End::Settle { usage: Usage::not_run(), cost: Pico(0) };
                swept.extend(self.end_now(Name::Claim(claim.clone()), not_run, now).map(|ended| ended.record));
            }
            return again(first, &claim.terms);
        }
        self.wheel.file(claim.id.slot, claim.deadline(), now.mono);
        Reserved::Taken(claim.now(), choice, lacks)
    }

    /// Makes a lease known by its request's id; gives the lease that has that name already, if one does.
    fn name(&self, claim: &Claim) -> Option<Record> {
        let request_id = claim.terms.request_id.as_ref()?;
        let requests = self.requests.pin();
        loop {
            let first = match requests.try_insert(request_id.clone(), claim.id) {
                Ok(_) => return None,
                Err(taken) => *taken.current,
            };
            if let Some(other) = self.slab.get(first) {
                return Some(other.now());
            }
            // That lease is forgotten, and whoever took its slot is about to take its name out.
            let _ = requests.remove_if(request_id, |_, id| *id == first);
        }
    }

    fn extend_now(&self, lease: LeaseId, to: Amounts, periods: &[Period], now: Now) -> Extended {
        let Some(mut record) = self.slab.get(lease).map(Claim::now) else { return Extended::Gone };
        loop {
            if !record.is_held() {
                return Extended::Gone;
            }
            let lineup = record.claim.terms.deal.lineup.clone();
            let more = lineup.spots().iter().enumerate().map(|(at, bound)| {
                let wanted = if bound.meter.is_held() { 0 } else { to.get(bound.meter) };
                let more = wanted.saturating_sub(record.held_on(at as u16));
                (more, periods.get(at).copied().unwrap_or_default())
            });
            let more: SmallVec<[(u64, Period); 8]> = more.collect();
            if more.iter().all(|(more, _)| *more == 0) {
                return Extended::Raised(record);
            }
            // The row is pinned by the lease itself, so it can't have been dropped and the lineup stays as it is.
            let (mut holds, terms) = (Holds::blank(lineup.len()), &record.claim.terms);
            match self.try_rows(Asking::More(terms, &more), || true, &mut holds, now) {
                Ok(()) => {}
                Err(Miss::Short(lacks)) => return Extended::Short(lacks),
                Err(_) => return Extended::Unavailable,
            }
            let claim = record.claim.clone();
            let next = record.raised((0..lineup.len()).map(|at| claim.terms.hold(&holds, at as u16)));
            record = match self.slab.step(record, next) {
                Ok(next) => {
                    // The lease holds one pin a row already.
                    self.unpin_rows(&lineup);
                    return Extended::Raised(next);
                }
                // Somebody else has moved the lease: what it lacks now is to be looked at again.
                Err(now) => now,
            };
            self.undo(&claim.terms, &holds, now);
        }
    }

    /// The lease of a name, or what it is called for who asked.
    fn lookup(&self, name: Name) -> Result<Record, String> {
        let claim = match name {
            Name::Claim(claim) => claim,
            Name::Lease(id) => self.slab.get(id).ok_or_else(|| id.to_string())?,
            Name::Request(request_id) => {
                let id = self.requests.pin().get(&request_id).copied();
                let claim = id.and_then(|id| self.slab.get(id));
                claim.ok_or_else(|| request_id.chars().take(64).collect::<String>())?
            }
        };
        Ok(claim.now())
    }

    fn end_now(&self, name: Name, end: impl FnOnce(&Record) -> End, now: Now) -> Result<Ended, EndError> {
        let mut before = self.lookup(name).map_err(EndError::Unknown)?;
        let end = end(&before);
        loop {
            // So many leases of unknown usage would keep others out: one more is taken as used in full at once. One that is
            // unresolved already stays as it is.
            let crowded = matches!(end, End::Abandon(..))
                && before.is_held()
                && self.unresolved_of(&before) >= self.most_unresolved;
            let next = match before.end(if crowded { &End::Assume } else { &end }, now)? {
                Ending::Next(next) => next,
                Ending::Repeat => return Ok(Ended { record: before, repeat: true }),
            };
            let was_unresolved = before.is_unresolved();
            before = match self.slab.step(before, next) {
                Ok(record) => {
                    self.apply(&record, now);
                    self.count_unresolved(was_unresolved, &record);
                    if record.is_unresolved() {
                        let again = now.mono.saturating_add(record.claim.terms.deal.unresolved_ttl);
                        self.wheel.file(record.claim.id.slot, again, now.mono);
                    }
                    return Ok(Ended { record, repeat: false });
                }
                // Somebody else moved it: decide again on what it is now.
                Err(now) => now,
            };
        }
    }

    fn unresolved_of(&self, record: &Record) -> u64 {
        if cfg!(quota_loom) {
            return 0; // The map is not loom's, and no model reaches the bound.
        }
        let counts = self.unresolved.pin();
        // ORDERING: relaxed; a bound that is passed by as many as end at this moment keeps its purpose.
        let count = counts.get(record.claim.terms.deal.principal.tenant());
        count.map_or(0, |count| (count.load(Ordering::Relaxed) as i64).max(0) as u64)
    }

    fn count_unresolved(&self, was: bool, next: &Record) {
        let is = next.is_unresolved();
        if was == is || cfg!(quota_loom) {
            return;
        }
        let counts = self.unresolved.pin();
        let tenant: Arc<str> = next.claim.terms.deal.principal.tenant().into();
        let count = counts.get_or_insert_with(tenant, || AtomicU64::new(0));
        // ORDERING: relaxed; each lease raises it once and lowers it once. A late settle may do so before the thread that
        // made the lease unresolved: the count is below zero until that goes on.
        if is {
            count.fetch_add(1, Ordering::Relaxed);
        } else {
            // ORDERING: relaxed, as above.
            count.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn sweep_now(&self, now: Now, at_most: usize) -> Swept {
        let mut swept = Vec::new();
        self.wheel.sweep(now.mono, at_most, |slot| {
            let Some(record) = self.slab.at(slot as usize).map(Claim::now) else { return wheel::Look::Idle };
            let (due, end) = match &*record.state() {
                State::Held => (record.claim.deadline(), End::Abandon(Cause::Expired, None)),
                State::Unresolved(unresolved) => {
                    (unresolved.since.mono.saturating_add(record.claim.terms.deal.unresolved_ttl), End::Assume)
                }
                State::Settled(_) | State::Cancelled(_) => return wheel::Look::Idle,
            };
            if due > now.mono {
                return wheel::Look::Again(due);
            }
            match self.end_now(Name::Claim(record.claim), |_| end, now) {
                Ok(ended) if !ended.repeat => swept.push(ended.record),
                // Its owner has just ended it.
                Ok(_) | Err(_) => {}
            }
            wheel::Look::Ended
        });
        swept
    }

    fn read_now(&self, lineup: &Lineup) -> SmallVec<[u64; 8]> {
        let mut out = SmallVec::with_capacity(lineup.len());
        for (row, span) in lineup.rows() {
            let words = self.rows.read(row.row);
            let here = is_owned(row, &words);
            for (at, spot) in (span.from..).zip(&lineup.spots()[span.places()]) {
                out.push(if here { words[spot.column as usize] } else { self.read_moved(lineup.limit(at)) });
            }
        }
        out
    }

    /// The word of an account whose row was dropped at rest: that of the row which its scope has taken since, if any.
    fn read_moved(&self, bound: Bound<'_>) -> u64 {
        let Some(account) = self.table.find(bound.scope, &bound.column) else { return 0 };
        let words = self.rows.read(account.row);
        let still = account.identity.is_some_and(|identity| row::owns(identity, &words));
        if still { words[account.column as usize] } else { 0 }
    }
}

/// The answer to a request whose id has a lease.
fn again(record: Record, terms: &Terms) -> Reserved {
    let first = &record.claim.terms;
    if first.deal.principal != terms.deal.principal {
        Reserved::Conflict
    } else if !record.is_held() {
        Reserved::Ended(record)
    } else if first.cover(terms) {
        Reserved::Open(record)
    } else {
        // What it holds would not pay for a request that asks for more.
        Reserved::Conflict
    }
}

impl Store for Memory {
    type Answer<'a, T: Send + 'a> = T;

    fn bind(
        &self,
        scope: &Arc<str>,
        columns: &[Column],
        passing: bool,
        now: Now,
    ) -> Result<Vec<Account>, AccountsFull> {
        self.table.bind(&self.rows, scope, columns, passing, now)
    }

    fn chain<'a, T: Send + 'a, U: Send + 'a>(answer: T, next: impl FnOnce(T) -> U + Send + 'a) -> U {
        next(answer)
    }

    fn future<'a, T: Send + 'a>(answer: T) -> impl Future<Output = T> + Send + 'a {
        std::future::ready(answer)
    }

    fn ready<'a, T: Send + 'a>(value: T) -> T {
        value
    }

    fn reserve<'a, T: Send + 'a>(
        &'a self,
        reservation: Reservation,
        now: Now,
        then: impl FnOnce(Reserved, Swept) -> T + Send + 'a,
    ) -> T {
        let (reserved, swept) = self.reserve_now(reservation, now);
        then(reserved, swept)
    }

    fn extend<'a, T: Send + 'a>(
        &'a self,
        lease: LeaseId,
        to: Amounts,
        periods: SmallVec<[Period; 8]>,
        now: Now,
        then: impl FnOnce(Extended) -> T + Send + 'a,
    ) -> T {
        then(self.extend_now(lease, to, &periods, now))
    }

    fn end<'a, T: Send + 'a>(
        &'a self,
        name: Name,
        end: impl FnOnce(&Record) -> End + Send + 'a,
        now: Now,
        then: impl FnOnce(Result<Ended, EndError>) -> T + Send + 'a,
    ) -> T {
        then(self.end_now(name, end, now))
    }

    fn abandon(
        &self,
        lease: LeaseId,
        cause: Cause,
        seen: Option<Box<Usage>>,
        now: Now,
        then: impl FnOnce(Result<Ended, EndError>) + Send + 'static,
    ) {
        then(self.end_now(Name::Lease(lease), |_| End::Abandon(cause, seen), now));
    }

    fn touch<'a, T: Send + 'a>(
        &'a self,
        lease: LeaseId,
        sent: bool,
        until: u64,
        then: impl FnOnce(bool) -> T + Send + 'a,
    ) -> T {
        let claim = self.slab.get(lease).filter(|claim| claim.clone().now().is_held());
        let open = claim.is_some_and(|claim| {
            claim.renew(until);
            !sent || claim.mark_sent()
        });
        then(open)
    }

    fn read<'a, T: Send + 'a>(
        &'a self,
        lineup: Arc<Lineup>,
        then: impl FnOnce(Option<SmallVec<[u64; 8]>>) -> T + Send + 'a,
    ) -> T {
        then(Some(self.read_now(&lineup)))
    }

    fn find<'a, T: Send + 'a>(&'a self, name: Name, then: impl FnOnce(Option<Record>) -> T + Send + 'a) -> T {
        then(self.lookup(name).ok())
    }

    fn open<'a, T: Send + 'a>(&'a self, at_most: usize, then: impl FnOnce(Vec<Record>) -> T + Send + 'a) -> T {
        let open = (0..self.slab.slots()).filter_map(|slot| self.slab.at(slot)).filter(|claim| claim.is_open());
        then(open.take(at_most).map(Claim::now).collect())
    }

    fn sweep<'a, T: Send + 'a>(
        &'a self,
        now: Now,
        at_most: usize,
        then: impl FnOnce(Vec<Record>) -> T + Send + 'a,
    ) -> T {
        then(self.sweep_now(now, at_most))
    }
}
