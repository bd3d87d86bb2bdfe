//! Alerts: soft amounts and set percentages, told once a period.
//!
//! Floor 3. Invariant: an alert changes no decision, and each crossing is told at most once in its period.

use std::sync::Arc;

use super::wiring::Roster;
use super::{Gate, Shared};
use crate::journal::{Alert, Event};
use crate::lease::Record;
use crate::store::Store;
use crate::sync::ArcCell;
use crate::time::Now;

/// Called with each alert, on the thread of the admission that crossed it: it must be quick and must not wait.
pub type Subscriber = Arc<dyn Fn(&Alert) + Send + Sync>;

/// Scope, limit, and whether it is the soft amount.
type Mark = (Arc<str>, Arc<str>, bool);

/// Which mark of which account was told, and in which period, or that it is still passed ([`ABOVE`]).
type Told = papaya::HashMap<Mark, u64, ahash::RandomState>;

/// What has been told, and to whom.
#[derive(Default)]
pub(super) struct Alerts {
    told: Told,
    subscribers: Subscribers,
}

struct Subscribers(ArcCell<Vec<Subscriber>>);

impl Default for Subscribers {
    fn default() -> Subscribers {
        Subscribers(ArcCell::empty())
    }
}

impl<S: Store> Gate<S> {
    /// Calls `subscriber` with every alert from now on, beside the journal's entry. What is given back names it to
    /// [`unsubscribe`](Gate::unsubscribe).
    pub fn subscribe(&self, subscriber: impl Fn(&Alert) + Send + Sync + 'static) -> Subscriber {
        let subscriber: Subscriber = Arc::new(subscriber);
        self.shared().alerts.change(|all| all.push(subscriber.clone()));
        subscriber
    }

    /// Calls a subscriber no more; an alert that is being told may still reach it. `false` if it was not called any more
    /// before.
    pub fn unsubscribe(&self, subscriber: &Subscriber) -> bool {
        let mut was = false;
        self.shared().alerts.change(|all| {
            let before = all.len();
            all.retain(|known| !Arc::ptr_eq(known, subscriber));
            was = all.len() < before;
        });
        was
    }
}

impl<S: Store> Shared<S> {
    /// Tells what the holds of an admission have crossed.
    pub(super) fn alert(&self, roster: &Roster, record: &Record, now: Now) {
        for hold in record.claim.holds() {
            let bound = record.limit(&hold);
            let term = &roster.terms[hold.limit as usize];
            let used = record.claim.used_after(&hold);
            let percent = term.alert_percent.map(|percent| {
                // Rounded up: 80 % of 1 is passed by the first.
                let amount = bound.rule.hard() as u128 * percent as u128;
                u64::try_from(amount.div_ceil(100)).unwrap_or(u64::MAX)
            });
            let marks = [(bound.soft.map(|soft| soft.saturating_add(1)), true), (percent, false)];
            for (mark, soft) in marks {
                let Some(mark) = mark else { continue };
                let first = |period| self.alerts.first(bound.scope, &bound.limit, soft, period);
                let crossed = match &bound.column.window {
                    crate::policy::plan::Window::Fixed(_) => used >= mark && first(hold.mark),
                    // A rate and a gauge have no period: each crossing from below is one, also one that a settlement
                    // brought about, which the next admission sees.
                    _ if used >= mark => {
                        let before = used - hold.amount.min(used);
                        first(ABOVE) || before < mark
                    }
                    _ => {
                        self.alerts.below(bound.scope, &bound.limit, soft);
                        false
                    }
                };
                if !crossed {
                    continue;
                }
                self.tell(
                    Alert {
                        tenant: record.claim.terms.deal.principal.tenant().into(),
                        scope: bound.scope.clone(),
                        limit: bound.limit.clone(),
                        meter: bound.meter,
                        crossed: if soft { mark - 1 } else { mark },
                        hard: bound.rule.hard(),
                        used,
                        soft,
                    },
                    now,
                );
            }
        }
    }

    fn tell(&self, alert: Alert, now: Now) {
        // Loaded, not looked at in its cell: a subscriber may do whatever it likes, also subscribe.
        for subscriber in self.alerts.subscribers.0.load().iter().flat_map(|all| all.iter()) {
            subscriber(&alert);
        }
        self.journal.append(Event::Alerted(Arc::new(alert)), now);
    }
}

/// In place of a period, of limits that have none: the mark is passed and has been told.
const ABOVE: u64 = u64::MAX;

impl Alerts {
    fn change(&self, mut change: impl FnMut(&mut Vec<Subscriber>)) {
        loop {
            let before = self.subscribers.0.load();
            let mut next = before.as_deref().cloned().unwrap_or_default();
            change(&mut next);
            if self.subscribers.0.swap_if(before.as_ref(), Arc::new(next)) {
                return;
            }
        }
    }

    /// Notes that a mark without a period is not passed, so that the next time it is told again.
    fn below(&self, scope: &Arc<str>, limit: &Arc<str>, soft: bool) {
        let told = self.told.pin();
        if !told.is_empty() {
            told.remove(&(scope.clone(), limit.clone(), soft));
        }
    }

    /// Whether this mark is told for the first time in its period; from then on it is not.
    fn first(&self, scope: &Arc<str>, limit: &Arc<str>, soft: bool, period: u64) -> bool {
        let told = self.told.pin();
        let key = (scope.clone(), limit.clone(), soft);
        // The marks told are as many as accounts with an alert; those of users that are gone go with the rest.
        if told.len() >= MOST_TOLD && !told.contains_key(&key) {
            told.clear();
        }
        let fresh = |entry: Option<(&Mark, &u64)>| match entry {
            Some((_, before)) if *before == period => papaya::Operation::Abort(()),
            _ => papaya::Operation::Insert(period),
        };
        !matches!(told.compute(key, fresh), papaya::Compute::Aborted(()))
    }
}

/// Marks remembered; when there are more, all are forgotten and may be told once more in their period.
const MOST_TOLD: usize = 1 << 18;

#[cfg(all(test, not(quota_loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_is_remembered_is_bounded() {
        let (alerts, limit) = (Alerts::default(), Arc::from("rpm"));
        let first = |nth: usize| alerts.first(&format!("tenant:t/user:{nth}").into(), &limit, true, 7);
        assert!((0..MOST_TOLD).all(first));
        assert!(!first(0), "each is told once");
        assert!(first(MOST_TOLD) && alerts.told.len() <= MOST_TOLD);
        assert!(first(0), "and once more after all were forgotten");
    }
}
