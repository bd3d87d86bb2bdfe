//! Runs cases of kind `queue`: what arrives, leaves and ends in front of a pool, and whose turn comes of it.
//!
//! After each step the turns that came of it and the refusals are compared, none where the step names none; figures where it names
//! them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use quota_core::gpu::Load;
use quota_core::scheduler::drr::{End, Mode};
use quota_core::scheduler::{Arrival, Capacity, Lane, Place, Scheduler, Settings, Turn, Why};
use quota_core::work::{Tokens, WorkRates};
use serde_json::{Value, json};

const MILLISECOND: u64 = 1_000_000;

struct Run {
    scheduler: Scheduler,
    /// In the order of arrival.
    places: Vec<(String, Place)>,
    turns: BTreeMap<String, Turn>,
}

pub fn run(case: &Value) -> Result<(), String> {
    let settings = settings(case)?;
    let mut run = Run {
        scheduler: Scheduler::new(&settings, Capacity::requests(case["capacity"].as_u64().ok_or("no capacity")?)),
        places: Vec::new(),
        turns: BTreeMap::new(),
    };
    for (number, step) in case["steps"].as_array().ok_or("no steps")?.iter().enumerate() {
        run.step(step).map_err(|what| format!("step {number} {}: {what}", step["do"]))?;
    }
    Ok(())
}

pub fn settings(case: &Value) -> Result<Settings, String> {
    let lanes = case["lanes"].as_array().ok_or("no lanes")?;
    let lanes = lanes.iter().map(|lane| {
        let duration = |key: &str| lane[key].as_u64().map(Duration::from_millis);
        let mut made = Lane::new(lane["name"].as_str().ok_or("a lane without name")?);
        made.weight = lane["weight"].as_u64().unwrap_or(1) as u32;
        made.max_wait = duration("max_wait_ms").unwrap_or(made.max_wait);
        made.max_queued = lane["max_queued"].as_u64();
        made.floor_percent = lane["floor_percent"].as_u64().unwrap_or(0) as u8;
        made.age_after = duration("age_after_ms");
        made.quantum = lane["quantum"].as_u64();
        Ok(made)
    });
    let mode = match case["mode"].as_str() {
        None | Some("weighted") => Mode::Weighted,
        Some("priority_with_floor") => Mode::PriorityWithFloor,
        Some(other) => return Err(format!("mode `{other}`")),
    };
    let usual = Settings::default();
    let idle_ttl = case["idle_ttl_ms"].as_u64().map_or(usual.idle_ttl, Duration::from_millis);
    Ok(Settings { lanes: lanes.collect::<Result<_, String>>()?, mode, idle_ttl, ..usual })
}

fn arrival(step: &Value) -> Arrival {
    let text = |key: &str, usual: &str| step[key].as_str().unwrap_or(usual).to_owned();
    let work = step["work"].as_u64().unwrap_or(100);
    // One unit of work a token of input.
    Arrival {
        weight: step["weight"].as_u64().unwrap_or(1) as u32,
        max_queued: step["max_queued"].as_u64(),
        rates: WorkRates { input: 1000, cached: 0, output: 0, pairs: 0 },
        ..Arrival::new(text("tenant", "acme"), text("lane", "default"), Tokens::new(work, 0, 0))
    }
}

impl Run {
    fn step(&mut self, step: &Value) -> Result<(), String> {
        let now = step["at_ms"].as_u64().ok_or("no time")? * MILLISECOND;
        let id = step["id"].as_str().unwrap_or_default().to_owned();
        let mut refused = BTreeMap::new();
        match step["do"].as_str() {
            Some("arrive") => match self.scheduler.arrive(arrival(step), now) {
                Ok(place) => self.places.push((id, place)),
                Err(why) => drop(refused.insert(id, named(why.why))),
            },
            Some("leave") => self.places.retain(|(other, _)| *other != id),
            Some("end") => {
                let turn = self.turns.remove(&id).ok_or("it has no turn")?;
                let served = End::Served(turn.arrival().tokens);
                assert!(turn.end(served, now) && !turn.end(served, now), "a turn ends once");
            }
            Some("put_back") => {
                let turn = self.turns.remove(&id).ok_or("it has no turn")?;
                let scope: Arc<str> = step["scope"].as_str().unwrap_or_default().into();
                let due = step["due_ms"].as_u64().map_or(u64::MAX, |due| due * MILLISECOND);
                let whole_flow = step["whole_flow"].as_bool().unwrap_or(true);
                let place = turn.put_back(scope, whole_flow, due, now).map_err(|why| why.to_string())?;
                self.places.insert(0, (id, place));
            }
            Some("release") => self.scheduler.released([step["scope"].as_str().unwrap_or_default().into()], now),
            Some("capacity") => {
                let capacity = Capacity::requests(step["requests"].as_u64().ok_or("no requests")?);
                self.scheduler.report(Load::default(), Some(capacity), now);
            }
            Some("tick") => self.scheduler.tick(now),
            other => return Err(format!("step {other:?}")),
        }
        let mut turns = Vec::new();
        // `unclaimed`: turns that have come are not looked at yet.
        if step["unclaimed"].as_bool() == Some(true) {
            return self.compare(&step["expect"], turns, refused);
        }
        for (id, mut place) in std::mem::take(&mut self.places) {
            match place.try_turn() {
                None => self.places.push((id, place)),
                Some(Ok(turn)) => {
                    turns.push(id.clone());
                    self.turns.insert(id, turn);
                }
                Some(Err(why)) => drop(refused.insert(id, named(why.why))),
            }
        }
        self.compare(&step["expect"], turns, refused)
    }

    fn compare(&self, expect: &Value, turns: Vec<String>, refused: BTreeMap<String, &str>) -> Result<(), String> {
        let figures = self.scheduler.figures().ok_or("no figures")?;
        let queued: u64 = figures.lanes.iter().map(|lane| lane.queued).sum();
        let tenants: Vec<&str> = figures.lanes.iter().flat_map(|l| l.tenants.iter().map(|t| &*t.tenant)).collect();
        let wanted = |key: &str, usual: Value| if expect[key].is_null() { usual } else { expect[key].clone() };
        for (key, found, usual) in [
            ("turns", json!(turns), json!([])),
            ("refused", json!(refused), json!({})),
            ("queued", json!(queued), json!(queued)),
            ("in_flight", json!(figures.valve.in_flight), json!(figures.valve.in_flight)),
            ("tenants", json!(tenants), json!(tenants)),
        ] {
            let want = wanted(key, usual);
            if found != want {
                return Err(format!("{key}: {found}, not {want}"));
            }
        }
        Ok(())
    }
}

fn named(why: Why) -> &'static str {
    match why {
        Why::Full => "queue_full",
        Why::Overloaded => "model_pool_overloaded",
        Why::TimedOut => "queue_timeout",
        Why::UnknownLane => "unknown_lane",
        Why::Over => "over",
    }
}
