//! The host: what `lib/` hands over when the addon is loaded, by each copy of `lib/` in a thread.
//!
//! Invariant: nothing of one thread of JavaScript is reachable from another's.

use std::rc::Rc;

use napi::bindgen_prelude::{FnArgs, Function, FunctionRef, Object, Unknown};
use napi::{Env, Error, Result, Status};
use napi_derive::napi;

use crate::calls;
use crate::lease::Leases;
use crate::refusal::Refusal;

/// `(class, message, fields as JSON, refusal) => error`.
type MakeError = FnArgs<(&'static str, String, String, Option<Refusal>)>;

struct Host {
    error: FunctionRef<MakeError, Unknown<'static>>,
    leases: Rc<Leases>,
}

/// Called by `lib/` before anything else; what it gives are the calls that every request makes.
#[napi(js_name = "_setup")]
pub fn setup<'env>(env: &'env Env, error: Function<'_, MakeError, Unknown<'static>>) -> Result<Object<'env>> {
    // Where a thread loads `lib/` again, the copies share this addon: a number of one must never be another's lease.
    let leases = env.get_instance_data::<Host>()?.map_or_else(Rc::default, |host| host.leases.clone());
    env.set_instance_data(Host { error: error.create_ref()?, leases: leases.clone() }, (), |_| {})?;
    calls::all(env, &leases)
}

fn host(env: &Env) -> Result<&'static Host> {
    let host = env.get_instance_data::<Host>()?;
    host.map(|host| &*host).ok_or_else(|| Error::new(Status::GenericFailure, "the addon is loaded by `lib/` alone"))
}

/// The leases of this thread.
pub fn leases(env: &Env) -> Result<&'static Rc<Leases>> {
    Ok(&host(env)?.leases)
}

/// An error of one of the classes of `lib/errors.cjs`.
pub fn error(
    env: &Env,
    class: &'static str,
    message: String,
    fields: &serde_json::Value,
    refusal: Option<Refusal>,
) -> Error {
    let made = || host(env)?.error.borrow_back(env)?.call((class, message, fields.to_string(), refusal).into());
    match made() {
        Ok(error) => error.into(),
        Err(error) => error,
    }
}
