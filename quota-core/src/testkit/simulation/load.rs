//! Loads: the six shapes of traffic, and what a request of each is like.
//!
//! Floor 5. Invariant: a load is numbers; whatever is random comes from the dice that it is handed.

use super::dice::Dice;

const MILLI: u64 = 1_000_000;

/// A shape of traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// Very many short requests.
    ShortStorm,
    /// Few requests with long contexts.
    LongContext,
    /// Long answers that are streamed.
    Streaming,
    /// Askers that come back at once, again and again.
    RetryStorm,
    /// One tenant sends many times what it usually does.
    Spike,
    /// Each tenant does so in its turn.
    Spikes,
}

/// What the requests of a load are like.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    /// The mean time between two arrivals, in nanoseconds.
    pub(super) gap: u64,
    pub(super) input: (u64, u64),
    pub(super) output: (u64, u64),
    /// Percentages: of streams, and of requests for the pool.
    pub(super) streamed: u64,
    pub(super) pooled: u64,
    /// How often a refused request is sent again, at most, and after how long if nobody says.
    pub(super) retries: u32,
    pub(super) patience: u64,
}

impl Load {
    /// All, in the order in which seeds take them.
    pub const ALL: [Load; 6] =
        [Load::ShortStorm, Load::LongContext, Load::Streaming, Load::RetryStorm, Load::Spike, Load::Spikes];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Load::ShortStorm => "short storm",
            Load::LongContext => "long context",
            Load::Streaming => "streaming",
            Load::RetryStorm => "retry storm",
            Load::Spike => "spike",
            Load::Spikes => "spikes",
        }
    }

    pub(super) fn shape(self) -> Shape {
        let common = Shape {
            gap: 30 * MILLI,
            input: (10, 2000),
            output: (1, 200),
            streamed: 40,
            pooled: 40,
            retries: 1,
            patience: 500 * MILLI,
        };
        match self {
            Load::ShortStorm => Shape { gap: 3 * MILLI, input: (5, 200), output: (1, 16), streamed: 10, ..common },
            Load::LongContext => Shape { gap: 80 * MILLI, input: (8000, 60_000), output: (50, 500), ..common },
            Load::Streaming => Shape { gap: 40 * MILLI, output: (100, 1000), streamed: 95, ..common },
            Load::RetryStorm => Shape { gap: 10 * MILLI, retries: 8, patience: 20 * MILLI, ..common },
            Load::Spike | Load::Spikes => common,
        }
    }

    /// How much sooner the next request comes than usual, and whose it is, at a part of the run in millionths.
    pub(super) fn whose(self, part: u64, tenants: usize, dice: &mut Dice) -> (u64, usize) {
        let any = dice.below(tenants as u64) as usize;
        let burst = match self {
            Load::Spike if (300_000..600_000).contains(&part) => Some(0),
            Load::Spikes if part % 250_000 < 120_000 => Some((part / 250_000) as usize % tenants),
            _ => None,
        };
        match burst {
            // Nine of ten requests are its own while it lasts.
            Some(tenant) => (10, if dice.one_in(10) { any } else { tenant }),
            None => (1, any),
        }
    }
}
