//! Numbers that look random, the same ones for the same seed.

/// Dice of SplitMix64.
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    /// Dice that roll the same numbers for the same seed.
    pub fn new(seed: u64) -> Dice {
        Dice(seed)
    }

    /// Any number.
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// From 0 to 1, without either.
    pub fn unit(&mut self) -> f64 {
        ((self.roll() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }

    /// The time to the next of events that come at this rate.
    pub fn exponential(&mut self, rate: f64) -> f64 {
        -self.unit().ln() / rate
    }

    /// A length with this mean and this sigma of its logarithm.
    pub fn log_normal(&mut self, mean: f64, sigma: f64) -> f64 {
        let normal = (-2.0 * self.unit().ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos();
        (mean.ln() - sigma * sigma / 2.0 + sigma * normal).exp()
    }
}
