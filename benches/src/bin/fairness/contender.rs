//! Who runs: a baseline, or the scheduler as it is set.

use crate::baseline::Baseline;
use crate::load::{Load, SECOND};
use crate::ours;
use crate::rule::Rule;
use crate::valve::Width;
use crate::world::Setup;

/// A rule with its settings.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Contender {
    /// Which one.
    pub kind: Kind,
    /// The valve; without one that of the pool.
    pub width: Option<Width>,
    /// The longest wait in each lane.
    pub max_wait: Option<[u64; 2]>,
}

/// Which rule.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// A published one.
    Baseline(Baseline),
    /// The scheduler.
    Ours {
        /// Whether the valve follows what the pool reports.
        adaptive: bool,
        /// Whether requests that would wait too long are refused at once.
        early_refusal: bool,
    },
}

impl Contender {
    /// The scheduler behind the static valve, without a longest wait.
    pub const OURS: Contender =
        Contender { kind: Kind::Ours { adaptive: false, early_refusal: false }, width: None, max_wait: None };

    /// A baseline.
    pub const fn baseline(baseline: Baseline) -> Contender {
        Contender { kind: Kind::Baseline(baseline), width: None, max_wait: None }
    }

    /// The same with the lanes' usual longest waits: 3 s and 60 s.
    pub const fn expiring(mut self) -> Contender {
        self.max_wait = Some([3 * SECOND, 60 * SECOND]);
        self
    }

    /// The same that refuses early.
    pub const fn refusing(mut self) -> Contender {
        if let Kind::Ours { adaptive, .. } = self.kind {
            self.kind = Kind::Ours { adaptive, early_refusal: true };
        }
        self
    }

    /// The same behind another valve.
    pub const fn behind(mut self, width: Width) -> Contender {
        self.width = Some(width);
        self
    }

    /// The same with a valve that follows the pool.
    pub const fn adaptive(mut self) -> Contender {
        if let Kind::Ours { early_refusal, .. } = self.kind {
            self.kind = Kind::Ours { adaptive: true, early_refusal };
        }
        self
    }

    /// What the table calls it.
    pub fn name(&self) -> String {
        match self.kind {
            Kind::Baseline(baseline) => baseline.name(),
            Kind::Ours { adaptive: true, .. } => "ours, adaptive".into(),
            Kind::Ours { early_refusal: true, .. } => "ours, refusing early".into(),
            Kind::Ours { .. } => "ours".into(),
        }
    }

    /// The rule, for a load and a pool.
    pub fn rule(&self, load: &Load, setup: &Setup) -> Box<dyn Rule> {
        let width = self.width.unwrap_or(Width::of(&setup.shape));
        match self.kind {
            Kind::Baseline(baseline) => baseline.rule(setup.prices, width, self.max_wait),
            Kind::Ours { adaptive, early_refusal } => {
                let settings = ours::Settings { width, max_wait: self.max_wait, adaptive, early_refusal };
                Box::new(ours::Ours::new(load, setup, settings))
            }
        }
    }
}
