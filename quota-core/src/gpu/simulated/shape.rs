//! What a simulated pool is made of: how many replicas, how much they hold and how long their steps take.
//!
//! Floor 2. Invariant: a shape is only numbers, all of them integers; times are in nanoseconds.

/// The measures of a simulated pool. All replicas are alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Replicas at the start.
    pub replicas: usize,
    /// The most sequences in a running batch.
    pub max_running: u64,
    /// The tokens that a replica's memory for keys and values holds.
    pub kv_tokens: u64,
    /// The most prompt tokens that one step works through.
    pub prefill_chunk: u64,
    /// Whether memory for the whole answer is set aside when a sequence joins the batch. Otherwise only the prompt's is, and
    /// the newest sequence is thrown back when the memory runs out.
    pub reserve_in_full: bool,
    /// The time of a step with nothing in it.
    pub step: u64,
    /// What a step takes longer for each prompt token in it.
    pub per_prefill_token: u64,
    /// What a step takes longer for each sequence that it gives a token.
    pub per_sequence: u64,
    /// What a step takes longer for each token in the memory for keys and values.
    pub per_resident_token: u64,
    /// Progress is told whenever an answer has grown to a multiple of so many tokens; 0 for never.
    pub progress_every: u64,
}

impl Shape {
    /// Four replicas of the kind that serves a large model today: 64 sequences and 160 000 tokens each.
    pub const P4: Shape = Shape {
        replicas: 4,
        max_running: 64,
        kv_tokens: 160_000,
        prefill_chunk: 2048,
        reserve_in_full: false,
        step: 12_000_000,
        per_prefill_token: 60_000,
        per_sequence: 100_000,
        per_resident_token: 30,
        progress_every: 16,
    };

    /// One A10G with a model of seven billion parameters under S-LoRA, which sets memory aside in full.
    ///
    /// A step has to read 14 GB of weights at 0.6 TB/s (23 ms) and is driven from Python (8 ms); a token in memory is
    /// 0.5 MB of keys and values (0.85 µs at the same speed); a prompt token is 14 GFLOP at a little over half of the card's
    /// 125 TFLOP/s (0.21 ms). Of prompts of 256 tokens, eleven are taken in one step.
    pub const A10G: Shape = Shape {
        replicas: 1,
        max_running: 64,
        kv_tokens: 10_000,
        prefill_chunk: 11 * 256,
        reserve_in_full: true,
        step: 31_000_000,
        per_prefill_token: 210_000,
        per_sequence: 100_000,
        per_resident_token: 850,
        progress_every: 16,
    };

    /// How long a step takes.
    pub(super) fn step_time(&self, prefill: u64, sequences: u64, resident: u64) -> u64 {
        // A step that took no time would never let the clock move on.
        (self.step
            + self.per_prefill_token * prefill
            + self.per_sequence * sequences
            + self.per_resident_token * resident)
            .max(1)
    }
}
