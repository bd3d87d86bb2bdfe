//! Leases, the meters of streams that they may pay for, and the receipts of their endings.
//!
//! Invariant: a lease is a number to `lib/`, whose class holds it: an object of the addon costs more than the whole admission.
//! What is not asked for is not made: an ending gives the number of its receipt, which is looked at later or never.

use std::cell::{Cell, RefCell};
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
use crate::{callback, errors, host, usage};

/// A lease as it came, or inside the meter of its stream.
enum Inner {
    Lease(core::Lease),
    Stream(Box<core::StreamMeter>),
    /// Nobody has it; or for as long as it moves into its meter.
    None,
}

/// What a lease and its stream share; the place of a number, which is kept for the next lease.
struct Held {
    /// A call of the meter borrows it alone, and may call the host, whose journal may ask for the lease: that is an error.
    inner: RefCell<Inner>,
    receipts: RefCell<Receipts>,
    /// The number of the receipt of its stream, once that is finished.
    finished: Cell<Option<u32>>,
}

/// The receipts of endings that differ: at most one as unresolved and one that resolves it. Mostly there is one, which takes no
/// memory of its own.
#[derive(Default)]
struct Receipts {
    first: Option<core::Receipt>,
    later: Vec<core::Receipt>,
}

impl Receipts {
    fn get(&self, place: usize) -> Option<&core::Receipt> {
        self.first.iter().chain(&self.later).nth(place)
    }

    /// The place of a receipt; its own from now on if it is new.
    fn place(&mut self, receipt: core::Receipt) -> usize {
        let Some(first) = &self.first else {
            self.first = Some(receipt);
            return 0;
        };
        if *first == receipt {
            return 0;
        }
        let known = self.later.iter().position(|known| *known == receipt);
        1 + known.unwrap_or_else(|| {
            self.later.push(receipt);
            self.later.len() - 1
        })
    }
}

impl Held {
    fn with<R>(&self, env: &Env, act: impl FnOnce(&core::Lease) -> R) -> Result<R> {
        match &*self.inner.try_borrow().map_err(|_| errors::busy(env))? {
            Inner::Lease(lease) => Ok(act(lease)),
            Inner::Stream(meter) => Ok(act(meter.lease())),
            Inner::None => Err(unknown(env)),
        }
    }

    fn meter<R>(&self, env: &Env, act: impl FnOnce(&mut core::StreamMeter) -> R) -> Result<R> {
        match &mut *self.inner.try_borrow_mut().map_err(|_| errors::busy(env))? {
            Inner::Stream(meter) => Ok(act(meter)),
            Inner::Lease(_) | Inner::None => Err(unknown(env)),
        }
    }

    /// The place of an ending's receipt, and whether it repeats an earlier one, in one number.
    fn over(&self, env: &Env, ended: std::result::Result<core::Receipt, core::EndError>) -> Result<u32> {
        let receipt = ended.map_err(|error| errors::end(env, &error))?;
        let repeat = u32::from(receipt.is_repeat());
        let place = self.receipts.borrow_mut().place(receipt.first());
        Ok(place as u32 * 2 + repeat)
    }

    fn receipt<R>(&self, env: &Env, place: u32, show: impl FnOnce(&core::Receipt) -> R) -> Result<R> {
        let receipts = self.receipts.borrow();
        receipts.get(place as usize).map(show).ok_or_else(|| type_error(*env, "there is no such receipt"))
    }

    /// Whether there is nothing for the end of a scope to do: it has ended, or its owner is another.
    fn is_over(&self, env: &Env) -> Result<bool> {
        Ok(self.receipts.borrow().first.is_some() || self.with(env, core::Lease::is_repeat)?)
    }
}

impl Held {
    fn of(lease: core::Lease) -> Held {
        Held { inner: RefCell::new(Inner::Lease(lease)), receipts: RefCell::default(), finished: Cell::new(None) }
    }

    fn take(&self, lease: core::Lease) {
        self.inner.replace(Inner::Lease(lease));
    }

    /// Lets go of all of it. Its end may be journaled, by a journal of the host's.
    fn let_go(&self) {
        drop(self.inner.replace(Inner::None));
        self.receipts.take();
        self.finished.take();
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // With its thread of JavaScript, which runs nothing any more.
        callback::collecting(|| self.let_go());
    }
}

fn unknown(env: &Env) -> napi::Error {
    type_error(*env, "there is no such lease")
}

/// About what a lease takes with its terms and its receipt, in bytes. V8 is told of it: of a lease it knows a hundred bytes, and
/// would let hundreds of thousands that nobody has any more lie about before it collects them.
const SIZE: i64 = 1400;
/// How many leases V8 is told of at once.
const BATCH: i64 = 256;

/// The leases of one thread of JavaScript, by their numbers. A number is free again once nobody can have it any more.
#[derive(Default)]
pub struct Leases {
    held: RefCell<Vec<Rc<Held>>>,
    free: RefCell<Vec<u32>>,
    /// More or, below 0, fewer leases than V8 knows of.
    untold: Cell<i64>,
}

impl Leases {
    pub fn put(&self, env: &Env, lease: core::Lease) -> Result<u32> {
        self.count(env, 1)?;
        let mut all = self.held.borrow_mut();
        match self.free.borrow_mut().pop() {
            Some(number) => {
                all[number as usize].take(lease);
                Ok(number)
            }
            None => {
                all.push(Rc::new(Held::of(lease)));
                Ok((all.len() - 1) as u32)
            }
        }
    }

    fn count(&self, env: &Env, more: i64) -> Result<()> {
        let untold = self.untold.get() + more;
        if untold.abs() < BATCH {
            self.untold.set(untold);
            return Ok(());
        }
        self.untold.set(0);
        env.adjust_external_memory(untold * SIZE).map(|_| ())
    }

    fn held(&self, env: &Env, number: u32) -> Result<Rc<Held>> {
        self.held.borrow().get(number as usize).cloned().ok_or_else(|| unknown(env))
    }

    pub fn look<R>(&self, env: &Env, number: u32, act: impl FnOnce(&core::Lease) -> R) -> Result<R> {
        self.held(env, number)?.with(env, act)
    }

    pub fn end(
        &self,
        env: &Env,
        number: u32,
        act: impl FnOnce(&core::Lease) -> std::result::Result<core::Receipt, core::EndError>,
    ) -> Result<u32> {
        let held = self.held(env, number)?;
        let ended = held.with(env, act)?;
        held.over(env, ended)
    }

    pub fn lose(&self, env: &Env, number: u32) -> Result<()> {
        // The table is free meanwhile: its end may be journaled.
        self.held(env, number)?.let_go();
        self.free.borrow_mut().push(number);
        self.count(env, -1)
    }
}

fn held(env: &Env, number: u32) -> Result<Rc<Held>> {
    host::leases(env)?.held(env, number)
}

fn look<R>(env: &Env, number: u32, act: impl FnOnce(&core::Lease) -> R) -> Result<R> {
    host::leases(env)?.look(env, number, act)
}

fn end(
    env: &Env,
    number: u32,
    act: impl FnOnce(&core::Lease) -> std::result::Result<core::Receipt, core::EndError>,
) -> Result<u32> {
    host::leases(env)?.end(env, number, act)
}

fn cause(env: &Env, name: &str) -> Result<Cause> {
    let causes = [Cause::Dropped, Cause::Expired, Cause::NoUsage, Cause::UpstreamFailed];
    causes.into_iter().find(|cause| cause.name() == name).ok_or_else(|| {
        let message = format!("cause is 'dropped', 'expired', 'no_usage' or 'upstream_failed', not {name:?}");
        type_error(*env, message)
    })
}

// What is known of a lease; `lib/lease.cjs` says what each is.

#[napi(js_name = "_leaseId")]
pub fn id(env: Env, lease: u32) -> Result<String> {
    look(&env, lease, |lease| lease.id().to_string())
}

#[napi(js_name = "_leaseRequestId")]
pub fn request_id(env: Env, lease: u32) -> Result<Option<String>> {
    look(&env, lease, |lease| lease.request_id().map(ToOwned::to_owned))
}

#[napi(js_name = "_leasePrincipal")]
pub fn principal(env: Env, lease: u32) -> Result<Principal> {
    look(&env, lease, |lease| Principal(lease.claim().terms.deal.principal.clone()))
}

#[napi(js_name = "_leaseModel")]
pub fn model(env: Env, lease: u32) -> Result<String> {
    look(&env, lease, |lease| lease.model().to_owned())
}

#[napi(js_name = "_leaseLane")]
pub fn lane(env: Env, lease: u32) -> Result<String> {
    look(&env, lease, |lease| lease.lane().to_owned())
}

#[napi(js_name = "_leaseMaxOutputTokens")]
pub fn max_output_tokens(env: Env, lease: u32) -> Result<f64> {
    look(&env, lease, |lease| number(lease.max_output_tokens()))
}

#[napi(js_name = "_leaseInputTokens")]
pub fn input_tokens(env: Env, lease: u32) -> Result<f64> {
    look(&env, lease, |lease| number(lease.input_tokens()))
}

#[napi(js_name = "_leaseExpectedOutputTokens")]
pub fn expected_output_tokens(env: Env, lease: u32) -> Result<f64> {
    look(&env, lease, |lease| number(lease.claim().terms.output_expected))
}

#[napi(js_name = "_leaseWorstUsd")]
pub fn worst_usd(env: Env, lease: u32) -> Result<String> {
    look(&env, lease, |lease| lease.claim().terms.worst_cost.to_string())
}

#[napi(js_name = "_leaseDegradation")]
pub fn degradation(env: Env, lease: u32) -> Result<Option<Degradation>> {
    look(&env, lease, |lease| lease.degradation().map(Degradation::of))
}

#[napi(js_name = "_leaseIsRepeat")]
pub fn is_repeat(env: Env, lease: u32) -> Result<bool> {
    look(&env, lease, |lease| lease.is_repeat())
}

#[napi(js_name = "_leaseRank")]
pub fn rank(env: Env, lease: u32) -> Result<u8> {
    look(&env, lease, |lease| lease.rank())
}

#[napi(js_name = "_leaseWaitedMs")]
pub fn waited_ms(env: Env, lease: u32) -> Result<f64> {
    look(&env, lease, |lease| millis(lease.waited().as_nanos()))
}

#[napi(js_name = "_leaseSoftPassed")]
pub fn soft_passed(env: Env, lease: u32) -> Result<Vec<Vec<String>>> {
    let pair = |(scope, limit): (&str, &str)| vec![scope.to_owned(), limit.to_owned()];
    look(&env, lease, |lease| lease.soft_passed().map(pair).collect())
}

#[napi(js_name = "_leaseUpstreamModel")]
pub fn upstream_model(env: Env, lease: u32) -> Result<String> {
    look(&env, lease, |lease| lease.upstream_model().to_string())
}

#[napi(js_name = "_leaseTtlMs")]
pub fn ttl_ms(env: Env, lease: u32) -> Result<f64> {
    look(&env, lease, |lease| millis(lease.ttl().as_nanos()))
}

#[napi(js_name = "_leaseIsOpen")]
pub fn is_open(env: Env, lease: u32) -> Result<bool> {
    look(&env, lease, core::Lease::is_open)
}

// What is done with it; what every request does is in `calls`.

#[napi(js_name = "_leaseRenew")]
pub fn renew(env: Env, lease: u32) -> Result<bool> {
    look(&env, lease, core::Lease::renew)
}

#[napi(js_name = "_leaseExtend")]
pub fn extend(env: Env, lease: u32, output_tokens: Count) -> Result<()> {
    look(&env, lease, |lease| lease.extend(output_tokens.0))?.map_err(|refusal| errors::refused(&env, &refusal))
}

#[napi(js_name = "_leaseProgress")]
pub fn progress(env: Env, lease: u32, output_tokens: Count) -> Result<()> {
    look(&env, lease, |lease| lease.progress(output_tokens.0))
}

#[napi(js_name = "_leasePoolRefused")]
pub fn pool_refused(env: Env, lease: u32) -> Result<()> {
    look(&env, lease, core::Lease::pool_refused)
}

// How it ends.

#[napi(js_name = "_leaseCancel")]
pub fn cancel(env: Env, lease: u32) -> Result<u32> {
    end(&env, lease, core::Lease::cancel)
}

#[napi(js_name = "_leaseUnresolved")]
pub fn unresolved(env: Env, lease: u32, cause: String, seen: Option<&Usage>) -> Result<u32> {
    let cause = self::cause(&env, &cause)?;
    end(&env, lease, |lease| lease.unresolved(cause, seen.map(|seen| seen.0.clone())))
}

#[napi(js_name = "_leaseFinish")]
pub fn finish(env: Env, lease: u32, given: Given<'_>) -> Result<u32> {
    let given = outcome(given);
    end(&env, lease, |lease| lease.finish(given))
}

#[napi(js_name = "_leaseIsOver")]
pub fn is_over(env: Env, lease: u32) -> Result<bool> {
    held(&env, lease)?.is_over(&env)
}

/// Ends a lease as unresolved if it has not ended, as dropping it does; by its stream where it has one.
#[napi(js_name = "_leaseClose")]
pub fn close(env: Env, lease: u32) -> Result<()> {
    let held = held(&env, lease)?;
    if held.is_over(&env)? {
        return Ok(());
    }
    let is_stream = matches!(&*held.inner.borrow(), Inner::Stream(_));
    let ended = match is_stream {
        true => held.meter(&env, |meter| meter.finish(|_| {}))?,
        false => held.with(&env, |lease| lease.unresolved(Cause::Dropped, None))?,
    };
    held.over(&env, ended).map(|_| ())
}

// Its stream.

#[napi(js_name = "_stream")]
pub fn stream(env: Env, lease: u32, dialect: Option<String>, strip_usage: Option<bool>) -> Result<()> {
    let dialect = usage::dialect(&env, dialect.as_deref())?;
    let held = held(&env, lease)?;
    let mut inner = held.inner.try_borrow_mut().map_err(|_| errors::busy(&env))?;
    match std::mem::replace(&mut *inner, Inner::None) {
        Inner::Lease(lease) => {
            let meter = lease.stream(dialect).strip_usage(strip_usage.unwrap_or(false));
            *inner = Inner::Stream(Box::new(meter));
            Ok(())
        }
        other => {
            *inner = other;
            Err(type_error(env, "the lease has a stream already"))
        }
    }
}

/// Takes the next bytes of the upstream; nothing where they go on to the asker as they are.
#[napi(js_name = "_streamFeed")]
pub fn feed(env: Env, lease: u32, chunk: Uint8ArraySlice<'_>) -> Result<Option<Buffer>> {
    let chunk: &[u8] = &chunk;
    let mut passed = Vec::with_capacity(chunk.len());
    held(&env, lease)?.meter(&env, |meter| meter.feed(chunk, |bytes| passed.extend_from_slice(bytes)))?;
    Ok((passed != chunk).then(|| passed.into()))
}

#[napi(js_name = "_streamKeep")]
pub fn keep(env: Env, lease: u32) -> Result<()> {
    held(&env, lease)?.meter(&env, core::StreamMeter::keep)?.map_err(|refusal| errors::refused(&env, &refusal))
}

#[napi(js_name = "_streamOutputSoFar")]
pub fn output_so_far(env: Env, lease: u32) -> Result<f64> {
    held(&env, lease)?.meter(&env, |meter| number(meter.output_so_far()))
}

#[napi(js_name = "_streamIsDone")]
pub fn is_done(env: Env, lease: u32) -> Result<bool> {
    held(&env, lease)?.meter(&env, |meter| meter.is_done())
}

/// Ends the stream; the bytes that go on to the asker.
#[napi(js_name = "_streamFinish")]
pub fn finish_stream(env: Env, lease: u32) -> Result<Buffer> {
    let held = held(&env, lease)?;
    let mut tail = Vec::new();
    if held.finished.get().is_none() {
        let ended = held.meter(&env, |meter| meter.finish(|bytes| tail.extend_from_slice(bytes)))?;
        held.finished.set(Some(held.over(&env, ended)?));
    }
    Ok(tail.into())
}

/// The number of the receipt, once it is finished.
#[napi(js_name = "_streamFinished")]
pub fn finished(env: Env, lease: u32) -> Result<Option<u32>> {
    Ok(held(&env, lease)?.finished.get())
}

// The receipts of its endings.

#[napi(js_name = "_receiptLeaseId")]
pub fn receipt_lease_id(env: Env, lease: u32, place: u32) -> Result<String> {
    held(&env, lease)?.receipt(&env, place, |receipt| receipt.lease().to_string())
}

#[napi(js_name = "_receiptRequestId")]
pub fn receipt_request_id(env: Env, lease: u32, place: u32) -> Result<Option<String>> {
    held(&env, lease)?.receipt(&env, place, |receipt| receipt.request_id().map(ToOwned::to_owned))
}

#[napi(js_name = "_receiptOutcome")]
pub fn receipt_outcome(env: Env, lease: u32, place: u32) -> Result<&'static str> {
    held(&env, lease)?.receipt(&env, place, |receipt| receipt.outcome())
}

#[napi(js_name = "_receiptLate")]
pub fn receipt_late(env: Env, lease: u32, place: u32) -> Result<bool> {
    held(&env, lease)?.receipt(&env, place, |receipt| receipt.is_late())
}

#[napi(js_name = "_receiptCostUsd")]
pub fn receipt_cost_usd(env: Env, lease: u32, place: u32) -> Result<String> {
    held(&env, lease)?.receipt(&env, place, |receipt| receipt.cost().to_string())
}

#[napi(js_name = "_receiptUsage")]
pub fn receipt_usage(env: Env, lease: u32, place: u32) -> Result<Option<Usage>> {
    held(&env, lease)?.receipt(&env, place, |receipt| receipt.usage().map(Usage))
}

#[napi(js_name = "_receiptHeld")]
pub fn receipt_held(env: Env, lease: u32, place: u32) -> Result<Amounts> {
    held(&env, lease)?.receipt(&env, place, |receipt| Amounts::of(&receipt.held()))
}

#[napi(js_name = "_receiptCharged")]
pub fn receipt_charged(env: Env, lease: u32, place: u32) -> Result<Amounts> {
    held(&env, lease)?.receipt(&env, place, |receipt| Amounts::of(&receipt.charged()))
}

#[napi(js_name = "_receiptReturned")]
pub fn receipt_returned(env: Env, lease: u32, place: u32) -> Result<Amounts> {
    held(&env, lease)?.receipt(&env, place, |receipt| each(|meter| receipt.returned(meter)))
}

#[napi(js_name = "_receiptOverrun")]
pub fn receipt_overrun(env: Env, lease: u32, place: u32) -> Result<Amounts> {
    held(&env, lease)?.receipt(&env, place, |receipt| each(|meter| receipt.overrun(meter)))
}

fn each(of: impl Fn(Meter) -> u64) -> Amounts {
    let sum = Meter::ALL.into_iter().fold(CoreAmounts::default(), |sum, meter| sum.with(meter, of(meter)));
    Amounts::of(&sum)
}

/// All of a receipt, where no lease is at hand.
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
        ReceiptData {
            lease_id: receipt.lease().to_string(),
            request_id: receipt.request_id().map(ToOwned::to_owned),
            outcome: receipt.outcome(),
            usage: receipt.usage().map(Usage),
            cost_usd: receipt.cost().to_string(),
            held: Amounts::of(&receipt.held()),
            charged: Amounts::of(&receipt.charged()),
            returned: each(|meter| receipt.returned(meter)),
            overrun: each(|meter| receipt.overrun(meter)),
            late: receipt.is_late(),
            repeat: receipt.is_repeat(),
        }
    }
}
