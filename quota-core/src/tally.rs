//! Tallies: what the gate has seen, counted for metrics and for what it learns.
//!
//! Floor 2. Invariant: counting never waits, and no figure here decides about a limit; only the learned output lengths and the
//! learned factor of the input are read by admissions.

use crossbeam::utils::CachePadded;

use crate::estimate::history::{self, BUCKETS};
use crate::estimate::{InputEstimate, calibration};
use crate::reason::Reason;
use crate::sync::{AtomicU32, AtomicU64, OnceBox, Ordering, thread_hint};
use crate::units::MAX_AMOUNT;

/// Counters are kept in so many copies, so that threads seldom meet on one.
const STRIPES: usize = 8;

/// After so many settlements the learned percentile is reckoned anew.
const RELEARN_EVERY: u64 = 16;

/// What is counted per tenant and model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Counter {
    /// Requests admitted as asked.
    Allowed,
    /// Requests admitted in a lesser form.
    Degraded,
    /// Requests told to wait.
    Queued,
    /// Requests refused.
    Rejected,
    /// Leases settled with the provider's figures.
    Settled,
    /// Leases cancelled.
    Cancelled,
    /// Leases that became unresolved.
    Unresolved,
    /// Unresolved leases that were resolved.
    Resolved,
    /// Input tokens charged.
    InputTokens,
    /// Output tokens charged.
    OutputTokens,
    /// Money charged, in units of 1e-8 USD.
    Money,
    /// Money charged beyond holds, in units of 1e-8 USD.
    MoneyOverrun,
    /// Input tokens estimated, as corrected by what was learned, for the requests whose real input is known.
    EstimatedInput,
    /// Real input tokens of the same requests.
    MeasuredInput,
    /// Sum of the absolute differences of the two.
    EstimateError,
    /// Leases settled with a usage that has no price, or has none for a part of it.
    Unpriced,
    /// Leases settled at another model's price, because their own is unknown.
    GuessedPrice,
}

impl Counter {
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

struct Stripe {
    /// One a counter. Raised by the threads of the stripe, read by whoever sums up.
    counters: [AtomicU64; Counter::ALL.len()],
}

/// Counters of one tenant and model, and the output lengths learned from them.
pub struct Tally {
    /// Made when a thread first counts: most tenants are served by few.
    stripes: [OnceBox<CachePadded<Stripe>>; STRIPES],
    /// One a reason; made by the first refusal.
    reasons: OnceBox<[AtomicU64; Reason::ALL.len()]>,
    /// Output tokens a choice, by bucket. Raised by settlements, halved by the one that finds them full. Made by the first.
    outputs: OnceBox<[AtomicU32; BUCKETS]>,
    /// Settlements recorded in `outputs` since it was made.
    learned: AtomicU64,
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
            stripes: std::array::from_fn(|_| OnceBox::empty()),
            reasons: OnceBox::empty(),
            outputs: OnceBox::empty(),
            learned: AtomicU64::new(0),
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

impl Tally {
    fn stripe(&self) -> &Stripe {
        self.stripes[thread_hint() % STRIPES]
            .get_or_make(|| CachePadded::new(Stripe { counters: std::array::from_fn(|_| AtomicU64::new(0)) }))
    }

    pub(crate) fn add(&self, counter: Counter, amount: u64) {
        // ORDERING: relaxed; each counter is a figure by itself, and readers sum what they see.
        self.stripe().counters[counter as usize].fetch_add(amount, Ordering::Relaxed);
    }

    pub(crate) fn refused(&self, reason: Reason) {
        // ORDERING: relaxed, as in `add`.
        self.reasons.get_or_make(|| std::array::from_fn(|_| AtomicU64::new(0)))[reason as usize]
            .fetch_add(1, Ordering::Relaxed);
    }

    /// A counter's sum.
    pub fn get(&self, counter: Counter) -> u64 {
        // ORDERING: relaxed, as in `add`.
        let one = |stripe: &CachePadded<Stripe>| stripe.counters[counter as usize].load(Ordering::Relaxed);
        self.stripes.iter().filter_map(OnceBox::get).map(one).fold(0, u64::wrapping_add)
    }

    /// How often a request was refused or told to wait for this reason.
    pub fn reason(&self, reason: Reason) -> u64 {
        // ORDERING: relaxed, as in `add`.
        self.reasons.get().map_or(0, |reasons| reasons[reason as usize].load(Ordering::Relaxed))
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
        // ORDERING: relaxed throughout; the histogram is a statistic, and a count that is lost while another thread
        // halves the buckets changes it by less than its own error.
        let outputs = self.outputs.get_or_make(|| std::array::from_fn(|_| AtomicU32::new(0)));
        outputs[history::bucket_of(output)].fetch_add(1, Ordering::Relaxed);
        let new = output.min(MAX_AMOUNT) << 8;
        // ORDERING: relaxed, as above.
        let mean = self.mean.load(Ordering::Relaxed).checked_sub(1).map_or(new, |mean| mean - mean / 10 + new / 10);
        // ORDERING: relaxed, as above.
        self.mean.store(mean + 1, Ordering::Relaxed);
        // ORDERING: relaxed, as above.
        let learned = self.learned.fetch_add(1, Ordering::Relaxed) + 1;
        if !learned.is_multiple_of(RELEARN_EVERY) {
            return;
        }
        let mut buckets: [u32; BUCKETS] = std::array::from_fn(|i| outputs[i].load(Ordering::Relaxed));
        let total: u64 = buckets.iter().map(|count| *count as u64).sum();
        if let Some(p95) = history::p95(&buckets) {
            // ORDERING: relaxed, as above.
            self.p95.store(p95 + 1, Ordering::Relaxed);
        }
        if total >= history::HALVE_AT {
            history::halve(&mut buckets);
            for (bucket, count) in outputs.iter().zip(buckets) {
                // ORDERING: relaxed, as above.
                bucket.store(count, Ordering::Relaxed);
            }
        }
    }
}
