//! The calls that every request makes, as closures.
//!
//! Invariant: they do what a function of napi's does, for less: what that notes of each object that it is handed, in maps
//! under locks, costs more than the call. No object that they are handed is ever changed.

use std::rc::Rc;

use napi::bindgen_prelude::{ClassInstance, Function, FunctionCallContext, Object, Uint32ArraySlice};
use napi::{Env, Result};
use quota_core as core;

use crate::count::type_error;
use crate::decision::{Decided, decided};
use crate::lease::Leases;
use crate::principal::Principal;
use crate::request::Request;
use crate::usage::{self, Usage};

/// All of them, by their names. They have the leases of the thread at hand.
pub fn all<'env>(env: &'env Env, leases: &Rc<Leases>) -> Result<Object<'env>> {
    let mut all = Object::new(env)?;
    let of = leases.clone();
    let sent = move |call: FunctionCallContext<'_>| of.look(call.env, call.get(0)?, core::Lease::sent);
    all.set("_leaseSent", env.create_function_from_closure::<(), _, _>("_leaseSent", sent)?)?;
    let of = leases.clone();
    let settle = move |call: FunctionCallContext<'_>| {
        let usage = instance::<Usage>(&call, 1, "settle: a Usage is wanted")?;
        of.end(call.env, call.get(0)?, |lease| lease.settle(usage.0.clone()))
    };
    all.set("_leaseSettle", env.create_function_from_closure::<(), _, _>("_leaseSettle", settle)?)?;
    let of = leases.clone();
    // With a report, without an object of its usage in between.
    let settle_text = move |call: FunctionCallContext<'_>| {
        let (report, dialect) = (call.get::<String>(1)?, call.get::<Option<String>>(2)?);
        let usage = usage::read(call.env, &report, dialect.as_deref())?;
        of.end(call.env, call.get(0)?, |lease| lease.settle(usage))
    };
    all.set("_leaseSettleText", env.create_function_from_closure::<(), _, _>("_leaseSettleText", settle_text)?)?;
    let of = leases.clone();
    // Nobody has so many of these any more.
    let lost = move |call: FunctionCallContext<'_>| {
        let (numbers, count) = (call.get::<Uint32ArraySlice<'_>>(0)?, call.get::<u32>(1)?);
        // Not read meanwhile: the host's journal may be told of their ends.
        let numbers: Vec<u32> = numbers.iter().take(count as usize).copied().collect();
        // An error at one leaves none of the others held; the first is told.
        numbers.into_iter().map(|number| of.lose(call.env, number)).fold(Ok(()), Result::and)
    };
    all.set("_leasesLost", env.create_function_from_closure::<(), _, _>("_leasesLost", lost)?)?;
    Ok(all)
}

/// The call that decides, of one gate.
pub fn admit<'env>(env: &'env Env, leases: &Rc<Leases>, gate: &core::Gate) -> Result<Function<'env, (), Decided>> {
    let (leases, gate) = (leases.clone(), gate.clone());
    env.create_function_from_closure("_admit", move |call| {
        let who = instance::<Principal>(&call, 0, "admit: a Principal is wanted")?;
        let request = instance::<Request>(&call, 1, "admit: a Request is wanted")?;
        decided(call.env, &leases, gate.admit(&who.0, &request.0))
    })
}

fn instance<'a, T: 'static>(
    call: &FunctionCallContext<'a>,
    place: usize,
    wanted: &str,
) -> Result<ClassInstance<'a, T>> {
    // What it says of an object that is another names a type of Rust's.
    call.get(place).map_err(|_| type_error(*call.env, wanted))
}
