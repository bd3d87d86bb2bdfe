//! Priority hints: whose turn it is, told to engines that have a queue of their own.
//!
//! Floor 2. Invariant: of two ranks the lower one goes first in every dialect that has a hint.

use super::Dialect;

/// A field of the request that the engine orders its queue by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PriorityHint {
    /// The field's name: in the request itself, for Triton in its `parameters`.
    pub field: &'static str,
    /// The field's value.
    pub value: i64,
}

impl Dialect {
    /// What tells an engine that requests of a lower `rank` go first; `None` for one that takes no such hint. A rank is
    /// the place of a lane among the lanes of a pool, 0 the first of all. Within a rank the engine goes by arrival.
    ///
    /// Send it only where the engine was started with its priorities:
    ///
    /// * vLLM, `--scheduling-policy priority`: a lower value goes first, and among running requests the last of the order
    ///   is thrown back first when memory runs out. The value is the rank; a request without one has 0. Under `fcfs` a
    ///   value other than 0 may be refused.
    /// * SGLang, `--enable-priority-scheduling`: a higher value goes first, so the value is −rank. With
    ///   `--schedule-low-priority-values-first` the order is the other way round: then take vLLM's. One that waits throws a
    ///   running request back if it is ahead by more than `--priority-scheduling-preemption-threshold` (10): so only
    ///   ranks that far apart do.
    /// * Triton, `priority_levels` of the dynamic batcher: 1 goes first, 0 means the default level. The value is rank + 1;
    ///   there must be as many levels as ranks.
    ///
    /// TensorRT-LLM's server, TGI, llama.cpp, Ollama, LMDeploy and Ray Serve's own queues take none.
    pub const fn priority(self, rank: u8) -> Option<PriorityHint> {
        let value = match self {
            Dialect::Vllm => rank as i64,
            Dialect::Sglang => -(rank as i64),
            Dialect::Triton => rank as i64 + 1,
            _ => return None,
        };
        Some(PriorityHint { field: "priority", value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lower_ranks_go_first() {
        let values = |dialect: Dialect| [0, 1, 255].map(|rank| dialect.priority(rank).map(|hint| hint.value));
        assert_eq!(values(Dialect::Vllm), [Some(0), Some(1), Some(255)]);
        assert_eq!(values(Dialect::Sglang), [Some(0), Some(-1), Some(-255)]);
        assert_eq!(values(Dialect::Triton), [Some(1), Some(2), Some(256)]);
        let with_hint = Dialect::ALL.into_iter().filter(|dialect| dialect.priority(0).is_some()).count();
        assert_eq!(with_hint, 3);
        assert_eq!(Dialect::Vllm.priority(3).map(|hint| hint.field), Some("priority"));
    }
}
