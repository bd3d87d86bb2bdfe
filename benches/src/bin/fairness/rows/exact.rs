//! Row 19: each request is settled once, whatever is told twice, late, in another order or never.

use std::sync::{Arc, Mutex, PoisonError};

use quota_core::scheduler::drr::{Demand, Drr, End, FlowId, JobId, Judgment, LaneRule, Mode, Pick};
use quota_core::scheduler::{Arrival, Capacity, Place, Scheduler, Settings, Turn};
use quota_core::work::Tokens;

use crate::dice::Dice;
use crate::lab::{Lab, SEEDS};
use crate::ours::rates;
use crate::prices::Prices;
use crate::table::{Line, goal};

/// What a request is told to have taken, if its sender lives to tell.
struct Sent {
    job: JobId,
    tenant: usize,
    tokens: Tokens,
    expected: u64,
}

/// Sums over one history: by tenant what was settled by our own account, and how often a second word was taken.
fn history(seed: u64) -> (bool, u64, u64) {
    let (tenants, steps) = (12, 200_000);
    let mut dice = Dice::new(seed);
    let rates = rates(Prices::COST);
    let mut drr: Drr<(usize, Tokens)> = Drr::new(Mode::Weighted, tenants, 4096);
    for weight in crate::ours::LANES {
        drr.add_lane(LaneRule { weight, max_wait: 40_000, ..LaneRule::default() });
    }
    let flows: Vec<FlowId> = (0..tenants).filter_map(|n| drr.add_flow(n as u16 % 2, 1 + n as u32, 0)).collect();
    let mut sent: Vec<Sent> = Vec::new();
    let mut over: Vec<JobId> = Vec::new();
    let mut settled = vec![0_u64; tenants];
    let (mut taken_twice, mut ended) = (0, 0);
    for now in 0..steps {
        // Two arrivals for each that leaves, so that some expire.
        let tenant = (dice.roll() % tenants as u64) as usize;
        let tokens = Tokens::new(dice.roll() % 5000, dice.roll() % 500, dice.roll() % 2000);
        let expected = Tokens { output: (dice.roll() % 2000) as u32, ..tokens };
        let demand = Demand { tokens: expected, rates, reports_progress: dice.roll().is_multiple_of(2) };
        // At the bound of jobs it is refused, which charges nothing.
        let _ = drr.enqueue(flows[tenant], (tenant, tokens), demand, now);
        drr.expire(now, |_| {});
        if sent.len() < 64 {
            let mut item = None;
            let mut charge = 0;
            let pick = drr.pick(now, |offer| {
                item = Some(*offer.item);
                charge = offer.kept;
                Judgment::Take
            });
            if let (Pick::Dispatched(job), Some((tenant, tokens))) = (pick, item) {
                sent.push(Sent { job, tenant, tokens, expected: charge });
            }
        }
        if sent.is_empty() {
            continue;
        }
        let place = (dice.roll() % sent.len() as u64) as usize;
        match dice.roll() % 8 {
            // Progress in any order: lower figures come after higher ones.
            0..=3 => {
                let out = dice.roll() % (u64::from(sent[place].tokens.output) + 1);
                assert!(drr.progress(sent[place].job, out).is_ok());
            }
            4 => {
                assert!(drr.put_back(sent[place].job, now).is_ok());
                sent.swap_remove(place);
            }
            kind => {
                let Sent { job, tenant, tokens, expected } = sent.swap_remove(place);
                let end = match kind {
                    5 => End::Served(tokens),
                    // The sender is gone, or died without a word.
                    6 => [End::Left, End::Unknown][(expected % 2) as usize],
                    _ => [End::Served(tokens), End::NeverStarted][(expected % 2) as usize],
                };
                let Ok(done) = drr.end(job, end, now) else { panic!("a dispatched job is known") };
                match end {
                    End::Served(tokens) => assert_eq!(done.work, tokens.work(&rates)),
                    End::NeverStarted => assert_eq!(done.work, 0),
                    End::Left | End::Unknown => {}
                }
                settled[tenant] += done.work;
                ended += 1;
                over.push(job);
            }
        }
        // A word about one that is over, again.
        if let Some(job) = over.get((dice.roll() % (over.len() as u64 + 1)) as usize) {
            taken_twice += u64::from(drr.end(*job, End::Served(Tokens::new(1, 0, 1)), now).is_ok());
            taken_twice += u64::from(drr.progress(*job, 9999).is_ok());
        }
    }
    let served = |tenant: usize| drr.figures(flows[tenant]).map(|figures| figures.served);
    let exact = (0..tenants).all(|tenant| served(tenant) == Some(settled[tenant]));
    let lanes: u64 = (0..2).filter_map(|lane| drr.lane_figures(lane)).map(|(_, served)| served).sum();
    (exact && lanes == settled.iter().sum::<u64>(), taken_twice, ended)
}

/// Threads of the second history.
const THREADS: u64 = 4;

/// What a thread did: work that it knows must be charged to each tenant, endings that won, and second endings that were taken.
#[derive(Default)]
struct Done {
    work: Vec<u64>,
    ended: u64,
    twice: u64,
}

/// Threads that arrive, end, die and end each other's turns at the same time, through the scheduler's public calls.
fn threads(seed: u64) -> (bool, u64, u64) {
    let tenants = 8;
    let settings = Settings { early_refusal: false, ..Settings::default() };
    let scheduler = Scheduler::new(&settings, Capacity::requests(12));
    let names: Vec<Arc<str>> = (0..tenants).map(|n| Arc::from(format!("t{n}"))).collect();
    // Turns that another thread may end at the same time as their own does, each with what it is worth.
    let shared: Mutex<Vec<(Arc<Turn>, usize)>> = Mutex::default();
    let act = |thread: u64| {
        let mut dice = Dice::new(seed * 31 + thread);
        let mut done = Done { work: vec![0; tenants], ..Done::default() };
        let mut places: Vec<(Place, usize)> = Vec::new();
        for now in 0..20_000 {
            let tenant = (dice.roll() % tenants as u64) as usize;
            let arrival = Arrival {
                reports_progress: dice.roll().is_multiple_of(2),
                rates: rates(Prices::COST),
                ..Arrival::new(names[tenant].clone(), "default", Tokens::new(dice.roll() % 3000, 0, dice.roll() % 900))
            };
            if let Ok(place) = scheduler.arrive(arrival, now) {
                places.push((place, tenant));
            }
            // One in eight leaves while it waits, or with a turn that it has not picked up.
            if dice.roll().is_multiple_of(8) && !places.is_empty() {
                let place = (dice.roll() % places.len() as u64) as usize;
                drop(places.swap_remove(place));
            }
            let mut place = 0;
            while place < places.len() {
                match places[place].0.try_turn() {
                    None => place += 1,
                    Some(Err(_)) => drop(places.swap_remove(place)),
                    Some(Ok(turn)) => {
                        let (_, tenant) = places.swap_remove(place);
                        end(turn, tenant, &mut dice, now, &shared, &mut done);
                    }
                }
            }
            // Somebody else's turn is ended, by whoever comes first.
            let theirs = lock(&shared).pop();
            if let Some((turn, tenant)) = theirs {
                won(&turn, tenant, now, &mut done);
            }
        }
        done
    };
    let all: Vec<Done> = std::thread::scope(|scope| {
        let act = &act;
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || act(thread))).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    let left: Vec<_> = std::mem::take(&mut *lock(&shared));
    let mut rest = Done { work: vec![0; tenants], ..Done::default() };
    left.iter().for_each(|(turn, tenant)| won(turn, *tenant, 20_000, &mut rest));
    let Some(figures) = scheduler.figures() else { return (false, 0, 0) };
    let served = |name: &str| {
        let tenants = figures.lanes[0].tenants.iter();
        tenants.filter(|tenant| &*tenant.tenant == name).map(|tenant| tenant.flow.served).sum::<u64>()
    };
    let everybody = || all.iter().chain([&rest]);
    let wanted = |tenant: usize| everybody().map(|done| done.work[tenant]).sum::<u64>();
    let same = all.len() as u64 == THREADS
        && (0..tenants).all(|tenant| served(&names[tenant]) == wanted(tenant))
        && figures.valve.in_flight == 0
        && figures.valve.kept == 0;
    (same, everybody().map(|done| done.twice).sum(), everybody().map(|done| done.ended).sum())
}

fn lock<T>(shared: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends a turn as served with twice its expected output; where another was first, nothing counts here.
fn won(turn: &Turn, tenant: usize, now: u64, done: &mut Done) {
    let Arrival { tokens, rates, .. } = *turn.arrival();
    let tokens = Tokens { output: tokens.output * 2, ..tokens };
    if turn.end(End::Served(tokens), now) {
        done.work[tenant] += tokens.work(&rates);
        done.ended += 1;
    }
}

/// What becomes of a turn.
fn end(turn: Turn, tenant: usize, dice: &mut Dice, now: u64, shared: &Mutex<Vec<(Arc<Turn>, usize)>>, done: &mut Done) {
    let Arrival { tokens, rates, reports_progress, .. } = *turn.arrival();
    // Progress in any order; the highest counts.
    let told = [dice.roll() % 900, dice.roll() % 900];
    let told = if dice.roll().is_multiple_of(2) { told } else { [0, 0] };
    told.iter().for_each(|out| turn.progress(*out));
    let seen = Tokens { output: told[0].max(told[1]) as u32, ..tokens }.work(&rates);
    let charged = Demand { tokens, rates, reports_progress }.charge().max(seen);
    match dice.roll() % 4 {
        // Two threads end it at the same time.
        0 => {
            let turn = Arc::new(turn);
            lock(shared).push((turn.clone(), tenant));
            won(&turn, tenant, now, done);
            return;
        }
        // Whoever held it dies.
        1 => {
            drop(turn);
            done.work[tenant] += charged;
        }
        2 => {
            assert!(turn.end(End::Left, now), "nobody else has it");
            done.work[tenant] += seen;
            done.twice += u64::from(turn.end(End::Served(tokens), now));
        }
        _ => {
            assert!(turn.end(End::NeverStarted, now), "nobody else has it");
            done.twice += u64::from(turn.end(End::Unknown, now));
        }
    }
    done.ended += 1;
}

pub fn exact(_lab: &Lab) -> Vec<Line> {
    let line = |what: &str, all: [(bool, u64, u64); 3]| {
        let exact = all.iter().all(|(exact, twice, _)| *exact && *twice == 0);
        let ended: u64 = all.iter().map(|(_, _, ended)| ended).sum();
        let twice: u64 = all.iter().map(|(_, twice, _)| twice).sum();
        let figure = if exact { "equal" } else { "differ" };
        goal(19, format!("{what}: {ended} endings, {twice} taken twice"), figure, "equal, 0", exact)
    };
    vec![line("the rule", SEEDS.map(history)), line("four threads at once", SEEDS.map(threads))]
}
