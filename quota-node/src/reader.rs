//! Streams by themselves: usage and output read from a streamed answer without a lease.

use napi::bindgen_prelude::{Buffer, Uint8ArraySlice};
use napi::{Env, Result};
use napi_derive::napi;
use quota_core as core;
use quota_core::usage::StreamReader as CoreReader;

use crate::convert::number;
use crate::count::{Count, type_error};
use crate::usage::{Outcome, Usage, dialect};

/// How a stream is read.
#[napi(object, object_to_js = false)]
pub struct ReaderOptions {
    pub strip_usage: Option<bool>,
    pub max_event: Option<Count>,
}

/// Reads the usage of a streamed answer as it passes.
#[napi]
pub struct StreamReader(Option<CoreReader>);

fn over(env: &Env) -> napi::Error {
    type_error(*env, "the stream has been finished")
}

#[napi]
impl StreamReader {
    #[napi(constructor)]
    pub fn new(env: Env, dialect: Option<String>, options: Option<ReaderOptions>) -> Result<StreamReader> {
        let mut reader = CoreReader::new(self::dialect(&env, dialect.as_deref())?);
        if let Some(options) = options {
            reader = reader.strip_usage(options.strip_usage.unwrap_or(false));
            if let Some(Count(bytes)) = options.max_event {
                reader = reader.max_event(usize::try_from(bytes).unwrap_or(usize::MAX));
            }
        }
        Ok(StreamReader(Some(reader)))
    }

    /// Takes the next bytes of the upstream and gives those that go on to the asker.
    #[napi]
    pub fn feed(&mut self, env: Env, chunk: Uint8ArraySlice<'_>) -> Result<Buffer> {
        let reader = self.0.as_mut().ok_or_else(|| over(&env))?;
        let mut passed = Vec::with_capacity(chunk.len());
        reader.feed(&chunk, |bytes| passed.extend_from_slice(bytes));
        Ok(passed.into())
    }

    #[napi(getter)]
    pub fn output_so_far(&self, env: Env) -> Result<f64> {
        self.0.as_ref().map(|reader| number(reader.output_so_far())).ok_or_else(|| over(&env))
    }

    /// Ends the stream, also one that broke off. Once.
    #[napi]
    pub fn finish(&mut self, env: Env) -> Result<StreamEnd> {
        let reader = self.0.take().ok_or_else(|| over(&env))?;
        let mut tail = Vec::new();
        let end = reader.finish(|bytes| tail.extend_from_slice(bytes));
        Ok(StreamEnd::of(end, tail))
    }
}

/// What a stream came to.
#[napi(object, object_from_js = false, use_nullable = true)]
pub struct StreamEnd {
    pub outcome: Outcome,
    /// What is known if the outcome is not final.
    pub seen: Option<Usage>,
    /// Whether an event said that the answer failed.
    pub failed: bool,
    /// Whether the stream said that it is at its end.
    pub done: bool,
    /// Events that could not be read.
    pub anomalies: u32,
    /// Bytes that were held back and go on to the asker.
    pub tail: Buffer,
}

impl StreamEnd {
    fn of(end: core::usage::StreamEnd, tail: Vec<u8>) -> StreamEnd {
        StreamEnd {
            outcome: Outcome(end.outcome),
            seen: end.seen.map(Usage),
            failed: end.failed,
            done: end.done,
            anomalies: end.anomalies,
            tail: tail.into(),
        }
    }
}
