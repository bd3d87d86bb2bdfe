//! `trtllm-serve`, its Prometheus text.
//!
//! Floor 2. Invariant: tokens are told only where blocks and their size are.

use super::super::ReplicaLoad;
use super::super::exposition::Sample;
use super::super::figures::{Highest, Sum, capacity, count, product};
use super::{Models, Series};

/// What some versions write for a model's name.
const NO_NAME: &str = "undefined";

#[derive(Default)]
pub(super) struct Reader {
    running: Sum,
    waiting: Sum,
    max: Sum,
    kv: Highest,
    blocks: Sum,
    block_size: Sum,
}

impl<'a> Series<'a> for Reader {
    fn take(&mut self, sample: &Sample<'a>, models: &mut Models<'a>) {
        let Some(name) = sample.name.strip_prefix("trtllm_") else { return };
        let sum = match name {
            "num_requests_running" => Some(&mut self.running),
            "num_requests_waiting" => Some(&mut self.waiting),
            "max_num_active_requests" => Some(&mut self.max),
            "kv_cache_max_blocks" => Some(&mut self.blocks),
            "kv_cache_utilization" | "kv_cache_tokens_per_block" => None,
            _ => return,
        };
        if !models.takes(sample.label("model_name").filter(|name| !name.is(NO_NAME))) {
            return;
        }
        match sum {
            Some(sum) => sum.add(sample.value),
            None if name == "kv_cache_utilization" => self.kv.raise(sample.value),
            None => self.block_size.least(count(sample.value)),
        }
    }

    fn load(self, _model: Option<&str>) -> ReplicaLoad {
        ReplicaLoad {
            running: self.running.get(),
            waiting: self.waiting.get(),
            kv_used_ppm: self.kv.get(),
            kv_tokens: capacity(product(self.blocks.get(), self.block_size.get())),
            max_running: capacity(self.max.get()),
            ..ReplicaLoad::default()
        }
    }
}
