//! The ledger's names: which account a limit of a scope is, and its rule under each policy.
//!
//! Floor 5. Invariant: an account is its scope and its limit's name, whatever policy is in force.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use super::account::{Account, Calendar, Rule};
use crate::account::Lineup;
use crate::policy::Policy;
use crate::policy::plan::{Hold, Limit, Plan, Window};
use crate::time::{self, SECOND, Unit};
use crate::units::Meter;

/// The accounts of a lineup, in its order.
pub(super) type Places = Rc<[u32]>;

/// A limit of a scope under each policy.
struct Named {
    scope: Arc<str>,
    limit: Arc<str>,
    /// The rule, and whether the whole worst case is held on it.
    rules: Vec<(Rule, bool)>,
}

/// All limits of all scopes.
pub(in super::super) struct Names {
    all: Vec<Named>,
    /// The limits of each scope.
    scopes: HashMap<Arc<str>, Vec<u32>, ahash::RandomState>,
    /// Lineups that have been looked up, by address; they are kept, so that no other comes to stand there.
    lineups: HashMap<*const Lineup, (Arc<Lineup>, Places), ahash::RandomState>,
}

impl Names {
    pub(super) fn of(policies: &[Policy], users: &[&str]) -> Names {
        let mut names = Names { all: Vec::new(), scopes: HashMap::default(), lineups: HashMap::default() };
        for policy in policies {
            names.add(policy.plan(), users);
        }
        assert!(
            names.all.iter().all(|named| named.rules.len() == policies.len()),
            "the policies differ in more than amounts"
        );
        names
    }

    fn add(&mut self, plan: &Plan, users: &[&str]) {
        let mut scopes: Vec<(String, &[Limit])> = vec![("global".into(), &plan.global)];
        scopes.extend(plan.models.values().map(|model| (format!("model:{}", model.name), model.limits.as_slice())));
        scopes
            .extend(plan.cost_centers.iter().map(|(name, limits)| (format!("cost_center:{name}"), limits.as_slice())));
        for (name, tenant) in &plan.tenants {
            scopes.push((format!("tenant:{name}"), &tenant.limits));
            let models = tenant.models.iter();
            scopes.extend(models.map(|(model, of)| (format!("tenant:{name}/model:{model}"), of.limits.as_slice())));
            scopes.extend(users.iter().map(|user| (format!("tenant:{name}/user:{user}"), tenant.users.as_slice())));
        }
        for (scope, limits) in scopes {
            let scope: Arc<str> = scope.into();
            for limit in limits {
                let at = self.find(&scope, &limit.name).unwrap_or_else(|| {
                    let at = self.all.len() as u32;
                    self.all.push(Named { scope: scope.clone(), limit: limit.name.clone(), rules: Vec::new() });
                    self.scopes.entry(scope.clone()).or_default().push(at);
                    at
                });
                let counts_output = matches!(limit.meter, Meter::Output | Meter::Total | Meter::Money);
                self.all[at as usize].rules.push((rule(limit), limit.hold == Hold::WorstCase || !counts_output));
            }
        }
    }

    pub(super) fn new_accounts(&self) -> Vec<Account> {
        self.all.iter().map(|named| Account::new(&named.rules[0].0)).collect()
    }

    pub(super) fn places(&mut self, lineup: &Arc<Lineup>) -> Places {
        if let Some((_, places)) = self.lineups.get(&Arc::as_ptr(lineup)) {
            return places.clone();
        }
        let place =
            |bound: crate::account::Bound<'_>| self.find(bound.scope, &bound.limit).expect("a limit of the policy");
        let places: Places = lineup.limits().map(place).collect();
        self.lineups.insert(Arc::as_ptr(lineup), (lineup.clone(), places.clone()));
        places
    }

    pub(super) fn find(&self, scope: &str, limit: &str) -> Option<u32> {
        self.scopes.get(scope)?.iter().copied().find(|at| *self.all[*at as usize].limit == *limit)
    }

    /// The rule of an account under a policy, and whether the whole worst case is held on it.
    pub(super) fn rule(&self, account: u32, revision: usize) -> (&Rule, bool) {
        let (rule, exact) = &self.all[account as usize].rules[revision];
        (rule, *exact)
    }

    pub(super) fn name(&self, account: u32) -> (&str, &str) {
        let Named { scope, limit, .. } = &self.all[account as usize];
        (scope, limit)
    }

    pub(super) fn show(&self, account: u32) -> String {
        let (scope, limit) = self.name(account);
        format!("{scope} {limit}")
    }
}

fn rule(limit: &Limit) -> Rule {
    let hard = limit.hard;
    match &limit.window {
        Window::Rolling { nanos } => {
            assert!(
                nanos.is_multiple_of(hard),
                "{}: a unit that refills in no whole number of nanoseconds",
                limit.name
            );
            Rule::Rate { unit: nanos / hard, burst: limit.burst }
        }
        Window::Fixed(calendar) => Rule::Budget { hard, calendar: calendar_of(calendar) },
        Window::Held | Window::Run => Rule::Slots { hard },
    }
}

fn calendar_of(calendar: &time::Calendar) -> Calendar {
    let ahead = match calendar.zone() {
        "UTC" => 0,
        "Asia/Shanghai" => 8 * 3600 * SECOND,
        zone => panic!("the simulation knows no {zone}"),
    };
    match calendar.unit() {
        Unit::Seconds(length) => Calendar::Every(u64::from(length) * SECOND),
        Unit::Day => Calendar::Day { ahead },
        Unit::Month { start_day: 1 } => Calendar::Month { ahead },
        unit => panic!("the simulation knows no {unit:?}"),
    }
}
