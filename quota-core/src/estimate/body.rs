//! Bodies: a provider's JSON request becomes a [`Request`], texts moved out of it and not copied.
//!
//! Floor 1. Invariant: a field that counts is read or refused, never guessed; an error holds no text of the body.
//!
//! Every function takes the body by value. Unknown fields are ignored, `null` is absent. The output bound is the largest
//! of `max_tokens`, `max_completion_tokens` and `max_output_tokens`, so that a second, smaller field lowers nothing;
//! `n` and `best_of` give the larger, from 1 to [`MAX_CHOICES`].

mod blocks;
mod field;

use serde_json::{Map, Value};

use crate::request::{Input, InvalidRequest, Kind, Part, Request};
use field::{Path, compact, invalid, take, take_bool, take_count, take_text};

/// The most answers that one request may ask for per prompt.
pub const MAX_CHOICES: u64 = 128;

/// The most texts or token lists that one embeddings or completions request may hold.
pub const MAX_PROMPTS: usize = 2048;

/// Reads a body of OpenAI's chat completions.
///
/// # Errors
/// [`InvalidRequest`] if `model` or `messages` is missing, or a field that counts has another type or range.
pub fn openai_chat(body: Value) -> Result<Request, InvalidRequest> {
    let mut body = object(body)?;
    let mut request = common(&mut body, Kind::Chat)?;
    let mut parts = Vec::new();
    match body.remove("messages") {
        Some(Value::Array(messages)) => blocks::messages(messages, &Path::root("messages"), &mut parts)?,
        found => return Err(invalid("messages", found.as_ref(), "an array of messages")),
    }
    tools(&mut body, &mut parts)?;
    if let Some(format) = take(&mut body, "response_format") {
        let schema = format.get("json_schema").is_some();
        if schema {
            parts.push(Part::ResponseFormat(compact(&format, &Path::root("response_format"))?));
        }
    }
    request.input = Input::Parts(parts);
    Ok(request)
}

/// Reads a body of OpenAI's completions: `prompt` is a text, a list of texts, token ids, or a list of those. `choices`
/// is the answers over all prompts.
///
/// # Errors
/// As [`openai_chat`], with `prompt` for `messages`.
pub fn openai_completions(body: Value) -> Result<Request, InvalidRequest> {
    let mut body = object(body)?;
    let mut request = common(&mut body, Kind::Chat)?;
    let (mut input, prompts) = prompts(body.remove("prompt"), "prompt")?;
    if let (Some(suffix), Input::Parts(parts)) = (take_text(&mut body, "suffix")?, &mut input) {
        parts.push(Part::Text(suffix));
    }
    request.choices *= prompts;
    request.input = input;
    Ok(request)
}

/// Reads a body of OpenAI's embeddings: `input` as `prompt` of [`openai_completions`]. Token ids are counted exactly.
///
/// # Errors
/// As [`openai_chat`], with `input` for `messages`.
pub fn openai_embeddings(body: Value) -> Result<Request, InvalidRequest> {
    let mut body = object(body)?;
    let mut request = common(&mut body, Kind::Embeddings)?;
    (request.input, _) = prompts(body.remove("input"), "input")?;
    Ok(request)
}

/// Reads a body of OpenAI's responses. What `previous_response_id` stands for is not in the body and not counted.
///
/// # Errors
/// As [`openai_chat`], with `input` for `messages`.
pub fn openai_responses(body: Value) -> Result<Request, InvalidRequest> {
    let mut body = object(body)?;
    let mut request = common(&mut body, Kind::Chat)?;
    let mut parts = Vec::new();
    if let Some(text) = take_text(&mut body, "instructions")? {
        parts.push(message("system"));
        parts.push(Part::Text(text));
    }
    match take(&mut body, "input") {
        Some(Value::String(text)) => {
            parts.push(message("user"));
            parts.push(Part::Text(text));
        }
        Some(Value::Array(items)) => blocks::messages(items, &Path::root("input"), &mut parts)?,
        None if body.get("prompt").is_some() || body.get("previous_response_id").is_some() => {}
        found => return Err(invalid("input", found.as_ref(), "a string or an array of items")),
    }
    tools(&mut body, &mut parts)?;
    let format = body.get_mut("text").and_then(|text| text.get_mut("format"));
    if let Some(schema) = format.and_then(|format| format.get("schema")) {
        parts.push(Part::ResponseFormat(compact(schema, &Path::root("text.format.schema"))?));
    }
    request.input = Input::Parts(parts);
    Ok(request)
}

/// Reads a body of Anthropic's messages.
///
/// # Errors
/// As [`openai_chat`].
pub fn anthropic_messages(body: Value) -> Result<Request, InvalidRequest> {
    let mut body = object(body)?;
    let mut request = common(&mut body, Kind::Chat)?;
    let mut parts = Vec::new();
    if let Some(system) = take(&mut body, "system") {
        parts.push(message("system"));
        blocks::content(system, &Path::root("system"), &mut parts)?;
    }
    match body.remove("messages") {
        Some(Value::Array(messages)) => blocks::messages(messages, &Path::root("messages"), &mut parts)?,
        found => return Err(invalid("messages", found.as_ref(), "an array of messages")),
    }
    tools(&mut body, &mut parts)?;
    if let Some(Value::Object(mut metadata)) = body.remove("metadata") {
        let user = take_text(&mut metadata, "user_id").map_err(|error| error_within("metadata", error))?;
        request.user = user.map(Into::into);
    }
    request.input = Input::Parts(parts);
    Ok(request)
}

/// Reads a body of Gemini's `generateContent`; the model stands in its address and is handed over.
///
/// # Errors
/// As [`openai_chat`], with `contents` for `messages`.
pub fn gemini_generate_content(model: &str, body: Value, stream: bool) -> Result<Request, InvalidRequest> {
    if model.is_empty() {
        return Err(invalid("model", Some(&Value::String(String::new())), "a model's name"));
    }
    let mut body = object(body)?;
    let mut request = Request::chat(model).stream(stream);
    let mut parts = Vec::new();
    for key in ["systemInstruction", "system_instruction"] {
        if let Some(system) = take(&mut body, key) {
            parts.push(message("system"));
            blocks::content(system, &Path::root(key), &mut parts)?;
        }
    }
    match body.remove("contents") {
        Some(Value::Array(contents)) => blocks::messages(contents, &Path::root("contents"), &mut parts)?,
        found => return Err(invalid("contents", found.as_ref(), "an array of contents")),
    }
    tools(&mut body, &mut parts)?;
    for key in ["generationConfig", "generation_config"] {
        let mut config = match take(&mut body, key) {
            None => continue,
            Some(Value::Object(config)) => config,
            found => return Err(invalid(key, found.as_ref(), "an object")),
        };
        for field in ["maxOutputTokens", "max_output_tokens"] {
            let asked = take_count(&mut config, field).map_err(|error| error_within(key, error))?;
            request.max_output_tokens = request.max_output_tokens.max(asked);
        }
        for field in ["candidateCount", "candidate_count"] {
            let asked = choices(&mut config, field).map_err(|error| error_within(key, error))?;
            request.choices = request.choices.max(asked);
        }
        for field in ["responseSchema", "responseJsonSchema", "response_schema"] {
            if let Some(schema) = take(&mut config, field) {
                parts.push(Part::ResponseFormat(compact(&schema, &Path::root(key).key(field))?));
            }
        }
    }
    request.input = Input::Parts(parts);
    Ok(request)
}

fn error_within(parent: &str, error: InvalidRequest) -> InvalidRequest {
    InvalidRequest { field: format!("{parent}.{}", error.field), ..error }
}

fn message(role: &str) -> Part {
    Part::Message { role: role.into(), name: None }
}

fn object(body: Value) -> Result<Map<String, Value>, InvalidRequest> {
    match body {
        Value::Object(body) => Ok(body),
        other => Err(invalid("body", Some(&other), "an object")),
    }
}

/// The fields that every dialect with the model in the body shares.
fn common(body: &mut Map<String, Value>, kind: Kind) -> Result<Request, InvalidRequest> {
    let model = match body.remove("model") {
        Some(Value::String(model)) if !model.is_empty() => model,
        found => return Err(invalid("model", found.as_ref(), "a model's name")),
    };
    let mut request = match kind {
        Kind::Chat => Request::chat(model),
        Kind::Embeddings => Request::embeddings(model),
    };
    for field in ["max_tokens", "max_completion_tokens", "max_output_tokens"] {
        request.max_output_tokens = request.max_output_tokens.max(take_count(body, field)?);
    }
    request.choices = choices(body, "n")?.max(choices(body, "best_of")?);
    request.stream = take_bool(body, "stream")?.unwrap_or(false);
    request.service_tier = take_text(body, "service_tier")?.map(Into::into);
    request.user = take_text(body, "user")?.map(Into::into);
    Ok(request)
}

/// A number of answers; 1 if absent.
fn choices(body: &mut Map<String, Value>, field: &str) -> Result<u64, InvalidRequest> {
    match take_count(body, field)? {
        None => Ok(1),
        Some(count) if (1..=MAX_CHOICES).contains(&count) => Ok(count),
        Some(count) => Err(invalid(field, Some(&count.into()), &format!("1 to {MAX_CHOICES}"))),
    }
}

/// The definitions of tools, of the present and the older way.
fn tools(body: &mut Map<String, Value>, parts: &mut Vec<Part>) -> Result<(), InvalidRequest> {
    for key in ["tools", "functions"] {
        match take(body, key) {
            None => {}
            Some(Value::Array(tools)) if tools.is_empty() => {}
            Some(Value::Array(tools)) => {
                // One entry of Gemini's holds several declarations.
                let inner =
                    |tool: &Value| tool.get("functionDeclarations").and_then(Value::as_array).map_or(1, Vec::len);
                let count = tools.iter().map(inner).sum::<usize>() as u64;
                parts.push(Part::Tools { json: compact(&Value::Array(tools), &Path::root(key))?, count });
            }
            found => return Err(invalid(key, found.as_ref(), "an array of tools")),
        }
    }
    Ok(())
}

/// Prompts as texts or token ids, and how many there are. If any is given as ids, the ids' number is the count, and
/// texts beside them are refused.
fn prompts(value: Option<Value>, field: &str) -> Result<(Input, u64), InvalidRequest> {
    const ALLOWED: &str = "a string, strings, token ids, or lists of token ids";
    let list = match value {
        Some(Value::String(text)) => return Ok((Input::Parts(vec![Part::Text(text)]), 1)),
        Some(Value::Array(list)) if !list.is_empty() => list,
        found => return Err(invalid(field, found.as_ref(), ALLOWED)),
    };
    if list[0].is_u64() {
        return Ok((Input::Counted(ids(&list, &Path::root(field))?), 1));
    }
    if list.len() > MAX_PROMPTS {
        let found = format!("{} entries", list.len());
        return Err(InvalidRequest { field: field.into(), found, allowed: format!("at most {MAX_PROMPTS}") });
    }
    let prompts = list.len() as u64;
    if list[0].is_array() {
        let mut sum = 0;
        for (index, entry) in list.iter().enumerate() {
            let path = Path::root(field);
            let path = path.index(index);
            match entry {
                Value::Array(entry) => sum += ids(entry, &path)?,
                other => return Err(path.invalid(Some(other), "a list of token ids")),
            }
        }
        return Ok((Input::Counted(sum), prompts));
    }
    let mut parts = Vec::with_capacity(list.len());
    for (index, entry) in list.into_iter().enumerate() {
        match entry {
            Value::String(text) => parts.push(Part::Text(text)),
            other => return Err(Path::root(field).index(index).invalid(Some(&other), "a string")),
        }
    }
    Ok((Input::Parts(parts), prompts))
}

/// How many token ids a list holds.
fn ids(list: &[Value], path: &Path<'_>) -> Result<u64, InvalidRequest> {
    match list.iter().position(|id| !id.is_u64()) {
        None => Ok(list.len() as u64),
        Some(index) => Err(path.index(index).invalid(Some(&list[index]), "a token id")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DIALECTS: [fn(Value) -> Result<Request, InvalidRequest>; 6] =
        [openai_chat, openai_completions, openai_embeddings, openai_responses, anthropic_messages, |body| {
            gemini_generate_content("gemini-2.5-pro", body, true)
        }];

    /// JSON that uses the words that the dialects know, with a text that no error may show.
    fn json() -> impl Strategy<Value = Value> {
        let word = prop::sample::select(vec![
            "sesame",
            "messages",
            "content",
            "type",
            "text",
            "role",
            "image_url",
            "source",
            "data",
            "input",
            "parts",
            "tool_calls",
            "function",
            "arguments",
            "name",
            "tools",
            "contents",
            "inlineData",
            "tool_result",
            "document",
            "file",
            "thinking",
            "input_audio",
            "output",
            "max_tokens",
            "n",
            "generationConfig",
            "prompt",
            "system",
        ]);
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            word.clone().prop_map(Value::from),
        ];
        leaf.prop_recursive(6, 60, 6, move |inner| {
            let map = prop::collection::vec((word.clone(), inner.clone()), 0..6);
            prop_oneof![
                prop::collection::vec(inner, 0..5).prop_map(Value::from),
                map.prop_map(|entries| entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()),
            ]
        })
    }

    proptest! {
        #[test]
        fn no_body_panics_and_no_error_shows_its_text(first in json(), second in json()) {
            for key in ["messages", "input", "prompt", "contents"] {
                let body = serde_json::json!({ "model": "m", key: [first.clone()], "tools": second.clone() });
                for read in DIALECTS {
                    if let Err(error) = read(body.clone()) {
                        prop_assert!(!error.to_string().contains("sesame"), "{error}");
                    }
                }
            }
        }
    }

    #[test]
    fn texts_are_moved() {
        let text = "x".repeat(1000);
        let place = text.as_ptr();
        let mut body = serde_json::json!({ "model": "m", "messages": [{ "role": "user" }] });
        body["messages"][0]["content"] = Value::String(text);
        let Ok(Request { input: Input::Parts(parts), .. }) = openai_chat(body) else { panic!("refused") };
        assert!(matches!(&parts[1], Part::Text(text) if text.as_ptr() == place));
    }
}
