//! A bill explained: each request's story as the journal has it, and their sum, which is what the tenant's budget says.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use quota_core::lease::Cause;
use quota_core::usage::{Dialect, Outcome};
use quota_core::{Gate, Lease, ManualClock, Name, Policy, Principal, Request, Usage, Usd};
use serde_json::{Value, json};

fn main() -> Result<(), Box<dyn Error>> {
    let policy = Policy::from_file(concat!(env!("CARGO_MANIFEST_DIR"), "/explain_bill/policy.yaml"))?;
    let clock = Arc::new(ManualClock::at_instant("2026-03-02T12:00:00Z")?);
    let gate = Gate::builder(policy).clock(clock.clone()).build();
    let who = Principal::builder("acme").build();
    let ask = |id: &str| -> Option<Lease> {
        gate.admit(&who, &Request::chat("large").id(id).input_tokens(8_000).max_output_tokens(1_000)).lease()
    };

    // Paid by the provider's own figures, of which 6,000 tokens were read from its cache.
    let lease = ask("paid").expect("it fits");
    lease.sent();
    let answer = json!({"usage": {
        "prompt_tokens": 8_000, "completion_tokens": 250, "total_tokens": 8_250, "prompt_tokens_details": {"cached_tokens": 6_000},
    }});
    lease.settle(Usage::read(Dialect::OpenAiChat, &answer)?)?;
    // Cancelled: it never left.
    ask("cancelled").expect("it fits").cancel()?;
    // Lost on the way, and reported a minute later.
    let lease = ask("late").expect("it fits");
    lease.sent();
    lease.unresolved(Cause::UpstreamFailed, None)?;
    clock.advance(Duration::from_secs(60));
    gate.finalize(Name::Request("late".into()), Outcome::Final(Usage::tokens(8_000, 100)))?;
    // Lost, and never reported: it is charged as it was reserved.
    let lease = ask("lost").expect("it fits");
    lease.sent();
    drop(lease);
    // Refused: it costs nothing.
    assert!(ask("refused").is_none());

    let mut sum = 0;
    for id in ["paid", "cancelled", "late", "lost", "refused"] {
        println!("{id}");
        let mut charged = "0".to_owned();
        for entry in gate.explain(id) {
            let line = entry.to_json();
            let (at, event) = (text(&line["at"]), text(&line["event"]));
            match event {
                "admitted" => println!("  {at} {event}: at most {} USD", text(&line["estimate"]["worst_case_usd"])),
                "refused" => println!("  {at} {event}: {}", text(&line["message"])),
                _ => {
                    println!("  {at} {event}: {} USD", text(&line["cost_usd"]));
                    for part in line["lines"].as_array().into_iter().flatten() {
                        println!("    {} {}: {} USD", part["units"], text(&part["item"]), text(&part["usd"]));
                    }
                    charged = text(&line["charged_usd"]).to_owned();
                }
            }
        }
        sum += charged.parse::<Usd>()?.units();
    }
    println!("sum: {} USD", Usd::from_units(sum));
    let balances = gate.balances(&who, false);
    let budget = balances.iter().find(|balance| &*balance.limit == "daily_budget_usd").expect("it has one");
    println!("budget: {} USD used", budget.meter.show(budget.used));
    Ok(())
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
