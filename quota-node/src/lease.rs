//! The lease, the meter of a stream that it may pay for, and the receipt of its ending.
//!
//! Invariant: what is not asked for is not made: an ending gives the number of its receipt, which is looked at later or
//! never.

use std::cell::RefCell;
use std::rc::Rc;

use napi::bindgen_prelude::{Buffer, Uint8ArraySlice};
use napi::{Env, Result};
use napi_derive::napi;
use quota_core as core;
use quota_core::lease::Cause;
use quota_core::units::{Amounts as CoreAmounts, Meter};

use crate::convert::{Amounts, millis, number};
use crate::count::{Count, type_error};
use crate::principal::Principal;
use crate::refusal::Degradation;
use crate::usage::{Given, Usage, outcome};
use crate::{callback, errors, usage};

/// A lease as it came, or inside the meter of its stream.
enum Inner {
    Lease(core::Lease),
    Stream(Box<core::StreamMeter>),
    /// Only while it moves into its meter.
    Moving,
}

/// What a lease and its stream share.
struct Held {
    /// `Inner::Moving` also once it is dropped.
    inner: RefCell<Inner>,
    /// Of its endings that differ: at most one as unresolved and one that resolves it.
    receipts: RefCell<Vec<core::Receipt>>,
}

impl Held {
    fn with<R>(&self, act: impl FnOnce(&core::Lease) -> R) -> R {
        match &*self.inner.borrow() {
            Inner::Lease(lease) => act(lease),
            Inner::Stream(meter) => act(meter.lease()),
            Inner::Moving => unreachable!("a lease moves into its meter under an exclusive borrow"),
        }
    }

    fn meter<R>(&self, act: impl FnOnce(&mut core::StreamMeter) -> R) -> R {
        match &mut *self.inner.borrow_mut() {
            Inner::Stream(meter) => act(meter),
            Inner::Lease(_) | Inner::Moving => unreachable!("a stream is made by moving its lease into its meter"),
        }
    }

    /// The place of an ending's receipt, and whether it repeats an earlier one, in one number.
    fn over(&self, env: &Env, ended: std::result::Result<core::Receipt, core::EndError>) -> Result<u32> {
        let receipt = ended.map_err(|error| errors::end(env, &error))?;
        let repeat = u32::from(receipt.repeat);
        let mut receipts = self.receipts.borrow_mut();
        let first = core::Receipt { repeat: false, ..receipt };
        let place = receipts.iter().position(|known| *known == first).unwrap_or_else(|| {
            receipts.push(first);
            receipts.len() - 1
        });
        Ok(place as u32 * 2 + repeat)
    }

    /// Whether there is nothing for the end of a scope to do: it has ended, or its owner is another.
    fn is_over(&self) -> bool {
        !self.receipts.borrow().is_empty() || self.with(core::Lease::is_repeat)
    }

    /// Ends a lease as unresolved if it has not ended, as dropping it does; by its stream where it has one.
    fn close(&self, env: &Env) -> Option<Result<u32>> {
        if self.is_over() {
            return None;
        }
        let ended = match &mut *self.inner.borrow_mut() {
            Inner::Lease(lease) => lease.unresolved(Cause::Dropped, None),
            Inner::Stream(meter) => meter.finish(|_| {}),
            Inner::Moving => unreachable!("a lease moves into its meter under an exclusive borrow"),
        };
        Some(self.over(env, ended))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // What is dropped here was collected: its end may be journaled, by a journal of the host's.
        callback::collecting(|| drop(self.inner.replace(Inner::Moving)));
    }
}

fn cause(env: &Env, name: &str) -> Result<Cause> {
    let causes = [Cause::Dropped, Cause::Expired, Cause::NoUsage, Cause::UpstreamFailed];
    causes.into_iter().find(|cause| cause.name() == name).ok_or_else(|| {
        let message = format!("cause is 'dropped', 'expired', 'no_usage' or 'upstream_failed', not {name:?}");
        type_error(*env, message)
    })
}

/// An admitted request.
#[napi]
pub struct Lease(Rc<Held>);

impl Lease {
    pub fn new(lease: core::Lease) -> Lease {
        Lease(Rc::new(Held { inner: RefCell::new(Inner::Lease(lease)), receipts: RefCell::default() }))
    }
}

#[napi]
impl Lease {
    #[napi(getter)]
    pub fn id(&self) -> String {
        self.0.with(|lease| lease.id().to_string())
    }

    #[napi(getter)]
    pub fn request_id(&self) -> Option<String> {
        self.0.with(|lease| lease.request_id().map(ToOwned::to_owned))
    }

    /// Who asked.
    #[napi(getter)]
    pub fn principal(&self) -> Principal {
        self.0.with(|lease| Principal(lease.claim().terms.principal.clone()))
    }

    /// The model to run on.
    #[napi(getter)]
    pub fn model(&self) -> String {
        self.0.with(|lease| lease.model().to_owned())
    }

    /// The lane to run in.
    #[napi(getter)]
    pub fn lane(&self) -> String {
        self.0.with(|lease| lease.lane().to_owned())
    }

    /// The largest output over all choices that was agreed: what to tell the upstream.
    #[napi(getter)]
    pub fn max_output_tokens(&self) -> f64 {
        self.0.with(|lease| number(lease.max_output_tokens()))
    }

    /// The input that was reserved.
    #[napi(getter)]
    pub fn input_tokens(&self) -> f64 {
        self.0.with(|lease| number(lease.input_tokens()))
    }

    /// The output that limits hold which hold the learned length.
    #[napi(getter)]
    pub fn expected_output_tokens(&self) -> f64 {
        self.0.with(|lease| number(lease.claim().terms.output_expected))
    }

    /// The worst case in money.
    #[napi(getter)]
    pub fn worst_usd(&self) -> String {
        self.0.with(|lease| lease.claim().terms.worst_cost.to_string())
    }

    /// In which lesser form it must run; `null` as asked.
    #[napi(getter)]
    pub fn degradation(&self) -> Option<Degradation> {
        self.0.with(|lease| lease.degradation().map(Degradation::of))
    }

    /// Whether another request under the same id has this lease already: its holder runs it.
    #[napi(getter)]
    pub fn is_repeat(&self) -> bool {
        self.0.with(core::Lease::is_repeat)
    }

    /// The place of its lane among the policy's, 0 the first.
    #[napi(getter)]
    pub fn rank(&self) -> u8 {
        self.0.with(core::Lease::rank)
    }

    /// How long it waited for its turn.
    #[napi(getter)]
    pub fn waited_ms(&self) -> f64 {
        self.0.with(|lease| millis(lease.waited().as_nanos()))
    }

    /// Limits whose soft amount is passed with this request: scope and name.
    #[napi(getter)]
    pub fn soft_passed(&self) -> Vec<Vec<String>> {
        let pair = |(scope, limit): (&str, &str)| vec![scope.to_owned(), limit.to_owned()];
        self.0.with(|lease| lease.soft_passed().map(pair).collect())
    }

    /// Marks that bytes are about to leave; `false` if the lease has ended meanwhile, and the request must not be sent.
    #[napi]
    pub fn sent(&self) -> bool {
        self.0.with(core::Lease::sent)
    }

    /// A heartbeat; `false` if the lease has ended meanwhile.
    #[napi]
    pub fn renew(&self) -> bool {
        self.0.with(core::Lease::renew)
    }

    /// Raises the hold by so many output tokens, on every limit or on none: throws `Refused` where one has no room.
    #[napi]
    pub fn extend(&self, env: Env, output_tokens: Count) -> Result<()> {
        self.0.with(|lease| lease.extend(output_tokens.0)).map_err(|refusal| errors::refused(&env, &refusal))
    }

    /// Tells the queue how far the answer is.
    #[napi]
    pub fn progress(&self, output_tokens: Count) {
        self.0.with(|lease| lease.progress(output_tokens.0));
    }

    /// Tells that the pool itself refused the request for lack of room. The lease has still to be ended.
    #[napi]
    pub fn pool_refused(&self) {
        self.0.with(core::Lease::pool_refused);
    }

    #[napi(js_name = "_settle")]
    pub fn settle(&self, env: Env, usage: &Usage) -> Result<u32> {
        let ended = self.0.with(|lease| lease.settle(usage.0.clone()));
        self.0.over(&env, ended)
    }

    #[napi(js_name = "_cancel")]
    pub fn cancel(&self, env: Env) -> Result<u32> {
        let ended = self.0.with(core::Lease::cancel);
        self.0.over(&env, ended)
    }

    #[napi(js_name = "_unresolved")]
    pub fn unresolved(&self, env: Env, cause: String, seen: Option<&Usage>) -> Result<u32> {
        let cause = self::cause(&env, &cause)?;
        let ended = self.0.with(|lease| lease.unresolved(cause, seen.map(|seen| seen.0.clone())));
        self.0.over(&env, ended)
    }

    #[napi(js_name = "_finish")]
    pub fn finish(&self, env: Env, given: Given<'_>) -> Result<u32> {
        let given = outcome(given);
        let ended = self.0.with(|lease| lease.finish(given));
        self.0.over(&env, ended)
    }

    #[napi(js_name = "_stream")]
    pub fn stream(&self, env: Env, dialect: Option<String>, strip_usage: Option<bool>) -> Result<Stream> {
        let dialect = usage::dialect(&env, dialect.as_deref())?;
        let mut inner = self.0.inner.borrow_mut();
        match std::mem::replace(&mut *inner, Inner::Moving) {
            Inner::Lease(lease) => {
                let meter = lease.stream(dialect).strip_usage(strip_usage.unwrap_or(false));
                *inner = Inner::Stream(Box::new(meter));
                Ok(Stream { held: self.0.clone(), ended: None })
            }
            other => {
                *inner = other;
                Err(type_error(env, "the lease has a stream already"))
            }
        }
    }

    #[napi(getter, js_name = "_isOver")]
    pub fn is_over(&self) -> bool {
        self.0.is_over()
    }

    #[napi(js_name = "_close")]
    pub fn close(&self, env: Env) -> Result<Option<u32>> {
        self.0.close(&env).transpose()
    }

    #[napi(js_name = "_receipt")]
    pub fn receipt(&self, place: u32) -> Option<ReceiptData> {
        self.0.receipts.borrow().get(place as usize).map(ReceiptData::of)
    }
}

/// The meter of a streamed answer.
#[napi(js_name = "_Stream")]
pub struct Stream {
    held: Rc<Held>,
    ended: Option<u32>,
}

#[napi]
impl Stream {
    /// Takes the next bytes of the upstream; nothing where they go on to the asker as they are.
    #[napi]
    pub fn feed(&self, chunk: Uint8ArraySlice<'_>) -> Option<Buffer> {
        let chunk: &[u8] = &chunk;
        let mut passed = Vec::with_capacity(chunk.len());
        self.held.meter(|meter| meter.feed(chunk, |bytes| passed.extend_from_slice(bytes)));
        (passed != chunk).then(|| passed.into())
    }

    /// Sends the heartbeat and raises the hold, where either is due.
    #[napi]
    pub fn keep(&self, env: Env) -> Result<()> {
        self.held.meter(core::StreamMeter::keep).map_err(|refusal| errors::refused(&env, &refusal))
    }

    #[napi(getter)]
    pub fn output_so_far(&self) -> f64 {
        self.held.meter(|meter| number(meter.output_so_far()))
    }

    /// Ends the stream; the bytes that go on to the asker.
    #[napi]
    pub fn finish(&mut self, env: Env) -> Result<Buffer> {
        let mut tail = Vec::new();
        if self.ended.is_none() {
            let ended = self.held.meter(|meter| meter.finish(|bytes| tail.extend_from_slice(bytes)));
            self.ended = Some(self.held.over(&env, ended)?);
        }
        Ok(tail.into())
    }

    /// The number of the receipt, once it is finished.
    #[napi(getter)]
    pub fn ended(&self) -> Option<u32> {
        self.ended
    }
}

/// What finalizing did; the same on every repeat but for `repeat`.
#[napi(object, object_from_js = false, use_nullable = true)]
pub struct ReceiptData {
    pub lease_id: String,
    pub request_id: Option<String>,
    pub outcome: &'static str,
    pub usage: Option<Usage>,
    pub cost_usd: String,
    pub held: Amounts,
    pub charged: Amounts,
    pub returned: Amounts,
    pub overrun: Amounts,
    pub late: bool,
    pub repeat: bool,
}

impl ReceiptData {
    pub fn of(receipt: &core::Receipt) -> ReceiptData {
        let each = |of: &dyn Fn(Meter) -> u64| {
            let sum = Meter::ALL.into_iter().fold(CoreAmounts::default(), |sum, meter| sum.with(meter, of(meter)));
            Amounts::of(&sum)
        };
        ReceiptData {
            lease_id: receipt.lease.to_string(),
            request_id: receipt.request_id.as_deref().map(ToOwned::to_owned),
            outcome: receipt.outcome,
            usage: receipt.usage.clone().map(Usage),
            cost_usd: receipt.cost.to_string(),
            held: Amounts::of(&receipt.held),
            charged: Amounts::of(&receipt.charged),
            returned: each(&|meter| receipt.returned(meter)),
            overrun: each(&|meter| receipt.overrun(meter)),
            late: receipt.late,
            repeat: receipt.repeat,
        }
    }
}
