//! Runs cases of kind `schedule`: flows with a backlog in front of a pool that takes one request at a time, and how much
//! work each is served.

use std::collections::BTreeMap;

use quota_core::scheduler::drr::End;
use quota_core::scheduler::{Arrival, Capacity, Place, Scheduler};
use quota_core::work::{Tokens, WorkRates};
use serde_json::Value;

/// A tenant's requests: the work of each, in order, the last one again and again where there is no end.
struct Source {
    lane: String,
    weight: u32,
    items: Vec<u64>,
    endless: bool,
    sent: usize,
    waiting: Vec<(u64, Place)>,
}

struct Run {
    scheduler: Scheduler,
    sources: BTreeMap<String, Source>,
    now: u64,
}

/// Requests that an endless source keeps waiting.
const BACKLOG: usize = 3;

pub fn run(case: &Value) -> Result<(), String> {
    let settings = super::queue::settings(case)?;
    let scheduler = Scheduler::new(&settings, Capacity::requests(1));
    let mut run = Run { scheduler, sources: BTreeMap::new(), now: 0 };
    for (number, phase) in case["phases"].as_array().ok_or("no phases")?.iter().enumerate() {
        run.phase(phase).map_err(|what| format!("phase {number}: {what}"))?;
    }
    Ok(())
}

impl Run {
    fn phase(&mut self, phase: &Value) -> Result<(), String> {
        for (tenant, given) in phase["tenants"].as_object().into_iter().flatten() {
            let items = given["items"].as_array().ok_or("no items")?;
            let source = Source {
                lane: given["lane"].as_str().unwrap_or("default").to_owned(),
                weight: given["weight"].as_u64().unwrap_or(1) as u32,
                items: items.iter().filter_map(Value::as_u64).collect(),
                endless: given["endless"].as_bool().unwrap_or(false),
                sent: 0,
                waiting: Vec::new(),
            };
            self.sources.insert(tenant.clone(), source);
        }
        // A pool that is free is taken until all have arrived, so that the order of arrival decides nothing.
        let gate = self.scheduler.enter(arrival("nobody", "default", 1, 0), self.now);
        self.refill()?;
        drop(gate);
        let (mut order, mut served) = (Vec::new(), BTreeMap::<String, u64>::new());
        let most = phase["serve_work"].as_u64().ok_or("no work")?;
        while served.values().sum::<u64>() < most {
            let Some((tenant, work)) = self.serve()? else { break };
            *served.entry(tenant.clone()).or_default() += work;
            order.push((tenant, work));
            self.refill()?;
        }
        let expect = &phase["expect"];
        for (tenant, bounds) in expect["work"].as_object().into_iter().flatten() {
            between(&format!("work of {tenant}"), served.get(tenant).copied().unwrap_or(0), bounds)?;
        }
        for (tenant, within) in expect["first_within_items"].as_object().into_iter().flatten() {
            let first = order.iter().position(|(other, _)| other == tenant);
            if first.is_none_or(|at| at as u64 >= within.as_u64().unwrap_or(0)) {
                return Err(format!("the first of {tenant} is number {first:?}, not within {within}"));
            }
        }
        if let Some(between_items) = expect["work_between_items_of"].as_object() {
            for (tenant, bounds) in between_items {
                let at: Vec<usize> = (0..order.len()).filter(|at| order[*at].0 == *tenant).collect();
                let [first, second] = at[..] else { return Err(format!("{tenant} was served {} items", at.len())) };
                let work = order[first + 1..second].iter().map(|(_, work)| work).sum();
                between(&format!("work between the items of {tenant}"), work, bounds)?;
            }
        }
        for (tenant, deficit) in expect["deficit_at_rest"].as_object().into_iter().flatten() {
            let figures = self.scheduler.figures().ok_or("no figures")?;
            let found = figures.lanes.iter().flat_map(|l| &l.tenants).find(|t| *t.tenant == **tenant);
            let found = found.map(|tenant| tenant.flow.deficit);
            if found != deficit.as_i64() {
                return Err(format!("deficit of {tenant}: {found:?}, not {deficit}"));
            }
        }
        Ok(())
    }

    fn refill(&mut self) -> Result<(), String> {
        for (tenant, source) in &mut self.sources {
            while source.waiting.len() < BACKLOG && (source.endless || source.sent < source.items.len()) {
                let at = source.sent.min(source.items.len() - 1);
                let work = source.items[at];
                let place = self.scheduler.arrive(arrival(tenant, &source.lane, source.weight, work), self.now);
                source.waiting.push((work, place.map_err(|why| why.to_string())?));
                source.sent += 1;
            }
        }
        Ok(())
    }

    /// Serves the one whose turn has come, to its end. A unit of work takes a microsecond.
    fn serve(&mut self) -> Result<Option<(String, u64)>, String> {
        for (tenant, source) in &mut self.sources {
            let Some((work, place)) = source.waiting.first_mut() else { continue };
            let Some(turn) = place.try_turn() else { continue };
            let (work, turn) = (*work, turn.map_err(|why| why.to_string())?);
            drop(source.waiting.remove(0));
            self.now += work * 1000;
            turn.end(End::Served(turn.arrival().tokens), self.now);
            return Ok(Some((tenant.clone(), work)));
        }
        Ok(None)
    }
}

fn arrival(tenant: &str, lane: &str, weight: u32, work: u64) -> Arrival {
    let rates = WorkRates { input: 1000, cached: 0, output: 0, pairs: 0 };
    Arrival { weight, rates, ..Arrival::new(tenant, lane, Tokens::new(work, 0, 0)) }
}

fn between(what: &str, found: u64, bounds: &Value) -> Result<(), String> {
    let (Some(least), Some(most)) = (bounds[0].as_u64(), bounds[1].as_u64()) else { return Err("no bounds".into()) };
    match (least..=most).contains(&found) {
        true => Ok(()),
        false => Err(format!("{what}: {found}, not {least} to {most}")),
    }
}
