//! The whole of LiteLLM's public price list, where it is at hand: `.ci/test` fetches it, `QUOTA_PRICE_LIST` names another.
//!
//! Without one the test says so and passes: the list is the work of others and not kept here.

use std::io::Write;
use std::path::{Path, PathBuf};

use quota_core::policy::Policy;
use quota_core::policy::price::{Ask, PriceClass};
use quota_core::policy::price_list::PriceList;
use quota_core::{Decision, Gate, Principal, Request, Usage};
use serde_json::Value;

const FILE: &str = "model_prices_and_context_window_backup.json";

/// The list named by the environment, the one fetched for the tests, or that of a package in the workspace's venv.
fn list() -> Option<PathBuf> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent()?;
    let named = std::env::var_os("QUOTA_PRICE_LIST").map(PathBuf::from);
    let fetched = workspace.join(".cache/price-list").join(FILE);
    let installed = std::fs::read_dir(workspace.join(".venv/lib")).into_iter().flatten().flatten();
    let installed = installed.map(|python| python.path().join("site-packages/litellm").join(FILE));
    named.into_iter().chain([fetched]).chain(installed).find(|path| path.is_file())
}

#[test]
fn the_whole_public_list_loads() {
    let Some(path) = list() else {
        // Past the capture of output, so that it is seen.
        let _ = writeln!(std::io::stderr(), "SKIPPED the_whole_public_list_loads: no {FILE} at hand");
        return;
    };
    let text = std::fs::read_to_string(&path).unwrap();
    let rows: serde_json::Map<String, Value> = serde_json::from_str(&text).unwrap();
    let list = PriceList::litellm(&text).unwrap();
    let report = list.report();
    let not_models = ["sample_spec", "fallback_generalizations"].iter().filter(|key| rows.contains_key(**key)).count();
    assert_eq!(report.loaded + report.skipped, (rows.len() - not_models) as u64, "every row is loaded or skipped");
    assert!(report.loaded > 1000, "{report:?}");
    assert!(report.skipped < report.loaded / 2, "{report:?}");
    assert!(report.named.len() as u64 == report.skipped.min(64) && report.named.iter().all(|(_, why)| !why.is_empty()));

    for (name, model) in list.models() {
        let row = &rows[&**name];
        assert!(PriceClass::ALL.iter().any(|class| model.price.has(*class)), "{name}");
        // The worst case covers what a request of that size costs, and nothing overflows.
        let (input, output) = (200_001, 100_000);
        let worst = model.price.worst_case(&Ask { input, output, ..Ask::default() });
        assert!(model.price.exact(&Usage::tokens(input, output)) <= worst, "{name}");
        // A plain price of text is the list's own, to the digit.
        let plain = row["input_cost_per_token"].as_number().filter(|_| row.get("tiered_pricing").is_none());
        if let Some(wanted) = plain.and_then(|number| quota_core::units::parse_decimal(&number.to_string(), 12).ok()) {
            assert_eq!(
                model.price.exact(&Usage::tokens(1, 0)).0 - model.price.exact(&Usage::tokens(0, 0)).0,
                wanted,
                "{name}"
            );
        }
    }

    // A gate on all of it.
    let policy = Policy::from_yaml("tenants: {acme: {daily_budget_usd: 100, models: {\"*\": {}}}}").unwrap();
    let names: Vec<_> = list.models().map(|(name, _)| name.clone()).collect();
    let gate = Gate::new(policy.with_prices(list));
    let who = Principal::builder("acme").build();
    let mut admitted = 0;
    for name in names {
        let request = Request::chat(name.clone()).input_tokens(10).max_output_tokens(10);
        if let Decision::Allow(lease) = gate.admit(&who, &request) {
            lease.settle(Usage::tokens(10, 10)).unwrap();
            admitted += 1;
        }
    }
    assert!(admitted > 500, "{admitted}");
}
