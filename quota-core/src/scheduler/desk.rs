//! The desk: what the one thread that decides does with each message, and after the last.
//!
//! Floor 2. Invariant: only the inbox's thread is here; after every pass no job waits that could go.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use super::drr::{Demand, Drr, End, FlowId, Judgment, MAX_LANES, Offer, Pick};
use super::figures::{Counts, Figures, LaneFigures, TenantFigures};
use super::held::{Held, Hints, Trying, Who};
use super::place::{Refused, Slot, Why};
use super::valve::{Adaption, Capacity, Valve};
use super::{Arrival, Lane, Message, Settings};
use crate::time::SECOND;

/// How many of those that are held for a scope try again when something is given back there, when its time has come, and
/// for each that tried and needed nothing more of it: one that fails is followed by nobody.
const TRIES: usize = 2;

/// The most that try for a scope at once, however much is given back there.
const MOST_TRIES: usize = 16;

/// The longest that anyone is held without trying again, in nanoseconds.
const LONGEST_HOLD: u64 = SECOND;

/// A tenant in a lane.
#[derive(Debug)]
struct Member {
    flow: FlowId,
    counts: Counts,
}

/// What belongs to a lane beside its place in the rule.
#[derive(Debug)]
struct Class {
    settings: Lane,
    members: HashMap<Arc<str>, Member, ahash::RandomState>,
    counts: Counts,
}

/// The state behind the inbox.
#[derive(Debug)]
pub(super) struct Desk {
    drr: Drr<Arc<Slot>>,
    valve: Arc<Valve>,
    adaption: Adaption,
    classes: Vec<Class>,
    lanes: HashMap<Arc<str>, u16, ahash::RandomState>,
    /// The tenant of each flow, to forget it with the flow.
    tenants: HashMap<FlowId, (u16, Arc<str>), ahash::RandomState>,
    held: Held,
    trying: Trying,
    /// Counts what is put in order.
    order: u64,
    early_refusal: bool,
    idle_ttl: u64,
    prefill: u64,
    /// How long after its turn a request's first token comes, in nanoseconds; newer ones weigh more.
    to_first_token: u64,
    /// The latest moment that was told, in nanoseconds of engine time.
    now: u64,
    woken: Vec<Arc<Slot>>,
}

/// What a pass leaves for others to see.
pub(super) struct Seen {
    /// How many wait and could go.
    pub(super) ready: u64,
    /// How many are held.
    pub(super) held: u64,
    /// When something is due without any message, in nanoseconds of engine time; `u64::MAX`: never.
    pub(super) next_due: u64,
    /// Whose state changed, to be woken.
    pub(super) woken: Vec<Arc<Slot>>,
}

impl Desk {
    pub(super) fn new(settings: &Settings, valve: Arc<Valve>, capacity: Capacity, hints: Arc<Hints>) -> Desk {
        let adaption = Adaption::new(valve.clone(), capacity, settings.adaptive, settings.close_when_stale);
        let mut desk = Desk {
            drr: Drr::new(settings.mode, settings.max_flows, settings.max_requests),
            valve,
            adaption,
            classes: Vec::new(),
            lanes: HashMap::default(),
            tenants: HashMap::default(),
            held: Held::new(hints),
            trying: Trying::default(),
            order: 0,
            early_refusal: true,
            idle_ttl: 0,
            prefill: 0,
            to_first_token: 0,
            now: 0,
            woken: Vec::new(),
        };
        desk.configure(settings);
        desk
    }

    /// Takes settings over. A lane that they no longer name stays for what is in it, below the others and with a weight of 1,
    /// until its place is needed.
    fn configure(&mut self, settings: &Settings) {
        (self.early_refusal, self.idle_ttl) = (settings.early_refusal, nanos(settings.idle_ttl));
        self.prefill = nanos(settings.prefill);
        self.drr.set_mode(settings.mode, self.now);
        let named = |class: &Class| settings.lanes.iter().any(|lane| lane.name == class.settings.name);
        for at in 0..self.classes.len() {
            if !named(&self.classes[at]) {
                let rest = Lane { weight: 1, floor_percent: 0, ..self.classes[at].settings.clone() };
                self.drr.set_lane(at as u16, rest.rule(u16::MAX));
            }
        }
        for (rank, lane) in settings.lanes.iter().enumerate() {
            let rule = lane.rule(u16::try_from(rank).unwrap_or(u16::MAX));
            let vacant = || self.classes.iter().position(|class| !named(class) && class.members.is_empty());
            let new = Class { settings: lane.clone(), members: HashMap::default(), counts: Counts::default() };
            match self.lane(&lane.name) {
                Some(at) => {
                    self.drr.set_lane(at, rule);
                    self.classes[at as usize].settings = lane.clone();
                }
                None if self.classes.len() < MAX_LANES => {
                    self.drr.add_lane(rule);
                    self.classes.push(new);
                }
                None => {
                    if let Some(at) = vacant() {
                        self.drr.set_lane(at as u16, rule);
                        self.classes[at] = new;
                    }
                }
            }
        }
        let names = self.classes.iter().enumerate().map(|(at, class)| (class.settings.name.clone(), at as u16));
        self.lanes = names.collect();
    }

    fn lane(&self, name: &str) -> Option<u16> {
        self.lanes.get(name).copied()
    }

    /// One message.
    pub(super) fn act(&mut self, message: Message, now: Option<u64>) {
        if let Some(now) = now.filter(|now| *now > self.now) {
            self.now = now;
            self.pass_time();
        }
        let now = self.now;
        match message {
            Message::Arrived(slot) => self.arrived(slot),
            Message::Entered(slot) => {
                self.entered(slot);
                // It may have lain here for some time: what has nothing left rests before others come.
                if self.drr.ready() == 0 {
                    self.dispatch();
                }
            }
            Message::Left(slot) => self.left(&slot),
            Message::FirstToken(slot, at) => self.first_token(&slot, at),
            Message::Progress(slot) => {
                let output = slot.take_progress();
                if let Some(more) = slot.job().and_then(|job| self.drr.progress(job, output).ok()) {
                    self.valve.add(more);
                }
            }
            Message::PoolRefused => self.adaption.refused(),
            Message::Ended(slot, end) => self.ended(&slot, end),
            Message::Used(slot) => self.used(&slot),
            Message::PutBack { slot, scope, whole_flow, due } => self.put_back(&slot, scope, whole_flow, due),
            Message::Released(scopes) => {
                for scope in &scopes {
                    self.let_try(scope, MOST_TRIES);
                }
            }
            Message::Report(load, capacity) => {
                if let Some(capacity) = capacity {
                    self.adaption.resize(capacity);
                }
                self.adaption.report(&load, now);
            }
            Message::Tick => self.collect(),
            Message::External { lane, tenant, weight, work } => {
                if let Some(flow) = self.lane(&lane).and_then(|lane| self.flow(lane, &tenant, weight)) {
                    self.drr.charge_external(flow, work);
                }
            }
            Message::Configure(settings) => self.configure(&settings),
            Message::Show(to) => {
                // Whoever asked may have gone.
                let _ = to.send(self.figures());
            }
        }
    }

    /// After the last message for now: whoever has waited too long is refused, and whoever can go goes.
    pub(super) fn rest(&mut self) -> Seen {
        self.pass_time();
        self.dispatch();
        // Who could go at the last moment has gone. One that leaves may have kept others from going.
        while self.expire(self.now) {
            self.dispatch();
        }
        let deadline = self.drr.next_deadline().unwrap_or(u64::MAX);
        Seen {
            ready: self.drr.ready(),
            held: self.held.len() as u64,
            next_due: deadline.min(self.held.next_due().unwrap_or(u64::MAX)),
            woken: std::mem::take(&mut self.woken),
        }
    }

    /// What the time alone brings about.
    fn pass_time(&mut self) {
        let then = self.now.saturating_add(LONGEST_HOLD);
        while let Some(scope) = self.held.pop_due(self.now, then) {
            self.let_try(&scope, TRIES);
        }
        if let Some(before) = self.now.checked_sub(1) {
            self.expire(before);
        }
    }

    fn arrived(&mut self, slot: Arc<Slot>) {
        let now = self.now;
        let Some(lane) = self.lane(&slot.arrival.lane) else {
            return self.refuse(&slot, None, Why::UnknownLane, None);
        };
        let arrival = &slot.arrival;
        let Some(flow) = self.flow(lane, &arrival.tenant, arrival.weight) else {
            return self.refuse(&slot, Some(lane), Why::Full, None);
        };
        let demand = demand(arrival);
        let predicted = self.drr.predicted_wait(flow, &demand);
        let blocked = self.drr.figures(flow).is_some_and(|figures| figures.blocked);
        let waits = blocked || self.drr.ready() > 0 || !self.valve.has_room(demand.kept());
        // A queue that is full may still let through what would not wait.
        if waits && self.is_full(lane, arrival) {
            return self.refuse(&slot, Some(lane), Why::Full, predicted);
        }
        slot.set_placed(waits);
        let most = nanos(self.classes[lane as usize].settings.max_wait);
        if let Some(wait) = predicted.filter(|wait| waits && self.early_refusal && *wait > most) {
            return self.refuse(&slot, Some(lane), Why::Overloaded, Some(wait - most));
        }
        self.number(&slot);
        match self.drr.enqueue(flow, slot.clone(), demand, now) {
            Ok(job) => slot.set_job(job),
            Err(_) => self.refuse(&slot, Some(lane), Why::Full, predicted),
        }
    }

    /// A request that found room without waiting; its room is taken already.
    fn entered(&mut self, slot: Arc<Slot>) {
        let now = self.now;
        self.number(&slot);
        let arrival = &slot.arrival;
        let lane = self.lane_of(&slot);
        let flow = self.flow(lane, &arrival.tenant, arrival.weight);
        let job = flow.and_then(|flow| self.drr.enter(flow, slot.clone(), demand(arrival), now).ok());
        if let Some(job) = job {
            slot.set_job(job);
            self.count(lane, &arrival.tenant, |counts| counts.dispatched(0));
        }
    }

    fn number(&mut self, slot: &Slot) {
        self.order += 1;
        slot.set_order(self.order);
    }

    fn left(&mut self, slot: &Arc<Slot>) {
        let Some(job) = slot.job() else { return };
        self.held.remove(Who::Job(job));
        self.used(slot);
        // Its job may be gone already, found without its place when its turn came.
        self.drr.withdraw(job);
        self.count_slot(slot, |counts| counts.left += 1);
        self.let_go(self.flow_of(slot));
    }

    /// One that tried has what it needed, or has gone without: others may try too.
    fn used(&mut self, slot: &Slot) {
        if let Some(scope) = slot.job().and_then(|job| self.trying.remove(job)) {
            self.let_try(&scope, MOST_TRIES);
        }
    }

    /// Lets a flow go on for which nobody waits any more: who comes next tries for itself.
    fn let_go(&mut self, flow: Option<FlowId>) {
        let Some(flow) = flow else { return };
        // One that is set aside waits for something else.
        if self.drr.line_of(flow) == 0 && self.held.scope_of(Who::Flow(flow)).is_some() {
            self.held.remove(Who::Flow(flow));
            self.drr.unblock(flow, self.now);
        }
    }

    fn first_token(&mut self, slot: &Slot, at: u64) {
        let took = at.saturating_sub(slot.granted());
        let expected = u64::from(slot.arrival.tokens.input).saturating_mul(self.prefill);
        self.adaption.first_token(took.saturating_sub(expected));
        self.to_first_token = self.to_first_token - self.to_first_token / 16 + took / 16;
    }

    fn ended(&mut self, slot: &Arc<Slot>, end: End) {
        self.used(slot);
        match slot.job().map(|job| self.drr.end(job, end, self.now)) {
            Some(Ok(ended)) => {
                self.valve.give_back(ended.kept);
                if end == End::NeverStarted {
                    self.count_slot(slot, |counts| counts.unused += 1);
                }
            }
            // It entered where there was no place left to remember it: only its room was taken.
            None => self.valve.give_back(demand(&slot.arrival).kept()),
            Some(Err(_)) => {}
        }
    }

    fn put_back(&mut self, slot: &Arc<Slot>, scope: Arc<str>, whole_flow: bool, due: u64) {
        let now = self.now;
        let Some(job) = slot.job() else {
            // As above: it has no place to wait in.
            self.valve.give_back(demand(&slot.arrival).kept());
            return self.refuse(slot, None, Why::Full, None);
        };
        // Who has waited keeps its place; who has not takes one now, if there is one.
        let lane = self.lane_of(slot);
        if !slot.is_placed() && self.is_full(lane, &slot.arrival) {
            self.ended(slot, End::NeverStarted);
            return self.refuse(slot, Some(lane), Why::Full, None);
        }
        slot.set_placed(true);
        // Nobody follows one that has failed; one that has for another scope needed nothing more of the first.
        if let Some(tried) = self.trying.remove(job).filter(|tried| *tried != scope) {
            self.let_try(&tried, MOST_TRIES);
        }
        let Ok(kept) = self.drr.put_back(job, now) else { return };
        self.valve.give_back(kept);
        self.count_slot(slot, |counts| counts.put_back += 1);
        let due = due.clamp(now.saturating_add(1), now.saturating_add(LONGEST_HOLD));
        let tenant = &slot.arrival.tenant;
        match self.drr.flow_of(job) {
            Some(flow) if whole_flow => {
                self.drr.block(flow);
                // Held already, it keeps its place among those of the scope.
                match self.held.scope_of(Who::Flow(flow)) == Some(&scope) {
                    true => self.held.hasten(&scope, due),
                    false => self.held.insert(Who::Flow(flow), &scope, slot.order(), due, tenant),
                }
            }
            _ => {
                self.drr.set_aside(job);
                self.held.insert(Who::Job(job), &scope, slot.order(), due, tenant);
            }
        }
    }

    /// Whether the lane, or the tenant over all lanes, has as many waiting as may be.
    fn is_full(&self, lane: u16, arrival: &Arrival) -> bool {
        let of_lane = |most: u64| self.drr.queued(lane) >= most;
        let of_tenant = |most: u64| {
            let flows = self.classes.iter().filter_map(|class| class.members.get(&arrival.tenant));
            let queued = flows.filter_map(|member| self.drr.figures(member.flow)).map(|flow| u64::from(flow.queued));
            queued.sum::<u64>() >= most
        };
        self.classes[lane as usize].settings.max_queued.is_some_and(of_lane)
            || arrival.max_queued.is_some_and(of_tenant)
    }

    /// Lets some of those that are held for a scope try again, unless as many as `most` do already.
    fn let_try(&mut self, scope: &Arc<str>, most: usize) {
        for _ in 0..TRIES {
            if self.trying.of(scope) >= most {
                return;
            }
            self.order += 1;
            match self.held.next_of(scope, self.order) {
                Some(Who::Flow(flow)) => self.drr.let_try(flow, TRIES as u32, self.now),
                Some(Who::Job(job)) => {
                    self.drr.bring_back(job, self.now);
                    self.trying.insert(job, scope.clone());
                }
                None => return,
            }
        }
    }

    /// Refuses whoever may wait no longer than until `now`; tells whether anyone was taken out.
    fn expire(&mut self, now: u64) -> bool {
        let mut expired = std::mem::take(&mut self.woken);
        let before = expired.len();
        self.drr.expire(now, |slot| expired.push(slot));
        for slot in &expired[before..] {
            if let Some(job) = slot.job() {
                self.held.remove(Who::Job(job));
            }
            let wait = self.lane(&slot.arrival.lane).and_then(|lane| self.retry_after(lane, slot));
            if slot.refuse(Refused { why: Why::TimedOut, retry_after: wait }) {
                self.timed_out(slot);
            }
        }
        let any = expired.len() > before;
        self.woken = expired;
        any
    }

    /// After one that has waited too long was taken out.
    fn timed_out(&mut self, slot: &Slot) {
        self.count_slot(slot, |counts| counts.timed_out += 1);
        self.used(slot);
        self.let_go(self.flow_of(slot));
    }

    fn flow_of(&self, slot: &Slot) -> Option<FlowId> {
        Some(self.member(self.lane_of(slot), slot)?.flow)
    }

    /// The lane that a slot is in: one that entered a lane that is not there is in the first.
    fn lane_of(&self, slot: &Slot) -> u16 {
        self.lane(&slot.arrival.lane).unwrap_or(0)
    }

    fn member(&self, lane: u16, slot: &Slot) -> Option<&Member> {
        self.classes[lane as usize].members.get(&slot.arrival.tenant)
    }

    /// When a retry of what has waited in vain may help.
    fn retry_after(&self, lane: u16, slot: &Slot) -> Option<Duration> {
        let member = self.member(lane, slot)?;
        self.drr.predicted_wait(member.flow, &demand(&slot.arrival)).map(Duration::from_nanos)
    }

    fn dispatch(&mut self) {
        let now = self.now;
        // Whose turn it is is not asked before there can be one: rounds that pass while nobody can be served would work off
        // debts at nobody's cost.
        loop {
            if self.drr.ready() > 0 && !self.valve.is_open() {
                return self.adaption.found_no_room();
            }
            let (valve, adaption, woken) = (&self.valve, &mut self.adaption, &mut self.woken);
            let (mut taken, mut late) = (None, SmallVec::<[Arc<Slot>; 1]>::new());
            let to_first_token = self.to_first_token;
            let judge = |offer: Offer<'_, Arc<Slot>>| {
                // What would be too late inside the pool is not sent there. Half of a wait is always given.
                let least = to_first_token.min((offer.deadline - offer.arrived) / 2);
                if offer.deadline.saturating_sub(now) < least {
                    if offer.item.refuse(Refused { why: Why::TimedOut, retry_after: None }) {
                        late.push(offer.item.clone());
                    }
                    return Judgment::Gone;
                }
                if !valve.try_take(offer.kept, offer.sparse) {
                    adaption.found_no_room();
                    return Judgment::NoRoom;
                }
                match offer.item.grant(now) {
                    true => {
                        taken = Some(offer.item.clone());
                        Judgment::Take
                    }
                    false => {
                        valve.give_back(offer.kept);
                        Judgment::Gone
                    }
                }
            };
            let pick = self.drr.pick(now, judge);
            woken.extend(late.iter().cloned());
            late.iter().for_each(|slot| self.timed_out(slot));
            match pick {
                Pick::Dispatched(_) => {
                    let Some(slot) = taken else { return };
                    self.note_try(&slot);
                    let waited = now.saturating_sub(slot.arrived);
                    self.count_slot(&slot, |counts| counts.dispatched(waited));
                    self.woken.push(slot);
                }
                Pick::NoRoom | Pick::Nothing => return,
            }
        }
    }

    /// Notes that a job of a flow goes that is held, and lets a flow go on of which none is left.
    fn note_try(&mut self, slot: &Slot) {
        let Some(job) = slot.job() else { return };
        let flow = self.drr.flow_of(job);
        if let Some(scope) = flow.and_then(|flow| self.held.scope_of(Who::Flow(flow))) {
            // One that tries for itself alone goes on to try for that.
            if self.trying.insert(job, scope.clone()) {
                slot.set_placed(true);
            }
            self.let_go(flow);
        }
    }

    /// The flow of a tenant in a lane, made if it is new; `None` if as many are in use as may be.
    fn flow(&mut self, lane: u16, tenant: &Arc<str>, weight: u32) -> Option<FlowId> {
        if let Some(member) = self.classes.get(lane as usize)?.members.get(tenant) {
            self.drr.set_weight(member.flow, weight);
            return Some(member.flow);
        }
        let flow = match self.drr.add_flow(lane, weight, self.now) {
            Some(flow) => flow,
            None => {
                self.collect_after(0);
                self.drr.add_flow(lane, weight, self.now)?
            }
        };
        self.tenants.insert(flow, (lane, tenant.clone()));
        let member = Member { flow, counts: Counts::default() };
        self.classes[lane as usize].members.insert(tenant.clone(), member);
        Some(flow)
    }

    fn collect(&mut self) {
        self.collect_after(self.idle_ttl);
    }

    fn collect_after(&mut self, ttl: u64) {
        let (tenants, classes) = (&mut self.tenants, &mut self.classes);
        self.drr.collect(self.now, ttl, |flow| {
            if let Some((lane, tenant)) = tenants.remove(&flow) {
                classes[lane as usize].members.remove(&tenant);
            }
        });
    }

    fn refuse(&mut self, slot: &Arc<Slot>, lane: Option<u16>, why: Why, wait: Option<u64>) {
        if slot.refuse(Refused { why, retry_after: wait.map(Duration::from_nanos) })
            && let Some(lane) = lane
        {
            self.count(lane, &slot.arrival.tenant, |counts| match why {
                Why::Overloaded => counts.overloaded += 1,
                _ => counts.full += 1,
            });
        }
        self.woken.push(slot.clone());
    }

    fn count_slot(&mut self, slot: &Slot, count: impl Fn(&mut Counts)) {
        if let Some(lane) = self.lane(&slot.arrival.lane) {
            self.count(lane, &slot.arrival.tenant, count);
        }
    }

    fn count(&mut self, lane: u16, tenant: &str, count: impl Fn(&mut Counts)) {
        let Some(class) = self.classes.get_mut(lane as usize) else { return };
        count(&mut class.counts);
        if let Some(member) = class.members.get_mut(tenant) {
            count(&mut member.counts);
        }
    }

    fn figures(&self) -> Figures {
        let lanes = self.classes.iter().enumerate().map(|(at, class)| {
            let at = at as u16;
            let (deficit, served) = self.drr.lane_figures(at).unwrap_or_default();
            let tenants = class.members.iter().filter_map(|(tenant, member)| {
                let flow = self.drr.figures(member.flow)?;
                Some(TenantFigures { tenant: tenant.clone(), flow, counts: member.counts.clone() })
            });
            let mut tenants: Vec<_> = tenants.collect();
            tenants.sort_by(|a, b| a.tenant.cmp(&b.tenant));
            LaneFigures {
                lane: class.settings.name.clone(),
                queued: self.drr.queued(at),
                deficit,
                served,
                quantum: self.drr.quantum(at).unwrap_or_default(),
                counts: class.counts.clone(),
                tenants,
            }
        });
        Figures {
            lanes: lanes.collect(),
            valve: self.valve.figures(),
            pace: self.drr.pace(),
            staleness: self.adaption.staleness(self.now).map(Duration::from_nanos),
            to_first_token: Duration::from_nanos(self.to_first_token),
            visits: self.drr.visits(),
        }
    }
}

fn demand(arrival: &Arrival) -> Demand {
    Demand { tokens: arrival.tokens, rates: arrival.rates, reports_progress: arrival.reports_progress }
}

pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
