//! The rule of the scheduler on random histories: the fairness bound, conservation of work, no starvation, one ending.

use std::collections::{HashMap, VecDeque};

use proptest::prelude::*;
use quota_core::scheduler::drr::{Demand, Drr, End, FlowId, JobId, Judgment, LaneRule, Mode, Pick};
use quota_core::time::SECOND;
use quota_core::work::{Tokens, WorkRates};

/// One step of a history.
#[derive(Debug, Clone)]
enum Step {
    /// So many jobs of a flow: what is expected of them, and what they take.
    Arrive {
        flow: usize,
        expected: (u16, u16),
        real: (u16, u16),
        progress: bool,
    },
    /// A running job tells its output so far: this part of it, in percent.
    Progress {
        job: usize,
        percent: u64,
    },
    /// A running job ends: served, with its asker gone, unknown, never started. Told twice.
    End {
        job: usize,
        how: u8,
    },
    /// A waiting job is taken out.
    Withdraw {
        flow: usize,
    },
    Block {
        flow: usize,
    },
    Unblock {
        flow: usize,
    },
    PutBack {
        job: usize,
    },
    SetAside,
    BringBack,
    /// As many jobs go as there is room for.
    Dispatch,
}

fn steps(flows: usize) -> impl Strategy<Value = Vec<Step>> {
    let size = || (1u16..4000, 0u16..2000);
    let step = prop_oneof![
        8 => (0..flows, size(), size(), any::<bool>())
            .prop_map(|(flow, expected, real, progress)| Step::Arrive { flow, expected, real, progress }),
        3 => (any::<prop::sample::Index>(), 0u64..150)
            .prop_map(|(job, percent)| Step::Progress { job: job.index(1 << 16), percent }),
        6 => (any::<prop::sample::Index>(), prop_oneof![8 => Just(0u8), 1 => 1u8..4])
            .prop_map(|(job, how)| Step::End { job: job.index(1 << 16), how }),
        1 => (0..flows).prop_map(|flow| Step::Withdraw { flow }),
        1 => (0..flows).prop_map(|flow| Step::Block { flow }),
        1 => (0..flows).prop_map(|flow| Step::Unblock { flow }),
        1 => any::<prop::sample::Index>().prop_map(|job| Step::PutBack { job: job.index(1 << 16) }),
        1 => Just(Step::SetAside),
        1 => Just(Step::BringBack),
        4 => Just(Step::Dispatch),
    ];
    prop::collection::vec(step, 1..400)
}

struct Real {
    flow: usize,
    demand: Demand,
    real: Tokens,
    /// What is known to have been served of it: by progress, in milli-units.
    told: u64,
    seen: u64,
}

/// The rule, and what an observer has written down about it.
struct Scene {
    drr: Drr<usize>,
    flows: Vec<FlowId>,
    weights: Vec<u32>,
    jobs: Vec<Real>,
    waiting: Vec<VecDeque<(usize, JobId)>>,
    aside: Vec<(usize, JobId)>,
    running: Vec<(usize, JobId)>,
    ended: Vec<JobId>,
    blocked: Vec<bool>,
    /// Work really served, by flow.
    served: Vec<i64>,
    settled: u64,
    room: usize,
    now: u64,
}

impl Scene {
    fn new(weights: &[u32], room: usize) -> Scene {
        let mut drr = Drr::new(Mode::Weighted, 64, 4096);
        // A quantum of its own keeps the bound's `Q` one number over the whole history.
        let lane = drr.add_lane(LaneRule { quantum: Some(QUANTUM), max_wait: u64::MAX, ..LaneRule::default() });
        let flows = weights.iter().map(|weight| drr.add_flow(lane, *weight, 0).unwrap()).collect();
        let none = |_: &u32| VecDeque::new();
        Scene {
            drr,
            flows,
            weights: weights.to_vec(),
            jobs: Vec::new(),
            waiting: weights.iter().map(none).collect(),
            aside: Vec::new(),
            running: Vec::new(),
            ended: Vec::new(),
            blocked: vec![false; weights.len()],
            served: vec![0; weights.len()],
            settled: 0,
            room,
            now: SECOND,
        }
    }

    fn step(&mut self, step: &Step) {
        self.now += SECOND / 100;
        match step {
            Step::Arrive { flow, expected, real, progress } => {
                let tokens = |(input, output): (u16, u16)| Tokens::new(input.into(), 0, output.into());
                // The input is known beforehand: what is guessed is the output.
                let real = Tokens { input: expected.0.into(), ..tokens(*real) };
                let demand =
                    Demand { tokens: tokens(*expected), rates: WorkRates::default(), reports_progress: *progress };
                self.jobs.push(Real { flow: *flow, demand, real, told: 0, seen: 0 });
                let item = self.jobs.len() - 1;
                let id = self.drr.enqueue(self.flows[*flow], item, demand, self.now).unwrap();
                self.waiting[*flow].push_back((item, id));
            }
            Step::Progress { job, percent } => {
                let Some((item, id)) = pick(&self.running, *job) else { return };
                let job = &mut self.jobs[item];
                let seen = u64::from(job.real.output) * percent.min(&100) / 100;
                self.drr.progress(id, seen).unwrap();
                job.seen = job.seen.max(seen);
                let tokens = Tokens { output: job.seen as u32, ..job.real };
                let told = tokens.work(&job.demand.rates);
                self.served[job.flow] += told.saturating_sub(job.told) as i64;
                job.told = job.told.max(told);
            }
            Step::End { job, how } => {
                let Some((item, id)) = pick(&self.running, *job) else { return };
                let job = &self.jobs[item];
                let seen = Tokens { output: job.seen as u32, ..job.real }.work(&job.demand.rates);
                let (end, work) = match how {
                    0 => (End::Served(job.real), job.real.work(&job.demand.rates)),
                    1 => (End::Left, seen),
                    2 => (End::Unknown, seen.max(job.demand.charge())),
                    _ => (End::NeverStarted, 0),
                };
                let ended = self.drr.end(id, end, self.now).unwrap();
                assert_eq!((ended.item, ended.work), (item, work));
                assert!(self.drr.end(id, end, self.now).is_err(), "a job ends once");
                assert!(self.drr.progress(id, 1 << 40).is_err());
                self.served[job.flow] += work as i64 - job.told as i64;
                self.settled += work;
                self.running.retain(|(_, other)| *other != id);
                self.ended.push(id);
            }
            Step::Withdraw { flow } => {
                if let Some((item, id)) = self.waiting[*flow].pop_back() {
                    assert_eq!(self.drr.withdraw(id), Some(item));
                    assert_eq!(self.drr.withdraw(id), None);
                }
            }
            Step::Block { flow } => {
                self.drr.block(self.flows[*flow]);
                self.blocked[*flow] = true;
            }
            Step::Unblock { flow } => {
                self.drr.unblock(self.flows[*flow], self.now);
                self.blocked[*flow] = false;
            }
            Step::PutBack { job } => {
                let Some((item, id)) = pick(&self.running, *job) else { return };
                self.drr.put_back(id, self.now).unwrap();
                let job = &mut self.jobs[item];
                self.served[job.flow] -= job.told as i64;
                (job.told, job.seen) = (0, 0);
                self.running.retain(|(_, other)| *other != id);
                let flow = job.flow;
                self.line_up_again(flow, item, id);
            }
            Step::SetAside => {
                let first = self.waiting.iter_mut().find_map(VecDeque::pop_front);
                if let Some((item, id)) = first {
                    self.drr.set_aside(id);
                    self.aside.push((item, id));
                }
            }
            Step::BringBack => {
                if let Some((item, id)) = self.aside.pop() {
                    self.drr.bring_back(id, self.now);
                    self.line_up_again(self.jobs[item].flow, item, id);
                }
            }
            Step::Dispatch => self.dispatch(),
        }
    }

    /// What comes back has its old place: items are numbered by arrival.
    fn line_up_again(&mut self, flow: usize, item: usize, id: JobId) {
        let line = &mut self.waiting[flow];
        let at = line.partition_point(|(other, _)| *other < item);
        line.insert(at, (item, id));
    }

    fn dispatch(&mut self) {
        loop {
            let room = self.running.len() < self.room;
            let judge = |_: quota_core::scheduler::drr::Offer<'_, usize>| match room {
                true => Judgment::Take,
                false => Judgment::NoRoom,
            };
            match self.drr.pick(self.now, judge) {
                Pick::Dispatched(id) => {
                    let flow = self.flows.iter().position(|flow| Some(*flow) == self.drr.flow_of(id)).unwrap();
                    assert!(!self.blocked[flow], "a blocked flow was served");
                    let (item, first) = self.waiting[flow].pop_front().unwrap();
                    assert_eq!(first, id, "first come, first served inside a flow");
                    self.running.push((item, id));
                }
                Pick::NoRoom => return assert!(!room),
                Pick::Nothing => {
                    let left =
                        self.waiting.iter().zip(&self.blocked).any(|(line, blocked)| !blocked && !line.is_empty());
                    return assert!(!left, "idle while something could go");
                }
            }
        }
    }

    /// What is in flight for a flow by weight: charged or, where that is more, what it will have taken.
    fn in_flight(&self, flow: usize) -> i64 {
        let running = self.running.iter().map(|(item, _)| &self.jobs[*item]).filter(|job| job.flow == flow);
        running.map(most).sum::<i64>() / i64::from(self.weights[flow])
    }
}

/// The largest charge of a job: what is expected, or what it takes.
fn most(job: &Real) -> i64 {
    job.demand.charge().max(job.real.work(&job.demand.rates)) as i64
}

/// Two flows in a stretch in which both are queued and unblocked.
#[derive(Default)]
struct Stretch {
    lowest: i64,
    highest: i64,
    /// The most that either had in flight.
    in_flight: i64,
}

/// Watches every pair of flows, and fails when one leaves the bound.
struct Watch {
    stretches: HashMap<(usize, usize), Stretch>,
    /// The largest charge by weight, by flow.
    largest: Vec<i64>,
    looked_at: usize,
    /// The part of the bound that was used at most, in percent.
    closest: i64,
}

impl Watch {
    fn new(flows: usize) -> Watch {
        Watch { stretches: HashMap::new(), largest: vec![0; flows], looked_at: 0, closest: 0 }
    }

    fn look(&mut self, scene: &Scene) -> Result<(), TestCaseError> {
        for job in &scene.jobs[self.looked_at..] {
            self.largest[job.flow] = self.largest[job.flow].max(most(job) / i64::from(scene.weights[job.flow]));
        }
        self.looked_at = scene.jobs.len();
        let flows = scene.weights.len();
        for (f, g) in (0..flows).flat_map(|f| (f + 1..flows).map(move |g| (f, g))) {
            let queued = |at: usize| !scene.blocked[at] && !scene.waiting[at].is_empty();
            if !(queued(f) && queued(g)) {
                self.stretches.remove(&(f, g));
                continue;
            }
            let by_weight = |at: usize| scene.served[at] / i64::from(scene.weights[at]);
            let difference = by_weight(f) - by_weight(g);
            let new = Stretch { lowest: difference, highest: difference, in_flight: 0 };
            let stretch = self.stretches.entry((f, g)).or_insert(new);
            stretch.lowest = stretch.lowest.min(difference);
            stretch.highest = stretch.highest.max(difference);
            stretch.in_flight = stretch.in_flight.max(scene.in_flight(f)).max(scene.in_flight(g));
            let range = stretch.highest - stretch.lowest;
            let bound = 4 * QUANTUM as i64 + 2 * (self.largest[f].max(self.largest[g]) + stretch.in_flight);
            self.closest = self.closest.max(range * 100 / bound);
            prop_assert!(range <= bound, "{f} and {g}: {range} over {bound}");
        }
        Ok(())
    }
}

fn pick(running: &[(usize, JobId)], at: usize) -> Option<(usize, JobId)> {
    (!running.is_empty()).then(|| running[at % running.len()])
}

/// Milli-units of work.
const QUANTUM: u64 = 1_000_000;

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Of any two flows that are queued and unblocked over a stretch, the work by weight stays within the bound.
    #[test]
    fn the_bound_holds_whatever_happens(
        weights in prop::collection::vec(1u32..5, 2..5),
        room in 1usize..12,
        steps in steps(5),
    ) {
        let mut scene = Scene::new(&weights, room);
        let mut watch = Watch::new(weights.len());
        for step in steps {
            scene.step(&within(step, weights.len()));
            watch.look(&scene)?;
        }
    }

    /// The same where all have a backlog for long: flows of other sizes, guesses three times too high or too low, endings
    /// in any order, put back and cut short.
    #[test]
    fn the_bound_does_not_grow_with_time(
        flows in prop::collection::vec((1u32..5, 1u16..3000, 1u16..700, 1u16..10, any::<bool>()), 2..5),
        room in 1usize..10,
        turns in prop::collection::vec((any::<u16>(), 0u8..40, 0u64..100), 1500),
    ) {
        let weights: Vec<u32> = flows.iter().map(|flow| flow.0).collect();
        let mut scene = Scene::new(&weights, room);
        let mut watch = Watch::new(flows.len());
        for (job, act, percent) in turns {
            for (flow, (_, input, output, error, progress)) in flows.iter().enumerate() {
                while scene.waiting[flow].len() < 2 {
                    let (input, output, progress) = (*input, *output, *progress);
                    let (expected, real) = ((input, output * error / 3), (input, output));
                    scene.step(&Step::Arrive { flow, expected, real, progress });
                    watch.look(&scene)?;
                }
            }
            let job = usize::from(job);
            let act = match act {
                0 => Step::PutBack { job },
                1..10 => Step::Progress { job, percent },
                10 => Step::End { job, how: 1 },
                11 => Step::End { job, how: 2 },
                _ => Step::End { job, how: 0 },
            };
            for step in [Step::Dispatch, act] {
                scene.step(&step);
                watch.look(&scene)?;
            }
        }
        prop_assert!(watch.closest > 0);
    }

    /// What is charged in the end is what was settled, whatever the order, and nobody waits for ever.
    #[test]
    fn work_is_conserved_and_all_are_served(weights in prop::collection::vec(1u32..5, 1..5), room in 1usize..12, seed in steps(4)) {
        let mut scene = Scene::new(&weights, room);
        for step in seed {
            scene.step(&within(step, weights.len()));
        }
        for flow in 0..weights.len() {
            scene.step(&Step::Unblock { flow });
        }
        while !scene.aside.is_empty() {
            scene.step(&Step::BringBack);
        }
        let mut turns = 0;
        while !scene.running.is_empty() || scene.waiting.iter().any(|line| !line.is_empty()) {
            scene.step(&Step::Dispatch);
            scene.step(&Step::End { job: 0, how: 0 });
            turns += 1;
            prop_assert!(turns < 10_000, "starved");
        }
        let figures: Vec<_> = scene.flows.iter().map(|flow| scene.drr.figures(*flow).unwrap()).collect();
        prop_assert_eq!(figures.iter().map(|flow| flow.served).sum::<u64>(), scene.settled);
        for (figures, served) in figures.iter().zip(&scene.served) {
            prop_assert_eq!(figures.served as i64, *served);
            prop_assert_eq!((figures.queued, figures.in_flight), (0, 0));
        }
        prop_assert_eq!((scene.drr.ready(), scene.drr.queued(0)), (0, 0));
        prop_assert_eq!(scene.drr.next_deadline(), None);
    }
}

fn within(step: Step, flows: usize) -> Step {
    match step {
        Step::Arrive { flow, expected, real, progress } => {
            Step::Arrive { flow: flow % flows, expected, real, progress }
        }
        Step::Withdraw { flow } => Step::Withdraw { flow: flow % flows },
        Step::Block { flow } => Step::Block { flow: flow % flows },
        Step::Unblock { flow } => Step::Unblock { flow: flow % flows },
        other => other,
    }
}
