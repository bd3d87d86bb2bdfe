//! S8: reading usage from streams, beside parsing each event as JSON.
//!
//! Pieces are as a socket gives them, so that events are split. Besides the text of an event, its number and its padding
//! vary, as they do in OpenAI's streams.

use std::hint::black_box;

use quota_core::usage::{Dialect, StreamReader};
use serde_json::Value;

use crate::count::instructions;
use crate::row::{Figure, Target, quick};

const ROUNDS: usize = 200;
const EVENTS: usize = 1000;
const PIECE: usize = 1400;
/// Deltas of twenty bytes.
const DELTAS: [&str; 4] =
    ["a harbour full of ic", "e and of boats, whic", "h nobody would have ", "thought of in winter"];

/// What OpenAI pads events with, to between one character and sixteen.
const PADDING: &str = "aB3dEfG7hIjK1mNo";

/// Streams by the shape of their events.
fn streams() -> [(&'static str, Dialect, String); 5] {
    let of = |event: &dyn Fn(usize, &str) -> String| (0..EVENTS).map(|n| event(n, DELTAS[n % 4])).collect::<String>();
    let chat = of(&|n, text| {
        let padding = &PADDING[n * 7 % 16..];
        format!(
            "data: {{\"id\":\"chatcmpl-8xJ2Ww3c9sYh1bQkz0vTn4mLrE7pA\",\"object\":\"chat.completion.chunk\",\
             \"created\":1764500000,\"model\":\"gpt-4o-2024-08-06\",\"service_tier\":\"default\",\
             \"system_fingerprint\":\"fp_eb9dce56a8\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{text}\"}},\
             \"logprobs\":null,\"finish_reason\":null}}],\"usage\":null,\"obfuscation\":\"{padding}\"}}\n\n"
        )
    });
    let bare = of(&|_, text| format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n"));
    let messages = of(&|_, text| {
        format!(
            "event: content_block_delta\ndata: {{\"type\":\"content_block_delta\",\"index\":0,\
             \"delta\":{{\"type\":\"text_delta\",\"text\":\"{text}\"}}}}\n\n"
        )
    });
    let responses = of(&|n, text| {
        let padding = &PADDING[n * 7 % 16..];
        format!(
            "event: response.output_text.delta\ndata: {{\"type\":\"response.output_text.delta\",\"sequence_number\":{n},\
             \"item_id\":\"msg_0123456789abcdef0123456789abcdef\",\"output_index\":0,\"content_index\":0,\
             \"delta\":\"{text}\",\"logprobs\":[],\"obfuscation\":\"{padding}\"}}\n\n"
        )
    });
    let gemini = of(&|_, text| {
        format!(
            "data: {{\"candidates\": [{{\"content\": {{\"parts\": [{{\"text\": \"{text}\"}}],\"role\": \"model\"}},\
             \"index\": 0}}],\"modelVersion\": \"gemini-2.5-flash\",\"responseId\": \"abcdefgh\"}}\r\n\r\n"
        )
    });
    [
        ("chat", Dialect::OpenAiChat, chat),
        ("chat, short", Dialect::OpenAiChat, bare),
        ("messages", Dialect::AnthropicMessages, messages),
        ("responses", Dialect::OpenAiResponses, responses),
        ("gemini", Dialect::Gemini, gemini),
    ]
}

fn read(stream: &str, dialect: Dialect, strip: bool) -> (usize, u64) {
    let mut reader = StreamReader::new(dialect).strip_usage(strip);
    let mut passed = 0;
    for piece in stream.as_bytes().chunks(PIECE) {
        reader.feed(piece, |segment| passed += segment.len());
    }
    let output = reader.output_so_far();
    reader.finish(|segment| passed += segment.len());
    (passed, output)
}

/// What a gateway does that has no reader: every event as a tree.
fn parse(stream: &str) -> usize {
    let payloads = stream.lines().filter_map(|line| line.strip_prefix("data: "));
    payloads.filter(|payload| serde_json::from_str::<Value>(payload).is_ok()).count()
}

pub fn run() {
    for (name, dialect, stream) in streams() {
        assert_eq!(read(&stream, dialect, false), (stream.len(), 5 * EVENTS as u64), "{name}");
        let [reads, strips, parses] = quick(
            ROUNDS,
            [
                &mut || {
                    black_box(read(black_box(&stream), dialect, false));
                },
                &mut || {
                    black_box(read(black_box(&stream), dialect, true));
                },
                &mut || {
                    black_box(parse(black_box(&stream)));
                },
            ],
        );
        let figure = |what: &str, value: f64, unit, target, beside: f64| Figure {
            row: "S8",
            what: format!("meter, {name}{what}"),
            value,
            unit,
            target,
            beside: Some(("a tree", beside)),
        };
        let speed = |nanos: f64| stream.len() as f64 / nanos * 1000.0;
        let each = |nanos: f64| nanos / EVENTS as f64;
        let chat = dialect == Dialect::OpenAiChat;
        let least = if chat { Target::AtLeast(500.0) } else { Target::None };
        let most = Target::AtMost(150.0);
        figure("", speed(reads), "MB/s", least, speed(parses)).print();
        figure("", each(reads), "ns/event", most, each(parses)).print();
        if chat {
            figure(", usage taken out", each(strips), "ns/event", most, each(parses)).print();
        }
        for (what, strip) in [("", "false"), (", usage taken out", "true")].into_iter().take(1 + usize::from(chat)) {
            let count = |times: &str| instructions(&["count", "S8", name, strip, times]);
            let Some((once, more)) = count("1").zip(count("11")) else {
                println!("S8   no valgrind: instructions are not counted");
                continue;
            };
            let value = (more - once) as f64 / 10.0 / EVENTS as f64;
            let what = format!("meter, {name}{what}");
            Figure { row: "S8", what, value, unit: "Ir/event", target: Target::None, beside: None }.print();
        }
    }
}

/// What callgrind counts.
pub fn count(name: &str, strip: bool, times: usize) {
    let (_, dialect, stream) = streams().into_iter().find(|(known, ..)| *known == name).expect("a stream");
    for _ in 0..times {
        black_box(read(black_box(&stream), dialect, strip));
    }
}
