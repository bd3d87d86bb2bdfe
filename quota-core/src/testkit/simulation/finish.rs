//! The end of a seed: everything is resolved, and what is left is compared.
//!
//! Floor 5. Invariant: whatever happened before, nothing is open, nothing waits, nothing runs, and all books agree.

use super::job::Job;
use super::ledger::{Act, Check};
use super::world::{NOBODY, SECOND, World};
use crate::journal::replay;
use crate::policy::plan::{Plan, Window};
use crate::store::Store;
use crate::testkit::Fault;
use crate::time::Period;

impl World<'_> {
    /// Everybody's balances are those of the books.
    pub(super) fn look(&mut self) -> Check {
        if self.outage {
            return Ok(());
        }
        for people in &self.scene.people {
            for who in people {
                let balances = self.gate.balances(who, true);
                let looked = self.ledger.check_balances(&balances, self.now)?;
                if looked == 0 {
                    return Err(format!("no balances of {}", who.tenant()));
                }
                self.summary.balances += looked as u64;
            }
        }
        let open = self.gate.store().open(usize::MAX, |open| open.len());
        if open != self.ledger.open() {
            return Err(format!("{open} leases are open, by the books {}", self.ledger.open()));
        }
        self.check_queues()?;
        self.ledger.check_sums()
    }

    /// As many wait in the queues as have a place there and no turn yet: whoever has left is gone.
    pub(super) fn check_queues(&self) -> Check {
        // Who entered without waiting is told to the desk with whatever is sent next, and with it that time has passed. That
        // may bring others their turns, so the first look only has it worked off: nothing changes between the two after.
        self.gate.pools();
        let waits = |job: &&Job| job.queued.as_ref().is_some_and(|queued| !queued.is_due());
        let waiting = self.jobs.iter().filter(waits).count() as u64;
        let pools = self.gate.pools();
        let queued: u64 = pools.iter().flat_map(|pool| &pool.queue.lanes).map(|lane| lane.queued).sum();
        if queued == waiting { Ok(()) } else { Err(format!("{queued} are queued, {waiting} wait")) }
    }

    /// Resolves what is open, and looks at all that is left.
    pub(super) fn finish(&mut self) -> Check {
        self.note("is at its end", NOBODY, self.ledger.opened() as u64);
        self.outage = false;
        self.gate.store().always(Fault::None);
        self.look()?;
        let terms = self.scene.terms();
        for pause in [terms.life, terms.age, SECOND] {
            self.pass_to(self.now.mono + pause);
            self.sweep()?;
        }
        self.read_tape(Act::Wait)?;
        self.look()?;
        self.ledger.check_ended()?;
        self.nothing_is_left()?;
        if self.scene.replays { self.check_replay() } else { Ok(()) }
    }

    fn nothing_is_left(&self) -> Check {
        if let Some((slot, _)) = self.jobs.iter().enumerate().find(|(_, job)| job.live) {
            return Err(format!("request {slot} is left"));
        }
        for pool in self.gate.pools() {
            let valve = &pool.queue.valve;
            let queued: u64 = pool.queue.lanes.iter().map(|lane| lane.queued).sum();
            let flows = pool.queue.lanes.iter().flat_map(|lane| &lane.tenants);
            let running: u64 = flows.clone().map(|tenant| u64::from(tenant.flow.in_flight)).sum();
            let blocked = flows.filter(|tenant| tenant.flow.blocked).count();
            if (valve.in_flight, valve.kept, queued, running, blocked) != (0, 0, 0, 0, 0) {
                let pool = &pool.pool;
                return Err(format!("pool `{pool}`: {valve:?}, {queued} queued, {running} running, {blocked} blocked"));
            }
        }
        Ok(())
    }

    /// The journal adds up to the same as the accounts.
    fn check_replay(&mut self) -> Check {
        let replayed = replay(&self.tape);
        if replayed.missing > 0 {
            return Err(format!("{} entries are missing", replayed.missing));
        }
        let plan = self.scene.policies[0].plan();
        // A rate's word is read with the amount of the entry that named it last.
        let rates = self.summary.reloads == 0;
        for (scope, limit, used) in self.ledger.used(rates, self.now) {
            let period = period(plan, scope, limit, self.now.wall);
            let replayed = replayed.used(scope, limit, self.now, period).unwrap_or(0);
            if replayed != used {
                return Err(format!("{scope} {limit}: {replayed} by the journal, {used} by the books"));
            }
            self.summary.replayed += 1;
        }
        Ok(())
    }
}

/// The present period of a limit; none for one without a calendar.
fn period(plan: &Plan, scope: &str, limit: &str, wall: u64) -> Period {
    let found = |limits: &[crate::policy::plan::Limit]| {
        limits.iter().find(|named| *named.name == *limit).and_then(|named| match &named.window {
            Window::Fixed(calendar) => Some(calendar.period(wall)),
            Window::Rolling { .. } | Window::Held | Window::Run => None,
        })
    };
    let of_tenant = |rest: &str| {
        let (tenant, rest) = rest.split_once('/').unwrap_or((rest, ""));
        let tenant = plan.tenants.get(tenant)?;
        match rest.split_once(':') {
            Some(("model", model)) => found(&tenant.models.get(model)?.limits),
            Some(_) => found(&tenant.users),
            None => found(&tenant.limits),
        }
    };
    let period = match scope.split_once(':') {
        Some(("tenant", rest)) => of_tenant(rest),
        Some(("model", model)) => plan.models.get(model).and_then(|model| found(&model.limits)),
        Some((_, center)) => plan.cost_centers.get(center).and_then(|limits| found(limits)),
        None => found(&plan.global),
    };
    period.unwrap_or_default()
}
