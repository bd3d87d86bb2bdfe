//! Row 20: whether the simulated A10G agrees with the published runs on a real one.

use quota_core::gpu::simulated::Shape;

use super::quick::modest;
use crate::baseline::Baseline;
use crate::contender::Contender;
use crate::lab::Lab;
use crate::load::{Job, Load, SECOND, Tenant};
use crate::measure::published_difference;
use crate::outcome::Outcome;
use crate::table::{Line, anchor, goal};
use crate::valve::Width;
use crate::world::Setup;

/// Tenants that send prompts of 256 tokens for answers of 256 at even distances, as the published runs do.
fn even(name: &str, rates: &[f64], sends_for: f64, until: u64) -> Load {
    let mut load = Load { name: name.into(), tenants: vec![], jobs: vec![], until: until * SECOND };
    for (tenant, rate) in rates.iter().enumerate() {
        load.tenants.push(Tenant::new(&format!("t{tenant}")));
        // The first at a part of the distance that differs from tenant to tenant.
        let first = (tenant as f64 * 0.37).fract();
        let moments = (1..=(rate * sends_for) as u64).map(|n| (first + n as f64) / rate);
        load.jobs.extend(moments.map(|at| Job { at: (at * 1e9) as u64, tenant, input: 256, output: 256 }));
    }
    load.jobs.sort_by_key(|job| job.at);
    load
}

/// The valve lets exactly as much in as the memory holds: the server's own scheduler is what is compared, so nothing waits
/// inside. Its estimate is the prompt and half the answer, where the memory is reserved in full.
fn setup() -> Setup {
    Setup { shape: Shape { progress_every: 8, ..Shape::A10G }, ..Setup::plain(101) }
}

fn run(lab: &Lab, load: &Load, baseline: Baseline) -> Outcome {
    // 19 requests of 512 tokens fit into 10 000.
    let width = Width { requests: 19, tokens: u64::MAX };
    lab.play(load, Contender::baseline(baseline).behind(width), &setup())
}

fn within(figure: f64, of: f64) -> bool {
    (figure / of - 1.0).abs() <= 0.06
}

pub fn hardware(lab: &Lab) -> Vec<Line> {
    let mut lines = Vec::new();
    let two = even("two tenants", &[1.5, 3.0], 600.0, 1600);
    let eight = even("eight tenants", &[0.4, 0.4, 0.4, 0.6, 0.6, 0.6, 0.6, 0.6], 360.0, 900);
    for (load, most, mean, target) in
        [(&two, 455.0, 428.0, "within 6 % of 455 / 428"), (&eight, 248.0, 233.0, "within 6 % of 248 / 233")]
    {
        let outcome = run(lab, load, Baseline::Fcfs);
        let served = outcome.served(setup().prices);
        let (max, avg) = published_difference(&served, load.tenants.len());
        let last = served.iter().map(|request| request.last).fold(0.0, f64::max);
        let tokens = served.len() as f64 * 512.0 / last;
        let what = format!("A10G, FCFS, {}: max / avg ({tokens:.0} tok/s)", load.name);
        lines.push(goal(20, what, format!("{max:.0} / {avg:.0}"), target, within(max, most) && within(avg, mean)));
        let vtc = run(lab, load, Baseline::Vtc);
        let (max, avg) = published_difference(&vtc.served(setup().prices), load.tenants.len());
        let was = if load.tenants.len() == 2 { "200 / 114, oracle 88 / 10" } else { "oracle 125 / 44" };
        lines.push(anchor(20, format!("  VTC, {}", load.name), format!("{max:.0} / {avg:.0}"), was));
    }
    let arena = lab.load("arena27");
    let demand = arena.demand(1, 2);
    for (baseline, was) in [(Baseline::Fcfs, "57.8 s"), (Baseline::Vtc, "1.33 s")] {
        // Lengths differ, so the valve counts the memory: what is set aside is prompt and whole answer, which it does not
        // know; by the expectation it lets in about what fits.
        let width = Width { requests: 64, tokens: 7000 };
        let outcome = lab.play(&arena, Contender::baseline(baseline).behind(width), &setup());
        let lights = modest(&arena, &demand, outcome.service.iter().sum());
        let p50 = outcome.ttft_between(&lights, 0, arena.until).0;
        lines.push(anchor(20, format!("  {}, 27 tenants: light p50", baseline.name()), format!("{p50:.2} s"), was));
    }
    lines
}
