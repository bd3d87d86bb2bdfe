//! The policy document as people write it: the two fixtures, a document with every key, reports, and hostile texts.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use proptest::prelude::*;
use quota_core::policy::plan::{Hold, Limit, OnExceed, Priority, QueueMode, StalePools, Window};
use quota_core::policy::price::PriceClass;
use quota_core::policy::price_list::PriceList;
use quota_core::policy::{ErrorKind, MAX_OVERRIDES, Policy};
use quota_core::time::parse_instant;
use quota_core::units::Usd;
use quota_core::work::WorkRates;
use serde_json::Value;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

fn load(name: &str) -> Policy {
    Policy::from_file(fixture(name)).unwrap_or_else(|errors| panic!("{errors}"))
}

fn limit<'l>(limits: &'l [Limit], name: &str) -> &'l Limit {
    limits.iter().find(|limit| *limit.name == *name).unwrap_or_else(|| panic!("no {name}"))
}

#[test]
fn the_shape_by_model_means_what_it_says() {
    let policy = load("policy-by-model.yaml");
    let plan = policy.plan();
    let tenant = &plan.tenants["team-risk-control"];
    assert_eq!(tenant.plan.as_deref(), Some("gold"));
    assert!(tenant.limits.is_empty() && tenant.any_model.is_none());
    let large = &tenant.models["gpt-large"];
    let amounts: Vec<_> = large.limits.iter().map(|limit| (&*limit.name, limit.hard)).collect();
    let dollars = 300 * Usd::UNITS;
    let want = [
        ("rpm", 120),
        ("input_tpm", 200_000),
        ("output_tpm", 80_000),
        ("max_inflight", 24),
        ("daily_budget_usd", dollars),
    ];
    assert_eq!(amounts, want);
    assert_eq!((large.ceilings.context, large.ceilings.output), (Some(32_000), Some(4096)));
    assert_eq!(limit(&large.limits, "rpm").window, Window::Rolling { nanos: 60_000_000_000 });
    assert_eq!(limit(&large.limits, "daily_budget_usd").hold, Hold::WorstCase);
    assert_eq!(tenant.models["gpt-small"].limits.len(), 4);
    assert_eq!(&*plan.default_lane, "interactive");
    assert_eq!((plan.lanes["interactive"].weight, plan.lanes["interactive"].max_wait_ms), (8, 3000));
    assert_eq!((plan.lanes["batch"].weight, plan.lanes["batch"].max_wait_ms), (2, 60_000));
}

#[test]
fn the_shape_by_tenant_means_what_it_says() {
    let policy = load("policy-by-tenant.yaml");
    let plan = policy.plan();
    for (name, rpm, tpm, inflight, day, month, alert, models, weight) in [
        ("acme-corp", 300, 500_000, 50, 500, 10_000, 80, 3, 4),
        ("startup-xyz", 60, 100_000, 10, 50, 1000, 80, 2, 2),
        ("internal-dev", 20, 50_000, 5, 10, 200, 90, 1, 1),
    ] {
        let tenant = &plan.tenants[name];
        assert_eq!(tenant.weight, weight, "{name}: its priority, high, medium or low");
        assert_eq!(limit(&tenant.limits, "rpm").hard, rpm, "{name}");
        assert_eq!(limit(&tenant.limits, "tpm").hard, tpm, "{name}");
        assert_eq!(limit(&tenant.limits, "max_inflight").hard, inflight, "{name}");
        for (budget, dollars) in [("daily_budget_usd", day), ("monthly_budget_usd", month)] {
            let budget = limit(&tenant.limits, budget);
            assert_eq!((budget.hard, budget.alert_percent), (dollars * Usd::UNITS, Some(alert)), "{name}");
        }
        assert_eq!(tenant.models.len(), models, "{name}");
        assert!(tenant.models.contains_key("llama-3.1-8b") && tenant.any_model.is_none(), "{name}");
    }
    assert_eq!(plan.lanes.len(), 1);
    assert!(plan.lanes.contains_key(&plan.default_lane));
}

#[test]
fn both_shapes_load_mixed_and_as_json() {
    let text = r#"{
        "tenants": {"a": {"rpm": 5, "rate_limits": {"tokens_per_minute": 7}, "models": {"m": {"budget": {"daily_limit_usd": "2.5"}}}}},
        "queues": {"batch": {"weight": 2}}
    }"#;
    let policy = Policy::from_yaml(text).unwrap();
    let tenant = &policy.plan().tenants["a"];
    assert_eq!((limit(&tenant.limits, "rpm").hard, limit(&tenant.limits, "tpm").hard), (5, 7));
    assert_eq!(limit(&tenant.models["m"].limits, "daily_budget_usd").hard, 250_000_000);
    assert_eq!(policy.digest().len(), 64);
    assert_ne!(policy.digest(), Policy::from_yaml(&text.replace('5', "6")).unwrap().digest());
}

#[test]
fn every_key_compiles_into_what_it_says() {
    let policy = load("policy-every-key.yaml");
    assert_eq!(policy.warnings(), [], "{:?}", policy.warnings());
    let plan = policy.plan();
    let tenant = &plan.tenants["team-risk-control"];
    assert_eq!((tenant.weight, tenant.lane.as_deref(), tenant.max_queue), (8, Some("interactive"), Some(50)));
    assert_eq!((tenant.agent_runs.max_steps, tenant.agent_runs.max_seconds), (Some(40), Some(900)));
    assert_eq!(
        (tenant.agent_runs.max_usd, tenant.priority),
        (Some(2 * Usd::UNITS + Usd::UNITS / 2), Some(Priority::High))
    );
    assert_eq!(tenant.ceilings.output, Some(4096));
    let rpm = limit(&tenant.limits, "rpm");
    assert_eq!((rpm.hard, rpm.soft, rpm.burst, rpm.on_exceed), (300, Some(240), 60, OnExceed::Degrade));
    let budget = limit(&tenant.models["gpt-large"].limits, "daily_budget_usd");
    assert_eq!((budget.soft, budget.hard), (Some(240 * Usd::UNITS), 300 * Usd::UNITS));
    let raised = &budget.overrides[0];
    let at = |text| parse_instant(text).unwrap();
    assert_eq!((raised.starts, raised.expires), (at("2026-03-29T16:00:00Z"), at("2026-04-01T16:00:00Z")));
    assert_eq!(raised.hard, 600 * Usd::UNITS);
    let key = plan.keys.values().find(|key| key.parent.is_none()).unwrap();
    assert_eq!((&*key.id, &*key.tenant, key.env.as_deref()), ("k1", "team-risk-control", Some("prod")));
    assert!(key.names_users && !key.revoked && key.expires == Some(at("2026-12-31T16:00:00Z")));
    assert_eq!(limit(&tenant.keys["k1"].limits, "rpd").hard, 10_000);
    let child = &tenant.keys["k2"];
    assert_eq!((child.parent.as_deref(), limit(&child.limits, "rpm").hard), (Some("k1"), 5));
    assert_eq!(child.models, Some(["gpt-large".into()].into()));
    let claims = plan.claims.as_ref().unwrap();
    assert_eq!((&*claims.tenant.claim, &*claims.tenant.map.as_ref().unwrap()["org_42"]), ("org", "small"));
    assert_eq!(claims.env.as_ref().map(|env| &*env.claim), Some("context.env"));
    assert_eq!(limit(&tenant.users, "rpm").hard, 30);
    let small = &plan.tenants["small"];
    assert_eq!(small.models.keys().map(|name| &**name).collect::<Vec<_>>(), ["gpt-small"]);
    let alias = &plan.models["gpt"];
    assert_eq!(alias.upstream.as_deref(), Some("gpt-large"));
    assert_eq!((&alias.price, alias.ceilings), (&plan.models["gpt-large"].price, plan.models["gpt-large"].ceilings));
    let step = &plan.degrade[0];
    assert_eq!((step.when_soft.as_deref(), step.when_model.as_deref()), (Some("daily_budget_usd"), Some("gpt-large")));
    assert_eq!((step.max_output_tokens, step.disable_tools.len(), step.lane.as_deref()), (Some(512), 1, Some("batch")));
    let pressed = &plan.degrade[1];
    assert_eq!((pressed.when_pool_above, pressed.when_priority), (Some(90), Some(Priority::Low)));
    assert_eq!((plan.lease_ttl, plan.unresolved_ttl), (120_000_000_000, 3_600_000_000_000));
    assert_eq!(plan.models["gpt-large"].work, WorkRates { input: 1000, cached: 50, output: 6000, pairs: 100 });
    let batch = &plan.lanes["batch"];
    assert_eq!((batch.rank, batch.floor_percent, batch.age_after_ms), (1, 20, Some(30_000)));
    assert_eq!((plan.queue_mode, plan.stale_pools), (QueueMode::PriorityWithFloor, StalePools::Close));
}

#[test]
fn the_document_with_every_key_has_every_key_of_the_schema() {
    let text = std::fs::read_to_string(fixture("policy-every-key.yaml")).unwrap();
    let schema = Policy::schema();
    let mut missing = Vec::new();
    for (record, definition) in schema["$defs"].as_object().unwrap() {
        for key in definition["properties"].as_object().into_iter().flat_map(|properties| properties.keys()) {
            let there = [" ", "{", "\n"].iter().any(|before| text.contains(&format!("{before}{key}:")));
            if !there {
                missing.push(format!("{record}.{key}"));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn prices_come_from_a_list_where_a_model_has_none() {
    let policy = load("policy-every-key.yaml");
    let models = &policy.plan().models;
    assert!(models["listed"].price.as_ref().unwrap().has(PriceClass::Output));
    // Its own price wins.
    let own = Policy::from_yaml("models: {gpt-large: {price: {input: 9, output: 9}}}").unwrap();
    assert_ne!(models["gpt-large"].price, own.plan().models["gpt-large"].price);

    let list = || PriceList::litellm(&std::fs::read_to_string(fixture("prices.json")).unwrap()).unwrap();
    let text = "price_list: prices.json\ntenants: {a: {daily_budget_usd: 1, models: {listed: {}}}}";
    let open = Policy::from_yaml(text).unwrap();
    let kinds: Vec<_> = open.warnings().iter().map(|warning| warning.kind).collect();
    assert_eq!(kinds, [ErrorKind::NoEffect, ErrorKind::NoPrice]);
    let filled = open.clone().with_prices(list());
    assert_eq!(filled.warnings(), []);
    assert_eq!(filled.plan().models.len(), 1);
    assert!(open.plan().models["listed"].price.is_none(), "the first policy is untouched");

    let any = Policy::from_yaml("tenants: {a: {rpm: 1, models: {\"*\": {}}}}").unwrap().with_prices(list());
    assert!(any.plan().models["gpt-large"].price.is_some(), "any model may be asked for");
}

#[test]
fn files_that_cannot_be_read_are_errors_with_their_names() {
    let errors = Policy::from_file(fixture("none.yaml")).unwrap_err();
    assert_eq!((errors.errors[0].kind, errors.is_retryable()), (ErrorKind::Unreadable, true));
    assert!(errors.to_string().contains("none.yaml: "), "{errors}");
    let dir = std::env::temp_dir().join(format!("quota-policy-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let path = dir.join("policy.yaml");
    std::fs::write(&path, "tenants: {}\nprice_list: nowhere.json\n").unwrap();
    let errors = Policy::from_file(&path).unwrap_err();
    assert_eq!((errors.errors[0].path.as_str(), errors.errors[0].line), ("price_list", 2));
    std::fs::write(&path, "price_list: policy.yaml\n").unwrap();
    assert_eq!(Policy::from_file(&path).unwrap_err().errors[0].kind, ErrorKind::BadValue);
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn a_report_has_everything_at_once_in_the_order_of_the_text() {
    let text = "\
plans:
  gold: {wieght: 8}
tenants:
  acme:
    plan: golden
    rpm: -1
    daily_budget_usd: {soft: 12, hard: 10}
    models:
      gpt-large: {rmp: 4, max_inflight: lots}
queues:
  batch: {weight: 0}
overrides:
  - {tenant: acme, rpm: 5}
";
    let errors = Policy::from_yaml(text).unwrap_err();
    let want = "\
policy:2:10 plans.gold.wieght: unknown key; did you mean `weight`?
policy:5:5 tenants.acme.plan: no plan `golden`; did you mean `gold`?
policy:6:5 tenants.acme.rpm: `-1` is negative; a whole number from 0 to 4503599627370495 is allowed
policy:7:24 tenants.acme.daily_budget_usd.soft: soft 12 is above hard 10
policy:9:19 tenants.acme.models.gpt-large.rmp: unknown key; did you mean `rpm`?
policy:9:27 tenants.acme.models.gpt-large.max_inflight: `lots` is not a decimal number; a whole number from 0 to \
4503599627370495 is allowed
policy:11:11 queues.batch.weight: 0 is out of range; 1 to 1000000 is allowed
policy:13:5 overrides[0]: `operator` is missing
policy:13:5 overrides[0]: `reason` is missing
policy:13:5 overrides[0]: `starts` is missing
policy:13:5 overrides[0]: `expires` is missing";
    assert_eq!(errors.to_string(), want);
}

#[test]
fn what_a_plan_repeats_for_its_tenants_is_bounded() {
    let models: Vec<String> = (0..2000).map(|i| format!("m{i}")).collect();
    let load = |own: &str| {
        let tenants: String = (0..1100).map(|i| format!("  t{i}: {{plan: p{own}}}\n")).collect();
        let text = format!("plans: {{p: {{models_allowed: [{}]}}}}\ntenants:\n{tenants}", models.join(","));
        Policy::from_yaml(&text)
    };
    // Tenants that say nothing of their own share their plan's rules.
    let shared = load("").unwrap();
    let [a, b] = ["t0", "t1"].map(|name| shared.plan().tenants[name].rules.clone());
    assert!(Arc::ptr_eq(&a, &b) && a.models.len() == 2000);
    let errors = load(", rpm: 9").unwrap_err();
    assert_eq!(errors.errors.len(), 1);
    assert_eq!(errors.errors[0].kind, ErrorKind::TooLarge);
}

#[test]
fn tenants_that_differ_in_their_names_alone_share_the_rest_until_one_is_overridden() {
    let key = "{id: k, sha256: 'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855'}";
    let text = format!(
        "defaults: {{rpm: 5, models: {{m: {{}}}}}}
cost_centers: {{c: {{}}}}
tenants: {{a: {{}}, b: {{}}, c: {{}}, gold: {{tier: gold}}, legal: {{cost_center: c}}, own: {{rpm: 6}}, keyed: {{keys: [{key}]}}}}
overrides: [{{tenant: b, operator: o, reason: r, starts: 2026-01-01, expires: 2026-01-02, rpm: 9}}]"
    );
    let policy = Policy::from_yaml(&text).unwrap();
    let tenants = &policy.plan().tenants;
    let same = |name: &str| Arc::ptr_eq(&tenants["a"].kind, &tenants[name].kind);
    assert_eq!(
        ["a", "b", "c", "gold", "legal", "own", "keyed"].map(same),
        [true, false, true, false, false, false, false]
    );
    let overrides = |name: &str| tenants[name].limits[0].overrides.len();
    assert_eq!(["a", "b", "c", "gold"].map(overrides), [0, 1, 0, 0]);
    assert_eq!((tenants["gold"].plan.as_deref(), tenants["a"].plan.as_deref()), (Some("gold"), None));
    assert_eq!((tenants["legal"].cost_center.as_deref(), tenants["a"].cost_center.as_deref()), (Some("c"), None));
    assert!(tenants["keyed"].keys.contains_key("k") && tenants["a"].keys.is_empty());
    let names: Vec<&str> = tenants.keys().map(|name| &**name).collect();
    assert_eq!(names, ["a", "b", "c", "gold", "legal", "own", "keyed"], "in the order of the document");
}

#[test]
fn one_scope_has_bounded_windows_and_one_limit_bounded_overrides() {
    let window = |i| format!("{{name: w{i}, meter: requests, seconds: 9, hard: 1}}");
    let policy = |windows: usize, overrides: usize| {
        let windows: Vec<String> = (0..windows).map(window).collect();
        let raise = "{tenant: a, operator: o, reason: r, starts: 2026-01-01, expires: 2026-01-02, rpm: 9}";
        let overrides = vec![raise; overrides].join(",");
        let text = format!(
            "tenants: {{a: {{rpm: 1, models: [m], windows: [{}]}}}}\noverrides: [{overrides}]",
            windows.join(",")
        );
        Policy::from_yaml(&text).map_err(|errors| errors.errors.iter().map(|e| (e.kind, e.path.clone())).collect())
    };
    assert!(policy(64, MAX_OVERRIDES).is_ok());
    let many: Vec<_> = policy(65, MAX_OVERRIDES + 1).unwrap_err();
    let want = [(ErrorKind::TooLarge, "tenants.a.windows".into()), (ErrorKind::TooLarge, "overrides[64].rpm".into())];
    assert_eq!(many, want);
}

/// Keys of every record of the schema, to make documents that get past the first look.
fn keys() -> Vec<String> {
    let Value::Object(definitions) = Policy::schema()["$defs"].take() else { panic!() };
    let records = definitions.values().filter_map(|record| record["properties"].as_object());
    let mut keys: Vec<String> = records.flat_map(|properties| properties.keys().cloned()).collect();
    keys.sort();
    keys.dedup();
    keys
}

/// Documents of real keys in any nesting, with values that may or may not fit.
fn document() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        (0..20u64).prop_map(Value::from),
        "[a-z*]{0,3}".prop_map(Value::from),
        prop::sample::select(vec!["rolling", "fixed", "UTC", "2026-03-01", "1e400", "tokens", "a", "b", "*", "queue"])
            .prop_map(Value::from),
    ];
    let name = prop_oneof![4 => prop::sample::select(keys()), 1 => prop::sample::select(vec!["a".to_owned(), "b".into(), "*".into()])];
    scalar.prop_recursive(6, 64, 6, move |inner| {
        prop_oneof![
            1 => prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            4 => prop::collection::vec((name.clone(), inner), 0..6)
                .prop_map(|entries| Value::Object(entries.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any text loads or is told, and errors point into it.
    #[test]
    fn any_text_is_answered(text in "[\\PC\n\t]{0,300}") {
        answer(&text);
    }

    /// So does any text made of what YAML has a meaning for.
    #[test]
    fn any_yaml_soup_is_answered(parts in prop::collection::vec(prop::sample::select(vec![
        "tenants", "models", "a", ": ", "- ", "\n", "  ", "{", "}", "[", "]", ",", "&a ", "*a", "!t ", "\"", "'", "#", "|",
        ">", "? ", "---\n", "...\n", "%YAML 1.2\n", "\\", "\t", "0", "-", "<<", "~", "\u{feff}", "é", "\r",
    ]), 0..60)) {
        answer(&parts.concat());
    }

    /// Documents of real keys with any values load, or are told.
    #[test]
    fn any_document_of_real_keys_is_answered(document in document()) {
        answer(&document.to_string());
    }

    /// A fixture with one byte's worth of damage loads, or is told.
    #[test]
    fn damaged_fixtures_are_answered(at in 0..3000usize, with in "[\\PC\n]{0,2}") {
        let text = std::fs::read_to_string(fixture("policy-every-key.yaml")).unwrap();
        let at = (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap();
        answer(&format!("{}{with}{}", &text[..at], &text[at..]));
        answer(&text[..at]);
    }
}

fn answer(text: &str) {
    let lines = text.split('\n').count() as u32;
    match Policy::from_yaml(text) {
        Ok(policy) => assert!(policy.plan().lanes.contains_key(&policy.plan().default_lane)),
        Err(errors) => {
            assert!(!errors.errors.is_empty());
            for error in &errors.errors {
                // A lone carriage return ends a line too.
                let most = lines + text.matches('\r').count() as u32 + 1;
                assert!(error.line <= most, "{error}");
                assert!(!error.to_string().contains('\n'), "{error}");
            }
        }
    }
}

#[test]
fn json_is_read_as_json_and_as_nothing_else() {
    let json = "{\n\t\"tenants\": {\"a\\/\\ud83d\\ude00\\u00e9\": {\"rpm\": 60,\t\"models\": [\"m\"]}}}";
    let policy = Policy::from_json(json).unwrap();
    assert_eq!(policy.plan().tenants["a/😀é"].limits[0].hard, 60);
    assert_eq!(policy.digest(), Policy::from_json(json).unwrap().digest());
    assert_ne!(policy.digest(), Policy::from_json(&json.replace('\t', " ")).unwrap().digest(), "that of the text");
    for (text, line, says) in [
        ("tenants: {}", 1, "this is no JSON: expected"),
        ("{\"tenants\": {},}", 1, "this is no JSON: key must be"),
        ("{\"tenants\":\n {\"acme\": {\"rpm\": 060}}}", 2, "this is no JSON: invalid number"),
        ("", 1, "this is no JSON: EOF"),
        ("{\"tenants\":\n {\"acme\": {\"rmp\": 60}}}", 2, "did you mean `rpm`?"),
        ("{\"tenants\": {\"\\ud83d\": {}}}", 1, ""),
    ] {
        let errors = Policy::from_json(text).unwrap_err();
        assert_eq!(errors.errors.len(), 1, "{errors}");
        assert!(errors.errors[0].message.contains(says), "{errors}");
        assert_eq!(errors.errors[0].line, line, "{errors}");
    }
    let nested = format!("{}{}", "[".repeat(5000), "]".repeat(5000));
    assert_eq!(Policy::from_json(&nested).unwrap_err().errors[0].kind, ErrorKind::Syntax);
    let long = format!("{{\"x\": \"{}\"}}", "\\t".repeat(9 << 20));
    assert_eq!(Policy::from_json(&long).unwrap_err().errors[0].kind, ErrorKind::TooLarge);
}

/// These tests are built with all tokenizers; what is said where one is missing is tested from Python.
#[test]
fn a_tokenizer_that_the_build_has_is_no_doubt() {
    let policy = "{models: {m: {tokenizer: o200k_base}}, tenants: {acme: {rpm: 1, models: [m]}}}";
    assert_eq!(Policy::from_yaml(policy).unwrap().warnings(), []);
}
