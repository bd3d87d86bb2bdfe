//! Brief endings: how nearly all leases end, in words of the lease's own.
//!
//! Floor 2. Invariant: the words are written by the one thread that has the seat, before the stage that makes them count.
//!
//! An ending of its own would be an allocation, and cold memory when the lease is forgotten. Whoever finds the seat taken
//! ends the lease by a box instead, and nobody waits: the stage tells which of the two counts.

use super::figures::Figures;
use super::record::{Settled, Stand, State};
use super::{CANCELLED, OPEN, SETTLED, WRITING};
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::time::Now;
use crate::units::Pico;

/// When (both scales), four counts, and the cost.
const WORDS: usize = 7;

/// An ending that fits, and the stage that says of which kind it is.
pub(super) struct Brief {
    stage: u32,
    words: [u64; WORDS],
}

/// Room for a brief ending.
#[derive(Debug, Default)]
pub(super) struct Words([AtomicU64; WORDS]);

/// What became of an attempt to end a lease in its own words.
pub(super) enum Tried {
    /// It has ended so.
    Done,
    /// It has ended otherwise.
    Lost,
    /// Another thread has the seat.
    Taken,
}

impl Brief {
    /// An ending as words, if it is one that fits: with plain figures and a cost of less than 18 million dollars, or a
    /// cancellation; of a lease that was not extended.
    #[inline]
    pub(super) fn of(stand: &Stand) -> Option<Brief> {
        match (&stand.more, &stand.state) {
            (None, State::Settled(Settled { at, figures: Some(Figures::Plain(counts)), cost, late: false })) => {
                let [input, cache_read, output, reasoning] = *counts;
                let cost = u64::try_from(cost.0).ok()?;
                let words = [at.mono, at.wall, input, cache_read, output, reasoning, cost];
                Some(Brief { stage: SETTLED, words })
            }
            (None, State::Cancelled(at)) => Some(Brief { stage: CANCELLED, words: [at.mono, at.wall, 0, 0, 0, 0, 0] }),
            _ => None,
        }
    }
}

impl Words {
    /// Ends a lease that stands at `stage`.
    #[inline]
    pub(super) fn try_end(&self, stage: &AtomicU32, brief: &Brief) -> Tried {
        // ORDERING: relaxed; the seat is taken once in a lease's life, so nobody has written the words before.
        match stage.compare_exchange(OPEN, WRITING, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => {}
            Err(WRITING) => return Tried::Taken,
            Err(_) => return Tried::Lost,
        }
        for (word, value) in self.0.iter().zip(brief.words) {
            // ORDERING: relaxed, published by the release below.
            word.store(value, Ordering::Relaxed);
        }
        // ORDERING: release publishes the words to the acquire of whoever reads the stage. Relaxed on failure: who lost
        // looks again.
        match stage.compare_exchange(WRITING, brief.stage, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => Tried::Done,
            Err(_) => Tried::Lost,
        }
    }

    /// The ending of a lease whose stage was read as this one; `None` where that is no brief ending's.
    #[inline]
    pub(super) fn state(&self, stage: u32) -> Option<State> {
        // ORDERING: relaxed; the stage was read with acquire, and nobody writes the words after it.
        let word = |at: usize| self.0[at].load(Ordering::Relaxed);
        let at = || Now { mono: word(0), wall: word(1) };
        match stage {
            SETTLED => {
                let figures = Figures::Plain([word(2), word(3), word(4), word(5)]);
                let cost = Pico(word(6).into());
                Some(State::Settled(Settled { at: at(), figures: Some(figures), cost, late: false }))
            }
            CANCELLED => Some(State::Cancelled(at())),
            _ => None,
        }
    }
}

#[cfg(all(test, not(quota_loom)))]
mod tests {
    use super::*;
    use crate::lease::Noted;
    use crate::lease::record::{Cause, Unresolved};
    use crate::usage::Usage;

    fn stand(state: State) -> Stand {
        Stand { more: None, state, noted: Noted::default() }
    }

    fn settled(usage: &Usage, cost: u128) -> State {
        let at = Now { mono: 7, wall: 8 };
        State::Settled(Settled { at, figures: Some(Figures::of(usage)), cost: Pico(cost), late: false })
    }

    #[test]
    fn what_fits_is_read_back() {
        let usage = Usage { input_cache_read: 3, output_reasoning: u64::MAX, ..Usage::tokens(1, 2) };
        for state in [settled(&usage, u64::MAX.into()), State::Cancelled(Now { mono: 1, wall: 2 })] {
            let (words, stage) = (Words::default(), AtomicU32::new(OPEN));
            let brief = Brief::of(&stand(state.clone())).unwrap();
            assert!(matches!(words.try_end(&stage, &brief), Tried::Done));
            // ORDERING: relaxed; one thread.
            assert_eq!(words.state(stage.load(Ordering::Relaxed)), Some(state));
            let other = Brief::of(&stand(State::Cancelled(Now::at(9)))).unwrap();
            assert!(matches!(words.try_end(&stage, &other), Tried::Lost), "the first counts");
        }
    }

    #[test]
    fn what_does_not_fit_is_no_brief_ending() {
        let usage = Usage::tokens(1, 2);
        let State::Settled(plain) = settled(&usage, 1) else { unreachable!() };
        let unresolved = Unresolved { since: Now::at(1), cause: Cause::Dropped, seen: None };
        let others = [
            State::Held,
            State::Unresolved(unresolved),
            settled(&usage, u128::from(u64::MAX) + 1),
            settled(&Usage { images: 1, ..usage }, 1),
            State::Settled(Settled { figures: None, ..plain.clone() }),
            State::Settled(Settled { late: true, ..plain.clone() }),
        ];
        for state in others {
            assert!(Brief::of(&stand(state.clone())).is_none(), "{state:?}");
        }
        let extended = Stand { more: Some(Box::default()), ..stand(State::Settled(plain)) };
        assert!(Brief::of(&extended).is_none());
    }

    #[test]
    fn a_seat_is_taken_once() {
        let (words, stage) = (Words::default(), AtomicU32::new(WRITING));
        let brief = Brief::of(&stand(State::Cancelled(Now::at(9)))).unwrap();
        assert!(matches!(words.try_end(&stage, &brief), Tried::Taken));
        assert_eq!(words.state(WRITING), None);
    }
}
