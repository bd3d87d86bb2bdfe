//! The table: which row and column each account of each scope has.
//!
//! Floor 2. Invariant: a row belongs to one scope at a time, and leaves it only at rest, when dropping it loses nothing.
//!
//! The table is looked at when a principal and model are first seen, never by an admission that finds its lineup
//! bound; it is the only lock of the store.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;
use smallvec::SmallVec;

use super::row::{Rows, WIDTH, Words, is_pinned, owns, unpinned};
use crate::account::{Account, Column, Identity};
use crate::meter::{Budget, Span};
use crate::policy::plan::Window;
use crate::store::AccountsFull;
use crate::time::{Now, SECOND};
use crate::units::Meter;

/// Which rows are whose.
pub(super) struct Table(Mutex<Inner>);

struct Inner {
    scopes: HashMap<Arc<str>, SmallVec<[RowOf; 1]>, ahash::RandomState>,
    /// What rows count: scopes of the same limits have one list of it.
    columns: HashSet<Arc<[Column]>, ahash::RandomState>,
    free: Vec<u32>,
    /// Rows from here on have never been used.
    fresh: u32,
    last_identity: u64,
    /// Rows of passing scopes.
    passing: u32,
    /// The same by the group that a scope belongs to: its name up to the first `/`, a tenant.
    passing_of: HashMap<Box<str>, u32, ahash::RandomState>,
    /// Engine time before which looking for rows at rest again is not worth it.
    look_again: u64,
}

/// A row of a scope.
struct RowOf {
    row: u32,
    identity: Identity,
    columns: Arc<[Column]>,
    passing: bool,
}

impl RowOf {
    fn account(&self, column: &Column) -> Option<Account> {
        let place = self.columns.iter().position(|c| c == column)?;
        Some(Account { row: self.row, column: place as u8 + 1, identity: Some(self.identity) })
    }
}

impl Table {
    pub(super) fn new() -> Table {
        Table(Mutex::new(Inner {
            scopes: HashMap::default(),
            columns: HashSet::default(),
            free: Vec::new(),
            fresh: 0,
            last_identity: 0,
            passing: 0,
            passing_of: HashMap::default(),
            look_again: 0,
        }))
    }

    /// The accounts of these columns in a scope; new ones start empty.
    pub(super) fn bind(
        &self,
        rows: &Rows,
        scope: &Arc<str>,
        columns: &[Column],
        passing: bool,
        now: Now,
    ) -> Result<Vec<Account>, AccountsFull> {
        let mut inner = self.0.lock();
        columns.iter().map(|column| inner.account(rows, scope, column, passing, now)).collect()
    }

    /// The account of a column in a scope, if it has one now.
    pub(super) fn find(&self, scope: &str, column: &Column) -> Option<Account> {
        self.0.lock().scopes.get(scope)?.iter().find_map(|of| of.account(column))
    }

    /// Groups of which something is remembered.
    #[cfg(test)]
    pub(super) fn groups(&self) -> usize {
        self.0.lock().passing_of.len()
    }
}

impl Inner {
    fn account(
        &mut self,
        rows: &Rows,
        scope: &Arc<str>,
        column: &Column,
        passing: bool,
        now: Now,
    ) -> Result<Account, AccountsFull> {
        if let Some(owned) = self.scopes.get_mut(scope) {
            if let Some(account) = owned.iter().find_map(|of| of.account(column)) {
                return Ok(account);
            }
            if let Some(of) = owned.iter_mut().find(|of| of.columns.len() < WIDTH) {
                of.columns = list_of(&mut self.columns, &of.columns, column);
                return Ok(Account { row: of.row, column: of.columns.len() as u8, identity: Some(of.identity) });
            }
        }
        let (row, identity) = self.take_row(rows, passing.then_some(&**scope), now)?;
        if passing {
            self.passing += 1;
            *self.passing_of.entry(group(scope).into()).or_default() += 1;
        }
        let of = RowOf { row, identity, columns: list_of(&mut self.columns, &[], column), passing };
        self.scopes.entry(scope.clone()).or_default().push(of);
        Ok(Account { row, column: 1, identity: Some(identity) })
    }

    fn take_row(&mut self, rows: &Rows, passing: Option<&str>, now: Now) -> Result<(u32, Identity), AccountsFull> {
        // Three quarters of all rows for passing scopes, and half of those for one group's.
        let most = (rows.len() - rows.len().div_ceil(4)).max(1);
        let crowded = |inner: &Inner| {
            passing.is_some_and(|scope| {
                let own = inner.passing_of.get(group(scope)).copied().unwrap_or(0);
                inner.passing >= most || own >= most.div_ceil(2)
            })
        };
        if crowded(self) || self.free.is_empty() && self.fresh == rows.len() {
            self.drop_rows_at_rest(rows, now);
        }
        if crowded(self) {
            return Err(AccountsFull);
        }
        let row = match self.free.pop() {
            Some(row) => row,
            None if self.fresh < rows.len() => {
                self.fresh += 1;
                self.fresh - 1
            }
            None => return Err(AccountsFull),
        };
        let Some(identity) = Identity::new(self.last_identity + 1) else {
            self.free.push(row);
            return Err(AccountsFull);
        };
        self.last_identity += 1;
        let mut spare = rows.claim();
        rows.update(&mut spare, row, |words| {
            *words = [0; WIDTH + 1];
            words[0] = unpinned(identity);
            Some(())
        });
        rows.release(spare);
        Ok((row, identity))
    }

    /// Takes every row at rest away from its scope. Looks at all rows, so at most once a second where it finds few.
    fn drop_rows_at_rest(&mut self, rows: &Rows, now: Now) {
        if now.mono < self.look_again {
            return;
        }
        self.look_again = now.mono.saturating_add(SECOND);
        let mut spare = rows.claim();
        // A wall clock that has leapt ahead of the engine's does not end a period for good: it may be put right again.
        let now = Now { wall: now.wall.min(now.mono), ..now };
        let (free, passing, passing_of) = (&mut self.free, &mut self.passing, &mut self.passing_of);
        self.scopes.retain(|scope, owned| {
            owned.retain(|of| {
                let dropped = rows.update(&mut spare, of.row, |words| {
                    let at_rest = owns(of.identity, words) && !is_pinned(words) && is_at_rest(words, &of.columns, now);
                    // Without an identity, whoever still refers to the row notices that it is gone.
                    at_rest.then(|| *words = [0; WIDTH + 1])
                });
                if dropped.is_some() {
                    free.push(of.row);
                    if of.passing {
                        *passing -= 1;
                        passing_of.entry(group(scope).into()).and_modify(|rows| *rows -= 1);
                    }
                }
                dropped.is_none()
            });
            !owned.is_empty()
        });
        passing_of.retain(|_, rows| *rows > 0);
        self.columns.retain(|columns| Arc::strong_count(columns) > 1);
        rows.release(spare);
    }
}

/// The list of these columns and one more.
fn list_of(lists: &mut HashSet<Arc<[Column]>, ahash::RandomState>, columns: &[Column], more: &Column) -> Arc<[Column]> {
    let list: SmallVec<[Column; WIDTH]> = columns.iter().chain([more]).cloned().collect();
    if let Some(known) = lists.get(&list[..]) {
        return known.clone();
    }
    let list: Arc<[Column]> = list.into_iter().collect();
    lists.insert(list.clone());
    list
}

/// The part of a scope's name up to the first `/`: that of its tenant.
fn group(scope: &str) -> &str {
    scope.split('/').next().unwrap_or(scope)
}

/// Whether every account reads as if it had never been used: a full bucket, a budget of a past period, an empty gauge; or
/// the run that they belong to has been over for long enough, as its clock in the same row tells.
fn is_at_rest(words: &Words, columns: &[Column], now: Now) -> bool {
    columns.iter().zip(&words[1..]).all(|(column, &word)| match &column.window {
        Window::Rolling { .. } => word <= now.mono,
        Window::Held => word == 0,
        Window::Run if column.meter == Meter::RunTime => Span::is_forgotten(word, now.mono),
        Window::Run => true,
        Window::Fixed(calendar) => {
            word == 0 || Budget::is_past(word, column.window.amount_bits(), calendar.period(now.wall).number)
        }
    })
}
