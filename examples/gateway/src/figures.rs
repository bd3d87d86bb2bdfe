//! Figures: what a gateway has counted, holds and decided last, as one JSON object for the dashboard.
//!
//! Invariant: lists are cut at a fixed length and say by how much; money is decimal text; no prompt text, no key.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::{Arc, PoisonError};

use quota_core::gate::{Counter, Gate, Snapshot, Tally};
use quota_core::journal::{Entry, Event};
use quota_core::lease::{Record, State};
use quota_core::policy::plan::Plan;
use quota_core::scheduler::Counts;
use quota_core::time::{Now, show_instant};
use quota_core::{Balance, Meter, Principal, Reason, Refusal, Store, Usd};
use serde_json::{Value, json};

use crate::server::Gateway;

/// The most lines of a list.
const MAX_LINES: usize = 300;
/// The last entries of the journal that are shown, and so many refusals among and before them.
const LAST: usize = 60;
const LAST_REFUSALS: usize = 30;
/// The most characters of a text that an asker chose.
const MAX_TEXT: usize = 300;

/// What open leases keep.
#[derive(Debug, Default, Clone, Copy)]
struct Kept {
    held: u64,
    held_usd: u64,
    unresolved: u64,
    unresolved_usd: u64,
}

/// What belongs to one line: counters that are summed, and what is open.
#[derive(Default)]
struct Line {
    tallies: Vec<Arc<Tally>>,
    kept: Kept,
}

/// Everything at this moment.
pub fn figures(gateway: &Gateway) -> Value {
    let gate = &gateway.gate;
    let plan = gateway.plan.read().unwrap_or_else(PoisonError::into_inner).clone();
    let (snapshot, now) = (gate.snapshot(), gate.now());
    let open = gate.store().open(usize::MAX, |open| open);
    json!({
        "at": show_instant(now.wall),
        "digest": gate.digest(),
        "journal_dropped": gate.journal().dropped(),
        "frozen": cut(gate.frozen().iter().map(|freeze| json!({
            "target": freeze.target.label(), "reason": short(&freeze.reason), "author": short(&freeze.author),
        })).collect()),
        "global": global(&snapshot, &open),
        "tenants": by(&plan, &snapshot, &open, |tenant, _| (tenant.clone(), "".into()), ["tenant", ""]),
        "models": by(&plan, &snapshot, &open, |_, model| (model.clone(), "".into()), ["model", ""]),
        "pairs": by(&plan, &snapshot, &open, |tenant, model| (tenant.clone(), model.clone()), ["tenant", "model"]),
        "lanes": lanes(&plan, &snapshot, &open),
        "pools": pools(gateway, &snapshot),
        "turns": turns(&snapshot),
        "limits": limits(gate, &plan, &snapshot, &open),
        "refusals": refusals(&snapshot),
        "unresolved": unresolved(&open, now),
        "last": last(gate),
    })
}

/// A list of bounded length, and how many lines it had.
fn cut(mut lines: Vec<Value>) -> Value {
    let all = lines.len();
    lines.truncate(MAX_LINES);
    json!({ "lines": lines, "all": all })
}

fn short(text: &str) -> String {
    let mut short: String = text.chars().take(MAX_TEXT).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

fn usd(units: u64) -> String {
    Usd::from_units(units).to_string()
}

impl Kept {
    fn add(&mut self, record: &Record) {
        let usd = record.claim.terms.worst_cost.to_usd().units();
        let (count, sum) = match &*record.state() {
            State::Unresolved(_) => (&mut self.unresolved, &mut self.unresolved_usd),
            _ => (&mut self.held, &mut self.held_usd),
        };
        *count += 1;
        *sum = sum.saturating_add(usd);
    }
}

impl Line {
    /// Requests that were decided on, for the order of lines.
    fn decided(&self) -> u64 {
        let counters = [Counter::Allowed, Counter::Degraded, Counter::Queued, Counter::Rejected];
        counters.into_iter().fold(0, |sum, counter| sum.wrapping_add(self.sum(counter)))
    }

    fn sum(&self, counter: Counter) -> u64 {
        self.tallies.iter().fold(0, |sum, tally| sum.wrapping_add(tally.get(counter)))
    }

    fn to_json(&self) -> Value {
        let sum = |counter| self.sum(counter);
        json!({
            "allowed": sum(Counter::Allowed), "degraded": sum(Counter::Degraded),
            "queued": sum(Counter::Queued), "refused": sum(Counter::Rejected),
            "settled": sum(Counter::Settled), "cancelled": sum(Counter::Cancelled),
            "became_unresolved": sum(Counter::Unresolved), "resolved": sum(Counter::Resolved),
            "input_tokens": sum(Counter::InputTokens), "output_tokens": sum(Counter::OutputTokens),
            "charged_usd": usd(sum(Counter::Money)), "overrun_usd": usd(sum(Counter::MoneyOverrun)),
            "measured_input": sum(Counter::MeasuredInput), "estimate_error": sum(Counter::EstimateError),
            "open": self.kept.held, "held_usd": usd(self.kept.held_usd),
            "unresolved": self.kept.unresolved, "unresolved_usd": usd(self.kept.unresolved_usd),
        })
    }
}

fn global(snapshot: &Snapshot, open: &[Record]) -> Value {
    let mut line = Line::default();
    line.tallies.extend(snapshot.models.values().chain([&snapshot.strangers]).cloned());
    open.iter().for_each(|record| line.kept.add(record));
    let mut value = line.to_json();
    value["waiting"] = json!(snapshot.waiting_lanes().values().sum::<u64>());
    value
}

/// Lines by what tells a tenant and model apart, those with the most requests first. Whatever the policy names has one.
fn by(
    plan: &Plan,
    snapshot: &Snapshot,
    open: &[Record],
    key: impl Fn(&Arc<str>, &Arc<str>) -> (Arc<str>, Arc<str>),
    labels: [&str; 2],
) -> Value {
    let mut lines: BTreeMap<(Arc<str>, Arc<str>), Line> = BTreeMap::new();
    for (name, tenant) in &plan.tenants {
        for model in tenant.models.keys() {
            lines.entry(key(name, model)).or_default();
        }
    }
    for ((tenant, model), tally) in &snapshot.models {
        lines.entry(key(tenant, model)).or_default().tallies.push(tally.clone());
    }
    for record in open {
        let terms = &record.claim.terms;
        lines.entry(key(&terms.deal.principal.tenant().into(), &terms.deal.group)).or_default().kept.add(record);
    }
    let waiting = snapshot.waiting_tenants();
    ordered(lines, |key, value| {
        for (label, name) in labels.iter().zip([&key.0, &key.1]).filter(|(label, _)| !label.is_empty()) {
            value[*label] = json!(name);
        }
        if let Some(tenant) = plan.tenants.get(&key.0).filter(|_| labels[0] == "tenant") {
            value["plan"] = json!(tenant.plan);
            value["waiting"] = json!(waiting.get(&key.0).copied().unwrap_or(0));
        }
    })
}

fn lanes(plan: &Plan, snapshot: &Snapshot, open: &[Record]) -> Value {
    let mut lines: BTreeMap<Arc<str>, Line> = plan.lanes.keys().map(|lane| (lane.clone(), Line::default())).collect();
    for (lane, tally) in &snapshot.lanes {
        lines.entry(lane.clone()).or_default().tallies.push(tally.clone());
    }
    for record in open {
        lines.entry(record.claim.terms.deal.lane.clone()).or_default().kept.add(record);
    }
    let waiting = snapshot.waiting_lanes();
    let mut waits: BTreeMap<&Arc<str>, Waits> = BTreeMap::new();
    for lane in snapshot.pools.iter().flat_map(|pool| &pool.queue.lanes) {
        waits.entry(&lane.lane).or_default().add(&lane.counts);
    }
    ordered(lines, |lane, value| {
        value["lane"] = json!(lane);
        value["wait_ms"] = json!(waits.get(lane).and_then(|waits| waits.mean_ms()));
        value["waiting"] = json!(waiting.get(lane).copied().unwrap_or(0));
        if let Some(lane) = plan.lanes.get(lane) {
            value["weight"] = json!(lane.weight);
            value["max_queue"] = json!(lane.max_queue);
        }
    })
}

/// Waits for turns.
#[derive(Debug, Default, Clone, Copy)]
struct Waits {
    turns: u64,
    /// Nanoseconds.
    sum: u64,
}

impl Waits {
    fn add(&mut self, counts: &Counts) {
        self.turns += counts.waits.iter().sum::<u64>();
        self.sum = self.sum.saturating_add(counts.waited);
    }

    fn mean_ms(&self) -> Option<u64> {
        self.sum.checked_div(self.turns).map(|nanos| nanos / 1_000_000)
    }
}

/// The queues in front of pools. The one of models without a pool is shown while somebody has something there.
fn pools(gateway: &Gateway, snapshot: &Snapshot) -> Value {
    let shown =
        snapshot.pools.iter().filter(|pool| pool.gated || pool.queue.lanes.iter().any(|l| !l.tenants.is_empty()));
    cut(shown
        .map(|pool| {
            let (queue, valve) = (&pool.queue, &pool.queue.valve);
            // Without a backend nothing bounds it.
            let most = |most: u64| pool.gated.then_some(most);
            json!({
                "pool": pool.pool, "percent": pool.percent, "in_flight": valve.in_flight, "most": most(valve.most),
                "kept": valve.kept, "most_kept": most(valve.most_kept),
                "waiting": queue.lanes.iter().map(|lane| lane.queued).sum::<u64>(),
                "stale_ms": queue.staleness.map(|age| age.as_millis() as u64),
                "faults": gateway.watch.as_ref().map(|watch| watch.faults(&pool.pool)).unwrap_or_default(),
            })
        })
        .collect())
}

/// What each tenant waits for and gets in each lane of each pool, those that were served most first. Work is in units.
fn turns(snapshot: &Snapshot) -> Value {
    let lanes = snapshot.pools.iter().flat_map(|pool| pool.queue.lanes.iter().map(move |lane| (pool, lane)));
    let mut found: Vec<_> =
        lanes.flat_map(|(pool, lane)| lane.tenants.iter().map(move |tenant| (pool, lane, tenant))).collect();
    found.sort_by_key(|(.., tenant)| std::cmp::Reverse(tenant.flow.served));
    let all = found.len();
    let lines = found.iter().take(MAX_LINES).map(|(pool, lane, tenant)| {
        let (flow, mut waits) = (&tenant.flow, Waits::default());
        waits.add(&tenant.counts);
        json!({
            "pool": pool.pool, "lane": lane.lane, "tenant": tenant.tenant, "waiting": flow.queued,
            "in_flight": flow.in_flight, "deficit": flow.deficit / 1000, "served": flow.served / 1000,
            "turns": waits.turns, "wait_ms": waits.mean_ms(),
        })
    });
    json!({ "lines": lines.collect::<Vec<_>>(), "all": all })
}

fn ordered<K>(lines: BTreeMap<K, Line>, label: impl Fn(&K, &mut Value)) -> Value {
    let mut lines: Vec<(K, Line)> = lines.into_iter().collect();
    lines.sort_by_cached_key(|(_, line)| std::cmp::Reverse(line.decided()));
    let shown = lines.iter().take(MAX_LINES).map(|(key, line)| {
        let mut value = line.to_json();
        label(key, &mut value);
        value
    });
    json!({ "lines": shown.collect::<Vec<_>>(), "all": lines.len() })
}

type LimitName = (Arc<str>, Arc<str>);

/// The limits of tenants and keys and of what they share, the fullest first. At most so many tenants are looked at as
/// there are lines, those with the most requests.
fn limits(gate: &Gate, plan: &Plan, snapshot: &Snapshot, open: &[Record]) -> Value {
    let mut held: HashMap<LimitName, [u64; 2]> = HashMap::new();
    for record in open {
        let at = record.unresolved().is_some() as usize;
        for hold in record.holds() {
            let bound = record.limit(&hold);
            // The slots of an unresolved lease are free again.
            if at == 1 && bound.meter.is_held() {
                continue;
            }
            let sums = held.entry((bound.scope.clone(), bound.limit.clone())).or_default();
            sums[at] = sums[at].saturating_add(hold.amount);
        }
    }
    let mut tenants: Vec<&Arc<str>> = plan.tenants.keys().collect();
    let all = tenants.len();
    let mut decided: HashMap<&str, u64> = HashMap::new();
    for ((tenant, _), tally) in &snapshot.models {
        let line = Line { tallies: vec![tally.clone()], ..Line::default() };
        *decided.entry(tenant).or_default() += line.decided();
    }
    tenants.sort_by_cached_key(|tenant| (std::cmp::Reverse(decided.get(&***tenant).copied()), (*tenant).clone()));
    tenants.truncate(MAX_LINES);
    let (mut seen, mut found): (HashSet<LimitName>, Vec<Balance>) = Default::default();
    for tenant in tenants {
        let keys = gate.keys(tenant).into_iter().filter(|key| !key.plan.limits.is_empty()).take(MAX_LINES);
        let whole = Principal::builder(tenant.clone()).build();
        let of_keys = keys.map(|key| Principal::builder(tenant.clone()).key(key.plan.id.clone()).build());
        for who in std::iter::once(whole).chain(of_keys) {
            let fresh = |balance: &Balance| seen.insert((balance.scope.clone(), balance.limit.clone()));
            found.extend(gate.balances(&who, true).into_iter().filter(fresh));
        }
    }
    let fullness = |balance: &Balance| balance.used as u128 * 1_000_000 / balance.hard.max(1) as u128;
    found.sort_by_cached_key(|balance| std::cmp::Reverse(fullness(balance)));
    let line = |balance: &Balance| {
        let sums = held.get(&(balance.scope.clone(), balance.limit.clone())).copied().unwrap_or_default();
        let show = |amount: u64| balance.meter.show(amount);
        json!({
            "scope": balance.scope, "limit": balance.limit, "meter": balance.meter.name(),
            "hard": show(balance.hard), "soft": balance.soft.map(show), "used": show(balance.used),
            // A hold of an earlier period is no longer part of what is used.
            "held": show(sums[0].min(balance.used)), "unresolved": show(sums[1].min(balance.used)),
            "remaining": show(balance.remaining), "rolling": balance.rolling,
            "resets_in_ms": balance.resets_in.map(|time| time.as_millis() as u64),
        })
    };
    json!({
        "lines": found.iter().take(MAX_LINES).map(line).collect::<Vec<_>>(), "all": found.len(),
        "tenants_left_off": all.saturating_sub(MAX_LINES),
    })
}

fn refusals(snapshot: &Snapshot) -> Value {
    let strangers = (("".into(), "".into()), snapshot.strangers.clone());
    let tallies = snapshot.models.iter().map(|(key, tally)| (key.clone(), tally.clone())).chain([strangers]);
    let mut lines: Vec<(u64, Value)> = tallies
        .flat_map(|((tenant, model), tally)| {
            Reason::ALL.iter().map(move |reason| {
                let count = tally.reason(*reason);
                (count, json!({ "tenant": tenant, "model": model, "reason": reason.code(), "count": count }))
            })
        })
        .filter(|(count, _)| *count > 0)
        .collect();
    lines.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
    cut(lines.into_iter().map(|(_, line)| line).collect())
}

fn unresolved(open: &[Record], now: Now) -> Value {
    let mut found: Vec<_> = open.iter().filter_map(|record| Some((record, record.unresolved()?))).collect();
    found.sort_by_key(|(_, state)| state.since.mono);
    let line = |(record, state): &(&Record, &quota_core::lease::Unresolved)| {
        let terms = &record.claim.terms;
        json!({
            "request_id": terms.request_id, "lease": record.claim.id.to_string(),
            "tenant": terms.deal.principal.tenant(), "model": short(&terms.deal.model), "lane": terms.deal.lane,
            "cause": state.cause.name(), "age_ms": now.mono.saturating_sub(state.since.mono) / 1_000_000,
            "charged_usd": terms.worst_cost.to_usd().to_string(),
            "seen_input": state.seen.as_ref().map(|usage| usage.input_total()),
            "seen_output": state.seen.as_ref().map(|usage| usage.output_total()),
        })
    };
    json!({ "lines": found.iter().take(MAX_LINES).map(line).collect::<Vec<_>>(), "all": found.len() })
}

/// The last entries of the journal and the last refusals, newest first.
fn last(gate: &Gate) -> Value {
    let (mut last, mut refusals): (VecDeque<Entry>, VecDeque<Entry>) = Default::default();
    let keep = |list: &mut VecDeque<Entry>, entry: &Entry, most: usize| {
        list.push_back(entry.clone());
        if list.len() > most {
            list.pop_front();
        }
    };
    gate.journal().scan(&mut |entry| {
        keep(&mut last, entry, LAST);
        if matches!(entry.event, Event::Refused(_) | Event::Queued(..)) {
            keep(&mut refusals, entry, LAST_REFUSALS);
        }
        true
    });
    let first = last.front().map_or(0, |entry| entry.seq);
    refusals.retain(|entry| entry.seq < first);
    refusals.append(&mut last);
    Value::Array(refusals.iter().rev().map(decision).collect())
}

fn decision(entry: &Entry) -> Value {
    let mut line = json!({
        "seq": entry.seq, "at": show_instant(entry.at.wall), "event": entry.event.name(),
        "request_id": entry.event.request_id(), "tenant": entry.event.tenant(),
    });
    let refused = |line: &mut Value, refusal: &Refusal| {
        line["model"] = json!(short(&refusal.model));
        line["reason"] = json!(refusal.reason.code());
        line["message"] = json!(short(&refusal.message()));
    };
    match &entry.event {
        Event::Admitted(record) | Event::Extended(record) | Event::Ended(record) => {
            let terms = &record.claim.terms;
            line["model"] = json!(short(&terms.deal.model));
            line["lane"] = json!(terms.deal.lane);
            line["input_tokens"] = json!(terms.input.reserve);
            line["output_tokens"] = json!(terms.output_ceiling);
            line["usd"] = json!(terms.worst_cost.to_usd().to_string());
            if let State::Settled(settled) = &*record.state() {
                let charged = record.charged();
                line["input_tokens"] = json!(charged.get(Meter::Input));
                line["output_tokens"] = json!(charged.get(Meter::Output));
                line["usd"] = json!(usd(charged.get(Meter::Money)));
                line["late"] = json!(settled.late);
            }
            if let Some(state) = record.unresolved() {
                line["reason"] = json!(state.cause.name());
            }
        }
        Event::Refused(refusal) => refused(&mut line, refusal),
        Event::Queued(refusal, lane) => {
            refused(&mut line, refusal);
            line["lane"] = json!(lane);
        }
        _ => {
            // What operators did has short texts of its own.
            let whole = entry.to_json();
            let fields = whole.as_object().into_iter().flatten();
            let told = fields.filter(|(name, _)| !["seq", "at", "event", "tenant"].contains(&name.as_str()));
            let told = told.map(|(name, value)| {
                format!("{name} {}", value.as_str().map_or_else(|| value.to_string(), str::to_owned))
            });
            line["message"] = json!(short(&told.collect::<Vec<_>>().join(", ")));
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Patience;
    use crate::server::Config;
    use crate::simulated::{QUICK, Simulation};
    use crate::source::Source;
    use crate::upstream::Upstream;
    use quota_core::lease::Cause;
    use quota_core::{Decision, Request, Usage};

    #[test]
    fn figures_add_up_and_are_bounded() {
        let config = Config {
            source: Source::default(),
            upstream: Upstream::Simulated(Simulation::paced(QUICK)),
            metrics: None,
            identity: Default::default(),
            admin_key: "admin".into(),
            max_body: 1,
            patience: Patience::default(),
        };
        let gateway = Gateway::new(config).unwrap();
        let gate = &gateway.gate;
        let who = Principal::builder("acme").key("acme-batch").build();
        let request = |id: String| Request {
            id: Some(id.into()),
            ..Request::chat("sim-small").input_tokens(1000).max_output_tokens(1000)
        };
        let lease = |id: &str| match gate.admit(&who, &request(id.into())) {
            Decision::Allow(lease) => lease,
            other => panic!("{}", other.action()),
        };
        lease("one").settle(Usage::tokens(1000, 10)).unwrap();
        let held = lease("two");
        lease("three").unresolved(Cause::NoUsage, Some(Usage::tokens(1000, 7))).unwrap();
        let long = Request::chat("x".repeat(5000));
        for _ in 0..2 * LAST {
            assert!(matches!(gate.admit(&who, &long), Decision::Reject(_)));
        }
        let figures = figures(&gateway);
        // 1000 tokens in at 0.15 and up to 1000 out at 0.60 dollars a million; the first used 10 of them.
        let global = &figures["global"];
        assert_eq!((&global["allowed"], &global["refused"]), (&json!(3), &json!(2 * LAST)));
        assert_eq!((&global["open"], &global["held_usd"]), (&json!(1), &json!("0.00075")));
        assert_eq!((&global["unresolved"], &global["unresolved_usd"]), (&json!(1), &json!("0.00075")));
        let lines = |list: &str| figures[list]["lines"].as_array().unwrap().clone();
        assert_eq!((&lines("tenants")[0]["tenant"], lines("tenants").len()), (&json!("acme"), 2));
        let pair = lines("pairs").into_iter().find(|line| line["model"] == "sim-small" && line["tenant"] == "acme");
        assert_eq!(pair.unwrap()["output_tokens"], json!(10));
        let budget = |scope: &str| {
            let found =
                lines("limits").into_iter().find(|line| line["scope"] == scope && line["limit"] == "daily_budget_usd");
            let line = found.unwrap_or_else(|| panic!("no {scope} in {}", figures["limits"]));
            ["used", "held", "unresolved", "hard"].map(|field| line[field].as_str().unwrap().to_owned())
        };
        for (scope, hard) in [("tenant:acme", "25"), ("tenant:acme/key:acme-batch", "5")] {
            assert_eq!(budget(scope), ["0.001656", "0.00075", "0.00075", hard]);
        }
        // A thousand tokens in each, and four units for each token out.
        let turns = &lines("turns")[0];
        let turns = ["pool", "lane", "tenant", "in_flight", "turns", "served"].map(|field| turns[field].clone());
        assert_eq!(json!(turns), json!(["sim", "interactive", "acme", 1, 3, 2068]));
        let pool = &lines("pools")[0];
        let pool = ["pool", "in_flight", "most", "most_kept", "waiting"].map(|field| pool[field].clone());
        assert_eq!(json!(pool), json!(["sim", 1, 8, 76_000, 0]));
        let three = &lines("unresolved")[0];
        assert_eq!((&three["request_id"], &three["seen_output"]), (&json!("three"), &json!(7)));
        assert_eq!(lines("refusals").iter().map(|line| line["count"].as_u64().unwrap()).sum::<u64>(), 2 * LAST as u64);
        let last = figures["last"].as_array().unwrap();
        assert_eq!((last.len(), &last[0]["event"]), (LAST, &json!("refused")));
        assert!(last[0]["model"].as_str().unwrap().chars().count() <= MAX_TEXT + 1);
        drop(held);
    }
}
