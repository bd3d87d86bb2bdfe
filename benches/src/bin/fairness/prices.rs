//! The unit of work.

/// What tokens count as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prices {
    /// A token of the prompt.
    pub input: u64,
    /// A token of the answer.
    pub output: u64,
}

impl Prices {
    /// As the published comparisons count.
    pub const COMPARED: Prices = Prices { input: 1, output: 2 };
    /// As the pools' time counts.
    pub const COST: Prices = Prices { input: 1, output: 4 };

    /// The work of a request.
    pub fn work(&self, input: u64, output: u64) -> u64 {
        self.input * input + self.output * output
    }
}
