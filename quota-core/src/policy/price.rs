//! Prices: integers of picodollars, the cost of a usage, and the worst case of a request.
//!
//! Floor 1. Invariant: no floating point between a price's text and the cost, and a class without a price of its own is
//! charged at a stated other class's price or reported as unpriced, never silently free.
//!
//! A price is built once from texts and is immutable afterwards:
//!
//! ```
//! use quota_core::policy::price::{Per, Price, PriceClass};
//!
//! let mut price = Price::builder();
//! price.set(PriceClass::Input, "1.25", Per::Million)?;
//! price.set(PriceClass::Output, "10.00", Per::Million)?;
//! price.tier(200_000)?.set(PriceClass::Input, "2.50", Per::Million)?; // above 200,000 input tokens
//! let flex = price.service("flex")?;
//! flex.set(PriceClass::Input, "0.625", Per::Million)?;
//! flex.tier(200_000)?.set(PriceClass::Input, "1.25", Per::Million)?;
//! let price = price.build()?;
//! # Ok::<(), quota_core::policy::price::PriceError>(())
//! ```
//!
//! [`PriceClass::from_key`] maps a document's key (`input`, `cached_input`, …) to the class and to what its number is
//! per; a number given to `set` again replaces the first.
//!
//! How gaps are filled, when the price is built:
//!
//! * A class that nobody prices costs what its [`PriceClass::falls_back_to`] costs. An explicit `0` is a price.
//! * Above a threshold, a class that the tier leaves out keeps its price from below, or takes the tier's price of the
//!   class it falls back to, whichever is dearer.
//! * A service tier that leaves a class out has the standard price of the same context tier; one that prices a class
//!   below a threshold but not above has the dearer of that and the standard price above.

mod build;
mod class;

use std::borrow::Cow;
use std::sync::Arc;

pub use build::{PriceBuilder, PriceError, Rates, ServicePrices};
pub use class::{Per, PriceClass};

use self::build::{is_auto, service_name};
use self::class::CLASSES;
use crate::units::{Pico, Usd};
use crate::usage::Usage;

/// Prices of one context tier, every gap filled.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Row {
    /// Holds for requests with more input tokens than this; the first row of a schedule holds for the rest too.
    above: u64,
    /// Picodollars of one unit, by class; 0 where there is no price.
    rates: [u64; CLASSES],
    /// Which classes have a price, their own or another's.
    priced: u16,
    /// Which classes have another's.
    borrowed: u16,
    /// The dearest price of a token of input, of one without audio, image and video, and of a token of output.
    dearest: [u64; 3],
}

impl Row {
    fn has(&self, class: PriceClass) -> bool {
        self.priced & (1 << class as u8) != 0
    }

    fn borrows(&self, class: PriceClass) -> bool {
        self.borrowed & (1 << class as u8) != 0
    }

    /// What so many units of a class cost; a fraction of a picodollar, which only milliseconds have, counts as one.
    fn cost(&self, class: PriceClass, units: u64) -> u128 {
        if units == 0 {
            return 0;
        }
        // 2^64 units at 2^50 picodollars, sixteen times, stay below 2^118.
        let product = units as u128 * self.rates[class as usize] as u128;
        if class.is_time() { product.div_ceil(1000) } else { product }
    }

    /// Reckons the dearest prices, when all rates are there.
    fn finish(&mut self) {
        let rates = &self.rates;
        let media = |class| matches!(class, PriceClass::InputAudio | PriceClass::InputImage | PriceClass::InputVideo);
        let dearest = |wanted: &dyn Fn(PriceClass) -> bool| {
            let wanted = PriceClass::ALL.into_iter().filter(|class| wanted(*class));
            wanted.map(|class| rates[class as usize]).max().unwrap_or(0)
        };
        let input = dearest(&|class| class.is_input());
        let text = dearest(&|class| class.is_input() && !media(class));
        let output = dearest(&|class| class.is_token() && !class.is_input());
        self.dearest = [input, text, output];
    }
}

/// The bits of all classes of tokens in [`Row::priced`].
const ALL_TOKENS: u16 = (1 << PriceClass::Request as u16) - 1;

/// What a model costs: prices by class, context tier and service tier.
///
/// Reckoning a cost allocates nothing and takes a time bounded by the number of classes and tiers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Price {
    standard: Vec<Row>,
    services: Vec<(Arc<str>, Vec<Row>)>,
}

/// What a request may use at most, to find its worst case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ask<'a> {
    /// The largest input, in tokens: the estimate with its error.
    pub input: u64,
    /// The largest output over all choices, in tokens.
    pub output: u64,
    /// The service tier asked for; `None` and `auto` leave it to the provider.
    pub service_tier: Option<&'a str>,
    /// Whether the input is known to have no audio, image or video.
    pub text_only: bool,
    /// The most web searches.
    pub web_searches: u64,
    /// The longest audio, in milliseconds, where the model is priced by time.
    pub audio_millis: u64,
}

/// A cost with its explanation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cost {
    /// The sum of the lines.
    pub exact: Pico,
    /// One line for each class that was used and has a price. Thinking that costs what output costs is in its line.
    pub lines: Vec<Line>,
    /// Whether a line has the price of another class.
    pub fallback: bool,
    /// Whether something was used that has no price at all and is in no line.
    pub unpriced: bool,
}

/// One line of a cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line {
    /// What was used.
    pub class: PriceClass,
    /// How much: tokens, requests, searches, or milliseconds.
    pub units: u64,
    /// Picodollars for one token, request, search or second.
    pub rate: u64,
    /// What it costs.
    pub cost: Pico,
    /// Whether the price is another class's.
    pub fallback: bool,
}

impl Price {
    /// Starts a price.
    pub fn builder() -> PriceBuilder {
        PriceBuilder::default()
    }

    /// Whether the standard prices have one for the class, its own or the one it falls back to.
    pub fn has(&self, class: PriceClass) -> bool {
        self.standard[0].has(class)
    }

    /// What a usage costs, at the service tier that it reports (the standard one if it reports none or one without
    /// prices) and the context tier that its whole input is in.
    pub fn exact(&self, usage: &Usage) -> Pico {
        let row = self.row(usage);
        let cost = |class: PriceClass, units| units as u128 * row.rates[class as usize] as u128;
        let input = cost(PriceClass::Input, usage.input_uncached)
            + cost(PriceClass::CacheRead, usage.input_cache_read)
            + cost(PriceClass::CacheWrite5m, usage.input_cache_write_5m)
            + cost(PriceClass::CacheWrite1h, usage.input_cache_write_1h)
            + cost(PriceClass::CacheWriteOther, usage.input_cache_write_other)
            + cost(PriceClass::InputAudio, usage.input_audio)
            + cost(PriceClass::InputImage, usage.input_image)
            + cost(PriceClass::InputVideo, usage.input_video);
        let output = cost(PriceClass::Output, usage.output_text)
            + cost(PriceClass::Reasoning, usage.output_reasoning)
            + cost(PriceClass::OutputAudio, usage.output_audio)
            + cost(PriceClass::OutputImage, usage.output_image);
        let calls = cost(PriceClass::Request, usage.requests) + cost(PriceClass::WebSearch, usage.web_searches);
        let time = row.cost(PriceClass::AudioSecond, usage.audio_millis)
            + row.cost(PriceClass::OutputAudioSecond, usage.audio_millis);
        Pico(input + output + calls + time)
    }

    /// The usage as it is billed. Where the upstream does not say which tier served it, the dearer of the standard tier
    /// and the one that was asked for counts: asking for a cheap tier does not make it so.
    pub fn billed<'u>(&self, usage: &'u Usage, asked: Option<&str>) -> Cow<'u, Usage> {
        let Some(asked) = asked.filter(|_| usage.service_tier.is_none()) else { return Cow::Borrowed(usage) };
        let tiered = Usage { service_tier: Some(asked.to_owned()), ..usage.clone() };
        if self.exact(&tiered) > self.exact(usage) { Cow::Owned(tiered) } else { Cow::Borrowed(usage) }
    }

    /// Whether every kind of token has a price at the standard tier.
    pub(crate) fn has_all_tokens(&self) -> bool {
        self.standard.iter().all(|row| row.priced & ALL_TOKENS == ALL_TOKENS)
    }

    /// Whether something of a usage has no price at all, so that [`exact`](Price::exact) leaves it out.
    pub fn lacks(&self, usage: &Usage) -> bool {
        let row = self.row(usage);
        // Of most models every token has a price, and most usages are of tokens alone.
        let tokens_only = usage.web_searches == 0 && usage.audio_millis == 0 && !usage.has_other_units();
        if tokens_only && row.priced & ALL_TOKENS == ALL_TOKENS {
            return false;
        }
        let by_time = row.has(PriceClass::AudioSecond) || row.has(PriceClass::OutputAudioSecond);
        // A price by the request covers the units that have none of their own.
        let other = usage.has_other_units() && !row.has(PriceClass::Request);
        let unpriced = |class: PriceClass| {
            let free = class == PriceClass::Request || class.is_time() && by_time;
            !free && !row.has(class) && class.units(usage) > 0
        };
        other || PriceClass::ALL.into_iter().any(unpriced)
    }

    /// What a usage costs, line by line; `exact` is that of [`exact`](Price::exact).
    pub fn cost(&self, usage: &Usage) -> Cost {
        let row = self.row(usage);
        let joined = row.borrows(PriceClass::Reasoning);
        let mut cost = Cost { exact: Pico(0), lines: Vec::new(), fallback: false, unpriced: self.lacks(usage) };
        for class in PriceClass::ALL {
            let units = match class {
                PriceClass::Output if joined => usage.output_text.saturating_add(usage.output_reasoning),
                PriceClass::Reasoning if joined => 0,
                other => other.units(usage),
            };
            if units == 0 || !row.has(class) {
                continue;
            }
            let fallback = row.borrows(class) && class.guesses();
            let line = Pico(row.cost(class, units));
            cost.exact.0 += line.0;
            cost.fallback |= fallback;
            cost.lines.push(Line { class, units, rate: row.rates[class as usize], cost: line, fallback });
        }
        cost
    }

    /// The most that a request can cost: all input at the dearest price of input, all output at the dearest of output,
    /// in the dearest of the context tiers that an input up to the given one falls in and of the service tiers that may
    /// serve it. Those are the standard one and the one asked for, or, where the choice is the provider's, `flex` and
    /// `priority`.
    pub fn worst_case(&self, ask: &Ask<'_>) -> Pico {
        if let ([row], []) = (&*self.standard, &*self.services) {
            return Pico(worst_in(row, ask));
        }
        Pico(self.reached(ask).map(|row| worst_in(row, ask)).max().unwrap_or(0))
    }

    /// The largest output with which the worst case of a request is at most this much, whatever output it states; `None`
    /// if its input alone costs more.
    pub fn largest_output(&self, ask: &Ask<'_>, most: Usd) -> Option<u64> {
        // A cost is rounded up to a unit of 1e-8 USD.
        let most = most.units() as u128 * 10_000;
        let input = Ask { output: 0, ..*ask };
        self.reached(ask).try_fold(u64::MAX, |least, row| {
            let left = most.checked_sub(worst_in(row, &input))?;
            let output = left.checked_div(row.dearest[2] as u128).unwrap_or(u128::MAX);
            Some(least.min(u64::try_from(output).unwrap_or(u64::MAX)))
        })
    }

    /// The rows that may price a request.
    fn reached<'a>(&'a self, ask: &'a Ask<'_>) -> impl Iterator<Item = &'a Row> {
        let wanted = |name: &str| match ask.service_tier {
            None => matches!(name, "flex" | "priority"),
            Some(asked) if is_auto(asked) => matches!(name, "flex" | "priority"),
            Some(asked) => service_name(asked) == Some(name),
        };
        let services = self.services.iter().filter(move |(name, _)| wanted(name)).map(|(_, rows)| rows);
        std::iter::once(&self.standard).chain(services).flat_map(|rows| {
            let reached = rows.iter().enumerate().filter(|(at, row)| *at == 0 || ask.input > row.above);
            reached.map(|(_, row)| row)
        })
    }

    fn row(&self, usage: &Usage) -> &Row {
        let named = usage.service_tier.as_deref().and_then(service_name);
        let rows = match named.and_then(|name| self.services.iter().find(|(known, _)| **known == *name)) {
            Some((_, rows)) => rows,
            None => &self.standard,
        };
        if let [row] = &**rows {
            return row;
        }
        let input = usage.input_total();
        rows[1..].iter().rev().find(|row| input > row.above).unwrap_or(&rows[0])
    }
}

fn worst_in(row: &Row, ask: &Ask<'_>) -> u128 {
    let [input, text, output] = row.dearest;
    let input = if ask.text_only { text } else { input };
    ask.input as u128 * input as u128
        + ask.output as u128 * output as u128
        + row.cost(PriceClass::Request, 1)
        + row.cost(PriceClass::WebSearch, ask.web_searches)
        + row.cost(PriceClass::AudioSecond, ask.audio_millis)
        + row.cost(PriceClass::OutputAudioSecond, ask.audio_millis)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Picos = [Option<u32>; CLASSES];

    fn set(rates: &mut Rates, picos: &Picos) {
        for (class, pico) in PriceClass::ALL.into_iter().zip(picos) {
            if let Some(pico) = pico {
                rates.set(class, &format!("{pico}e-12"), Per::One).unwrap();
            }
        }
    }

    fn build(base: &Picos, tiers: &[(u64, Picos)], flex: Option<&Picos>) -> Price {
        let mut price = Price::builder();
        price.set(PriceClass::Input, "0", Per::One).unwrap();
        set(price.tier(0).unwrap(), base);
        for (above, picos) in tiers {
            set(price.tier(*above).unwrap(), picos);
        }
        if let Some(picos) = flex {
            set(price.service("flex").unwrap().tier(0).unwrap(), picos);
        }
        price.build().unwrap()
    }

    fn picos() -> impl Strategy<Value = Picos> {
        proptest::array::uniform(proptest::option::of(0..1_000_000u32))
    }

    fn usage() -> impl Strategy<Value = Usage> {
        (proptest::array::uniform12(0..5_000u64), 0..4u64, 0..9_999u64, proptest::bool::ANY).prop_map(
            |(n, searches, millis, flex)| Usage {
                input_uncached: n[0],
                input_cache_read: n[1],
                input_cache_write_5m: n[2],
                input_cache_write_1h: n[3],
                input_cache_write_other: n[4],
                input_audio: n[5],
                input_image: n[6],
                input_video: n[7],
                output_text: n[8],
                output_reasoning: n[9],
                output_audio: n[10],
                output_image: n[11],
                requests: 1,
                audio_millis: millis,
                web_searches: searches,
                service_tier: flex.then(|| "flex".to_owned()),
                ..Usage::default()
            },
        )
    }

    proptest! {
        #[test]
        fn lines_add_up_and_the_worst_case_covers(
            base in picos(), tier in picos(), flex in picos(), above in 1..40_000u64, used in usage(), spare in 0..500u64,
        ) {
            let price = build(&base, &[(above, tier)], Some(&flex));
            let cost = price.cost(&used);
            prop_assert_eq!(cost.exact, price.exact(&used));
            prop_assert_eq!(cost.exact.0, cost.lines.iter().map(|line| line.cost.0).sum::<u128>());
            let ask = Ask {
                input: used.input_total() + spare,
                output: used.output_total(),
                web_searches: used.web_searches,
                audio_millis: used.audio_millis,
                ..Ask::default()
            };
            prop_assert!(cost.exact <= price.worst_case(&ask));
            // The largest output costs no more than there is; one token more does, where it costs anything.
            let most = Usd::from_units(spare * 1000);
            if let Some(output) = price.largest_output(&ask, most) {
                let least = price.worst_case(&Ask { output, ..ask }).to_usd();
                prop_assert!(least <= most);
                let more = price.worst_case(&Ask { output: output.saturating_add(1), ..ask }).to_usd();
                prop_assert!(more > most || output == u64::MAX);
            } else {
                let none = price.worst_case(&Ask { output: 0, ..ask }).to_usd();
                prop_assert!(none > most);
            }
            let text = Usage { input_audio: 0, input_image: 0, input_video: 0, ..used };
            let ask = Ask { text_only: true, ..ask };
            prop_assert!(price.exact(&text) <= price.worst_case(&ask));
        }

        #[test]
        fn more_never_costs_less(
            base in picos(), rise in picos(), above in 1..40_000u64, used in usage(), more in usage(),
        ) {
            let raised = std::array::from_fn(|at| base[at].map(|pico| pico + rise[at].unwrap_or(0)));
            let price = build(&base, &[(above, raised)], None);
            let mut sum = used.clone();
            sum.add(&more);
            prop_assert!(price.exact(&used) <= price.exact(&sum));
        }
    }

    #[test]
    fn the_largest_numbers_do_not_overflow() {
        let mut price = Price::builder();
        for class in PriceClass::ALL {
            price.set(class, if class.is_token() { "0.01" } else { "1000" }, Per::One).unwrap();
        }
        let price = price.build().unwrap();
        let max = u64::MAX;
        let mut used = Usage { requests: max, audio_millis: max, web_searches: max, ..Usage::tokens(max, max) };
        used.input_cache_read = max;
        assert_eq!(price.cost(&used).exact, price.exact(&used));
        let ask = Ask { input: max, output: max, web_searches: max, audio_millis: max, ..Ask::default() };
        assert!(price.worst_case(&ask) > Pico(0));
    }

    #[test]
    fn a_fraction_of_a_picodollar_is_one() {
        let mut price = Price::builder();
        price.set(PriceClass::AudioSecond, "0.000000000001", Per::One).unwrap();
        let price = price.build().unwrap();
        assert_eq!(price.exact(&Usage { audio_millis: 1, ..Usage::default() }), Pico(1));
        assert!(price.cost(&Usage { search_units: 1, ..Usage::default() }).unpriced);
        assert!(!price.has(PriceClass::Input));
    }
}
