//! Building: texts to integers, and every gap filled, so that reckoning only looks up.
//!
//! Floor 1. Invariant: a filled price is never below the price that a document states for the same class and tier.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::class::{CLASSES, Per, PriceClass};
use super::{Price, Row};
use crate::units::{NotDecimal, parse_decimal, parse_decimal_rounded};

/// The dearest price of a token: $0.01, which is $10,000 per million.
const MAX_TOKEN: u128 = 10_000_000_000;
/// The dearest price of anything else (a request, a search, a second): $1,000.
const MAX_OTHER: u128 = 1_000_000_000_000_000;
/// The most context thresholds, and the most service tiers, of one price.
const MAX_VARIANTS: usize = 16;

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
pub(super) fn service_name(name: &str) -> Option<&str> {
    match name {
        "" | "default" | "standard" | "standard_only" | "on_demand" => None,
        "fast" => Some("priority"),
        "batches" => Some("batch"),
        other => Some(other),
    }
}

/// Whether the name leaves the service tier to the provider.
pub(super) fn is_auto(name: &str) -> bool {
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

impl Row {
    fn fill(stated: &Stated) -> Row {
        let mut row = Row { above: stated.above, rates: [0; CLASSES], priced: 0, borrowed: 0, dearest: [0; 3] };
        for class in PriceClass::ALL {
            let own = stated.rates[class as usize];
            if let Some(rate) = own.or_else(|| inherited(&stated.rates, class)) {
                row.rates[class as usize] = rate;
                row.priced |= 1 << class as u8;
                row.borrowed |= (own.is_none() as u16) << class as u8;
            }
        }
        row.finish();
        row
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_exact_and_bounded() {
        use PriceClass::{Input, WebSearch};
        for (class, text, per, want) in [
            (Input, "2.50", Per::Million, Some(2_500_000)),
            (Input, "1.25e-07", Per::One, Some(125_000)),
            (Input, "0", Per::One, Some(0)),
            (Input, "10000", Per::Million, Some(10_000_000_000)),
            (Input, "10000.01", Per::Million, None),
            (Input, "0.010000000001", Per::One, None),
            (Input, "0.0000001", Per::Million, None),
            (Input, "1e400", Per::One, None),
            (WebSearch, "1000", Per::One, Some(1_000_000_000_000_000)),
            (WebSearch, "1000.5", Per::One, None),
        ] {
            let mut rates = Rates::default();
            assert_eq!(rates.set(class, text, per).is_ok(), want.is_some(), "{text}");
            assert_eq!(rates.0[class as usize], want, "{text}");
        }
    }

    #[test]
    fn rounding_is_told_and_never_to_nothing() {
        let mut rates = Rates::default();
        assert_eq!(rates.set_rounded(PriceClass::Input, "2.0000000000000002e-07", Per::One), Ok(true));
        assert_eq!(rates.0[0], Some(200_000));
        assert_eq!(rates.set_rounded(PriceClass::Input, "1e-20", Per::One), Ok(true));
        assert_eq!(rates.0[0], Some(1));
        assert_eq!(rates.set_rounded(PriceClass::Input, "0e-20", Per::One), Ok(false));
        assert_eq!(rates.0[0], Some(0));
    }

    #[test]
    fn variants_are_bounded() {
        let mut price = PriceBuilder::default();
        for above in 0..16 {
            price.tier(above).unwrap();
            price.service(&format!("s{above}")).unwrap();
        }
        assert!(price.tier(15).is_ok() && price.service("s15").is_ok());
        assert_eq!(price.tier(16).err(), Some(PriceError::TooMany { what: "context thresholds" }));
        assert!(matches!(price.service("s16"), Err(PriceError::TooMany { .. })));
        assert_eq!(price.build(), Err(PriceError::Empty));
    }

    #[test]
    fn names_of_service_tiers() {
        for (name, known) in [("fast", Some("priority")), ("batches", Some("batch")), ("flex", Some("flex"))] {
            assert_eq!(service_name(name), known);
        }
        for name in ["", "default", "standard", "standard_only", "auto"] {
            assert!(PriceBuilder::default().service(name).is_err(), "{name}");
        }
    }
}
