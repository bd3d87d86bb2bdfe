//! Text Generation Inference: two gauges without labels, and `/info`.
//!
//! Floor 2. Invariant: the tokens that a batch has reserved are no part of a memory whose size is unknown.

use serde::Deserialize;

use super::super::ReplicaLoad;
use super::super::exposition::Sample;
use super::super::figures::{Sum, capacity, count};
use super::{MAX_JSON, Models, Read, Series, Unreadable, json};

#[derive(Default)]
pub(super) struct Reader {
    batch: Sum,
    queue: Sum,
}

impl<'a> Series<'a> for Reader {
    fn take(&mut self, sample: &Sample<'a>, _models: &mut Models<'a>) {
        match sample.name {
            "tgi_batch_current_size" => self.batch.add(sample.value),
            "tgi_queue_size" => self.queue.add(sample.value),
            _ => {}
        }
    }

    fn load(self, _model: Option<&str>) -> ReplicaLoad {
        ReplicaLoad { running: self.batch.get(), waiting: self.queue.get(), ..ReplicaLoad::default() }
    }
}

#[derive(Deserialize)]
struct Info {
    model_id: String,
    max_concurrent_requests: Option<f64>,
}

/// Reads `/info`.
pub(super) fn info(text: &str) -> Result<Read, Unreadable> {
    let info: Info = json(text, MAX_JSON, "TGI's /info")?;
    let max_running = capacity(info.max_concurrent_requests.and_then(count));
    let load = ReplicaLoad { max_running, ..ReplicaLoad::default() };
    Ok(Read { load, models: vec![info.model_id], ..Read::default() })
}
