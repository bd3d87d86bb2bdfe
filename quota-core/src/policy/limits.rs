//! Limits as they are written: the catalogue of their names, their options, and how layers of them merge.
//!
//! Floor 1. Invariant: each short or long name is the same limit, and one place sets a limit once.

use std::sync::Arc;

use super::error::{ErrorKind, Origin};
use super::fields::{Cursor, Fields, Spanned};
use super::plan::{Hold, Mode, OnExceed};
use crate::units::{MAX_AMOUNT, Meter};

/// Over what a limit counts, as its name says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Span {
    /// So many seconds, rolling unless the document says `window: fixed`.
    Rate(u32),
    /// So many seconds, fixed unless the document says `window: rolling`.
    Seconds(u32),
    /// A calendar day.
    Day,
    /// A calendar week.
    Week,
    /// A calendar month.
    Month,
    /// A gauge.
    Held,
}

/// A row of the catalogue: the short and the long name of a limit.
struct Row {
    name: &'static str,
    long: &'static str,
    meter: Meter,
    span: Span,
    about: &'static str,
}

const fn row(name: &'static str, long: &'static str, meter: Meter, span: Span, about: &'static str) -> Row {
    Row { name, long, meter, span, about }
}

use Meter::{InFlight, Input, Money, Output, Requests, Streams, Total};

/// Every limit on counts. The first name is canonical; the second is the same limit.
const COUNTS: &[Row] = &[
    row("rps", "requests_per_second", Requests, Span::Rate(1), "Requests per second"),
    row("rpm", "requests_per_minute", Requests, Span::Rate(60), "Requests per minute"),
    row("rph", "requests_per_hour", Requests, Span::Rate(3600), "Requests per hour"),
    row("rpd", "requests_per_day", Requests, Span::Day, "Requests per calendar day"),
    row("tps", "tokens_per_second", Total, Span::Rate(1), "Input and output tokens per second"),
    row("tpm", "tokens_per_minute", Total, Span::Rate(60), "Input and output tokens per minute"),
    row("tph", "tokens_per_hour", Total, Span::Rate(3600), "Input and output tokens per hour"),
    row("tpd", "tokens_per_day", Total, Span::Day, "Input and output tokens per calendar day"),
    row("tokens_per_month", "", Total, Span::Month, "Input and output tokens per calendar month"),
    row("input_tpm", "input_tokens_per_minute", Input, Span::Rate(60), "Input tokens per minute"),
    row("input_tpd", "input_tokens_per_day", Input, Span::Day, "Input tokens per calendar day"),
    row("output_tpm", "output_tokens_per_minute", Output, Span::Rate(60), "Output tokens per minute"),
    row("output_tpd", "output_tokens_per_day", Output, Span::Day, "Output tokens per calendar day"),
    row("max_inflight", "concurrent_requests", InFlight, Span::Held, "Requests in flight at once"),
    row("max_streams", "concurrent_streams", Streams, Span::Held, "Streams open at once"),
];

/// Every limit on money. The second name is the one inside of `budget`.
const BUDGETS: &[Row] = &[
    row("hourly_budget_usd", "hourly_limit_usd", Money, Span::Seconds(3600), "USD per clock hour"),
    row("daily_budget_usd", "daily_limit_usd", Money, Span::Day, "USD per calendar day"),
    row("weekly_budget_usd", "weekly_limit_usd", Money, Span::Week, "USD per calendar week, from Monday"),
    row("monthly_budget_usd", "monthly_limit_usd", Money, Span::Month, "USD per calendar month"),
];

/// The most free windows of one place: a scope's limits are looked through by name, and held in one row.
const MAX_WINDOWS: usize = 64;
/// The most seconds of a free window: a year.
const MAX_WINDOW_SECONDS: u64 = 366 * 86_400;

/// The canonical name of a limit that the catalogue has under either name.
pub(crate) fn canonical(name: &str) -> Option<&'static str> {
    let named = |row: &&Row| row.name == name || (!row.long.is_empty() && row.long == name);
    COUNTS.iter().chain(BUDGETS).find(named).map(|row| row.name)
}

/// The names of the catalogue.
pub(crate) fn names<'a>() -> impl Iterator<Item = &'a str> {
    COUNTS.iter().chain(BUDGETS).flat_map(|row| [row.name, row.long]).filter(|name| !name.is_empty())
}

/// One limit as one place of the document sets it; what it leaves out is `None`.
#[derive(Debug, Clone)]
pub(crate) struct LimitDoc {
    pub(crate) name: Arc<str>,
    pub(crate) meter: Meter,
    pub(crate) span: Span,
    pub(crate) at: Origin,
    pub(crate) hard: Option<Spanned<u64>>,
    pub(crate) soft: Option<Spanned<u64>>,
    pub(crate) burst: Option<Spanned<u64>>,
    pub(crate) rolling: Option<Spanned<bool>>,
    pub(crate) on_exceed: Option<Spanned<OnExceed>>,
    pub(crate) mode: Option<Spanned<Mode>>,
    pub(crate) hold: Option<Spanned<Hold>>,
    pub(crate) alert_percent: Option<Spanned<u64>>,
    pub(crate) start_day: Option<Spanned<u64>>,
}

impl LimitDoc {
    fn new(name: Arc<str>, meter: Meter, span: Span, at: Origin) -> LimitDoc {
        LimitDoc {
            name,
            meter,
            span,
            at,
            hard: None,
            soft: None,
            burst: None,
            rolling: None,
            on_exceed: None,
            mode: None,
            hold: None,
            alert_percent: None,
            start_day: None,
        }
    }

    /// Whether it is a rate: seconds that roll.
    pub(crate) fn rolls(&self) -> bool {
        let by_default = matches!(self.span, Span::Rate(_));
        self.rolling.as_ref().map_or(by_default, |rolling| rolling.value)
    }

    /// This limit over a weaker one of the same name. A hard amount replaces the weaker one's amounts all together, for a
    /// soft amount and a burst are meant for their hard one; the other options are taken one by one.
    fn over(self, weaker: &LimitDoc) -> LimitDoc {
        let amounts = if self.hard.is_some() {
            &LimitDoc { hard: None, soft: None, burst: None, ..weaker.clone() }
        } else {
            weaker
        };
        let (hard, soft, burst) = (amounts.hard.clone(), amounts.soft.clone(), amounts.burst.clone());
        LimitDoc {
            hard: self.hard.or(hard),
            soft: self.soft.or(soft),
            burst: self.burst.or(burst),
            rolling: self.rolling.or_else(|| weaker.rolling.clone()),
            on_exceed: self.on_exceed.or_else(|| weaker.on_exceed.clone()),
            mode: self.mode.or_else(|| weaker.mode.clone()),
            hold: self.hold.or_else(|| weaker.hold.clone()),
            alert_percent: self.alert_percent.or_else(|| weaker.alert_percent.clone()),
            start_day: self.start_day.or_else(|| weaker.start_day.clone()),
            ..self
        }
    }
}

/// Layers of limits merged, from the weakest to the strongest, in the order in which names first come.
pub(crate) fn merge<'l>(layers: impl IntoIterator<Item = &'l [LimitDoc]>) -> Vec<LimitDoc> {
    let mut merged: Vec<LimitDoc> = Vec::new();
    for limit in layers.into_iter().flatten() {
        match merged.iter_mut().find(|weaker| weaker.name == limit.name) {
            Some(weaker) => *weaker = limit.clone().over(weaker),
            None => merged.push(limit.clone()),
        }
    }
    merged
}

/// Reads every limit that a record may hold, beside its other keys or grouped as `limits`.
pub(crate) fn limits(f: &mut Fields<'_>) -> Vec<LimitDoc> {
    let mut found = every_limit(f);
    let grouped = f.get("limits", "Limits, by any of their names", |c| c.record("limits", every_limit));
    for limit in grouped.into_iter().flatten() {
        add(f, limit, &mut found);
    }
    found
}

/// Reads each name of the catalogue, the two groups, and free windows.
fn every_limit(f: &mut Fields<'_>) -> Vec<LimitDoc> {
    let mut found = named(f, COUNTS);
    for row in BUDGETS {
        put(f, row.name, row, &mut found);
    }
    let rates =
        f.get("rate_limits", "Limits on counts, by their names", |c| c.record("rate_limits", |f| named(f, COUNTS)));
    let budget = f.get("budget", "Limits on money", |c| c.record("budget", budget));
    let windows = f.get("windows", "Limits over windows of any length, at most 64", |c| {
        let at = c.at().clone();
        c.list(window).map(|windows| (at, windows))
    });
    let windows = windows.map(|(at, mut windows)| {
        if windows.len() > MAX_WINDOWS {
            let message = format!("{} windows; at most {MAX_WINDOWS} are allowed in one place", windows.len());
            f.error(&at, ErrorKind::TooLarge, message);
            windows.truncate(MAX_WINDOWS);
        }
        windows.into_iter().flatten().collect()
    });
    let groups = [rates, budget, windows];
    for limit in groups.into_iter().flatten().flatten() {
        add(f, limit, &mut found);
    }
    found
}

fn named(f: &mut Fields<'_>, rows: &[Row]) -> Vec<LimitDoc> {
    let mut found = Vec::new();
    for row in rows {
        put(f, row.name, row, &mut found);
        if !row.long.is_empty() {
            put(f, row.long, row, &mut found);
        }
    }
    found
}

/// Reads one name of a row.
fn put(f: &mut Fields<'_>, key: &'static str, row: &Row, found: &mut Vec<LimitDoc>) {
    let empty = |at| LimitDoc::new(row.name.into(), row.meter, row.span, at);
    if let Some(limit) = f.get(key, row.about, |c| limit(c, empty)) {
        add(f, limit, found);
    }
}

/// Adds a limit, unless the same place has set it already under its other name.
fn add(f: &mut Fields<'_>, limit: LimitDoc, found: &mut Vec<LimitDoc>) {
    match found.iter().find(|other| other.name == limit.name) {
        Some(other) => {
            let message =
                format!("`{}` is set twice, under either of its names; also on line {}", limit.name, other.at.line);
            f.error(&limit.at, ErrorKind::Duplicate, message);
        }
        None => found.push(limit),
    }
}

/// A number, or a record of options.
fn limit(c: Cursor<'_>, empty: impl Fn(Origin) -> LimitDoc) -> Option<LimitDoc> {
    let at = c.at().clone();
    let base = empty(at.clone());
    let meter = base.meter;
    let (name, options_name) =
        if meter == Money { ("money_limit", "money_options") } else { ("limit", "limit_options") };
    c.defined(name, |c| {
        c.map_or(
            |c| c.record(options_name, |f| options(f, base, Some(meter))),
            |c| amount(c, Some(meter)).map(|hard| LimitDoc { hard: Some(hard), ..empty(at) }),
        )
    })
}

/// An amount of a meter; of either sort while the meter is not known, which is when a free window is described.
fn amount(c: Cursor<'_>, meter: Option<Meter>) -> Option<Spanned<u64>> {
    match meter {
        Some(Money) => c.usd(),
        Some(_) => c.count(0..=MAX_AMOUNT),
        None => c.map_or(|c| c.usd(), |c| c.count(0..=MAX_AMOUNT)),
    }
}

/// Reads a limit's options.
fn options(f: &mut Fields<'_>, base: LimitDoc, meter: Option<Meter>) -> LimitDoc {
    let exceed = OnExceed::ALL.map(|exceed| (exceed.name(), exceed));
    let hold = Hold::ALL.map(|hold| (hold.name(), hold));
    let limit = LimitDoc {
        hard: f.get("hard", "Never passed by an admission; 0 refuses everything", |c| amount(c, meter)),
        soft: f.get("soft", "Reported, and degraded, when passed; at most `hard`", |c| amount(c, meter)),
        burst: f.get("burst", "The most that may be taken at one instant; `hard` if left out", |c| amount(c, meter)),
        rolling: f.get("window", "Whether the window rolls or is aligned to the clock", |c| {
            c.one_of(&[("rolling", true), ("fixed", false)])
        }),
        on_exceed: f.get("on_exceed", "What happens to a request that does not fit", |c| c.one_of(&exceed)),
        mode: f.get("mode", "Whether it refuses, or only counts and reports", |c| {
            c.one_of(&Mode::ALL.map(|mode| (mode.name(), mode)))
        }),
        hold: f
            .get("hold", "How much output is held: money `worst_case`, tokens `p95` if left out", |c| c.one_of(&hold)),
        alert_percent: f.get("alert_percent", "Tells when so much of `hard` is used", |c| c.count(1..=100)),
        start_day: f.get("start_day", "The day on which a month begins", |c| c.count(1..=31)),
        ..base
    };
    check_options(f, &limit);
    limit
}

/// Tells options that mean nothing for this limit, whatever layers are merged with it.
fn check_options(f: &mut Fields<'_>, limit: &LimitDoc) {
    let mut no = |at: Option<&Origin>, why: &str| {
        if let Some(at) = at {
            f.error(at, ErrorKind::Conflict, format!("`{}` {why}", limit.name));
        }
    };
    match limit.span {
        Span::Rate(_) | Span::Seconds(_) => {}
        Span::Held => no(limit.rolling.as_ref().map(|o| &o.at), "is held, not counted over a window"),
        _ => no(
            limit.rolling.as_ref().filter(|rolling| rolling.value).map(|o| &o.at),
            "is counted by the calendar; its window is fixed",
        ),
    }
    if limit.span != Span::Month {
        no(limit.start_day.as_ref().map(|o| &o.at), "is not counted by the month, so it has no start day");
    }
    if !matches!(limit.meter, Input | Output | Total | Money) {
        no(limit.hold.as_ref().map(|o| &o.at), "counts no output, so it has no hold");
    }
}

/// The group `budget`: money by period, and a percentage for all of it.
fn budget(f: &mut Fields<'_>) -> Vec<LimitDoc> {
    let mut found = Vec::new();
    for row in BUDGETS {
        put(f, row.long, row, &mut found);
    }
    let about = "Tells when so much of each budget here is used";
    if let Some(percent) = f.get("alert_threshold_percent", about, |c| c.count(1..=100)) {
        if found.is_empty() {
            f.error(&percent.at, ErrorKind::Missing, "there is no budget beside it to tell of");
        }
        for limit in &mut found {
            limit.alert_percent.get_or_insert_with(|| percent.clone());
        }
    }
    found
}

/// One free window.
fn window(c: Cursor<'_>) -> Option<Option<LimitDoc>> {
    c.record("window", |f| {
        let meters = [Requests, Input, Output, Total, Money].map(|meter| (meter.name(), meter));
        let name = f.need("name", "The name that refusals and balances call it", |c| c.name());
        let meter = f.need("meter", "What is counted", |c| c.one_of(&meters));
        let about = "How long the window is";
        let seconds = f.need("seconds", about, |c| c.count(1..=MAX_WINDOW_SECONDS));
        let at = f.at().clone();
        let meter = meter.map(|meter| meter.value);
        let length = seconds.as_ref().map_or(1, |seconds| seconds.value as u32);
        let span = if meter == Some(Money) { Span::Seconds(length) } else { Span::Rate(length) };
        let label: Arc<str> = name.as_ref().map_or_else(|| "window".into(), |name| name.value.clone());
        let limit = options(f, LimitDoc::new(label, meter.unwrap_or(Requests), span, at), meter);
        let name = name?;
        if canonical(&name.value).is_some() {
            f.error(&name.at, ErrorKind::Conflict, format!("`{}` is the name of a limit already", name.value));
            return None;
        }
        seconds.and(meter).map(|_| limit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_are_unique() {
        let mut seen = HashSet::new();
        for name in names() {
            assert!(seen.insert(name), "{name} twice");
            assert!(canonical(name).is_some());
        }
        assert_eq!(canonical("requests_per_minute"), Some("rpm"));
        assert_eq!(canonical("daily_limit_usd"), Some("daily_budget_usd"));
        assert_eq!(canonical(""), None);
    }

    #[test]
    fn a_stronger_hard_amount_brings_its_own_soft_and_burst() {
        let spanned = |value| Some(Spanned { value, at: Origin::default() });
        let empty = LimitDoc::new("rpm".into(), Requests, Span::Rate(60), Origin::default());
        let plan = LimitDoc { hard: spanned(500), soft: spanned(240), alert_percent: spanned(80), ..empty.clone() };
        let number = LimitDoc { hard: spanned(100), ..empty.clone() };
        let object = LimitDoc { soft: spanned(50), ..empty };
        let amounts = |layers: &[&LimitDoc]| {
            let layers: Vec<Vec<LimitDoc>> = layers.iter().map(|&limit| vec![limit.clone()]).collect();
            let merged = merge(layers.iter().map(Vec::as_slice)).remove(0);
            let value = |o: &Option<Spanned<u64>>| o.as_ref().map(|o| o.value);
            (value(&merged.hard), value(&merged.soft), value(&merged.alert_percent))
        };
        assert_eq!(amounts(&[&plan, &number]), (Some(100), None, Some(80)));
        assert_eq!(amounts(&[&plan, &object]), (Some(500), Some(50), Some(80)));
        assert_eq!(amounts(&[&plan, &number, &object]), (Some(100), Some(50), Some(80)));
    }
}
