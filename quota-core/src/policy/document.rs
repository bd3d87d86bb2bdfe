//! The document: its records, as they are written and before anything is looked up or merged.
//!
//! Floor 1. Invariant: every key of a policy is named here, in `limits` or in `document_price`, once, with its meaning.

use std::sync::Arc;

use super::claims::{ClaimsDoc, claims};
use super::document_price::price;
use super::error::{ErrorKind, Origin};
use super::fields::{Cursor, Fields, Name, Spanned};
use super::limits::{LimitDoc, limits};
use super::plan::{AgentRuns, Priority, QueueMode, StalePools, UnknownPrice, UpstreamFailure};
use super::price::Price;
use crate::estimate::Tokenizer;
use crate::key::Digest;
use crate::units::MAX_AMOUNT;
use crate::work::WorkRates;

/// The largest weight.
const MAX_WEIGHT: u64 = 1_000_000;
/// The longest wait or lease, in milliseconds: 31 days.
const MAX_MILLIS: u64 = 31 * 86_400_000;
/// The longest run of an agent, in seconds: 31 days.
const MAX_RUN_SECONDS: u64 = 31 * 86_400;
/// The longest free text (a reason, a path), in bytes.
const MAX_TEXT: usize = 1024;

/// A table of the document, in its order.
pub(crate) type Table<T> = Vec<(Name, T)>;

/// A policy as it is written.
#[derive(Debug, Default)]
pub(crate) struct Document {
    pub(crate) global: Scope,
    pub(crate) defaults: Bundle,
    pub(crate) models: Option<Table<ModelDoc>>,
    pub(crate) price_list: Option<Name>,
    pub(crate) plans: Option<Table<Bundle>>,
    pub(crate) cost_centers: Option<Table<Scope>>,
    pub(crate) tenants: Table<TenantDoc>,
    pub(crate) claims: Option<ClaimsDoc>,
    pub(crate) queues: Option<Table<QueueDoc>>,
    pub(crate) degrade: Vec<DegradeDoc>,
    pub(crate) overrides: Vec<OverrideDoc>,
    pub(crate) settings: Settings,
}

/// Reads the whole document.
pub(crate) fn document(f: &mut Fields<'_>) -> Document {
    Document {
        global: f.get("global", "Limits over everything", |c| c.record("scope", scope)).unwrap_or_default(),
        defaults: f
            .get("defaults", "What holds for each tenant unless its plan or it says otherwise", bundle_record)
            .unwrap_or_default(),
        models: f.get("models", "What a model costs, how it is counted, where it runs", |c| {
            c.table(|c| c.record("model", model))
        }),
        price_list: f.get("price_list", "A file of prices, relative to this one; a model's own price wins", |c| {
            c.text(MAX_TEXT)
        }),
        plans: f.get("plans", "Bundles that tenants name", |c| c.table(bundle_record)),
        cost_centers: f.get("cost_centers", "Whose money tenants spend", |c| c.table(|c| c.record("scope", scope))),
        tenants: f
            .get("tenants", "The parties that own quotas", |c| c.table(|c| c.record("tenant", tenant)))
            .unwrap_or_default(),
        claims: f
            .get("claims", "Which verified claims (of a JWT, say) name a principal", |c| c.record("claims", claims))
            .flatten(),
        queues: f.get("queues", "Lanes that requests wait in; the first is the default", |c| {
            c.table(|c| c.record("queue", queue))
        }),
        degrade: f
            .get(
                "degrade",
                "Lesser answers, tried in order when a soft amount is passed, a limit says so, or a pool is full",
                |c| c.list(|c| c.record("degrade_step", degrade)),
            )
            .unwrap_or_default(),
        overrides: f
            .get("overrides", "Other amounts for a while", |c| c.list(|c| c.record("override", override_)))
            .unwrap_or_default(),
        settings: f
            .get("settings", "How the engine behaves where nothing else says so", |c| c.record("settings", settings))
            .unwrap_or_default(),
    }
}

/// Limits of one scope, by the calendar of one zone.
#[derive(Debug, Default)]
pub(crate) struct Scope {
    pub(crate) timezone: Option<Name>,
    pub(crate) limits: Vec<LimitDoc>,
}

fn scope(f: &mut Fields<'_>) -> Scope {
    Scope { timezone: timezone(f), limits: limits(f) }
}

fn timezone(f: &mut Fields<'_>) -> Option<Name> {
    f.get("timezone", "Where a day, a week and a month begin; UTC if left out", |c| c.zone())
}

/// Ceilings of one request.
#[derive(Debug, Clone, Default)]
pub(crate) struct CeilingsDoc {
    pub(crate) context: Option<Spanned<u64>>,
    pub(crate) input: Option<Spanned<u64>>,
    pub(crate) output: Option<Spanned<u64>>,
}

fn ceilings(f: &mut Fields<'_>) -> CeilingsDoc {
    CeilingsDoc {
        context: f.get("max_context_tokens", "The largest input plus output of a request", tokens),
        input: f.get("max_input_tokens", "The largest input of a request", tokens),
        output: f.get("max_output_tokens", "The largest output of a request, over all choices", tokens),
    }
}

impl CeilingsDoc {
    /// These over weaker ones.
    pub(crate) fn over(&self, weaker: CeilingsDoc) -> CeilingsDoc {
        CeilingsDoc {
            context: self.context.clone().or(weaker.context),
            input: self.input.clone().or(weaker.input),
            output: self.output.clone().or(weaker.output),
        }
    }

    /// A ceiling that the context's ceiling never lets anybody reach.
    pub(crate) fn conflict(&self) -> Option<(&Origin, String)> {
        let context = self.context.as_ref()?.value;
        let over = |ceiling: &&Spanned<u64>| ceiling.value > context;
        let (ceiling, what) = match self.input.as_ref().filter(over) {
            Some(input) => (input, "an input"),
            None => (self.output.as_ref().filter(over)?, "an output"),
        };
        Some((&ceiling.at, format!("{what} of {} tokens can never fit a context of {context}", ceiling.value)))
    }
}

fn tokens(c: Cursor<'_>) -> Option<Spanned<u64>> {
    c.count(0..=MAX_AMOUNT)
}

/// What defaults, plans and tenants may all say about a tenant.
#[derive(Debug, Default)]
pub(crate) struct Bundle {
    pub(crate) weight: Option<u32>,
    pub(crate) lane: Option<Name>,
    pub(crate) priority: Option<Name>,
    pub(crate) timezone: Option<Name>,
    pub(crate) max_queue: Option<u64>,
    pub(crate) ceilings: CeilingsDoc,
    pub(crate) limits: Vec<LimitDoc>,
    pub(crate) models: Table<TenantModelDoc>,
    /// A list of models is exhaustive: it replaces what weaker layers allow.
    pub(crate) allowed: Option<Vec<Name>>,
    pub(crate) users: Vec<LimitDoc>,
    pub(crate) apps: Table<Vec<LimitDoc>>,
    pub(crate) agent_runs: AgentRuns,
}

impl Bundle {
    /// Whether it leaves everything to weaker layers.
    pub(crate) fn says_nothing(&self) -> bool {
        let Bundle {
            weight: None,
            lane: None,
            priority: None,
            timezone: None,
            max_queue: None,
            ceilings: CeilingsDoc { context: None, input: None, output: None },
            limits,
            models,
            allowed: None,
            users,
            apps,
            agent_runs,
        } = self
        else {
            return false;
        };
        let empty = limits.is_empty() && models.is_empty() && users.is_empty() && apps.is_empty();
        empty && *agent_runs == AgentRuns::default()
    }
}

/// What a tenant's or a plan's table of models says about one of them.
#[derive(Debug)]
pub(crate) struct TenantModelDoc {
    pub(crate) ceilings: CeilingsDoc,
    pub(crate) limits: Vec<LimitDoc>,
}

/// The two forms of `models`.
enum Models {
    Table(Table<TenantModelDoc>),
    List(Vec<Name>),
}

fn bundle_record(c: Cursor<'_>) -> Option<Bundle> {
    c.record("bundle", bundle)
}

fn bundle(f: &mut Fields<'_>) -> Bundle {
    let models = f.get("models", "Models by name, `*` for any other; or a list of all that are allowed", |c| {
        c.map_or(
            |c| c.table(|c| c.record("tenant_model", tenant_model)).map(Models::Table),
            |c| c.list(|c| c.name()).map(Models::List),
        )
    });
    let (models, listed) = match models {
        Some(Models::Table(table)) => (table, None),
        Some(Models::List(names)) => (Vec::new(), Some(names)),
        None => (Vec::new(), None),
    };
    let named = f.get("models_allowed", "All models that are allowed, `*` for any", |c| c.list(|c| c.name()));
    if let (Some(_), Some(_)) = (&listed, &named) {
        let at = f.at().clone();
        f.error(&at, ErrorKind::Duplicate, "`models` and `models_allowed` are both lists; one is enough");
    }
    let allowed = listed.or(named);
    if let Some(allowed) = &allowed {
        let listed: std::collections::HashSet<&str> = allowed.iter().map(|name| &*name.value).collect();
        for (name, _) in models.iter().filter(|(name, _)| !listed.contains("*") && !listed.contains(&*name.value)) {
            f.error(&name.at, ErrorKind::Conflict, format!("`{}` is not among `models_allowed`", name.value));
        }
    }
    Bundle {
        weight: weight(f),
        lane: f.get("lane", "The lane of its requests unless they say otherwise", |c| c.name()),
        priority: f.get(
            "priority",
            "`high`, `medium`, `low`, or a lane; the lane of that name, if there is one",
            |c| c.name(),
        ),
        timezone: timezone(f),
        max_queue: max_queue(f),
        ceilings: ceilings(f),
        limits: limits(f),
        models,
        allowed,
        users: f.get("users", "Limits of each of its users", limits_record).unwrap_or_default(),
        apps: f.get("apps", "Limits of its apps, by name", |c| c.table(limits_record)).unwrap_or_default(),
        agent_runs: f
            .get("agent_runs", "What each run of an agent may spend", |c| c.record("agent_runs", agent_runs))
            .unwrap_or_default(),
    }
}

fn limits_record(c: Cursor<'_>) -> Option<Vec<LimitDoc>> {
    c.record("scope_limits", limits)
}

fn tenant_model(f: &mut Fields<'_>) -> TenantModelDoc {
    TenantModelDoc { ceilings: ceilings(f), limits: limits(f) }
}

fn weight(f: &mut Fields<'_>) -> Option<u32> {
    f.get("weight", "Its share against the others", |c| c.count(1..=MAX_WEIGHT)).map(|weight| weight.value as u32)
}

fn max_queue(f: &mut Fields<'_>) -> Option<u64> {
    let about = "The most requests that may wait; also `queue_length`";
    let short = f.get("max_queue", about, |c| c.count(0..=MAX_AMOUNT));
    let long = f.get("queue_length", "The same as `max_queue`", |c| c.count(0..=MAX_AMOUNT));
    if let (Some(_), Some(long)) = (&short, &long) {
        f.error(&long.at, ErrorKind::Duplicate, "`max_queue` and `queue_length` are the same; one is enough");
    }
    short.or(long).map(|bound| bound.value)
}

fn agent_runs(f: &mut Fields<'_>) -> AgentRuns {
    let mut bound = |key, about, most| f.get(key, about, |c| c.count(0..=most)).map(|bound| bound.value);
    AgentRuns {
        max_steps: bound("max_steps", "Calls of a model", MAX_AMOUNT),
        max_tokens: bound("max_tokens", "Input and output tokens", MAX_AMOUNT),
        max_tool_calls: bound("max_tool_calls", "Calls of tools", MAX_AMOUNT),
        max_seconds: bound(
            "max_seconds",
            "Seconds from its first call; 86400 if left out where another bound is set",
            MAX_RUN_SECONDS,
        ),
        max_usd: f.get("max_usd", "USD", |c| c.usd()).map(|bound| bound.value),
    }
}

/// A model.
#[derive(Debug)]
pub(crate) struct ModelDoc {
    pub(crate) upstream: Option<Name>,
    pub(crate) tokenizer: Option<Spanned<Tokenizer>>,
    pub(crate) price: Option<Spanned<Arc<Price>>>,
    pub(crate) ceilings: CeilingsDoc,
    pub(crate) pool: Option<Arc<str>>,
    pub(crate) work: Option<WorkRates>,
    pub(crate) scope: Scope,
}

fn model(f: &mut Fields<'_>) -> ModelDoc {
    let tokenizers = Tokenizer::ALL.map(|tokenizer| (tokenizer.name(), tokenizer));
    let mut ceilings = CeilingsDoc {
        context: f.get("context", "Its context window: input plus output tokens", tokens),
        input: f.get("max_input", "Its longest input in tokens", tokens),
        output: f.get("max_output", "Its longest output in tokens", tokens),
    };
    let long = self::ceilings(f);
    let pairs =
        [(&mut ceilings.context, long.context), (&mut ceilings.input, long.input), (&mut ceilings.output, long.output)];
    for (short, long) in pairs {
        if let (Some(_), Some(long)) = (&short, &long) {
            f.error(&long.at, ErrorKind::Duplicate, "the ceiling is set twice, under either of its names");
        }
        *short = short.take().or(long);
    }
    ModelDoc {
        upstream: f.get("upstream", "The model that this name is an alias of", |c| c.name()),
        tokenizer: f.get("tokenizer", "How its input is counted; `heuristic` if left out", |c| c.one_of(&tokenizers)),
        price: f.get("price", "USD per million tokens, and per one of the rest", price),
        ceilings,
        pool: f.get("pool", "The capacity that it shares with other models", |c| c.name()).map(|pool| pool.value),
        work: f.get("work", "What a thousand of its tokens take of its pool, in units of work", |c| {
            c.record("work", work)
        }),
        scope: scope(f),
    }
}

fn work(f: &mut Fields<'_>) -> WorkRates {
    let mut units = |name, about| {
        let units = f.get(name, about, |c| c.count(0..=u64::from(u32::MAX)));
        units.map(|units| units.value as u32)
    };
    let usual = WorkRates::default();
    WorkRates {
        input: units("input", "Input that is not cached; 1000 if left out").unwrap_or(usual.input),
        cached: units("cached_input", "Input from the cache; 100 if left out").unwrap_or(usual.cached),
        output: units("output", "Output, which is made one token at a time; 4000 if left out").unwrap_or(usual.output),
        pairs: units("pairs", "A million pairs of an input and an output token; 0 if left out").unwrap_or(usual.pairs),
    }
}

/// A tenant.
#[derive(Debug)]
pub(crate) struct TenantDoc {
    pub(crate) plan: Option<Name>,
    pub(crate) tier: Option<Name>,
    pub(crate) cost_center: Option<Name>,
    pub(crate) keys: Vec<KeyDoc>,
    pub(crate) own: Bundle,
}

fn tenant(f: &mut Fields<'_>) -> TenantDoc {
    TenantDoc {
        plan: f.get("plan", "The plan that it has; a label if the document has no plans", |c| c.name()),
        tier: f.get("tier", "The plan of that name, if there is one; else a label", |c| c.name()),
        cost_center: f.get("cost_center", "Whose money it spends", |c| c.name()),
        keys: f
            .get("keys", "Its virtual keys", |c| c.list(|c| c.record("key", key)))
            .unwrap_or_default()
            .into_iter()
            .flatten()
            .collect(),
        own: bundle(f),
    }
}

/// A virtual key's record.
#[derive(Debug)]
pub(crate) struct KeyDoc {
    pub(crate) id: Name,
    pub(crate) sha256: Spanned<Digest>,
    pub(crate) parent: Option<Name>,
    pub(crate) app: Option<Arc<str>>,
    pub(crate) env: Option<Arc<str>>,
    pub(crate) user: Option<Arc<str>>,
    pub(crate) names_users: bool,
    pub(crate) lane: Option<Name>,
    pub(crate) expires: Option<u64>,
    pub(crate) revoked: bool,
    pub(crate) models: Option<Vec<Name>>,
    pub(crate) limits: Vec<LimitDoc>,
}

fn key(f: &mut Fields<'_>) -> Option<KeyDoc> {
    let id = f.need("id", "Its id, which logs and journals show", |c| c.name());
    let sha256 = f.need("sha256", "The SHA-256 of the key, in hex; the key itself is never written", digest);
    let name = |name: Name| name.value;
    let parent = f.get("parent", "The id of the key that it narrows, whose limits hold too", |c| c.name());
    let rest = (
        f.get("app", "The app that it stands for", |c| c.name()).map(name),
        f.get("env", "The environment that it stands for", |c| c.name()).map(name),
        f.get("user", "The user that it stands for", |c| c.name()).map(name),
        f.get("names_users", "Whether it may name the user that it acts for", |c| c.flag()).unwrap_or(false),
        f.get("lane", "The lane of its requests unless they say otherwise", |c| c.name()),
        f.get("expires", "When it ends", |c| c.instant()).map(|expires| expires.value),
        f.get("revoked", "Whether it is refused", |c| c.flag()).unwrap_or(false),
        f.get("models", "The models that it may use; all of its tenant's, if left out", |c| c.list(|c| c.name())),
        limits(f),
    );
    let (app, env, user, names_users, lane, expires, revoked, models, limits) = rest;
    let (id, sha256) = (id?, sha256?);
    Some(KeyDoc { id, sha256, parent, app, env, user, names_users, lane, expires, revoked, models, limits })
}

/// A SHA-256 in hex. Its text is never shown: it may be a key that somebody took for its digest.
fn digest(c: Cursor<'_>) -> Option<Spanned<Digest>> {
    let shape = || serde_json::json!({ "type": "string", "pattern": "^[0-9a-fA-F]{64}$" });
    c.scalar(shape, "64 hex digits", |text| {
        let mut digest = [0; 32];
        let nibble = |byte: u8| (byte as char).to_digit(16).map(|n| n as u8);
        let bytes = text.as_bytes();
        let sound = bytes.len() == 64
            && digest.iter_mut().zip(bytes.chunks_exact(2)).all(|(byte, pair)| {
                let pair = nibble(pair[0]).zip(nibble(pair[1]));
                *byte = pair.map_or(0, |(high, low)| high << 4 | low);
                pair.is_some()
            });
        match sound {
            true => Ok(Digest::from_bytes(digest)),
            false => Err(format!("not a SHA-256 in hex: found {} bytes, where 64 hex digits belong", bytes.len())),
        }
    })
}

/// A lane.
#[derive(Debug)]
pub(crate) struct QueueDoc {
    pub(crate) weight: Option<u32>,
    pub(crate) max_wait_ms: Option<u64>,
    pub(crate) max_queue: Option<u64>,
    pub(crate) floor_percent: Option<Spanned<u64>>,
    pub(crate) age_after_ms: Option<u64>,
}

fn queue(f: &mut Fields<'_>) -> QueueDoc {
    QueueDoc {
        weight: weight(f),
        max_wait_ms: f
            .get("max_wait_ms", "The longest wait in milliseconds; 10000 if left out", |c| c.count(0..=MAX_MILLIS))
            .map(|wait| wait.value),
        max_queue: max_queue(f),
        floor_percent: f.get(
            "floor_percent",
            "With `queue_mode: priority_with_floor`, what the lane gets of a pool whatever waits above it; 0 if left out",
            |c| c.count(0..=100),
        ),
        age_after_ms: f
            .get(
                "age_after_ms",
                "The wait after which a request goes before the others of its lane, at most one in ten; none if left out",
                |c| c.count(1..=MAX_MILLIS),
            )
            .map(|age| age.value),
    }
}

/// A step of degrading.
#[derive(Debug)]
pub(crate) struct DegradeDoc {
    pub(crate) soft: Option<Name>,
    pub(crate) from: Option<Name>,
    pub(crate) pool_above: Option<Spanned<u64>>,
    pub(crate) priority: Option<Priority>,
    pub(crate) model: Option<Name>,
    pub(crate) max_output_tokens: Option<u64>,
    pub(crate) disable_tools: Vec<Arc<str>>,
    pub(crate) lane: Option<Name>,
    pub(crate) at: Origin,
}

fn degrade(f: &mut Fields<'_>) -> DegradeDoc {
    let about = "When the step is taken: all of this must hold. Left out, whenever a soft amount is passed or a limit says \
                 `degrade`";
    let when = f.get("when", about, |c| {
        c.record("when", |f| {
            (
                f.get("soft", "The limit whose soft amount is passed", |c| c.name()),
                f.get("model", "The model that was asked for; any, if left out", |c| c.name()),
                f.get(
                    "pool_above",
                    "The pressure on the model's pool, in percent, is above this; without `soft` the step is then taken at \
                     once, before the request is tried as asked",
                    |c| c.count(0..=99),
                ),
                f.get(
                    "priority",
                    "The request's priority: its tenant's `priority`, else the word that its lane is called by, else medium",
                    |c| c.one_of(&Priority::WORDS),
                ),
            )
        })
    });
    let (soft, from, pool_above, priority) = when.unwrap_or_default();
    let step = DegradeDoc {
        soft,
        from,
        pool_above,
        priority: priority.map(|priority| priority.value),
        model: f.get("model", "The model to use instead", |c| c.name()),
        max_output_tokens: f.get("max_output_tokens", "The largest output instead", tokens).map(|tokens| tokens.value),
        disable_tools: f
            .get("disable_tools", "Tools to take away", |c| c.list(|c| c.name()))
            .unwrap_or_default()
            .into_iter()
            .map(|tool| tool.value)
            .collect(),
        lane: f.get("lane", "The lane to use instead", |c| c.name()),
        at: f.at().clone(),
    };
    if step.model.is_none() && step.max_output_tokens.is_none() && step.disable_tools.is_empty() && step.lane.is_none()
    {
        f.error(&step.at, ErrorKind::Missing, "the step changes nothing: no model, ceiling, tools or lane");
    }
    step
}

/// Other amounts for a while.
#[derive(Debug)]
pub(crate) struct OverrideDoc {
    pub(crate) tenant: Option<Name>,
    pub(crate) model: Option<Name>,
    pub(crate) operator: Option<Name>,
    pub(crate) approver: Option<Name>,
    pub(crate) starts: Option<Spanned<u64>>,
    pub(crate) expires: Option<Spanned<u64>>,
    pub(crate) limits: Vec<LimitDoc>,
}

fn override_(f: &mut Fields<'_>) -> OverrideDoc {
    let tenant = f.need("tenant", "The tenant that it is for", |c| c.name());
    let operator = f.need("operator", "Who made it", |c| c.name());
    f.need("reason", "Why", |c| c.text(MAX_TEXT));
    let doc = OverrideDoc {
        tenant,
        model: f.get("model", "The tenant's model that it is for; the tenant's own limits, if left out", |c| c.name()),
        operator,
        approver: f.get("approver", "Who approved it", |c| c.name()),
        starts: f.need("starts", "From when it holds", |c| c.instant()),
        expires: f.need("expires", "When it ends; nothing that has no end is an override", |c| c.instant()),
        limits: limits(f),
    };
    let at = f.at().clone();
    if doc.limits.is_empty() {
        f.error(&at, ErrorKind::Missing, "the override names no limit");
    }
    if let (Some(starts), Some(expires)) = (&doc.starts, &doc.expires)
        && expires.value <= starts.value
    {
        f.error(&expires.at, ErrorKind::Conflict, "it ends before it starts");
    }
    doc
}

/// What holds for the whole engine.
#[derive(Debug, Default)]
pub(crate) struct Settings {
    pub(crate) unknown_price: Option<UnknownPrice>,
    pub(crate) upstream_failure: Option<UpstreamFailure>,
    pub(crate) lease_ttl_ms: Option<u64>,
    pub(crate) unresolved_after_ms: Option<u64>,
    pub(crate) queue_mode: Option<QueueMode>,
    pub(crate) stale_pools: Option<StalePools>,
}

fn settings(f: &mut Fields<'_>) -> Settings {
    Settings {
        unknown_price: f
            .get("unknown_price", "What a money limit does with a model that has no price", |c| {
                c.one_of(&[
                    ("deny", UnknownPrice::Deny),
                    ("ceiling", UnknownPrice::Ceiling),
                    ("shadow", UnknownPrice::Shadow),
                ])
            })
            .map(|choice| choice.value),
        upstream_failure: f
            .get("upstream_failure", "What is charged when the upstream fails without usage", |c| {
                c.one_of(&[("unresolved", UpstreamFailure::Unresolved), ("release", UpstreamFailure::Release)])
            })
            .map(|choice| choice.value),
        lease_ttl_ms: f
            .get("lease_ttl_ms", "How long a lease lives without a heartbeat; 300000 if left out", |c| {
                c.count(1000..=MAX_MILLIS)
            })
            .map(|ttl| ttl.value),
        unresolved_after_ms: f
            .get("unresolved_after_ms", "When an unresolved lease counts as used in full; 86400000 if left out", |c| {
                c.count(1000..=MAX_MILLIS)
            })
            .map(|ttl| ttl.value),
        queue_mode: f
            .get(
                "queue_mode",
                "How lanes share a pool: by weight, or the first first, with floors; `weighted` if left out",
                |c| {
                    c.one_of(&[
                        ("weighted", QueueMode::Weighted),
                        ("priority_with_floor", QueueMode::PriorityWithFloor),
                    ])
                },
            )
            .map(|choice| choice.value),
        stale_pools: f
            .get(
                "stale_pools",
                "What a pool takes that has not reported in time: as before (`hold`), or nothing (`close`)",
                |c| c.one_of(&[("hold", StalePools::Hold), ("close", StalePools::Close)]),
            )
            .map(|choice| choice.value),
    }
}
