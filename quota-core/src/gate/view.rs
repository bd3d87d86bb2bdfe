//! Views: what a gate shows without changing anything.
//!
//! Floor 3. Invariant: nothing here takes, gives back or journals.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::decision::{Decision, Offer};
use super::prepare::{Prepared, prepare};
use super::verdict::Question;
use super::wiring::{ANY_MODEL, Roster, Wiring, models_of};
use super::{Gate, Shared};
use crate::account::{Bound, Lineup};
use crate::meter::At;
use crate::policy::plan::TenantPlan;
use crate::principal::Principal;
use crate::refusal::{Balance, Shortages};
use crate::request::{Input, MAX_RUN_ID, Request};
use crate::store::{Choice, Reserved, Store, select};
use crate::time::Now;
use crate::units::Meter;

/// Models that a refusal looks at for its hint.
const HINTED_MODELS: usize = 8;

/// The limits of several choices as one lineup, to read them in one trip.
pub(super) fn joined<'a>(mut lineups: impl Iterator<Item = &'a Arc<Lineup>>) -> Arc<Lineup> {
    match (lineups.next(), lineups.next()) {
        (Some(only), None) => only.clone(),
        (first, second) => {
            let all = first.into_iter().chain(second).chain(lineups);
            Arc::new(Lineup::new(all.flat_map(|lineup| lineup.limits()).map(|bound| bound.parts())))
        }
    }
}

/// The word of each choice's limits, out of the words of their joined lineup.
pub(super) fn words_of<'a>(choices: &'a [Choice], words: &'a [u64]) -> impl Fn(usize, u16) -> u64 + 'a {
    move |choice, limit| {
        let before: usize = choices[..choice].iter().map(|c| c.terms.deal.lineup.len()).sum();
        words.get(before + limit as usize).copied().unwrap_or(0)
    }
}

pub(super) fn preview<'a, S: Store>(
    shared: &'a Shared<S>,
    prepared: Prepared,
    request: &'a Request,
    now: Now,
) -> S::Answer<'a, Decision<Offer>> {
    let Prepared { reservation, routes, asked } = prepared;
    let lineup = joined(reservation.choices.iter().map(|choice| &choice.terms.deal.lineup));
    let question = Question::of(&reservation, routes, asked, request);
    shared.store.read(lineup, move |words| {
        let Some(words) = words else { return Decision::Reject(question.unreserved(&Reserved::Unavailable)) };
        let choices = &reservation.choices;
        match select(choices, words_of(choices, &words), now) {
            Ok((at, lacks)) => {
                let terms = &choices[at].terms;
                let offer = Offer {
                    model: terms.deal.model.clone(),
                    lane: terms.deal.lane.clone(),
                    input_tokens: terms.input.reserve,
                    max_output_tokens: terms.output_ceiling,
                    worst_cost: terms.worst_cost,
                };
                let pool = shared.pool_of(&question);
                if pool.is_gated() && pool.scheduler.would_wait(&question.arrival()) {
                    let refusal = question.pool_full(&pool.name);
                    return Decision::Queue(shared.wired(|wiring| question.queued(wiring, &pool.name, None, refusal)));
                }
                match question.degradation(terms, &lacks) {
                    Some(degradation) => Decision::Degrade(offer, degradation),
                    None => Decision::Allow(offer),
                }
            }
            Err(lacks) => {
                let refusal = question.refused(&lacks);
                let pool = shared.pool_of(&question);
                shared.wired(|wiring| match question.waits(&lacks) {
                    true => Decision::Queue(question.queued(wiring, &pool.name, None, refusal)),
                    false => Decision::Reject(refusal),
                })
            }
        }
    })
}

/// The other models of a tenant that would take now what was refused; none is looked at where none can.
pub(super) fn hint<'a, S: Store>(
    shared: &'a Shared<S>,
    who: &'a Principal,
    tenant: &TenantPlan,
    request: &'a Request,
    input: u64,
    shortages: &Shortages,
    now: Now,
) -> S::Answer<'a, Vec<Arc<str>>> {
    let has_others = tenant.models.keys().any(|model| *model != request.model);
    if !has_others || shortages.found().any(|(bound, _)| keeps_out_of_all(&bound)) {
        return S::ready(Vec::new());
    }
    let choices: Vec<Choice> = shared.wired(|wiring| {
        let others = models_of(tenant).into_iter().filter(|model| *model != request.model).take(HINTED_MODELS);
        // A refusal must stay cheap: the input is not counted again for each model, the first count serves as a guess.
        let counted = Request { input: Input::Counted(input), id: None, ..Request::like(request) };
        let as_other = |model| {
            let request = Request { model, ..Request::like(&counted) };
            let mut prepared = prepare(shared, wiring, who, &request, now).ok()?;
            Some(prepared.reservation.choices.swap_remove(prepared.asked))
        };
        others.filter_map(as_other).collect()
    });
    if choices.is_empty() {
        return S::ready(Vec::new());
    }
    let lineup = joined(choices.iter().map(|choice| &choice.terms.deal.lineup));
    shared.store.read(lineup, move |words| {
        let Some(words) = words else { return Vec::new() };
        let word = words_of(&choices, &words);
        let fits = |(at, choice): &(usize, &Choice)| choice.fits(|limit| word(*at, limit), now);
        choices.iter().enumerate().filter(fits).map(|(_, choice)| choice.terms.deal.model.clone()).collect()
    })
}

/// Whether a limit that has no room for a request has none for it with any model of the tenant: it is no model's, and
/// what it counts is the same with each.
fn keeps_out_of_all(bound: &Bound<'_>) -> bool {
    // Names inside a scope are escaped.
    let of_model = bound.scope.starts_with("model:") || bound.scope.contains("/model:");
    let differs = matches!(bound.meter, Meter::Input | Meter::Output | Meter::Total | Meter::Money);
    !of_model && !differs
}

impl<S: Store> Gate<S> {
    /// The state of every limit that applies to a principal, over all models that its tenant names (and those that it
    /// does not, where it may use any), widest scope first.
    /// Limits of scopes that other tenants share are left out unless `operator` asks for them. Empty for a tenant that
    /// the policy does not name, and while the store does not answer.
    pub fn balances(&self, who: &Principal, operator: bool) -> S::Answer<'_, Vec<Balance>> {
        self.balances_of(who, None, operator)
    }

    /// As [`balances`](Gate::balances), with those of a run of the principal's at the end: what is left of its steps,
    /// tokens, tool calls, money and time. A run that has not begun has everything left.
    pub fn run_balances(&self, who: &Principal, run: &str) -> S::Answer<'_, Vec<Balance>> {
        self.balances_of(who, Some(run).filter(|run| run.len() <= MAX_RUN_ID), false)
    }

    fn balances_of(&self, who: &Principal, run: Option<&str>, operator: bool) -> S::Answer<'_, Vec<Balance>> {
        let shared = self.shared();
        let now = shared.clock.now();
        let (rosters, lineup) = shared.wired(|wiring| {
            let rosters = rosters(shared, wiring, who, run, now);
            let lineup = joined(rosters.iter().map(|roster| &roster.lineup));
            (rosters, lineup)
        });
        shared.store.read(lineup.clone(), move |words| {
            let terms = rosters.iter().flat_map(|roster| roster.terms.iter());
            let mut seen = BTreeSet::new();
            let mut balances = Vec::new();
            for ((bound, term), word) in lineup.limits().zip(terms).zip(words.unwrap_or_default()) {
                let fresh = seen.insert(bound.names());
                if !fresh || term.shared && !operator {
                    continue;
                }
                balances.push(balance(bound, term.window, word, &bound.at(now)));
            }
            balances
        })
    }
}

fn rosters<S: Store>(
    shared: &Shared<S>,
    wiring: &Wiring,
    who: &Principal,
    run: Option<&str>,
    now: Now,
) -> Vec<Arc<Roster>> {
    let Some(tenant) = wiring.plan.tenants.get(who.tenant()) else { return Vec::new() };
    let Shared { keyring, .. } = shared;
    let mut models = models_of(tenant);
    if tenant.any_model.is_some() {
        models.push(ANY_MODEL.into());
        // A key that may use some models only has no `*`.
        let line = who.key().map(|key| keyring.line(tenant, key)).unwrap_or_default();
        models.extend(line.iter().filter_map(|key| key.models.as_ref()).flatten().cloned());
    }
    let rosters = models.iter().map(|model| wiring.roster(shared, who, model, run, now));
    rosters.filter_map(Result::ok).collect()
}

fn balance(bound: Bound<'_>, window: Option<u64>, word: u64, at: &At) -> Balance {
    let reading = bound.rule.read(word, at);
    Balance {
        scope: bound.scope.clone(),
        limit: bound.limit.clone(),
        meter: bound.meter,
        hard: bound.rule.hard(),
        soft: bound.soft,
        used: reading.used,
        remaining: reading.remaining,
        resets_in: reading.resets_in.map(Duration::from_nanos),
        rolling: matches!(bound.rule, crate::meter::Rule::Rate(_)),
        window,
    }
}
