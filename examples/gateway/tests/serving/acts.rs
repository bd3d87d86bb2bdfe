//! Keys, freezing and tokens.

use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::*;

impl Server {
    async fn act(&self, path: &str, body: &Value) -> Answer {
        self.operator(Method::POST, path, &body.to_string()).await
    }

    async fn status(&self, bearer: &str) -> u16 {
        let headers = [("x-api-key", bearer)];
        self.answer(Method::GET, "/v1/models", &headers, vec![]).await.status
    }
}

#[tokio::test]
async fn keys_are_made_rotated_and_revoked() {
    let server = simulated().await;
    let spec = json!({
        "tenant": "acme", "id": "bot", "parent": "acme", "app": "bot", "models": ["sim-chat"],
        "limits": { "rpm": { "hard": 5 } }, "expires": "2090-01-01T00:00:00Z", "author": "ann",
    });
    let made = server.act("/admin/keys", &spec).await;
    assert_eq!(made.status, 200, "{}", made.text);
    assert_eq!((&made.json()["id"], &made.json()["expires"]), (&json!("bot"), &json!("2090-01-01T00:00:00Z")));
    assert_eq!(made.header("cache-control"), Some("no-store"));
    let first = made.json()["secret"].as_str().unwrap().to_owned();
    let headers = [("authorization", first.as_str())];
    let models = server.answer(Method::GET, "/v1/models", &headers, vec![]).await;
    assert_eq!(models.json()["data"].as_array().unwrap().len(), 1);
    assert_eq!(models.header("x-ratelimit-limit-requests"), Some("5"));

    let overlapping = server.act("/admin/keys/bot/rotate", &json!({ "tenant": "acme", "overlap_s": 3600 })).await;
    let second = overlapping.json()["secret"].as_str().unwrap().to_owned();
    assert_eq!((server.status(&first).await, server.status(&second).await), (200, 200));
    let listed = server.operator(Method::GET, "/admin/tenants/acme/keys", "").await;
    let keys = listed.json();
    let bot = keys["keys"].as_array().unwrap().iter().find(|key| key["id"] == "bot").unwrap();
    assert_eq!((&bot["secrets"], &bot["state"], &bot["in_policy"]), (&json!(2), &json!("active"), &json!(false)));
    assert!(!listed.text.contains(&first) && !listed.text.contains(&second));
    let third = server.act("/admin/keys/bot/rotate", &json!({ "tenant": "acme" })).await.json();
    assert_eq!((server.status(&first).await, server.status(&second).await), (401, 401));
    assert_eq!(server.status(third["secret"].as_str().unwrap()).await, 200);

    let revoked = server.act("/admin/keys/bot/revoke", &json!({ "tenant": "acme" })).await.json();
    assert_eq!((&revoked["state"], &revoked["changed"]), (&json!("revoked"), &json!(true)));
    assert_eq!(server.status(third["secret"].as_str().unwrap()).await, 401);
    let again = server.act("/admin/keys/bot/revoke", &json!({ "tenant": "acme" })).await.json();
    assert_eq!(again["changed"], false);
}

#[tokio::test]
async fn what_is_wrong_with_an_act_is_told() {
    let server = simulated().await;
    for (path, body, status, code) in [
        ("/admin/keys", json!({}), 400, "request_invalid"),
        ("/admin/keys", json!({ "tenant": "none" }), 404, "tenant_unknown"),
        ("/admin/keys", json!({ "tenant": "acme", "id": "acme" }), 409, "key_id_taken"),
        ("/admin/keys", json!({ "tenant": "acme", "limit": {} }), 400, "request_invalid"),
        ("/admin/keys", json!({ "tenant": "acme", "limits": "rpm: 5" }), 400, "request_invalid"),
        ("/admin/keys", json!({ "tenant": "acme", "limits": { "rmp": 5 } }), 400, "key_limits_invalid"),
        ("/admin/keys", json!({ "tenant": "acme", "expires": "tomorrow" }), 400, "request_invalid"),
        ("/admin/keys", json!({ "tenant": "acme", "models": ["dear"] }), 400, "key_invalid"),
        ("/admin/keys/none/rotate", json!({ "tenant": "acme" }), 404, "key_unknown"),
        ("/admin/keys/revoked/rotate", json!({ "tenant": "acme" }), 409, "key_ended"),
        ("/admin/keys/acme/rotate", json!({ "tenant": "acme", "overlap_s": -1 }), 400, "request_invalid"),
        ("/admin/keys/none/revoke", json!({ "tenant": "acme" }), 404, "key_unknown"),
        ("/admin/freeze", json!({ "tenant": "acme" }), 400, "request_invalid"),
        ("/admin/freeze", json!({ "key": "acme", "reason": "x" }), 400, "request_invalid"),
        ("/admin/thaw", json!(["acme"]), 400, "request_invalid"),
    ] {
        let answer = server.act(path, &body).await;
        assert_eq!((answer.status, answer.code().as_str()), (status, code), "{path} {body}: {}", answer.text);
    }
    for path in ["/admin/keys", "/admin/keys/acme/rotate", "/admin/keys/acme/revoke", "/admin/freeze", "/admin/thaw"] {
        let answer = server.post("acme", path, &json!({ "tenant": "acme" })).await;
        assert_eq!((answer.status, answer.code().as_str()), (401, "admin_key_needed"), "{path}");
    }
    for path in ["/admin/frozen", "/admin/tenants/acme/keys"] {
        assert_eq!(server.get("acme", path).await.status, 401, "{path}");
    }
    assert_eq!(server.status("test-acme").await, 200);
}

#[tokio::test]
async fn what_is_frozen_is_refused_until_it_thaws() {
    let server = simulated().await;
    for target in
        [json!({ "tenant": "acme" }), json!({ "tenant": "acme", "key": "acme" }), json!({ "model": "sim-chat" })]
    {
        let mut body = target.clone();
        body["reason"] = json!("an incident");
        assert_eq!(server.act("/admin/freeze", &body).await.status, 200);
        let refused = server.chat("acme", &chat("sim-chat")).await;
        assert!(refused.status >= 400 && refused.text.contains("an incident"), "{target}: {}", refused.text);
        let listed = server.operator(Method::GET, "/admin/frozen", "").await.json();
        assert_eq!((&listed["frozen"][0]["target"], &listed["frozen"][0]["author"]), (&target, &json!("operator")));
        assert_eq!(server.act("/admin/thaw", &target).await.json()["changed"], true);
        assert_eq!(server.act("/admin/thaw", &target).await.json()["changed"], false);
        assert_eq!(server.chat("acme", &chat("sim-chat")).await.status, 200);
    }
}

/// A token with these claims, signed with HS256.
#[cfg(feature = "jwt")]
fn token(claims: &Value, secret: &[u8]) -> String {
    use jsonwebtoken::{EncodingKey, Header, encode};
    encode(&Header::default(), claims, &EncodingKey::from_secret(secret).unwrap()).unwrap()
}

#[cfg(feature = "jwt")]
#[tokio::test]
async fn verified_claims_name_a_principal() {
    use gateway::call::Patience;
    use gateway::identity::Identity;
    use gateway::server::Config;
    use gateway::simulated::Simulation;
    use gateway::source::Source;
    use gateway::upstream::Upstream;

    let secret = b"an invented secret of 32 bytes..";
    let identity = Identity::jwt("an invented secret of 32 bytes..\n", "https://id.example", "gateway").unwrap();
    let source = Source { policy: Some(POLICY.into()), prices: None };
    let server = start_by(Config {
        source,
        upstream: Upstream::Simulated(Simulation::instant()),
        metrics: None,
        identity,
        admin_key: ADMIN.into(),
        max_body: MAX_BODY,
        patience: Patience::default(),
    })
    .await;
    // 2100-01-01.
    let claims = json!({
        "iss": "https://id.example", "aud": "gateway", "exp": 4_102_444_800u64, "org": "acme", "sub": "ann",
    });
    let good = token(&claims, secret);
    let headers = [("authorization", format!("Bearer {good}"))];
    let headers = [(headers[0].0, headers[0].1.as_str())];
    let quota = server.answer(Method::GET, "/v1/quota", &headers, vec![]).await.json();
    assert_eq!((&quota["tenant"], &quota["user"]), (&json!("acme"), &json!("ann")));
    let body = chat("sim-chat").to_string();
    assert_eq!(server.answer(Method::POST, "/v1/chat/completions", &headers, body.clone().into()).await.status, 200);
    assert_eq!(server.used("acme", "daily_budget_usd"), COST);
    // A key is a key as before.
    assert_eq!(server.chat("acme", &chat("sim-chat")).await.status, 200);
    let forged = token(&claims, b"another invented secret, 32 bytes");
    let mut nobody = claims.clone();
    nobody["org"] = json!("none");
    for (bearer, code) in
        [(forged.as_str(), "token_invalid"), (&token(&nobody, secret), "claims_invalid"), ("a.b.c", "token_invalid")]
    {
        for path in ["/v1/chat/completions", "/v1/messages"] {
            let answer = server.answer(Method::POST, path, &[("x-api-key", bearer)], body.clone().into()).await;
            assert!(answer.status == 401 || answer.status == 403, "{}", answer.text);
            assert!(answer.text.contains(code) && !answer.text.contains(bearer), "{}", answer.text);
        }
    }
    assert!(Identity::jwt("short", "i", "a").unwrap_err().contains("32"));
    assert!(Identity::jwt("-----BEGIN PUBLIC KEY-----", "i", "a").is_err());
}

#[cfg(not(feature = "jwt"))]
#[test]
fn tokens_need_their_feature() {
    assert!(gateway::identity::Identity::jwt("k", "i", "a").unwrap_err().contains("`jwt`"));
}
