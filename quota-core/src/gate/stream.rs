//! Streams: a lease that pays for an answer while it passes through.
//!
//! Floor 3. Invariant: an answer that has passed is covered by the hold, or its meter has said that it must end.

use std::sync::Arc;

use super::lease::Lease;
use crate::lease::{Cause, EndError, Receipt};
use crate::refusal::Refusal;
use crate::store::{Memory, Store};
use crate::time::SECOND;
use crate::usage::{Dialect, Outcome, StreamEnd, StreamReader};

/// Reads a streamed answer as it passes, keeps its lease alive and its output covered, and settles it by its last word.
///
/// For every piece of the upstream's bytes call [`feed`](StreamMeter::feed), then [`keep`](StreamMeter::keep); if that
/// refuses, end the answer cleanly and call [`finish`](StreamMeter::finish) all the same. Dropped before that, the lease
/// ends as unresolved, with what was seen.
#[must_use = "a meter that is dropped leaves its lease unresolved"]
pub struct StreamMeter<S: Store = Memory> {
    lease: Lease<S>,
    reader: Option<StreamReader>,
    /// Output tokens that every limit covers.
    covered: u64,
    /// Nanoseconds between heartbeats.
    beat: u64,
    /// Engine time before which no heartbeat is due.
    renew_at: u64,
    /// Output tokens from which on the queue is told again.
    tell_at: u64,
}

/// The queue is told of an answer's first token, and again after so many.
const TELL_EVERY: u64 = 32;

impl<S: Store> Lease<S> {
    /// A meter for a streamed answer in this dialect.
    pub fn stream(self, dialect: Dialect) -> StreamMeter<S> {
        let covered = self.least_covered();
        // A lease that lives shortly still has two heartbeats to miss.
        let beat = SECOND.min(self.claim().terms.deal.ttl / 3);
        StreamMeter { lease: self, reader: Some(StreamReader::new(dialect)), covered, beat, renew_at: 0, tell_at: 1 }
    }
}

impl<S: Store> StreamMeter<S> {
    /// The same, taking usage out for an asker who did not ask for it, see [`StreamReader::strip_usage`]. To be called
    /// before the first byte.
    pub fn strip_usage(mut self, strip: bool) -> StreamMeter<S> {
        self.reader = self.reader.take().map(|reader| reader.strip_usage(strip));
        self
    }

    /// The lease.
    pub fn lease(&self) -> &Lease<S> {
        &self.lease
    }

    /// Takes the next bytes and calls `pass` with each segment that goes on to the asker, in order.
    pub fn feed(&mut self, bytes: &[u8], pass: impl FnMut(&[u8])) {
        if let Some(reader) = &mut self.reader {
            reader.feed(bytes, pass);
        }
    }

    /// Output tokens so far, see [`StreamReader::output_so_far`].
    pub fn output_so_far(&self) -> u64 {
        self.reader.as_ref().map_or(0, StreamReader::output_so_far)
    }

    /// Whether the stream said that it is at its end, see [`StreamReader::is_done`]; also once it is finished.
    pub fn is_done(&self) -> bool {
        self.reader.as_ref().is_none_or(StreamReader::is_done)
    }

    /// Sends the heartbeat (at most one a second, or three in a lease's life) and raises the hold, where either is due; costs next to nothing where
    /// neither is.
    ///
    /// # Errors
    /// The refusal, if the answer has grown to where a limit has no room for more, or the lease has ended meanwhile: it
    /// must end here.
    pub fn keep(&mut self) -> S::Answer<'_, Result<(), Arc<Refusal>>> {
        let output = self.output_so_far();
        if output >= self.tell_at {
            self.tell_at = output + TELL_EVERY;
            self.lease.progress(output);
        }
        let now = self.lease.now();
        let grown = output > self.covered;
        if !grown && now.mono < self.renew_at {
            return S::ready(Ok(()));
        }
        self.renew_at = now.mono.saturating_add(self.beat);
        let StreamMeter { lease, covered, .. } = self;
        let lease = &*lease;
        S::chain(lease.renew(), move |open| match open {
            false => S::ready(Err(lease.gone())),
            true if !grown => S::ready(Ok(())),
            true => S::chain(lease.follow(output), move |followed| S::ready(followed.map(|to| *covered = to))),
        })
    }

    /// Ends the stream, also one that broke off: passes on what was held back, and settles by the provider's own
    /// figures, or leaves the lease unresolved with what is known.
    ///
    /// # Errors
    /// As [`Lease::settle`].
    pub fn finish(&mut self, pass: impl FnMut(&[u8])) -> S::Answer<'_, Result<Receipt, EndError>> {
        let end = self.reader.take().map(|reader| reader.finish(pass));
        match end {
            Some(StreamEnd { outcome: outcome @ Outcome::Final(_), .. }) => self.lease.finish(outcome),
            Some(StreamEnd { outcome: Outcome::FailedWithoutUsage, seen, .. }) => self.lease.failed(seen),
            Some(StreamEnd { seen, .. }) => self.lease.unresolved(Cause::NoUsage, seen),
            // It was finished before: the first ending stands.
            None => self.lease.unresolved(Cause::NoUsage, None),
        }
    }
}

impl<S: Store> Drop for StreamMeter<S> {
    fn drop(&mut self) {
        if let Some(reader) = self.reader.take() {
            let seen = reader.finish(|_| {}).seen;
            self.lease.abandon(seen);
        }
    }
}

#[cfg(all(test, not(quota_loom)))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::gate::Gate;
    use crate::policy::Policy;
    use crate::principal::Principal;
    use crate::reason::Reason;
    use crate::request::Request;
    use crate::time::ManualClock;
    use crate::units::Meter;
    use crate::usage::Usage;

    fn gate(limits: &str) -> (Gate, Arc<ManualClock>) {
        let policy = format!("settings: {{lease_ttl_ms: 5000}}\ntenants: {{acme: {{{limits}, models: {{m: {{}}}}}}}}");
        let clock = Arc::new(ManualClock::at(1 << 60));
        (Gate::builder(Policy::from_yaml(&policy).unwrap()).clock(clock.clone()).build(), clock)
    }

    fn admit(gate: &Gate, output: u64) -> Lease {
        let request = Request::chat("m").input_tokens(10).max_output_tokens(output).stream(true).id("r");
        gate.admit(&Principal::builder("acme").build(), &request).lease().unwrap()
    }

    fn used(gate: &Gate) -> u64 {
        gate.balances(&Principal::builder("acme").build(), false)[0].used
    }

    fn chunk(words: usize) -> String {
        format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{}\"}}}}]}}\n\n", "word ".repeat(words))
    }

    const LAST: &str = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":700,\"total_tokens\":710}}\n\ndata: [DONE]\n\n";

    /// Twenty short answers teach what is held for the next.
    fn teach(gate: &Gate) {
        let who = Principal::builder("acme").build();
        for _ in 0..32 {
            let lease = gate.admit(&who, &Request::chat("m").input_tokens(10).max_output_tokens(2000)).lease().unwrap();
            lease.settle(Usage::tokens(10, 30)).unwrap();
        }
    }

    #[test]
    fn the_hold_grows_with_the_answer_and_the_last_word_settles() {
        let (gate, clock) = gate("output_tpd: {hard: 100000, hold: p95}");
        teach(&gate);
        let before = used(&gate);
        let mut meter = admit(&gate, 2000).stream(Dialect::OpenAiChat).strip_usage(true);
        let held = used(&gate) - before;
        assert!(held < 64, "{held}: the learned length");
        let mut passed = Vec::new();
        for _ in 0..10 {
            meter.feed(chunk(70).as_bytes(), |bytes| passed.extend_from_slice(bytes));
            meter.keep().unwrap();
            assert!(used(&gate) - before >= meter.output_so_far());
            clock.advance(Duration::from_secs(2)); // longer in all than the lease lives without a heartbeat
            assert_eq!(gate.sweep(10), 0);
            assert_eq!(meter.keep(), Ok(()));
        }
        meter.feed(LAST.as_bytes(), |bytes| passed.extend_from_slice(bytes));
        let receipt = meter.finish(|bytes| passed.extend_from_slice(bytes)).unwrap();
        assert_eq!((receipt.outcome(), receipt.charged().get(Meter::Output)), ("settled", 700));
        let passed = String::from_utf8(passed).unwrap();
        assert!(passed.ends_with("data: [DONE]\n\n") && !passed.contains("usage"));
        let names: Vec<_> = gate.explain("r").iter().map(|entry| entry.event.name()).collect();
        assert!(names.len() <= 14 && names.contains(&"extended"), "{names:?}");
    }

    #[test]
    fn the_last_event_says_that_it_is_done() {
        let (gate, _) = gate("output_tpd: 100000");
        let mut meter = admit(&gate, 2000).stream(Dialect::OpenAiChat);
        meter.feed(chunk(1).as_bytes(), |_| {});
        let (usage, done) = LAST.split_at(LAST.len() - "data: [DONE]\n\n".len());
        meter.feed(usage.as_bytes(), |_| {});
        assert!(!meter.is_done());
        meter.feed(done.as_bytes(), |_| {});
        assert!(meter.is_done());
        assert_eq!(meter.finish(|_| {}).unwrap().outcome(), "settled");
        assert!(meter.is_done());
    }

    #[test]
    fn a_lease_that_lives_shortly_has_its_heartbeats_in_time() {
        let policy = "settings: {lease_ttl_ms: 1000}\ntenants: {acme: {output_tpd: 100000, models: {m: {}}}}";
        let clock = Arc::new(ManualClock::at(1 << 60));
        let gate = Gate::builder(Policy::from_yaml(policy).unwrap()).clock(clock.clone()).build();
        let mut meter = admit(&gate, 2000).stream(Dialect::OpenAiChat);
        for _ in 0..10 {
            assert_eq!(meter.keep(), Ok(()));
            clock.advance(Duration::from_millis(700));
            assert_eq!(gate.sweep(10), 0);
        }
    }

    #[test]
    fn at_the_hard_amount_the_answer_is_told_to_end() {
        let (gate, _) = gate("output_tpm: {hard: 3000, hold: p95}");
        teach(&gate);
        let mut meter = admit(&gate, 2900).stream(Dialect::OpenAiChat);
        let refusal = loop {
            meter.feed(chunk(200).as_bytes(), |_| {});
            if let Err(refusal) = meter.keep() {
                break refusal;
            }
        };
        assert_eq!(refusal.reason, Reason::OutputTokenRateExceeded);
        assert!(used(&gate) <= 3000, "admission never passes the hard amount");
        let receipt = meter.finish(|_| {}).unwrap();
        assert_eq!(receipt.outcome(), "unresolved");
    }

    #[test]
    fn the_last_of_a_limit_is_given_out() {
        let (gate, _) = gate("output_tpd: {hard: 3000, hold: p95}");
        teach(&gate);
        let long = gate.admit(&Principal::builder("acme").build(), &Request::chat("m").max_output_tokens(2000));
        long.lease().unwrap().settle(Usage::tokens(10, 1900)).unwrap();
        assert_eq!(used(&gate), 3000 - 140);
        let lease = admit(&gate, 100);
        assert_eq!(lease.follow(31), Ok(95));
        assert_eq!(lease.follow(96), Ok(100), "not beyond what was agreed");
        assert_eq!(used(&gate), 3000 - 140 + 100);
        assert_eq!(lease.follow(120), Ok(120), "the 64 more have no room");
        assert_eq!(lease.follow(140), Ok(140));
        let refusal = lease.follow(141).unwrap_err();
        assert_eq!((refusal.reason, refusal.shortages[0].asked), (Reason::TokenQuotaExceeded, 1));
        assert_eq!(gate.explain("r").iter().filter(|entry| entry.event.name() == "refused").count(), 1);
        assert_eq!(lease.settle(Usage::tokens(10, 140)).unwrap().charged().get(Meter::Output), 140);
        assert_eq!(used(&gate), 3000);
    }

    #[test]
    fn a_stream_that_is_dropped_leaves_what_was_seen() {
        let (gate, _) = gate("output_tpm: 100000");
        let mut meter = admit(&gate, 2000).stream(Dialect::OpenAiChat);
        meter.feed(chunk(40).as_bytes(), |_| {});
        drop(meter);
        let open = gate.unresolved(10);
        let unresolved = open[0].unresolved().expect("it waits to be resolved");
        assert!(unresolved.seen.as_ref().is_some_and(|seen| seen.output_total() >= 40));
        assert_eq!(gate.explain("r").len(), 2, "once");
    }
}
