//! Quick start: a request is reserved, sent and settled; one that does not fit is refused, and told what would fit.

use std::error::Error;
use std::sync::Arc;

use quota_core::estimate::body;
use quota_core::usage::{Dialect, Outcome};
use quota_core::{Decision, Gate, ManualClock, Meter, Policy, Request, Usage};
use serde_json::json;

fn main() -> Result<(), Box<dyn Error>> {
    let policy = Policy::from_file(concat!(env!("CARGO_MANIFEST_DIR"), "/quick_start/policy.yaml"))?;
    // A gateway leaves the clock out; here it stands still, so that each run tells the same.
    let clock = Arc::new(ManualClock::at_instant("2026-03-02T12:00:00Z")?);
    let gate = Gate::builder(policy).clock(clock).build();

    let who = gate.authenticate("demo-acme-key")?;
    println!("{} asks", who.tenant());

    let body = json!({
        "model": "small", "max_tokens": 200,
        "messages": [{"role": "user", "content": "Name three rivers."}],
    });
    let request = body::openai_chat(body)?.id("r1");
    let Decision::Allow(lease) = gate.admit(&who, &request) else { panic!("it fits") };
    let worst = lease.claim().terms.worst_cost.to_usd();
    println!("r1 allowed: at most {} tokens out and {worst} USD", lease.max_output_tokens());

    lease.sent(); // bytes are about to leave for the provider
    let answer = json!({"usage": {"prompt_tokens": 12, "completion_tokens": 31, "total_tokens": 43}});
    let usage = Usage::read(Dialect::OpenAiChat, &answer)?;
    let receipt = lease.settle(usage.clone())?;
    let charged = |meter| receipt.charged().get(meter);
    println!("r1 charged: {} in, {} out, {} USD", charged(Meter::Input), charged(Meter::Output), receipt.cost());
    println!("r1 returned: {} tokens", receipt.returned(Meter::Total));
    println!(
        "r1 settled again: {}",
        if lease.settle(usage)?.is_repeat() { "the first receipt" } else { "charged twice" }
    );

    let large = Request::chat("small").id("r2").input_tokens(4_000).max_output_tokens(20_000);
    let Decision::Reject(refusal) = gate.admit(&who, &large) else { panic!("it does not fit") };
    println!("r2 refused: {} {}", refusal.reason.status(), refusal.reason);
    for shortage in &refusal.shortages {
        let show = |amount| shortage.meter.show(amount);
        let figures = (show(shortage.hard), show(shortage.used), show(shortage.asked));
        println!("  {}: {} of {} used, {} asked", shortage.limit, figures.1, figures.0, figures.2);
    }
    println!("  would fit: {} tokens out", refusal.fits.max_output_tokens.unwrap_or(0));

    let Decision::Allow(lease) = gate.admit(&who, &Request::chat("small").id("r3").input_tokens(10)) else { panic!() };
    lease.finish(Outcome::NotRun)?; // the provider was never reached
    for balance in gate.balances(&who, false) {
        println!(
            "{}: {} left of {}",
            balance.limit,
            balance.meter.show(balance.remaining),
            balance.meter.show(balance.hard)
        );
    }
    Ok(())
}
