//! Recipes: Poisson arrivals and log-normal lengths, the same ones for the same seed.

use super::{BATCH, Job, Load, SECOND, Tenant};
use crate::dice::Dice;

/// One stream of requests of one tenant.
#[derive(Debug, Clone)]
pub struct Source {
    /// The tenant.
    pub tenant: String,
    /// Its lane.
    pub lane: usize,
    /// Requests per second.
    pub rate: f64,
    /// Mean and sigma of the prompt's length.
    pub input: (f64, f64),
    /// Mean and sigma of the answer's length.
    pub output: (f64, f64),
    /// The longest prompt and the longest answer.
    pub longest: (f64, f64),
    /// Seconds from and until which it sends; until 0 is until the end.
    pub during: (f64, f64),
}

/// Sigma of lengths that people write.
const CHAT_SIGMA: f64 = 0.9;
/// Sigma of lengths that one program writes.
const PROGRAM_SIGMA: f64 = 0.6;
/// The longest prompt and the longest answer that most senders allow themselves.
const LONGEST: (f64, f64) = (16_000.0, 2000.0);

impl Source {
    /// Conversations: 1155 tokens in, 211 out.
    pub fn chat(tenant: &str, rate: f64) -> Source {
        Source::of(tenant, rate, (1155.0, CHAT_SIGMA), (211.0, CHAT_SIGMA))
    }

    /// A program's requests.
    pub fn program(tenant: &str, rate: f64, input: f64, output: f64) -> Source {
        Source::of(tenant, rate, (input, PROGRAM_SIGMA), (output, PROGRAM_SIGMA))
    }

    fn of(tenant: &str, rate: f64, input: (f64, f64), output: (f64, f64)) -> Source {
        Source { tenant: tenant.to_owned(), lane: 0, rate, input, output, longest: LONGEST, during: (0.0, 0.0) }
    }

    /// The same between two moments, in seconds.
    pub fn during(mut self, from: f64, until: f64) -> Source {
        self.during = (from, until);
        self
    }

    /// The same with lengths up to others.
    pub fn up_to(mut self, input: f64, output: f64) -> Source {
        self.longest = (input, output);
        self
    }

    /// The same in the batch lane.
    pub fn batch(mut self) -> Source {
        self.lane = BATCH;
        self
    }
}

/// Streams that make up a load.
pub struct Recipe(pub Vec<Source>);

impl Recipe {
    /// The recipe of the synthetic trace with this name.
    pub fn named(name: &str) -> Recipe {
        let lights = |count: usize, rate: f64| (1..=count).map(move |n| Source::chat(&format!("light{n}"), rate));
        let batch = || (1..=3).map(|n| Source::program(&format!("batch{n}"), 2.5, 2000.0, 800.0).batch());
        let mut sources: Vec<Source> = Vec::new();
        match name {
            "hog" => {
                sources.push(Source::program("hog", 8.0, 6000.0, 600.0));
                sources.extend(lights(9, 1.5));
            }
            "three_hogs" => {
                sources.push(Source::program("hog-prefill", 6.0, 8000.0, 60.0));
                sources.push(Source::program("hog-decode", 10.0, 300.0, 900.0).up_to(16_000.0, 4000.0));
                sources.push(Source::chat("hog-chat", 25.0));
                sources.extend(lights(7, 1.2));
            }
            "decode_bomb" => {
                sources.push(Source::program("bomb", 8.0, 50.0, 4000.0).up_to(50.0, 8000.0));
                sources.push(Source::chat("hog-chat", 25.0));
                sources.extend(lights(6, 1.2));
            }
            "short_storm" => {
                sources.push(Source::program("storm", 20.0, 60.0, 20.0));
                sources.push(Source::program("storm", 480.0, 60.0, 20.0).during(150.0, 300.0));
                sources.extend(lights(9, 1.8));
            }
            "retry_storm" => {
                sources.push(Source::program("retrier", 14.0, 3000.0, 400.0).during(100.0, 500.0));
                sources.extend(lights(9, 1.6));
            }
            "longctx_spike" => {
                sources.push(
                    Source::program("longctx", 4.0, 32_000.0, 500.0).up_to(64_000.0, 2000.0).during(200.0, 230.0),
                );
                sources.extend(lights(9, 2.2));
            }
            "multi_spike" => {
                sources.extend(lights(5, 1.5));
                for n in 1..=5 {
                    let name = format!("spiky{n}");
                    sources.push(Source::chat(&name, 1.5));
                    sources.push(Source::chat(&name, 12.0).during(200.0, 260.0));
                }
            }
            "classes_steady" => {
                sources.extend((1..=6).map(|n| Source::chat(&format!("inter{n}"), 3.0)));
                sources.extend(batch());
            }
            "classes_overload" => {
                for n in 1..=6 {
                    let name = format!("inter{n}");
                    sources.push(Source::chat(&name, 2.4));
                    sources.push(Source::chat(&name, 3.0).during(150.0, 450.0));
                }
                sources.extend(batch());
            }
            "zipf300" => {
                let rank = |n: u32| f64::from(n).powf(-1.1);
                let all: f64 = (1..=300).map(rank).sum();
                // Nine profiles of lengths, spread over the tenants.
                let profiles = [300.0, 1155.0, 4000.0].map(|input| [60.0, 211.0, 600.0].map(|output| (input, output)));
                let profiles = profiles.as_flattened();
                for n in 1..=300_u32 {
                    let (input, output) = profiles[n as usize % profiles.len()];
                    let mut source = Source::program(&format!("z{n}"), 45.0 * rank(n) / all, input, output);
                    (source.input.1, source.output.1) = (CHAT_SIGMA, CHAT_SIGMA);
                    sources.push(source);
                }
            }
            other => panic!("no recipe for {other}"),
        }
        Recipe(sources)
    }

    /// Draws a load of so many seconds.
    pub fn draw(&self, name: &str, seconds: u64, seed: u64) -> Load {
        let mut load = Load { name: name.to_owned(), tenants: vec![], jobs: vec![], until: seconds * SECOND };
        for (number, source) in self.0.iter().enumerate() {
            let tenant = load.tenant(&source.tenant).unwrap_or_else(|| {
                load.tenants.push(Tenant { lane: source.lane, ..Tenant::new(&source.tenant) });
                load.tenants.len() - 1
            });
            // Dice of its own for each source, so that a longer run begins as a shorter one does.
            let mut dice = Dice::new(seed.wrapping_mul(1_000_003).wrapping_add(number as u64));
            let until = if source.during.1 > 0.0 { source.during.1 } else { seconds as f64 };
            let mut at = source.during.0;
            loop {
                at += dice.exponential(source.rate);
                if at >= until {
                    break;
                }
                let input = dice.log_normal(source.input.0, source.input.1).clamp(1.0, source.longest.0) as u64;
                let output = dice.log_normal(source.output.0, source.output.1).clamp(1.0, source.longest.1) as u64;
                load.jobs.push(Job { at: (at * 1e9) as u64, tenant, input, output });
            }
        }
        load.jobs.sort_by_key(|job| job.at);
        load
    }
}

/// The three hogs and their neighbours for as long as is asked.
pub fn three_hogs(seconds: u64, seed: u64) -> Load {
    Recipe::named("three_hogs").draw(&format!("three_hogs {seconds} s"), seconds, seed)
}
