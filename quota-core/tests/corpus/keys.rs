//! Runs cases of kind `keys`: acts on keys and questions about them, at their times.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use quota_core::gate::{Issued, KeyError, KeySpec, KeyState};
use quota_core::key::Digest;
use quota_core::time::{parse_instant, show_instant};
use quota_core::{Decision, Gate, Lease, ManualClock, Policy, Principal, Refusal, Request, Secret, Usage};
use serde_json::{Map, Value, json};

const START: &str = "2026-03-02T12:00:00Z";

struct Run {
    gate: Gate,
    clock: Arc<ManualClock>,
    at: u64,
    instances: HashMap<String, Gate>,
    given: HashMap<String, String>,
    made: HashMap<String, Secret>,
    principals: HashMap<String, Principal>,
    leases: HashMap<String, Lease>,
}

pub fn run(case: &Value) -> Result<(), String> {
    let clock = Arc::new(ManualClock::at_instant(START).unwrap());
    let given = case["secrets"].as_object().into_iter().flatten();
    let mut run = Run {
        gate: Gate::builder(policy(&case["policy"])?).clock(clock.clone()).build(),
        clock,
        at: 0,
        instances: HashMap::new(),
        given: given.map(|(name, text)| (name.clone(), text.as_str().unwrap_or_default().to_owned())).collect(),
        made: HashMap::new(),
        principals: HashMap::new(),
        leases: HashMap::new(),
    };
    for (number, step) in case["steps"].as_array().ok_or("no steps")?.iter().enumerate() {
        run.step(step).map_err(|what| format!("step {number} {}: {what}", step["do"]))?;
    }
    run.nothing_shown()
}

fn policy(document: &Value) -> Result<Policy, String> {
    Policy::from_yaml(&document.to_string()).map_err(|errors| errors.to_string())
}

fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value[key].as_str().unwrap_or_default()
}

impl Run {
    fn step(&mut self, step: &Value) -> Result<(), String> {
        let at = step["at_ms"].as_u64().ok_or("no time")?;
        let by = at.checked_sub(self.at).ok_or("goes back in time")?;
        self.clock.advance(Duration::from_millis(by));
        self.at = at;
        let gate = match step["instance"].as_str() {
            Some(name) => self.instances.entry(name.to_owned()).or_insert_with(|| self.gate.clone()).clone(),
            None => self.gate.clone(),
        };
        let expect = &step["expect"];
        match text(step, "do") {
            "issue" => self.issued(step, gate.issue_key(spec(&step["key"])?, "ops")),
            "rotate" => {
                let overlap = Duration::from_millis(step["overlap_ms"].as_u64().ok_or("no overlap")?);
                self.issued(step, gate.rotate_key(text(step, "tenant"), text(step, "id"), overlap, "ops"))
            }
            "revoke" => match gate.revoke_key(text(step, "tenant"), text(step, "id"), "ops") {
                Ok(changed) => equal("changed", &json!(changed), &expect["changed"]),
                Err(error) => failed(&error, expect),
            },
            "authenticate" => {
                let bearer = match step["bearer"].as_str() {
                    Some(bearer) => bearer,
                    None => self.secret(step)?,
                };
                let who = gate.authenticate(bearer);
                self.principal(step, who)
            }
            "claims" => self.principal(step, gate.principal_from_claims(&step["claims"])),
            "admit" => self.admit(&gate, step),
            "settle" => {
                let lease = self.leases.remove(text(step, "lease")).ok_or("no such lease")?;
                let usage = Usage::tokens(step["input"].as_u64().unwrap_or(0), step["output"].as_u64().unwrap_or(0));
                lease.settle(usage).map(drop).map_err(|error| error.to_string())
            }
            "reload" => policy(&step["policy"]).map(|policy| gate.reload(&policy)),
            "keys" => keys(&gate, step),
            "differ" => {
                let names = step["secrets"].as_array().into_iter().flatten().filter_map(Value::as_str);
                let texts: Vec<&str> = names.map(|name| self.made[name].expose()).collect();
                if texts[0] == texts[1] { Err("the same secret".into()) } else { Ok(()) }
            }
            other => Err(format!("no step `{other}`")),
        }
    }

    fn secret(&self, step: &Value) -> Result<&str, String> {
        let name = text(step, "secret");
        let made = self.made.get(name).map(Secret::expose);
        made.or(self.given.get(name).map(String::as_str)).ok_or_else(|| format!("no secret `{name}`"))
    }

    fn issued(&mut self, step: &Value, issued: Result<Issued, KeyError>) -> Result<(), String> {
        let expect = &step["expect"];
        let issued = match issued {
            Ok(issued) => issued,
            Err(error) => return failed(&error, expect),
        };
        if let Some(error) = expect["error"].as_str() {
            return Err(format!("made `{}`, not {error}", issued.id));
        }
        if let Some(expires) = expect["expires"].as_str() {
            equal("expires", &json!(issued.expires.map(show_instant)), &json!(expires))?;
        }
        if let Some(id) = step["id"].as_str().or(step["key"]["id"].as_str()) {
            equal("id", &json!(issued.id), &json!(id))?;
        }
        if let Some(name) = step["as"].as_str() {
            self.made.insert(name.to_owned(), issued.secret);
        }
        Ok(())
    }

    fn principal(&mut self, step: &Value, who: Result<Principal, Arc<Refusal>>) -> Result<(), String> {
        let expect = &step["expect"];
        match who {
            Err(refusal) => refused(&refusal, expect),
            Ok(_) if expect["reason"].is_string() => Err(format!("let in, not {}", expect["reason"])),
            Ok(who) => {
                let names = [
                    ("tenant", Some(who.tenant())),
                    ("app", who.app()),
                    ("env", who.env()),
                    ("user", who.user()),
                    ("lane", who.lane()),
                ];
                for (what, found) in names {
                    equal(what, &json!(found), &expect[what])?;
                }
                // The id of a key is stated where it was chosen.
                if expect["key"].is_string() {
                    equal("key", &json!(who.key()), &expect["key"])?;
                }
                if let Some(name) = step["principal"].as_str() {
                    self.principals.insert(name.to_owned(), who);
                }
                Ok(())
            }
        }
    }

    fn admit(&mut self, gate: &Gate, step: &Value) -> Result<(), String> {
        let who = match step["principal"].as_str() {
            Some(name) => self.principals.get(name).ok_or("no such principal")?.clone(),
            None => gate.authenticate(self.secret(step)?).map_err(|refusal| refusal.reason.to_string())?,
        };
        let input = step["input_tokens"].as_u64().unwrap_or(0);
        let request = Request::chat(text(step, "model")).input_tokens(input).max_output_tokens(0);
        let expect = &step["expect"];
        match gate.admit(&who, &request) {
            Decision::Allow(_) if expect["allowed"] != true => Err(format!("allowed, not {}", expect["reason"])),
            Decision::Allow(lease) => match step["lease"].as_str() {
                Some(name) => {
                    self.leases.insert(name.to_owned(), lease);
                    Ok(())
                }
                None => lease.settle(Usage::tokens(input, 0)).map(drop).map_err(|error| error.to_string()),
            },
            Decision::Reject(refusal) => refused(&refusal, expect),
            other => Err(format!("neither allowed nor refused: {:?}", other.reason())),
        }
    }

    /// No secret and no digest is in the journal, as JSON or as `Debug` shows it, nor in what `Debug` shows of keys.
    fn nothing_shown(&self) -> Result<(), String> {
        let mut shown = String::new();
        self.gate.journal().scan(&mut |entry| {
            shown.push_str(&format!("{}\n{entry:?}\n", entry.to_json()));
            true
        });
        shown.push_str(&format!("{:?} {:?} {:?}", self.gate, self.made, self.principals));
        for tenant in ["acme", "other"] {
            shown.push_str(&format!("{:?}", self.gate.keys(tenant)));
        }
        let secrets = self.made.values().map(Secret::expose).chain(self.given.values().map(String::as_str));
        for secret in secrets {
            let digest = digest_hex(secret);
            if shown.contains(secret) || shown.contains(&secret[3..]) || shown.to_lowercase().contains(&digest) {
                return Err("a secret or its digest is shown".into());
            }
        }
        Ok(())
    }
}

/// The digest in hex, as a policy has it.
fn digest_hex(secret: &str) -> String {
    use sha2::Digest as _;
    assert_eq!(format!("{:?}", Digest::of(secret)), "Digest(hidden)");
    sha2::Sha256::digest(secret.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn spec(key: &Value) -> Result<KeySpec, String> {
    let name = |what: &str| key[what].as_str().map(Arc::from);
    let models = key["models"].as_array();
    Ok(KeySpec {
        id: name("id"),
        parent: name("parent"),
        app: name("app"),
        env: name("env"),
        user: name("user"),
        lane: name("lane"),
        names_users: key["names_users"] == true,
        expires: key["expires"].as_str().map(parse_instant).transpose().map_err(|error| error.to_string())?,
        models: models.map(|models| models.iter().filter_map(Value::as_str).map(Arc::from).collect()),
        limits: text(key, "limits").to_owned(),
        ..KeySpec::new(text(key, "tenant"))
    })
}

fn keys(gate: &Gate, step: &Value) -> Result<(), String> {
    let keys = gate.keys(text(step, "tenant"));
    if let Some(count) = step["count"].as_u64() {
        equal("count", &json!(keys.len()), &json!(count))?;
    }
    let Some(expect) = step["expect"].as_array() else { return Ok(()) };
    equal("count", &json!(keys.len()), &json!(expect.len()))?;
    for (key, want) in keys.iter().zip(expect) {
        let state = match key.state {
            KeyState::Active => "active",
            KeyState::Expired => "expired",
            KeyState::Revoked => "revoked",
        };
        let found: BTreeMap<&str, Value> = [
            ("id", json!(key.plan.id)),
            ("state", json!(state)),
            ("in_policy", json!(key.in_policy)),
            ("secrets", json!(key.secrets)),
        ]
        .into();
        for (what, want) in want.as_object().unwrap_or(&Map::new()) {
            equal(what, &found[what.as_str()], want)?;
        }
    }
    Ok(())
}

fn failed(error: &KeyError, expect: &Value) -> Result<(), String> {
    equal("error", &json!(error.code()), &expect["error"]).map_err(|what| format!("{what}: {error}"))?;
    says(&error.to_string(), expect)
}

fn refused(refusal: &Refusal, expect: &Value) -> Result<(), String> {
    let reason = json!(refusal.reason.code());
    equal("reason", &reason, &expect["reason"]).map_err(|what| format!("{what}: {}", refusal.message()))?;
    if expect["scopes"].is_array() {
        let scopes: Vec<&str> = refusal.shortages.iter().map(|shortage| &*shortage.scope).collect();
        equal("scopes", &json!(scopes), &expect["scopes"])?;
    }
    says(&refusal.message(), expect)
}

fn says(message: &str, expect: &Value) -> Result<(), String> {
    match expect["says"].as_str() {
        Some(says) if !message.contains(says) => Err(format!("does not say {says}: {message}")),
        _ => Ok(()),
    }
}

fn equal(what: &str, found: &Value, want: &Value) -> Result<(), String> {
    if found == want { Ok(()) } else { Err(format!("{what} is {found}, not {want}")) }
}
