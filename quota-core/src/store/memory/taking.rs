//! Taking: how the rows of a lineup change when a lease is opened, undone, corrected and let go of.
//!
//! Floor 2. Invariant: what was taken is held by a lease or has been given back.

use std::sync::Arc;

use smallvec::SmallVec;

use super::row::{self, Header, Spare, Words};
use super::slab::Place;
use super::{Memory, RETRIES};
use crate::account::{Asks, Bound, Lineup, Row, Span, Spot};
use crate::lease::{Hold, Holds, Record, Terms};
use crate::meter::{At, Taken, Wait};
use crate::store::{AccountsFull, Ask, Choice, Lack, Lacks};
use crate::time::{Now, Period};

/// What is asked of the limits of a lineup.
#[derive(Clone, Copy)]
pub(super) enum Asking<'a> {
    /// What a choice asks.
    Choice(&'a Choice),
    /// So much more than a lease of these terms holds already, in the limit's present period; nothing where that is 0.
    More(&'a Terms, &'a [(u64, Period)]),
}

impl<'a> Asking<'a> {
    fn terms(self) -> &'a Terms {
        match self {
            Asking::Choice(choice) => &choice.terms,
            Asking::More(terms, _) => terms,
        }
    }

    /// Whether no soft amount has to be minded, and most limits are asked for one amount whatever is in use.
    #[inline(always)]
    fn is_plain(self) -> bool {
        matches!(self, Asking::Choice(choice) if !choice.minds_soft())
    }

    /// Takes from the limits of one row, and pins it; puts what is held into `holds`, and tells every limit that has no room.
    #[inline(always)]
    fn take_row(
        self,
        (spots, asks): (&[Spot], &Asks),
        (row, span): (&Row, Span),
        words: &mut Words,
        holds: &mut Holds,
        now: Now,
        short: impl FnMut(Lack),
    ) -> Result<(), Miss> {
        if !is_owned(row, words) {
            return Err(Miss::Stale);
        }
        if !row::pin(words) {
            return Err(Miss::Crowded);
        }
        let mut at = span.from;
        if self.is_plain() {
            for (spot, after) in spots[span.places()].iter().zip(&mut holds.words_mut()[span.places()]) {
                let word = &mut words[spot.column as usize % (row::WIDTH + 1)];
                let Some(taken) = fit(spot, *word, asks, now) else { break };
                (*word, *after) = (taken.word, taken.word);
                at += 1;
            }
        }
        if at < span.to {
            self.take_rest((spots, asks), Span { from: at, ..span }, words, holds, now, short);
        }
        Ok(())
    }

    /// The same from the first limit on that has no room or is not for one amount.
    #[cold]
    fn take_rest(
        self,
        (spots, asks): (&[Spot], &Asks),
        span: Span,
        words: &mut Words,
        holds: &mut Holds,
        now: Now,
        mut short: impl FnMut(Lack),
    ) {
        for (at, spot) in (span.from..).zip(&spots[span.places()]) {
            let word = &mut words[spot.column as usize % (row::WIDTH + 1)];
            if self.is_plain()
                && let Some(taken) = fit(spot, *word, asks, now)
            {
                *word = taken.word;
                holds.words_mut()[at as usize] = taken.word;
                continue;
            }
            match self.take(at, spot, *word, now) {
                Ok((hold, follows)) => {
                    *word = hold.word;
                    holds.put(hold, follows);
                }
                Err(lack) => short(lack),
            }
        }
    }

    /// What is held of a limit after taking what is asked of it, and whether that follows from its word and the terms.
    #[cold]
    fn take(self, at: u16, spot: &Spot, word: u64, now: Now) -> Result<(Hold, bool), Lack> {
        let (ask, moment) = match self {
            Asking::Choice(choice) => (choice.ask_of(spot.meter, spot.hold), spot.at(now)),
            Asking::More(_, more) => match more.get(at as usize) {
                Some(&(amount, period)) if amount > 0 => (Ask { amount, near: amount }, At { now, period }),
                // Even taking an amount of 0 would move a budget on to its present period.
                _ => return Ok((Hold { limit: at, amount: 0, mark: 0, word }, false)),
            },
        };
        let amount = ask.amount_on(&spot.rule, word, &moment);
        let used = || spot.rule.read(word, &moment).used;
        let taken = match spot.shadow {
            true => spot.rule.charge(word, amount, &moment),
            false => match spot.rule.take(word, amount, &moment) {
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
        let follows = matches!(self, Asking::Choice(_))
            && amount == self.terms().asks().get(spot.asked)
            && taken.mark == spot.rule.mark(taken.word);
        Ok((Hold { limit: at, amount, mark: taken.mark, word: taken.word }, follows))
    }
}

/// Rows that have room for what is asked: the header that proves how they stood, and how they would stand.
pub(super) type Looked = SmallVec<[(Header, Words); 4]>;

/// Why a choice was not taken.
pub(super) enum Miss {
    Short(Lacks),
    /// A taking failed though its check had passed: what it lacked then.
    Raced(Box<Lack>),
    /// An account belongs to another scope now.
    Stale,
    /// As many leases are open as may be, or more on one row than it can count.
    Crowded,
}

impl Memory {
    /// Takes what a choice asks, and a place for its lease unless there is one; what it holds then is put into `holds`, which
    /// has room for it.
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
        match self.try_rows(Asking::Choice(choice), &mut ready, holds, now) {
            Err(Miss::Stale) => {
                let lineup = self.rebind(&choice.terms.deal.lineup, now).map_err(|_| Miss::Stale)?;
                choice.terms.deal = Arc::new(choice.terms.deal.on(lineup));
                self.try_rows(Asking::Choice(choice), &mut ready, holds, now)
            }
            other => other,
        }
    }

    /// Takes what is asked, if there is room and `ready` says so then.
    pub(super) fn try_rows(
        &self,
        asking: Asking<'_>,
        mut ready: impl FnMut() -> bool,
        holds: &mut Holds,
        now: Now,
    ) -> Result<(), Miss> {
        let mut rows = Looked::new();
        let mut tried = 0;
        loop {
            let looked = self.look(asking, &mut rows, holds, now);
            let looked = looked.and_then(|()| if ready() { Ok(()) } else { Err(Miss::Crowded) });
            match looked.and_then(|()| self.take(asking, &rows, holds, now)) {
                Err(Miss::Raced(_)) if tried < RETRIES => tried += 1,
                Err(Miss::Raced(lack)) => return Err(Miss::Short(Lacks::from_iter([*lack]))),
                other => return other,
            }
        }
    }

    /// Whether every limit has room, how the rows would stand then, and what would be held; reads only, and names every
    /// limit that has none.
    pub(super) fn look(&self, asking: Asking<'_>, rows: &mut Looked, holds: &mut Holds, now: Now) -> Result<(), Miss> {
        rows.clear();
        let (lineup, asks) = (&*asking.terms().deal.lineup, asking.terms().asks());
        // All rows before any is reckoned with: those that are cold are then fetched side by side.
        for (row, _) in lineup.rows() {
            rows.push(self.rows.snapshot(row.row));
        }
        let mut lacks = Lacks::new();
        for (row, (_, words)) in lineup.rows().zip(rows) {
            asking.take_row((lineup.spots(), &asks), row, words, holds, now, |lack| lacks.push(lack))?;
        }
        if lacks.is_empty() { Ok(()) } else { Err(Miss::Short(lacks)) }
    }

    /// Takes row by row; on failure everything taken is undone. A row that stands as it was looked at takes what was found
    /// then; any other, or one that was not looked at, is reckoned anew.
    pub(super) fn take(&self, asking: Asking<'_>, rows: &Looked, holds: &mut Holds, now: Now) -> Result<(), Miss> {
        let lineup = &*asking.terms().deal.lineup;
        let mut spare = self.rows.claim();
        for (done, row) in lineup.rows().enumerate() {
            if let Some((header, words)) = rows.get(done)
                && self.rows.replace(&mut spare, row.0.row, *header, words)
            {
                continue;
            }
            let mut miss = Miss::Stale;
            let updated = self.rows.update(&mut spare, row.0.row, |words| {
                let (mut lacked, asks) = (None, asking.terms().asks());
                let took = asking
                    .take_row((lineup.spots(), &asks), row, words, holds, now, |lack| _ = lacked.get_or_insert(lack));
                let raced = |lack| Err(Miss::Raced(Box::new(lack)));
                took.and_then(|()| lacked.map_or(Ok(()), raced)).map_err(|why| miss = why).ok()
            });
            if updated.is_none() {
                for row in lineup.rows().take(done).rev() {
                    self.give_back(&mut spare, asking.terms(), row, holds, now);
                }
                self.rows.release(spare);
                return Err(miss);
            }
        }
        self.rows.release(spare);
        Ok(())
    }

    /// Undoes the holds on one row and lets go of it.
    pub(super) fn give_back(
        &self,
        spare: &mut Spare,
        terms: &Terms,
        (row, span): (&Row, Span),
        holds: &Holds,
        now: Now,
    ) {
        self.rows.update(spare, row.row, |words| {
            if !is_owned(row, words) {
                return None;
            }
            for (at, spot) in (span.from..).zip(&terms.deal.lineup.spots()[span.places()]) {
                correct(spot, words, &terms.hold(holds, at), 0, now);
            }
            row::unpin(words);
            Some(())
        });
    }

    pub(super) fn undo(&self, terms: &Terms, holds: &Holds, now: Now) {
        let mut spare = self.rows.claim();
        for row in terms.deal.lineup.rows().rev() {
            self.give_back(&mut spare, terms, row, holds, now);
        }
        self.rows.release(spare);
    }

    /// The same lineup on the accounts that its scopes have now.
    pub(super) fn rebind(&self, lineup: &Lineup, now: Now) -> Result<Arc<Lineup>, AccountsFull> {
        let anew = |bound: Bound<'_>| {
            let (_, scope, clause) = bound.parts();
            let columns = std::slice::from_ref(&clause.column);
            let accounts = self.table.bind(&self.rows, &scope, columns, clause.passing, now)?;
            Ok((accounts[0], scope, clause))
        };
        let limits: Vec<_> = lineup.limits().map(anew).collect::<Result<_, _>>()?;
        Ok(Arc::new(Lineup::new(limits)))
    }

    pub(super) fn unpin_rows(&self, lineup: &Lineup) {
        let mut spare = self.rows.claim();
        for (row, _) in lineup.rows() {
            self.rows.update(&mut spare, row.row, |words| {
                if !is_owned(row, words) {
                    return None;
                }
                row::unpin(words);
                Some(())
            });
        }
        self.rows.release(spare);
    }

    /// Applies what a step replaces its holds by; only the one who made the step does this.
    pub(super) fn apply(&self, record: &Record, now: Now) {
        let (terms, taken) = (&record.claim.terms, &record.claim.taken);
        let lineup = &*terms.deal.lineup;
        let mut spare = self.rows.claim();
        if let Some(amounts) = record.plainly_settled().filter(|_| taken.all_follow()) {
            // One hold a limit, in the order of the limits.
            let asks = terms.asks();
            for (row, span) in lineup.rows() {
                let limits = lineup.spots()[span.places()].iter().zip(&taken.words()[span.places()]);
                self.rows.update(&mut spare, row.row, |words| {
                    if !is_owned(row, words) {
                        return None;
                    }
                    for (spot, after) in limits.clone() {
                        let (held, used) = (asks.get(spot.asked), amounts.get(spot.meter));
                        let word = &mut words[spot.column as usize % (row::WIDTH + 1)];
                        *word = spot.rule.correct_after(*word, *after, held, used, &spot.at(now));
                    }
                    row::unpin(words);
                    Some(())
                });
            }
            return self.rows.release(spare);
        }
        let closed = !record.is_open();
        let corrections = record.corrections();
        for (row, span) in lineup.rows() {
            self.rows.update(&mut spare, row.row, |words| {
                if !is_owned(row, words) {
                    return None;
                }
                for (_, hold, to) in
                    corrections.iter().filter(|(_, hold, _)| (span.from..span.to).contains(&hold.limit))
                {
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

/// What taking from a limit does that is asked for one amount whatever is in use, if there is room.
#[inline(always)]
fn fit(spot: &Spot, word: u64, asks: &Asks, now: Now) -> Option<Taken> {
    if spot.is_plain { spot.rule.fit(word, asks.get(spot.asked), &spot.at(now)) } else { None }
}

/// Replaces a hold in its account's word, among those of its row.
#[inline(always)]
fn correct(spot: &Spot, words: &mut Words, hold: &Hold, used: u64, now: Now) {
    let word = &mut words[spot.column as usize % (row::WIDTH + 1)];
    *word = spot.rule.correct(*word, hold.mark, hold.amount, used, &spot.at(now));
}

/// Whether a row is still the one that a lineup was bound to.
#[inline]
pub(super) fn is_owned(row: &Row, words: &Words) -> bool {
    row.identity.is_some_and(|identity| row::owns(identity, words))
}
