//! Row 18: what a decision costs, on one core and by the real clock.

use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Wake, Waker};
use std::time::Instant;

use quota_core::scheduler::drr::{Demand, Drr, End, FlowId, Judgment, LaneRule, Mode, Pick};
use quota_core::scheduler::{Arrival, Capacity, Place, Scheduler, Settings};
use quota_core::work::Tokens;

use crate::dice::Dice;
use crate::lab::Lab;
use crate::ours::rates;
use crate::prices::Prices;
use crate::table::{Line, anchor, goal};

/// Turns of each round, and rounds of which the best counts.
const TURNS: usize = 400_000;
const ROUNDS: usize = 5;

/// All numbers below this one in any order, so that turns do not go through memory from one end to the other.
fn shuffled(below: usize, dice: &mut Dice) -> Vec<usize> {
    let mut all: Vec<usize> = (0..below).collect();
    for place in (1..below).rev() {
        all.swap(place, (dice.roll() % (place as u64 + 1)) as usize);
    }
    all
}

/// A rule in which each of so many tenants has one request waiting, which knows whose it is.
fn filled(tenants: usize, dice: &mut Dice) -> Drr<FlowId> {
    let mut drr = Drr::new(Mode::Weighted, tenants, tenants + 1);
    for weight in crate::ours::LANES {
        drr.add_lane(LaneRule { weight, max_wait: u64::MAX / 2, ..LaneRule::default() });
    }
    let flows: Vec<FlowId> = (0..tenants).filter_map(|_| drr.add_flow(0, 1, 0)).collect();
    assert_eq!(flows.len(), tenants);
    for number in shuffled(tenants, dice) {
        assert!(drr.enqueue(flows[number], flows[number], demand(dice), 0).is_ok());
    }
    drr
}

/// A conversation's request; sizes differ.
fn demand(dice: &mut Dice) -> Demand {
    let (input, output) = (200 + dice.roll() % 2000, 50 + dice.roll() % 400);
    Demand { tokens: Tokens::new(input, 0, output), rates: rates(Prices::COST), reports_progress: false }
}

/// Nanoseconds of a pick, a settlement and an arrival, and visits of a pick, while everybody waits.
fn turns(tenants: usize) -> (f64, f64) {
    let mut dice = Dice::new(101);
    let mut drr = filled(tenants, &mut dice);
    // Made beforehand: rolling dice is not what is measured.
    let demands: Vec<Demand> = (0..4096).map(|_| demand(&mut dice)).collect();
    let (mut best, mut now) = (f64::INFINITY, 0);
    let (mut visits, mut picks) = (0, 0);
    for round in 0..=ROUNDS {
        let before = drr.visits();
        let start = Instant::now();
        for turn in 0..TURNS {
            now += 1000;
            let Pick::Dispatched(job) = drr.pick(now, |_| Judgment::Take) else { panic!("everybody waits") };
            let demand = demands[turn % demands.len()];
            let Ok(ended) = drr.end(job, End::Served(demand.tokens), now) else { panic!("it runs") };
            assert!(drr.enqueue(ended.item, ended.item, demand, now).is_ok());
        }
        let nanos = start.elapsed().as_nanos() as f64 / TURNS as f64;
        // The first round fills the caches.
        if round > 0 {
            best = best.min(nanos);
            visits += drr.visits() - before;
            picks += TURNS as u64;
        }
    }
    (best, visits as f64 / picks as f64)
}

/// The same through the scheduler's public calls: a request arrives, another has its turn and ends, and so on.
fn whole_turns(tenants: usize) -> f64 {
    let mut dice = Dice::new(101);
    let settings =
        Settings { max_flows: tenants, max_requests: tenants + 2, early_refusal: false, ..Settings::default() };
    let scheduler = Scheduler::new(&settings, Capacity::requests(1));
    let names: Vec<Arc<str>> = (0..tenants).map(|n| Arc::from(format!("t{n}"))).collect();
    let lane: Arc<str> = Arc::from("default");
    let arrive = |number: usize, demand: Demand, now| {
        let arrival =
            Arrival { rates: demand.rates, ..Arrival::new(names[number].clone(), lane.clone(), demand.tokens) };
        scheduler.arrive(arrival, now).unwrap_or_else(|refused| panic!("{refused}"))
    };
    // One runs, all others wait, each noting in the list when its turn has come.
    let woken: Arc<Mutex<Vec<usize>>> = Arc::default();
    let mut places: Vec<Option<Place>> = (0..tenants).map(|_| None).collect();
    let mut running = None;
    for number in shuffled(tenants, &mut dice) {
        let mut place = arrive(number, demand(&mut dice), 0);
        match place.try_turn() {
            Some(turn) => running = turn.ok().map(|turn| (turn, number)),
            None => {
                place.wake_by(&Waker::from(Arc::new(Bell { number, woken: woken.clone() })));
                places[number] = Some(place);
            }
        }
    }
    let bells: Vec<Waker> =
        (0..tenants).map(|number| Waker::from(Arc::new(Bell { number, woken: woken.clone() }))).collect();
    let demands: Vec<Demand> = (0..4096).map(|_| demand(&mut dice)).collect();
    let (mut best, mut now) = (f64::INFINITY, 0);
    for round in 0..=ROUNDS {
        let start = Instant::now();
        for turn in 0..TURNS {
            now += 1000;
            let Some((ended, number)) = running.take() else { panic!("one always runs") };
            let place = arrive(number, demands[turn % demands.len()], now);
            place.wake_by(&bells[number]);
            places[number] = Some(place);
            let tokens = ended.arrival().tokens;
            assert!(ended.end(End::Served(tokens), now));
            let next = woken.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let next = next.unwrap_or(number);
            let turn = places[next].as_mut().and_then(Place::try_turn);
            running = turn.and_then(Result::ok).map(|turn| (turn, next));
        }
        if round > 0 {
            best = best.min(start.elapsed().as_nanos() as f64 / TURNS as f64);
        }
    }
    best
}

/// Notes a tenant whose turn has come.
struct Bell {
    number: usize,
    woken: Arc<Mutex<Vec<usize>>>,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.woken.lock().unwrap_or_else(PoisonError::into_inner).push(self.number);
    }
}

pub fn cost(_lab: &Lab) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut all = Vec::new();
    for (tenants, name) in [(10, "10"), (1000, "1 k"), (100_000, "100 k"), (1_000_000, "1 M")] {
        let (nanos, visits) = turns(tenants);
        all.push(nanos);
        let what = format!("{name} tenants: arrival + pick + settlement");
        lines.push(goal(18, what, format!("{nanos:.0} ns"), "<= 250 ns", nanos <= 250.0));
        lines.push(goal(18, format!("{name} tenants: visits per pick"), format!("{visits:.2}"), "<= 3", visits <= 3.0));
    }
    for (tenants, name) in [(10, "10"), (1000, "1 k"), (100_000, "100 k")] {
        let figure = format!("{:.0} ns", whole_turns(tenants));
        lines.push(anchor(18, format!("  {name} tenants: by names, futures and inbox"), figure, "-"));
    }
    let least = all.iter().copied().fold(f64::INFINITY, f64::min);
    let spread = all.iter().copied().fold(0.0, f64::max) / least;
    lines.push(goal(18, "the slowest over the fastest", format!("{spread:.1}x"), "<= 3x", spread <= 3.0));
    lines
}
