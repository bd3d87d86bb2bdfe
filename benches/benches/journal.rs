//! Appending to the ring, beside one mutex around one queue.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use benches::{Runner, together};
use quota_core::journal::{Entry, Event, Journal, Ring};
use quota_core::time::Now;

const ENTRIES: usize = 1 << 16;

fn main() {
    let mut runner = Runner::new(env!("CARGO_TARGET_TMPDIR"));
    for (name, threads) in [("journal-one-thread", 1), ("journal-two-threads", 2)] {
        let (ring, queue) = (Ring::new(ENTRIES), Mutex::new(VecDeque::new()));
        let digest: Arc<str> = "digest".into();
        let event = || Event::Loaded(digest.clone());
        let push = || {
            let mut entries = queue.lock().expect("nobody panics here");
            if entries.len() == ENTRIES {
                entries.pop_front();
            }
            let seq = entries.back().map_or(0, |last: &Entry| last.seq + 1);
            entries.push_back(Entry { seq, at: Now::at(1), event: event() });
        };
        let append = || ring.append(event(), Now::at(1));
        let mut group = runner.criterion.benchmark_group(name);
        group.bench_function("one-mutex", |b| b.iter_custom(|turns| together(threads, turns, |_| push)));
        group.bench_function("ring", |b| b.iter_custom(|turns| together(threads, turns, |_| append)));
        group.finish();
        runner.ratios(name, "one-mutex");
    }
    runner.criterion.final_summary();
}
