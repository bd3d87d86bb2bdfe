//! Dialects: what each kind of inference server tells about its load, read into one form.
//!
//! Floor 2. Invariant: reading is pure; the same text gives the same figures, whatever the order of its lines and labels.

mod llama_cpp;
mod lmdeploy;
mod ollama;
mod orca;
mod ray_serve;
mod sglang;
mod tgi;
mod triton;
mod trtllm;
mod vllm;

use serde::de::DeserializeOwned;

use super::ReplicaLoad;
use super::exposition::{LabelValue, MAX_TEXT, Sample, TooLong, samples};

/// The most names of models that are kept of a text.
const MAX_MODELS: usize = 16;

/// The most bytes of a JSON text that is kept whole while it is read.
const MAX_JSON: usize = 1 << 20;

/// The kind of inference server, and with it the names of its figures.
///
/// What no dialect tells is how many requests an engine would run at most, unless said below: that has to be declared
/// ([`Reported::declaring`](super::Reported::declaring)). Counters are read with and without `_total`; `*_created` and histograms are not
/// read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Dialect {
    /// vLLM, also behind Ray Serve (`ray_vllm_…`): running, waiting, memory and preemptions. The part in use is
    /// `kv_cache_usage_perc` or, before 0.11, `gpu_cache_usage_perc`. The tokens are those of `cache_config_info`:
    /// `kv_cache_size_tokens` of each engine, else blocks × block size, which are a sum over the engines already and
    /// too many for models with several kinds of layers. Requests that an engine before 0.9 has swapped out are in
    /// neither count.
    Vllm,
    /// SGLang (with `--enable-metrics`) and its `/v1/loads` in both forms: running, waiting, memory, retractions; the most
    /// that run only in `/v1/loads`. Series by priority are parts of the whole, and ranks of one group show the same
    /// figures: neither is added up. Memory that caches only is told as free.
    Sglang,
    /// Text Generation Inference 3: the batch as running, the queue as waiting; of `/info` the most requests in the
    /// server, running or waiting, after which it answers 429. It tells nothing of its memory, and between two batches
    /// nothing runs.
    Tgi,
    /// NVIDIA Triton: requests pending in its core as waiting. With the TensorRT-LLM backend those that wait in it too,
    /// scheduled ones as running, memory and the most that run; its model is another than the ensemble that clients
    /// name, so that the only one there is taken. Without that backend nothing tells what runs. Paused requests are not
    /// counted since the start, so there are no preemptions.
    Triton,
    /// `trtllm-serve`, its Prometheus text (with `return_perf_metrics`): running, waiting, memory, the most that run. Not
    /// read is its `/metrics`, a list that each reader takes from the next.
    TrtLlm,
    /// Ray Serve: queries in replicas as running, those in callers' queues as waiting. A node tells its own part only;
    /// the model is a deployment, and without one an application's requests count in each deployment that they pass. It
    /// tells nothing of memory.
    RayServe,
    /// llama.cpp's server: processing and deferred ones; of `/slots` those that process and, as the most that run, the
    /// number of slots. Old versions tell the part of the memory in use. How many tokens it holds is not told: slots
    /// may share it or not.
    LlamaCpp,
    /// Ollama's `/api/ps`: which models are loaded, and no figure of load at all.
    Ollama,
    /// LMDeploy: running, waiting (for a handle, and in the engine), memory. No capacity, no preemptions.
    Lmdeploy,
    /// The value of an `endpoint-load-metrics` header of a response (ORCA), `TEXT` or `JSON`, as vLLM and Triton send it:
    /// the part of the memory in use, and waiting ones (vLLM) or tokens of memory (Triton). Only with the response to a
    /// request that asked for it, and of vLLM only without streaming.
    Orca,
}

/// What a text tells.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Read {
    /// The figures; [`is_empty`](ReplicaLoad::is_empty) if there are none. `as_of` is for whoever knows the time.
    pub load: ReplicaLoad,
    /// Lines, or entries of a header, that could not be read and were passed over.
    pub bad_lines: u32,
    /// The models that series of the dialect name, in the order of the alphabet, at most 16: what to look at if the one that
    /// was asked for has no figures. Empty where the dialect names none.
    pub models: Vec<String>,
}

/// Why a text can't be read at all.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unreadable {
    /// It is too long: 8 MiB at most, JSON 1 MiB (but `/slots` 8 MiB), a header 16 KiB.
    #[error(transparent)]
    TooLong(#[from] TooLong),
    /// It is not the JSON that such a server sends.
    #[error("this is not the JSON of {0}")]
    NotJson(&'static str),
    /// A header in another form than `TEXT` and `JSON`.
    #[error("a load report in binary, or in no known form")]
    UnknownForm,
}

impl Dialect {
    /// Every dialect.
    pub const ALL: [Dialect; 10] = [
        Dialect::Vllm,
        Dialect::Sglang,
        Dialect::Tgi,
        Dialect::Triton,
        Dialect::TrtLlm,
        Dialect::RayServe,
        Dialect::LlamaCpp,
        Dialect::Ollama,
        Dialect::Lmdeploy,
        Dialect::Orca,
    ];

    /// The name in documents and vectors, and in other languages.
    pub const fn name(self) -> &'static str {
        match self {
            Dialect::Vllm => "vllm",
            Dialect::Sglang => "sglang",
            Dialect::Tgi => "tgi",
            Dialect::Triton => "triton",
            Dialect::TrtLlm => "trtllm",
            Dialect::RayServe => "ray_serve",
            Dialect::LlamaCpp => "llama_cpp",
            Dialect::Ollama => "ollama",
            Dialect::Lmdeploy => "lmdeploy",
            Dialect::Orca => "orca",
        }
    }

    /// The dialect of a [`name`](Dialect::name).
    pub fn parse(name: &str) -> Option<Dialect> {
        Dialect::ALL.into_iter().find(|dialect| dialect.name() == name)
    }

    /// Where a server has what [`read`](Dialect::read) reads, below its address: the first is the one to poll, the
    /// others say something beside it. Triton's and a Ray node's are on a port of their own. Empty for ORCA, which
    /// comes with responses.
    pub const fn paths(self) -> &'static [&'static str] {
        match self {
            Dialect::Vllm | Dialect::Triton | Dialect::RayServe | Dialect::Lmdeploy => &["/metrics"],
            Dialect::Sglang => &["/metrics", "/v1/loads"],
            Dialect::Tgi => &["/metrics", "/info"],
            Dialect::TrtLlm => &["/prometheus/metrics"],
            Dialect::LlamaCpp => &["/metrics", "/slots"],
            Dialect::Ollama => &["/api/ps"],
            Dialect::Orca => &[],
        }
    }

    /// Whether the dialect has any figure of load; Ollama's has none, so that an empty reading is all there is.
    pub const fn has_figures(self) -> bool {
        !matches!(self, Dialect::Ollama)
    }

    /// Reads what a server tells at one of the [`paths`](Dialect::paths); which of them is seen from the text.
    ///
    /// With `model` only series of that model count, and those that name none; without, all models' count together.
    /// Counts add up over engines and models, of the part of memory in use the highest counts. A figure that is
    /// missing, or that one engine gives as NaN, negative or out of range, is `None`; a count that is not whole is
    /// rounded up. Cost: linear in the text; next to nothing of it is copied.
    ///
    /// # Errors
    /// [`Unreadable`]; a text of which no line can be read is none, see [`Read::bad_lines`].
    pub fn read(self, text: &str, model: Option<&str>) -> Result<Read, Unreadable> {
        match self {
            Dialect::Vllm => exposition(text, model, vllm::Reader::default()),
            Dialect::Sglang if is_json(text) => sglang::loads(text),
            Dialect::Sglang => exposition(text, model, sglang::Reader::default()),
            Dialect::Tgi if is_json(text) => tgi::info(text),
            Dialect::Tgi => exposition(text, model, tgi::Reader::default()),
            Dialect::Triton => exposition(text, model, triton::Reader::default()),
            Dialect::TrtLlm => exposition(text, model, trtllm::Reader::default()),
            Dialect::RayServe => exposition(text, model, ray_serve::Reader::default()),
            Dialect::LlamaCpp if is_json(text) => llama_cpp::slots(text),
            Dialect::LlamaCpp => exposition(text, model, llama_cpp::Reader::default()),
            Dialect::Ollama => ollama::loaded(text),
            Dialect::Lmdeploy => exposition(text, model, lmdeploy::Reader::default()),
            Dialect::Orca => orca::header(text),
        }
    }
}

/// What makes figures of samples.
trait Series<'a> {
    /// Takes a sample, if the dialect has it and the model is the one asked for.
    fn take(&mut self, sample: &Sample<'a>, models: &mut Models<'a>);

    /// The figures; `model` is the one asked for.
    fn load(self, model: Option<&str>) -> ReplicaLoad;
}

/// The model asked for, and those that series name.
struct Models<'a> {
    wanted: Option<&'a str>,
    named: Vec<&'a str>,
}

impl<'a> Models<'a> {
    /// Whether a series with this value of its model's label counts; one without a label always does.
    fn takes(&mut self, label: Option<LabelValue<'a>>) -> bool {
        let Some(label) = label else { return true };
        self.note(label);
        self.wanted.is_none_or(|wanted| label.is(wanted))
    }

    /// Keeps a name; of too many the first of the alphabet, so that the order of the lines doesn't matter.
    fn note(&mut self, label: LabelValue<'a>) {
        if let Err(place) = self.named.binary_search(&label.raw()) {
            self.named.insert(place, label.raw());
            self.named.truncate(MAX_MODELS);
        }
    }
}

fn exposition<'a>(text: &'a str, model: Option<&'a str>, mut series: impl Series<'a>) -> Result<Read, Unreadable> {
    let mut models = Models { wanted: model, named: Vec::new() };
    let mut all = samples(text)?;
    for sample in all.by_ref() {
        series.take(&sample, &mut models);
    }
    let names = models.named.iter().map(|raw| LabelValue::of(raw).text().into_owned());
    Ok(Read { load: series.load(model), bad_lines: all.bad_lines(), models: names.collect() })
}

fn is_json(text: &str) -> bool {
    text.trim_start().starts_with(['{', '['])
}

/// A JSON text of at most `limit` bytes; `what` is named in the error.
fn json<T: DeserializeOwned>(text: &str, limit: usize, what: &'static str) -> Result<T, Unreadable> {
    if text.len() > limit {
        return Err(TooLong { bytes: text.len(), limit }.into());
    }
    serde_json::from_str(text).map_err(|_| Unreadable::NotJson(what))
}

#[cfg(test)]
mod tests;
