//! A simulated pool: continuous batching, memory for keys and values and the time of each step, without a GPU.
//!
//! Floor 2. Invariant: nothing here asks for the time or rolls dice, so that the same calls give the same answers.
//!
//! [`Simulator`] is the model as a machine that is driven from event to event, for tests, benchmarks and planning.
//! [`SimulatedPool`] is the same behind [`GpuBackend`](super::GpuBackend), for demonstrations in real time.

mod machine;
mod pool;
mod replica;
mod shape;

#[cfg(test)]
mod tests;

pub use machine::{Simulator, SubmitError};
pub use pool::SimulatedPool;
pub use shape::Shape;

/// What happens in a simulated pool. `at` is a moment in nanoseconds on the host's scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// So many further tokens of a prompt have been worked through. What is computed again is not told again.
    Prefilled {
        /// The request.
        id: u64,
        /// Prompt tokens since the last time.
        tokens: u64,
        /// When.
        at: u64,
    },
    /// The first token of an answer.
    FirstToken {
        /// The request.
        id: u64,
        /// When.
        at: u64,
    },
    /// An answer has grown; told every [`Shape::progress_every`] tokens.
    Progress {
        /// The request.
        id: u64,
        /// Tokens of the answer so far.
        out: u64,
        /// When.
        at: u64,
    },
    /// A request was thrown back into its replica's queue for lack of memory; its answer goes on later.
    Preempted {
        /// The request.
        id: u64,
        /// When.
        at: u64,
    },
    /// An answer is complete.
    Finished {
        /// The request.
        id: u64,
        /// Tokens of the answer.
        out: u64,
        /// When.
        at: u64,
    },
    /// The replica of a request is gone.
    Lost {
        /// The request.
        id: u64,
        /// Tokens of the answer until then.
        out: u64,
        /// When.
        at: u64,
    },
}
