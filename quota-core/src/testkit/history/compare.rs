//! Comparing: everybody's balances, what the journal adds up to, and the sum over all leases.
//!
//! Floor 5. Invariant: nothing here changes an account; the end of a history ends what is open.

use std::collections::HashMap;
use std::time::Duration;

use super::{ACCOUNTED, By, History, PEOPLE, Report, Step, run_name};
use crate::journal::{Event, replay};
use crate::lease::LeaseId;
use crate::principal::Principal;
use crate::store::Store;
use crate::testkit::TestStore;
use crate::testkit::model::Used;
use crate::time::Period;

impl<S: TestStore> History<S> {
    /// The balances of everybody and the state of every lease are the model's.
    pub(super) fn compare(&mut self) {
        let now = self.now();
        for who in self.accounted() {
            let mut real: Vec<_> = Self::wait(self.gate.balances(who, true))
                .into_iter()
                .map(|balance| {
                    assert_eq!(balance.remaining, balance.hard.saturating_sub(balance.used), "{balance:?}");
                    (balance.scope, balance.limit, balance.hard, balance.used)
                })
                .collect();
            real.sort();
            assert_eq!(real, self.model.balances(who, now));
        }
        for (who, run) in self.runs() {
            assert_eq!(self.run_balances(&who, &run), self.model_of_run(&who, &run));
        }
        let open = Self::wait(self.gate.store().open(usize::MAX, |open| open.len()));
        assert_eq!(open, self.model.open());
        for known in &self.leases {
            let held = known.handle.as_ref().map(|handle| Self::wait(handle.is_open()));
            assert!(held.is_none_or(|held| held == self.model.is_held(known.place)), "{}", known.lease);
        }
    }

    /// The principals with accounts of their own.
    fn accounted(&self) -> &'static [Principal] {
        &PEOPLE[..ACCOUNTED]
    }

    /// Every run that there has been, by one of its tenant's principals.
    fn runs(&self) -> Vec<(Principal, String)> {
        self.runs.iter().map(|(who, run)| (PEOPLE[*who].clone(), run_name(*run))).collect()
    }

    /// What a run has used.
    fn run_balances(&self, who: &Principal, run: &str) -> Vec<Used> {
        let balances = Self::wait(self.gate.run_balances(who, run)).into_iter();
        let of_run = balances.filter(|balance| balance.scope.contains("/run:"));
        let mut real: Vec<_> =
            of_run.map(|balance| (balance.scope, balance.limit, balance.hard, balance.used)).collect();
        real.sort();
        real
    }

    /// The same by the model.
    fn model_of_run(&mut self, who: &Principal, run: &str) -> Vec<Used> {
        self.model.run_balances(who, run, self.now())
    }

    /// Replaying the journal gives the live balances, and every admission and ending is in it once.
    ///
    /// What an entry says of a rate or of a time is read with the amount of the entry that named it last, and with the moment
    /// of the entry: where policies have changed, or entries were written late because answers were lost, it is not compared.
    pub(super) fn compare_journal(&mut self) {
        let now = self.now();
        let replayed = replay(self.gate.journal());
        assert_eq!(replayed.missing, 0);
        let moved = self.reloaded || self.lost;
        for who in self.accounted() {
            for (scope, limit, _, used) in self.model.balances(who, now) {
                let window = &self.calendars[&(scope.clone(), limit.clone())];
                let period = match window {
                    Some(calendar) => calendar.period(now.wall),
                    None if moved && (limit.ends_with("pm") || limit.ends_with("ps")) => continue,
                    None => Period::default(),
                };
                let replayed = replayed.used(&scope, &limit, now, period).unwrap_or(0);
                assert_eq!(replayed, used, "{scope} {limit}");
            }
        }
        for (who, run) in self.runs() {
            for (scope, limit, _, used) in self.model_of_run(&who, &run) {
                if !(moved && &*limit == "max_seconds") {
                    let replayed = replayed.used(&scope, &limit, now, Period::default()).unwrap_or(0);
                    assert_eq!(replayed, used, "{scope} {limit}");
                }
            }
        }
        let mut entries: HashMap<(LeaseId, &str), usize> = HashMap::new();
        self.gate.journal().scan(&mut |entry| {
            let named = match &entry.event {
                Event::Admitted(record) => Some((record.claim.id, "opened")),
                Event::Ended(record) => Some((record.claim.id, entry.event.name())),
                _ => None,
            };
            if let Some(named) = named {
                *entries.entry(named).or_default() += 1;
            }
            true
        });
        for known in &self.leases {
            assert_eq!(entries.get(&(known.lease, "opened")), Some(&1), "{}", known.lease);
        }
        assert!(entries.values().all(|count| *count == 1), "{entries:?}");
    }

    /// Ends everything and lets it be resolved.
    pub(super) fn finish(&mut self) {
        self.fault = None;
        for at in 0..self.leases.len() {
            self.on_lease(&Step::Drop(at), at);
        }
        for _ in 0..2 {
            self.clock.advance(Duration::from_secs(121));
            self.sweep();
        }
        self.compare();
        assert_eq!(self.model.open(), 0);
        // An ending whose answer was lost is written once somebody meets it.
        for at in 0..self.leases.len() {
            self.on_lease(&Step::Finish(at, Report::Unknown, By::Lease), at);
        }
        let now = self.now();
        for who in self.accounted() {
            for (scope, limit, _, used) in self.model.balances(who, now) {
                let sum = self.model.sum(&scope, &limit);
                let window = &self.calendars[&(scope.clone(), limit.clone())];
                // A budget whose latest period is over reads zero.
                let over = window.is_some() && used == 0;
                assert!(over || sum.is_none_or(|sum| sum == used), "{scope} {limit}: {used} used, sum {sum:?}");
            }
        }
        for (who, run) in self.runs() {
            for (scope, limit, _, used) in self.model_of_run(&who, &run) {
                let sum = self.model.sum(&scope, &limit);
                assert!(sum.is_none_or(|sum| sum == used), "{scope} {limit}: {used} used, sum {sum:?}");
            }
        }
        self.compare_journal();
    }
}
