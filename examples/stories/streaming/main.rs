//! Streaming: an answer is paid for while it passes. One ends as it should, one breaks off and is paid for late, and one
//! grows to where its tenant has nothing left.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use quota_core::usage::{Dialect, Outcome};
use quota_core::{Decision, Gate, Lease, ManualClock, Name, Policy, Principal, Request, Usage};

/// What an upstream sends, event by event.
fn text(text: &str) -> String {
    format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n")
}
const USAGE: &str =
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":6,\"total_tokens\":15}}\n\n";
const DONE: &str = "data: [DONE]\n\n";

fn pass(bytes: &[u8]) {
    print!("{}", String::from_utf8_lossy(bytes).replace("\n\n", "\n"));
}

fn main() -> Result<(), Box<dyn Error>> {
    let policy = Policy::from_file(concat!(env!("CARGO_MANIFEST_DIR"), "/streaming/policy.yaml"))?;
    let clock = Arc::new(ManualClock::at_instant("2026-03-02T12:00:00Z")?);
    let gate = Gate::builder(policy).clock(clock.clone()).build();
    let who = Principal::builder("acme").build();
    let start = |id: &str| -> Lease {
        let request = Request::chat("small").id(id).input_tokens(9).max_output_tokens(100).stream(true);
        let Decision::Allow(lease) = gate.admit(&who, &request) else { panic!("it fits") };
        lease.sent();
        lease
    };

    println!("r1 ends as it should; its asker did not ask for usage and gets none:");
    let mut stream = start("r1").stream(Dialect::OpenAiChat).strip_usage(true);
    for event in [text("Rhine, "), text("Nile, "), text("Amazon."), USAGE.into(), DONE.into()] {
        stream.feed(event.as_bytes(), pass); // as many bytes as came: events may be cut anywhere
        stream.keep()?;
    }
    let receipt = stream.finish(pass)?;
    println!("{}: {} USD", receipt.outcome(), receipt.cost());

    println!("r2 breaks off:");
    let mut stream = start("r2").stream(Dialect::OpenAiChat);
    stream.feed(text("Rhine, ").as_bytes(), pass);
    drop(stream); // the asker is gone
    for record in gate.unresolved(10) {
        println!(
            "unresolved {}: {} USD charged",
            record.claim.terms.request_id.as_deref().unwrap_or(""),
            record.worst_cost()
        );
    }
    clock.advance(Duration::from_secs(60));
    let receipt = gate.finalize(Name::Request("r2".into()), Outcome::Final(Usage::tokens(9, 40)))?;
    println!("{} late: {}, {} USD", receipt.outcome(), receipt.is_late(), receipt.cost());

    println!("r3 outgrows what its tenant has left:");
    let mut stream = start("r3").stream(Dialect::OpenAiChat);
    let paragraph = "one two three four five six seven eight nine ten ".repeat(8);
    let mut passed = 0;
    let refusal = loop {
        stream.feed(text(&paragraph).as_bytes(), |_| passed += 1);
        if let Err(refusal) = stream.keep() {
            break refusal;
        }
    };
    println!("ended after {passed} events: {}", refusal.reason);
    println!("{}", stream.finish(|_| {})?.outcome());
    for balance in gate.balances(&who, false) {
        println!("{}: {} left", balance.limit, balance.meter.show(balance.remaining));
    }
    Ok(())
}
