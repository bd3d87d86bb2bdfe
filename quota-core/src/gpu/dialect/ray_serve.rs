//! Ray Serve, as a node's agent exports it.
//!
//! Floor 2. Invariant: what a router has handed to a replica is counted at the replica only.

use super::super::ReplicaLoad;
use super::super::exposition::Sample;
use super::super::figures::Sum;
use super::{Models, Series};

#[derive(Default)]
pub(super) struct Reader {
    processing: Sum,
    queued: Sum,
}

impl<'a> Series<'a> for Reader {
    fn take(&mut self, sample: &Sample<'a>, models: &mut Models<'a>) {
        let sum = match sample.name {
            "ray_serve_replica_processing_queries" => &mut self.processing,
            "ray_serve_deployment_queued_queries" => &mut self.queued,
            _ => return,
        };
        if models.takes(sample.label("deployment")) {
            sum.add(sample.value);
        }
    }

    fn load(self, _model: Option<&str>) -> ReplicaLoad {
        ReplicaLoad { running: self.processing.get(), waiting: self.queued.get(), ..ReplicaLoad::default() }
    }
}
