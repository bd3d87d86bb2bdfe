//! The families of the queues in front of pools.
//!
//! Floor 4. Invariant: no I/O; labels are pools, lanes and tenants of the policy.

use prometheus_client::metrics::MetricType;

use super::{Labels, Page, Value};
use crate::gate::PoolFigures;
use crate::scheduler::{Counts, LaneFigures, TenantFigures, WAIT_BOUNDS_MS};

/// A figure of a pool: name, help, value where there is one.
type OfPool = (&'static str, &'static str, fn(&PoolFigures) -> Option<Value>);

const POOLS: [OfPool; 9] = [
    ("in_flight", "Requests in the pool", |pool| Some(Value::Count(pool.queue.valve.in_flight))),
    ("in_flight_limit", "The most that the valve lets in", |pool| Some(Value::Count(pool.queue.valve.most))),
    ("kept_tokens", "Tokens that they are expected to keep in the pool's memory", |pool| {
        Some(Value::Count(pool.queue.valve.kept))
    }),
    ("kept_tokens_limit", "The most that the valve lets in", |pool| Some(Value::Count(pool.queue.valve.most_kept))),
    ("pressure_percent", "How full the pool is, as stated or by its valve", |pool| {
        Some(Value::Count(pool.percent.into()))
    }),
    ("stale_seconds", "How old the newest report of the pool is; no line if there was none", |pool| {
        Some(Value::Nanos(pool.queue.staleness?.as_nanos().try_into().ok()?))
    }),
    (
        "first_token_seconds",
        "How long after its turn a request's first token comes, newer ones weighing more",
        |pool| Some(Value::Nanos(pool.queue.to_first_token.as_nanos().try_into().ok()?)),
    ),
    ("work_per_second", "Units of work served a second while there is a backlog; no line before there was", |pool| {
        Some(Value::Milli(i64::try_from(pool.queue.pace?).ok()?))
    }),
    ("waiting", "Requests that wait for the pool", |pool| {
        Some(Value::Count(pool.queue.lanes.iter().map(|lane| lane.queued).sum()))
    }),
];

/// A figure of a tenant in a lane: name, help, kind, value.
type OfTenant = (&'static str, &'static str, MetricType, fn(&TenantFigures) -> Value);

const TENANTS: [OfTenant; 6] = [
    ("waiting", "Requests that wait", MetricType::Gauge, |tenant| Value::Count(tenant.flow.queued.into())),
    ("in_flight", "Requests in the pool", MetricType::Gauge, |tenant| Value::Count(tenant.flow.in_flight.into())),
    ("deficit", "Units of work that may still be spent; less than zero is debt", MetricType::Gauge, |tenant| {
        Value::Milli(tenant.flow.deficit)
    }),
    ("work", "Units of work served, of requests that have ended", MetricType::Counter, |tenant| {
        Value::Milli(tenant.flow.served.min(i64::MAX as u64) as i64)
    }),
    ("turns", "Turns given", MetricType::Counter, |tenant| Value::Count(tenant.counts.waits.iter().sum())),
    ("waited_seconds", "How long was waited for them, summed up", MetricType::Counter, |tenant| {
        Value::Nanos(tenant.counts.waited)
    }),
];

/// What became of requests that got no turn: the label and the count.
type Lost = (&'static str, fn(&Counts) -> u64);

const LOST: [Lost; 6] = [
    ("full", |counts| counts.full),
    ("overloaded", |counts| counts.overloaded),
    ("timed_out", |counts| counts.timed_out),
    ("left", |counts| counts.left),
    ("put_back", |counts| counts.put_back),
    ("unused", |counts| counts.unused),
];

impl Page {
    /// The figures of the queues. A tenant's counters start again after it was forgotten for having nothing in the queue.
    pub(super) fn queues(&mut self, pools: &[PoolFigures]) {
        let shown =
            || pools.iter().filter(|pool| pool.gated || pool.queue.lanes.iter().any(|lane| !lane.tenants.is_empty()));
        for (name, help, value) in POOLS {
            let points = shown().filter_map(|pool| Some((vec![("pool", pool.pool.to_string())], value(pool)?)));
            self.add(format!("quota_pool_{name}"), help, MetricType::Gauge, points.collect());
        }
        let lanes = || shown().flat_map(|pool| pool.queue.lanes.iter().map(move |lane| (labels(pool, lane), lane)));
        for (name, help, kind, value) in TENANTS {
            let points = lanes().flat_map(|(labels, lane)| {
                lane.tenants.iter().map(move |tenant| (with(&labels, "tenant", &tenant.tenant), value(tenant)))
            });
            self.add(format!("quota_queue_{name}"), help, kind, points.collect());
        }
        let lost = lanes().flat_map(|(labels, lane)| {
            lane.tenants.iter().flat_map(move |tenant| {
                let labels = with(&labels, "tenant", &tenant.tenant);
                LOST.map(|(what, count)| (with(&labels, "outcome", what), Value::Count(count(&tenant.counts))))
            })
        });
        let help = "Requests that got no turn, and turns that were given back for want of room in a limit";
        self.add("quota_queue_unserved", help, MetricType::Counter, lost.collect());
        let waits = lanes().flat_map(|(labels, lane)| {
            let mut so_far = 0;
            let bounds = WAIT_BOUNDS_MS.map(|millis| (millis as f64 / 1000.0).to_string());
            let bounds = bounds.into_iter().chain(["+Inf".to_owned()]).zip(lane.counts.waits);
            bounds.map(move |(bound, count)| {
                so_far += count;
                (with(&labels, "le", &bound), Value::Count(so_far))
            })
        });
        let help = "Turns given, by how many seconds were waited at most";
        self.add("quota_lane_turns", help, MetricType::Counter, waits.collect());
        for (name, help, value) in [
            (
                "deficit",
                "Units of work that the lane may still spend against the others",
                (|lane| Value::Milli(lane.deficit)) as fn(&LaneFigures) -> Value,
            ),
            ("longest_wait_seconds", "The longest wait for a turn", |lane| Value::Nanos(lane.counts.longest_wait)),
        ] {
            let points = lanes().map(|(labels, lane)| (labels, value(lane)));
            self.add(format!("quota_lane_{name}"), help, MetricType::Gauge, points.collect());
        }
    }
}

fn labels(pool: &PoolFigures, lane: &LaneFigures) -> Labels {
    vec![("pool", pool.pool.to_string()), ("lane", lane.lane.to_string())]
}

fn with(labels: &Labels, name: &'static str, value: &str) -> Labels {
    let mut labels = labels.clone();
    labels.push((name, value.to_owned()));
    labels
}
