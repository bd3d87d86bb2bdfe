//! A model's price as the document writes it.
//!
//! Floor 1. Invariant: each key is a price class of `price`, so what can be priced can be written, and nothing else.

use std::sync::Arc;

use serde_json::json;

use super::error::{ErrorKind, PolicyErrors, Report};
use super::fields::{self, Cursor, Fields, Spanned};
use super::node;
use super::price::{Per, Price, PriceClass, PriceError, Rates, ServicePrices};
use crate::units::MAX_AMOUNT;

/// Other names of classes, as price lists write them.
const SYNONYMS: [&str; 2] = ["cache_read", "cache_write_5m"];

impl Price {
    /// A price as a policy's `price` states it, in YAML or JSON: classes in USD per million tokens and per one of the rest,
    /// `above` for context thresholds, `services` for service tiers.
    ///
    /// ```
    /// use quota_core::policy::price::Price;
    /// use quota_core::usage::Usage;
    ///
    /// let price = Price::from_yaml("{input: 0.5, output: 2, services: {flex: {input: 0.25, output: 1}}}")?;
    /// assert_eq!(price.exact(&Usage::tokens(1000, 500)).to_string(), "0.0015");
    /// # Ok::<(), quota_core::policy::PolicyErrors>(())
    /// ```
    ///
    /// # Errors
    /// Everything that is wrong with it, in one report.
    pub fn from_yaml(text: &str) -> Result<Price, PolicyErrors> {
        let mut report = Report::default();
        let read = node::parse(text, &mut report).and_then(|node| fields::read_part(&node, &mut report, price));
        match read {
            Some(price) if report.is_empty() => Ok(Arc::unwrap_or_clone(price.value)),
            _ => Err(report.finish("price")),
        }
    }
}

/// Reads a price.
pub(crate) fn price(c: Cursor<'_>) -> Option<Spanned<Arc<Price>>> {
    let at = c.at().clone();
    let value = c.record("price", |f| {
        let mut builder = Price::builder();
        let mut sound = schedule(f, builder.standard());
        let services = f.get("services", "Prices of service tiers, by their names", |c| {
            c.table(|c| {
                let mut prices = ServicePrices::default();
                c.record("service_price", |f| schedule(f, &mut prices)).map(|sound| (prices, sound))
            })
        });
        for (name, (prices, whole)) in services.unwrap_or_default() {
            sound &= whole;
            match builder.service(&name.value) {
                Ok(service) => *service = prices,
                Err(why) => {
                    sound = false;
                    f.error(&name.at, ErrorKind::BadValue, why.to_string());
                }
            }
        }
        if !sound {
            return None; // told above; building the rest would only tell of gaps
        }
        let at = f.at().clone();
        builder.build().map_err(|why| f.error(&at, ErrorKind::BadValue, why.to_string())).ok()
    });
    value.flatten().map(|value| Spanned { value: Arc::new(value), at })
}

/// Reads prices at any length and above context thresholds; tells whether all of it was sound.
fn schedule(f: &mut Fields<'_>, prices: &mut ServicePrices) -> bool {
    let mut sound = classes(f, |class, text, per| prices.set(class, text, per));
    let tiers = f.get("above", "Prices of requests with more input than `tokens`, for all of the request", |c| {
        c.list(|c| {
            c.record("price_above", |f| {
                let mut rates = Rates::default();
                let tokens = f.need("tokens", "Input tokens above which these hold", |c| c.count(1..=MAX_AMOUNT));
                let whole = classes(f, |class, text, per| rates.set(class, text, per));
                (tokens, rates, whole)
            })
        })
    });
    for (tokens, rates, whole) in tiers.unwrap_or_default() {
        let Some(tokens) = tokens.filter(|_| whole) else {
            sound = false;
            continue;
        };
        match prices.tier(tokens.value) {
            Ok(tier) => *tier = rates,
            Err(why) => {
                sound = false;
                f.error(&tokens.at, ErrorKind::BadValue, why.to_string());
            }
        }
    }
    sound
}

/// Reads the price of each class; tells whether every one that is there was sound.
fn classes(f: &mut Fields<'_>, mut set: impl FnMut(PriceClass, &str, Per) -> Result<(), PriceError>) -> bool {
    let mut sound = true;
    let mut seen = [false; PriceClass::ALL.len()];
    for key in PriceClass::ALL.map(PriceClass::key).into_iter().chain(SYNONYMS) {
        let Some((class, per)) = PriceClass::from_key(key) else { continue };
        let about = match per {
            Per::Million => "USD per million tokens",
            Per::One => "USD for one",
        };
        let mut wrong = false;
        let read = f.get(key, about, |c| {
            let shape = || json!({ "anyOf": [{ "type": "number", "minimum": 0 }, { "type": "string" }] });
            let value = c.scalar(shape, "a price in USD", |text| set(class, text, per).map_err(|why| why.to_string()));
            wrong = value.is_none();
            value
        });
        sound &= !wrong;
        if let Some(read) = read {
            if seen[class as usize] {
                f.error(&read.at, ErrorKind::Duplicate, format!("`{}` is priced twice, under two names", class.key()));
                sound = false;
            }
            seen[class as usize] = true;
        }
    }
    sound
}
