//! A fair queue: a pool runs two requests at once. One tenant asks for eight, then another for three; who asks for little
//! does not wait for who asks for much. One of those who wait gives up.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use quota_core::gpu::FixedPool;
use quota_core::{Gate, ManualClock, Policy, Principal, Request, Usage};
use tokio::sync::mpsc;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let policy = Policy::from_file(concat!(env!("CARGO_MANIFEST_DIR"), "/fair_queue/policy.yaml"))?;
    let clock = Arc::new(ManualClock::at_instant("2026-03-02T12:00:00Z")?);
    let gate = Gate::builder(policy).clock(clock.clone()).pool("gpus", FixedPool::new(1, 2, None)).build();

    let (granted, mut turns) = mpsc::unbounded_channel();
    let ask = |tenant: &'static str, number: u32| {
        let (gate, granted) = (gate.clone(), granted.clone());
        tokio::spawn(async move {
            let who = Principal::builder(tenant).build();
            let request = Request::chat("m").input_tokens(4_000).max_output_tokens(2_000);
            let lease = gate.acquire(&who, &request).await.expect("its turn comes");
            granted.send((format!("{tenant} {number}"), lease)).expect("somebody listens");
        })
    };
    let mut hogs: Vec<_> = (1..=8).map(|number| ask("hog", number)).collect();
    (1..=3).for_each(|number| drop(ask("light", number)));

    let mut running = Vec::new();
    for turn in 1..=10 {
        let (name, lease) = turns.recv().await.expect("a turn");
        println!("turn {turn}: {name}, waited {} ms", lease.waited().as_millis());
        running.push(lease);
        if turn == 2 {
            hogs.remove(6).abort(); // hog 7 gives up: dropping the future is enough
        }
        if running.len() == 2 {
            clock.advance(Duration::from_millis(100));
            running.remove(0).settle(Usage::tokens(4_000, 2_000))?;
        }
    }
    running.remove(0).settle(Usage::tokens(4_000, 2_000))?;
    println!("in flight: {}", gate.pools()[0].queue.valve.in_flight);
    Ok(())
}
