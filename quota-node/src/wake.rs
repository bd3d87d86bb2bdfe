//! Waking: how a promise hears, from whichever thread, that a turn has come.
//!
//! Invariant: a waker waits for nothing: it puts a message into the loop's queue, and asks for no JavaScript.

use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Wake, Waker};

use napi::bindgen_prelude::Object;
use napi::{Env, JsDeferred, Result};

type Settle = fn(Env) -> Result<()>;

/// Resolves a promise once, with nothing.
struct Bell(Mutex<Option<JsDeferred<(), Settle>>>);

impl Bell {
    fn ring(&self) {
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

/// Whoever is told of a place's turn. To be rung when the place goes, so that nobody waits for one that is gone.
#[derive(Default)]
pub struct Waiting(Option<Arc<Bell>>);

impl Waiting {
    /// A promise of the moment at which `is_due` or the waker that it is handed says so; until then it keeps the process
    /// alive. Whoever was told before is told to look again.
    pub fn due<'env>(&mut self, env: &'env Env, is_due: impl FnOnce(&Waker) -> bool) -> Result<Object<'env>> {
        self.ring();
        let (deferred, promise) = env.create_deferred::<(), Settle>()?;
        let bell = Arc::new(Bell(Mutex::new(Some(deferred))));
        if is_due(&Waker::from(bell.clone())) {
            bell.ring();
        }
        self.0 = Some(bell);
        Ok(promise)
    }

    pub fn ring(&mut self) {
        if let Some(bell) = self.0.take() {
            bell.ring();
        }
    }
}
