//! One replica of a simulated pool: a batch that is worked through step by step, and a queue before it.
//!
//! Floor 2. Invariant: the memory in use is the sum over the batch and never more than the replica has.

use std::collections::VecDeque;

use super::{Event, Shape};
use crate::gpu::ReplicaLoad;

/// A request inside a replica.
#[derive(Debug, Clone)]
pub(super) struct Sequence {
    pub(super) id: u64,
    input: u64,
    output: u64,
    /// Tokens of the answer so far; thrown back, a sequence keeps them.
    pub(super) out: u64,
    /// Tokens that have to be worked through before the next token of the answer can come.
    prefill_left: u64,
    /// Prompt tokens told of in [`Event::Prefilled`]; what is computed again is not told again.
    prefilled: u64,
    /// Memory in use: what is set aside for it.
    kept: u64,
    /// Prompt tokens that the present step works through.
    chunk: u64,
    /// Whether the present step gives it a token without prompt work.
    decodes: bool,
}

impl Sequence {
    pub(super) fn new(id: u64, input: u64, output: u64) -> Sequence {
        let input = input.max(1);
        Sequence {
            id,
            input,
            output: output.max(1),
            out: 0,
            prefill_left: input,
            prefilled: 0,
            kept: 0,
            chunk: 0,
            decodes: false,
        }
    }

    /// Tokens whose keys and values are in memory now; those of the newest token are computed by the next step.
    fn resident(&self) -> u64 {
        (self.input + self.out - self.prefill_left).min(self.kept)
    }

    /// The memory that joining the batch takes.
    fn need(&self, shape: &Shape) -> u64 {
        if shape.reserve_in_full { self.input + self.output } else { self.input + self.out }
    }
}

/// A batch and a queue.
#[derive(Debug, Clone, Default)]
pub(super) struct Replica {
    /// In the order of joining; the last is the newest.
    running: Vec<Sequence>,
    waiting: VecDeque<Sequence>,
    /// Memory in use.
    used: u64,
    /// Memory that those who wait will take when they join.
    wanted: u64,
    /// When the present step ends; `None` while there is nothing to do.
    pub(super) ends: Option<u64>,
    preemptions: u64,
}

impl Replica {
    /// How full it is, for the choice of a replica: by requests or by memory, whichever is more, and what waits counts too.
    /// By requests alone memory runs out where long prompts meet; by memory alone short ones wait for a place in the batch.
    pub(super) fn fill(&self, shape: &Shape) -> u128 {
        let requests = self.len() as u128;
        // Both as parts of the same whole.
        let by_memory = u128::from(self.used + self.wanted) * u128::from(shape.max_running.max(1));
        by_memory.max(requests * u128::from(shape.kv_tokens))
    }

    /// Takes a sequence in; an idle replica starts a step with it.
    pub(super) fn push(&mut self, sequence: Sequence, now: u64, shape: &Shape) {
        self.wanted += sequence.need(shape);
        self.waiting.push_back(sequence);
        if self.ends.is_none() {
            self.begin(now, shape, &mut |_| {});
        }
    }

    /// Starts a step at `now` with what fits, if there is anything.
    pub(super) fn begin(&mut self, now: u64, shape: &Shape, on: &mut impl FnMut(Event)) {
        self.ends = None;
        if !self.throw_back(now, shape, on) {
            self.join(shape);
        }
        if self.running.is_empty() {
            return;
        }
        let (mut room, mut sequences, mut resident) = (shape.prefill_chunk.max(1), 0, 0);
        for sequence in &mut self.running {
            resident += sequence.resident();
            sequence.decodes = sequence.prefill_left == 0;
            sequence.chunk = sequence.prefill_left.min(room);
            room -= sequence.chunk;
            if sequence.decodes {
                sequences += 1;
                if !shape.reserve_in_full {
                    sequence.kept += 1;
                    self.used += 1;
                }
            }
        }
        let prefill = shape.prefill_chunk.max(1) - room;
        self.ends = Some(now + shape.step_time(prefill, sequences, resident));
    }

    /// Where the coming step's tokens would not fit, throws the newest sequences back; tells whether it did.
    fn throw_back(&mut self, now: u64, shape: &Shape, on: &mut impl FnMut(Event)) -> bool {
        if shape.reserve_in_full {
            return false;
        }
        let mut any = false;
        let growing = |running: &[Sequence]| running.iter().filter(|s| s.prefill_left == 0).count() as u64;
        while self.used + growing(&self.running) > shape.kv_tokens {
            let Some(mut newest) = self.running.pop() else { break };
            self.used -= std::mem::take(&mut newest.kept);
            newest.prefill_left = newest.input + newest.out;
            self.preemptions += 1;
            any = true;
            on(Event::Preempted { id: newest.id, at: now });
            self.wanted += newest.need(shape);
            self.waiting.push_front(newest);
        }
        any
    }

    /// Lets waiting sequences join the batch, first come first served, while each token of the coming step still fits.
    fn join(&mut self, shape: &Shape) {
        while (self.running.len() as u64) < shape.max_running {
            let Some(first) = self.waiting.front() else { break };
            let need = first.need(shape);
            let coming = if shape.reserve_in_full { 0 } else { self.running.len() as u64 };
            if self.used + need + coming > shape.kv_tokens {
                break;
            }
            let Some(mut first) = self.waiting.pop_front() else { break };
            first.kept = need;
            self.wanted -= need;
            self.used += need;
            self.running.push(first);
        }
    }

    /// Ends the present step at `at`: tells of each token and lets go what is finished, whose ids go to `done`.
    pub(super) fn end(&mut self, at: u64, shape: &Shape, done: &mut Vec<u64>, on: &mut impl FnMut(Event)) {
        let mut batch = std::mem::take(&mut self.running);
        batch.retain_mut(|sequence| {
            let id = sequence.id;
            let (chunk, decodes) = (std::mem::take(&mut sequence.chunk), std::mem::take(&mut sequence.decodes));
            if chunk == 0 && !decodes {
                return true;
            }
            sequence.prefill_left -= chunk;
            let reached = (sequence.input + sequence.out - sequence.prefill_left).min(sequence.input);
            if reached > sequence.prefilled {
                on(Event::Prefilled { id, tokens: reached - sequence.prefilled, at });
                sequence.prefilled = reached;
            }
            if sequence.prefill_left > 0 {
                return true;
            }
            // The step that ends a prompt gives a token too.
            sequence.out += 1;
            if sequence.out == 1 {
                on(Event::FirstToken { id, at });
            }
            if sequence.out >= sequence.output {
                on(Event::Finished { id, out: sequence.out, at });
                done.push(id);
                self.used -= sequence.kept;
                return false;
            }
            if shape.progress_every > 0 && sequence.out % shape.progress_every == 0 {
                on(Event::Progress { id, out: sequence.out, at });
            }
            true
        });
        self.running = batch;
    }

    /// Lets a sequence go, wherever it is; gives it back.
    pub(super) fn remove(&mut self, id: u64, shape: &Shape) -> Option<Sequence> {
        if let Some(place) = self.running.iter().position(|sequence| sequence.id == id) {
            let sequence = self.running.remove(place);
            self.used -= sequence.kept;
            return Some(sequence);
        }
        let place = self.waiting.iter().position(|sequence| sequence.id == id)?;
        let sequence = self.waiting.remove(place)?;
        self.wanted -= sequence.need(shape);
        Some(sequence)
    }

    /// Requests here.
    pub(super) fn len(&self) -> usize {
        self.running.len() + self.waiting.len()
    }

    /// Everything that is here, the batch first.
    pub(super) fn into_sequences(self) -> impl Iterator<Item = Sequence> {
        self.running.into_iter().chain(self.waiting)
    }

    pub(super) fn load(&self, now: u64, shape: &Shape) -> ReplicaLoad {
        let ppm = (self.used.saturating_mul(1_000_000)).checked_div(shape.kv_tokens).unwrap_or(1_000_000);
        ReplicaLoad {
            running: Some(self.running.len() as u64),
            waiting: Some(self.waiting.len() as u64),
            kv_used_ppm: Some(u32::try_from(ppm).unwrap_or(1_000_000)),
            kv_tokens: Some(shape.kv_tokens),
            max_running: Some(shape.max_running),
            preemptions: Some(self.preemptions),
            as_of: Some(now),
            stale: false,
        }
    }

    /// That the books are right, for tests: memory in use is what the batch has and fits.
    #[cfg(test)]
    pub(super) fn check(&self, shape: &Shape) {
        assert_eq!(self.used, self.running.iter().map(|sequence| sequence.kept).sum::<u64>());
        assert!(self.used <= shape.kv_tokens && self.running.len() as u64 <= shape.max_running);
        assert_eq!(self.wanted, self.waiting.iter().map(|sequence| sequence.need(shape)).sum::<u64>());
        assert!(self.waiting.iter().all(|sequence| sequence.kept == 0));
        assert!(self.ends.is_some() || self.waiting.is_empty());
    }
}
