//! Cursors over a document: one function for each record both reads it and describes it.
//!
//! Floor 1. Invariant: whatever is read is described by the same call, so the JSON Schema can't drift from the reader.
//!
//! A [`Cursor`] stands on one value, [`Fields`] on the keys of one mapping. Each has two sides: it reads a node, or it
//! writes the schema of what it would read. On the second side every value comes back as `None`.

use std::collections::HashSet;
use std::ops::RangeInclusive;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::error::{ErrorKind, Origin, Report, shorten};
use super::node::{Entry, Kind, Node};
use crate::principal::MAX_NAME;
use crate::time::{Calendar, Unit, parse_instant};
use crate::units::{MAX_AMOUNT, Usd, parse_decimal};

/// A value and where it was written.
#[derive(Debug, Clone)]
pub(crate) struct Spanned<T> {
    pub(crate) value: T,
    pub(crate) at: Origin,
}

/// A name and where it was written.
pub(crate) type Name = Spanned<Arc<str>>;

/// Stands on one value, to read it or to describe it.
pub(crate) struct Cursor<'a> {
    at: Origin,
    side: Side<'a, &'a Node, &'a mut Value>,
}

/// Stands on the keys of one mapping, to read them or to describe them.
pub(crate) struct Fields<'a> {
    at: Origin,
    known: Vec<&'static str>,
    side: Side<'a, (&'a [Entry], Vec<bool>), &'a mut Record>,
}

enum Side<'a, N, S> {
    Read(N, &'a mut Report),
    Describe(S, &'a mut Map<String, Value>),
}

/// A record being described.
#[derive(Default)]
struct Record {
    properties: Map<String, Value>,
    required: Vec<&'static str>,
}

/// Reads a document's top record; what is wrong goes into the report.
pub(crate) fn read<T>(node: &Node, report: &mut Report, fields: impl FnOnce(&mut Fields<'_>) -> T) -> Option<T> {
    let at = Origin::top(node.at);
    if let Kind::Null = node.kind {
        report.add(&at, ErrorKind::Missing, "the document is empty; a policy is a mapping");
        return None;
    }
    Cursor { at, side: Side::Read(node, report) }.record("policy", fields)
}

/// Reads a text that is a part of a document by itself.
pub(crate) fn read_part<T>(node: &Node, report: &mut Report, read: impl FnOnce(Cursor<'_>) -> Option<T>) -> Option<T> {
    read(Cursor { at: Origin::top(node.at), side: Side::Read(node, report) })
}

/// Describes a document's top record: its schema, and the definitions that it refers to.
pub(crate) fn describe<T>(fields: impl FnOnce(&mut Fields<'_>) -> T) -> (Value, Map<String, Value>) {
    let (mut schema, mut definitions) = (Value::Null, Map::new());
    Cursor { at: Origin::default(), side: Side::Describe(&mut schema, &mut definitions) }.record("policy", fields);
    (schema, definitions)
}

impl Fields<'_> {
    /// Reads a key's value with `read`; `None` where it is absent, null, or wrong (then the report says so).
    pub(crate) fn get<T>(
        &mut self,
        key: &'static str,
        about: &str,
        read: impl FnOnce(Cursor<'_>) -> Option<T>,
    ) -> Option<T> {
        self.known.push(key);
        match &mut self.side {
            Side::Read((entries, taken), report) => {
                let found = entries.iter().position(|entry| entry.key == key)?;
                taken[found] = true;
                let entry = &entries[found];
                if let Kind::Null = entry.value.kind {
                    return None;
                }
                read(Cursor { at: self.at.key(key, entry.at), side: Side::Read(&entry.value, report) })
            }
            Side::Describe(record, definitions) => {
                let mut schema = Value::Null;
                let at = self.at.clone();
                read(Cursor { at, side: Side::Describe(&mut schema, definitions) });
                if let Value::Object(schema) = &mut schema {
                    schema.insert("description".into(), about.into());
                }
                record.properties.insert(key.into(), schema);
                None
            }
        }
    }

    /// As [`get`](Fields::get); that the key is absent or null is an error.
    pub(crate) fn need<T>(
        &mut self,
        key: &'static str,
        about: &str,
        read: impl FnOnce(Cursor<'_>) -> Option<T>,
    ) -> Option<T> {
        match &mut self.side {
            Side::Describe(record, _) => record.required.push(key),
            Side::Read((entries, _), report) => {
                let found = entries.iter().find(|entry| entry.key == key);
                if found.is_none_or(|entry| matches!(entry.value.kind, Kind::Null)) {
                    report.add(&self.at, ErrorKind::Missing, format!("`{key}` is missing"));
                }
            }
        }
        self.get(key, about, read)
    }

    /// Where the record stands.
    pub(crate) fn at(&self) -> &Origin {
        &self.at
    }

    /// Adds an error about what was read.
    pub(crate) fn error(&mut self, at: &Origin, kind: ErrorKind, message: impl Into<String>) {
        if let Side::Read(_, report) = &mut self.side {
            report.add(at, kind, message);
        }
    }

    /// Tells every key that nothing has asked for; keys that start with `x-` are comments.
    fn close(&mut self) {
        let Side::Read((entries, taken), report) = &mut self.side else { return };
        let left = entries.iter().zip(taken.iter()).filter(|(entry, taken)| !**taken && !entry.key.starts_with("x-"));
        for (entry, _) in left {
            if self.known.contains(&entry.key.as_str()) {
                continue; // the second of a duplicate key, already told
            }
            let at = self.at.key(&entry.key, entry.at);
            report.unknown(&at, ErrorKind::UnknownKey, "unknown key", &entry.key, self.known.iter().copied());
        }
    }
}

impl<'a> Cursor<'a> {
    /// Where the value stands.
    pub(crate) fn at(&self) -> &Origin {
        &self.at
    }

    /// A mapping with known keys, described once under `name`.
    pub(crate) fn record<T>(self, name: &str, fields: impl FnOnce(&mut Fields<'_>) -> T) -> Option<T> {
        match self.side {
            Side::Read(node, report) => {
                let entries: &[Entry] = match &node.kind {
                    Kind::Map(entries) => entries,
                    Kind::Null => &[],
                    _ => {
                        wrong(report, &self.at, node, "a mapping");
                        return None;
                    }
                };
                let taken = vec![false; entries.len()];
                let side = Side::Read((entries, taken), report);
                let mut record = Fields { at: self.at, known: Vec::new(), side };
                let value = fields(&mut record);
                record.close();
                Some(value)
            }
            Side::Describe(schema, definitions) => {
                *schema = json!({ "$ref": format!("#/$defs/{name}") });
                if !definitions.contains_key(name) {
                    definitions.insert(name.into(), Value::Null);
                    let mut record = Record::default();
                    let side = Side::Describe(&mut record, definitions);
                    fields(&mut Fields { at: self.at, known: Vec::new(), side });
                    definitions.insert(name.into(), record.schema());
                }
                None
            }
        }
    }

    /// A value described once under `name`.
    pub(crate) fn defined<T>(self, name: &str, read: impl FnOnce(Cursor<'_>) -> Option<T>) -> Option<T> {
        match self.side {
            Side::Read(..) => read(self),
            Side::Describe(schema, definitions) => {
                *schema = json!({ "$ref": format!("#/$defs/{name}") });
                if !definitions.contains_key(name) {
                    definitions.insert(name.into(), Value::Null);
                    let mut value = Value::Null;
                    read(Cursor { at: self.at, side: Side::Describe(&mut value, definitions) });
                    definitions.insert(name.into(), nullable(value));
                }
                None
            }
        }
    }

    /// A mapping from names to values, in the order of the document; an empty value is an empty record.
    pub(crate) fn table<T>(self, mut each: impl FnMut(Cursor<'_>) -> Option<T>) -> Option<Vec<(Name, T)>> {
        match self.side {
            Side::Read(node, report) => {
                let Kind::Map(entries) = &node.kind else {
                    wrong(report, &self.at, node, "a mapping from names");
                    return None;
                };
                let mut rows = Vec::with_capacity(entries.len());
                let mut seen = HashSet::new();
                for entry in entries.iter().filter(|entry| !entry.key.starts_with("x-")) {
                    let at = self.at.key(&entry.key, entry.at);
                    let sound = check_name(&entry.key).map_err(|why| report.add(&at, ErrorKind::BadValue, why));
                    let value = each(Cursor { at: at.clone(), side: Side::Read(&entry.value, report) });
                    if let Some(value) = value
                        && sound.is_ok()
                        && seen.insert(entry.key.as_str())
                    {
                        rows.push((Spanned { value: entry.key.as_str().into(), at }, value));
                    }
                }
                Some(rows)
            }
            Side::Describe(schema, definitions) => {
                let mut value = Value::Null;
                each(Cursor { at: self.at, side: Side::Describe(&mut value, definitions) });
                *schema = json!({
                    "type": "object",
                    "patternProperties": { "^x-": true, "^(?!x-)": nullable(value) },
                });
                None
            }
        }
    }

    /// A sequence.
    pub(crate) fn list<T>(self, mut each: impl FnMut(Cursor<'_>) -> Option<T>) -> Option<Vec<T>> {
        match self.side {
            Side::Read(node, report) => {
                let Kind::List(items) = &node.kind else {
                    wrong(report, &self.at, node, "a list");
                    return None;
                };
                let mut values = Vec::with_capacity(items.len());
                for (i, item) in items.iter().enumerate() {
                    values.extend(each(Cursor { at: self.at.index(i, item.at), side: Side::Read(item, report) }));
                }
                Some(values)
            }
            Side::Describe(schema, definitions) => {
                let mut items = Value::Null;
                each(Cursor { at: self.at, side: Side::Describe(&mut items, definitions) });
                *schema = json!({ "type": "array", "items": items });
                None
            }
        }
    }

    /// A mapping read by `map`, or anything else read by `other`.
    pub(crate) fn map_or<T>(
        self,
        map: impl FnOnce(Cursor<'_>) -> Option<T>,
        other: impl FnOnce(Cursor<'_>) -> Option<T>,
    ) -> Option<T> {
        match self.side {
            Side::Read(node, report) => {
                let is_map = matches!(node.kind, Kind::Map(_));
                let cursor = Cursor { at: self.at, side: Side::Read(node, report) };
                if is_map { map(cursor) } else { other(cursor) }
            }
            Side::Describe(schema, definitions) => {
                let (mut a, mut b) = (Value::Null, Value::Null);
                other(Cursor { at: self.at.clone(), side: Side::Describe(&mut a, definitions) });
                map(Cursor { at: self.at, side: Side::Describe(&mut b, definitions) });
                *schema = json!({ "anyOf": [a, b] });
                None
            }
        }
    }

    /// A scalar whose text `parse` understands; `want` says in a message what is allowed.
    pub(crate) fn scalar<T>(
        self,
        shape: impl FnOnce() -> Value,
        want: &str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<Spanned<T>> {
        match self.side {
            Side::Describe(schema, _) => {
                *schema = shape();
                None
            }
            Side::Read(node, report) => {
                let Kind::Text(text) = &node.kind else {
                    wrong(report, &self.at, node, want);
                    return None;
                };
                match parse(text) {
                    Ok(value) => Some(Spanned { value, at: self.at }),
                    Err(why) => {
                        report.add(&self.at, ErrorKind::BadValue, why);
                        None
                    }
                }
            }
        }
    }

    /// Free text that is not empty, at most `max` bytes.
    pub(crate) fn text(self, max: usize) -> Option<Name> {
        let shape = || json!({ "type": ["string", "number"], "minLength": 1, "maxLength": max });
        self.scalar(shape, "text", |text| match text.len() {
            0 => Err("the text is empty; leave the key out, or say `null`, if it is not set".into()),
            n if n > max => Err(format!("{n} bytes; at most {max} are allowed")),
            _ => Ok(text.into()),
        })
    }

    /// A name, as the keys of tables are.
    pub(crate) fn name(self) -> Option<Name> {
        let shape = || json!({ "type": ["string", "number"], "minLength": 1, "maxLength": MAX_NAME });
        self.scalar(shape, "a name", |text| check_name(text).map(|()| text.into()))
    }

    /// `true` or `false`.
    pub(crate) fn flag(self) -> Option<bool> {
        match self.side {
            Side::Describe(schema, _) => {
                *schema = json!({ "type": "boolean" });
                None
            }
            Side::Read(Node { kind: Kind::Flag(flag), .. }, _) => Some(*flag),
            Side::Read(node, report) => {
                wrong(report, &self.at, node, "`true` or `false`");
                None
            }
        }
    }

    /// A whole number in a range.
    pub(crate) fn count(self, range: RangeInclusive<u64>) -> Option<Spanned<u64>> {
        let (low, high) = range.into_inner();
        let shape = || {
            json!({ "anyOf": [
            { "type": "integer", "minimum": low, "maximum": high },
            { "type": "string", "pattern": NUMBER },
        ] })
        };
        self.scalar(shape, "a whole number", |text| match parse_decimal(text, 0) {
            Ok(n) if (low as u128..=high as u128).contains(&n) => Ok(n as u64),
            Ok(_) => Err(format!("{} is out of range; {low} to {high} is allowed", shorten(text))),
            Err(crate::units::NotDecimal::TooFine) => Err(format!("{} is not a whole number", shorten(text))),
            Err(why) => Err(format!("`{}` {why}; a whole number from {low} to {high} is allowed", shorten(text))),
        })
    }

    /// Money in USD, exact to 1e-8.
    pub(crate) fn usd(self) -> Option<Spanned<u64>> {
        let most = MAX_AMOUNT / Usd::UNITS;
        let shape = || {
            json!({ "anyOf": [
            { "type": "number", "minimum": 0, "maximum": most },
            { "type": "string", "pattern": NUMBER },
        ] })
        };
        self.scalar(shape, "an amount of USD", |text| match text.parse::<Usd>() {
            Ok(usd) => Ok(usd.units()),
            Err(why) => Err(format!(
                "`{}` {why}; an amount of USD from 0 to {most}, no finer than 0.00000001, is allowed",
                shorten(text)
            )),
        })
    }

    /// An instant in Unix nanoseconds.
    pub(crate) fn instant(self) -> Option<Spanned<u64>> {
        let shape = || json!({ "type": "string", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}" });
        self.scalar(shape, "an RFC 3339 instant", |text| {
            let why = "is not an RFC 3339 instant or a date from 1970 to 2554 (`2027-01-01T00:00:00Z`, `2027-01-01`)";
            parse_instant(text).map_err(|_| format!("`{}` {why}", shorten(text)))
        })
    }

    /// The name of a time zone that the IANA database has.
    pub(crate) fn zone(self) -> Option<Name> {
        let shape = || json!({ "type": "string", "examples": ["UTC", "Asia/Shanghai"] });
        let at = self.at.clone();
        let (found, report) = match self.side {
            Side::Read(Node { kind: Kind::Text(found), .. }, report) => (found, report),
            side => return Cursor { at, side }.scalar(shape, "an IANA time zone", |text| Ok(text.into())),
        };
        match Calendar::new(Unit::Day, found) {
            Ok(_) => Some(Spanned { value: found.as_str().into(), at }),
            Err(why) => {
                let zones = if report.hints() { jiff::tz::db().available().collect() } else { Vec::new() };
                let zones = zones.iter().map(|zone| zone.as_str());
                report.unknown(&at, ErrorKind::UnknownName, &why.to_string(), found, zones);
                None
            }
        }
    }

    /// One of a few words.
    pub(crate) fn one_of<T: Copy>(self, words: &[(&'static str, T)]) -> Option<Spanned<T>> {
        let names = words.iter().map(|(word, _)| *word);
        match self.side {
            Side::Describe(schema, _) => {
                *schema = json!({ "enum": names.collect::<Vec<_>>() });
                None
            }
            Side::Read(node, report) => {
                let found = match &node.kind {
                    Kind::Text(text) => text.as_str(),
                    _ => "",
                };
                if let Some((_, value)) = words.iter().find(|(word, _)| *word == found) {
                    return Some(Spanned { value: *value, at: self.at });
                }
                let allowed = names.clone().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ");
                let what = format!("{}; allowed: {allowed}", node.describe());
                report.unknown(&self.at, ErrorKind::BadValue, &what, found, names);
                None
            }
        }
    }
}

/// A decimal in quotes.
const NUMBER: &str = "^[+]?[0-9.]+([eE][+-]?[0-9]+)?$";

impl Record {
    fn schema(self) -> Value {
        let mut schema = json!({
            "type": ["object", "null"],
            "properties": self.properties.into_iter().map(|(key, value)| (key, nullable(value))).collect::<Map<_, _>>(),
            "patternProperties": { "^x-": true },
            "additionalProperties": false,
        });
        if !self.required.is_empty() {
            schema["required"] = json!(self.required);
        }
        schema
    }
}

/// The same schema, or null, which means that a key is not set. Definitions allow null themselves.
fn nullable(schema: Value) -> Value {
    let Value::Object(mut schema) = schema else { return schema };
    if schema.contains_key("$ref") {
        return Value::Object(schema);
    }
    let description = schema.remove("description");
    let mut either = match schema.get_mut("anyOf") {
        Some(Value::Array(cases)) => {
            cases.push(json!({ "type": "null" }));
            Value::Object(schema)
        }
        _ => json!({ "anyOf": [schema, { "type": "null" }] }),
    };
    if let Some(description) = description {
        either["description"] = description;
    }
    either
}

fn wrong(report: &mut Report, at: &Origin, node: &Node, want: &str) {
    report.add(at, ErrorKind::WrongType, format!("found {}, where {want} belongs", node.describe()));
}

/// Whether a text can be the name of something.
fn check_name(name: &str) -> Result<(), String> {
    if name.trim().is_empty() {
        return Err("the name is empty; leave the key out, or say `null`, if it is not set".to_owned());
    }
    if name.len() > MAX_NAME {
        return Err(format!("the name has {} bytes; at most {MAX_NAME} are allowed", name.len()));
    }
    if name.chars().any(char::is_control) {
        return Err("the name holds a control character".to_owned());
    }
    Ok(())
}
