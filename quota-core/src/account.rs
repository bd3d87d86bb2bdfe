//! Accounts: the limits that apply to a request, each bound to where its word lives.
//!
//! Floor 2. Invariant: plain data; the same meter and window in the same scope is the same account, whatever its amounts.
//!
//! Tenants with the same limits differ in their accounts alone: a lineup is their rows, and a shape that they share.

use std::hash::{Hash, Hasher};
use std::num::NonZeroU64;
use std::ops::{Deref, Range};
use std::sync::Arc;

use smallvec::SmallVec;

use crate::meter::{At, Rule};
use crate::policy::plan::{Hold, Window};
use crate::time::{Now, Period};
use crate::units::Meter;

/// Which scope a row of accounts belongs to.
///
/// A row that has been given to another scope has another identity, so an old reference to it is noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Identity(NonZeroU64);

impl Identity {
    /// Bits that a store may pack below an identity in one word.
    pub(crate) const BITS_BELOW: u32 = 24;

    /// The `n`th identity that was ever given; `n` from 1 to 2^40 − 1.
    pub(crate) fn new(n: u64) -> Option<Identity> {
        NonZeroU64::new(n).filter(|n| n.get() < 1 << (64 - Identity::BITS_BELOW)).map(Identity)
    }

    pub(crate) fn get(self) -> u64 {
        self.0.get()
    }

    /// How many bytes it has.
    pub(crate) const BYTES: usize = 8 - Identity::BITS_BELOW as usize / 8;

    pub(crate) fn bytes(self) -> [u8; Identity::BYTES] {
        let [bytes @ .., _, _, _] = self.get().to_le_bytes();
        bytes
    }

    /// The identity of these bytes; none has all of them 0.
    pub(crate) fn of_bytes(bytes: [u8; Identity::BYTES]) -> Option<Identity> {
        let [a, b, c, d, e] = bytes;
        Identity::new(u64::from_le_bytes([a, b, c, d, e, 0, 0, 0]))
    }
}

/// Where the word of one limit lives in a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Account {
    pub(crate) row: u32,
    pub(crate) column: u8,
    pub(crate) identity: Option<Identity>,
}

/// One limit, whoever it is of: everything that a store needs to know of it beside its account.
#[derive(Debug, Clone, PartialEq)]
pub struct Clause {
    /// Its name, for people and journals.
    pub limit: Arc<str>,
    /// What it counts.
    pub meter: Meter,
    /// Which of the scope's accounts it is.
    pub column: Column,
    /// How its word is read.
    pub rule: Rule,
    /// How much of an output it holds.
    pub hold: Hold,
    /// The period of its calendar in which the lineup was made, and holds; ignored by rates and gauges.
    pub period: Period,
    /// Counted but never refused.
    pub shadow: bool,
    /// Its soft amount.
    pub soft: Option<u64>,
    /// Whether the scope comes and goes with the callers' names, see `Store::bind`.
    pub passing: bool,
}

impl Clause {
    /// The moment, as its rule needs it.
    pub fn at(&self, now: Now) -> At {
        At { now, period: self.period }
    }

    /// The period of its calendar at a wall time, looked up only where [`period`](Clause::period) does not hold it;
    /// nothing for what has no calendar.
    pub(crate) fn period_at(&self, wall: u64) -> Period {
        match &self.column.window {
            Window::Fixed(_) if (self.period.start..self.period.end).contains(&wall) => self.period,
            Window::Fixed(calendar) => calendar.period(wall),
            Window::Rolling { .. } | Window::Held | Window::Run => Period::default(),
        }
    }

    /// The amount in use that a word of its account says, at the moment when it was written.
    pub fn used(&self, word: u64, now: Now) -> u64 {
        self.rule.read(word, &self.at(now)).used
    }
}

/// A limit of a lineup: its clause, and whose it is there.
#[derive(Debug, Clone, Copy)]
pub struct Bound<'a> {
    /// Where its word lives.
    pub account: Account,
    /// The scope that it belongs to, for people and journals.
    pub scope: &'a Arc<str>,
    clause: &'a Clause,
}

impl Deref for Bound<'_> {
    type Target = Clause;

    fn deref(&self) -> &Clause {
        self.clause
    }
}

impl<'a> Bound<'a> {
    /// Its scope, and its name there.
    pub fn names(&self) -> (&'a str, &'a str) {
        (self.scope, &self.clause.limit)
    }

    /// What a lineup is made of.
    pub fn parts(&self) -> (Account, Arc<str>, Clause) {
        (self.account, self.scope.clone(), self.clause.clone())
    }
}

/// All limits that apply to one principal and model, widest scope first. Stores take them in this order.
#[derive(Debug)]
pub struct Lineup {
    shape: Arc<Shape>,
    /// In the order of the shape's spans.
    rows: SmallVec<[Row; 3]>,
    /// The scope of each row.
    scopes: Box<[Arc<str>]>,
}

/// What lineups of equal limits have in common.
#[derive(Debug, PartialEq)]
pub(crate) struct Shape {
    clauses: Box<[Clause]>,
    spots: Box<[Spot]>,
    /// Which of the limits share a row.
    spans: Box<[Span]>,
}

/// What taking and correcting need of a limit, close together: a reservation reads these and not the clauses.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Spot {
    pub(crate) rule: Rule,
    pub(crate) period: Period,
    pub(crate) meter: Meter,
    pub(crate) hold: Hold,
    /// Which of the amounts that a request asks it is asked for; the worst case where that depends on what is in use.
    pub(crate) asked: AskedPlace,
    pub(crate) column: u8,
    pub(crate) shadow: bool,
    /// Whether it refuses, and is asked for the same amount whatever is in use.
    pub(crate) is_plain: bool,
    pub(crate) soft: Option<u64>,
}

impl Spot {
    fn of(column: u8, clause: &Clause) -> Spot {
        let &Clause { meter, rule, hold, period, shadow, soft, .. } = clause;
        let is_plain = !shadow && hold != Hold::Adaptive;
        let asked = Asks::place(meter, hold);
        Spot { rule, period, meter, hold, asked, column, shadow, is_plain, soft }
    }

    #[inline(always)]
    pub(crate) fn at(&self, now: Now) -> At {
        At { now, period: self.period }
    }
}

/// What a request asks of the limits, by what they count and how they hold it: reckoned once, looked up for each limit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asks(pub(crate) [u64; 16]);

/// Where in [`Asks`] an amount stands.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct AskedPlace(u8);

impl Asks {
    /// Where what limits ask that hold the learned output stands; what else they ask is at its meter's number.
    pub(crate) const LIKELY: [Meter; 3] = [Meter::Output, Meter::Total, Meter::Money];
    pub(crate) const FIRST_LIKELY: usize = Meter::ALL.len();

    fn place(meter: Meter, hold: Hold) -> AskedPlace {
        let likely = Asks::LIKELY.iter().position(|likely| *likely == meter && hold == Hold::P95);
        AskedPlace(likely.map_or(meter as usize, |likely| Asks::FIRST_LIKELY + likely) as u8)
    }

    #[inline(always)]
    pub(crate) fn get(&self, AskedPlace(place): AskedPlace) -> u64 {
        self.0[place as usize % 16]
    }
}

/// Limits that share a row, by their places in a lineup.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Span {
    pub(crate) from: u16,
    pub(crate) to: u16,
}

impl Span {
    pub(crate) fn places(self) -> Range<usize> {
        self.from as usize..self.to as usize
    }
}

/// A row, as a lineup was bound to it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Row {
    pub(crate) row: u32,
    pub(crate) identity: Option<Identity>,
}

/// Not by the windows, which the rules and periods stand for.
impl Hash for Shape {
    fn hash<H: Hasher>(&self, state: &mut H) {
        for (Clause { limit, meter, rule, period, soft, .. }, Spot { column, .. }) in
            self.clauses.iter().zip(&self.spots)
        {
            (limit, meter, rule, period.number, soft, column).hash(state);
        }
    }
}

impl Eq for Shape {}

impl Lineup {
    /// A lineup of these limits (at most 65,535), each with its account and the scope that it belongs to. Limits of one row
    /// must stand together.
    pub fn new(limits: impl IntoIterator<Item = (Account, Arc<str>, Clause)>) -> Lineup {
        let (mut rows, mut scopes) = (SmallVec::<[Row; 3]>::new(), Vec::new());
        let (mut clauses, mut spots, mut spans) = (Vec::new(), Vec::new(), Vec::<Span>::new());
        for (at, (account, scope, clause)) in limits.into_iter().take(u16::MAX as usize).enumerate() {
            let (row, at) = (Row { row: account.row, identity: account.identity }, at as u16);
            match spans.last_mut() {
                Some(span) if rows.last() == Some(&row) && scopes.last() == Some(&scope) => span.to = at + 1,
                _ => {
                    spans.push(Span { from: at, to: at + 1 });
                    rows.push(row);
                    scopes.push(scope);
                }
            }
            spots.push(Spot::of(account.column, &clause));
            clauses.push(clause);
        }
        let shape = Shape { clauses: clauses.into(), spots: spots.into(), spans: spans.into() };
        Lineup { shape: Arc::new(shape), rows, scopes: scopes.into() }
    }

    /// The same on an equal shape, which others have too.
    pub(crate) fn with_shape(self, shape: Arc<Shape>) -> Lineup {
        debug_assert!(shape == self.shape);
        Lineup { shape, ..self }
    }

    pub(crate) fn shape(&self) -> &Arc<Shape> {
        &self.shape
    }

    /// Whether it is of the same limits in the same scopes, wherever their accounts are.
    pub(crate) fn is_of_same_limits(&self, other: &Lineup) -> bool {
        self.shape == other.shape && self.scopes == other.scopes
    }

    /// How many limits it has.
    pub fn len(&self) -> usize {
        self.shape.clauses.len()
    }

    /// Whether nothing is limited.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The limits, widest scope first.
    pub fn limits(&self) -> impl Iterator<Item = Bound<'_>> + Clone {
        let rows = self.rows().zip(&self.scopes);
        rows.flat_map(move |((row, span), scope)| span.places().map(move |at| self.bound(at, row, scope)))
    }

    /// One of them.
    ///
    /// # Panics
    /// Where it has no such limit.
    pub fn limit(&self, at: u16) -> Bound<'_> {
        let row = self.shape.spans.partition_point(|span| span.to <= at);
        self.bound(at as usize, &self.rows[row], &self.scopes[row])
    }

    fn bound<'a>(&'a self, at: usize, row: &Row, scope: &'a Arc<str>) -> Bound<'a> {
        let account = Account { row: row.row, column: self.shape.spots[at].column, identity: row.identity };
        Bound { account, scope, clause: &self.shape.clauses[at] }
    }

    /// The period of each limit at a wall time, see [`Clause::period_at`].
    pub(crate) fn periods(&self, wall: u64) -> impl ExactSizeIterator<Item = Period> + '_ {
        self.shape.clauses.iter().map(move |clause| clause.period_at(wall))
    }

    /// The same limits in the periods of another wall time.
    pub(crate) fn in_periods_of(&self, wall: u64) -> Lineup {
        let (mut clauses, mut spots) = (self.shape.clauses.clone(), self.shape.spots.clone());
        for ((period, clause), spot) in self.periods(wall).zip(&mut clauses).zip(&mut spots) {
            (clause.period, spot.period) = (period, period);
        }
        let shape = Shape { clauses, spots, spans: self.shape.spans.clone() };
        Lineup { shape: Arc::new(shape), rows: self.rows.clone(), scopes: self.scopes.clone() }
    }

    /// The scopes of its limits, widest first.
    pub(crate) fn scopes(&self) -> &[Arc<str>] {
        &self.scopes
    }

    /// In the order of the limits.
    #[inline]
    pub(crate) fn spots(&self) -> &[Spot] {
        &self.shape.spots
    }

    /// The rows, and which limits are in each.
    #[inline]
    pub(crate) fn rows(&self) -> impl DoubleEndedIterator<Item = (&Row, Span)> + ExactSizeIterator + Clone {
        self.rows.iter().zip(self.shape.spans.iter().copied())
    }
}

/// What an account is: the same meter and window in the same scope is the same account, whatever its amounts.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Column {
    /// What it counts.
    pub meter: Meter,
    /// Over what.
    pub window: Window,
    /// Which of several limits of the same meter and window in the same scope it is, from 0.
    pub nth: u8,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meter::Gauge;

    fn clause(name: &str) -> Clause {
        Clause {
            limit: name.into(),
            meter: Meter::Total,
            column: Column { meter: Meter::Total, window: Window::Held, nth: 0 },
            rule: Rule::Gauge(Gauge::new(5)),
            hold: Hold::WorstCase,
            period: Period::default(),
            shadow: false,
            soft: None,
            passing: false,
        }
    }

    fn lineup(first_row: u32) -> Lineup {
        let limits = [(0, 1, "a"), (0, 2, "b"), (1, 1, "c"), (2, 2, "d"), (2, 1, "e")];
        Lineup::new(limits.map(|(row, column, name)| {
            let account = Account { row: first_row + row, column, identity: Identity::new(7) };
            (account, format!("scope {row}").into(), clause(name))
        }))
    }

    #[test]
    fn a_limit_has_the_row_the_column_and_the_scope_that_it_was_given() {
        let lineup = lineup(40);
        fn shown(bound: Bound<'_>) -> (u32, u8, &str, &str) {
            let (scope, limit) = bound.names();
            (bound.account.row, bound.account.column, scope, limit)
        }
        let want = [
            (40, 1, "scope 0", "a"),
            (40, 2, "scope 0", "b"),
            (41, 1, "scope 1", "c"),
            (42, 2, "scope 2", "d"),
            (42, 1, "scope 2", "e"),
        ];
        assert_eq!(lineup.limits().map(shown).collect::<Vec<_>>(), want);
        let one_by_one = |at| shown(lineup.limit(at));
        assert_eq!((0..5).map(one_by_one).collect::<Vec<_>>(), want);
        let spans: Vec<_> = lineup.rows().map(|(row, span)| (row.row, span.places())).collect();
        assert_eq!(spans, [(40, 0..2), (41, 2..3), (42, 3..5)]);
    }

    #[test]
    fn equal_limits_on_other_rows_have_an_equal_shape() {
        assert_eq!(lineup(0).shape, lineup(40).shape);
        assert!(lineup(0).is_of_same_limits(&lineup(40)));
        let mut other = clause("a");
        other.soft = Some(4);
        let account = Account { row: 0, column: 1, identity: None };
        let one = |clause| Lineup::new([(account, "".into(), clause)]).shape;
        assert_ne!(one(clause("a")), one(other));
        assert_ne!(one(clause("a")), Lineup::new([(Account { column: 2, ..account }, "".into(), clause("a"))]).shape);
    }
}
