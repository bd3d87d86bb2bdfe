//! Tests of which rows are whose: how scopes share and lose them.
//!
//! Floor 2. Invariant: see [`table`](super::table).

use super::row::{WIDTH, is_pinned, owns, pin};
use super::table::Table;
use super::*;
use crate::meter::{At, Budget, REMEMBERED, Rule};
use crate::policy::plan::Window;
use crate::time::{Calendar, SECOND, Unit};
use crate::units::Meter;

/// 2026-11-30T12:00:00Z.
const NOON: u64 = 1_796_040_000 * SECOND;
const START: Now = Now::at(NOON);
const DAY: u64 = 86_400 * SECOND;

/// Eight rows: six of them for passing scopes, three for those of one group.
struct Place {
    table: Table,
    rows: Rows,
}

fn later(nanos: u64) -> Now {
    Now::at(NOON + nanos)
}

fn column(meter: Meter, window: Window) -> Column {
    Column { meter, window, nth: 0 }
}

fn held() -> Column {
    column(Meter::InFlight, Window::Held)
}

fn rate() -> Column {
    column(Meter::Requests, Window::Rolling { nanos: 60 * SECOND })
}

fn daily() -> Column {
    column(Meter::Money, Window::Fixed(Calendar::new(Unit::Day, "UTC").unwrap().into()))
}

fn run(meter: Meter) -> Column {
    column(meter, Window::Run)
}

/// The word of a daily budget that something was taken of at a moment.
fn spent(amount: u64, wall: u64) -> u64 {
    let Column { window: Window::Fixed(calendar), .. } = daily() else { unreachable!() };
    let at = At { now: Now::at(wall), period: calendar.period(wall) };
    Rule::Budget(Budget::new(1000, daily().window.amount_bits())).charge(0, amount, &at).word
}

impl Place {
    fn new() -> Place {
        let rows = Rows::new(8);
        Place { table: Table::new(&rows), rows }
    }

    fn bind(&self, scope: &str, columns: &[Column], passing: bool, now: Now) -> Result<Vec<Account>, AccountsFull> {
        self.table.bind(&self.rows, scope, columns, passing, now)
    }

    /// The account of a scope with one gauge.
    fn one(&self, scope: &str, now: Now) -> Result<Account, AccountsFull> {
        self.bind(scope, &[held()], false, now).map(|accounts| accounts[0])
    }

    /// The same of a scope that comes and goes.
    fn passing(&self, scope: &str, now: Now) -> Result<Account, AccountsFull> {
        self.bind(scope, &[held()], true, now).map(|accounts| accounts[0])
    }

    fn set(&self, account: Account, word: u64) {
        self.change(account, |words| words[account.column as usize] = word);
    }

    fn change(&self, account: Account, change: impl Fn(&mut Words)) {
        let mut spare = self.rows.claim();
        self.rows.update(&mut spare, account.row, |words| {
            change(words);
            Some(())
        });
        self.rows.release(spare);
    }

    /// Whether the row is still that of the account's scope.
    fn has(&self, account: Account) -> bool {
        owns(account.identity.unwrap(), &self.rows.read(account.row))
    }

    /// Takes every row that is left, which has those at rest dropped, and gives how many there were.
    fn fill(&self, now: Now) -> usize {
        let taken = (0..).map(|n| self.one(&format!("filler{n} {}", now.mono), now)).take_while(Result::is_ok);
        taken.map(|account| self.set(account.unwrap(), 1)).count()
    }
}

#[test]
fn a_scopes_accounts_fill_one_row_after_the_other_and_stay() {
    let place = Place::new();
    let column = |nth| Column { nth, ..held() };
    let columns: Vec<Column> = (0..WIDTH as u8 * 2 + 1).map(column).collect();
    let accounts = place.bind("a", &columns, false, START).unwrap();
    for (nth, account) in accounts.iter().enumerate() {
        assert_eq!(account.column as usize, nth % WIDTH + 1);
        assert_eq!(account.row, accounts[nth - nth % WIDTH].row);
        assert_eq!(account.identity, accounts[nth - nth % WIDTH].identity);
        assert_eq!(place.table.find("a", &columns[nth]), Some(*account));
        assert!(place.has(*account));
    }
    let rows = [0, WIDTH, 2 * WIDTH].map(|nth| accounts[nth].row);
    assert!(rows[0] != rows[1] && rows[1] != rows[2] && rows[0] != rows[2], "{rows:?}");
    assert_eq!(place.bind("a", &columns[3..10], false, START).unwrap(), accounts[3..10], "bound again");
    // Another scope has accounts of its own, and one that was never bound none.
    let other = place.bind("b", &columns[..1], false, START).unwrap()[0];
    assert!(!rows.contains(&other.row) && other.identity != accounts[0].identity);
    assert_eq!(place.table.find("b", &columns[1]), None);
    assert_eq!(place.table.find("c", &columns[0]), None);
}

#[test]
fn a_row_that_is_given_out_is_empty_and_its_scopes() {
    let place = Place::new();
    let mut identities = Vec::new();
    for n in 0..8 {
        let account = place.one(&format!("s{n}"), START).unwrap();
        assert_eq!(place.rows.read(account.row)[1..], [0; WIDTH]);
        assert!(place.has(account) && !is_pinned(&place.rows.read(account.row)));
        place.set(account, 1);
        identities.push((account.row, account.identity));
    }
    assert_eq!(place.one("s8", START), Err(AccountsFull), "all eight are in use");
    assert_eq!(place.one("s7", START).map(|account| account.row), Ok(7), "who has one keeps it");
    identities.sort_by_key(|(row, _)| *row);
    assert!(identities.iter().map(|(row, _)| *row).eq(0..8));
    identities.sort_by_key(|(_, identity)| identity.unwrap().get());
    identities.dedup_by_key(|(_, identity)| *identity);
    assert_eq!(identities.len(), 8);
}

#[test]
fn passing_scopes_leave_room_for_the_others_and_groups_for_each_other() {
    let place = Place::new();
    let take = |scope: &str| place.passing(scope, START).map(|account| place.set(account, 1));
    for scope in ["a/1", "a/2", "a/3"] {
        assert_eq!(take(scope), Ok(()));
    }
    assert_eq!(take("a/4"), Err(AccountsFull), "half of the passing ones");
    assert_eq!(take("a/3"), Ok(()), "who has one keeps it");
    for scope in ["b", "b/2", "c/1"] {
        assert_eq!(take(scope), Ok(()));
    }
    assert_eq!(take("d"), Err(AccountsFull), "three quarters of all");
    assert_eq!(place.fill(START), 2, "the rest is for those that stay");
}

#[test]
fn the_room_of_passing_scopes_comes_back_with_their_rows() {
    let place = Place::new();
    for round in 0..3 {
        let now = later(2 * round * SECOND);
        let scopes = ["a/1", "a/2", "a/3", "b/1", "b/2", "c/1"].map(|scope| format!("{scope}.{round}"));
        let taken: Vec<Account> = scopes.iter().map(|scope| place.passing(scope, now).unwrap()).collect();
        assert!(place.passing(&format!("a/4.{round}"), later(2 * round * SECOND + SECOND)).is_ok(), "{round}");
        assert!(taken.iter().all(|account| !place.has(*account)), "all were at rest");
        place.fill(now);
        assert_eq!(place.one(&format!("x{round}"), now), Err(AccountsFull));
        for row in 0..8 {
            let words = place.rows.read(row);
            place.change(Account { row, column: 1, identity: None }, |words| words[1] = 0);
            assert_ne!(words[0], 0, "every row is somebody's");
        }
    }
}

/// What a scope's accounts are, their words, and whether its row is at rest.
type Case = (&'static str, Vec<(Column, u64)>, bool);

#[test]
fn a_row_is_dropped_at_rest_alone() {
    let word = |used: u64| [(held(), used)].to_vec();
    let (past, present) = (spent(5, NOON - DAY), spent(5, NOON));
    let over = NOON - REMEMBERED;
    let cases: [Case; 16] = [
        ("an empty gauge", word(0), true),
        ("a gauge that holds", word(1), false),
        ("a bucket never used", [(rate(), 0)].to_vec(), true),
        ("a bucket that is full this moment", [(rate(), NOON)].to_vec(), true),
        ("a bucket that is full the next", [(rate(), NOON + 1)].to_vec(), false),
        ("a budget never used", [(daily(), 0)].to_vec(), true),
        ("a budget of yesterday", [(daily(), past)].to_vec(), true),
        ("a budget of today", [(daily(), present)].to_vec(), false),
        ("a budget of today with nothing spent", [(daily(), spent(0, NOON))].to_vec(), true),
        ("one that holds beside one that is empty", [(held(), 0), (daily(), present)].to_vec(), false),
        ("one that is empty beside one that holds", [(held(), 1), (daily(), past)].to_vec(), false),
        ("both at rest", [(held(), 0), (daily(), past), (rate(), NOON)].to_vec(), true),
        ("a run that has not begun", [(run(Meter::RunTime), 0), (run(Meter::Steps), 0)].to_vec(), true),
        ("a run that is over for long", [(run(Meter::RunTime), over), (run(Meter::Steps), 7)].to_vec(), true),
        ("a run that is over", [(run(Meter::RunTime), over + 1), (run(Meter::Steps), 7)].to_vec(), false),
        ("a run that goes on", [(run(Meter::Steps), 0), (run(Meter::RunTime), NOON + 9)].to_vec(), false),
    ];
    for (what, words, dropped) in cases {
        let place = Place::new();
        let columns: Vec<Column> = words.iter().map(|(column, _)| column.clone()).collect();
        let accounts = place.bind("it", &columns, false, START).unwrap();
        words.iter().zip(&accounts).for_each(|((_, word), account)| place.set(*account, *word));
        assert_eq!(place.fill(START), 7 + usize::from(dropped), "{what}");
        assert_eq!(!place.has(accounts[0]), dropped, "{what}");
        assert_eq!(place.table.find("it", &columns[0]).is_none(), dropped, "{what}");
        // Who comes again has a row that is empty, or the old one.
        let again = place.bind("it", &columns, false, START);
        assert_eq!(again, if dropped { Err(AccountsFull) } else { Ok(accounts) }, "{what}");
    }
}

#[test]
fn what_a_run_has_used_does_not_keep_its_row() {
    let (place, now) = (Place::new(), Now::at(REMEMBERED + 5));
    let columns = [run(Meter::RunTime), run(Meter::Money)];
    let accounts = place.bind("it", &columns, false, now).unwrap();
    // More than there are nanoseconds on this clock.
    accounts.iter().zip([5, 1 << 50]).for_each(|(account, word)| place.set(*account, word));
    assert_eq!(place.fill(now), 8);
}

#[test]
fn groups_are_forgotten_with_their_last_row() {
    let place = Place::new();
    for (n, scope) in ["a/1", "a/2", "b/1"].iter().enumerate() {
        let account = place.passing(scope, START).unwrap();
        place.set(account, n as u64 % 2);
    }
    assert_eq!(place.table.groups(), 2);
    place.fill(START);
    assert_eq!(place.table.groups(), 1, "a/2 is in use");
}

#[test]
fn a_row_that_an_open_lease_holds_or_that_is_anothers_is_not_dropped() {
    let place = Place::new();
    let (pinned, taken) = (place.one("pinned", START).unwrap(), place.one("taken", START).unwrap());
    place.change(pinned, |words| assert!(pin(words)));
    // Something else went wrong: the row's words are not those of the scope that the table has for it.
    place.change(taken, |words| words[0] += 1 << 24);
    assert_eq!(place.fill(START), 6);
    assert!(place.has(pinned));
    assert_ne!(place.rows.read(taken.row)[0], 0);
}

#[test]
fn rows_at_rest_are_looked_for_once_a_second() {
    let place = Place::new();
    let accounts: Vec<Account> = (0..8).map(|n| place.one(&format!("s{n}"), START).unwrap()).collect();
    accounts.iter().for_each(|account| place.set(*account, 1));
    assert_eq!(place.one("new", START), Err(AccountsFull));
    place.set(accounts[3], 0);
    assert_eq!(place.one("new", later(SECOND - 1)), Err(AccountsFull), "not yet");
    let new = place.one("new", later(SECOND)).unwrap();
    assert_eq!(new.row, accounts[3].row);
    assert!(place.has(new) && !place.has(accounts[3]), "an old reference finds that the row is another's");
}

#[test]
fn a_wall_clock_that_leaps_ahead_ends_no_period_for_good() {
    let place = Place::new();
    let account = place.bind("it", &[daily()], false, START).unwrap()[0];
    place.set(account, spent(5, NOON));
    place.fill(Now { wall: NOON + DAY, mono: NOON });
    assert!(place.has(account), "it may be put right again");
    assert_eq!(place.one("new", later(DAY)).map(|new| new.row), Ok(account.row), "the engine's day is over too");
}
