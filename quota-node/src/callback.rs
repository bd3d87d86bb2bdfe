//! Callbacks: calling what the host has written in JavaScript, from whatever thread the core happens to be in.
//!
//! Invariant: JavaScript runs on its own thread alone, and never while its garbage is collected: from elsewhere a call is
//! posted to the loop, which a posted call does not keep alive. What is called throws nothing: `lib/` sees to that.

use std::cell::Cell;
use std::thread::ThreadId;

use napi::bindgen_prelude::{FnArgs, FromNapiValue, Function, FunctionRef, JsValuesTupleIntoVec};
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use napi::{Env, Result, Status};

thread_local! {
    /// Whether this thread is in a finalizer.
    static COLLECTING: Cell<bool> = const { Cell::new(false) };
    /// How many callbacks of this thread are being called, one out of the other.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// A callback that calls the gate, which calls it, and so on: from this depth on it is posted. Nothing else would end it but
/// the end of the stack, through which Node does not always come alive.
const DEEPEST: u32 = 8;

/// Runs what a finalizer does.
pub fn collecting<R>(run: impl FnOnce() -> R) -> R {
    let before = COLLECTING.replace(true);
    let result = run();
    COLLECTING.set(before);
    result
}

/// A function of the host's with one argument.
pub struct Callback<A, R>
where
    A: JsValuesTupleIntoVec + 'static,
    R: FromNapiValue + 'static,
{
    thread: ThreadId,
    env: usize,
    function: FunctionRef<A, R>,
    posted: ThreadsafeFunction<A, (), A, Status, false, true>,
}

impl<A, R> Callback<A, R>
where
    A: JsValuesTupleIntoVec + 'static,
    R: FromNapiValue + 'static,
{
    /// `posted` is called in place of `function` where JavaScript can't run at once; its answer reaches nobody.
    pub fn new(env: Env, function: Function<'_, A, R>, posted: Function<'_, A, ()>) -> Result<Callback<A, R>> {
        Ok(Callback {
            thread: std::thread::current().id(),
            env: env.raw() as usize,
            function: function.create_ref()?,
            posted: posted.build_threadsafe_function().weak::<true>().build()?,
        })
    }

    /// The answer; `None` where the call is posted, or the thread of the host is going down.
    pub fn call(&self, argument: A) -> Option<R> {
        if std::thread::current().id() != self.thread || COLLECTING.get() || DEPTH.get() >= DEEPEST {
            // It fails where there is no loop any more.
            self.posted.call(argument, ThreadsafeFunctionCallMode::NonBlocking);
            return None;
        }
        let env = Env::from_raw(self.env as *mut _);
        DEPTH.set(DEPTH.get() + 1);
        let answer = self.function.borrow_back(&env).and_then(|function| function.call(argument));
        DEPTH.set(DEPTH.get() - 1);
        answer.ok()
    }
}

/// An argument that is one text.
pub type Text = FnArgs<(String,)>;

pub fn text(text: impl ToString) -> Text {
    (text.to_string(),).into()
}
