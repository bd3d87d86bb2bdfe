//! The laboratory: loads by name, runs that several rows look at, and what the rows have found.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use crate::contender::{Contender, Kind};
use crate::load::{BATCH, Folder, Habit, INTERACTIVE, Load, Part, SECOND};
use crate::ours::LANES;
use crate::outcome::Outcome;
use crate::world::{Setup, play};

/// The seeds of whatever is random.
pub const SEEDS: [u64; 3] = [101, 202, 303];

/// Senders that give up after six seconds and try again up to six times.
pub const IMPATIENT: Habit = Habit::GivesUp { after: 6 * SECOND, retries: 6 };

/// Loads that more than one row uses.
pub const LOADS: [&str; 13] = [
    "hog",
    "three_hogs",
    "decode_bomb",
    "short_storm",
    "retry_storm",
    "longctx_spike",
    "multi_spike",
    "classes_steady",
    "classes_overload",
    "zipf300",
    "m-large x6",
    "r1 x2.4",
    "mixed",
];

/// What the name of a load ends with whose tenants are weighted as their lanes are.
const BY_WEIGHTS: &str = ", by weights";

/// Loads, runs and findings.
pub struct Lab {
    folder: Folder,
    loads: RefCell<HashMap<String, Rc<Load>>>,
    runs: RefCell<HashMap<String, Rc<Outcome>>>,
    /// For each run of ours: its name, and the measured difference over the bound.
    bounds: RefCell<Vec<(String, f64)>>,
    /// Over all runs of ours: moments at which something could have gone.
    idled: RefCell<u64>,
}

impl Lab {
    /// Nothing has run.
    pub fn new(folder: Folder) -> Lab {
        Lab {
            folder,
            loads: RefCell::default(),
            runs: RefCell::default(),
            bounds: RefCell::default(),
            idled: RefCell::default(),
        }
    }

    /// A load by its name in [`LOADS`], or `arena27`.
    pub fn load(&self, name: &str) -> Rc<Load> {
        if let Some(load) = self.loads.borrow().get(name) {
            return load.clone();
        }
        let part = |file, speed| Part { file, speed };
        let load = match name {
            "m-large x6" => self.folder.recorded(name, &[part("servegen_mlarge_1h", 6.0)]),
            "r1 x2.4" => self.folder.recorded(name, &[part("servegen_r1_1h", 2.4)]),
            "mixed" => {
                let parts = [("azure2023_code", 5.0), ("azure2023_conv", 1.5), ("mooncake_conversation", 1.2)];
                self.folder.recorded(name, &parts.map(|(file, speed)| part(file, speed)))
            }
            "arena27" => self.folder.recorded(name, &[part("arena27_10min", 1.0)]),
            _ if name.ends_with(BY_WEIGHTS) => {
                let mut load = Load::clone(&self.load(name.trim_end_matches(BY_WEIGHTS)));
                let of = |lane| load.tenants.iter().filter(|tenant| tenant.lane == lane).count() as u64;
                let tenants = [of(INTERACTIVE), of(BATCH)];
                for tenant in &mut load.tenants {
                    // A lane's weight over its tenants, times what makes both whole.
                    tenant.weight = u64::from(LANES[tenant.lane]) * tenants[1 - tenant.lane];
                }
                load
            }
            "retry_storm" => self.folder.synthetic(name).with_habit(IMPATIENT),
            _ => self.folder.synthetic(name),
        };
        let load = Rc::new(load);
        self.loads.borrow_mut().insert(name.to_owned(), load.clone());
        load
    }

    /// The name of a load whose tenants have the weights of their lanes, for a rule that knows no lanes.
    pub fn by_weights(&self, name: &str) -> String {
        let lanes = self.load(name).tenants.iter().any(|tenant| tenant.lane == BATCH);
        if lanes { format!("{name}{BY_WEIGHTS}") } else { name.to_owned() }
    }

    /// Plays a load by name; the same run is made once.
    pub fn run(&self, load: &str, contender: Contender, setup: &Setup) -> Rc<Outcome> {
        let key = format!("{load} {contender:?} {setup:?}");
        if let Some(run) = self.runs.borrow().get(&key) {
            return run.clone();
        }
        let run = Rc::new(self.play(&self.load(load), contender, setup));
        self.runs.borrow_mut().insert(key, run.clone());
        run
    }

    /// Plays any load.
    pub fn play(&self, load: &Load, contender: Contender, setup: &Setup) -> Outcome {
        let run = play(load, setup, &contender.name(), contender.rule(load, setup));
        if let Kind::Ours { .. } = contender.kind {
            *self.idled.borrow_mut() += run.idled;
            if let Some(bound) = run.bound {
                let (dispatch, ahead, under) = run.charges;
                let bound = 4.0 * bound.quantum + 2.0 * (dispatch + ahead + under);
                self.bounds.borrow_mut().push((format!("{} (seed {})", load.name, setup.seed), run.difference / bound));
            }
        }
        run
    }

    /// Measured differences over their bounds, of all runs of ours so far.
    pub fn bounds(&self) -> Vec<(String, f64)> {
        self.bounds.borrow().clone()
    }

    /// Moments at which a request waited although it could have gone, over all runs of ours so far.
    pub fn idled(&self) -> u64 {
        *self.idled.borrow()
    }
}
