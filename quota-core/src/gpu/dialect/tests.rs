//! What holds of every dialect; the texts themselves are cases of `tests/vectors/metrics.json`.
//!
//! Floor 2. Invariant: as of `gpu/dialect`.

use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use super::*;

/// The bytes that headers have at most.
const MAX_HEADER: usize = 16 << 10;

/// Names of every dialect, and some that only begin like them.
const NAMES: [&str; 30] = [
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "vllm:num_requests_waiting_created",
    "vllm:kv_cache_usage_perc",
    "vllm:gpu_cache_usage_perc",
    "vllm:num_preemptions_total",
    "vllm:cache_config_info",
    "ray_vllm_num_requests_running",
    "sglang:num_running_reqs",
    "sglang:num_queue_reqs",
    "sglang:token_usage",
    "sglang:max_total_num_tokens",
    "sglang:num_pages",
    "sglang:page_size",
    "sglang:cache_config_info",
    "sglang_num_waiting_reqs",
    "tgi_queue_size",
    "tgi_batch_current_size",
    "nv_inference_pending_request_count",
    "nv_trt_llm_request_metrics",
    "nv_trt_llm_kv_cache_block_metrics",
    "trtllm_num_requests_running",
    "trtllm_kv_cache_max_blocks",
    "trtllm_kv_cache_tokens_per_block",
    "ray_serve_replica_processing_queries",
    "llamacpp:requests_processing",
    "llamacpp:kv_cache_usage_ratio",
    "lmdeploy:num_requests_waiting",
    "lmdeploy:num_api_requests_waiting",
    "other",
];

const LABELS: [&str; 16] = [
    r#"engine="0""#,
    r#"engine="1""#,
    r#"model_name="a""#,
    r#"model="a""#,
    r#"deployment="a""#,
    r#"priority="5""#,
    r#"dp_rank="1""#,
    r#"tp_rank="1""#,
    r#"request_type="scheduled""#,
    r#"request_type="max""#,
    r#"kv_cache_block_type="fraction""#,
    r#"kv_cache_block_type="max""#,
    r#"kv_cache_block_type="tokens_per""#,
    r#"block_size="16",num_gpu_blocks="100""#,
    r#"kv_cache_size_tokens="900""#,
    r#"note="a } , \" {""#,
];

fn line() -> impl Strategy<Value = (&'static str, Vec<&'static str>, String)> {
    let number = prop_oneof![
        6 => (0..200u32).prop_map(|n| n.to_string()),
        3 => (0..=1000u32).prop_map(|n| (n as f64 / 1000.0).to_string()),
        1 => any::<f64>().prop_map(|n| n.to_string()),
        1 => select(&["NaN", "+Inf", "-1", "1e300", "x"][..]).prop_map(str::to_owned),
    ];
    // Labels of one name in one order only: of several with one name the first counts.
    let labels = subsequence(&LABELS[..], 0..6).prop_filter("a name twice", |labels| {
        let name = |label: &&str| label.split('=').next().map(str::to_owned);
        (1..labels.len()).all(|n| name(&labels[n]) != name(&labels[n - 1]))
    });
    (select(&NAMES[..]), labels, number)
}

fn written(lines: &[(&str, Vec<&str>, String)]) -> String {
    lines.iter().map(|(name, labels, value)| format!("{name}{{{}}} {value}\n", labels.join(","))).collect()
}

fn within_ranges(load: &ReplicaLoad) -> bool {
    let counts = [load.running, load.waiting, load.preemptions].into_iter().flatten();
    let capacities = [load.kv_tokens, load.max_running].into_iter().flatten();
    let fine = counts.into_iter().all(|count| count < 1 << 52) && capacities.into_iter().all(|c| c > 0 && c < 1 << 52);
    fine && load.kv_used_ppm.is_none_or(|ppm| ppm <= 1_000_000) && load.as_of.is_none() && !load.stale
}

proptest! {
    #[test]
    fn order_does_not_matter(lines in proptest::collection::vec(line(), 0..24), seed in any::<u64>()) {
        let mut shuffled = lines.clone();
        let mut state = seed | 1;
        let mut below = |n: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % n
        };
        for n in (1..shuffled.len()).rev() {
            shuffled.swap(n, below(n + 1));
        }
        for (_, labels, _) in &mut shuffled {
            for n in (1..labels.len()).rev() {
                labels.swap(n, below(n + 1));
            }
        }
        // A header is one line.
        for dialect in Dialect::ALL.into_iter().filter(|dialect| *dialect != Dialect::Orca) {
            for model in [None, Some("a"), Some("b")] {
                let read = dialect.read(&written(&lines), model);
                prop_assert_eq!(&read, &dialect.read(&written(&shuffled), model), "{:?}", dialect);
                prop_assert!(read.is_err() || within_ranges(&read.unwrap().load));
            }
        }
    }

    #[test]
    fn any_text_is_read_or_refused(text in "(TEXT|JSON)?(\\PC|[\n{}\\[\\]\"=,:.0-9e ]|named_metrics|kv_cache_usage_perc){0,120}") {
        for dialect in Dialect::ALL {
            if let Ok(read) = dialect.read(&text, Some("a")) {
                prop_assert!(within_ranges(&read.load));
            }
        }
    }
}

#[test]
fn names_are_read_back() {
    for dialect in Dialect::ALL {
        assert_eq!(Dialect::parse(dialect.name()), Some(dialect));
        assert_eq!(dialect.paths().is_empty(), dialect == Dialect::Orca);
        assert_eq!(dialect.has_figures(), dialect != Dialect::Ollama);
    }
    assert_eq!(Dialect::parse("vLLM"), None);
}

#[test]
fn texts_have_bounds() {
    for dialect in Dialect::ALL {
        let (fill, limit) = match dialect {
            Dialect::Orca => (' ', MAX_HEADER),
            Dialect::Ollama => (' ', MAX_JSON),
            _ => ('#', MAX_TEXT),
        };
        let text = fill.to_string().repeat(limit + 1);
        let too_long = Unreadable::TooLong(TooLong { bytes: limit + 1, limit });
        assert_eq!(dialect.read(&text, None), Err(too_long.clone()), "{dialect:?}");
        assert_ne!(dialect.read(&text[1..], None), Err(too_long), "{dialect:?}");
    }
    for (dialect, limit) in [(Dialect::Sglang, MAX_JSON), (Dialect::Tgi, MAX_JSON), (Dialect::LlamaCpp, MAX_TEXT)] {
        let text = format!("[{}", " ".repeat(limit));
        assert_eq!(dialect.read(&text, None), Err(TooLong { bytes: limit + 1, limit }.into()), "{dialect:?}");
    }
}

#[test]
fn many_models_and_ranks_stay_within_bounds() {
    let many = |write: fn(usize) -> String| (0..5000).map(write).collect::<String>();
    let vllm = many(|n| format!("vllm:num_requests_running{{model_name=\"m{n:04}\"}} 1\n"));
    let read = Dialect::Vllm.read(&vllm, None).unwrap();
    assert_eq!((read.load.running, read.models.len(), &*read.models[0]), (Some(5000), 16, "m0000"));
    assert_eq!(Dialect::Vllm.read(&vllm, Some("m4999")).unwrap().load.running, Some(1));
    let sglang = many(|n| format!("sglang:num_running_reqs{{dp_rank=\"{n}\"}} 1\n"));
    assert_eq!(Dialect::Sglang.read(&sglang, None).unwrap().load.running, None, "too many ranks: unknown");
    let triton = many(|n| format!("nv_trt_llm_request_metrics{{model=\"{n}\",request_type=\"waiting\"}} 1\n"));
    assert_eq!(Dialect::Triton.read(&triton, None).unwrap().load, ReplicaLoad::default());
}
