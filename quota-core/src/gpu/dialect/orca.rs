//! ORCA: load reports in a response's headers, as text and as JSON.
//!
//! Floor 2. Invariant: an entry that can't be read is passed over and counted; what is unknown is passed over.

use serde_json::{Map, Value};

use super::super::ReplicaLoad;
use super::super::exposition::TooLong;
use super::super::figures::{Highest, Sum, capacity, count};
use super::{Read, Unreadable};

/// The most bytes of a header.
const MAX_HEADER: usize = 16 << 10;

#[derive(Default)]
struct Figures {
    running: Sum,
    waiting: Sum,
    kv: Highest,
    tokens: Sum,
    bad: u32,
}

/// Reads the value of the header: `TEXT k=v, …`, `JSON {…}`, or either without its first word.
pub(super) fn header(text: &str) -> Result<Read, Unreadable> {
    if text.len() > MAX_HEADER {
        return Err(TooLong { bytes: text.len(), limit: MAX_HEADER }.into());
    }
    let text = text.trim();
    let (form, rest) = text.split_once(|c: char| c.is_ascii_whitespace()).unwrap_or((text, ""));
    let mut figures = Figures::default();
    match form.to_ascii_uppercase().as_str() {
        "TEXT" => figures.pairs(rest),
        "JSON" => figures.report(rest)?,
        _ if text.starts_with('{') => figures.report(text)?,
        _ if form.contains('=') => figures.pairs(text),
        _ => return Err(Unreadable::UnknownForm),
    }
    Ok(figures.read())
}

impl Figures {
    fn pairs(&mut self, text: &str) {
        for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
            let read = pair.split_once('=').and_then(|(name, value)| {
                let value = value.trim().parse::<f64>().ok()?;
                Some((name.trim(), value))
            });
            match read {
                Some((name, value)) => {
                    let inner = name.strip_prefix("named_metrics.").or_else(|| name.strip_prefix("utilization."));
                    self.take(inner.unwrap_or(name), value);
                }
                None => self.bad += 1,
            }
        }
    }

    fn report(&mut self, text: &str) -> Result<(), Unreadable> {
        let report: Map<String, Value> =
            serde_json::from_str(text).map_err(|_| Unreadable::NotJson("a load report"))?;
        for (name, value) in &report {
            match value {
                Value::Object(inner) if matches!(&**name, "named_metrics" | "namedMetrics" | "utilization") => {
                    inner.iter().for_each(|(name, value)| self.member(name, value));
                }
                Value::Object(_) => {}
                _ => self.member(name, value),
            }
        }
        Ok(())
    }

    /// A number; in JSON's form of protocol buffers it may stand in quotes.
    fn member(&mut self, name: &str, value: &Value) {
        let quoted = || value.as_str().and_then(|text| text.trim().parse().ok());
        match value.as_f64().or_else(quoted) {
            Some(number) => self.take(name, number),
            None => self.bad += 1,
        }
    }

    fn take(&mut self, name: &str, value: f64) {
        match name {
            "num_requests_running" => self.running.most(count(value)),
            "num_requests_waiting" => self.waiting.most(count(value)),
            "kv_cache_usage_perc" | "kv_cache_utilization" | "gpu_cache_usage_perc" => self.kv.raise(value),
            "max_token_capacity" => self.tokens.most(count(value)),
            _ => {}
        }
    }

    fn read(self) -> Read {
        let load = ReplicaLoad {
            running: self.running.get(),
            waiting: self.waiting.get(),
            kv_used_ppm: self.kv.get(),
            kv_tokens: capacity(self.tokens.get()),
            ..ReplicaLoad::default()
        };
        Read { load, bad_lines: self.bad, ..Read::default() }
    }
}
