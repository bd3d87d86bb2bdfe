//! Tallies: what the gate has seen, counted for metrics and for what it learns.
//!
//! Floor 2. Invariant: counting never waits, and no figure here decides about a limit; only the learned output lengths and the
//! learned factor of the input are read by admissions.

mod counts;
mod lengths;

use self::counts::Counts;
use self::lengths::Lengths;
use crate::estimate::{InputEstimate, calibration};
use crate::reason::Reason;
use crate::sync::{AtomicU64, OnceBox, Ordering};
use crate::units::MAX_AMOUNT;

/// What is counted per tenant and model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Counter {
    /// Requests admitted as asked.
    Allowed,
    /// Leases settled with the provider's figures.
    Settled,
    /// Input tokens charged.
    InputTokens,
    /// Output tokens charged.
    OutputTokens,
    /// Money charged, in units of 1e-8 USD.
    Money,
    /// Input tokens estimated, as corrected by what was learned, for the requests whose real input is known.
    EstimatedInput,
    /// Real input tokens of the same requests.
    MeasuredInput,
    /// Sum of the absolute differences of the two.
    EstimateError,
    /// Requests admitted in a lesser form.
    Degraded,
    /// Requests told to wait.
    Queued,
    /// Requests refused.
    Rejected,
    /// Leases cancelled.
    Cancelled,
    /// Leases that became unresolved.
    Unresolved,
    /// Unresolved leases that were resolved.
    Resolved,
    /// Money charged beyond holds, in units of 1e-8 USD.
    MoneyOverrun,
    /// Leases settled with a usage that has no price, or has none for a part of it.
    Unpriced,
    /// Leases settled at another model's price, because their own is unknown.
    GuessedPrice,
}

impl Counter {
    /// How many of them, the first, most requests raise.
    const COMMON: usize = Counter::EstimateError as usize + 1;

    /// Every counter.
    pub const ALL: [Counter; 17] = [
        Counter::Allowed,
        Counter::Degraded,
        Counter::Queued,
        Counter::Rejected,
        Counter::Settled,
        Counter::Cancelled,
        Counter::Unresolved,
        Counter::Resolved,
        Counter::InputTokens,
        Counter::OutputTokens,
        Counter::Money,
        Counter::MoneyOverrun,
        Counter::EstimatedInput,
        Counter::MeasuredInput,
        Counter::EstimateError,
        Counter::Unpriced,
        Counter::GuessedPrice,
    ];

    /// Whether it counts units of 1e-8 USD.
    pub const fn is_money(self) -> bool {
        matches!(self, Counter::Money | Counter::MoneyOverrun)
    }

    /// Its name in snapshots.
    pub const fn name(self) -> &'static str {
        match self {
            Counter::Allowed => "allowed",
            Counter::Degraded => "degraded",
            Counter::Queued => "queued",
            Counter::Rejected => "rejected",
            Counter::Settled => "settled",
            Counter::Cancelled => "cancelled",
            Counter::Unresolved => "unresolved",
            Counter::Resolved => "resolved",
            Counter::InputTokens => "input_tokens",
            Counter::OutputTokens => "output_tokens",
            Counter::Money => "usd",
            Counter::MoneyOverrun => "overrun_usd",
            Counter::EstimatedInput => "estimated_input",
            Counter::MeasuredInput => "measured_input",
            Counter::EstimateError => "estimate_error",
            Counter::Unpriced => "unpriced",
            Counter::GuessedPrice => "guessed_price",
        }
    }
}

/// How often, by reason. Made by the first.
type Reasons = OnceBox<[AtomicU64; Reason::ALL.len()]>;

/// Counters of one tenant and model, and the output lengths learned from them.
pub struct Tally {
    /// All but those of requests that were not admitted.
    counts: Counts,
    /// Requests that were refused.
    rejected: Reasons,
    /// Requests that were told to wait.
    queued: Reasons,
    /// Output tokens a choice.
    lengths: Lengths,
    /// The 95th percentile plus one; 0 while too little is known. Written by settlements, read by admissions.
    p95: AtomicU64,
    /// The mean, newer answers weighing more, in parts of 2^8 and plus one; 0 while nothing is known. Written and read as
    /// `p95`.
    mean: AtomicU64,
    /// The factor of guessed inputs, in parts of 2^16. Written by settlements, read by admissions.
    factor: AtomicU64,
}

impl Default for Tally {
    fn default() -> Tally {
        Tally {
            counts: Counts::default(),
            rejected: OnceBox::empty(),
            queued: OnceBox::empty(),
            lengths: Lengths::default(),
            p95: AtomicU64::new(0),
            mean: AtomicU64::new(0),
            factor: AtomicU64::new(calibration::ONE),
        }
    }
}

impl std::fmt::Debug for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tally")
    }
}

fn raise(reasons: &Reasons, reason: Reason) {
    // ORDERING: relaxed; each is a figure by itself, and readers sum what they see.
    reasons.get_or_make(|| std::array::from_fn(|_| AtomicU64::new(0)))[reason as usize].fetch_add(1, Ordering::Relaxed);
}

fn sum(reasons: &Reasons) -> u64 {
    // ORDERING: relaxed, as in `raise`.
    reasons.get().into_iter().flatten().fold(0, |sum, count| sum.wrapping_add(count.load(Ordering::Relaxed)))
}

impl Tally {
    /// Counts what belongs together; not requests that were refused or told to wait, which have a reason.
    pub(crate) fn count(&self, counts: &[(Counter, u64)]) {
        self.counts.add(counts);
    }

    pub(crate) fn rejected(&self, reason: Reason) {
        raise(&self.rejected, reason);
    }

    pub(crate) fn queued(&self, reason: Reason) {
        raise(&self.queued, reason);
    }

    /// A counter's sum.
    pub fn get(&self, counter: Counter) -> u64 {
        match counter {
            Counter::Rejected => sum(&self.rejected),
            Counter::Queued => sum(&self.queued),
            counter => self.counts.get(counter),
        }
    }

    /// How often a request was refused or told to wait for this reason.
    pub fn reason(&self, reason: Reason) -> u64 {
        // ORDERING: relaxed, as in `raise`.
        let of = |reasons: &Reasons| reasons.get().map_or(0, |counts| counts[reason as usize].load(Ordering::Relaxed));
        of(&self.rejected).wrapping_add(of(&self.queued))
    }

    /// The learned 95th percentile of the output of one choice; `None` while too little is known.
    pub fn p95(&self) -> Option<u64> {
        // ORDERING: relaxed; an old percentile is as good a guess.
        self.p95.load(Ordering::Relaxed).checked_sub(1)
    }

    /// The mean output of one choice, the last answer counting for a tenth; `None` while nothing is known. What a request is expected to
    /// take of a pool is reckoned with it.
    pub fn mean_output(&self) -> Option<u64> {
        // ORDERING: relaxed, as in `p95`.
        self.mean.load(Ordering::Relaxed).checked_sub(1).map(|mean| mean >> 8)
    }

    /// What guesses of the input are multiplied by, in thousandths: 1000 as long as nothing has been learned, from 500
    /// to 3000.
    pub fn input_factor(&self) -> u64 {
        // ORDERING: relaxed; an old factor is as good a guess.
        self.factor.load(Ordering::Relaxed) * 1000 / calibration::ONE
    }

    /// A guess of the input, corrected by what was learned.
    pub(crate) fn calibrate(&self, guess: InputEstimate) -> InputEstimate {
        // ORDERING: relaxed, as in `input_factor`.
        calibration::apply(guess, self.factor.load(Ordering::Relaxed))
    }

    pub(crate) fn learn_input(&self, guess: u64, real: u64) {
        // ORDERING: relaxed; a request that is lost because another thread stores at the same moment changes a mean over
        // many by as little as either.
        let factor = self.factor.load(Ordering::Relaxed);
        self.factor.store(calibration::learn(factor, guess, real), Ordering::Relaxed);
    }

    pub(crate) fn learn(&self, output: u64) {
        let new = output.min(MAX_AMOUNT) << 8;
        // ORDERING: relaxed; an answer that is lost because another thread stores at the same moment changes a mean over
        // many by as little as either.
        let mean = self.mean.load(Ordering::Relaxed).checked_sub(1).map_or(new, |mean| mean - mean / 10 + new / 10);
        // ORDERING: relaxed, as above.
        self.mean.store(mean + 1, Ordering::Relaxed);
        if let Some(p95) = self.lengths.record(output) {
            // ORDERING: relaxed; an old percentile is as good a guess.
            self.p95.store(p95 + 1, Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, not(quota_loom)))]
mod tests {
    use crate::reason::Reason;
    use crate::tally::{Counter, Tally};

    #[test]
    fn a_tenant_that_asks_seldom_takes_no_more_than_this() {
        assert!(size_of::<Tally>() <= 168, "{}", size_of::<Tally>());
    }

    #[test]
    fn a_refusal_is_counted_by_its_reason_and_once() {
        let tally = Tally::default();
        tally.rejected(Reason::BudgetExceeded);
        tally.rejected(Reason::RequestRateExceeded);
        tally.queued(Reason::RequestRateExceeded);
        tally.count(&[(Counter::Allowed, 1), (Counter::Money, 0)]);
        let counted = [Counter::Allowed, Counter::Rejected, Counter::Queued, Counter::Money].map(|of| tally.get(of));
        assert_eq!(counted, [1, 2, 1, 0]);
        let by_reason =
            [Reason::BudgetExceeded, Reason::RequestRateExceeded, Reason::Frozen].map(|of| tally.reason(of));
        assert_eq!(by_reason, [1, 2, 0]);
    }
}
