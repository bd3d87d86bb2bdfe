//! Reading usage from a stream: beside a scan of the same bytes and beside parsing every event as JSON.
//!
//! Pieces are as a socket gives them, so that events are split. Nanoseconds per event are the time by `EVENTS`.

use std::hint::black_box;

use benches::Runner;
use criterion::Throughput;
use quota_core::usage::{Dialect, StreamReader};
use serde_json::Value;

const EVENTS: usize = 1000;
const PIECE: usize = 1400;

fn chat() -> String {
    let event = |choices: &str, usage: &str| {
        format!(
            "data: {{\"id\":\"chatcmpl-8xJ2Ww3c9sYh1bQkz0vTn4mLrE7pA\",\"object\":\"chat.completion.chunk\",\
             \"created\":1764500000,\"model\":\"gpt-4o-2024-08-06\",\"service_tier\":\"default\",\
             \"system_fingerprint\":\"fp_eb9dce56a8\",\"choices\":[{choices}],\"usage\":{usage}}}\n\n"
        )
    };
    let text = r#"{"index":0,"delta":{"content":" harbour"},"logprobs":null,"finish_reason":null}"#;
    let usage = r#"{"prompt_tokens":20,"completion_tokens":998,"total_tokens":1018}"#;
    event(text, "null").repeat(EVENTS - 2) + &event("", usage) + "data: [DONE]\n\n"
}

fn messages() -> String {
    let event = |name: &str, rest: &str| format!("event: {name}\ndata: {{\"type\":\"{name}\",{rest}}}\n\n");
    let start =
        r#""message":{"id":"msg_1","role":"assistant","content":[],"usage":{"input_tokens":20,"output_tokens":1}}"#;
    let text = r#""index":0,"delta":{"type":"text_delta","text":" harbour"}"#;
    let end = r#""delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":997}"#;
    event("message_start", start)
        + &event("content_block_delta", text).repeat(EVENTS - 3)
        + &event("message_delta", end)
        + "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"
}

fn read(bytes: &[u8], dialect: Dialect, strip: bool) -> (usize, u64) {
    let mut reader = StreamReader::new(dialect).strip_usage(strip);
    let mut passed = 0;
    for piece in bytes.chunks(PIECE) {
        reader.feed(piece, |segment| passed += segment.len());
    }
    let output = reader.output_so_far();
    reader.finish(|segment| passed += segment.len());
    (passed, output)
}

/// What a gateway does that has no reader: every event as a tree.
fn parse(stream: &str) -> usize {
    let payloads = stream.split("\n\n").filter_map(|event| event.split_once("data: ")).map(|(_, payload)| payload);
    payloads.filter(|payload| serde_json::from_str::<Value>(payload).is_ok()).count()
}

fn main() {
    let mut runner = Runner::new(env!("CARGO_TARGET_TMPDIR"));
    for (name, stream, dialect) in
        [("stream-chat", chat(), Dialect::OpenAiChat), ("stream-messages", messages(), Dialect::AnthropicMessages)]
    {
        assert_eq!(
            read(stream.as_bytes(), dialect, false),
            (stream.len(), if name == "stream-chat" { 998 } else { 997 })
        );
        let mut group = runner.criterion.benchmark_group(name);
        group.throughput(Throughput::Bytes(stream.len() as u64));
        group.bench_function("scan", |b| {
            b.iter(|| black_box(&stream).bytes().fold(0u64, |sum, byte| sum.rotate_left(1) ^ byte as u64));
        });
        group.bench_function("reader", |b| b.iter(|| read(black_box(stream.as_bytes()), dialect, false)));
        group.bench_function("reader-strips", |b| b.iter(|| read(black_box(stream.as_bytes()), dialect, true)));
        group.bench_function("serde-json-tree", |b| b.iter(|| parse(black_box(&stream))));
        group.finish();
        runner.ratios(name, "scan");
    }
    runner.criterion.final_summary();
}
