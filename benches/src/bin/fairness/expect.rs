//! What the gateway expects of an answer's length: a moving mean by tenant, or noise around it.

use crate::dice::Dice;

/// What is expected before anything was seen.
const FIRST: f64 = 512.0;
/// The part that each answer has in the mean.
const WEIGHT: f64 = 0.1;

/// Expectations by tenant.
#[derive(Debug)]
pub struct Expect {
    means: Vec<f64>,
    /// Dice that make each expectation too small or too large by a factor of about three.
    noise: Option<Dice>,
}

impl Expect {
    /// Nothing was seen.
    pub fn new(tenants: usize, noise: Option<Dice>) -> Expect {
        Expect { means: vec![FIRST; tenants], noise }
    }

    /// What the next answer is expected to be, no longer than declared.
    pub fn expected(&mut self, tenant: usize, declared: u64) -> u64 {
        let factor = self.noise.as_mut().map_or(1.0, |dice| if dice.roll().is_multiple_of(2) { 0.3 } else { 3.0 });
        ((self.means[tenant] * factor) as u64).clamp(1, declared.max(1))
    }

    /// An answer was so long.
    pub fn saw(&mut self, tenant: usize, output: u64) {
        self.means[tenant] += WEIGHT * (output as f64 - self.means[tenant]);
    }
}
