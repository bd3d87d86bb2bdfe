//! Messages and their content: texts, calls, pictures, sound and documents, in any dialect and at any place.
//!
//! Floor 1. Invariant: encoded data becomes a part with a size, wherever it stands; only text becomes text.

use serde_json::{Map, Value};

use super::field::{Path, compact, take};
use super::message;
use crate::estimate::image;
use crate::request::{Image, InvalidRequest, Part};

/// How deep blocks of content may be nested.
const MAX_DEPTH: usize = 16;

/// From this length on, a string of the base64 alphabet in a block of unknown kind is data and not text.
const DATA: usize = 1024;

type Fields = Map<String, Value>;

/// Messages, and what stands among them in other dialects (calls and their results).
pub(super) fn messages(list: Vec<Value>, path: &Path<'_>, parts: &mut Vec<Part>) -> Result<(), InvalidRequest> {
    for (index, entry) in list.into_iter().enumerate() {
        let path = path.index(index);
        match entry {
            Value::Object(fields) => one_message(fields, &path, parts)?,
            // A bare text among the items is a text of the user's.
            Value::String(text) => parts.extend([message("user"), Part::Text(text)]),
            other => return Err(path.invalid(Some(&other), "an object")),
        }
    }
    Ok(())
}

fn one_message(mut fields: Fields, path: &Path<'_>, parts: &mut Vec<Part>) -> Result<(), InvalidRequest> {
    let is_item = fields.get("type").and_then(Value::as_str).is_some_and(|kind| kind != "message");
    if is_item && !fields.contains_key("role") {
        let result = fields.get("type").and_then(Value::as_str).is_some_and(|kind| kind.ends_with("_output"));
        parts.push(message(if result { "tool" } else { "assistant" }));
        return block(fields, path, MAX_DEPTH, parts);
    }
    // Gemini leaves the role out where it is the user's.
    let gemini = fields.contains_key("parts");
    let role = match fields.remove("role") {
        Some(Value::String(role)) if !role.is_empty() => role,
        None if gemini => "user".to_owned(),
        found => return Err(path.key("role").invalid(found.as_ref(), "a role's name")),
    };
    let name = text_field(&mut fields, "name", path)?;
    parts.push(Part::Message { role, name });
    for key in ["content", "parts"] {
        if let Some(value) = take(&mut fields, key) {
            content(value, &path.key(key), parts)?;
        }
    }
    for key in ["reasoning_content", "reasoning", "refusal"] {
        if let Some(Value::String(text)) = fields.remove(key) {
            parts.push(Part::Text(text));
        }
    }
    if let Some(audio) = take(&mut fields, "audio") {
        other(audio, MAX_DEPTH, &path.key("audio"), parts)?;
    }
    calls(fields, path, parts)
}

/// An assistant's calls of tools, of OpenAI's present and older way.
fn calls(mut fields: Fields, path: &Path<'_>, parts: &mut Vec<Part>) -> Result<(), InvalidRequest> {
    if let Some(Value::Object(function)) = take(&mut fields, "function_call") {
        call(function, &path.key("function_call"), parts)?;
    }
    let list = match take(&mut fields, "tool_calls") {
        None => return Ok(()),
        Some(Value::Array(list)) => list,
        found => return Err(path.key("tool_calls").invalid(found.as_ref(), "an array of calls")),
    };
    let path = path.key("tool_calls");
    for (index, entry) in list.into_iter().enumerate() {
        let path = path.index(index);
        let Value::Object(mut fields) = entry else {
            return Err(path.invalid(Some(&entry), "an object"));
        };
        match take(&mut fields, "function").or_else(|| take(&mut fields, "custom")) {
            Some(Value::Object(function)) => call(function, &path.key("function"), parts)?,
            found => return Err(path.key("function").invalid(found.as_ref(), "an object")),
        }
    }
    Ok(())
}

/// A call: a name, and arguments as JSON text or as an object.
fn call(mut fields: Fields, path: &Path<'_>, parts: &mut Vec<Part>) -> Result<(), InvalidRequest> {
    let name = text_field(&mut fields, "name", path)?.unwrap_or_default();
    let mut arguments = String::new();
    for key in ["arguments", "input", "args"] {
        match take(&mut fields, key) {
            None => {}
            Some(Value::String(text)) => arguments = text,
            Some(value) => arguments = compact(&value, &path.key(key))?,
        }
    }
    parts.push(Part::ToolCall { name, arguments });
    Ok(())
}

/// Content: a text, a block, or a list of both.
pub(super) fn content(value: Value, path: &Path<'_>, parts: &mut Vec<Part>) -> Result<(), InvalidRequest> {
    nested(value, path, MAX_DEPTH, parts)
}

fn nested(value: Value, path: &Path<'_>, depth: usize, parts: &mut Vec<Part>) -> Result<(), InvalidRequest> {
    if depth == 0 {
        let found = "deeper nesting".to_owned();
        return Err(InvalidRequest { found, ..path.invalid(None, &format!("{MAX_DEPTH} levels of content")) });
    }
    match value {
        Value::Null => Ok(()),
        Value::String(text) => {
            parts.push(Part::Text(text));
            Ok(())
        }
        Value::Array(list) => {
            let entries = list.into_iter().enumerate();
            entries.into_iter().try_for_each(|(index, entry)| nested(entry, &path.index(index), depth - 1, parts))
        }
        Value::Object(fields) => block(fields, path, depth - 1, parts),
        found => Err(path.invalid(Some(&found), "a string, an object or an array")),
    }
}

/// A block of content, by its type or, where it has none, by the field that makes it.
fn block(mut fields: Fields, path: &Path<'_>, depth: usize, parts: &mut Vec<Part>) -> Result<(), InvalidRequest> {
    let kind = text_field(&mut fields, "type", path)?.unwrap_or_default();
    match kind.as_str() {
        "image_url" | "input_image" | "image" => picture(fields, path, parts),
        "input_audio" | "audio" => sound(fields, path, parts),
        "document" | "file" | "input_file" => document(fields, path, depth, parts),
        "tool_use" | "function_call" | "server_tool_use" | "mcp_tool_use" | "custom_tool_call" => {
            call(fields, path, parts)
        }
        "tool_result" | "function_call_output" | "custom_tool_call_output" | "message" => {
            for key in ["content", "output"] {
                if let Some(value) = take(&mut fields, key) {
                    nested(value, &path.key(key), depth, parts)?;
                }
            }
            Ok(())
        }
        "item_reference" | "redacted_thinking" => Ok(()),
        _ => untyped(fields, path, depth, parts),
    }
}

/// A block that its fields tell: texts, and Gemini's parts.
fn untyped(mut fields: Fields, path: &Path<'_>, depth: usize, parts: &mut Vec<Part>) -> Result<(), InvalidRequest> {
    for key in ["inlineData", "inline_data", "fileData", "file_data"] {
        if let Some(Value::Object(mut data)) = take(&mut fields, key) {
            let media = text_field(&mut data, "mimeType", path)?.or(text_field(&mut data, "mime_type", path)?);
            let data = text_field(&mut data, "data", path)?.unwrap_or_default();
            parts.push(media_part(&media.unwrap_or_default(), &data));
        }
    }
    for key in ["functionCall", "function_call"] {
        if let Some(Value::Object(function)) = take(&mut fields, key) {
            call(function, &path.key(key), parts)?;
        }
    }
    for key in ["text", "thinking", "refusal"] {
        match take(&mut fields, key) {
            None => {}
            Some(Value::String(text)) => parts.push(Part::Text(text)),
            found => return Err(path.key(key).invalid(found.as_ref(), "a string")),
        }
    }
    for key in ["content", "parts", "output"] {
        if let Some(value) = take(&mut fields, key) {
            nested(value, &path.key(key), depth, parts)?;
        }
    }
    // Marks for caches, signatures and citations are not put before the model.
    for key in ["cache_control", "signature", "citations", "annotations", "encrypted_content", "id", "thoughtSignature"]
    {
        fields.remove(key);
    }
    other(Value::Object(fields), depth, path, parts)
}

/// What no rule knows: every string in it is text, unless it is data.
fn other(value: Value, depth: usize, path: &Path<'_>, parts: &mut Vec<Part>) -> Result<(), InvalidRequest> {
    if depth == 0 {
        let found = "deeper nesting".to_owned();
        return Err(InvalidRequest { found, ..path.invalid(None, &format!("{MAX_DEPTH} levels of content")) });
    }
    match value {
        Value::String(text) if is_data(&text) => parts.push(media_part(media_of(&text), &text)),
        Value::String(text) => parts.push(Part::Text(text)),
        Value::Array(list) => {
            for (index, entry) in list.into_iter().enumerate() {
                other(entry, depth - 1, &path.index(index), parts)?;
            }
        }
        Value::Object(map) => {
            for (key, entry) in map {
                // The key is the client's text and has no place in an error.
                other(entry, depth - 1, path, parts)?;
                parts.push(Part::Text(key));
            }
        }
        Value::Null => {}
        scalar => parts.push(Part::Text(scalar.to_string())),
    }
    Ok(())
}

/// `image_url: {url, detail}`, `image_url: "…"` with `detail` beside it, or a `source` of Anthropic's.
fn picture(mut fields: Fields, path: &Path<'_>, parts: &mut Vec<Part>) -> Result<(), InvalidRequest> {
    let mut detail = text_field(&mut fields, "detail", path)?;
    let address = match take(&mut fields, "image_url").or_else(|| take(&mut fields, "source")) {
        Some(Value::String(url)) => Some(url),
        Some(Value::Object(mut inner)) => {
            let path = path.key("image_url");
            detail = text_field(&mut inner, "detail", &path)?.or(detail);
            text_field(&mut inner, "url", &path)?.or(text_field(&mut inner, "data", &path)?)
        }
        None => text_field(&mut fields, "data", path)?,
        found => return Err(path.key("image_url").invalid(found.as_ref(), "an address or an object")),
    };
    let size = address.as_deref().and_then(image::header_size);
    parts.push(Part::Image(Image { size, low_detail: detail.as_deref() == Some("low") }));
    Ok(())
}

fn sound(mut fields: Fields, path: &Path<'_>, parts: &mut Vec<Part>) -> Result<(), InvalidRequest> {
    let mut bytes = 0;
    for key in ["input_audio", "audio", "source"] {
        if let Some(Value::Object(mut inner)) = take(&mut fields, key) {
            bytes = text_field(&mut inner, "data", &path.key(key))?.map_or(0, |data| image::encoded_bytes(&data));
        }
    }
    if let Some(data) = text_field(&mut fields, "data", path)? {
        bytes = image::encoded_bytes(&data);
    }
    parts.push(Part::Audio { bytes });
    Ok(())
}

/// A document: its text where it is given as text, else its encoded size.
fn document(mut fields: Fields, path: &Path<'_>, depth: usize, parts: &mut Vec<Part>) -> Result<(), InvalidRequest> {
    for key in ["title", "context", "filename"] {
        if let Some(text) = text_field(&mut fields, key, path)? {
            parts.push(Part::Text(text));
        }
    }
    let mut inner = match take(&mut fields, "source").or_else(|| take(&mut fields, "file")) {
        None => fields,
        Some(Value::Object(inner)) => inner,
        found => return Err(path.key("source").invalid(found.as_ref(), "an object")),
    };
    if let Some(value) = take(&mut inner, "content") {
        return nested(value, &path.key("content"), depth, parts);
    }
    let is_text = inner.get("type").and_then(Value::as_str) == Some("text");
    let data = text_field(&mut inner, "data", path)?.or(text_field(&mut inner, "file_data", path)?);
    parts.push(match data {
        Some(text) if is_text => Part::Text(text),
        data => Part::Document { bytes: data.map_or(0, |data| image::encoded_bytes(&data)) },
    });
    Ok(())
}

/// The part for data of a media type.
fn media_part(media: &str, data: &str) -> Part {
    match media.split('/').next() {
        Some("image") => Part::Image(Image { size: image::header_size(data), low_detail: false }),
        // A video is reckoned by its sound's rule: its length is not known either.
        Some("audio" | "video") => Part::Audio { bytes: image::encoded_bytes(data) },
        _ => Part::Document { bytes: image::encoded_bytes(data) },
    }
}

/// The media type that a `data:` URL states; a picture where none is stated but its head is one's.
fn media_of(data: &str) -> &str {
    match data.get(5..).filter(|_| data.starts_with("data:")) {
        Some(rest) => rest.split([';', ',']).next().unwrap_or_default(),
        None if image::header_size(data).is_some() => "image/",
        None => "",
    }
}

/// Whether a string is encoded data.
fn is_data(text: &str) -> bool {
    let head = &text.as_bytes()[..text.len().min(128)];
    if text.starts_with("data:") {
        return head.windows(8).any(|window| window == b";base64,");
    }
    text.len() >= DATA
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=' | b'-' | b'_'))
}

/// Takes a text field out of a block.
fn text_field(fields: &mut Fields, key: &str, path: &Path<'_>) -> Result<Option<String>, InvalidRequest> {
    match take(fields, key) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(found) => Err(path.key(key).invalid(Some(&found), "a string")),
    }
}
