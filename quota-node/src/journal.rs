//! The journal: its entries as JSON, and handing them on to an object of the host's.

use napi::bindgen_prelude::Function;
use napi::{Env, Result};
use quota_core as core;
use quota_core::journal::{Entry, Ring};
use serde_json::{Value, json};

use crate::callback::{Callback, Text, text};

/// The entries after a number that the journal holds, oldest first, and how many it has lost.
pub fn entries(gate: &core::Gate, after: Option<u64>) -> String {
    let mut entries = Vec::new();
    gate.journal().scan(&mut |entry| {
        if after.is_none_or(|after| entry.seq > after) {
            entries.push(entry.to_json());
        }
        true
    });
    json!({ "entries": entries, "dropped": gate.journal().dropped() }).to_string()
}

pub fn list(entries: &[Entry]) -> String {
    Value::Array(entries.iter().map(Entry::to_json).collect()).to_string()
}

/// The usual journal, which hands every entry to the host as well.
pub fn telling(env: Env, push: Function<'_, Text, ()>, posted: Function<'_, Text, ()>) -> Result<Ring> {
    let push = Callback::new(env, push, posted)?;
    Ok(Ring::default().telling(move |entry| {
        // Where it is posted, or nobody is there any more, there is no answer.
        let _ = push.call(text(entry.to_json()));
    }))
}
