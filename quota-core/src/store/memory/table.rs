//! The table: which row and column each account of each scope has.
//!
//! Floor 2. Invariant: a row belongs to one scope at a time, and leaves it only at rest, when dropping it loses nothing.
//!
//! The table is looked at when a principal and model are first seen, never by an admission that finds its lineup
//! bound; it is the only lock of the store.

use hashbrown::HashTable;
use parking_lot::Mutex;
use smallvec::SmallVec;

use super::numbered::Numbered;
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
    /// What scopes' names begin with, up to the first `/`: a tenant's scopes have that in common.
    groups: Numbered<u8>,
    /// What comes after it: tenants' models have that in common.
    rests: Numbered<u8>,
    /// What rows count: scopes of the same limits have one list of it.
    columns: Numbered<Column>,
    /// By row, those that have been used.
    owners: Vec<Owner>,
    /// The rows that belong to a scope, by its name.
    owned: HashTable<u32>,
    free: Vec<u32>,
    last_identity: u64,
    /// Rows of passing scopes.
    passing: u32,
    /// The same by group.
    passing_of: Vec<u32>,
    /// Engine time before which looking for rows at rest again is not worth it.
    look_again: u64,
    keys: ahash::RandomState,
}

/// Whose a row is. There is one for each row, so that its size counts.
#[derive(Clone, Copy)]
struct Owner {
    scope: Scope,
    /// The number of its list of columns.
    columns: u32,
    identity: [u8; Identity::BYTES],
    passing: bool,
}

const _: () = assert!(size_of::<Owner>() <= 20);

/// A scope, by the numbers of the two parts of its name.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Scope {
    group: u32,
    rest: u32,
}

impl Owner {
    fn identity(&self) -> Option<Identity> {
        Identity::of_bytes(self.identity)
    }
}

impl Table {
    /// The table of so many rows.
    pub(super) fn new(rows: &Rows) -> Table {
        Table(Mutex::new(Inner {
            groups: Numbered::default(),
            rests: Numbered::default(),
            columns: Numbered::default(),
            owners: Vec::with_capacity(rows.len() as usize),
            owned: HashTable::new(),
            free: Vec::new(),
            last_identity: 0,
            passing: 0,
            passing_of: Vec::new(),
            look_again: 0,
            keys: ahash::RandomState::new(),
        }))
    }

    /// The accounts of these columns in a scope; new ones start empty.
    pub(super) fn bind(
        &self,
        rows: &Rows,
        scope: &str,
        columns: &[Column],
        passing: bool,
        now: Now,
    ) -> Result<Vec<Account>, AccountsFull> {
        let mut inner = self.0.lock();
        columns.iter().map(|column| inner.account(rows, scope, column, passing, now)).collect()
    }

    /// The account of a column in a scope, if it has one now.
    pub(super) fn find(&self, scope: &str, column: &Column) -> Option<Account> {
        let inner = self.0.lock();
        inner.find(inner.scope(scope)?, column)
    }

    /// Groups that have rows which come and go.
    #[cfg(test)]
    pub(super) fn groups(&self) -> usize {
        self.0.lock().passing_of.iter().filter(|rows| **rows > 0).count()
    }
}

impl Inner {
    /// A scope, if it has a row.
    fn scope(&self, name: &str) -> Option<Scope> {
        let (group, rest) = parts(name);
        Some(Scope { group: self.groups.find(group)?, rest: self.rests.find(rest)? })
    }

    fn rows_of(&self, scope: Scope) -> impl Iterator<Item = u32> {
        let rows = self.owned.iter_hash(self.keys.hash_one(scope)).copied();
        rows.filter(move |row| self.owners[*row as usize].scope == scope)
    }

    fn find(&self, scope: Scope, column: &Column) -> Option<Account> {
        self.rows_of(scope).find_map(|row| {
            let owner = &self.owners[row as usize];
            let place = self.columns.get(owner.columns).iter().position(|c| c == column)?;
            Some(Account { row, column: place as u8 + 1, identity: owner.identity() })
        })
    }

    fn account(
        &mut self,
        rows: &Rows,
        name: &str,
        column: &Column,
        passing: bool,
        now: Now,
    ) -> Result<Account, AccountsFull> {
        if let Some(scope) = self.scope(name) {
            if let Some(account) = self.find(scope, column) {
                return Ok(account);
            }
            let has_room = |row: &u32| self.columns.get(self.owners[*row as usize].columns).len() < WIDTH;
            let row = self.rows_of(scope).find(has_room);
            if let Some(row) = row {
                return Ok(self.add_column(row, column));
            }
        }
        let (row, identity) = self.take_row(rows, passing.then(|| parts(name).0), now)?;
        let (group, rest) = parts(name);
        let scope = Scope { group: self.groups.take(group), rest: self.rests.take(rest) };
        if passing {
            self.passing += 1;
            let group = scope.group as usize;
            self.passing_of.resize(self.passing_of.len().max(group + 1), 0);
            self.passing_of[group] += 1;
        }
        let columns = self.columns.take(std::slice::from_ref(column));
        let owner = Owner { scope, columns, identity: identity.bytes(), passing };
        match self.owners.get_mut(row as usize) {
            Some(of) => *of = owner,
            None => self.owners.push(owner),
        }
        let Inner { owners, owned, keys, .. } = self;
        owned.insert_unique(keys.hash_one(scope), row, |row| keys.hash_one(owners[*row as usize].scope));
        Ok(Account { row, column: 1, identity: Some(identity) })
    }

    /// One more account in a row that has room for it.
    fn add_column(&mut self, row: u32, column: &Column) -> Account {
        let owner = &mut self.owners[row as usize];
        let (before, identity) = (owner.columns, owner.identity());
        let more: SmallVec<[Column; WIDTH]> = self.columns.get(before).iter().chain([column]).cloned().collect();
        owner.columns = self.columns.take(&more);
        self.columns.release(before);
        Account { row, column: more.len() as u8, identity }
    }

    /// A row for a scope that stays, or for one that comes and goes in this group.
    fn take_row(&mut self, rows: &Rows, passing: Option<&[u8]>, now: Now) -> Result<(u32, Identity), AccountsFull> {
        // Three quarters of all rows for passing scopes, and half of those for one group's.
        let most = (rows.len() - rows.len().div_ceil(4)).max(1);
        let crowded = |inner: &Inner| {
            passing.is_some_and(|group| {
                let group = inner.groups.find(group).unwrap_or(u32::MAX);
                let own = inner.passing_of.get(group as usize).copied().unwrap_or(0);
                inner.passing >= most || own >= most.div_ceil(2)
            })
        };
        let used = self.owners.len() as u32;
        if crowded(self) || self.free.is_empty() && used == rows.len() {
            self.drop_rows_at_rest(rows, now);
        }
        if crowded(self) {
            return Err(AccountsFull);
        }
        let row = match self.free.pop() {
            Some(row) => row,
            None if used < rows.len() => used,
            None => return Err(AccountsFull),
        };
        let Some(identity) = Identity::new(self.last_identity + 1) else {
            self.free.extend((row < used).then_some(row));
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
        let Inner { groups, rests, columns, owners, owned, free, passing, passing_of, .. } = self;
        owned.retain(|row| {
            let owner = owners[*row as usize];
            let dropped = rows.update(&mut spare, *row, |words| {
                let its_own = owner.identity().is_some_and(|identity| owns(identity, words));
                let at_rest = its_own && !is_pinned(words) && is_at_rest(words, columns.get(owner.columns), now);
                // Without an identity, whoever still refers to the row notices that it is gone.
                at_rest.then(|| *words = [0; WIDTH + 1])
            });
            if dropped.is_some() {
                free.push(*row);
                if owner.passing {
                    *passing -= 1;
                    passing_of[owner.scope.group as usize] -= 1;
                }
                groups.release(owner.scope.group);
                rests.release(owner.scope.rest);
                columns.release(owner.columns);
            }
            dropped.is_none()
        });
        rows.release(spare);
    }
}

/// The two parts of a scope's name: what its group has in common, its tenant's name, and the rest.
fn parts(scope: &str) -> (&[u8], &[u8]) {
    scope.as_bytes().split_at(scope.find('/').unwrap_or(scope.len()))
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
