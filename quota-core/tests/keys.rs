//! Keys while a gate runs, beyond what the corpus says: what is never shown, what is bounded, and many threads at once.

use std::sync::Arc;
use std::time::Duration;

use quota_core::gate::{KeyError, KeySpec, KeyState, MAX_KEYS};
use quota_core::{Decision, Gate, ManualClock, Policy, Reason, Request};
use serde_json::json;

const SECRET: &str = "qk_an_invented_secret";
/// The SHA-256 of [`SECRET`].
const DIGEST: &str = "130e4669c1a9124c2e8f65d7f32ebe3f1bbbb8da2d04d968150107bd1449109a";

fn policy() -> Policy {
    Policy::from_yaml(&format!(
        "tenants: {{acme: {{models: {{m: {{}}}}, keys: [{{id: p, sha256: {DIGEST}, max_inflight: 9}}]}}}}"
    ))
    .unwrap()
}

/// A digest as `Debug` of its bytes would show it.
fn as_bytes() -> String {
    let bytes: Vec<u8> = (0..32).map(|i| u8::from_str_radix(&DIGEST[2 * i..2 * i + 2], 16).unwrap()).collect();
    format!("{}, {}, {}", bytes[0], bytes[1], bytes[2])
}

#[test]
fn nothing_shows_a_secret_or_a_digest() {
    let gate = Gate::new(policy());
    let who = gate.authenticate(SECRET).unwrap();
    let issued = gate.issue_key(KeySpec { parent: Some("p".into()), ..KeySpec::new("acme") }, "ops").unwrap();
    let child = gate.authenticate(&format!("Bearer {}", issued.secret.expose())).unwrap();
    let rotated = gate.rotate_key("acme", "p", Duration::from_secs(1), "ops").unwrap();
    let Decision::Allow(lease) = gate.admit(&child, &Request::chat("m")) else { panic!("not allowed") };
    gate.revoke_key("acme", "p", "ops").unwrap();
    let refusals = [SECRET, issued.secret.expose(), rotated.secret.expose(), "qk_a_secret_that_nobody_has"]
        .map(|secret| gate.authenticate(secret).unwrap_err());
    let errors = [
        gate.issue_key(KeySpec { id: Some("p".into()), ..KeySpec::new("acme") }, "ops").unwrap_err(),
        gate.rotate_key("acme", "p", Duration::ZERO, "ops").unwrap_err(),
    ];
    let twice =
        format!("{{id: q, sha256: {DIGEST}}}, {{id: p, sha256: {DIGEST}, parent: none}}, {{id: r, sha256: {SECRET}}}");
    let report = Policy::from_yaml(&format!("tenants: {{acme: {{keys: [{twice}]}}}}")).unwrap_err();
    let claims = gate.principal_from_claims(&json!({"org": SECRET})).unwrap_err();

    let mut shown = vec![
        format!("{:?} {:?} {:?}", gate, policy(), policy().plan()),
        format!("{who:?} {issued:?} {} {rotated:#?} {:?}", issued.secret, lease.claim()),
        format!("{refusals:?} {claims:?} {}", claims.message()),
        format!("{errors:?} {} {}", errors[0], errors[1]),
        format!("{report:?} {report}"),
        format!("{:?}", gate.keys("acme")),
    ];
    shown.extend(refusals.iter().map(|refusal| refusal.message()));
    gate.journal().scan(&mut |entry| {
        shown.push(format!("{entry:?} {}", entry.to_json()));
        true
    });
    drop(lease);
    let kept = [SECRET, DIGEST, "qk_a_secret_that_nobody_has", &as_bytes()];
    for secret in kept.into_iter().chain([&issued.secret, &rotated.secret].map(|secret| &secret.expose()[3..])) {
        for text in &shown {
            assert!(!text.contains(secret), "{text}");
        }
    }
    let names: Vec<&str> = ["key_issued", "key_rotated", "key_revoked"].into();
    let told: Vec<String> = gate
        .recent("acme", u64::MAX)
        .iter()
        .filter(|entry| entry.event.name().starts_with("key_"))
        .map(|entry| entry.to_json().to_string())
        .collect();
    assert_eq!(told.len(), 3);
    assert!(told.iter().zip(names).all(|(line, name)| line.contains(name) && line.contains("\"author\":\"ops\"")));
}

#[test]
fn keys_are_bounded_and_those_that_have_ended_make_room() {
    let clock = Arc::new(ManualClock::at_instant("2026-11-30T12:00:00Z").unwrap());
    let gate = Gate::builder(policy()).clock(clock.clone()).build();
    let end = quota_core::time::parse_instant("2026-11-30T13:00:00Z").unwrap();
    let spec = |id: String| KeySpec { id: Some(id.into()), ..KeySpec::new("acme") };
    let short = KeySpec { expires: Some(end), ..spec("short".into()) };
    let short = gate.issue_key(short, "ops").unwrap();
    let child = KeySpec { parent: Some("short".into()), ..spec("child".into()) };
    let child = gate.issue_key(child, "ops").unwrap();
    let rest: Vec<_> = (2..MAX_KEYS).map(|i| gate.issue_key(spec(format!("k{i}")), "ops").unwrap()).collect();
    assert_eq!(gate.issue_key(spec("more".into()), "ops").unwrap_err(), KeyError::KeysFull);
    assert!(gate.rotate_key("acme", "k2", Duration::ZERO, "ops").is_ok(), "a key that is held needs no room");
    assert_eq!(gate.rotate_key("acme", "p", Duration::ZERO, "ops").unwrap_err(), KeyError::KeysFull);
    assert_eq!(gate.revoke_key("acme", "p", "ops"), Ok(true), "there is always room to revoke");
    assert_eq!(gate.authenticate(SECRET).unwrap_err().reason, Reason::KeyRevoked);

    clock.advance(Duration::from_secs(3600));
    assert_eq!(gate.authenticate(short.secret.expose()).unwrap_err().reason, Reason::KeyExpired);
    gate.revoke_key("acme", "k3", "ops").unwrap();
    let more = gate.issue_key(spec("more".into()), "ops").unwrap();
    let reason = |secret: &quota_core::Secret| gate.authenticate(secret.expose()).err().map(|refusal| refusal.reason);
    assert_eq!(reason(&more.secret), None);
    assert_eq!(reason(&short.secret), Some(Reason::KeyUnknown), "forgotten");
    assert_eq!(reason(&child.secret), Some(Reason::KeyRevoked), "its parent is gone");
    assert_eq!(reason(&rest[1].secret), Some(Reason::KeyUnknown), "forgotten");
    assert_eq!(reason(&rest[2].secret), None);
    assert_eq!(gate.authenticate(SECRET).unwrap_err().reason, Reason::KeyRevoked, "the policy's are not forgotten");
    let view = gate.keys("acme").into_iter().find(|key| &*key.plan.id == "child").unwrap();
    assert_eq!((view.state, view.in_policy), (KeyState::Revoked, false));
}

#[test]
fn what_one_thread_revokes_every_thread_refuses_from_then_on() {
    let gate = Gate::new(policy());
    for _ in 0..200 {
        let issued = gate.issue_key(KeySpec::new("acme"), "ops").unwrap();
        let revoked = std::sync::Barrier::new(3);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                let (gate, revoked, secret) = (gate.clone(), &revoked, issued.secret.expose());
                scope.spawn(move || {
                    let who = gate.authenticate(secret);
                    revoked.wait();
                    assert_eq!(gate.authenticate(secret).unwrap_err().reason, Reason::KeyRevoked);
                    if let Ok(who) = who {
                        assert_eq!(gate.admit(&who, &Request::chat("m")).reason(), Some(Reason::KeyRevoked));
                    }
                });
            }
            gate.revoke_key("acme", &issued.id, "ops").unwrap();
            revoked.wait();
        });
    }
}

#[test]
fn a_key_for_some_models_of_any_sees_its_balances() {
    let policy = "tenants: {acme: {rpm: 60, models: {\"*\": {tpm: 100}}}}";
    let gate = Gate::new(Policy::from_yaml(policy).unwrap());
    let parent = KeySpec { models: Some(["m".into()].into()), limits: "rpm: 5".into(), ..KeySpec::new("acme") };
    let parent = gate.issue_key(parent, "ops").unwrap();
    let child = KeySpec { parent: Some(parent.id.clone()), limits: "rpd: 7".into(), ..KeySpec::new("acme") };
    let child = gate.issue_key(child, "ops").unwrap();
    let who = gate.authenticate(child.secret.expose()).unwrap();
    let shown: Vec<_> =
        gate.balances(&who, false).into_iter().map(|b| (b.scope.to_string(), b.limit.to_string())).collect();
    let of = |id: &str| format!("tenant:acme/key:{id}");
    let want = [
        ("tenant:acme".to_owned(), "rpm"),
        ("tenant:acme/model:*".to_owned(), "tpm"),
        (of(&parent.id), "rpm"),
        (of(&child.id), "rpd"),
    ];
    assert_eq!(shown, want.map(|(scope, limit)| (scope, limit.to_owned())));
}
