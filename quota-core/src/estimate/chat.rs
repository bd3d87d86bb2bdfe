//! The input of a request: its parts, and what chat templates add around them.
//!
//! Floor 1. Invariant: base64 data never counts as text, and an addition whose size is not known is reserved at the
//! largest figure known for it.
//!
//! Figures: OpenAI's cookbook on counting tokens; the chat templates of Llama 3, Qwen 3, Gemma 3 and DeepSeek V3; the
//! per-request framing and tool preambles that litellm 1.110 ships.

use super::family::{Family, bare, starts_with};
use super::{InputEstimate, Sum, Tokenizer, image};
use crate::request::{Kind, Part};

/// What a template adds, in tokens.
struct Framing {
    /// Around each message, without its role.
    message: u64,
    /// Whether a role is text of its own (else it is within `message`).
    role: bool,
    /// Once per request.
    request: u64,
    /// Once, if there are tools.
    tools: u64,
}

/// Added once per request by some servers: dated system blocks, default system messages, hidden preambles.
const PREAMBLES: &[(&str, u64)] = &[
    ("deepseek", 97),
    ("gpt-oss", 100),
    ("grok", 185),
    ("kimi", 100),
    ("llama", 30),
    ("meta-llama", 30),
    ("qwen", 20),
    ("qwq", 20),
];

const NAME: u64 = 1;
const TOOLS: u64 = 20;
const TOOL: u64 = 12;
const TOOL_CALL: u64 = 3;

impl Framing {
    fn of(family: Family) -> Framing {
        match family {
            Family::O200k | Family::Cl100k => Framing { message: 3, role: true, request: 3, tools: 0 },
            Family::Llama => Framing { message: 5, role: false, request: 5, tools: 250 },
            Family::Qwen => Framing { message: 5, role: false, request: 7, tools: 250 },
            Family::Gemini => Framing { message: 5, role: false, request: 4, tools: 250 },
            Family::DeepSeek => Framing { message: 2, role: false, request: 2, tools: 250 },
            // Not published: as the largest of the others.
            Family::Claude => Framing { message: 5, role: false, request: 7, tools: 600 },
        }
    }
}

/// Tokens of a request's parts. Exact if all is text that the tokenizer counted, in a framing that is published.
pub(super) fn count(parts: &[Part], kind: Kind, tokenizer: Tokenizer, model: &str) -> InputEstimate {
    let mut sum = Sum::new(tokenizer, model);
    let framing = Framing::of(sum.family);
    let is_chat = kind == Kind::Chat && parts.iter().any(|part| matches!(part, Part::Message { .. }));
    if is_chat {
        sum.known(framing.request);
        let name = bare(model);
        let preamble = PREAMBLES.iter().find(|(start, _)| starts_with(name, start));
        sum.may_add(preamble.map_or(0, |(_, tokens)| *tokens));
    }
    for part in parts {
        add(&mut sum, part, &framing, model);
    }
    sum.estimate()
}

fn add(sum: &mut Sum, part: &Part, framing: &Framing, model: &str) {
    match part {
        Part::Message { role, name } => {
            sum.known(framing.message);
            // The usual roles are one token each; any other is text of the client's making.
            match (framing.role, role.as_str()) {
                (true, "system" | "user" | "assistant" | "tool" | "developer" | "function") => sum.known(1),
                (false, _) if role.len() <= 16 => {}
                _ => sum.text(role),
            }
            if let Some(name) = name {
                sum.known(NAME);
                sum.text(name);
            }
        }
        Part::Text(text) => sum.text(text),
        Part::ToolCall { name, arguments } => {
            sum.text(name);
            sum.text(arguments);
            sum.rule(TOOL_CALL);
        }
        Part::Image(picture) => sum.rule(image::image_tokens(*picture, model)),
        Part::Audio { bytes } => sum.rule(image::audio_tokens(*bytes)),
        Part::Document { bytes } => sum.rule(image::document_tokens(*bytes)),
        Part::Tools { json, count } => {
            sum.text(json);
            sum.rule((TOOLS + framing.tools).saturating_add(TOOL.saturating_mul(*count)));
        }
        Part::ResponseFormat(json) => {
            sum.text(json);
            sum.rule(TOOL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::{Estimator, Standard};
    use crate::request::{Image, Input, Request};

    fn message(role: &str, name: Option<&str>) -> Part {
        Part::Message { role: role.into(), name: name.map(Into::into) }
    }

    #[test]
    #[cfg(feature = "tiktoken")]
    fn openai_framing_is_exact() {
        let hello = || Part::Text("hello".into());
        for (parts, want) in [
            (vec![message("user", None), hello()], 8),
            (vec![message("user", Some("bob")), hello()], 10),
            (vec![message("system", None), hello(), message("user", None), hello()], 13),
            (vec![message("user", None)], 7),
        ] {
            let got = count(&parts, Kind::Chat, Tokenizer::O200kBase, "gpt-4o");
            assert_eq!((got.expected, got.reserve, got.exact), (want, want, true), "{parts:?}");
        }
    }

    #[test]
    #[cfg(feature = "tiktoken")]
    fn only_so_much_is_counted_exactly() {
        let text = || Part::Text("x ".repeat(100_000));
        for (texts, exact) in [(2, true), (3, false)] {
            let parts: Vec<_> = std::iter::repeat_with(text).take(texts).collect();
            let got = count(&parts, Kind::Chat, Tokenizer::O200kBase, "gpt-4o");
            assert_eq!(got.exact, exact, "{texts}");
            assert!(got.reserve >= texts as u64 * 100_000, "{got:?}");
        }
    }

    #[test]
    fn framing_differs_by_family() {
        for (model, expected) in [
            ("gpt-4o", 7),
            ("llama-3.3-70b", 10),
            ("qwen3-32b", 12),
            ("gemini-2.5-pro", 9),
            ("deepseek-v3", 4),
            ("claude-opus-4-1", 12),
        ] {
            let got = count(&[message("user", None)], Kind::Chat, Tokenizer::Heuristic, model);
            assert_eq!(got.expected, expected, "{model}");
            assert!(got.reserve >= expected && !got.exact, "{model}");
        }
    }

    #[test]
    fn a_long_role_is_text() {
        let got = count(&[message(&"x y".repeat(1000), None)], Kind::Chat, Tokenizer::Heuristic, "llama-3");
        assert!(got.reserve >= 2000, "{got:?}");
    }

    #[test]
    fn rules_add_up() {
        let parts = [
            message("user", None),
            Part::Image(Image { size: Some((1024, 1024)), low_detail: false }),
            Part::Audio { bytes: 0 },
            Part::Document { bytes: 1 },
            Part::Tools { json: String::new(), count: 2 },
            Part::ResponseFormat(String::new()),
        ];
        let got = count(&parts, Kind::Chat, Tokenizer::Heuristic, "gpt-4o");
        assert_eq!(got.expected, 7 + 765 + 300 + 3000 + 44 + 12);
        assert_eq!(got.reserve, got.expected);
        let claude = count(&parts[4..], Kind::Chat, Tokenizer::Heuristic, "claude-opus-4-1");
        assert_eq!(claude.expected, 644 + 12);
    }

    #[test]
    fn hostile_counts_do_not_overflow() {
        let parts = vec![Part::Audio { bytes: u64::MAX }, Part::Tools { json: String::new(), count: u64::MAX }];
        let request = Request { input: Input::Parts(parts), ..Request::chat("gpt-4o") };
        assert_eq!(Standard.estimate(&request, Tokenizer::Heuristic).reserve, u64::MAX);
        let counted = Request::chat("x").input_tokens(7);
        let seven = InputEstimate { expected: 7, reserve: 7, exact: true };
        assert_eq!(Standard.estimate(&counted, Tokenizer::Heuristic), seven);
    }
}
