//! The plan: a policy compiled into what the gate runs.
//!
//! Floor 1. Invariant: immutable; every name in it has been checked, every amount is within its word.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

pub use super::tenants::Tenants;
use crate::estimate::Tokenizer;
use crate::key::Digest;
use crate::policy::claims::ClaimsPlan;
use crate::policy::price::Price;
use crate::time::{Calendar, Unit};
use crate::units::{MAX_AMOUNT, Meter};
use crate::work::WorkRates;

/// One limit of one scope.
#[derive(Debug, Clone, PartialEq)]
pub struct Limit {
    /// The canonical short name (`rpm`, `input_tpm`, `daily_budget_usd`, …), or the name given to a free window.
    pub name: Arc<str>,
    /// What is counted.
    pub meter: Meter,
    /// Over what it is counted.
    pub window: Window,
    /// Never passed by an admission.
    pub hard: u64,
    /// Reported (and perhaps degraded) when passed; at most `hard`.
    pub soft: Option<u64>,
    /// For rates: the most that may be taken at one instant; `hard` unless the policy says otherwise.
    pub burst: u64,
    /// Enforced, or only counted and reported.
    pub mode: Mode,
    /// What happens to a request that does not fit.
    pub on_exceed: OnExceed,
    /// How much output is held.
    pub hold: Hold,
    /// Percentages of `hard` whose crossing is an entry, once per period.
    pub alert_percent: Option<u8>,
    /// Other amounts for a while, in the order of the document; the last one in force counts.
    pub overrides: Vec<Override>,
}

/// A limit's other amount for a while.
#[derive(Debug, Clone, PartialEq)]
pub struct Override {
    /// Unix nanoseconds from which it holds.
    pub starts: u64,
    /// Unix nanoseconds at which it ends.
    pub expires: u64,
    /// The hard amount meanwhile.
    pub hard: u64,
    /// For rates: the most that may be taken at one instant meanwhile.
    pub burst: u64,
}

/// Over what an amount is counted.
#[derive(Debug, Clone, PartialEq)]
pub enum Window {
    /// A rate: `hard` per this many nanoseconds, rolling.
    Rolling {
        /// The period in nanoseconds.
        nanos: u64,
    },
    /// A budget: `hard` per period of a calendar.
    Fixed(Arc<Calendar>),
    /// A gauge: `hard` at any moment.
    Held,
    /// The lifetime of a run: `hard` altogether.
    Run,
}

impl Eq for Window {}

/// Not by the zone: calendars of one unit differ in little else.
impl Hash for Window {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::mem::discriminant(self).hash(state);
        match self {
            Window::Rolling { nanos } => nanos.hash(state),
            Window::Fixed(calendar) => calendar.unit().hash(state),
            Window::Held | Window::Run => {}
        }
    }
}

impl Window {
    /// How many bits of a 64-bit word an amount of this window may fill.
    ///
    /// A fixed window's word holds the period's number beside the amount. The number has as many bits as keep it from
    /// coming round within 30 years, and at least 14 for days, 12 for weeks and 9 for months. A gauge has the whole word;
    /// a rate's word holds a time, so its amount is bounded by [`MAX_AMOUNT`] alone.
    pub fn amount_bits(&self) -> u32 {
        let number_bits = match self {
            Window::Rolling { .. } | Window::Held | Window::Run => 0,
            Window::Fixed(calendar) => match calendar.unit() {
                Unit::Seconds(length) => {
                    let periods = THIRTY_YEARS.div_ceil(length.max(1) as u64);
                    periods.next_power_of_two().trailing_zeros()
                }
                Unit::Day => 14,
                Unit::Week => 12,
                Unit::Month { .. } => 9,
            },
        };
        u64::BITS - number_bits
    }

    /// The largest amount of this window: what fits its word, and no more than [`MAX_AMOUNT`].
    pub fn max_amount(&self) -> u64 {
        (u64::MAX >> (u64::BITS - self.amount_bits())).min(MAX_AMOUNT)
    }
}

impl fmt::Display for Window {
    /// `rolling 60 s`, `fixed 60 s`, `day Europe/Berlin`, `week UTC`, `month UTC from 1`, `held`, `run`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Window::Rolling { nanos } => write!(f, "rolling {} s", nanos / crate::time::SECOND),
            Window::Held => f.write_str("held"),
            Window::Run => f.write_str("run"),
            Window::Fixed(calendar) => match calendar.unit() {
                Unit::Seconds(seconds) => write!(f, "fixed {seconds} s"),
                Unit::Day => write!(f, "day {}", calendar.zone()),
                Unit::Week => write!(f, "week {}", calendar.zone()),
                Unit::Month { start_day } => write!(f, "month {} from {start_day}", calendar.zone()),
            },
        }
    }
}

/// Seconds in 30 years of 365.25 days.
const THIRTY_YEARS: u64 = 30 * 31_557_600;

/// Whether a limit refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Refuses.
    #[default]
    Enforce,
    /// Counts and reports, never refuses.
    Shadow,
}

impl Mode {
    /// Both of them.
    pub const ALL: [Mode; 2] = [Mode::Enforce, Mode::Shadow];

    /// The word in documents.
    pub const fn name(self) -> &'static str {
        match self {
            Mode::Enforce => "enforce",
            Mode::Shadow => "shadow",
        }
    }
}

/// What happens to a request that does not fit a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnExceed {
    /// Refused.
    #[default]
    Reject,
    /// Queued in its lane.
    Queue,
    /// Degraded by the policy's steps, refused if none fits.
    Degrade,
}

impl OnExceed {
    /// All of them.
    pub const ALL: [OnExceed; 3] = [OnExceed::Reject, OnExceed::Queue, OnExceed::Degrade];

    /// The word in documents.
    pub const fn name(self) -> &'static str {
        match self {
            OnExceed::Reject => "reject",
            OnExceed::Queue => "queue",
            OnExceed::Degrade => "degrade",
        }
    }
}

/// How output is held on a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// The output ceiling.
    WorstCase,
    /// The learned 95th percentile of the tenant and model, at most the ceiling.
    P95,
    /// The percentile while the account is far from its hard amount, the ceiling near it.
    Adaptive,
}

impl Hold {
    /// All of them.
    pub const ALL: [Hold; 3] = [Hold::WorstCase, Hold::P95, Hold::Adaptive];

    /// The word in documents.
    pub const fn name(self) -> &'static str {
        match self {
            Hold::WorstCase => "worst_case",
            Hold::P95 => "p95",
            Hold::Adaptive => "adaptive",
        }
    }

    /// How output is held where the document does not say: money by the worst case, tokens by the learned length. On scopes
    /// that tenants share it is the worst case for both.
    pub fn by_default(meter: Meter) -> Hold {
        if meter == Meter::Money { Hold::WorstCase } else { Hold::P95 }
    }
}

/// Ceilings of a single request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ceilings {
    /// Largest input plus output.
    pub context: Option<u64>,
    /// Largest input.
    pub input: Option<u64>,
    /// Largest output, over all choices.
    pub output: Option<u64>,
}

/// A model.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelPlan {
    /// Its name.
    pub name: Arc<str>,
    /// The model whose price and limits it shares, for an alias.
    pub upstream: Option<Arc<str>>,
    /// How its input is counted.
    pub tokenizer: Tokenizer,
    /// What it costs; `None` if unknown (an alias has its upstream's).
    pub price: Option<Arc<Price>>,
    /// Its own ceilings: context window and longest output.
    pub ceilings: Ceilings,
    /// The capacity that it shares with other models. A model that the policy does not name (`"*"`) has none.
    pub pool: Option<Arc<str>>,
    /// What its tokens take of the pool.
    pub work: WorkRates,
    /// Limits over all tenants.
    pub limits: Vec<Limit>,
}

impl ModelPlan {
    /// A model of which only the name is known.
    pub fn unknown(name: Arc<str>) -> ModelPlan {
        ModelPlan {
            name,
            upstream: None,
            tokenizer: Tokenizer::default(),
            price: None,
            ceilings: Ceilings::default(),
            pool: None,
            work: WorkRates::default(),
            limits: Vec::new(),
        }
    }
}

/// What one run of an agent may spend; `None` for no bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AgentRuns {
    /// Calls of a model.
    pub max_steps: Option<u64>,
    /// Input and output tokens.
    pub max_tokens: Option<u64>,
    /// Calls of tools.
    pub max_tool_calls: Option<u64>,
    /// Money, in units of 1e-8 USD.
    pub max_usd: Option<u64>,
    /// Seconds from its first call; [`RUN_SECONDS`] where another bound is set and this is not.
    pub max_seconds: Option<u64>,
}

/// How long a run may go on where the policy bounds runs, but not their time: a day, in seconds.
pub const RUN_SECONDS: u64 = 86_400;

impl AgentRuns {
    /// These over weaker ones, bound by bound.
    pub fn over(self, weaker: AgentRuns) -> AgentRuns {
        AgentRuns {
            max_steps: self.max_steps.or(weaker.max_steps),
            max_tokens: self.max_tokens.or(weaker.max_tokens),
            max_tool_calls: self.max_tool_calls.or(weaker.max_tool_calls),
            max_usd: self.max_usd.or(weaker.max_usd),
            max_seconds: self.max_seconds.or(weaker.max_seconds),
        }
    }

    /// The limits of one run, named as in the document; empty where nothing is bounded. Wherever one is, so is the time:
    /// a run that never ended would have to be remembered for ever.
    ///
    /// What a step holds counts until it ends, so that of several steps at once one can be refused for which there would
    /// be room after the others' corrections. It is told not to try again all the same: a run near its end is to end.
    pub fn limits(&self) -> Vec<Limit> {
        if *self == AgentRuns::default() {
            return Vec::new();
        }
        let bounds = [
            ("max_steps", Meter::Steps, self.max_steps),
            ("max_tokens", Meter::Total, self.max_tokens),
            ("max_tool_calls", Meter::ToolCalls, self.max_tool_calls),
            ("max_usd", Meter::Money, self.max_usd),
            ("max_seconds", Meter::RunTime, Some(self.max_seconds.unwrap_or(RUN_SECONDS))),
        ];
        let limit = |(name, meter, hard): (&str, Meter, Option<u64>)| {
            let hard = hard?;
            Some(Limit {
                name: name.into(),
                meter,
                window: Window::Run,
                hard,
                soft: None,
                burst: hard,
                mode: Mode::Enforce,
                on_exceed: OnExceed::Reject,
                hold: Hold::by_default(meter),
                alert_percent: None,
                overrides: Vec::new(),
            })
        };
        bounds.into_iter().filter_map(limit).collect()
    }
}

/// A tenant's rank among others, for steps of degrading.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Priority {
    /// Degraded before the others.
    Low,
    /// Whoever is neither.
    #[default]
    Medium,
    /// Degraded after the others.
    High,
}

impl Priority {
    /// The priorities by their words in documents.
    pub const WORDS: [(&'static str, Priority); 3] =
        [("high", Priority::High), ("medium", Priority::Medium), ("low", Priority::Low)];

    /// The priority of a word.
    pub fn of(word: &str) -> Option<Priority> {
        Priority::WORDS.into_iter().find(|(name, _)| *name == word).map(|(_, priority)| priority)
    }
}

/// What a tenant may do with one model.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TenantModel {
    /// Limits of tenant × model.
    pub limits: Vec<Limit>,
    /// Ceilings of a request.
    pub ceilings: Ceilings,
}

/// A tenant: who it is, and of what kind.
#[derive(Debug, Clone, PartialEq)]
pub struct TenantPlan {
    /// Its name.
    pub name: Arc<str>,
    /// All but its name; tenants that differ in nothing else share it.
    pub kind: Arc<TenantKind>,
}

impl Deref for TenantPlan {
    type Target = TenantKind;

    fn deref(&self) -> &TenantKind {
        &self.kind
    }
}

/// What its entry says of a tenant, and its rules.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TenantKind {
    /// The plan's or tier's name, a label.
    pub plan: Option<Arc<str>>,
    /// Whose money it spends.
    pub cost_center: Option<Arc<str>>,
    /// Its keys, by key id.
    pub keys: HashMap<Arc<str>, Arc<KeyPlan>>,
    /// What holds for it; shared by the tenants of a plan that say nothing of their own.
    pub rules: Arc<TenantRules>,
}

impl Deref for TenantKind {
    type Target = TenantRules;

    fn deref(&self) -> &TenantRules {
        &self.rules
    }
}

/// What holds for a tenant.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TenantRules {
    /// Where its days, weeks and months begin: an IANA time zone.
    pub timezone: Arc<str>,
    /// Its share in the scheduler.
    pub weight: u32,
    /// The lane of its requests unless they say otherwise.
    pub lane: Option<Arc<str>>,
    /// Its priority, where the policy gives it one by a word.
    pub priority: Option<Priority>,
    /// Its own limits.
    pub limits: Vec<Limit>,
    /// Ceilings of a request on any model.
    pub ceilings: Ceilings,
    /// The models it may use, by name; merged from plan and tenant.
    pub models: HashMap<Arc<str>, Arc<TenantModel>>,
    /// What it may do with any other model (`"*"`); `None` forbids them.
    pub any_model: Option<Arc<TenantModel>>,
    /// Limits of each of its users.
    pub users: Vec<Limit>,
    /// Limits of its apps, by name.
    pub apps: HashMap<Arc<str>, Vec<Limit>>,
    /// The most requests that may wait in its queue; `None` for the lane's own bound.
    pub max_queue: Option<u64>,
    /// What each of its agents' runs may spend.
    pub agent_runs: AgentRuns,
}

/// A virtual key's record; the key itself is never kept.
///
/// A key with a parent only narrows it: what the parent and its parents say holds too.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct KeyPlan {
    /// The key's id.
    pub id: Arc<str>,
    /// The tenant it belongs to.
    pub tenant: Arc<str>,
    /// The id of the key that it narrows, of the same tenant.
    pub parent: Option<Arc<str>>,
    /// The app it stands for.
    pub app: Option<Arc<str>>,
    /// The environment it stands for.
    pub env: Option<Arc<str>>,
    /// The user it stands for.
    pub user: Option<Arc<str>>,
    /// The lane of its requests.
    pub lane: Option<Arc<str>>,
    /// Whether it may name the user it acts for.
    pub names_users: bool,
    /// Unix nanoseconds from which it is refused.
    pub expires: Option<u64>,
    /// Whether it has been revoked.
    pub revoked: bool,
    /// The models it may use of those that its tenant may; `None` for all of them.
    pub models: Option<HashSet<Arc<str>>>,
    /// Its own limits.
    pub limits: Vec<Limit>,
}

/// A lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LanePlan {
    /// Its name.
    pub name: Arc<str>,
    /// Its share against the other lanes; at least 1.
    pub weight: u32,
    /// The longest that a request may wait in it, in milliseconds.
    pub max_wait_ms: u64,
    /// The most requests that may wait in it; `None` for no bound of its own.
    pub max_queue: Option<u64>,
    /// Its place among the lanes of the document, 0 the first.
    pub rank: u8,
    /// With [`QueueMode::PriorityWithFloor`]: what it gets of a pool whatever waits above it, in percent.
    pub floor_percent: u8,
    /// The wait in milliseconds after which a request goes before the others of the lane, at most one in ten.
    pub age_after_ms: Option<u64>,
}

/// How lanes share a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum QueueMode {
    /// By their weights.
    #[default]
    Weighted,
    /// In the order of the document; lanes with a floor get that much in any case.
    PriorityWithFloor,
}

/// What a pool takes that has not reported in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StalePools {
    /// As much as before.
    #[default]
    Hold,
    /// Nothing more.
    Close,
}

/// One step of degrading: whom it is for, what calls for it, and the lesser form.
///
/// All conditions that it names must hold. `when_model` and `when_priority` say whose requests it is for; `when_soft`
/// and `when_pool_above` what calls for it. A step whose pool is above its percentage and that names no soft amount is
/// taken at once: the request as asked is tried only if no such step fits. Any other step is taken if the request as
/// asked does not fit a limit that the step names (any, if it names none) and that has a soft amount, which would be
/// passed, or `on_exceed: degrade`, and has no room. Steps of one sort are tried in the policy's order, and one is taken; a
/// step whose own limits have no room, or that names nothing but what the request has already, is passed over. If none is taken, the
/// request goes as asked where only soft amounts stand against it, and is refused otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DegradeStep {
    /// The limit (canonical name) whose soft amount, passed, calls for this step.
    pub when_soft: Option<Arc<str>>,
    /// The model whose requests this step is for; `None` for every model.
    pub when_model: Option<Arc<str>>,
    /// The percentage of pressure on the asked model's pool above which the step is taken; `None` whatever the pressure.
    pub when_pool_above: Option<u8>,
    /// The priority of the requests that this step is for; `None` for every one.
    pub when_priority: Option<Priority>,
    /// The model to use instead.
    pub model: Option<Arc<str>>,
    /// The largest output instead.
    pub max_output_tokens: Option<u64>,
    /// Tools to take away.
    pub disable_tools: Vec<Arc<str>>,
    /// The lane to use instead.
    pub lane: Option<Arc<str>>,
}

impl DegradeStep {
    /// Whether the pressure on a pool calls for it, before the request is tried as asked.
    pub fn is_by_pressure(&self) -> bool {
        self.when_pool_above.is_some() && self.when_soft.is_none()
    }
}

/// What to do with a model whose price is unknown where a money limit applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UnknownPrice {
    /// Refuse.
    #[default]
    Deny,
    /// Reckon with the dearest price of the policy.
    Ceiling,
    /// Let it pass, counted at zero and reported.
    Shadow,
}

/// What is charged when the upstream fails without usage after the request was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UpstreamFailure {
    /// The lease ends as unresolved: the reservation stays charged.
    #[default]
    Unresolved,
    /// Nothing is charged.
    Release,
}

/// A policy compiled: what the gate runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Limits over everything.
    pub global: Vec<Limit>,
    /// Tenants by name.
    pub tenants: Tenants,
    /// Models by name.
    pub models: HashMap<Arc<str>, Arc<ModelPlan>>,
    /// Limits of cost centres, by name.
    pub cost_centers: HashMap<Arc<str>, Vec<Limit>>,
    /// Keys by SHA-256 digest.
    pub keys: HashMap<Digest, Arc<KeyPlan>>,
    /// Which verified claims name a principal; `None` if none do.
    pub claims: Option<ClaimsPlan>,
    /// Lanes by name.
    pub lanes: HashMap<Arc<str>, Arc<LanePlan>>,
    /// The lane of a request that names none: the first of the document, `interactive` if there is none. It is always
    /// among the lanes.
    pub default_lane: Arc<str>,
    /// The steps of degrading, in order.
    pub degrade: Vec<DegradeStep>,
    /// What an unknown price means.
    pub unknown_price: UnknownPrice,
    /// What an upstream failure means.
    pub upstream_failure: UpstreamFailure,
    /// How long a lease lives without a heartbeat, in nanoseconds.
    pub lease_ttl: u64,
    /// After how long an unresolved lease is closed as used in full, in nanoseconds.
    pub unresolved_ttl: u64,
    /// How lanes share a pool.
    pub queue_mode: QueueMode,
    /// What a pool takes that has not reported in time.
    pub stale_pools: StalePools,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn period_numbers_do_not_come_round_for_thirty_years() {
        let fixed = |unit| Window::Fixed(Arc::new(Calendar::new(unit, "UTC").unwrap()));
        for (window, number_bits, max) in [
            (fixed(Unit::Seconds(1)), 30, (1 << 34) - 1),
            (fixed(Unit::Seconds(60)), 24, (1 << 40) - 1),
            (fixed(Unit::Seconds(3600)), 19, (1 << 45) - 1),
            (fixed(Unit::Seconds(366 * 86_400)), 5, MAX_AMOUNT),
            (fixed(Unit::Seconds(u32::MAX)), 0, MAX_AMOUNT),
            (fixed(Unit::Day), 14, (1 << 50) - 1),
            (fixed(Unit::Week), 12, MAX_AMOUNT),
            (fixed(Unit::Month { start_day: 1 }), 9, MAX_AMOUNT),
            (Window::Held, 0, MAX_AMOUNT),
            (Window::Run, 0, MAX_AMOUNT),
            (Window::Rolling { nanos: 1 }, 0, MAX_AMOUNT),
        ] {
            assert_eq!(window.amount_bits(), 64 - number_bits, "{window:?}");
            assert_eq!(window.max_amount(), max, "{window:?}");
        }
        // In bits: the periods of 30 years fit the number.
        for length in [1u64, 7, 60, 300, 3600, 86_400] {
            let bits = 64 - fixed(Unit::Seconds(length as u32)).amount_bits();
            assert!(THIRTY_YEARS / length <= 1 << bits && THIRTY_YEARS / length > 1 << (bits - 1), "{length}");
        }
    }
}
