//! Steps of any kind on a gate with a clock set by hand, four bytes a step, against the reference model.

use quota_core::store::Memory;
use quota_core::testkit::Fault;
use quota_core::testkit::history::{self, Ask, By, FREEZABLE, MODELS, POLICIES, PRINCIPALS, RUNS, Report, Step};

/// The most steps of a history.
const STEPS: usize = 64;

const AMOUNTS: [u64; 8] = [0, 1, 10, 100, 999, 1500, 4000, 9000];
const SECOND: u64 = 1_000_000_000;
const TIMES: [u64; 12] = [
    0,
    1,
    1_000_000,
    SECOND / 3,
    SECOND,
    7 * SECOND,
    30 * SECOND - 1,
    30 * SECOND,
    121 * SECOND,
    7200 * SECOND,
    86_400 * SECOND,
    32 * 86_400 * SECOND,
];
const LEAPS: [i64; 6] = [-108_000, -3600, -1, 5, 3600, 93_600];

/// Runs the steps that the bytes stand for.
pub fn run(bytes: &[u8]) {
    let steps: Vec<Step> = bytes.chunks_exact(4).take(STEPS).map(step).collect();
    history::run::<Memory>(&steps);
}

fn step(bytes: &[u8]) -> Step {
    let [kind, a, b, c] = [0, 1, 2, 3].map(|at| bytes[at] as usize);
    let amount = |byte: usize| AMOUNTS[byte % AMOUNTS.len()];
    let (who, model, input, output) = (a % PRINCIPALS, (a / PRINCIPALS) % MODELS, amount(b), amount(b / 8));
    let (choices, id) = (if c >= 224 { 3 } else { 1 }, (c < 10).then_some(c));
    let run = (100..160).contains(&c).then_some((c % RUNS, c as u64 % 4));
    let ask = Ask { who, model, input, output, choices, stream: b >= 128, id, run };
    let report = match c % 6 {
        0..3 => Report::Used(input, output),
        3 => Report::NotRun,
        4 => Report::Failed,
        _ => Report::Unknown,
    };
    let by = [By::Handle, By::Lease, By::Request][c / 6 % 3];
    let fault = if b < 128 { Fault::Before } else { Fault::After };
    match kind % 25 {
        0..5 => Step::Admit(ask),
        5 => Step::Preview(ask),
        6 => Step::Wait(ask, (c >= 192).then_some(c)),
        7 if b < 192 => Step::Sent(a),
        7 => Step::Renew(a),
        8 if c < 128 => Step::Extend(a, amount(b)),
        8 => Step::Follow(a, amount(b)),
        9 => Step::Settle(a, input, output),
        10..12 => Step::Finish(a, report, by),
        12 => Step::Cancel(a),
        13 => Step::Abandon(a, (b < 128).then_some(output)),
        14 => Step::Drop(a),
        15 => Step::Pass(TIMES[a % TIMES.len()] + b as u64 * c as u64),
        16 => Step::Wall(LEAPS[a % LEAPS.len()] * SECOND as i64),
        17 => Step::Sweep,
        18 => Step::Reload(a % POLICIES),
        19 => Step::Press(a as u8),
        20 if b < 128 => Step::Freeze(a % FREEZABLE),
        20 => Step::Thaw(a % FREEZABLE),
        21 => Step::Teach(who, model, output),
        22..24 => Step::Fail(fault, c >= 192),
        _ => Step::Again(a),
    }
}
