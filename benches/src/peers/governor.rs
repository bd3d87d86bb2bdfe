//! `governor`: six keyed checks, one after the other. They are not atomic together, and nothing is settled.

use std::num::NonZeroU32;

use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};

/// Six limiters keyed by user.
pub struct SixChecks([DefaultKeyedRateLimiter<u64>; 6]);

impl SixChecks {
    /// Six limiters that never refuse.
    pub fn new() -> SixChecks {
        let quota = || Quota::per_second(NonZeroU32::MAX).allow_burst(NonZeroU32::MAX);
        SixChecks(std::array::from_fn(|_| RateLimiter::keyed(quota())))
    }

    /// Asks all six for a user.
    pub fn turn(&self, user: usize) {
        let some = NonZeroU32::MIN;
        let key = user as u64;
        let passed = self.0.iter().all(|limiter| matches!(limiter.check_key_n(&key, some), Ok(Ok(()))));
        assert!(passed, "no limit is reached");
    }
}

impl Default for SixChecks {
    fn default() -> SixChecks {
        SixChecks::new()
    }
}
