//! Row 19: each request is settled once, whatever is told twice, late, in another order or never.

use quota_core::scheduler::drr::{Demand, Drr, End, FlowId, JobId, Judgment, LaneRule, Mode, Pick};
use quota_core::scheduler::work::Tokens;

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
        let demand = Demand { tokens: expected, rates, reports_progress: dice.roll() % 2 == 0 };
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

pub fn exact(_lab: &Lab) -> Vec<Line> {
    let all = SEEDS.map(history);
    let exact = all.iter().all(|(exact, twice, _)| *exact && *twice == 0);
    let ended: u64 = all.iter().map(|(_, _, ended)| ended).sum();
    let twice: u64 = all.iter().map(|(_, twice, _)| twice).sum();
    let figure = if exact { "equal" } else { "differ" };
    vec![goal(
        19,
        format!("charges and settled work of {ended} endings; {twice} taken twice"),
        figure,
        "equal, 0",
        exact,
    )]
}
