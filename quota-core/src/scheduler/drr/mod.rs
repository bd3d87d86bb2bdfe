//! The rule: whose request a pool takes next, by work received.
//!
//! Floor 2. Invariant: pure (it is handed the time, and what it is told in one order it answers in one way), and what is
//! charged for a job in the end is the work that it took.
//!
//! Two levels of the same surplus deficit round robin: lanes, and the flows of tenants inside a lane. A node is served
//! while its deficit is above zero and may go below; each turn of the ring gives it a quantum by its weight. A job is
//! charged when it is dispatched by what it is expected to take, again as it makes progress, and settled once by what it
//! took. Going idle drops credit and keeps debt.
//!
//! For two flows of a lane that are queued and not blocked throughout a stretch of time, however long, the work that they
//! were served by weight differs by at most `4 Q + 2 (C + B + U)`: the quantum, the largest charge, the most charged work
//! in flight and the most that was under-estimated in flight, all by weight.

mod choose;
mod deadlines;
mod flows;
mod jobs;
mod lanes;
mod ring;
mod shown;

pub use self::flows::FlowId;
use self::flows::Flows;
pub use self::jobs::{Demand, JobId, MAX_KEPT};
use self::jobs::{Jobs, State};
pub use self::lanes::LaneRule;
use self::lanes::{Lane, Lanes, Quantum};
use self::ring::{Node, Ring, Standing};
pub use self::shown::FlowFigures;
use super::pace::{BusyTime, Pace};
use crate::work::Tokens;

/// The largest weight of a flow or of a lane.
pub const MAX_WEIGHT: u32 = 1_000_000;

/// The most lanes.
pub const MAX_LANES: usize = 256;

/// Flows that are looked at in one collection.
const COLLECT: u32 = 1024;

/// How lanes share a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// By their weights; what one does not use the others have.
    #[default]
    Weighted,
    /// The first that has something goes first; one below it goes while what it is owed by its floor is above zero.
    PriorityWithFloor,
}

/// A job whose turn it would be.
#[derive(Debug)]
pub struct Offer<'a, T> {
    /// What was enqueued.
    pub item: &'a T,
    /// The job.
    pub job: JobId,
    /// The tokens that it is expected to keep in the pool's memory.
    pub kept: u64,
    /// Whether its flow came back from rest and has not yet spent its first quantum.
    pub sparse: bool,
    /// When it was enqueued and when it will have waited too long, in nanoseconds of engine time.
    pub arrived: u64,
    /// See `arrived`.
    pub deadline: u64,
}

/// The answer to an [`Offer`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judgment {
    /// It goes.
    Take,
    /// The pool has no room for it; nothing changes.
    NoRoom,
    /// Whoever waited for it has left: it is taken out, uncharged.
    Gone,
}

/// What came of a look for the next job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pick {
    /// A job was dispatched and charged.
    Dispatched(JobId),
    /// A job would go, and has no room.
    NoRoom,
    /// No job could go.
    Nothing,
}

/// How a job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It took these tokens.
    Served(Tokens),
    /// Whoever asked has left: its whole input and the output seen so far stay charged.
    Left,
    /// Nobody knows what it took: what was charged stays charged.
    Unknown,
    /// It never reached the pool: nothing is charged.
    NeverStarted,
}

/// What an ending did.
#[derive(Debug)]
pub struct Ended<T> {
    /// What was enqueued.
    pub item: T,
    /// The work that is charged in the end, in milli-units.
    pub work: u64,
    /// The tokens that it no longer keeps.
    pub kept: u64,
}

/// No job has this id, or none any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no job has this id, or none any more")]
pub struct UnknownJob;

/// Two levels of deficit round robin over jobs of `T`.
///
/// Enqueuing, dispatching, progress and endings take constant time, choosing amortised constant time. Memory: what was
/// ever waiting or at rest at once, at most what it was built for.
#[derive(Debug)]
pub struct Drr<T> {
    mode: Mode,
    lanes: Lanes,
    /// The ring of lanes; not used with priorities.
    ring: Ring,
    /// The quantum that lanes share by their weights.
    quantum: Quantum,
    flows: Flows,
    jobs: Jobs<T>,
    busy: BusyTime,
    pace: Pace,
    /// Jobs in lines of flows that may be served.
    ready: u64,
}

impl<T> Drr<T> {
    /// Without lanes; `flows` and `jobs` are the most of each.
    pub fn new(mode: Mode, flows: usize, jobs: usize) -> Drr<T> {
        Drr {
            mode,
            lanes: Lanes::default(),
            ring: Ring::default(),
            quantum: Quantum::default(),
            flows: Flows::new(flows),
            jobs: Jobs::new(jobs),
            busy: BusyTime::default(),
            pace: Pace::default(),
            ready: 0,
        }
    }

    /// Adds a lane below the others, or at the bound of [`MAX_LANES`] gives the last one again.
    pub fn add_lane(&mut self, rule: LaneRule) -> u16 {
        if self.lanes.0.len() < MAX_LANES {
            self.lanes.0.push(Lane::default());
        }
        let at = self.lanes.0.len() - 1;
        self.set_lane(at as u16, rule);
        at as u16
    }

    /// Changes how a lane is run; what waits in it keeps its deadlines. A lane that is not there is left alone.
    pub fn set_lane(&mut self, lane: u16, rule: LaneRule) {
        let Some(lane) = self.lanes.0.get_mut(lane as usize) else { return };
        self.ring.set_weight(&mut lane.node, rule.weight.clamp(1, MAX_WEIGHT));
        lane.rule = rule;
    }

    /// Changes how lanes share the pool.
    pub fn set_mode(&mut self, mode: Mode, now: u64) {
        self.flows.now = now;
        if mode == self.mode {
            return;
        }
        self.mode = mode;
        let quantum = self.lane_quantum();
        for lane in 0..self.lanes.0.len() as u32 {
            // What lanes owe each other by one mode says nothing by the other.
            self.lanes[lane].node.deficit = 0;
            self.lanes[lane].credit = 0;
            match mode {
                Mode::Weighted if self.lanes[lane].ready > 0 => self.ring.enter(&mut self.lanes, lane, quantum),
                Mode::PriorityWithFloor if self.lanes[lane].node.standing != Standing::Idle => {
                    self.ring.leave(&mut self.lanes, lane);
                }
                _ => {}
            }
        }
    }

    /// A flow of a lane for a tenant, at rest; `None` at the bound or without such a lane.
    pub fn add_flow(&mut self, lane: u16, weight: u32, now: u64) -> Option<FlowId> {
        self.flows.now = now;
        let of = self.lanes.0.get(lane as usize)?;
        let at = self.flows.insert(lane, weight.clamp(1, MAX_WEIGHT))?;
        of.flows.bring_up(&mut self.flows[at].node, of.flow_quantum());
        Some(self.flows.id(at))
    }

    /// Changes a flow's share. A flow that was collected is left alone, as everywhere below.
    pub fn set_weight(&mut self, flow: FlowId, weight: u32) {
        let Some(at) = self.flows.find(flow) else { return };
        let lane = u32::from(self.flows[at].lane);
        self.lanes[lane].flows.set_weight(&mut self.flows[at].node, weight.clamp(1, MAX_WEIGHT));
    }

    /// Puts a job at the end of its flow's line.
    ///
    /// # Errors
    /// The item, if the flow was collected or as many jobs are there as may be.
    pub fn enqueue(&mut self, flow: FlowId, item: T, demand: Demand, now: u64) -> Result<JobId, T> {
        self.flows.now = now;
        let Some(flow) = self.flows.find(flow) else { return Err(item) };
        let job = self.insert(flow, item, demand, now)?;
        Ok(self.jobs.id(job))
    }

    /// Takes a job as dispatched without a wait: it is charged as if it had been picked.
    ///
    /// # Errors
    /// As [`enqueue`](Drr::enqueue).
    pub fn enter(&mut self, flow: FlowId, item: T, demand: Demand, now: u64) -> Result<JobId, T> {
        self.flows.now = now;
        let Some(flow) = self.flows.find(flow) else { return Err(item) };
        let job = self.insert(flow, item, demand, now)?;
        if self.ready == 1 {
            // Nobody else waits: the rings turn until it is its turn, as they would for a pick. Beside others it goes
            // before its turn and its flow pays for it later.
            self.next_flow(now);
        }
        self.unqueue(job);
        self.start(job, now);
        self.rotate(flow);
        Ok(self.jobs.id(job))
    }

    /// Offers the job whose turn it is to `judge`, until it takes one or has no room for one.
    pub fn pick(&mut self, now: u64, mut judge: impl FnMut(Offer<'_, T>) -> Judgment) -> Pick {
        self.flows.now = now;
        loop {
            let Some((flow, by_age)) = self.next_flow(now) else { return Pick::Nothing };
            let at = self.flows[flow].line.head;
            let job = &self.jobs[at];
            let Some(item) = &job.item else { return Pick::Nothing };
            let offer = Offer {
                item,
                job: self.jobs.id(at),
                kept: job.kept.into(),
                sparse: self.flows[flow].node.standing == Standing::Sparse,
                arrived: job.arrived,
                deadline: job.deadline,
            };
            match judge(offer) {
                Judgment::NoRoom => return Pick::NoRoom,
                Judgment::Gone => drop(self.take_out(at)),
                Judgment::Take => {
                    let lane = &mut self.lanes[u32::from(self.flows[flow].lane)];
                    lane.since_aged = if by_age { 0 } else { lane.since_aged.saturating_add(1) };
                    self.unqueue(at);
                    self.start(at, now);
                    self.rotate(flow);
                    self.count_try(flow);
                    return Pick::Dispatched(self.jobs.id(at));
                }
            }
        }
    }

    /// Takes out the jobs that have waited as long as they may, oldest first, and hands them to `expired`.
    pub fn expire(&mut self, now: u64, mut expired: impl FnMut(T)) {
        self.flows.now = now;
        for lane in 0..self.lanes.0.len() as u32 {
            // Most often the first entry tells that there is nobody to look for.
            while self.lanes[lane].waiting.next().is_some_and(|deadline| deadline <= now) {
                let first = self.lanes[lane].waiting.first(&mut self.jobs);
                let Some(first) = first.filter(|at| self.jobs[*at].deadline <= now) else { break };
                if let Some(item) = self.take_out(first) {
                    expired(item);
                }
            }
        }
    }

    /// When [`expire`](Drr::expire) has to be called next, in nanoseconds of engine time: the earliest deadline of those that
    /// wait, or one before it of a job that has gone. `None`: nobody waits.
    pub fn next_deadline(&self) -> Option<u64> {
        self.lanes.0.iter().filter_map(|lane| lane.waiting.next()).min()
    }

    /// Takes a job out of the queue, uncharged; `None` if it does not wait.
    pub fn withdraw(&mut self, job: JobId) -> Option<T> {
        let at = self.jobs.find(job).filter(|at| self.jobs[*at].state != State::Dispatched)?;
        self.take_out(at)
    }

    /// The output of a dispatched job so far, in tokens: what it took beyond what was charged is charged now. A lower
    /// figure than before changes nothing. Gives by how many tokens more it keeps than was counted for it.
    ///
    /// # Errors
    /// [`UnknownJob`] also for one that still waits.
    pub fn progress(&mut self, job: JobId, output: u64) -> Result<u64, UnknownJob> {
        let at = self.dispatched(job)?;
        let job = &mut self.jobs[at];
        job.seen = job.seen.max(u32::try_from(output).unwrap_or(u32::MAX));
        let so_far = Tokens { output: job.seen, ..job.demand.tokens };
        let (work, kept) = (so_far.work(&job.demand.rates), so_far.kept().min(MAX_KEPT));
        let more_kept = kept.saturating_sub(job.kept.into());
        job.kept += more_kept as u32;
        let more = work.saturating_sub(job.charged);
        job.charged += more;
        let flow = job.flow;
        self.charge(flow, more as i64);
        Ok(more_kept)
    }

    /// Ends a dispatched job, once: what is charged in the end is what its ending says.
    ///
    /// # Errors
    /// [`UnknownJob`] also for one that still waits.
    pub fn end(&mut self, job: JobId, end: End, now: u64) -> Result<Ended<T>, UnknownJob> {
        let at = self.dispatched(job)?;
        self.flows.now = now;
        let job = &self.jobs[at];
        let (flow, kept, rates) = (job.flow, u64::from(job.kept), job.demand.rates);
        let seen = Tokens { output: job.seen, ..job.demand.tokens };
        let work = match end {
            End::Served(tokens) => tokens.work(&rates),
            End::Left => seen.work(&rates),
            End::Unknown => job.charged,
            End::NeverStarted => 0,
        };
        self.charge(flow, work as i64 - job.charged as i64);
        let lane = u32::from(self.flows[flow].lane);
        let busy = self.busy.passed();
        self.pace.add(work, busy);
        let flow_state = &mut self.flows[flow];
        flow_state.pace.add(work, busy);
        flow_state.served = flow_state.served.saturating_add(work);
        flow_state.in_flight -= 1;
        self.lanes[lane].served = self.lanes[lane].served.saturating_add(work);
        self.flows.rest(flow);
        let item = self.jobs.remove(at).ok_or(UnknownJob)?;
        Ok(Ended { item, work, kept })
    }

    /// Puts a dispatched job back into its flow's line, in its old place and with its old deadline, uncharged. Gives the tokens that it no longer keeps.
    ///
    /// # Errors
    /// [`UnknownJob`] also for one that still waits.
    pub fn put_back(&mut self, job: JobId, now: u64) -> Result<u64, UnknownJob> {
        let at = self.dispatched(job)?;
        self.flows.now = now;
        let job = &mut self.jobs[at];
        let (flow, charged, kept) = (job.flow, job.charged, u64::from(job.kept));
        (job.charged, job.seen, job.kept) = (0, 0, job.demand.kept() as u32);
        let again = job.demand.charge();
        self.charge(flow, -(charged as i64));
        self.flows[flow].in_flight -= 1;
        self.flows[flow].queued_work += again;
        // It waits from here on: its own entry must not be cleared away by being made.
        self.jobs[at].state = State::Queued;
        self.file(at);
        self.line_up(at, true);
        let lane = u32::from(self.flows[flow].lane);
        self.lanes[lane].flows.no_longer_sparse(&mut self.flows, flow);
        Ok(kept)
    }

    /// Takes a queued job out of its flow's line, so that those behind it can go, until [`bring_back`](Drr::bring_back).
    /// Its deadline goes on.
    pub fn set_aside(&mut self, job: JobId) {
        let Some(at) = self.jobs.find(job).filter(|at| self.jobs[*at].state == State::Queued) else { return };
        self.leave_line(at);
        let flow = self.jobs[at].flow;
        self.jobs[at].state = State::Aside;
        self.flows[flow].aside += 1;
    }

    /// Puts a job that was set aside back into its flow's line, in its old place.
    pub fn bring_back(&mut self, job: JobId, now: u64) {
        self.flows.now = now;
        let Some(at) = self.jobs.find(job).filter(|at| self.jobs[*at].state == State::Aside) else { return };
        let flow = self.jobs[at].flow;
        self.flows[flow].aside -= 1;
        self.line_up(at, true);
    }

    /// The flow of a job.
    pub fn flow_of(&self, job: JobId) -> Option<FlowId> {
        self.jobs.find(job).map(|at| self.flows.id(self.jobs[at].flow))
    }

    /// Takes a flow out of its turn: it keeps its deficit and earns nothing until [`unblock`](Drr::unblock). The second
    /// time changes nothing.
    pub fn block(&mut self, flow: FlowId) {
        let Some(at) = self.flows.find(flow) else { return };
        let lane = u32::from(self.flows[at].lane);
        if self.flows[at].node.standing == Standing::Blocked {
            return;
        }
        if self.flows[at].node.standing == Standing::Idle {
            self.wake_flow(at);
        }
        self.lanes[lane].flows.block(&mut self.flows, at);
        self.less_ready(lane, self.flows[at].queued);
    }

    /// Lets one more of a blocked flow's jobs go before it is blocked again, up to `most`.
    pub fn let_try(&mut self, flow: FlowId, most: u32, now: u64) {
        let Some(at) = self.flows.find(flow) else { return };
        let blocked = self.flows[at].node.standing == Standing::Blocked;
        if blocked || self.flows[at].tries > 0 {
            let before = if blocked { 0 } else { self.flows[at].tries };
            self.unblock(flow, now);
            self.flows[at].tries = (before + 1).min(most.max(1));
        }
    }

    /// Lets a blocked flow go on, at the head of its lane's line. The second time changes nothing.
    pub fn unblock(&mut self, flow: FlowId, now: u64) {
        self.flows.now = now;
        let Some(at) = self.flows.find(flow) else { return };
        // Also of one that is not blocked at present: what is left of its tries would block it later.
        self.flows[at].tries = 0;
        if self.flows[at].node.standing != Standing::Blocked {
            return;
        }
        let lane = u32::from(self.flows[at].lane);
        self.lanes[lane].flows.unblock(&mut self.flows, at);
        self.more_ready(lane, self.flows[at].queued);
    }

    /// Moves a flow's deficit by work that was done for it elsewhere, in milli-units. It serves and forgives nothing here.
    pub fn charge_external(&mut self, flow: FlowId, work: u64) {
        let Some(at) = self.flows.find(flow) else { return };
        // What is in flight when a flow comes to rest was served in the rounds since, which work off what it is charged
        // later. This is not: the rounds before it count for nothing.
        let lane_quantum = self.lane_quantum();
        let lane = &mut self.lanes[u32::from(self.flows[at].lane)];
        let quantum = lane.flow_quantum();
        lane.flows.bring_up(&mut self.flows[at].node, quantum);
        self.ring.bring_up(&mut lane.node, lane_quantum);
        self.charge(at, i64::try_from(work).unwrap_or(i64::MAX));
    }

    /// Forgets flows that have been at rest for `ttl` nanoseconds, since the end of their last job, at most 1024 in one call.
    /// One in debt rests that long again. `gone` is told of each.
    pub fn collect(&mut self, now: u64, ttl: u64, mut gone: impl FnMut(FlowId)) {
        self.flows.now = now;
        // One that rests again is due after `now`, unless the time-to-live is zero: each is looked at once at most.
        for _ in 0..self.flows.at_rest().min(COLLECT) {
            let Some((at, since)) = self.flows.longest_at_rest() else { return };
            if since.saturating_add(ttl) > now {
                return;
            }
            let lane = &self.lanes[u32::from(self.flows[at].lane)];
            if lane.flows.debt(&self.flows[at].node, lane.flow_quantum()) > 0 {
                self.flows.rest_again(at);
            } else {
                gone(self.flows.id(at));
                self.flows.remove(at);
            }
        }
    }

    fn insert(&mut self, flow: u32, item: T, demand: Demand, now: u64) -> Result<u32, T> {
        let max_wait = self.lanes[u32::from(self.flows[flow].lane)].rule.max_wait;
        let job = self.jobs.insert(item, flow, demand, now, now.saturating_add(max_wait))?;
        self.flows[flow].queued_work += demand.charge();
        self.file(job);
        self.line_up(job, false);
        Ok(job)
    }

    fn dispatched(&self, job: JobId) -> Result<u32, UnknownJob> {
        self.jobs.find(job).filter(|at| self.jobs[*at].state == State::Dispatched).ok_or(UnknownJob)
    }

    /// Enters a job among those of its lane that wait.
    fn file(&mut self, job: u32) {
        let lane = u32::from(self.flows[self.jobs[job].flow].lane);
        let lane = &mut self.lanes[lane];
        lane.waiting.enter(&mut self.jobs, job);
        lane.queued += 1;
    }

    /// Puts a job into its flow's line, and the flow and the lane into theirs.
    fn line_up(&mut self, job: u32, again: bool) {
        let flow = self.jobs[job].flow;
        let lane = u32::from(self.flows[flow].lane);
        self.jobs[job].state = State::Queued;
        let mut line = self.flows[flow].line;
        match again {
            true => self.jobs.put_back(&mut line, job),
            false => self.jobs.push_back(&mut line, job),
        }
        self.flows[flow].line = line;
        self.flows[flow].queued += 1;
        if self.flows[flow].node.standing == Standing::Idle {
            self.wake_flow(flow);
        }
        if self.flows[flow].node.standing != Standing::Blocked {
            self.more_ready(lane, 1);
        }
    }

    fn wake_flow(&mut self, flow: u32) {
        self.flows.rouse(flow);
        let lane = &mut self.lanes[u32::from(self.flows[flow].lane)];
        let quantum = lane.flow_quantum();
        lane.flows.enter(&mut self.flows, flow, quantum);
    }

    fn more_ready(&mut self, lane: u32, count: u32) {
        if count == 0 {
            return;
        }
        self.ready += u64::from(count);
        self.lanes[lane].ready += count;
        if self.mode == Mode::Weighted && self.lanes[lane].node.standing == Standing::Idle {
            let quantum = self.lane_quantum();
            self.ring.enter(&mut self.lanes, lane, quantum);
        }
        self.count_busy_time();
    }

    fn less_ready(&mut self, lane: u32, count: u32) {
        self.ready -= u64::from(count);
        let lane = &mut self.lanes[lane];
        lane.ready -= count;
        if lane.ready == 0 {
            lane.credit = lane.credit.min(0);
        }
        self.count_busy_time();
    }

    fn count_busy_time(&mut self) {
        self.busy.turn(self.flows.now, self.ready > 0);
    }

    /// Takes a job out of its flow's line only.
    fn leave_line(&mut self, job: u32) {
        let flow = self.jobs[job].flow;
        let mut line = self.flows[flow].line;
        self.jobs.unlink(&mut line, job);
        self.flows[flow].line = line;
        self.flows[flow].queued -= 1;
        if self.flows[flow].node.standing != Standing::Blocked {
            self.less_ready(u32::from(self.flows[flow].lane), 1);
        }
    }

    /// Takes a waiting job out of all lines.
    fn unqueue(&mut self, job: u32) {
        let flow = self.jobs[job].flow;
        match self.jobs[job].state {
            State::Queued => self.leave_line(job),
            _ => self.flows[flow].aside -= 1,
        }
        self.flows[flow].queued_work -= self.jobs[job].demand.charge();
        let lane = &mut self.lanes[u32::from(self.flows[flow].lane)];
        lane.waiting.leave(&mut self.jobs, job);
        lane.queued -= 1;
    }

    fn take_out(&mut self, job: u32) -> Option<T> {
        let flow = self.jobs[job].flow;
        self.unqueue(job);
        self.flows.rest(flow);
        self.jobs.remove(job)
    }

    /// Dispatches a job that is in no line.
    fn start(&mut self, at: u32, now: u64) {
        let job = &mut self.jobs[at];
        let charge = job.demand.charge();
        (job.state, job.charged) = (State::Dispatched, charge);
        let (flow, whole) = (job.flow, job.demand.tokens.work(&job.demand.rates));
        self.flows[flow].in_flight += 1;
        self.quantum.observe(whole, now);
        let lane = &mut self.lanes[u32::from(self.flows[flow].lane)];
        lane.quantum.observe(whole, now);
        lane.largest = (lane.largest - lane.largest / 64).max(charge as i64);
        self.charge(flow, charge as i64);
    }

    /// Blocks a flow again of which only so many were to go.
    fn count_try(&mut self, flow: u32) {
        let tries = self.flows[flow].tries;
        if tries > 0 {
            self.flows[flow].tries = tries - 1;
            if tries == 1 {
                self.block(self.flows.id(flow));
            }
        }
    }

    /// Ends the visits of a flow that was served and of its lane, where they have nothing more to spend.
    fn rotate(&mut self, flow: u32) {
        let lane = u32::from(self.flows[flow].lane);
        let quantum = self.lanes[lane].flow_quantum();
        self.lanes[lane].flows.served(&mut self.flows, flow, quantum);
        if self.mode == Mode::Weighted {
            let quantum = self.lane_quantum();
            self.ring.served(&mut self.lanes, lane, quantum);
        }
    }

    /// Charges both levels; less than zero gives back. A node at rest gains no credit.
    fn charge(&mut self, flow: u32, amount: i64) {
        let at = u32::from(self.flows[flow].lane);
        let amount = amount.clamp(-MAX_DEBT, MAX_DEBT);
        charge_node(&mut self.flows[flow].node, amount);
        match self.mode {
            Mode::Weighted => charge_node(&mut self.lanes[at].node, amount),
            Mode::PriorityWithFloor => self.charge_floors(at, amount),
        }
    }
}

/// The most that a node may spend or owe, in milli-units of work: sums of such amounts don't overflow.
const MAX_DEBT: i64 = 1 << 60;

fn charge_node(node: &mut Node, amount: i64) {
    node.deficit = (node.deficit - amount).clamp(-MAX_DEBT, MAX_DEBT);
    if node.standing == Standing::Idle {
        node.deficit = node.deficit.min(0);
    }
}
