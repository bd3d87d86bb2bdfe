//! Replaying a journal whose entries were written later than what they tell of.

use std::sync::Arc;
use std::time::Duration;

use quota_core::journal::{Entry, Event, Journal, replay};
use quota_core::policy::Policy;
use quota_core::time::{ManualClock, Now, Period};
use quota_core::{Gate, Principal, Request, Usage};

/// A journal that was read from elsewhere.
struct Told(Vec<Entry>);

impl Journal for Told {
    fn append(&self, _: Event, _: Now) {
        unreachable!("it is only read")
    }

    fn scan(&self, show: &mut dyn FnMut(&Entry) -> bool) {
        self.0.iter().all(show);
    }

    fn dropped(&self) -> u64 {
        0
    }
}

#[test]
fn an_ending_that_is_written_late_counts_from_when_it_happened() {
    let policy = Policy::from_yaml("tenants: {acme: {tpm: 600, models: ['*']}}").unwrap();
    let clock = Arc::new(ManualClock::at(1 << 40));
    let gate = Gate::builder(policy).clock(clock.clone()).build();
    let who = Principal::builder("acme").build();
    let ask = |output| Request::chat("m").input_tokens(0).max_output_tokens(output);
    let first = gate.admit(&who, &ask(300)).lease().unwrap();
    clock.advance(Duration::from_secs(10));
    first.settle(Usage::tokens(0, 0)).unwrap();
    clock.advance(Duration::from_secs(15));
    let second = gate.admit(&who, &ask(60)).lease().unwrap();
    clock.advance(Duration::from_secs(1));
    let mut entries = Vec::new();
    gate.journal().scan(&mut |entry| {
        entries.push(entry.clone());
        true
    });
    let ended = entries.iter().position(|entry| matches!(entry.event, Event::Ended(_))).unwrap();
    let late = Entry { seq: 99, at: gate.now(), ..entries.remove(ended) };
    entries.push(late);
    let used = |journal: &dyn Journal| replay(journal).used("tenant:acme", "tpm", gate.now(), Period::default());
    assert_eq!(used(gate.journal()), Some(50));
    assert_eq!(used(&Told(entries)), Some(50));
    second.cancel().unwrap();
}
