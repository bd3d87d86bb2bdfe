//! Observing: a gate's counters and open leases as Prometheus text.
//!
//! Floor 4. Invariant: no I/O; a label is a name of the policy, a lane or a code, never a user, a key or prompt text.

mod queues;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use crate::gate::{Counter, Gate, Snapshot, Tally};
use crate::lease::Record;
use crate::principal::Principal;
use crate::reason::Reason;
use crate::refusal::Balance;
use crate::store::Store;
use crate::time::{Now, SECOND};
use crate::units::{Meter, Usd};

/// The media type of what [`prometheus`] writes.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A counter, and the label and value that tell it from those of the same family.
type Labelled = (Counter, &'static str, &'static str);

/// The families of counters: name, help, counters.
const COUNTERS: [(&str, &str, &[Labelled]); 10] = [
    (
        "decisions",
        "Answers of the gate",
        &[
            (Counter::Allowed, "action", "allow"),
            (Counter::Degraded, "action", "degrade"),
            (Counter::Queued, "action", "queue"),
            (Counter::Rejected, "action", "reject"),
        ],
    ),
    (
        "endings",
        "Leases that ended; resolved ones were unresolved before",
        &[
            (Counter::Settled, "outcome", "settled"),
            (Counter::Cancelled, "outcome", "cancelled"),
            (Counter::Unresolved, "outcome", "unresolved"),
            (Counter::Resolved, "outcome", "resolved"),
        ],
    ),
    (
        "tokens",
        "Tokens charged",
        &[(Counter::InputTokens, "direction", "input"), (Counter::OutputTokens, "direction", "output")],
    ),
    ("charged_usd", "Money charged", &[(Counter::Money, "", "")]),
    ("overrun_usd", "Money charged beyond holds", &[(Counter::MoneyOverrun, "", "")]),
    (
        "estimated_input_tokens",
        "Input estimated for the requests whose input the provider reported",
        &[(Counter::EstimatedInput, "", "")],
    ),
    ("measured_input_tokens", "Input that the provider reported for them", &[(Counter::MeasuredInput, "", "")]),
    (
        "estimate_error_tokens",
        "Sum over them of the difference of estimate and report, without its sign",
        &[(Counter::EstimateError, "", "")],
    ),
    (
        "unpriced_settlements",
        "Leases settled with a usage that has no price, or has none for a part of it",
        &[(Counter::Unpriced, "", "")],
    ),
    (
        "guessed_price_settlements",
        "Leases settled at another model's price, because their own is unknown",
        &[(Counter::GuessedPrice, "", "")],
    ),
];

/// What open leases keep, summed up.
#[derive(Debug, Default, Clone, Copy)]
struct Kept {
    leases: u64,
    tokens: u64,
    usd: u64,
    /// The age of the oldest in seconds, for unresolved ones since they became so.
    oldest: u64,
}

#[derive(Debug, Clone, Copy)]
enum Value {
    Count(u64),
    /// Units of 1e-8 USD, shown as dollars.
    Money(u64),
    /// Nanoseconds, shown as seconds.
    Nanos(u64),
    /// Thousandths of a unit of work, shown as units.
    Milli(i64),
}

type Labels = Vec<(&'static str, String)>;

#[derive(Debug)]
struct Family {
    name: String,
    help: &'static str,
    kind: MetricType,
    points: Vec<(Labels, Value)>,
}

/// All families of one reading.
#[derive(Debug, Default)]
struct Page(Vec<Family>);

/// The figures of a gate in the OpenMetrics text format, which Prometheus reads.
///
/// Counters start when the gate is built and are there three times: `quota_…` by tenant and model, `quota_lane_…` by
/// lane, `quota_global_…` over everything, refusals of unknown keys and tenants included. Gauges say what open leases
/// hold, what is unresolved and for how long, who waits, and which limits are in debt. Money is in dollars. `quota_pool_…`
/// says how full pools are and what their valves let in, `quota_queue_…` what each tenant in a lane waits for and gets,
/// `quota_lane_turns` how long lanes wait.
/// Cost: linear in tenants × models, their limits, and open leases.
pub fn prometheus<S: Store>(gate: &Gate<S>) -> S::Answer<'_, String> {
    let snapshot = gate.snapshot();
    let mut tenants: Vec<Arc<str>> = snapshot.models.keys().map(|(tenant, _)| tenant.clone()).collect();
    tenants.dedup();
    S::chain(debts(gate, tenants, Vec::new()), move |debts| {
        gate.store().open(usize::MAX, move |open| {
            let mut page = Page::default();
            page.counters(&snapshot);
            page.factors(&snapshot);
            page.open(&open, gate.now());
            page.waiting(&snapshot);
            page.queues(&snapshot.pools);
            page.debts(&debts);
            let dropped = vec![(Labels::new(), Value::Count(gate.journal().dropped()))];
            page.add("quota_journal_dropped", "Journal entries no longer there", MetricType::Counter, dropped);
            page.text()
        })
    })
}

/// The balances of all tenants that have less than nothing left, one tenant after the other.
fn debts<S: Store>(gate: &Gate<S>, mut tenants: Vec<Arc<str>>, mut found: Vec<Balance>) -> S::Answer<'_, Vec<Balance>> {
    let Some(tenant) = tenants.pop() else { return S::ready(found) };
    S::chain(gate.balances(&Principal::builder(tenant).build(), true), move |balances| {
        for balance in balances.into_iter().filter(|balance| balance.used > balance.hard) {
            let known = found.iter().any(|one| one.scope == balance.scope && one.limit == balance.limit);
            if !known {
                found.push(balance);
            }
        }
        debts(gate, tenants, found)
    })
}

impl Page {
    fn add(&mut self, name: impl Into<String>, help: &'static str, kind: MetricType, points: Vec<(Labels, Value)>) {
        self.0.push(Family { name: name.into(), help, kind, points });
    }

    fn counters(&mut self, snapshot: &Snapshot) {
        let models: Vec<(Labels, Vec<&Tally>)> = snapshot
            .models
            .iter()
            .map(|((tenant, model), tally)| {
                (vec![("tenant", tenant.to_string()), ("model", model.to_string())], vec![&**tally])
            })
            .collect();
        let lanes: Vec<(Labels, Vec<&Tally>)> =
            snapshot.lanes.iter().map(|(lane, tally)| (vec![("lane", lane.to_string())], vec![&**tally])).collect();
        let all = snapshot.models.values().map(|tally| &**tally).chain([&*snapshot.strangers]).collect();
        for (prefix, scopes) in [("quota_", models), ("quota_lane_", lanes), ("quota_global_", vec![(vec![], all)])] {
            for (name, help, counters) in COUNTERS {
                let points = scopes.iter().flat_map(|(labels, tallies)| {
                    counters.iter().map(|(counter, label, value)| {
                        let mut labels = labels.clone();
                        labels.extend((!label.is_empty()).then(|| (*label, value.to_string())));
                        let sum = sum(tallies, |tally| tally.get(*counter));
                        let money = matches!(counter, Counter::Money | Counter::MoneyOverrun);
                        (labels, if money { Value::Money(sum) } else { Value::Count(sum) })
                    })
                });
                self.add(format!("{prefix}{name}"), help, MetricType::Counter, points.collect());
            }
            let refused = scopes.iter().flat_map(|(labels, tallies)| {
                let counts = Reason::ALL.iter().map(|reason| (reason, sum(tallies, |tally| tally.reason(*reason))));
                counts.filter(|(_, count)| *count > 0).map(|(reason, count)| {
                    let mut labels = labels.clone();
                    labels.push(("reason", reason.code().to_owned()));
                    (labels, Value::Count(count))
                })
            });
            let help = "Requests refused or told to wait, by reason";
            self.add(format!("{prefix}refusals"), help, MetricType::Counter, refused.collect());
        }
    }

    fn factors(&mut self, snapshot: &Snapshot) {
        let points = snapshot.models.iter().map(|((tenant, model), tally)| {
            let labels = vec![("tenant", tenant.to_string()), ("model", model.to_string())];
            (labels, Value::Count(tally.input_factor()))
        });
        let help = "What guesses of the input are multiplied by, in thousandths";
        self.add("quota_input_factor_thousandths", help, MetricType::Gauge, points.collect());
    }

    fn open(&mut self, open: &[Record], now: Now) {
        let mut models: BTreeMap<(&str, &str, &str), Kept> = BTreeMap::new();
        let mut lanes: BTreeMap<(&str, &str), Kept> = BTreeMap::new();
        let mut all: BTreeMap<&str, Kept> = [("held", Kept::default()), ("unresolved", Kept::default())].into();
        for record in open {
            let (terms, state) = (&record.claim.terms, record.state_name());
            models.entry((terms.deal.principal.tenant(), &terms.deal.group, state)).or_default().add(record, now);
            lanes.entry((&terms.deal.lane, state)).or_default().add(record, now);
            all.entry(state).or_default().add(record, now);
        }
        let state = |state: &str| ("state", state.to_owned());
        let of_models = models.into_iter().map(|((tenant, model, at), kept)| {
            (vec![("tenant", tenant.to_owned()), ("model", model.to_owned()), state(at)], kept)
        });
        let of_lanes = lanes.into_iter().map(|((lane, at), kept)| (vec![("lane", lane.to_owned()), state(at)], kept));
        let of_all = all.into_iter().map(|(at, kept)| (vec![state(at)], kept));
        self.kept("quota_", of_models.collect());
        self.kept("quota_lane_", of_lanes.collect());
        self.kept("quota_global_", of_all.collect());
    }

    fn kept(&mut self, prefix: &str, scopes: Vec<(Labels, Kept)>) {
        for (name, help, value) in [
            ("open_leases", "Leases that have not ended", (|kept| Value::Count(kept.leases)) as fn(&Kept) -> Value),
            ("held_tokens", "Tokens that open leases keep", |kept| Value::Count(kept.tokens)),
            ("held_usd", "Money that open leases keep", |kept| Value::Money(kept.usd)),
            ("oldest_seconds", "The age of the oldest open lease", |kept| Value::Count(kept.oldest)),
        ] {
            let points = scopes.iter().map(|(labels, kept)| (labels.clone(), value(kept))).collect();
            self.add(format!("{prefix}{name}"), help, MetricType::Gauge, points);
        }
    }

    fn waiting(&mut self, snapshot: &Snapshot) {
        let (tenants, lanes) = (snapshot.waiting_tenants(), snapshot.waiting_lanes());
        for (name, label, queues) in [("quota_waiting", "tenant", &tenants), ("quota_lane_waiting", "lane", &lanes)] {
            let points = queues.iter().map(|(key, wait)| (vec![(label, key.to_string())], Value::Count(*wait)));
            self.add(name, "Requests that wait", MetricType::Gauge, points.collect());
        }
        let all = lanes.values().sum();
        let points = vec![(Labels::new(), Value::Count(all))];
        self.add("quota_global_waiting", "Requests that wait", MetricType::Gauge, points);
    }

    fn debts(&mut self, debts: &[Balance]) {
        let points = debts.iter().map(|balance| {
            let labels = vec![
                ("scope", balance.scope.to_string()),
                ("limit", balance.limit.to_string()),
                ("meter", balance.meter.name().to_owned()),
            ];
            let debt = balance.used - balance.hard;
            (labels, if balance.meter == Meter::Money { Value::Money(debt) } else { Value::Count(debt) })
        });
        let help = "What limits are used beyond their amounts; limits that are not have no line";
        self.add("quota_debt", help, MetricType::Gauge, points.collect());
    }

    fn text(self) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self));
        let mut page = String::new();
        // Writing to a string does not fail, and neither do the encoders of texts and numbers.
        text::encode(&mut page, &registry).map_or_else(|_| String::new(), |()| page)
    }
}

impl Collector for Page {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for family in self.0.iter().filter(|family| !family.points.is_empty()) {
            let mut metric = encoder.encode_descriptor(&family.name, family.help, None, family.kind)?;
            for (labels, value) in &family.points {
                let line = metric.encode_family(labels)?;
                let part = match value {
                    Value::Count(count) => {
                        match family.kind {
                            MetricType::Counter => ConstCounter::new(*count).encode(line)?,
                            _ => ConstGauge::new(*count).encode(line)?,
                        }
                        continue;
                    }
                    Value::Money(units) => dollars(*units),
                    Value::Nanos(nanos) => *nanos as f64 / SECOND as f64,
                    Value::Milli(thousandths) => *thousandths as f64 / 1000.0,
                };
                match family.kind {
                    MetricType::Counter => ConstCounter::new(part).encode(line)?,
                    _ => ConstGauge::new(part).encode(line)?,
                }
            }
        }
        Ok(())
    }
}

impl Kept {
    fn add(&mut self, record: &Record, now: Now) {
        let since = record.unresolved().map_or(record.claim.at, |unresolved| unresolved.since).mono;
        let terms = &record.claim.terms;
        self.leases += 1;
        self.tokens = self.tokens.saturating_add(terms.input.reserve).saturating_add(terms.output_ceiling);
        self.usd = self.usd.saturating_add(terms.worst_cost.to_usd().units());
        self.oldest = self.oldest.max(now.mono.saturating_sub(since) / SECOND);
    }
}

fn sum(tallies: &[&Tally], of: impl Fn(&Tally) -> u64) -> u64 {
    tallies.iter().fold(0, |sum, tally| sum.wrapping_add(of(tally)))
}

fn dollars(units: u64) -> f64 {
    units as f64 / Usd::UNITS as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Decision, ManualClock, Policy, Request, Usage};

    const POLICY: &str = "
models: {m: {price: {input: 1, output: 1}}}
tenants: {acme: {max_inflight: 2, daily_budget_usd: 1, models: {m: {}}}}
queues: {batch: {}}
";

    /// Two requests, one settled with more than it held and one unresolved, a refusal and a stranger.
    #[test]
    fn what_happened_can_be_read() {
        let clock = Arc::new(ManualClock::at_instant("2026-11-30T12:00:00Z").unwrap());
        let gate = Gate::builder(Policy::from_yaml(POLICY).unwrap()).clock(clock.clone()).build();
        let who = Principal::builder("acme").build();
        let request = Request::chat("m").input_tokens(100_000).max_output_tokens(100_000);
        let (Decision::Allow(one), Decision::Allow(two)) = (gate.admit(&who, &request), gate.admit(&who, &request))
        else {
            panic!("not allowed")
        };
        assert!(matches!(gate.admit(&who, &request), Decision::Reject(_)));
        assert!(gate.authenticate("nobody's").is_err());
        one.settle(Usage::tokens(900_000, 50_000)).unwrap();
        drop(two);
        clock.advance(std::time::Duration::from_millis(2500));
        let page = prometheus(&gate);
        for line in [
            "quota_decisions_total{tenant=\"acme\",model=\"m\",action=\"allow\"} 2",
            "quota_lane_decisions_total{lane=\"batch\",action=\"reject\"} 1",
            "quota_global_decisions_total{action=\"reject\"} 2",
            "quota_refusals_total{tenant=\"acme\",model=\"m\",reason=\"concurrency_exceeded\"} 1",
            "quota_global_refusals_total{reason=\"key_unknown\"} 1",
            "quota_endings_total{tenant=\"acme\",model=\"m\",outcome=\"unresolved\"} 1",
            "quota_lane_tokens_total{lane=\"batch\",direction=\"input\"} 900000",
            "quota_charged_usd_total{tenant=\"acme\",model=\"m\"} 0.95",
            "quota_overrun_usd_total{tenant=\"acme\",model=\"m\"} 0.75",
            "quota_estimate_error_tokens_total{tenant=\"acme\",model=\"m\"} 800000",
            "quota_open_leases{tenant=\"acme\",model=\"m\",state=\"unresolved\"} 1",
            "quota_held_tokens{tenant=\"acme\",model=\"m\",state=\"unresolved\"} 200000",
            "quota_global_open_leases{state=\"held\"} 0",
            "quota_lane_oldest_seconds{lane=\"batch\",state=\"unresolved\"} 2",
            "quota_debt{scope=\"tenant:acme\",limit=\"daily_budget_usd\",meter=\"usd\"} 0.15",
            "quota_journal_dropped_total 0",
        ] {
            assert!(page.lines().any(|found| found == line), "no {line} in\n{page}");
        }
        assert!(page.ends_with("# EOF\n"));
    }

    /// One in a pool that takes one, one that waits, one that waited a second and a half, one too many.
    #[test]
    fn a_queue_can_be_read() {
        let policy = "
models: {m: {pool: h200}}
tenants: {acme: {max_queue: 1, models: {m: {}}}}
queues: {chat: {max_wait_ms: 9000}}";
        let clock = Arc::new(ManualClock::at_instant("2026-11-30T12:00:00Z").unwrap());
        let gate = Gate::builder(Policy::from_yaml(policy).unwrap()).clock(clock.clone());
        let gate = gate.pool("h200", crate::gpu::FixedPool::new(1, 1, Some(20_000))).build();
        let (who, request) =
            (Principal::builder("acme").build(), Request::chat("m").input_tokens(100).max_output_tokens(10));
        let Decision::Allow(first) = gate.admit(&who, &request) else { panic!("not allowed") };
        let Decision::Queue(second) = gate.admit(&who, &request) else { panic!("not queued") };
        assert_eq!(gate.admit(&who, &request).reason(), Some(Reason::QueueFull));
        clock.advance(std::time::Duration::from_millis(1500));
        first.settle(Usage::tokens(100, 10)).unwrap();
        let Decision::Allow(_second) = gate.admit_again(second, &who, &request) else { panic!("not allowed") };
        let Decision::Queue(_third) = gate.admit(&who, &request) else { panic!("not queued") };
        let page = prometheus(&gate);
        for line in [
            "quota_pool_in_flight{pool=\"h200\"} 1",
            "quota_pool_in_flight_limit{pool=\"h200\"} 1",
            "quota_pool_kept_tokens{pool=\"h200\"} 105",
            "quota_pool_kept_tokens_limit{pool=\"h200\"} 19000",
            "quota_pool_pressure_percent{pool=\"h200\"} 100",
            "quota_pool_waiting{pool=\"h200\"} 1",
            "quota_queue_waiting{pool=\"h200\",lane=\"chat\",tenant=\"acme\"} 1",
            "quota_queue_work_total{pool=\"h200\",lane=\"chat\",tenant=\"acme\"} 140.0",
            "quota_queue_turns_total{pool=\"h200\",lane=\"chat\",tenant=\"acme\"} 2",
            "quota_queue_waited_seconds_total{pool=\"h200\",lane=\"chat\",tenant=\"acme\"} 1.5",
            "quota_queue_unserved_total{pool=\"h200\",lane=\"chat\",tenant=\"acme\",outcome=\"full\"} 1",
            "quota_lane_turns_total{pool=\"h200\",lane=\"chat\",le=\"1\"} 1",
            "quota_lane_turns_total{pool=\"h200\",lane=\"chat\",le=\"3\"} 2",
            "quota_lane_turns_total{pool=\"h200\",lane=\"chat\",le=\"+Inf\"} 2",
            "quota_lane_longest_wait_seconds{pool=\"h200\",lane=\"chat\"} 1.5",
            "quota_waiting{tenant=\"acme\"} 1",
        ] {
            assert!(page.lines().any(|found| found == line), "no {line} in\n{page}");
        }
        assert!(!page.contains("quota_pool_stale_seconds{"), "it never reported");
    }
}
