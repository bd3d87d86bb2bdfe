//! The run: senders, a rule and a simulated pool on one virtual clock.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use quota_core::gpu::simulated::{Event, Shape, Simulator};

use crate::dice::Dice;
use crate::expect::Expect;
use crate::load::{Habit, Job, Load, SECOND};
use crate::measure::{Charges, GRID, Pairs, Windows};
use crate::outcome::{End, Outcome, Record};
use crate::prices::Prices;
use crate::rule::{Ask, Rule, Verdict};

/// The longest answer that a sender declares, if it says nothing else.
const DECLARED: u64 = 8192;

/// How a run is made.
#[derive(Debug, Clone)]
pub struct Setup {
    /// The pool.
    pub shape: Shape,
    /// The unit of work.
    pub prices: Prices,
    /// Seed of whatever is random.
    pub seed: u64,
    /// Whether expectations are off by a factor of about three, either way.
    pub noise: bool,
    /// Whether an answer's growth is told to the rule.
    pub progress: bool,
    /// Replicas that are lost (with their place) or added (without), and when.
    pub changes: Vec<(u64, Option<usize>)>,
}

impl Setup {
    /// Pool P4, work 1:2, no noise, progress told.
    pub fn plain(seed: u64) -> Setup {
        let shape = Shape { progress_every: 8, ..Shape::P4 };
        Setup { shape, prices: Prices::COMPARED, seed, noise: false, progress: true, changes: vec![] }
    }
}

/// Where an attempt is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Queued,
    Sent,
    Over,
}

/// One time that a job is sent.
#[derive(Debug)]
struct Attempt {
    job: usize,
    /// How many came before it.
    number: u32,
    state: State,
    ask: Ask,
    sent_at: u64,
    prefilled: u64,
    out: u64,
}

/// What wakes a sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Wake {
    /// Sends a job, for the so-manieth time.
    Send(usize, u32),
    /// Looks whether there was a first token.
    Patience(u64),
}

/// Everything that runs.
struct World<'a> {
    load: &'a Load,
    setup: &'a Setup,
    rule: Box<dyn Rule>,
    pool: Simulator,
    jobs: Vec<Job>,
    attempts: Vec<Attempt>,
    wakes: BinaryHeap<Reverse<(u64, u64, Wake)>>,
    woken: u64,
    dice: Dice,
    expect: Expect,
    queued: Vec<u64>,
    streaks: Vec<u64>,
    weights: Vec<u64>,
    pairs: Pairs,
    windows: Windows,
    charges: Charges,
    outcome: Outcome,
}

/// Plays a load against a rule.
pub fn play(load: &Load, setup: &Setup, name: &str, rule: Box<dyn Rule>) -> Outcome {
    let tenants = load.tenants.len();
    let lanes: Vec<usize> = load.tenants.iter().map(|tenant| tenant.lane).collect();
    let weights: Vec<u64> = load.tenants.iter().map(|tenant| tenant.weight).collect();
    let dice = Dice::new(setup.seed);
    let mut world = World {
        load,
        setup,
        rule,
        pool: Simulator::new(setup.shape),
        jobs: load.jobs.clone(),
        attempts: Vec::with_capacity(load.jobs.len()),
        wakes: BinaryHeap::new(),
        woken: 0,
        expect: Expect::new(tenants, setup.noise.then(|| Dice::new(setup.seed ^ 0xE57))),
        dice,
        queued: vec![0; tenants],
        streaks: vec![0; tenants],
        pairs: Pairs::new(&lanes),
        windows: Windows::default(),
        charges: Charges::new(setup.prices, weights.clone()),
        weights,
        outcome: Outcome::new(load, name),
    };
    world.run();
    world.finish()
}

impl World<'_> {
    fn run(&mut self) {
        for (number, tenant) in self.load.tenants.iter().enumerate() {
            if let Habit::Closed { depth, input, output } = tenant.habit {
                for _ in 0..depth {
                    self.send_anew(0, number, input, output);
                }
            }
        }
        let (mut next_job, mut tick, mut changes) = (0, 0, self.setup.changes.iter().copied().peekable());
        let given = self.load.jobs.len();
        let (mut events, mut verdicts) = (Vec::new(), Vec::new());
        loop {
            let job = (next_job < given).then(|| self.jobs[next_job].at);
            let wake = self.wakes.peek().map(|Reverse((at, ..))| *at);
            let change = changes.peek().map(|(at, _)| *at);
            let moments = [job, wake, change, self.pool.next_event(), self.rule.due(), Some(tick)];
            let Some(now) = moments.into_iter().flatten().min().filter(|now| *now <= self.load.until) else { break };
            self.pool.advance(now, &mut |event| events.push(event));
            for event in events.drain(..) {
                self.happened(event);
            }
            if now == tick {
                self.look(now);
                tick += GRID;
            }
            while let Some((_, place)) = changes.next_if(|(at, _)| *at <= now) {
                match place {
                    Some(place) => self.pool.remove_replica(now, place, &mut |event| events.push(event)),
                    None => self.pool.add_replica(),
                }
                self.rule.report(&self.pool.load(now), now);
            }
            for event in events.drain(..) {
                self.happened(event);
            }
            while next_job < given && self.jobs[next_job].at <= now {
                self.send(next_job, 0, now);
                next_job += 1;
            }
            while self.wakes.peek().is_some_and(|Reverse((at, ..))| *at <= now) {
                let Some(Reverse((_, _, wake))) = self.wakes.pop() else { break };
                self.wake(wake, now);
            }
            self.rule.decide(now, &mut verdicts);
            for verdict in verdicts.drain(..) {
                self.decided(verdict, now);
            }
            self.outcome.idled += u64::from(self.rule.idles(now));
        }
    }

    /// A job that follows from another.
    fn send_anew(&mut self, at: u64, tenant: usize, input: u64, output: u64) {
        self.jobs.push(Job { at, tenant, input, output });
        self.outcome.records.push(Record::new(&self.jobs[self.jobs.len() - 1]));
        self.wake_at(at, Wake::Send(self.jobs.len() - 1, 0));
    }

    fn wake_at(&mut self, at: u64, wake: Wake) {
        self.woken += 1;
        self.wakes.push(Reverse((at, self.woken, wake)));
    }

    fn wake(&mut self, wake: Wake, now: u64) {
        match wake {
            Wake::Send(job, number) => self.send(job, number, now),
            Wake::Patience(id) => {
                let attempt = &self.attempts[id as usize];
                if attempt.state == State::Over || attempt.out > 0 {
                    return;
                }
                let job = attempt.job;
                let number = attempt.number;
                self.give_up(id, now);
                // Whoever gives up tries again within half a second.
                let jitter = (self.dice.unit() * 0.5e9) as u64;
                self.again(job, number, now + jitter, End::GaveUp);
            }
        }
    }

    fn send(&mut self, job: usize, number: u32, now: u64) {
        let Job { tenant, input, output, .. } = self.jobs[job];
        let sender = &self.load.tenants[tenant];
        let declared = sender.declares.unwrap_or(DECLARED.max(output));
        let ask = Ask {
            id: self.attempts.len() as u64,
            tenant,
            weight: sender.weight,
            lane: sender.lane,
            input,
            expected: self.expect.expected(tenant, declared),
            declared,
            reports_progress: self.setup.progress,
            at: now,
        };
        let attempt = Attempt { job, number, state: State::Queued, ask, sent_at: 0, prefilled: 0, out: 0 };
        self.attempts.push(attempt);
        match self.rule.arrive(&ask, now) {
            Ok(()) => {
                self.queued[tenant] += 1;
                if let Habit::GivesUp { after, .. } = sender.habit {
                    self.wake_at(now + after, Wake::Patience(ask.id));
                }
            }
            Err(refused) => {
                self.attempts[ask.id as usize].state = State::Over;
                self.outcome.refused[tenant] += 1;
                self.turned_away(job, number, refused.retry_after, now, End::Refused);
            }
        }
    }

    /// A refused sender waits as long as it is told, or a second, and up to half as long again.
    fn turned_away(&mut self, job: usize, number: u32, retry_after: Option<u64>, now: u64, end: End) {
        let wait = retry_after.unwrap_or(SECOND) as f64 * (1.0 + 0.5 * self.dice.unit());
        self.again(job, number, now + wait as u64, end);
    }

    /// Tries again, where the sender does.
    fn again(&mut self, job: usize, number: u32, at: u64, end: End) {
        match self.load.tenants[self.jobs[job].tenant].habit {
            Habit::GivesUp { retries, .. } if number < retries => self.wake_at(at, Wake::Send(job, number + 1)),
            _ => self.outcome.records[job].end = Some(end),
        }
    }

    fn leaves_queue(&mut self, id: u64, now: u64) {
        let Ask { tenant, lane, at, .. } = self.attempts[id as usize].ask;
        self.queued[tenant] -= 1;
        if self.queued[tenant] == 0 {
            self.streaks[tenant] += 1;
        }
        let longest = &mut self.outcome.longest_wait[lane];
        *longest = (*longest).max(now - at);
    }

    fn give_up(&mut self, id: u64, now: u64) {
        let attempt = &mut self.attempts[id as usize];
        let state = std::mem::replace(&mut attempt.state, State::Over);
        let (tenant, out) = (attempt.ask.tenant, attempt.out);
        if state == State::Queued {
            self.rule.withdraw(id, now);
            self.leaves_queue(id, now);
        } else {
            self.pool.cancel(now, id);
            self.rule.cancel(id, out, now);
            self.charges.left(id, tenant);
        }
    }

    fn decided(&mut self, verdict: Verdict, now: u64) {
        match verdict {
            Verdict::Expired(id) => {
                self.leaves_queue(id, now);
                let attempt = &mut self.attempts[id as usize];
                attempt.state = State::Over;
                let (job, number) = (attempt.job, attempt.number);
                self.outcome.expired[attempt.ask.tenant] += 1;
                self.turned_away(job, number, None, now, End::Expired);
            }
            Verdict::Sent(id) => {
                self.leaves_queue(id, now);
                let attempt = &mut self.attempts[id as usize];
                attempt.state = State::Sent;
                attempt.sent_at = now;
                let Ask { tenant, input, expected, reports_progress, .. } = attempt.ask;
                let (job, number) = (attempt.job, attempt.number);
                self.charges.sent(id, tenant, input, expected, reports_progress);
                if self.pool.submit(now, id, input, self.jobs[job].output).is_err() {
                    self.attempts[id as usize].state = State::Over;
                    self.rule.cancel(id, 0, now);
                    self.charges.left(id, tenant);
                    self.again(job, number, now + SECOND, End::Lost);
                }
            }
        }
    }

    /// The pool has served more of an attempt.
    fn serve(&mut self, id: u64, prefilled: u64, out: u64) {
        let attempt = &mut self.attempts[id as usize];
        let tenant = attempt.ask.tenant;
        let grown = out.saturating_sub(attempt.out);
        attempt.prefilled += prefilled;
        attempt.out += grown;
        self.outcome.service[tenant] += self.setup.prices.work(prefilled, grown);
        self.outcome.output[tenant] += grown;
        let work = self.setup.prices.work(attempt.prefilled, attempt.out);
        self.charges.served(id, tenant, work);
    }

    fn told(&mut self, id: u64) {
        let attempt = &self.attempts[id as usize];
        if self.setup.progress {
            let work = self.setup.prices.work(attempt.ask.input, attempt.out);
            self.charges.told(id, attempt.ask.tenant, work);
        }
    }

    fn happened(&mut self, event: Event) {
        match event {
            Event::Prefilled { id, tokens, .. } => self.serve(id, tokens, 0),
            Event::FirstToken { id, at } => {
                self.serve(id, 0, 1);
                let attempt = &self.attempts[id as usize];
                let (job, tenant) = (attempt.job, attempt.ask.tenant);
                self.outcome.engine_waits.push(at - attempt.sent_at);
                let record = &mut self.outcome.records[job];
                record.first_token = Some(at);
                self.rule.first_token(id, at);
                self.told(id);
                if self.load.tenants[tenant].habit == Habit::CancelsAtFirstToken {
                    self.give_up(id, at);
                    self.outcome.records[job].end = Some(End::GaveUp);
                }
            }
            Event::Progress { id, out, at } => {
                self.serve(id, 0, out);
                if self.setup.progress {
                    self.rule.progress(id, out, at);
                    self.told(id);
                }
            }
            Event::Preempted { .. } => self.outcome.preemptions += 1,
            Event::Finished { id, out, at } => {
                // An answer that was cancelled at its first token may have ended with it.
                if self.attempts[id as usize].state == State::Over {
                    return;
                }
                self.serve(id, 0, out);
                let attempt = &mut self.attempts[id as usize];
                attempt.state = State::Over;
                let (job, tenant) = (attempt.job, attempt.ask.tenant);
                self.rule.settle(id, out, at);
                self.charges.left(id, tenant);
                self.expect.saw(tenant, out);
                self.outcome.finished(job, out, at);
                if let Habit::Closed { input, output, .. } = self.load.tenants[tenant].habit {
                    self.send_anew(at, tenant, input, output);
                }
            }
            Event::Lost { id, out, at } => {
                let attempt = &mut self.attempts[id as usize];
                attempt.state = State::Over;
                let (job, number, tenant) = (attempt.job, attempt.number, attempt.ask.tenant);
                self.rule.cancel(id, out, at);
                self.charges.left(id, tenant);
                self.again(job, number, at + SECOND, End::Lost);
            }
        }
    }

    /// Looks at everybody, on the grid.
    fn look(&mut self, now: u64) {
        let streaks: Vec<Option<u64>> =
            self.queued.iter().zip(&self.streaks).map(|(queued, streak)| (*queued > 0).then_some(*streak)).collect();
        let service = &self.outcome.service;
        let received: Vec<f64> = service.iter().zip(&self.weights).map(|(s, w)| *s as f64 / *w as f64).collect();
        let apart = self.pairs.look(&received, &streaks);
        self.windows.look(now, service, &self.weights, &streaks);
        if now.is_multiple_of(SECOND / 4) {
            self.outcome.apart.push((now, apart));
        }
        if now.is_multiple_of(SECOND) {
            self.outcome.timeline.push(service.clone());
            self.outcome.widths.push(self.rule.width());
            if now > 0 {
                self.rule.report(&self.pool.load(now), now);
            }
        }
    }

    fn finish(mut self) -> Outcome {
        self.outcome.difference = self.pairs.largest();
        self.outcome.jain = self.windows.mean();
        self.outcome.charges = (self.charges.dispatch, self.charges.ahead, self.charges.under);
        self.outcome.visits = self.rule.visits();
        self.outcome.bound = self.rule.bound();
        self.outcome
    }
}
