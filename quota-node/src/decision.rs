//! Decisions: the place in the queue that one of them holds, and what a preview found.

use std::cell::RefCell;
use std::sync::Arc;
use std::task::{Context, Waker};

use napi::bindgen_prelude::{Either4, Object};
use napi::{Env, Result};
use napi_derive::napi;
use quota_core as core;
use quota_core::gate::Queued;

use crate::convert::millis;
use crate::gate::Gate;
use crate::lease::Leases;
use crate::principal::Principal;
use crate::refusal::{Degradation, Offer, Refusal};
use crate::request::Request;
use crate::wake::Waiting;
use crate::{callback, errors, host};

/// What deciding came to, a lease by its number; `lib/` makes a `Decision` of it, which costs it less than the addon.
pub type Decided = Either4<u32, Degraded, Waits, Refusal>;

pub fn decided(env: &Env, leases: &Leases, decision: core::Decision<core::Lease>) -> Result<Decided> {
    Ok(match decision {
        core::Decision::Allow(lease) => Either4::A(leases.put(env, lease)?),
        core::Decision::Degrade(lease, degradation) => Either4::B(Degraded { lease: Some(lease), degradation }),
        core::Decision::Queue(queued) => Either4::C(Waits::new(queued)),
        core::Decision::Reject(refusal) => Either4::D(Refusal::new(refusal)),
    })
}

/// A lease in a lesser form.
#[napi(js_name = "_Degraded")]
pub struct Degraded {
    lease: Option<core::Lease>,
    degradation: core::gate::Degradation,
}

#[napi]
impl Degraded {
    #[napi(getter)]
    pub fn degradation(&self) -> Degradation {
        Degradation::of(&self.degradation)
    }

    /// The number of the lease, once.
    #[napi]
    pub fn take(&mut self, env: Env) -> Result<Option<u32>> {
        self.lease.take().map(|lease| host::leases(&env)?.put(&env, lease)).transpose()
    }
}

/// A request that waits.
#[napi(js_name = "_Waits")]
pub struct Waits {
    lane: Arc<str>,
    pool: Arc<str>,
    max_wait_ms: f64,
    refusal: Arc<core::Refusal>,
    /// `None` once it has left. Nothing is called while it is borrowed: what is may be the host's, which gets here again.
    place: RefCell<Option<Queued>>,
    waiting: RefCell<Waiting>,
}

impl Waits {
    fn new(queued: Queued) -> Waits {
        Waits {
            lane: queued.lane.clone(),
            pool: queued.pool.clone(),
            max_wait_ms: millis(queued.max_wait.as_nanos()),
            refusal: queued.refusal.clone(),
            place: RefCell::new(Some(queued)),
            waiting: RefCell::default(),
        }
    }
}

#[napi]
impl Waits {
    #[napi(getter)]
    pub fn reason(&self) -> &'static str {
        self.refusal.reason.code()
    }

    #[napi(getter)]
    pub fn refusal(&self) -> Refusal {
        Refusal::new(self.refusal.clone())
    }

    #[napi(getter)]
    pub fn lane(&self) -> &str {
        &self.lane
    }

    #[napi(getter)]
    pub fn pool(&self) -> &str {
        &self.pool
    }

    #[napi(getter)]
    pub fn max_wait_ms(&self) -> f64 {
        self.max_wait_ms
    }

    #[napi(getter)]
    pub fn is_due(&self) -> bool {
        self.place.borrow().as_ref().is_none_or(Queued::is_due)
    }

    /// A promise of the moment when asking again may bring something else; nothing if that is so already.
    #[napi]
    pub fn due<'env>(&self, env: &'env Env) -> Result<Option<Object<'env>>> {
        let place = self.place.borrow();
        let Some(place) = place.as_ref().filter(|place| !place.is_due()) else { return Ok(None) };
        let is_due = |waker: &Waker| place.poll_due(&mut Context::from_waker(waker)).is_ready();
        self.waiting.borrow_mut().due(env, is_due).map(Some)
    }

    /// Decides again, with the place, which this has no longer.
    #[napi]
    pub fn again(&self, env: Env, gate: &Gate, who: &Principal, request: &Request) -> Result<Decided> {
        self.waiting.borrow_mut().ring();
        let place = self.place.take().ok_or_else(|| errors::left(&env))?;
        decided(&env, host::leases(&env)?, gate.gate.admit_again(place, &who.0, &request.0))
    }

    /// Gives the place up.
    #[napi]
    pub fn leave(&self) {
        // A turn that has come and was not picked up goes to the next.
        drop(self.place.take());
        self.waiting.borrow_mut().ring();
    }
}

impl Drop for Degraded {
    fn drop(&mut self) {
        callback::collecting(|| drop(self.lease.take()));
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        callback::collecting(|| drop(self.place.take()));
        self.waiting.borrow_mut().ring();
    }
}

/// What `preview` found.
#[napi(object, object_from_js = false, use_nullable = true)]
pub struct PreviewData {
    pub action: &'static str,
    pub reason: Option<&'static str>,
    pub offer: Option<Offer>,
    pub degradation: Option<Degradation>,
    pub refusal: Option<Refusal>,
    pub lane: Option<String>,
    pub max_wait_ms: Option<f64>,
}

impl PreviewData {
    pub fn of(decision: core::Decision<core::gate::Offer>) -> PreviewData {
        let (action, reason) = (decision.action(), decision.reason().map(core::Reason::code));
        let mut made = PreviewData {
            action,
            reason,
            offer: None,
            degradation: None,
            refusal: None,
            lane: None,
            max_wait_ms: None,
        };
        match decision {
            core::Decision::Allow(offer) => made.offer = Some(Offer::of(&offer)),
            core::Decision::Degrade(offer, degradation) => {
                made.offer = Some(Offer::of(&offer));
                made.degradation = Some(Degradation::of(&degradation));
            }
            core::Decision::Queue(queued) => {
                made.lane = Some(queued.lane.to_string());
                made.max_wait_ms = Some(millis(queued.max_wait.as_nanos()));
                made.refusal = Some(Refusal::new(queued.refusal));
            }
            core::Decision::Reject(refusal) => made.refusal = Some(Refusal::new(refusal)),
        }
        made
    }
}
