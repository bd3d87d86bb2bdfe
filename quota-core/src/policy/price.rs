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

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::units::{NotDecimal, Pico, parse_decimal, parse_decimal_rounded};
use crate::usage::Usage;

/// Classes of a price.
const CLASSES: usize = PriceClass::ALL.len();
/// The dearest price of a token: $0.01, which is $10,000 per million.
const MAX_TOKEN: u128 = 10_000_000_000;
/// The dearest price of anything else (a request, a search, a second): $1,000.
const MAX_OTHER: u128 = 1_000_000_000_000_000;
/// The most context thresholds, and the most service tiers, of one price.
const MAX_VARIANTS: usize = 16;

/// What has a price of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PriceClass {
    /// Input tokens: text, what tools inject, and whatever is not told apart.
    Input,
    /// Input tokens read from a cache.
    CacheRead,
    /// Input tokens written to a cache for five minutes, the default retention.
    CacheWrite5m,
    /// Input tokens written to a cache for an hour.
    CacheWrite1h,
    /// Input tokens written to a cache for another time.
    CacheWriteOther,
    /// Audio tokens of the input.
    InputAudio,
    /// Image tokens of the input.
    InputImage,
    /// Video tokens of the input.
    InputVideo,
    /// Output tokens.
    Output,
    /// Output tokens of thinking.
    Reasoning,
    /// Audio tokens of the output.
    OutputAudio,
    /// Image tokens of the output.
    OutputImage,
    /// The request itself.
    Request,
    /// One web search.
    WebSearch,
    /// One second of audio that goes in.
    AudioSecond,
    /// One second of audio that comes out.
    OutputAudioSecond,
}

/// What a number in a document is the price of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Per {
    /// A million units.
    Million,
    /// One unit.
    One,
}

impl PriceClass {
    /// Every class, in the order of cost lines.
    pub const ALL: [PriceClass; 16] = [
        PriceClass::Input,
        PriceClass::CacheRead,
        PriceClass::CacheWrite5m,
        PriceClass::CacheWrite1h,
        PriceClass::CacheWriteOther,
        PriceClass::InputAudio,
        PriceClass::InputImage,
        PriceClass::InputVideo,
        PriceClass::Output,
        PriceClass::Reasoning,
        PriceClass::OutputAudio,
        PriceClass::OutputImage,
        PriceClass::Request,
        PriceClass::WebSearch,
        PriceClass::AudioSecond,
        PriceClass::OutputAudioSecond,
    ];

    /// The name in documents and in cost lines.
    pub const fn key(self) -> &'static str {
        match self {
            PriceClass::Input => "input",
            PriceClass::CacheRead => "cached_input",
            PriceClass::CacheWrite5m => "cache_write",
            PriceClass::CacheWrite1h => "cache_write_1h",
            PriceClass::CacheWriteOther => "cache_write_other",
            PriceClass::InputAudio => "input_audio",
            PriceClass::InputImage => "input_image",
            PriceClass::InputVideo => "input_video",
            PriceClass::Output => "output",
            PriceClass::Reasoning => "reasoning",
            PriceClass::OutputAudio => "output_audio",
            PriceClass::OutputImage => "output_image",
            PriceClass::Request => "per_request",
            PriceClass::WebSearch => "web_search",
            PriceClass::AudioSecond => "audio_second",
            PriceClass::OutputAudioSecond => "output_audio_second",
        }
    }

    /// The class of a document's key, and what its number is per: a million for tokens, one for the rest. Also takes
    /// `cache_read` for `cached_input` and `cache_write_5m` for `cache_write`.
    pub fn from_key(key: &str) -> Option<(PriceClass, Per)> {
        let key = match key {
            "cache_read" => "cached_input",
            "cache_write_5m" => "cache_write",
            other => other,
        };
        let class = PriceClass::ALL.into_iter().find(|class| class.key() == key)?;
        Some((class, if class.is_token() { Per::Million } else { Per::One }))
    }

    /// The class whose price it has when it has none of its own.
    pub const fn falls_back_to(self) -> Option<PriceClass> {
        match self {
            PriceClass::CacheRead
            | PriceClass::CacheWrite5m
            | PriceClass::InputAudio
            | PriceClass::InputImage
            | PriceClass::InputVideo => Some(PriceClass::Input),
            PriceClass::CacheWrite1h | PriceClass::CacheWriteOther => Some(PriceClass::CacheWrite5m),
            PriceClass::Reasoning | PriceClass::OutputAudio | PriceClass::OutputImage => Some(PriceClass::Output),
            _ => None,
        }
    }

    /// Whether the units are tokens.
    pub const fn is_token(self) -> bool {
        (self as u8) < PriceClass::Request as u8
    }

    /// Whether the units are input tokens.
    const fn is_input(self) -> bool {
        (self as u8) < PriceClass::Output as u8
    }

    /// Whether it is a price of audio by time, whose usage is counted in milliseconds.
    const fn is_time(self) -> bool {
        matches!(self, PriceClass::AudioSecond | PriceClass::OutputAudioSecond)
    }

    /// Whether the price it falls back to is a guess. Thinking is output where no list says otherwise.
    const fn guesses(self) -> bool {
        !matches!(self, PriceClass::Reasoning)
    }

    /// Units of this class in a usage: tokens, requests, searches, or milliseconds.
    const fn units(self, usage: &Usage) -> u64 {
        match self {
            PriceClass::Input => usage.input_uncached,
            PriceClass::CacheRead => usage.input_cache_read,
            PriceClass::CacheWrite5m => usage.input_cache_write_5m,
            PriceClass::CacheWrite1h => usage.input_cache_write_1h,
            PriceClass::CacheWriteOther => usage.input_cache_write_other,
            PriceClass::InputAudio => usage.input_audio,
            PriceClass::InputImage => usage.input_image,
            PriceClass::InputVideo => usage.input_video,
            PriceClass::Output => usage.output_text,
            PriceClass::Reasoning => usage.output_reasoning,
            PriceClass::OutputAudio => usage.output_audio,
            PriceClass::OutputImage => usage.output_image,
            PriceClass::Request => usage.requests,
            PriceClass::WebSearch => usage.web_searches,
            PriceClass::AudioSecond | PriceClass::OutputAudioSecond => usage.audio_millis,
        }
    }
}

/// Why a number is not a price.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PriceError {
    /// The text is not a decimal that a price can be.
    #[error("{class}: {found:?} {why}; a price is a decimal of at least 0 and no finer than 1e-12 USD per unit")]
    NotDecimal {
        /// The class's key.
        class: &'static str,
        /// The text, shortened.
        found: String,
        /// What is wrong with it.
        why: NotDecimal,
    },
    /// The number is so large that its unit must be another.
    #[error("{class}: {found} is above {allowed}; is the number perhaps per another unit?")]
    UnitSlip {
        /// The class's key.
        class: &'static str,
        /// The text, shortened, and what it was taken to be per.
        found: String,
        /// The largest price allowed.
        allowed: &'static str,
    },
    /// More context thresholds or service tiers than one price can have.
    #[error("more than {MAX_VARIANTS} {what}")]
    TooMany {
        /// What there are too many of.
        what: &'static str,
    },
    /// A service tier's name that means the standard price, or none.
    #[error("service tier {found:?}: the name is empty or means the standard price, which has no tier")]
    ServiceName {
        /// The name, shortened.
        found: String,
    },
    /// No price was set.
    #[error("no price is set; a model that is free says `input: 0, output: 0`")]
    Empty,
}

/// Prices by class, as a document states them; a class that it does not state is absent.
#[derive(Debug, Clone, Default)]
pub struct Rates([Option<u64>; CLASSES]);

impl Rates {
    /// Sets the price of a class from the text of a decimal in USD, exactly.
    ///
    /// # Errors
    /// [`PriceError::NotDecimal`] for a negative, malformed or too fine number; [`PriceError::UnitSlip`] above $0.01
    /// for one token or $1,000 for one of anything else.
    pub fn set(&mut self, class: PriceClass, text: &str, per: Per) -> Result<(), PriceError> {
        let pico = parse_decimal(text, per.scale()).map_err(|why| not_decimal(class, text, why))?;
        self.put(class, text, per, pico)
    }

    /// As [`set`](Rates::set), rounding a number finer than a picodollar half to even, but never to zero; tells whether
    /// it rounded.
    ///
    /// # Errors
    /// As [`set`](Rates::set).
    pub fn set_rounded(&mut self, class: PriceClass, text: &str, per: Per) -> Result<bool, PriceError> {
        let (pico, rounded) = parse_decimal_rounded(text, per.scale()).map_err(|why| not_decimal(class, text, why))?;
        let pico = if rounded { pico.max(1) } else { pico };
        self.put(class, text, per, pico)?;
        Ok(rounded)
    }

    fn put(&mut self, class: PriceClass, text: &str, per: Per, pico: u128) -> Result<(), PriceError> {
        let (most, allowed) = match (class.is_token(), per) {
            (true, Per::Million) => (MAX_TOKEN, "$10,000 per million tokens"),
            (true, Per::One) => (MAX_TOKEN, "$0.01 per token"),
            (false, Per::Million) => (MAX_OTHER, "$1,000,000,000 per million"),
            (false, Per::One) => (MAX_OTHER, "$1,000 for one"),
        };
        if pico > most {
            let found = match per {
                Per::Million => format!("{} USD per million", shorten(text)),
                Per::One => format!("{} USD for one", shorten(text)),
            };
            return Err(PriceError::UnitSlip { class: class.key(), found, allowed });
        }
        self.0[class as usize] = Some(pico as u64);
        Ok(())
    }

    fn is_empty(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }
}

impl Per {
    /// Decimal places of a number per this, in picodollars for one.
    const fn scale(self) -> u32 {
        match self {
            Per::Million => 6,
            Per::One => 12,
        }
    }
}

fn shorten(text: &str) -> String {
    text.chars().take(32).collect()
}

fn not_decimal(class: PriceClass, text: &str, why: NotDecimal) -> PriceError {
    PriceError::NotDecimal { class: class.key(), found: shorten(text), why }
}

/// The prices of one service tier as stated: at any length, and above context thresholds.
#[derive(Debug, Clone, Default)]
pub struct ServicePrices {
    base: Rates,
    tiers: BTreeMap<u64, Rates>,
}

impl ServicePrices {
    /// Sets the price of a class at any length of the input.
    ///
    /// # Errors
    /// As [`Rates::set`].
    pub fn set(&mut self, class: PriceClass, text: &str, per: Per) -> Result<(), PriceError> {
        self.base.set(class, text, per)
    }

    /// As [`Rates::set_rounded`], at any length of the input.
    ///
    /// # Errors
    /// As [`Rates::set`].
    pub fn set_rounded(&mut self, class: PriceClass, text: &str, per: Per) -> Result<bool, PriceError> {
        self.base.set_rounded(class, text, per)
    }

    /// The prices of requests whose whole input, cached tokens included, is more than `above` tokens. They hold for
    /// every token of such a request. The same threshold again gives the same prices.
    ///
    /// # Errors
    /// [`PriceError::TooMany`] at the 17th threshold.
    pub fn tier(&mut self, above: u64) -> Result<&mut Rates, PriceError> {
        if self.tiers.len() >= MAX_VARIANTS && !self.tiers.contains_key(&above) {
            return Err(PriceError::TooMany { what: "context thresholds" });
        }
        Ok(self.tiers.entry(above).or_default())
    }

    fn is_empty(&self) -> bool {
        self.base.is_empty() && self.tiers.values().all(Rates::is_empty)
    }
}

/// Collects the numbers of a price; see the head of the module.
#[derive(Debug, Clone, Default)]
pub struct PriceBuilder {
    standard: ServicePrices,
    services: BTreeMap<String, ServicePrices>,
}

impl PriceBuilder {
    /// Sets the standard price of a class at any length of the input.
    ///
    /// # Errors
    /// As [`Rates::set`].
    pub fn set(&mut self, class: PriceClass, text: &str, per: Per) -> Result<(), PriceError> {
        self.standard.set(class, text, per)
    }

    /// The standard prices above a context threshold; see [`ServicePrices::tier`].
    ///
    /// # Errors
    /// As [`ServicePrices::tier`].
    pub fn tier(&mut self, above: u64) -> Result<&mut Rates, PriceError> {
        self.standard.tier(above)
    }

    /// The standard prices.
    pub fn standard(&mut self) -> &mut ServicePrices {
        &mut self.standard
    }

    /// The prices of a service tier (`flex`, `priority`, `batch`, …). The same name again gives the same prices.
    ///
    /// # Errors
    /// [`PriceError::ServiceName`] for a name of the standard tier, [`PriceError::TooMany`] at the 17th name.
    pub fn service(&mut self, name: &str) -> Result<&mut ServicePrices, PriceError> {
        let Some(known) = service_name(name).filter(|known| !is_auto(known)) else {
            return Err(PriceError::ServiceName { found: shorten(name) });
        };
        if self.services.len() >= MAX_VARIANTS && !self.services.contains_key(known) {
            return Err(PriceError::TooMany { what: "service tiers" });
        }
        Ok(self.services.entry(known.to_owned()).or_default())
    }

    /// The price.
    ///
    /// # Errors
    /// [`PriceError::Empty`] if no class has a price.
    pub fn build(self) -> Result<Price, PriceError> {
        if self.standard.is_empty() && self.services.values().all(ServicePrices::is_empty) {
            return Err(PriceError::Empty);
        }
        let standard = Schedule { rows: standard_rows(&self.standard) };
        let services = self.services.iter().filter(|(_, stated)| !stated.is_empty());
        let services =
            services.map(|(name, stated)| (Arc::from(name.as_str()), standard.with_service(stated))).collect();
        Ok(Price { standard: standard.filled(), services })
    }
}

/// The service tier that a name means; `None` for the standard one.
fn service_name(name: &str) -> Option<&str> {
    match name {
        "" | "default" | "standard" | "standard_only" | "on_demand" => None,
        "fast" => Some("priority"),
        "batches" => Some("batch"),
        other => Some(other),
    }
}

/// Whether the name leaves the service tier to the provider.
fn is_auto(name: &str) -> bool {
    name == "auto"
}

/// Prices of one context tier while gaps remain.
#[derive(Debug, Clone)]
struct Stated {
    above: u64,
    rates: [Option<u64>; CLASSES],
}

/// The context tiers of one service tier while gaps remain; the first row holds at any length.
struct Schedule {
    rows: Vec<Stated>,
}

fn standard_rows(stated: &ServicePrices) -> Vec<Stated> {
    let mut rows = vec![Stated { above: 0, rates: stated.base.0 }];
    for (&above, own) in &stated.tiers {
        let mut rates = rows[rows.len() - 1].rates;
        for class in PriceClass::ALL {
            let at = class as usize;
            rates[at] = own.0[at].or(rates[at].map(|below| below.max(inherited(&own.0, class).unwrap_or(0))));
        }
        rows.push(Stated { above, rates });
    }
    rows
}

/// The price of the nearest class, itself left out, that the class falls back to and that has one.
fn inherited(rates: &[Option<u64>; CLASSES], class: PriceClass) -> Option<u64> {
    let mut from = class.falls_back_to();
    while let Some(parent) = from {
        if let Some(rate) = rates[parent as usize] {
            return Some(rate);
        }
        from = parent.falls_back_to();
    }
    None
}

impl Schedule {
    /// The prices of a service tier over these standard ones.
    fn with_service(&self, stated: &ServicePrices) -> Vec<Row> {
        let mut own = stated.base.0;
        let overlay = |own: &[Option<u64>; CLASSES], standard: &Stated, here: &Rates| {
            std::array::from_fn(|at| here.0[at].or(own[at].max(standard.rates[at])))
        };
        let mut rows = vec![Stated { above: 0, rates: overlay(&own, &self.rows[0], &stated.base) }];
        let mut thresholds: Vec<u64> = self.rows[1..].iter().map(|row| row.above).collect();
        thresholds.extend(stated.tiers.keys());
        thresholds.sort_unstable();
        thresholds.dedup();
        for above in thresholds {
            let none = Rates::default();
            let here = stated.tiers.get(&above).unwrap_or(&none);
            let standard = self.rows[1..].iter().rev().find(|row| row.above <= above).unwrap_or(&self.rows[0]);
            for (own, here) in own.iter_mut().zip(here.0) {
                *own = here.or(*own);
            }
            rows.push(Stated { above, rates: overlay(&own, standard, here) });
        }
        Schedule { rows }.filled()
    }

    fn filled(self) -> Vec<Row> {
        self.rows.iter().map(Row::fill).collect()
    }
}

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
}

impl Row {
    fn fill(stated: &Stated) -> Row {
        let mut row = Row { above: stated.above, rates: [0; CLASSES], priced: 0, borrowed: 0 };
        for class in PriceClass::ALL {
            let own = stated.rates[class as usize];
            if let Some(rate) = own.or_else(|| inherited(&stated.rates, class)) {
                row.rates[class as usize] = rate;
                row.priced |= 1 << class as u8;
                row.borrowed |= (own.is_none() as u16) << class as u8;
            }
        }
        row
    }

    fn has(&self, class: PriceClass) -> bool {
        self.priced & (1 << class as u8) != 0
    }

    fn borrows(&self, class: PriceClass) -> bool {
        self.borrowed & (1 << class as u8) != 0
    }

    /// What so many units of a class cost; a fraction of a picodollar, which only milliseconds have, counts as one.
    fn cost(&self, class: PriceClass, units: u64) -> u128 {
        // 2^64 units at 2^50 picodollars, sixteen times, stay below 2^118.
        let product = units as u128 * self.rates[class as usize] as u128;
        if class.is_time() { product.div_ceil(1000) } else { product }
    }

    fn dearest(&self, wanted: impl Fn(PriceClass) -> bool) -> u128 {
        let rates = PriceClass::ALL.into_iter().filter(|class| wanted(*class)).map(|class| self.rates[class as usize]);
        rates.max().unwrap_or(0) as u128
    }
}

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
        Pico(PriceClass::ALL.into_iter().map(|class| row.cost(class, class.units(usage))).sum())
    }

    /// What a usage costs, line by line; `exact` is that of [`exact`](Price::exact).
    pub fn cost(&self, usage: &Usage) -> Cost {
        let row = self.row(usage);
        let joined = row.borrows(PriceClass::Reasoning);
        let mut cost = Cost { exact: Pico(0), lines: Vec::new(), fallback: false, unpriced: false };
        let by_time = row.has(PriceClass::AudioSecond) || row.has(PriceClass::OutputAudioSecond);
        for class in PriceClass::ALL {
            let units = match class {
                PriceClass::Output if joined => usage.output_text.saturating_add(usage.output_reasoning),
                PriceClass::Reasoning if joined => 0,
                other => other.units(usage),
            };
            if units == 0 {
                continue;
            }
            if !row.has(class) {
                cost.unpriced |= class != PriceClass::Request && !(class.is_time() && by_time);
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
        let wanted = |name: &str| match ask.service_tier {
            None => matches!(name, "flex" | "priority"),
            Some(asked) if is_auto(asked) => matches!(name, "flex" | "priority"),
            Some(asked) => service_name(asked) == Some(name),
        };
        let services = self.services.iter().filter(|(name, _)| wanted(name)).map(|(_, rows)| rows);
        let worst = std::iter::once(&self.standard).chain(services).flat_map(|rows| {
            let reached = rows.iter().enumerate().filter(|(at, row)| *at == 0 || ask.input > row.above);
            reached.map(|(_, row)| worst_in(row, ask))
        });
        Pico(worst.max().unwrap_or(0))
    }

    fn row(&self, usage: &Usage) -> &Row {
        let named = usage.service_tier.as_deref().and_then(service_name);
        let rows = match named.and_then(|name| self.services.iter().find(|(known, _)| **known == *name)) {
            Some((_, rows)) => rows,
            None => &self.standard,
        };
        let input = usage.input_total();
        rows[1..].iter().rev().find(|row| input > row.above).unwrap_or(&rows[0])
    }
}

fn worst_in(row: &Row, ask: &Ask<'_>) -> u128 {
    let media = |class| matches!(class, PriceClass::InputAudio | PriceClass::InputImage | PriceClass::InputVideo);
    let input = row.dearest(|class| class.is_input() && !(ask.text_only && media(class)));
    let output = row.dearest(|class| class.is_token() && !class.is_input());
    ask.input as u128 * input
        + ask.output as u128 * output
        + row.cost(PriceClass::Request, 1)
        + row.cost(PriceClass::WebSearch, ask.web_searches)
        + row.cost(PriceClass::AudioSecond, ask.audio_millis)
        + row.cost(PriceClass::OutputAudioSecond, ask.audio_millis)
}
