//! What a run came to, and the figures that are read from it.

use crate::load::{Job, Load, SECOND};
use crate::measure::{Served, entitlements, jain, percentile};
use crate::prices::Prices;
use crate::rule::Bound;

/// The end of a run that latencies leave out: requests sent in it may have had no time.
const LEFT_OUT: u64 = 60 * SECOND;

/// How a job ended without an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Refused on arrival.
    Refused,
    /// It waited too long.
    Expired,
    /// The sender lost patience.
    GaveUp,
    /// The pool lost it.
    Lost,
}

/// What became of a job.
#[derive(Debug, Clone, Copy)]
pub struct Record {
    /// Its tenant.
    pub tenant: usize,
    /// When it was first sent.
    pub sent: u64,
    /// Tokens of the prompt.
    pub input: u64,
    /// When the first token came.
    pub first_token: Option<u64>,
    /// When the answer was complete, and how long it was.
    pub finished: Option<(u64, u64)>,
    /// How it ended otherwise.
    pub end: Option<End>,
}

impl Record {
    /// A job that has not been sent yet.
    pub fn new(job: &Job) -> Record {
        Record { tenant: job.tenant, sent: job.at, input: job.input, first_token: None, finished: None, end: None }
    }
}

/// A run.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The rule.
    pub name: String,
    /// The load.
    pub load: String,
    /// How long it was.
    pub until: u64,
    /// Tenants' names.
    pub tenants: Vec<String>,
    /// Tenants' weights.
    pub weights: Vec<u64>,
    /// Each job.
    pub records: Vec<Record>,
    /// Work that the pool did for each tenant.
    pub service: Vec<u64>,
    /// Tokens of answers by tenant.
    pub output: Vec<u64>,
    /// Attempts refused, by tenant.
    pub refused: Vec<u64>,
    /// Attempts that waited too long, by tenant.
    pub expired: Vec<u64>,
    /// By lane.
    pub longest_wait: [u64; 2],
    /// From dispatch to the first token.
    pub engine_waits: Vec<u64>,
    /// Sequences thrown back by the pool.
    pub preemptions: u64,
    /// The largest difference between two tenants while both stayed queued.
    pub difference: f64,
    /// The mean of Jain's index over windows of ten seconds.
    pub jain: f64,
    /// The largest drift of a pair that is queued, every quarter of a second.
    pub apart: Vec<(u64, f64)>,
    /// Service by tenant at each second.
    pub timeline: Vec<Vec<u64>>,
    /// The valve at each second.
    pub widths: Vec<u64>,
    /// Moments at which a request waited although it could have gone.
    pub idled: u64,
    /// The largest charge at dispatch, the most charged in the pool and the most served beyond the charge, by weight.
    pub charges: (f64, f64, f64),
    /// Tenants looked at, and requests chosen by it.
    pub visits: (u64, u64),
    /// The rule's part of the bound.
    pub bound: Option<Bound>,
}

impl Outcome {
    /// A run that has not begun.
    pub fn new(load: &Load, name: &str) -> Outcome {
        let tenants = load.tenants.len();
        Outcome {
            name: name.to_owned(),
            load: load.name.clone(),
            until: load.until,
            tenants: load.tenants.iter().map(|tenant| tenant.name.clone()).collect(),
            weights: load.tenants.iter().map(|tenant| tenant.weight).collect(),
            records: load.jobs.iter().map(Record::new).collect(),
            service: vec![0; tenants],
            output: vec![0; tenants],
            refused: vec![0; tenants],
            expired: vec![0; tenants],
            longest_wait: [0; 2],
            engine_waits: vec![],
            preemptions: 0,
            difference: 0.0,
            jain: f64::NAN,
            apart: vec![],
            timeline: vec![],
            widths: vec![],
            idled: 0,
            charges: (0.0, 0.0, 0.0),
            visits: (0, 0),
            bound: None,
        }
    }

    /// An answer is complete.
    pub fn finished(&mut self, job: usize, out: u64, at: u64) {
        self.records[job].finished = Some((at, out));
    }

    /// Time to first token from the first attempt, in nanoseconds, of these tenants' jobs that were sent between two moments.
    /// A job that still waits at the end counts as long as it has waited; one that was turned away does not count.
    fn first_tokens(&self, tenants: &[usize], from: u64, until: u64) -> Vec<u64> {
        let asked = self.records.iter().filter(|r| r.sent >= from && r.sent < until && tenants.contains(&r.tenant));
        asked
            .filter(|record| record.first_token.is_some() || record.end.is_none())
            .map(|record| record.first_token.unwrap_or(self.until).saturating_sub(record.sent))
            .collect()
    }

    /// The median and the 99th percentile of the time to first token, in seconds, without the end of the run.
    pub fn ttft(&self, tenants: &[usize]) -> (f64, f64) {
        self.ttft_between(tenants, 0, self.until.saturating_sub(LEFT_OUT))
    }

    /// The same of jobs sent between two moments.
    pub fn ttft_between(&self, tenants: &[usize], from: u64, until: u64) -> (f64, f64) {
        let mut waits = self.first_tokens(tenants, from, until);
        (percentile(&mut waits, 0.5), percentile(&mut waits, 0.99))
    }

    /// The 99th percentile of the time from dispatch to first token, in seconds.
    pub fn engine_wait(&self) -> f64 {
        percentile(&mut self.engine_waits.clone(), 0.99)
    }

    /// The longest wait in a lane, in seconds.
    pub fn longest_wait(&self, lane: usize) -> f64 {
        self.longest_wait[lane] as f64 / 1e9
    }

    /// Tokens of answers per second.
    pub fn output_rate(&self) -> f64 {
        self.output.iter().sum::<u64>() as f64 * 1e9 / self.until as f64
    }

    /// Work per second.
    pub fn work_rate(&self) -> f64 {
        self.service.iter().sum::<u64>() as f64 * 1e9 / self.until as f64
    }

    /// Work per second of answers that were completed for somebody who still waited for them.
    pub fn goodput(&self, prices: Prices) -> f64 {
        let good = self.records.iter().filter_map(|r| r.finished.map(|(_, out)| prices.work(r.input, out)));
        good.sum::<u64>() as f64 * 1e9 / self.until as f64
    }

    /// Of these tenants' jobs, without the end of the run: how many failed, and how many there were.
    pub fn failures(&self, tenants: &[usize]) -> (u64, u64) {
        let until = self.until.saturating_sub(LEFT_OUT);
        let jobs = self.records.iter().filter(|r| r.sent < until && tenants.contains(&r.tenant));
        jobs.fold((0, 0), |(failed, all), record| (failed + u64::from(record.end.is_some()), all + 1))
    }

    /// Jain's index of service against what each is entitled to of all that was served.
    pub fn jsat(&self, demand: &[u64]) -> f64 {
        let entitled = entitlements(demand, &self.weights, self.service.iter().sum());
        let asked: Vec<f64> = (0..demand.len())
            .filter(|tenant| entitled[*tenant] > 0.0)
            .map(|tenant| self.service[tenant] as f64 / entitled[tenant])
            .collect();
        jain(&asked)
    }

    /// Each tenant's share of all service between two seconds.
    pub fn shares(&self, from: usize, until: usize) -> Vec<f64> {
        let (Some(before), Some(after)) = (self.timeline.get(from), self.timeline.get(until).or(self.timeline.last()))
        else {
            return vec![];
        };
        let gained: Vec<f64> = after.iter().zip(before).map(|(after, before)| (after - before) as f64).collect();
        let all: f64 = gained.iter().sum();
        gained.into_iter().map(|gained| gained / all).collect()
    }

    /// The runs of all requests, as the published metric wants them.
    pub fn served(&self, prices: Prices) -> Vec<Served> {
        let seconds = |at: u64| at as f64 / 1e9;
        let ran = self.records.iter().filter_map(|r| Some((r, r.first_token?, r.finished?)));
        ran.map(|(record, first, (last, out))| Served {
            tenant: record.tenant,
            sent: seconds(record.sent),
            first: seconds(first),
            last: seconds(last),
            work: prices.work(record.input, out) as f64,
        })
        .collect()
    }

    /// Visits per choice.
    pub fn visits_per_pick(&self) -> f64 {
        self.visits.0 as f64 / self.visits.1.max(1) as f64
    }
}
