//! Cases of kind `scenario`: a script of steps on a manual clock, through the real gate.
//!
//! A case has a `policy` (or a `policy_file` among the fixtures, with a `price_list` where it needs one), a `start`, and
//! `steps`; `bounds` of the store are 128 rows and open leases if left out. A step has a time (`at_ms` or `at_ns` since the start; where the clock stands, if left out), a verb (`do`),
//! the verb's inputs, and what to `expect` of it. A key that nothing reads fails the case.
//!
//! Who asks is `who`: a tenant's name, the fields of a principal, or a name that an earlier `authenticate` gave; `acme`
//! if left out. The balances after a step are those of whoever it was about and of the run (`run_id`) that was named last.
//! The model is `m` if left out. A lease is called by its request's id, or by the name that the step gives
//! it (`as`); `of` names it later.

mod shown;
mod words;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use quota_core::gate::Queued;
use quota_core::lease::Cause;
use quota_core::policy::price_list::PriceList;
use quota_core::store::Memory;
use quota_core::store::memory::Bounds;
use quota_core::time::parse_instant;
use quota_core::{Decision, Gate, Lease, ManualClock, Name, Policy, Principal, Request};
use serde_json::{Map, Value, json};

use self::words::Words;

const START: &str = "2026-03-02T12:00:00Z";

pub fn run(case: &Value) -> Result<(), String> {
    let mut words = Words::of(case)?;
    words.text("id")?;
    words.text("about")?;
    let start = parse_instant(words.may_text("start")?.as_deref().unwrap_or(START)).map_err(|e| e.to_string())?;
    let clock = Arc::new(ManualClock::at(start));
    let mut bounds = Words::of(&words.may("bounds").unwrap_or(json!({})))?;
    let mut bound = |key| bounds.may_count(key).map(|n| n.unwrap_or(128) as u32);
    let store = Memory::new(Bounds { rows: bound("rows")?, open_leases: bound("open_leases")? });
    bounds.done()?;
    let gate = Gate::builder(policy(&mut words)?).store(store).clock(clock.clone()).build();
    let steps = words.list("steps")?;
    words.done()?;
    let mut stage = Stage {
        gate,
        clock,
        elapsed: 0,
        leases: BTreeMap::new(),
        queued: BTreeMap::new(),
        known: BTreeMap::new(),
        run: None,
    };
    for (n, step) in steps.iter().enumerate() {
        stage.step(step).map_err(|what| format!("step {}: {what}\n    {step}", n + 1))?;
    }
    Ok(())
}

fn policy(words: &mut Words) -> Result<Policy, String> {
    let policy = match (words.may("policy"), words.may_text("policy_file")?) {
        (Some(document), None) => Policy::from_yaml(&document.to_string()),
        (None, Some(file)) => {
            Policy::from_file(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(file))
        }
        _ => return Err("needs `policy` or `policy_file`".into()),
    };
    let policy = policy.map_err(|e| e.to_string())?;
    match words.may("price_list") {
        Some(list) => Ok(policy.with_prices(PriceList::litellm(&list.to_string()).map_err(|e| e.to_string())?)),
        None => Ok(policy),
    }
}

/// A gate, its clock, and what the steps have given names to.
struct Stage {
    gate: Gate,
    clock: Arc<ManualClock>,
    /// Nanoseconds since the start.
    elapsed: u64,
    leases: BTreeMap<String, Lease>,
    queued: BTreeMap<String, Queued>,
    known: BTreeMap<String, Principal>,
    /// The run that was named last.
    run: Option<String>,
}

impl Stage {
    fn step(&mut self, step: &Value) -> Result<(), String> {
        let mut words = Words::of(step)?;
        words.may_text("about")?;
        let millis = words.may_count("at_ms")?.map(|ms| ms * 1_000_000);
        if let Some(at) = words.may_count("at_ns")?.or(millis) {
            let by = at.checked_sub(self.elapsed).ok_or("the step lies before the last one")?;
            self.clock.advance(Duration::from_nanos(by));
            self.elapsed = at;
        }
        let expect = words.may("expect").unwrap_or(json!({}));
        let expect = if expect.is_string() { json!({ "action": expect }) } else { expect };
        for turn in 0..words.may_count("times")?.unwrap_or(1) {
            let (found, who) = self.act(words.clone(), turn)?;
            let found = self.with_balances(found, &who);
            shown::holds("", &found, &expect).map_err(|what| format!("(turn {}) {what}", turn + 1))?;
        }
        Ok(())
    }

    /// Does what a step says; what came of it, and whose balances it is about.
    fn act(&mut self, mut words: Words, turn: u64) -> Result<(Map<String, Value>, Principal), String> {
        let verb = words.text("do")?;
        let (found, who) = match verb.as_str() {
            "admit" => self.admit(&mut words, turn)?,
            "preview" => {
                let (who, request) = (self.who(&mut words)?, self.request(&mut words, turn)?);
                (shown::decision(&self.gate.preview(&who, &request), shown::offer), who)
            }
            "run" => self.run(&mut words, turn)?,
            "sent" | "renew" | "extend" | "settle" | "cancel" | "unresolved" | "finish" | "drop" => {
                self.lease_step(&verb, &mut words)?
            }
            "finalize" => {
                let name = match (words.may_text("request")?, words.may_text("of")?) {
                    (Some(id), None) => Name::Request(id.into()),
                    (None, Some(of)) => Name::Lease(self.lease(&of)?.id()),
                    _ => return Err("needs `request` or `of`".into()),
                };
                (shown::ended(self.gate.finalize(name, words.outcome()?)), self.who(&mut words)?)
            }
            "leave_queue" => {
                let of = words.text("of")?;
                self.queued.remove(&of).ok_or(format!("nothing queued as `{of}`"))?;
                (Map::new(), self.who(&mut words)?)
            }
            "sweep" => {
                let at_most = words.may_count("at_most")?.unwrap_or(1 << 20);
                let ended = self.gate.sweep(at_most as usize);
                (Map::from_iter([("ended".into(), json!(ended))]), self.who(&mut words)?)
            }
            "reload" => {
                self.gate.reload(&policy(&mut words)?);
                (Map::new(), self.who(&mut words)?)
            }
            "set_pressure" => {
                let (pool, percent) = (words.text("pool")?, words.count("percent")?);
                let known = self.gate.set_pressure(&pool, percent.min(255) as u8);
                (Map::from_iter([("known".into(), json!(known))]), self.who(&mut words)?)
            }
            "set_wall" => {
                let wall = parse_instant(&words.text("wall")?).map_err(|e| e.to_string())?;
                self.clock.set_wall(wall);
                (Map::new(), self.who(&mut words)?)
            }
            "balances" => {
                let who = self.who(&mut words)?;
                let operator = words.may_flag("operator")?;
                let limits = self.gate.balances(&who, operator);
                let names: Vec<String> = limits.iter().map(|b| format!("{} {}", b.scope, b.limit)).collect();
                (Map::from_iter([("limits".into(), json!(names))]), who)
            }
            "authenticate" => self.authenticate(&mut words)?,
            "unresolved_list" => {
                let at_most = words.may_count("at_most")?.unwrap_or(1 << 20);
                let open = self.gate.unresolved(at_most as usize);
                let ids: Vec<_> = open.iter().map(|record| record.claim.terms.request_id.as_deref()).collect();
                (Map::from_iter([("requests".into(), json!(ids))]), self.who(&mut words)?)
            }
            "overshoot" => (shown::amounts(&self.gate.overshoot()), self.who(&mut words)?),
            "explain" => {
                let story = self.gate.explain(&words.text("request")?);
                let events: Vec<_> = story.iter().map(|entry| entry.event.name()).collect();
                let entries: Vec<_> = story.iter().map(|entry| entry.to_json()).collect();
                let found = Map::from_iter([("events".into(), json!(events)), ("entries".into(), json!(entries))]);
                (found, self.who(&mut words)?)
            }
            "replay" => (shown::replayed(&self.gate), self.who(&mut words)?),
            other => return Err(format!("no verb `{other}`")),
        };
        words.done()?;
        Ok((found, who))
    }

    fn request(&mut self, words: &mut Words, turn: u64) -> Result<Request, String> {
        let request = words.request(turn)?;
        self.run = request.run_id.as_deref().map(str::to_owned).or(self.run.take());
        Ok(request)
    }

    fn admit(&mut self, words: &mut Words, turn: u64) -> Result<(Map<String, Value>, Principal), String> {
        let who = self.who(words)?;
        let named = words.may_text("as")?.map(|name| if turn == 0 { name } else { format!("{name}.{turn}") });
        let request = self.request(words, turn)?;
        let name = named.or(request.id.as_deref().map(str::to_owned));
        let decision = self.gate.admit(&who, &request);
        let found = shown::decision(&decision, shown::lease);
        match decision {
            Decision::Allow(lease) | Decision::Degrade(lease, _) => {
                let name = name.unwrap_or_else(|| format!("lease {}", self.leases.len()));
                // A handle that a name loses would end its lease: a name is given once.
                if self.leases.contains_key(&name) {
                    return Err(format!("`{name}` is the name of a lease already"));
                }
                self.leases.insert(name, lease);
            }
            Decision::Queue(queued) => {
                let name = name.unwrap_or_else(|| format!("queued {}", self.queued.len()));
                self.queued.insert(name, queued);
            }
            Decision::Reject(_) => {}
        }
        Ok((found, who))
    }

    /// Admits, sends and settles.
    fn run(&mut self, words: &mut Words, turn: u64) -> Result<(Map<String, Value>, Principal), String> {
        let (who, request, usage) = (self.who(words)?, self.request(words, turn)?, words.usage()?);
        let decision = self.gate.admit(&who, &request);
        let lease = match decision {
            Decision::Allow(lease) | Decision::Degrade(lease, _) => lease,
            other => return Ok((shown::decision(&other, shown::lease), who)),
        };
        lease.sent();
        Ok((shown::ended(lease.settle(usage)), who))
    }

    fn lease_step(&mut self, verb: &str, words: &mut Words) -> Result<(Map<String, Value>, Principal), String> {
        let of = words.text("of")?;
        if verb == "drop" {
            let lease = self.leases.remove(&of).ok_or(format!("no lease `{of}`"))?;
            return Ok((Map::new(), lease.claim().terms.deal.principal.clone()));
        }
        let lease = self.lease(&of)?;
        let open = |open: bool| Map::from_iter([("open".into(), json!(open))]);
        let found = match verb {
            "sent" => open(lease.sent()),
            "renew" => open(lease.renew()),
            "extend" => shown::extended(lease.extend(words.count("output")?)),
            "settle" => shown::ended(lease.settle(words.usage()?)),
            "cancel" => shown::ended(lease.cancel()),
            "unresolved" => shown::ended(lease.unresolved(Cause::NoUsage, words.may_usage()?)),
            "finish" => shown::ended(lease.finish(words.outcome()?)),
            _ => return Err(format!("no verb `{verb}`")),
        };
        Ok((found, lease.claim().terms.deal.principal.clone()))
    }

    fn authenticate(&mut self, words: &mut Words) -> Result<(Map<String, Value>, Principal), String> {
        let (key, name) = (words.text("key")?, words.may_text("as")?);
        match self.gate.authenticate(&key) {
            Ok(who) => {
                if let Some(name) = name {
                    self.known.insert(name, who.clone());
                }
                Ok((shown::principal(&who), who))
            }
            Err(refusal) => Ok((shown::refusal(&refusal), Principal::builder("acme").build())),
        }
    }

    fn lease(&self, name: &str) -> Result<&Lease, String> {
        self.leases.get(name).ok_or(format!("no lease `{name}`"))
    }

    fn who(&self, words: &mut Words) -> Result<Principal, String> {
        match words.may("who") {
            None => Ok(Principal::builder("acme").build()),
            Some(Value::String(name)) => match self.known.get(&name) {
                Some(who) => Ok(who.clone()),
                None => Ok(Principal::builder(name).build()),
            },
            Some(fields) => Words::of(&fields)?.principal(),
        }
    }

    /// Adds the balances of a principal: by scope and limit, and by the limit alone where no other has its name.
    fn with_balances(&self, mut found: Map<String, Value>, who: &Principal) -> Value {
        let mut balances = self.gate.balances(who, true);
        if let Some(run) = &self.run {
            let of_run = |balance: &quota_core::Balance| balance.scope.ends_with(&format!("/run:{run}"));
            balances.extend(self.gate.run_balances(who, run).into_iter().filter(of_run));
        }
        for (what, of) in shown::BALANCES {
            let mut amounts = Map::new();
            for balance in &balances {
                let single = balances.iter().filter(|other| other.limit == balance.limit).count() == 1;
                if single {
                    amounts.insert(balance.limit.to_string(), of(balance));
                }
                amounts.insert(format!("{} {}", balance.scope, balance.limit), of(balance));
            }
            found.insert(what.into(), amounts.into());
        }
        found.into()
    }
}

/// What no step reads and what no step came to is an error, not a silence.
#[test]
fn a_script_is_read_to_the_letter() {
    let policy = json!({ "tenants": { "acme": { "models": ["m"], "rpm": 2 } } });
    let script = |steps: Value| run(&json!({ "id": "x", "about": "x", "policy": policy, "steps": steps }));
    let admit = |extra: Value| {
        let mut step = json!({ "do": "admit", "expect": "allow" });
        step.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        script(json!([step]))
    };
    assert_eq!(admit(json!({})), Ok(()));
    for (step, want) in [
        (json!({ "inptu": 5 }), "nothing reads `inptu`"),
        (json!({ "do": "admti" }), "no verb `admti`"),
        (json!({ "who": { "usr": "u" } }), "nothing reads `usr`"),
        (json!({ "input": "5" }), "`input` is no count"),
        (json!({ "expect": "reject" }), "action is \"allow\", not \"reject\""),
        (json!({ "expect": { "actoin": "allow" } }), "there is no `actoin`"),
        (json!({ "expect": { "remaining": { "rps": 1 } } }), "there is no `remaining.rps`"),
        (json!({ "expect": { "remaining": { "rpm": 2 } } }), "remaining.rpm is 1, not 2"),
        (json!({ "expect": { "soft_passed": ["tenant:acme rpm"] } }), "soft_passed is [], not"),
        (json!({ "expect": { "action": "allow", "retry_after_ms": null } }), "there is no `retry_after_ms`"),
    ] {
        let told = admit(step.clone()).unwrap_err();
        assert!(told.contains(want), "{step}: {told}");
    }
    assert!(run(&json!({ "id": "x", "about": "x", "policy": policy, "steps": [], "setps": [] })).is_err());
    assert!(script(json!([{ "at_ms": 5, "do": "sweep" }, { "at_ms": 4, "do": "sweep" }])).is_err());
}
