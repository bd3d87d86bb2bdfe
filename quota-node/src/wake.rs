//! Waking: how a promise hears, from whichever thread, that a turn has come.
//!
//! Invariant: a waker waits for nothing: it puts a message into the loop's queue, and asks for no JavaScript.

use std::sync::{Arc, Mutex, PoisonError};
use std::task::Wake;

use napi::bindgen_prelude::Object;
use napi::{Env, JsDeferred, Result};

type Settle = fn(Env) -> Result<()>;

/// Resolves a promise once.
pub struct Bell(Mutex<Option<JsDeferred<(), Settle>>>);

impl Bell {
    /// A bell and the promise that it resolves, with nothing. The promise keeps the process alive until then.
    pub fn new(env: &Env) -> Result<(Arc<Bell>, Object<'_>)> {
        let (deferred, promise) = env.create_deferred::<(), Settle>()?;
        Ok((Arc::new(Bell(Mutex::new(Some(deferred)))), promise))
    }

    pub fn ring(&self) {
        let deferred = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(deferred) = deferred {
            deferred.resolve(|_| Ok(()));
        }
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.ring();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ring();
    }
}
