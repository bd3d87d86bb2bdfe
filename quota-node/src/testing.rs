//! What tests need: a clock that stands still, and the journal's sums beside the live accounts.

use std::sync::Arc;
use std::time::{Duration, Instant};

use napi::{Env, Result};
use napi_derive::napi;
use quota_core as core;
use quota_core::journal::{Event, replay};
use quota_core::meter::At;
use quota_core::policy::plan::Window;
use quota_core::time::{Clock, Period, show_instant};
use quota_core::{Decision, Store};

use crate::convert::{instant, number};
use crate::count::{Count, Whole32};
use crate::gate::Gate;
use crate::principal::Principal;
use crate::request::Request;

/// A clock that stands still until it is moved.
#[napi]
pub struct ManualClock(pub(crate) Arc<core::ManualClock>);

#[napi]
impl ManualClock {
    /// A clock that stands at an RFC 3339 instant.
    #[napi(constructor)]
    pub fn new(env: Env, at: Option<String>) -> Result<ManualClock> {
        let at = instant(&env, at.as_deref().unwrap_or("2026-03-02T12:00:00Z"))?;
        Ok(ManualClock(Arc::new(core::ManualClock::at(at))))
    }

    /// Moves it forward.
    #[napi]
    pub fn advance(&self, ms: Count) {
        self.0.advance(Duration::from_millis(ms.0));
    }

    /// Moves it forward by nanoseconds.
    #[napi]
    pub fn advance_ns(&self, ns: Count) {
        self.0.advance(Duration::from_nanos(ns.0));
    }

    /// Sets the wall clock alone, as the operating system does when it corrects it.
    #[napi]
    pub fn set_wall(&self, env: Env, at: String) -> Result<()> {
        self.0.set_wall(instant(&env, &at)?);
        Ok(())
    }

    /// The wall time as an RFC 3339 instant, to the nanosecond.
    #[napi(getter)]
    pub fn wall(&self) -> String {
        show_instant(self.0.now().wall)
    }

    /// The engine's time in nanoseconds.
    #[napi(getter)]
    pub fn mono_ns(&self) -> f64 {
        number(self.0.now().mono)
    }
}

/// What the journal adds up to beside what the live accounts say.
#[napi(object, object_from_js = false, use_nullable = true)]
pub struct Replay {
    /// Entries that the journal no longer has.
    pub missing: f64,
    /// Accounts that were compared.
    pub compared: u32,
    /// Accounts that differ.
    pub differ: Vec<String>,
}

#[napi(js_name = "_replay")]
pub fn replayed(gate: &Gate) -> Replay {
    let gate = &gate.gate;
    let (replayed, now) = (replay(gate.journal()), gate.now());
    let (mut compared, mut differ) = (0, Vec::new());
    gate.journal().scan(&mut |entry| {
        let Event::Admitted(record) = &entry.event else { return true };
        let lineup = &record.claim.terms.deal.lineup;
        let words = gate.store().read(lineup.clone(), |words| words).unwrap_or_default();
        for (bound, word) in lineup.limits().zip(words) {
            let period = match &bound.column.window {
                Window::Fixed(calendar) => calendar.period(now.wall),
                Window::Rolling { .. } | Window::Held | Window::Run => Period::default(),
            };
            let live = bound.rule.read(word, &At { now, period }).used;
            let told = replayed.used(bound.scope, &bound.limit, now, period);
            compared += 1;
            if told != Some(live) {
                differ.push(format!("{} {}: {told:?}, live {live}", bound.scope, bound.limit));
            }
        }
        true
    });
    Replay { missing: number(replayed.missing), compared, differ }
}

/// Admits and settles so many times without JavaScript in between, in nanoseconds a time: what the binding's own cost is
/// measured against.
#[napi(js_name = "_floor")]
pub fn floor(gate: &Gate, who: &Principal, request: &Request, times: Whole32) -> f64 {
    let started = Instant::now();
    for _ in 0..times.0 {
        if let Decision::Allow(lease) = gate.gate.admit(&who.0, &request.0) {
            // What does not settle would show in the figure: it is the first ending of an open lease.
            let _ = lease.settle(core::Usage::tokens(10, 10));
        }
    }
    started.elapsed().as_nanos() as f64 / f64::from(times.0.max(1))
}

/// What the addon has allocated and not freed.
#[cfg(feature = "counted")]
mod counted {
    use std::alloc::System;

    use napi_derive::napi;
    use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

    #[global_allocator]
    static COUNTED: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

    #[napi(js_name = "_allocated")]
    pub fn allocated() -> Allocated {
        let told = COUNTED.stats();
        Allocated {
            blocks: told.allocations as f64 - told.deallocations as f64,
            bytes: told.bytes_allocated as f64 - told.bytes_deallocated as f64,
        }
    }

    #[napi(object, object_from_js = false)]
    pub struct Allocated {
        pub blocks: f64,
        pub bytes: f64,
    }
}

/// Does nothing: what a call costs.
#[napi(js_name = "_nothing")]
pub fn nothing() {}
