//! vLLM's series, under their own names and under those that Ray gives them.
//!
//! Floor 2. Invariant: of two names of one figure the first that is there counts, so none is counted twice.

use super::super::ReplicaLoad;
use super::super::exposition::Sample;
use super::super::figures::{Highest, Sum, capacity, product};
use super::{Models, Series};

#[derive(Default)]
pub(super) struct Reader {
    own: Figures,
    by_ray: Figures,
}

/// The figures under one prefix.
#[derive(Default)]
struct Figures {
    running: Sum,
    waiting: Sum,
    kv: Highest,
    kv_before: Highest,
    preemptions: Sum,
    preemptions_plain: Sum,
    /// Series of `num_requests_running`: one for each engine.
    engines: u64,
    /// Series of `cache_config_info`: one for each engine, or one in all.
    configs: u64,
    /// The least of what they say: tokens of one engine, and blocks × block size.
    engine_tokens: Sum,
    blocks: Sum,
}

impl<'a> Series<'a> for Reader {
    fn take(&mut self, sample: &Sample<'a>, models: &mut Models<'a>) {
        let (figures, name) = match (sample.name.strip_prefix("vllm:"), sample.name.strip_prefix("ray_vllm_")) {
            (Some(name), _) => (&mut self.own, name),
            (None, Some(name)) => (&mut self.by_ray, name),
            (None, None) => return,
        };
        figures.take(name, sample, models);
    }

    fn load(self, _model: Option<&str>) -> ReplicaLoad {
        if self.own.is_there() { self.own.load() } else { self.by_ray.load() }
    }
}

impl Figures {
    fn take<'a>(&mut self, name: &str, sample: &Sample<'a>, models: &mut Models<'a>) {
        let (sum, kv) = match name {
            "num_requests_running" => (Some(&mut self.running), None),
            "num_requests_waiting" => (Some(&mut self.waiting), None),
            "num_preemptions_total" => (Some(&mut self.preemptions), None),
            "num_preemptions" => (Some(&mut self.preemptions_plain), None),
            "kv_cache_usage_perc" => (None, Some(&mut self.kv)),
            "gpu_cache_usage_perc" => (None, Some(&mut self.kv_before)),
            "cache_config_info" => (None, None),
            _ => return,
        };
        if !models.takes(sample.label("model_name")) {
            return;
        }
        match (sum, kv) {
            (Some(sum), _) => sum.add(sample.value),
            (_, Some(kv)) => kv.raise(sample.value),
            _ => self.configure(sample),
        }
        self.engines += (name == "num_requests_running") as u64;
    }

    fn configure(&mut self, sample: &Sample<'_>) {
        let number = |label: &str| sample.label(label).and_then(|value| value.text().parse::<u64>().ok());
        self.configs += 1;
        self.engine_tokens.least(number("kv_cache_size_tokens"));
        self.blocks.least(product(number("num_gpu_blocks"), number("block_size")));
    }

    /// Whether the model is served here: its cache's configuration doesn't name it.
    fn is_there(&self) -> bool {
        self.running.is_there() || self.waiting.is_there() || self.kv.or(self.kv_before).is_there()
    }

    fn load(self) -> ReplicaLoad {
        if !self.is_there() {
            return ReplicaLoad::default();
        }
        let engines = self.engines.max(self.configs);
        let tokens = capacity(product(self.engine_tokens.get(), Some(engines)));
        ReplicaLoad {
            running: self.running.get(),
            waiting: self.waiting.get(),
            kv_used_ppm: self.kv.or(self.kv_before).get(),
            kv_tokens: tokens.or(capacity(self.blocks.get())),
            preemptions: self.preemptions.or(self.preemptions_plain).get(),
            ..ReplicaLoad::default()
        }
    }
}
