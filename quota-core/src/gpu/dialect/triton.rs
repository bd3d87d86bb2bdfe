//! Triton's core, and the TensorRT-LLM backend in it.
//!
//! Floor 2. Invariant: what waits in the core and what waits in the backend are different requests.

use std::collections::HashMap;

use super::super::ReplicaLoad;
use super::super::exposition::Sample;
use super::super::figures::{Highest, MAX_GROUPS, Sum, capacity, product};
use super::{Models, Series};

#[derive(Default)]
pub(super) struct Reader<'a> {
    pending: Sum,
    /// By model and version.
    backends: HashMap<(&'a str, &'a str), Backend, ahash::RandomState>,
    too_many: bool,
}

/// One version of a model of the backend.
#[derive(Default)]
struct Backend {
    wanted: bool,
    waiting: Sum,
    scheduled: Sum,
    max: Sum,
    fraction: Highest,
    blocks: Sum,
    block_size: Sum,
}

impl<'a> Series<'a> for Reader<'a> {
    fn take(&mut self, sample: &Sample<'a>, models: &mut Models<'a>) {
        let selector = match sample.name {
            "nv_inference_pending_request_count" => {
                if models.takes(sample.label("model")) {
                    self.pending.add(sample.value);
                }
                return;
            }
            "nv_trt_llm_request_metrics" => "request_type",
            "nv_trt_llm_kv_cache_block_metrics" => "kv_cache_block_type",
            _ => return,
        };
        let wanted = models.takes(sample.label("model"));
        let Some(what) = sample.label(selector) else { return };
        let raw = |label: &str| sample.label(label).map_or("", |value| value.raw());
        let Some(backend) = self.backend(raw("model"), raw("version"), wanted) else { return };
        let sum = match (selector, what.raw()) {
            ("request_type", "waiting") => &mut backend.waiting,
            ("request_type", "scheduled") => &mut backend.scheduled,
            ("request_type", "max") => &mut backend.max,
            ("kv_cache_block_type", "fraction") => return backend.fraction.raise(sample.value),
            ("kv_cache_block_type", "max") => &mut backend.blocks,
            ("kv_cache_block_type", "tokens_per") => &mut backend.block_size,
            _ => return,
        };
        sum.add(sample.value);
    }

    fn load(self, _model: Option<&str>) -> ReplicaLoad {
        let mut chosen: Vec<&Backend> = self.backends.values().filter(|backend| backend.wanted).collect();
        let mut names = self.backends.keys().map(|(model, _)| model);
        let first = names.next();
        // An ensemble is asked for by its own name, and the model inside has another.
        if chosen.is_empty() && names.all(|name| Some(name) == first) {
            chosen = self.backends.values().collect();
        }
        if self.too_many {
            return ReplicaLoad::default();
        }
        let sum = |of: fn(&Backend) -> Sum| chosen.iter().fold(Sum::default(), |sum, backend| sum.and(of(backend)));
        let mut tokens = Sum::default();
        let told = chosen.iter().filter(|backend| backend.blocks.is_there() || backend.block_size.is_there());
        told.for_each(|backend| tokens.plus(product(backend.blocks.get(), backend.block_size.get())));
        ReplicaLoad {
            running: sum(|backend| backend.scheduled).get(),
            waiting: self.pending.and(sum(|backend| backend.waiting)).get(),
            kv_used_ppm: Highest::highest(chosen.iter().map(|backend| backend.fraction)).get(),
            kv_tokens: capacity(tokens.get()),
            max_running: capacity(sum(|backend| backend.max).get()),
            ..ReplicaLoad::default()
        }
    }
}

impl<'a> Reader<'a> {
    fn backend(&mut self, model: &'a str, version: &'a str, wanted: bool) -> Option<&mut Backend> {
        if self.backends.len() == MAX_GROUPS && !self.backends.contains_key(&(model, version)) {
            self.too_many = true;
            return None;
        }
        Some(self.backends.entry((model, version)).or_insert_with(|| Backend { wanted, ..Backend::default() }))
    }
}
