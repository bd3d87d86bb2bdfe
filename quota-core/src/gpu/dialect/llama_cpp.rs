//! llama.cpp's server: its series, which have no labels, and its slots.
//!
//! Floor 2. Invariant: slots in use are no part of a memory that they may share.

use serde::Deserialize;

use super::super::ReplicaLoad;
use super::super::exposition::Sample;
use super::super::figures::{Highest, Sum, capacity};
use super::{MAX_TEXT, Models, Read, Series, Unreadable, json};

#[derive(Default)]
pub(super) struct Reader {
    processing: Sum,
    deferred: Sum,
    kv: Highest,
}

impl<'a> Series<'a> for Reader {
    fn take(&mut self, sample: &Sample<'a>, _models: &mut Models<'a>) {
        match sample.name {
            "llamacpp:requests_processing" => self.processing.add(sample.value),
            "llamacpp:requests_deferred" => self.deferred.add(sample.value),
            "llamacpp:kv_cache_usage_ratio" => self.kv.raise(sample.value),
            _ => {}
        }
    }

    fn load(self, _model: Option<&str>) -> ReplicaLoad {
        ReplicaLoad {
            running: self.processing.get(),
            waiting: self.deferred.get(),
            kv_used_ppm: self.kv.get(),
            ..ReplicaLoad::default()
        }
    }
}

/// A slot; its prompt, which some versions show, is passed over.
#[derive(Deserialize)]
struct Slot {
    is_processing: Option<bool>,
}

/// Reads `/slots`.
pub(super) fn slots(text: &str) -> Result<Read, Unreadable> {
    let slots: Vec<Slot> = json(text, MAX_TEXT, "llama.cpp's /slots")?;
    let mut running = Sum::default();
    slots.iter().for_each(|slot| running.plus(slot.is_processing.map(u64::from)));
    let max_running = capacity(Some(slots.len() as u64));
    let load = ReplicaLoad { running: running.get(), max_running, ..ReplicaLoad::default() };
    Ok(Read { load, ..Read::default() })
}
