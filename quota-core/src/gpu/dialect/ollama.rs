//! Ollama's `/api/ps`: what is loaded.
//!
//! Floor 2. Invariant: there are no figures of load, and none is made up.

use serde::Deserialize;

use super::{MAX_JSON, MAX_MODELS, Read, Unreadable, json};

#[derive(Deserialize)]
struct Loaded {
    models: Vec<Model>,
}

#[derive(Deserialize)]
struct Model {
    name: String,
}

/// The names of the models that are loaded.
pub(super) fn loaded(text: &str) -> Result<Read, Unreadable> {
    let loaded: Loaded = json(text, MAX_JSON, "Ollama's /api/ps")?;
    let mut models: Vec<String> = loaded.models.into_iter().map(|model| model.name).collect();
    models.sort_unstable();
    models.dedup();
    models.truncate(MAX_MODELS);
    Ok(Read { models, ..Read::default() })
}
