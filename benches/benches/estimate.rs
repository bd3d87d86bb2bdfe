//! Counting input: the heuristic beside a scan of the same bytes and beside the exact tokenizer.

use std::hint::black_box;

use benches::Runner;
use criterion::Throughput;
use quota_core::estimate::{Tokenizer, count_text};

const ENGLISH: &str = "When the harbour froze in January, the fishermen repaired their nets in the old schoolhouse, drank \
    far too much coffee, and argued about whether the ice would hold a horse. It held two, as it turned out. ";
const CJK: &str = "网关立即回答请求是否在租户的限额之内。没有用完的数量会退回到同一个周期，任何请求都不会被计算两次。";
const JSON: &str = "{\"tenant\":\"blue\",\"limits\":{\"rpm\":120,\"input_tpm\":200000},\"models\":[\"gpt-4o\",\"gpt-4.1\"],\
    \"enabled\":true,\"owner\":{\"name\":\"Ada\",\"email\":\"ada@example.org\"}},";

const LENGTH: usize = 64 * 1024;

fn main() {
    let mut runner = Runner::new(env!("CARGO_TARGET_TMPDIR"));
    for (name, piece) in [("english", ENGLISH), ("cjk", CJK), ("json", JSON), ("repeated-a", "a")] {
        let name = format!("estimate-{name}");
        let text = piece.repeat(LENGTH.div_ceil(piece.len()));
        let mut group = runner.criterion.benchmark_group(&name);
        group.throughput(Throughput::Bytes(text.len() as u64));
        group.bench_function("scan", |b| {
            b.iter(|| black_box(&text).bytes().fold(0u64, |sum, byte| sum.rotate_left(1) ^ byte as u64));
        });
        group.bench_function("heuristic", |b| {
            b.iter(|| count_text(black_box(&text), Tokenizer::Heuristic, "gpt-4o"));
        });
        group.bench_function("tiktoken", |b| {
            b.iter(|| count_text(black_box(&text), Tokenizer::O200kBase, "gpt-4o"));
        });
        group.finish();
        runner.ratios(&name, "scan");
    }
    runner.criterion.final_summary();
}
