//! One limit built: its window, its amounts checked against their word, its defaults.
//!
//! Floor 1. Invariant: a built amount fits its word, and a built rate's times fit 63 bits of nanoseconds.

use std::collections::HashMap;
use std::sync::Arc;

use super::error::{ErrorKind, Origin, Report};
use super::fields::Spanned;
use super::limits::{LimitDoc, Span};
use super::plan::{Hold, Limit, Override, Window};
use crate::time::{Calendar, SECOND, Unit};
use crate::units::Meter;

/// The most tenants, limits, and models of tenants that a document compiles into; what tenants share counts once.
pub const MAX_COMPILED: usize = 2_000_000;

/// The most overrides of one limit: they are looked through at an admission.
pub const MAX_OVERRIDES: usize = 64;

/// Builds limits; calendars of the same unit and zone are shared.
#[derive(Debug, Default)]
pub(crate) struct Builder {
    calendars: HashMap<(Unit, Arc<str>), Arc<Calendar>>,
    built: usize,
}

/// Whether a layer is built to be run, or only to be checked: then a limit may still wait for its amount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Run,
    Check,
}

impl Builder {
    /// Counts what a plan repeats for each of its tenants; `false` when the plan has become too large.
    pub(crate) fn charge(&mut self, entries: usize) -> bool {
        self.built = self.built.saturating_add(entries);
        self.built <= MAX_COMPILED
    }

    /// Whether [`MAX_COMPILED`] is passed.
    pub(crate) fn is_full(&self) -> bool {
        self.built > MAX_COMPILED
    }

    /// Builds the limits of one scope, in a zone.
    pub(crate) fn limits(
        &mut self,
        docs: &[LimitDoc],
        zone: &Arc<str>,
        purpose: Purpose,
        report: &mut Report,
    ) -> Vec<Limit> {
        self.charge(docs.len());
        docs.iter().filter_map(|doc| self.limit(doc, zone, purpose, report)).collect()
    }

    fn limit(&mut self, doc: &LimitDoc, zone: &Arc<str>, purpose: Purpose, report: &mut Report) -> Option<Limit> {
        let window = self.window(doc, zone)?;
        let most = window.max_amount();
        if doc.hard.is_none() && doc.soft.is_none() {
            if purpose == Purpose::Run {
                report.add(&doc.at, ErrorKind::Missing, format!("`{}` has neither `hard` nor `soft`", doc.name));
            }
            return None;
        }
        if let (None, Some(soft), Window::Rolling { .. }) = (&doc.hard, &doc.soft, &window) {
            // A bucket without an end has no level that a soft amount could be compared with.
            report.add(
                &soft.at,
                ErrorKind::Missing,
                format!("`{}` is a rate: `soft` needs `hard` beside it", doc.name),
            );
        }
        for amount in [&doc.hard, &doc.soft, &doc.burst].into_iter().flatten() {
            fits(doc.meter, amount, most, report);
        }
        let hard = doc.hard.as_ref().map_or(most, |hard| hard.value);
        let soft = doc.soft.as_ref().map(|soft| soft.value);
        if let Some(soft) = doc.soft.as_ref().filter(|soft| soft.value > hard) {
            let (soft_shown, hard) = (doc.meter.show(soft.value), doc.meter.show(hard));
            report.add(&soft.at, ErrorKind::Conflict, format!("soft {soft_shown} is above hard {hard}"));
        }
        if let Some(percent) = doc.alert_percent.as_ref().filter(|_| doc.hard.is_none()) {
            report.add(&percent.at, ErrorKind::Missing, "a percentage of `hard`, which is not set");
        }
        let burst = burst(doc, &window, hard, doc.burst.as_ref(), hard, report);
        Some(Limit {
            name: doc.name.clone(),
            meter: doc.meter,
            window,
            hard,
            soft,
            burst,
            mode: doc.mode.as_ref().map(|mode| mode.value).unwrap_or_default(),
            on_exceed: doc.on_exceed.as_ref().map(|on_exceed| on_exceed.value).unwrap_or_default(),
            hold: doc.hold.as_ref().map_or_else(|| Hold::by_default(doc.meter), |hold| hold.value),
            alert_percent: doc.alert_percent.as_ref().map(|percent| percent.value as u8),
            overrides: Vec::new(),
        })
    }

    fn window(&mut self, doc: &LimitDoc, zone: &Arc<str>) -> Option<Window> {
        let start_day = doc.start_day.as_ref().map_or(1, |day| day.value as u8);
        let unit = match doc.span {
            Span::Held => return Some(Window::Held),
            Span::Rate(seconds) | Span::Seconds(seconds) if doc.rolls() => {
                return Some(Window::Rolling { nanos: seconds as u64 * SECOND });
            }
            Span::Rate(seconds) | Span::Seconds(seconds) => Unit::Seconds(seconds),
            Span::Day => Unit::Day,
            Span::Week => Unit::Week,
            Span::Month => Unit::Month { start_day },
        };
        let key = (unit, zone.clone());
        if let Some(calendar) = self.calendars.get(&key) {
            return Some(Window::Fixed(calendar.clone()));
        }
        // The zone was looked up when it was read.
        let calendar = Arc::new(Calendar::new(unit, zone).ok()?);
        self.calendars.insert(key, calendar.clone());
        Some(Window::Fixed(calendar))
    }
}

/// Adds an override to the limit that it names.
pub(crate) fn override_limit(limit: &mut Limit, doc: &LimitDoc, (starts, expires): (u64, u64), report: &mut Report) {
    let Some(hard) = &doc.hard else {
        report.add(&doc.at, ErrorKind::Missing, format!("the override of `{}` has no `hard`", doc.name));
        return;
    };
    let others: [Option<&Origin>; 7] = [
        doc.soft.as_ref().map(|o| &o.at),
        doc.rolling.as_ref().map(|o| &o.at),
        doc.on_exceed.as_ref().map(|o| &o.at),
        doc.mode.as_ref().map(|o| &o.at),
        doc.hold.as_ref().map(|o| &o.at),
        doc.alert_percent.as_ref().map(|o| &o.at),
        doc.start_day.as_ref().map(|o| &o.at),
    ];
    for at in others.into_iter().flatten() {
        report.add(at, ErrorKind::Conflict, "an override changes `hard` and `burst` alone");
    }
    let most = limit.window.max_amount();
    for amount in [Some(hard), doc.burst.as_ref()].into_iter().flatten() {
        fits(limit.meter, amount, most, report);
    }
    if limit.overrides.len() == MAX_OVERRIDES {
        let message = format!("more than {MAX_OVERRIDES} overrides of one limit; those that have ended can go");
        report.add(&doc.at, ErrorKind::TooLarge, message);
        return;
    }
    let usual = if limit.burst == limit.hard { hard.value } else { limit.burst };
    let burst = burst(doc, &limit.window, hard.value, doc.burst.as_ref(), usual, report);
    limit.overrides.push(Override { starts, expires, hard: hard.value, burst });
}

/// Tells an amount that its word can't hold.
fn fits(meter: Meter, amount: &Spanned<u64>, most: u64, report: &mut Report) {
    if amount.value > most {
        let (found, most) = (meter.show(amount.value), meter.show(most));
        report.add(&amount.at, ErrorKind::BadValue, format!("{found} is more than {most}, the most for this window"));
    }
}

/// The burst that is written, or the usual one; tells one that contradicts the window or the amount.
fn burst(
    doc: &LimitDoc,
    window: &Window,
    hard: u64,
    written: Option<&Spanned<u64>>,
    usual: u64,
    report: &mut Report,
) -> u64 {
    let burst = written.map_or(usual, |burst| burst.value);
    let at = written.map_or(&doc.at, |burst| &burst.at);
    match window {
        Window::Rolling { nanos } if hard > 0 => {
            if burst == 0 {
                report.add(at, ErrorKind::Conflict, format!("with a burst of 0, nothing can ever fit `{}`", doc.name));
            }
            // A bucket's state is a time: filling it from empty must take less than 2^63 nanoseconds.
            if burst as u128 * *nanos as u128 / hard as u128 >= 1 << 63 {
                let message = format!(
                    "a burst of {burst} at {hard} per {} s takes longer than 292 years to fill",
                    nanos / SECOND
                );
                report.add(at, ErrorKind::BadValue, message);
            }
        }
        Window::Rolling { .. } => {}
        Window::Fixed(_) | Window::Held | Window::Run => {
            if let Some(written) = written {
                let message = format!("`{}` does not roll, so it has no burst", doc.name);
                report.add(&written.at, ErrorKind::Conflict, message);
            }
        }
    }
    burst
}
