//! Loads: who sends what and when, read from traces or drawn from a recipe, and how a sender behaves.

mod recipe;
mod trace;

pub use recipe::{Recipe, Source, three_hogs};
pub use trace::{Folder, Part};

/// Nanoseconds in a second.
pub const SECOND: u64 = 1_000_000_000;

/// The lane of people who wait for an answer.
pub const INTERACTIVE: usize = 0;
/// The lane of work that can wait.
pub const BATCH: usize = 1;

/// How a tenant's senders behave.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Habit {
    /// Sends at its moments and waits for ever.
    Open,
    /// Gives up after so long without a first token and tries again, at most so many times.
    GivesUp {
        /// Nanoseconds.
        after: u64,
        /// Further attempts.
        retries: u32,
    },
    /// Cancels at the first token of every answer.
    CancelsAtFirstToken,
    /// Has so many requests open at any time: the next one follows an answer at once.
    Closed {
        /// Requests open at once.
        depth: usize,
        /// Tokens of each prompt.
        input: u64,
        /// Tokens of each answer.
        output: u64,
    },
}

/// A party whose share is looked at.
#[derive(Debug, Clone)]
pub struct Tenant {
    /// Its name in the trace.
    pub name: String,
    /// Its weight inside its lane.
    pub weight: u64,
    /// [`INTERACTIVE`] or [`BATCH`].
    pub lane: usize,
    /// How its senders behave.
    pub habit: Habit,
    /// What it says is the longest answer, where it lies about that.
    pub declares: Option<u64>,
}

impl Tenant {
    /// A tenant of weight 1 that sends interactively.
    pub fn new(name: &str) -> Tenant {
        Tenant { name: name.to_owned(), weight: 1, lane: INTERACTIVE, habit: Habit::Open, declares: None }
    }
}

/// A request as the load has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Job {
    /// When it is first sent, in nanoseconds.
    pub at: u64,
    /// Its tenant's place in [`Load::tenants`].
    pub tenant: usize,
    /// Tokens of the prompt.
    pub input: u64,
    /// Tokens of the answer.
    pub output: u64,
}

/// Tenants and what they send.
#[derive(Debug, Clone)]
pub struct Load {
    /// What the table calls it.
    pub name: String,
    /// All tenants.
    pub tenants: Vec<Tenant>,
    /// By the moment of sending.
    pub jobs: Vec<Job>,
    /// How long the run is, in nanoseconds.
    pub until: u64,
}

impl Load {
    /// The same with each tenant's habit as given.
    pub fn with_habit(mut self, habit: Habit) -> Load {
        self.tenants.iter_mut().for_each(|tenant| tenant.habit = habit);
        self
    }

    /// The place of the tenant with this name.
    pub fn tenant(&self, name: &str) -> Option<usize> {
        self.tenants.iter().position(|tenant| tenant.name == name)
    }

    /// Places of the tenants whose names begin so.
    pub fn named(&self, beginning: &str) -> Vec<usize> {
        (0..self.tenants.len()).filter(|tenant| self.tenants[*tenant].name.starts_with(beginning)).collect()
    }

    /// Places of the tenants that send well below an equal share, which their names tell.
    pub fn lights(&self) -> Vec<usize> {
        let light = |name: &str| {
            let rest = name.strip_prefix("light").or(name.strip_prefix('l'));
            rest.is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()))
        };
        (0..self.tenants.len()).filter(|tenant| light(&self.tenants[*tenant].name)).collect()
    }

    /// Work that each tenant sends during the run.
    pub fn demand(&self, input: u64, output: u64) -> Vec<u64> {
        let mut demand = vec![0; self.tenants.len()];
        for job in self.jobs.iter().filter(|job| job.at < self.until) {
            demand[job.tenant] += input * job.input + output * job.output;
        }
        demand
    }
}
