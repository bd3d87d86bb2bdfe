//! Taking: how the rows of a lineup change when a lease is opened, undone, corrected and let go of.
//!
//! Floor 2. Invariant: what was taken is held by a lease or has been given back.

use std::sync::Arc;

use smallvec::SmallVec;

use super::row::{self, Header, Spare, Words};
use super::slab::Place;
use super::{Memory, RETRIES};
use crate::account::{Lineup, RowSpan, Spot};
use crate::lease::{Hold, Holds, Record};
use crate::meter::{At, Wait};
use crate::store::{AccountsFull, Ask, Choice, Lack, Lacks};
use crate::time::{Now, Period};

/// What is asked of the limits of a lineup.
pub(super) enum Asking<'a> {
    /// What a choice asks.
    Choice(&'a Choice),
    /// So much more than is held already, in the limit's present period; nothing where that is 0.
    More(&'a [(u64, Period)]),
}

impl Asking<'_> {
    /// Takes from a limit's word among its row's, and adds the hold. Adds nothing where nothing is asked: taking an amount
    /// of 0 would still move a budget's word to its period.
    #[inline]
    fn take(&self, at: u16, spot: &Spot, words: &mut Words, holds: &mut Holds, now: Now) -> Result<(), Lack> {
        let (ask, moment) = match self {
            Asking::Choice(choice) => (choice.ask_of(spot.meter, spot.hold), spot.at(now)),
            Asking::More(more) => match more.get(at as usize) {
                Some(&(amount, period)) if amount > 0 => (Ask { amount, near: amount }, At { now, period }),
                _ => return Ok(()),
            },
        };
        let word = &mut words[spot.column as usize % (row::WIDTH + 1)];
        let amount = ask.amount_on(&spot.rule, *word, &moment);
        let used = || spot.rule.read(*word, &moment).used;
        let taken = match spot.shadow {
            true => spot.rule.charge(*word, amount, &moment),
            false => match spot.rule.take(*word, amount, &moment) {
                Ok(taken) => taken,
                Err(wait) => return Err(Lack { limit: at, used: used(), asked: amount, wait, soft: false }),
            },
        };
        if let (Some(soft), Asking::Choice(choice)) = (spot.soft, self)
            && choice.is_within_soft(at)
            && used().saturating_add(amount) > soft
        {
            return Err(Lack { limit: at, used: used(), asked: amount, wait: Wait::Unknown, soft: true });
        }
        *word = taken.word;
        holds.push(Hold { limit: at, amount, mark: taken.mark, word: taken.word });
        Ok(())
    }
}

/// Rows that have room for what is asked: the header that proves how they stood, and how they would stand.
pub(super) type Looked = SmallVec<[(Header, Words); 4]>;

/// Where the holds on a row's limits are, among holds in the order of the lineup.
fn range_of(span: &RowSpan, holds: &[Hold]) -> std::ops::Range<usize> {
    let before = |limit: u16| holds.iter().take_while(|hold| hold.limit < limit).count();
    before(span.from)..before(span.to)
}

/// Why a choice was not taken.
pub(super) enum Miss {
    Short(Box<Lacks>),
    /// A taking failed though its check had passed: what it lacked then.
    Raced(Box<Lack>),
    /// An account belongs to another scope now.
    Stale,
    /// As many leases are open as may be, or more on one row than it can count.
    Crowded,
}

impl Memory {
    /// Takes what a choice asks, and a place for its lease unless there is one; what it holds then is put into `holds`.
    pub(super) fn try_choice<'s>(
        &'s self,
        choice: &mut Choice,
        place: &mut Option<Place<'s>>,
        holds: &mut Holds,
        now: Now,
    ) -> Result<(), Miss> {
        // Before anything is taken: even what is given back at once moves a budget on to its present period.
        let mut ready = || {
            *place = place.take().or_else(|| self.slab.place());
            place.is_some()
        };
        match self.try_lineup(&choice.terms.deal.lineup, &Asking::Choice(choice), &mut ready, holds, now) {
            Err(Miss::Stale) => {
                let lineup = self.rebind(&choice.terms.deal.lineup, now).map_err(|_| Miss::Stale)?;
                choice.terms.deal = Arc::new(choice.terms.deal.on(lineup));
                self.try_lineup(&choice.terms.deal.lineup, &Asking::Choice(choice), &mut ready, holds, now)
            }
            other => other,
        }
    }

    /// Takes what is asked of a lineup, if there is room and `ready` says so then.
    pub(super) fn try_lineup(
        &self,
        lineup: &Lineup,
        asking: &Asking<'_>,
        mut ready: impl FnMut() -> bool,
        holds: &mut Holds,
        now: Now,
    ) -> Result<(), Miss> {
        let mut rows = Looked::new();
        let mut tried = 0;
        loop {
            let looked = self.look(lineup, asking, &mut rows, holds, now);
            let looked = looked.and_then(|()| if ready() { Ok(()) } else { Err(Miss::Crowded) });
            match looked.and_then(|()| self.take(lineup, asking, &rows, holds, now)) {
                Err(Miss::Raced(_)) if tried < RETRIES => tried += 1,
                Err(Miss::Raced(lack)) => return Err(Miss::Short(Box::new(SmallVec::from_iter([*lack])))),
                other => return other,
            }
        }
    }

    /// Whether every limit has room, how the rows would stand then, and what would be held; reads only, and names every
    /// limit that has none.
    pub(super) fn look(
        &self,
        lineup: &Lineup,
        asking: &Asking<'_>,
        rows: &mut Looked,
        holds: &mut Holds,
        now: Now,
    ) -> Result<(), Miss> {
        rows.clear();
        holds.clear();
        let mut lacks = Lacks::new();
        for span in lineup.rows() {
            let (header, mut words) = self.rows.snapshot(span.row);
            owned(span, &words)?;
            if !row::pin(&mut words) {
                return Err(Miss::Crowded);
            }
            let spots = &lineup.spots()[span.from as usize..span.to as usize];
            for (at, spot) in (span.from..).zip(spots) {
                if let Err(lack) = asking.take(at, spot, &mut words, holds, now) {
                    lacks.push(lack);
                }
            }
            rows.push((header, words));
        }
        if lacks.is_empty() { Ok(()) } else { Err(Miss::Short(Box::new(lacks))) }
    }

    /// Takes row by row; on failure everything taken is undone. A row that stands as it was looked at takes what was found
    /// then; any other, or one that was not looked at, is reckoned anew.
    pub(super) fn take(
        &self,
        lineup: &Lineup,
        asking: &Asking<'_>,
        rows: &Looked,
        holds: &mut Holds,
        now: Now,
    ) -> Result<(), Miss> {
        let mut spare = self.rows.claim();
        for (done, span) in lineup.rows().iter().enumerate() {
            if let Some((header, words)) = rows.get(done)
                && self.rows.replace(&mut spare, span.row, *header, words)
            {
                continue;
            }
            let mut taken = Holds::new();
            let mut miss = Miss::Stale;
            let updated = self.rows.update(&mut spare, span.row, |words| {
                taken.clear();
                take_row(lineup, asking, span, words, &mut taken, now).map_err(|why| miss = why).ok()
            });
            let here = range_of(span, holds);
            if updated.is_none() {
                holds.truncate(here.start);
                for span in lineup.rows()[..done].iter().rev() {
                    self.give_back(&mut spare, lineup, span, holds, now);
                }
                self.rows.release(spare);
                return Err(miss);
            }
            holds.drain(here.clone());
            holds.insert_many(here.start, taken);
        }
        self.rows.release(spare);
        Ok(())
    }

    /// Undoes the holds on one row and lets go of it.
    pub(super) fn give_back(&self, spare: &mut Spare, lineup: &Lineup, span: &RowSpan, holds: &Holds, now: Now) {
        let moment = At { now, period: Period::default() };
        self.rows.update(spare, span.row, |words| {
            owned(span, words).ok()?;
            for hold in holds.iter().filter(|hold| (span.from..span.to).contains(&hold.limit)) {
                let bound = &lineup.limits()[hold.limit as usize];
                let word = &mut words[bound.account.column as usize];
                *word = bound.rule.correct(*word, hold.mark, hold.amount, 0, &moment);
            }
            row::unpin(words);
            Some(())
        });
    }

    pub(super) fn undo(&self, lineup: &Lineup, holds: &Holds, now: Now) {
        let mut spare = self.rows.claim();
        for span in lineup.rows().iter().rev() {
            self.give_back(&mut spare, lineup, span, holds, now);
        }
        self.rows.release(spare);
    }

    /// The same lineup on the accounts that its scopes have now.
    pub(super) fn rebind(&self, lineup: &Lineup, now: Now) -> Result<Arc<Lineup>, AccountsFull> {
        let mut limits = lineup.limits().to_vec();
        for bound in &mut limits {
            let accounts =
                self.table.bind(&self.rows, &bound.scope, std::slice::from_ref(&bound.column), bound.passing, now)?;
            bound.account = accounts[0];
        }
        Ok(Arc::new(Lineup::new(limits)))
    }

    pub(super) fn unpin_rows(&self, lineup: &Lineup) {
        let mut spare = self.rows.claim();
        for span in lineup.rows() {
            self.rows.update(&mut spare, span.row, |words| {
                owned(span, words).ok()?;
                row::unpin(words);
                Some(())
            });
        }
        self.rows.release(spare);
    }

    /// Applies what a step replaces its holds by; only the one who made the step does this.
    pub(super) fn apply(&self, record: &Record, now: Now) {
        let lineup = &*record.claim.terms.deal.lineup;
        let closed = !record.is_open();
        let mut spare = self.rows.claim();
        if let Some(amounts) = record.plainly_settled() {
            // One hold a limit, in the order of the limits.
            let mut holds = &record.claim.holds[..];
            for span in lineup.rows() {
                let here = holds.iter().take_while(|hold| hold.limit < span.to).count();
                let (here, rest) = holds.split_at(here);
                self.rows.update(&mut spare, span.row, |words| {
                    owned(span, words).ok()?;
                    for hold in here {
                        let spot = &lineup.spots()[hold.limit as usize];
                        let used = if spot.meter.is_held() { 0 } else { amounts.get(spot.meter) };
                        correct(spot, words, hold, used, now);
                    }
                    row::unpin(words);
                    Some(())
                });
                holds = rest;
            }
            return self.rows.release(spare);
        }
        let corrections = record.corrections();
        for span in lineup.rows() {
            self.rows.update(&mut spare, span.row, |words| {
                owned(span, words).ok()?;
                for (hold, to) in corrections.iter().filter(|(hold, _)| (span.from..span.to).contains(&hold.limit)) {
                    correct(&lineup.spots()[hold.limit as usize], words, hold, *to, now);
                }
                if closed {
                    row::unpin(words);
                }
                Some(())
            });
        }
        self.rows.release(spare);
    }
}

/// Replaces a hold in its account's word, among those of its row.
#[inline]
fn correct(spot: &Spot, words: &mut Words, hold: &Hold, used: u64, now: Now) {
    let word = &mut words[spot.column as usize % (row::WIDTH + 1)];
    *word = spot.rule.correct(*word, hold.mark, hold.amount, used, &spot.at(now));
}

/// Takes what is asked of one row's limits, and pins the row.
fn take_row(
    lineup: &Lineup,
    asking: &Asking<'_>,
    span: &RowSpan,
    words: &mut Words,
    holds: &mut Holds,
    now: Now,
) -> Result<(), Miss> {
    owned(span, words)?;
    if !row::pin(words) {
        return Err(Miss::Crowded);
    }
    for (at, spot) in (span.from..).zip(&lineup.spots()[span.from as usize..span.to as usize]) {
        asking.take(at, spot, words, holds, now).map_err(|lack| Miss::Raced(Box::new(lack)))?;
    }
    Ok(())
}

pub(super) fn owned(span: &RowSpan, words: &Words) -> Result<(), Miss> {
    match span.identity {
        Some(identity) if row::owns(identity, words) => Ok(()),
        _ => Err(Miss::Stale),
    }
}
