//! Counting: what the ending of a lease adds to the figures, and what it teaches.
//!
//! Floor 3. Invariant: an ending is counted once with its tenant and model and once with its lane, and teaches the former
//! alone.

use super::Counter;
use crate::lease::{Record, State};
use crate::units::Meter;

pub(super) fn ended(record: &Record) {
    let terms = &record.claim.terms;
    let [model, lane] = &terms.deal.tallies;
    let count = |counts: &[(Counter, u64)]| [model, lane].into_iter().for_each(|tally| tally.count(counts));
    let state = record.state();
    let settled = match &*state {
        State::Held => return,
        State::Unresolved(_) => return count(&[(Counter::Unresolved, 1)]),
        State::Cancelled(_) => return count(&[(Counter::Cancelled, 1)]),
        State::Settled(settled) => settled,
    };
    let usage = settled.figures.as_ref().filter(|figures| figures.requests() > 0);
    let (guess, real) = (terms.input.expected, usage.filter(|usage| !usage.input_missing()).map(|u| u.input_total()));
    let charged = record.charged_by(&state);
    let money = charged.get(Meter::Money);
    let rare = [
        (Counter::Resolved, settled.late as u64),
        (Counter::MoneyOverrun, money.saturating_sub(terms.worst_cost.to_usd().units())),
        (Counter::Unpriced, (usage.is_some() && record.is_unpriced_by(&state)) as u64),
        (Counter::GuessedPrice, (usage.is_some() && terms.price_is_guess()) as u64),
    ];
    if rare.iter().any(|(_, amount)| *amount > 0) {
        count(&rare);
    }
    count(&[
        (Counter::InputTokens, charged.get(Meter::Input)),
        (Counter::OutputTokens, charged.get(Meter::Output)),
        (Counter::Money, money),
        (Counter::Settled, usage.is_some() as u64),
        (Counter::EstimatedInput, real.map_or(0, |_| guess)),
        (Counter::MeasuredInput, real.unwrap_or(0)),
        (Counter::EstimateError, real.map_or(0, |real| guess.abs_diff(real))),
    ]);
    let Some(usage) = usage else { return };
    // An embedding has no output, which says nothing of how long answers are.
    if terms.output_ceiling > 0 {
        model.learn(usage.output_total() / terms.choices.max(1));
    }
    if let Some(real) = real.filter(|_| !terms.input.exact) {
        model.learn_input(terms.input_guess, real / usage.requests());
    }
}
