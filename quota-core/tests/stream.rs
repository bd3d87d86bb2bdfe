//! Streams against a slow and obvious reader of server-sent events: cuts change nothing, bytes pass, usage goes alone.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use quota_core::usage::{Dialect, Outcome, StreamEnd, StreamReader};
use serde_json::{Value, json};

/// What comes of a stream in slices that end at these places, and what passes.
fn read(reader: StreamReader, bytes: &[u8], ends: &[usize]) -> (StreamEnd, Vec<u8>) {
    let (mut reader, mut passed, mut from) = (reader, Vec::new(), 0);
    for end in ends.iter().copied().chain([bytes.len()]) {
        reader.feed(&bytes[from..end], |segment| {
            assert!(!segment.is_empty());
            passed.extend_from_slice(segment);
        });
        from = end;
    }
    let end = reader.finish(|segment| passed.extend_from_slice(segment));
    (end, passed)
}

fn ends(cuts: &[Index], length: usize) -> Vec<usize> {
    let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(length + 1)).collect();
    ends.sort_unstable();
    ends
}

/// The events of a stream as the HTML standard reads them, all in memory: their data and the rest of their lines.
fn events(bytes: &[u8]) -> Vec<(String, Vec<String>)> {
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text).replace("\r\n", "\n").replace('\r', "\n");
    let mut found = Vec::new();
    for block in text.split("\n\n") {
        let (mut data, mut others) = (Vec::new(), Vec::new());
        for line in block.split('\n').filter(|line| !line.is_empty()) {
            match line.strip_prefix("data:") {
                Some(value) => data.push(value.strip_prefix(' ').unwrap_or(value)),
                None => others.push(line.to_owned()),
            }
        }
        if !data.is_empty() || !others.is_empty() {
            found.push((data.join("\n"), others));
        }
    }
    found
}

fn usage() -> impl Strategy<Value = Value> {
    prop_oneof![
        2 => Just(Value::Null),
        2 => (0..100u64, 0..100u64).prop_map(|(i, o)| json!({"prompt_tokens": i, "completion_tokens": o})),
        1 => Just(json!({"prompt_tokens": -1, "completion_tokens": [{"usage": "}"}]})),
    ]
}

/// A chunk of a chat, written by hand so that the keys stand in any order and the spaces anywhere.
fn chunk() -> impl Strategy<Value = String> {
    let text = "[a-z\"\\\\{}:, \u{2028}é限🤖]{0,12}".prop_map(|text| json!(text).to_string());
    let choices = prop_oneof![
        1 => Just("[]".to_owned()),
        2 => text.prop_map(|text| format!(r#"[{{"index":0,"delta":{{"content":{text}}},"finish_reason":null}}]"#)),
    ];
    let space = select(vec!["", " ", "\n", "  "]);
    let extra = select(vec![r#""id":"c""#, r#""x":{"usage":1}"#, r#""y":[1,"usage",{"z":null}]"#, r#""error":null"#]);
    (choices, proptest::option::of(usage()), extra, 0..3usize, space).prop_map(|(choices, usage, extra, at, space)| {
        let mut fields = vec![format!("\"choices\"{space}:{space}{choices}"), extra.to_owned()];
        if let Some(usage) = usage {
            fields.insert(at, format!("\"usage\"{space}:{space}{usage}{space}"));
        }
        format!("{{{space}{}{space}}}", fields.join(&format!("{space},{space}")))
    })
}

/// A whole stream of chunks, with comments and other fields, and line ends of one kind for each event.
fn chat() -> impl Strategy<Value = String> {
    let line_end = select(vec!["\n", "\r", "\r\n"]);
    let before = select(vec!["", ": comment", "id: 7", "event: message"]);
    let event = (chunk(), before, line_end, any::<bool>()).prop_map(|(chunk, before, end, space)| {
        let before = if before.is_empty() { String::new() } else { format!("{before}{end}") };
        let field = if space { "data: " } else { "data:" };
        let data = chunk.split('\n').map(|line| format!("{field}{line}{end}")).collect::<String>();
        format!("{before}{data}{end}")
    });
    (vec(event, 0..8), any::<bool>())
        .prop_map(|(events, done)| events.concat() + if done { "data: [DONE]\n\n" } else { "" })
}

/// Pieces of streams, put together without sense.
fn rubbish() -> impl Strategy<Value = Vec<u8>> {
    let known = select(vec![
        "\n",
        "\r",
        "\r\n",
        "\n\n",
        "data:",
        "data: ",
        "data",
        "event: error",
        "event: message_stop",
        ":",
        "\u{feff}",
        "{\"usage\":",
        "{\"prompt_tokens\":3,\"completion_tokens\":4}",
        "\"choices\":[],",
        "}",
        "]",
        "null",
        "\"",
        "\\",
        "{\"type\":\"message_delta\",\"usage\":{\"output_tokens\":5},\"delta\":{\"stop_reason\":\"x\"}}",
        "{\"usageMetadata\":{\"promptTokenCount\":4}}",
        "{\"error\":1}",
        "[DONE]",
        "限",
        "{\"content\":\"abc\"}",
        "{\"done\":true,\"eval_count\":3}",
        "data: {\"usage\":null,\"choices\":[]}\n\n",
    ]);
    let piece = prop_oneof![4 => known.prop_map(|text| text.as_bytes().to_vec()), 1 => vec(any::<u8>(), 0..6)];
    vec(piece, 0..60).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn cuts_change_nothing(bytes in rubbish(), cuts in vec(any::<Index>(), 0..8), bound in 64..200usize) {
        for dialect in Dialect::ALL {
            for strip in [false, true] {
                let reader = || StreamReader::new(dialect).strip_usage(strip).max_event(bound);
                let whole = read(reader(), &bytes, &[]);
                let single: Vec<usize> = (1..bytes.len()).collect();
                prop_assert_eq!(&whole, &read(reader(), &bytes, &ends(&cuts, bytes.len())), "{:?}", dialect);
                prop_assert_eq!(&whole, &read(reader(), &bytes, &single), "{:?}", dialect);
                if !strip {
                    prop_assert_eq!(&whole.1, &bytes);
                }
                prop_assert!(!matches!(whole.0.outcome, Outcome::NotRun));
            }
        }
    }

    #[test]
    fn only_usage_is_taken_out(text in chat(), cuts in vec(any::<Index>(), 0..8)) {
        let bytes = text.as_bytes();
        let reader = || StreamReader::new(Dialect::OpenAiChat).strip_usage(true);
        let (end, passed) = read(reader(), bytes, &ends(&cuts, bytes.len()));
        let mut wanted = Vec::new();
        for (data, mut others) in events(bytes) {
            let Ok(Value::Object(mut chunk)) = serde_json::from_str(&data) else {
                wanted.push((Value::from(data), others));
                continue;
            };
            let usage = chunk.remove("usage").unwrap_or_default();
            if usage.is_null() || chunk["choices"] != json!([]) {
                wanted.push((chunk.into(), others));
                continue;
            }
            others.retain(|line| line.starts_with(':'));
            if !others.is_empty() {
                wanted.push((Value::Null, others));
            }
        }
        // A comment of a withheld event stands before the next one.
        let flat = |events: Vec<(Value, Vec<String>)>| -> Vec<Value> {
            let lines = |(data, others): (Value, Vec<String>)| {
                others.into_iter().map(Value::from).chain((!data.is_null()).then_some(data))
            };
            events.into_iter().flat_map(lines).collect()
        };
        let got = events(&passed).into_iter().map(|(data, others)| match data.as_str() {
            "" => (Value::Null, others),
            _ => (serde_json::from_str(&data).unwrap_or(Value::from(data)), others),
        });
        prop_assert_eq!(flat(got.collect()), flat(wanted));
        let plain = read(StreamReader::new(Dialect::OpenAiChat), bytes, &[]).0;
        prop_assert_eq!(end, plain);
    }
}

#[test]
fn output_so_far_follows_the_stream() {
    let mut reader = StreamReader::new(Dialect::AnthropicMessages);
    let mut so_far = Vec::new();
    for event in [
        r#"{"type":"message_start","message":{"usage":{"input_tokens":9,"output_tokens":2}}}"#,
        r#"{"type":"content_block_delta","delta":{"type":"text_delta","text":"12345678"}}"#,
        r#"{"type":"content_block_delta","delta":{"type":"thinking_delta","thinking":"限額"}}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":31}}"#,
    ] {
        reader.feed(format!("data: {event}\n\n").as_bytes(), |_| {});
        so_far.push(reader.output_so_far());
    }
    assert_eq!(so_far, [2, 4, 6, 31]);
}

#[test]
fn bytes_pass_at_once_or_with_their_event() {
    let half = b"data: {\"choices\":[]";
    let mut passed = 0;
    let mut reader = StreamReader::new(Dialect::OpenAiChat);
    reader.feed(half, |segment| passed += segment.len());
    assert_eq!(passed, half.len());
    let (mut reader, mut passed) = (StreamReader::new(Dialect::OpenAiChat).strip_usage(true), 0);
    reader.feed(half, |segment| passed += segment.len());
    assert_eq!(passed, 0);
    reader.feed(b"}\n\n", |segment| passed += segment.len());
    assert_eq!(passed, half.len() + 3);
}
