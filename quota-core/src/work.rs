//! Work: what a request takes of a pool, in one number.
//!
//! Floor 1. Invariant: integers only, and no request counts for more than [`MAX_WORK`].

/// The most work that one request counts for, in milli-units: some 17 billion units.
pub const MAX_WORK: u64 = 1 << 44;

/// What a token takes of a pool, in milli-units of work; an input token that is not cached is usually 1000.
///
/// Output weighs more than input because it is made one token at a time. To calibrate: the time of a decoding step divided by the
/// sequences in it, over the time that prefill takes for a token; times the model's price where money should weigh too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkRates {
    /// Of an input token that is not cached.
    pub input: u32,
    /// Of an input token read from the cache.
    pub cached: u32,
    /// Of an output token.
    pub output: u32,
    /// Of a million pairs of an input and an output token: what long contexts hold memory for. Usually 0.
    pub pairs: u32,
}

impl Default for WorkRates {
    /// 1, 0.1 and 4 units; no weight on pairs.
    fn default() -> WorkRates {
        WorkRates { input: 1000, cached: 100, output: 4000, pairs: 0 }
    }
}

/// Tokens that a request takes, predicted or reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tokens {
    /// Input that is not read from the cache.
    pub input: u32,
    /// Input read from the cache.
    pub cached: u32,
    /// Output.
    pub output: u32,
}

impl Tokens {
    /// Counts of any size; what is more than a `u32` holds counts as that.
    pub fn new(input: u64, cached: u64, output: u64) -> Tokens {
        let cut = |tokens: u64| u32::try_from(tokens).unwrap_or(u32::MAX);
        Tokens { input: cut(input), cached: cut(cached), output: cut(output) }
    }

    /// The work of these tokens in milli-units, at most [`MAX_WORK`].
    pub fn work(&self, rates: &WorkRates) -> u64 {
        let times = |tokens: u32, rate: u32| u64::from(tokens) * u64::from(rate);
        let all = u64::from(self.input) + u64::from(self.cached);
        let pairs = u128::from(all) * u128::from(self.output) * u128::from(rates.pairs) / 1_000_000;
        let plain = times(self.input, rates.input)
            .saturating_add(times(self.cached, rates.cached))
            .saturating_add(times(self.output, rates.output));
        plain.saturating_add(u64::try_from(pairs).unwrap_or(u64::MAX)).min(MAX_WORK)
    }

    /// The tokens that it keeps in the pool's memory, in and out.
    pub fn kept(&self) -> u64 {
        u64::from(self.input) + u64::from(self.cached) + u64::from(self.output)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_weighed_and_bounded() {
        let rates = WorkRates::default();
        for (tokens, rates, want) in [
            ((0, 0, 0), rates, 0),
            ((100, 0, 10), rates, 140_000),
            ((100, 1000, 10), rates, 240_000),
            ((30_000, 2_000, 1_000), WorkRates { pairs: 1_000_000, ..rates }, 34_200_000 + 32_000_000),
            ((u64::MAX, u64::MAX, u64::MAX), WorkRates { pairs: u32::MAX, ..rates }, MAX_WORK),
        ] {
            let (input, cached, output) = tokens;
            assert_eq!(Tokens::new(input, cached, output).work(&rates), want, "{tokens:?} {rates:?}");
        }
    }
}
