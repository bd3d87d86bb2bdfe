//! Who asks, of any bytes: the first byte chooses a bearer key, claims, or the limits and names of a key that is to be made.
//! Whoever is let in is who the policy says, and nothing shows what was presented.

use std::time::Duration;

use quota_core::gate::{KeySpec, KeyState};
use quota_core::{Gate, ManualClock, Policy};
use serde_json::Value;

const POLICY: &str = "
models: {m: {}, n: {}}
queues: {interactive: {}, batch: {}}
tenants:
  acme:
    models: {m: {rpm: 60}, n: {}}
    keys:
      # qk_an_invented_secret
      - {id: p, sha256: 130e4669c1a9124c2e8f65d7f32ebe3f1bbbb8da2d04d968150107bd1449109a, app: bot, names_users: true, rpm: 9}
  other: {models: {m: {}}}
claims: {tenant: {claim: org, map: {o1: acme, o2: other}}, user: sub, app: context.app, lane: lane, key: key_id}
";

const SECRET: &str = "qk_an_invented_secret";

/// Presents what the bytes hold.
pub fn run(bytes: &[u8]) {
    let Some((what, rest)) = bytes.split_first() else { return };
    let text = String::from_utf8_lossy(rest);
    let policy = Policy::from_yaml(POLICY).expect("the policy above");
    let gate = Gate::builder(policy).clock(ManualClock::at(1_795_996_800_000_000_000)).build();
    match what % 3 {
        0 => bearer(&gate, &text),
        1 => claims(&gate, &text),
        _ => made(&gate, &text),
    }
}

fn bearer(gate: &Gate, text: &str) {
    let known = text.trim().ends_with(SECRET);
    match gate.authenticate(text) {
        Ok(who) => {
            assert!(known, "{text:?}");
            assert_eq!((who.tenant(), who.app(), who.user(), who.key()), ("acme", Some("bot"), None, Some("p")));
        }
        Err(refusal) => {
            let shown = format!("{refusal:?} {}", refusal.message());
            assert!(text.len() < 16 || !shown.contains(text), "{shown}");
        }
    }
}

fn claims(gate: &Gate, text: &str) {
    let Ok(claims) = serde_json::from_str::<Value>(text) else { return };
    match gate.principal_from_claims(&claims) {
        Ok(who) => {
            let tenant = if claims["org"] == "o1" { "acme" } else { "other" };
            assert_eq!(who.tenant(), tenant);
            let under = who.key().map(|key| (who.tenant(), key, who.app()));
            assert!(
                under.is_none_or(|under| under == ("acme", "p", Some("bot"))),
                "no other key is there, and what it fixes goes before the claims: {under:?}"
            );
            assert!([who.user(), who.app(), who.lane()].into_iter().flatten().all(|name| !name.is_empty()));
        }
        Err(refusal) => assert!(!refusal.message().is_empty()),
    }
}

/// A text's lines: the id, the parent, the user, and the limits to the end.
fn made(gate: &Gate, text: &str) {
    let mut parts = text.splitn(4, '\n');
    let mut part = || parts.next().filter(|part| !part.is_empty());
    let (id, parent, user, limits) = (part(), part(), part(), part().unwrap_or_default());
    let spec = KeySpec {
        id: id.map(Into::into),
        parent: parent.map(Into::into),
        user: user.map(Into::into),
        limits: limits.to_owned(),
        ..KeySpec::new("acme")
    };
    let issued = match gate.issue_key(spec, "ops") {
        Ok(issued) => issued,
        Err(error) => {
            assert!(!error.to_string().is_empty() && !error.code().is_empty());
            return;
        }
    };
    let who = gate.authenticate(issued.secret.expose()).expect("a key that was just made");
    assert_eq!((who.tenant(), who.key(), who.user()), ("acme", Some(&*issued.id), user));
    let rotated = gate.rotate_key("acme", &issued.id, Duration::ZERO, "ops").expect("a key that works");
    assert!(gate.authenticate(issued.secret.expose()).is_err() && gate.authenticate(rotated.secret.expose()).is_ok());
    assert!(gate.revoke_key("acme", &issued.id, "ops").expect("a key that is there"));
    assert!(gate.authenticate(rotated.secret.expose()).is_err());
    let states = gate.keys("acme");
    let state = states.iter().find(|key| key.plan.id == issued.id).expect("a revoked key is shown").state;
    assert_eq!(state, KeyState::Revoked);
}
