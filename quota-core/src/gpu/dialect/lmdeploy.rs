//! LMDeploy's series.
//!
//! Floor 2. Invariant: who waits for a handle and who waits in the engine are different requests.

use super::super::ReplicaLoad;
use super::super::exposition::Sample;
use super::super::figures::{Highest, Sum};
use super::{Models, Series};

#[derive(Default)]
pub(super) struct Reader {
    running: Sum,
    in_engine: Sum,
    before_it: Sum,
    kv: Highest,
}

impl<'a> Series<'a> for Reader {
    fn take(&mut self, sample: &Sample<'a>, models: &mut Models<'a>) {
        let Some(name) = sample.name.strip_prefix("lmdeploy:") else { return };
        let sum = match name {
            "num_requests_running" => Some(&mut self.running),
            "num_requests_waiting" => Some(&mut self.in_engine),
            "num_api_requests_waiting" => Some(&mut self.before_it),
            "gpu_cache_usage_perc" => None,
            _ => return,
        };
        if !models.takes(sample.label("model_name")) {
            return;
        }
        match sum {
            Some(sum) => sum.add(sample.value),
            None => self.kv.raise(sample.value),
        }
    }

    fn load(self, _model: Option<&str>) -> ReplicaLoad {
        ReplicaLoad {
            running: self.running.get(),
            waiting: self.in_engine.and(self.before_it).get(),
            kv_used_ppm: self.kv.get(),
            ..ReplicaLoad::default()
        }
    }
}
