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
    let add = |counter, amount| {
        if amount > 0 {
            model.add(counter, amount);
            lane.add(counter, amount);
        }
    };
    let settled = match record.state() {
        State::Held => return,
        State::Unresolved(_) => return add(Counter::Unresolved, 1),
        State::Cancelled(_) => return add(Counter::Cancelled, 1),
        State::Settled(settled) => settled,
    };
    add(Counter::Resolved, settled.late as u64);
    let charged = record.charged();
    add(Counter::InputTokens, charged.get(Meter::Input));
    add(Counter::OutputTokens, charged.get(Meter::Output));
    let money = charged.get(Meter::Money);
    add(Counter::Money, money);
    add(Counter::MoneyOverrun, money.saturating_sub(terms.worst_cost.to_usd().units()));
    let Some(usage) = settled.figures.as_ref().filter(|usage| usage.requests() > 0) else { return };
    add(Counter::Settled, 1);
    add(Counter::Unpriced, record.is_unpriced() as u64);
    add(Counter::GuessedPrice, terms.price_is_guess() as u64);
    // An embedding has no output, which says nothing of how long answers are.
    if terms.output_ceiling > 0 {
        model.learn(usage.output_total() / terms.choices.max(1));
    }
    if !usage.input_missing() {
        let (guess, real) = (terms.input.expected, usage.input_total());
        add(Counter::EstimatedInput, guess);
        add(Counter::MeasuredInput, real);
        add(Counter::EstimateError, guess.abs_diff(real));
        if !terms.input.exact {
            model.learn_input(terms.input_guess, real / usage.requests());
        }
    }
}
