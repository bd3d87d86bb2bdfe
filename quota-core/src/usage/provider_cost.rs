//! Provider cost: the money that a report itself states.
//!
//! Floor 1. Invariant: it stands beside the counts and never changes them; what is not a sum of money is left out as an
//! anomaly.

use super::Usage;
use super::report::Counts;
use crate::units::Pico;

/// Decimal places of a tick, xAI's unit: 1e-10 USD.
const TICK: u32 = 10;

/// Reads `cost`, in dollars, or `cost_in_usd_ticks`.
///
/// With a key of one's own (`is_byok`), OpenRouter's `cost` is its fee alone, and the upstream's bill is in the details.
pub(super) fn read(report: &Counts<'_>, usage: &mut Usage) {
    let stated = if report.has(&["cost"]) {
        report.money("cost", 0)
    } else if report.has(&["cost_in_usd_ticks"]) {
        report.money("cost_in_usd_ticks", TICK)
    } else {
        return;
    };
    let upstream = match report.says("is_byok") {
        true => report.inner("cost_details").ok().and_then(|details| details.money("upstream_inference_cost", 0)),
        false => Some(Pico(0)),
    };
    usage.provider_cost = stated.zip(upstream).map(|(fee, upstream)| Pico(fee.0.saturating_add(upstream.0)));
    usage.anomalies += usage.provider_cost.is_none() as u32;
}
