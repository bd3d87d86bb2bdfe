//! Steps of any kind on a gate with a clock set by hand, four bytes a step, against the reference model.

use quota_core::store::Memory;
use quota_core::testkit::history::{self, MODELS, POLICIES, PRINCIPALS, RUNS, Step};

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
    match kind % 16 {
        0..4 => {
            let choices = if c >= 224 { 3 } else { 1 };
            let run = (100..160).contains(&c).then_some((c % RUNS, c as u64 % 4));
            Step::Admit { who, model, input, output, choices, stream: b >= 128, id: (c < 10).then_some(c), run }
        }
        4 => Step::Preview { who, model, input, output },
        5 => Step::Sent(a),
        6 => Step::Renew(a),
        7 => Step::Extend(a, amount(b)),
        8 => Step::Settle(a, amount(b), amount(c)),
        9 => Step::SettleLate(a, amount(b), amount(c), b >= 128),
        10 if b < 192 => Step::Cancel(a),
        10 => Step::NotRun(a),
        11 if b < 128 => Step::Abandon(a),
        11 => Step::Failed(a, c >= 128),
        12 => Step::Drop(a),
        13 => Step::Pass(TIMES[a % TIMES.len()] + b as u64 * c as u64),
        14 if a < 128 => Step::Sweep,
        14 => Step::Reload(b % POLICIES),
        _ => Step::Wall(LEAPS[a % LEAPS.len()] * SECOND as i64),
    }
}
