//! SGLang's series and its `/v1/loads`, as JSON and as series.
//!
//! Floor 2. Invariant: a request counts once, though its priority, and each rank of its group, may have a series of its own.

use serde::Deserialize;

use super::super::ReplicaLoad;
use super::super::exposition::Sample;
use super::super::figures::{Figure, Highest, PerKey, Sum, capacity, count, product};
use super::{MAX_JSON, Models, Read, Series, Unreadable, json};

#[derive(Default)]
pub(super) struct Reader<'a> {
    own: Figures<'a>,
    loads: Figures<'a>,
}

/// A count, whole and by priority.
#[derive(Default)]
struct Requests<'a> {
    whole: PerKey<'a>,
    by_priority: PerKey<'a>,
}

/// The figures under one prefix.
#[derive(Default)]
struct Figures<'a> {
    running: Requests<'a>,
    waiting: Requests<'a>,
    kv: Highest,
    tokens: PerKey<'a>,
    pages: PerKey<'a>,
    page_size: Sum,
    cache: PerKey<'a>,
    max_running: PerKey<'a>,
    retracted: PerKey<'a>,
    retracted_before: PerKey<'a>,
}

impl<'a> Series<'a> for Reader<'a> {
    fn take(&mut self, sample: &Sample<'a>, models: &mut Models<'a>) {
        match (sample.name.strip_prefix("sglang:"), sample.name.strip_prefix("sglang_")) {
            (Some(name), _) => self.own.take(name, sample, models),
            (None, Some(name)) => self.loads.take(name, sample, models),
            (None, None) => {}
        }
    }

    fn load(self, _model: Option<&str>) -> ReplicaLoad {
        let own = self.own.load();
        if own.is_empty() { self.loads.load() } else { own }
    }
}

impl<'a> Figures<'a> {
    fn take(&mut self, name: &str, sample: &Sample<'a>, models: &mut Models<'a>) {
        const READ: [&str; 11] = [
            "num_running_reqs",
            "num_queue_reqs",
            "num_waiting_reqs",
            "token_usage",
            "max_total_num_tokens",
            "num_pages",
            "page_size",
            "cache_config_info",
            "max_running_requests",
            "num_retracted_requests_total",
            "total_retracted_reqs",
        ];
        if !READ.contains(&name) || !models.takes(sample.label("model_name")) {
            return;
        }
        let raw = |label: &str| sample.label(label).map_or("", |value| value.raw());
        let (model, kind, rank, priority) = (raw("model_name"), raw("engine_type"), raw("dp_rank"), raw("priority"));
        let (key, value) = ([model, kind, rank, ""], count(sample.value));
        let per_key = match name {
            "num_running_reqs" => return self.running.take(key, priority, value),
            "num_queue_reqs" | "num_waiting_reqs" => return self.waiting.take(key, priority, value),
            "token_usage" => return self.kv.raise(sample.value),
            "page_size" => return self.page_size.least(value),
            "cache_config_info" => {
                let number = |label: &str| raw(label).parse::<u64>().ok();
                return self.cache.take(key, product(number("num_pages"), number("page_size")));
            }
            "max_total_num_tokens" => &mut self.tokens,
            "num_pages" => &mut self.pages,
            "max_running_requests" => &mut self.max_running,
            "num_retracted_requests_total" => &mut self.retracted,
            _ => &mut self.retracted_before,
        };
        per_key.take(key, value);
    }

    fn load(self) -> ReplicaLoad {
        let pages = capacity(product(self.pages.sum().get(), self.page_size.get()));
        let tokens = capacity(self.tokens.sum().get()).or(pages).or(capacity(self.cache.sum().get()));
        ReplicaLoad {
            running: self.running.sum(),
            waiting: self.waiting.sum(),
            kv_used_ppm: self.kv.get(),
            kv_tokens: tokens,
            max_running: capacity(self.max_running.sum().get()),
            preemptions: self.retracted.sum().or(self.retracted_before.sum()).get(),
            ..ReplicaLoad::default()
        }
    }
}

impl<'a> Requests<'a> {
    fn take(&mut self, key: [&'a str; 4], priority: &'a str, value: Option<u64>) {
        match priority {
            "" => self.whole.take(key, value),
            _ => self.by_priority.take([key[0], key[1], key[2], priority], value),
        }
    }

    fn sum(&self) -> Option<u64> {
        self.whole.sum().or(self.by_priority.sum()).get()
    }
}

/// The answer of `/v1/loads`, or the list in it.
#[derive(Deserialize)]
#[serde(untagged)]
enum Loads {
    Answer { loads: Vec<Rank> },
    List(Vec<Rank>),
}

#[derive(Deserialize)]
struct Rank {
    num_running_reqs: Option<f64>,
    num_waiting_reqs: Option<f64>,
    token_usage: Option<f64>,
    max_total_num_tokens: Option<f64>,
    max_running_requests: Option<f64>,
}

/// Reads `/v1/loads` as JSON: one object for each rank that schedules by itself.
pub(super) fn loads(text: &str) -> Result<Read, Unreadable> {
    let (Loads::Answer { loads } | Loads::List(loads)) = json(text, MAX_JSON, "SGLang's /v1/loads")?;
    // A figure that one rank leaves out is as unknown as one that it spoils.
    let sum = |of: fn(&Rank) -> Option<f64>| {
        let mut sum = Sum::default();
        loads.iter().for_each(|rank| sum.plus(of(rank).and_then(count)));
        sum.get()
    };
    let mut kv: Highest = Figure::default();
    loads.iter().for_each(|rank| kv.raise(rank.token_usage.unwrap_or(f64::NAN)));
    let load = ReplicaLoad {
        running: sum(|rank| rank.num_running_reqs),
        waiting: sum(|rank| rank.num_waiting_reqs),
        kv_used_ppm: kv.get(),
        kv_tokens: capacity(sum(|rank| rank.max_total_num_tokens)),
        max_running: capacity(sum(|rank| rank.max_running_requests)),
        ..ReplicaLoad::default()
    };
    Ok(Read { load, ..Read::default() })
}
