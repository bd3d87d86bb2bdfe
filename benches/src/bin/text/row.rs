//! Figures beside their targets, one a line, and the times of rounds that take turns.

use std::time::Instant;

/// A figure of ours; what it is called, what it is measured in, and what was asked for.
pub struct Figure {
    pub row: &'static str,
    pub what: String,
    pub value: f64,
    pub unit: &'static str,
    pub target: Target,
    /// What it is compared with in the same run, and the same figure of it.
    pub beside: Option<(&'static str, f64)>,
}

/// What was asked for.
#[derive(Clone, Copy)]
pub enum Target {
    AtLeast(f64),
    AtMost(f64),
    /// Nothing: it is there to be read beside the others.
    None,
}

/// Prints the heading.
pub fn head() {
    println!("{:<5}{:<62}{:>14}  {:<12}", "row", "what", "figure", "target");
}

impl Figure {
    pub fn print(&self) {
        let (wanted, met) = match self.target {
            Target::AtLeast(least) => (format!(">= {least:.0}"), Some(self.value >= least)),
            Target::AtMost(most) => (format!("<= {most:.0}"), Some(self.value <= most)),
            Target::None => (String::new(), None),
        };
        let met = met.map_or("", |met| if met { "met" } else { "MISSED" });
        let Figure { row, what, value, unit, .. } = self;
        println!("{row:<5}{what:<62}{:>14}  {wanted:<12}{met}", format!("{value:.1} {unit}"));
        if let Some((name, other)) = self.beside {
            let what = format!("  beside {name}, {other:.1} {unit}");
            println!("{row:<5}{what:<62}{:>14}", format!("{:.2} x", value / other));
        }
    }
}

/// The time that the quickest tenth of so many rounds keeps within, in nanoseconds. Each round does everything once, so that
/// what else the machine does hits all alike; on a machine that others use, a median is mostly of their time.
pub fn quick<const N: usize>(rounds: usize, mut all: [&mut dyn FnMut(); N]) -> [f64; N] {
    let mut times: [Vec<f64>; N] = std::array::from_fn(|_| Vec::new());
    for _ in 0..rounds {
        for (work, times) in all.iter_mut().zip(&mut times) {
            let start = Instant::now();
            work();
            times.push(start.elapsed().as_nanos() as f64);
        }
    }
    times.map(|mut times| at_part(&mut times, 0.1))
}

/// The time on a processor that each of so many turns took, in nanoseconds: what lasts longer than a turn of the scheduler
/// is seldom left alone. Without Linux' figures, the time by the clock.
pub fn on_cpu(turns: u32, mut work: impl FnMut()) -> f64 {
    let cpu = || std::fs::read_to_string("/proc/thread-self/schedstat").ok()?.split(' ').next()?.parse::<f64>().ok();
    let (start, before) = (Instant::now(), cpu());
    (0..turns).for_each(|_| work());
    let spent = before.zip(cpu()).map_or(start.elapsed().as_nanos() as f64, |(before, after)| after - before);
    spent / turns as f64
}

/// The value below which so much of all lies.
pub fn at_part(values: &mut [f64], part: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    values[((values.len() - 1) as f64 * part).round() as usize]
}
