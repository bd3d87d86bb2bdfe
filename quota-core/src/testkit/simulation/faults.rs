//! The faults of the surroundings: the wall clock, the policy, the store, the pool; and the keeper's work.
//!
//! Floor 5. Invariant: the engine's clock never goes back, whatever the wall clock does.

use super::ledger::{Act, Check};
use super::world::{NOBODY, SECOND, World};
use crate::testkit::Fault;
use crate::time::Clock;

const HOUR: i64 = 3600 * SECOND as i64;

impl World<'_> {
    /// The wall clock is put forward or back.
    pub(super) fn correct_wall(&mut self) -> Check {
        let by = self.dice.one_of(&[-26 * HOUR, -HOUR, -5 * SECOND as i64, -1, 1, 5 * SECOND as i64, HOUR, 26 * HOUR]);
        self.clock.set_wall(self.now.wall.saturating_add_signed(by));
        self.now = self.clock.now();
        self.summary.corrections += 1;
        self.note("the wall clock is corrected", NOBODY, by.unsigned_abs());
        Ok(())
    }

    /// Another policy comes into force.
    pub(super) fn reload(&mut self) -> Check {
        let revision = self.dice.below(self.scene.policies.len() as u64) as usize;
        self.gate.reload(&self.scene.policies[revision]);
        self.ledger.reload(revision);
        self.summary.reloads += 1;
        self.note("a policy is loaded", NOBODY, revision as u64);
        self.read_tape(Act::Wait).map(drop)
    }

    /// The store goes or comes back.
    pub(super) fn store_goes(&mut self, gone: bool) -> Check {
        self.outage = gone;
        self.gate.store().always(if gone { Fault::Before } else { Fault::None });
        self.summary.outages += u64::from(gone);
        self.note("the store is gone", NOBODY, u64::from(gone));
        Ok(())
    }

    /// A replica comes or goes, with all that is in it.
    pub(super) fn replica(&mut self, comes: bool) -> Check {
        if comes {
            self.pool.add_replica(self.now);
        } else {
            self.pool.remove_replica(self.now, 0);
        }
        self.note("a replica comes", NOBODY, u64::from(comes));
        Ok(())
    }

    /// What a keeper does.
    pub(super) fn sweep(&mut self) -> Check {
        let swept = self.timed(|world| world.gate.sweep(usize::MAX));
        let written = self.read_tape(Act::Wait)?;
        if written.ended != swept as u64 {
            return Err(format!("{swept} swept, {} entries", written.ended));
        }
        if self.outage { Ok(()) } else { self.ledger.check_swept(self.now) }
    }
}
