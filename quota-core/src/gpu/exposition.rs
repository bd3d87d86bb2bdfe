//! Prometheus text: the samples of an exposition, one after another, with the bad lines counted.
//!
//! Floor 2. Invariant: a line is read by itself, so a bad one loses no other; time is linear in the text and nothing of
//! it is copied.

use std::borrow::Cow;

use memchr::{memchr, memchr2};

/// The most bytes of a text; a server's own metrics are some 50 to 500 KB.
pub const MAX_TEXT: usize = 8 << 20;

/// A text that is longer than a reader takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{bytes} bytes are more than the {limit} that are read")]
pub struct TooLong {
    /// How long it is.
    pub bytes: usize,
    /// How long it may be.
    pub limit: usize,
}

/// One sample. Its labels have been checked, and are looked up in the text each time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample<'a> {
    /// The whole name: `a_total` and `a_created` are other metrics than `a`.
    pub name: &'a str,
    /// As written: it may be NaN, infinite or negative.
    pub value: f64,
    /// From `{` to `}`; empty without braces.
    labels: &'a str,
}

impl<'a> Sample<'a> {
    /// The value of a label; the first of several with one name. Cost: linear in the sample's labels.
    pub fn label(&self, name: &str) -> Option<LabelValue<'a>> {
        let mut rest = self.labels.get(1..)?;
        while let Ok(Some((label, value, after))) = next_label(rest) {
            if label == name {
                return Some(LabelValue(value));
            }
            rest = after;
        }
        None
    }
}

/// The value of a label, between its quotes.
#[derive(Debug, Clone, Copy)]
pub struct LabelValue<'a>(&'a str);

impl<'a> LabelValue<'a> {
    /// The value that is written so.
    pub(super) fn of(raw: &'a str) -> LabelValue<'a> {
        LabelValue(raw)
    }

    /// The text as it is written, escapes and all.
    pub fn raw(self) -> &'a str {
        self.0
    }

    /// What is meant: `\\`, `\"` and `\n` are a backslash, a quote and the end of a line; any other pair stands for itself.
    pub fn text(self) -> Cow<'a, str> {
        let raw = self.0;
        if memchr(b'\\', raw.as_bytes()).is_none() {
            return Cow::Borrowed(raw);
        }
        let mut text = String::with_capacity(raw.len());
        let mut characters = raw.chars();
        while let Some(character) = characters.next() {
            match (character, characters.clone().next()) {
                ('\\', Some(escaped @ ('\\' | '"' | 'n'))) => {
                    text.push(if escaped == 'n' { '\n' } else { escaped });
                    characters.next();
                }
                _ => text.push(character),
            }
        }
        Cow::Owned(text)
    }

    /// Whether this is what is meant.
    pub fn is(self, text: &str) -> bool {
        self.text() == text
    }
}

/// The samples of a text.
///
/// Read are Prometheus text and OpenMetrics: labels in any order, with blanks around names, braces, commas and signs,
/// with a trailing comma; time stamps and exemplars, which are checked and not kept. Empty lines and lines that begin
/// with `#` are no samples. Any other line is bad, also one with a name in quotes, which no engine that is read has.
#[derive(Debug, Clone)]
pub struct Samples<'a> {
    rest: &'a str,
    bad_lines: u32,
}

/// The samples of a text of at most [`MAX_TEXT`] bytes, which bounds their number too.
///
/// # Errors
/// The text is longer.
pub fn samples(text: &str) -> Result<Samples<'_>, TooLong> {
    if text.len() > MAX_TEXT {
        return Err(TooLong { bytes: text.len(), limit: MAX_TEXT });
    }
    Ok(Samples { rest: text.strip_prefix('\u{feff}').unwrap_or(text), bad_lines: 0 })
}

impl Samples<'_> {
    /// How many lines so far were neither samples nor comments nor empty.
    pub fn bad_lines(&self) -> u32 {
        self.bad_lines
    }
}

impl<'a> Iterator for Samples<'a> {
    type Item = Sample<'a>;

    fn next(&mut self) -> Option<Sample<'a>> {
        while !self.rest.is_empty() {
            let (line, rest) = match memchr(b'\n', self.rest.as_bytes()) {
                Some(end) => (&self.rest[..end], &self.rest[end + 1..]),
                None => (self.rest, ""),
            };
            self.rest = rest;
            match read_line(line) {
                Ok(Some(sample)) => return Some(sample),
                Ok(None) => {}
                Err(Bad) => self.bad_lines = self.bad_lines.saturating_add(1),
            }
        }
        None
    }
}

/// A line, or a part of one, that is no sample.
struct Bad;

const BLANK: [char; 3] = [' ', '\t', '\r'];

fn after_blanks(text: &str) -> &str {
    text.trim_start_matches(BLANK)
}

/// Splits off the first word, which blanks end.
fn word(text: &str) -> (&str, &str) {
    let end = text.find(BLANK).unwrap_or(text.len());
    (&text[..end], after_blanks(&text[end..]))
}

/// Splits off a name of letters, digits, `_` and `:` that does not begin with a digit.
fn name(text: &str) -> Result<(&str, &str), Bad> {
    let of_name = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b':');
    let end = text.bytes().position(|byte| !of_name(&byte)).unwrap_or(text.len());
    match text.bytes().next() {
        Some(first) if end > 0 && !first.is_ascii_digit() => Ok((&text[..end], &text[end..])),
        _ => Err(Bad),
    }
}

fn read_line(line: &str) -> Result<Option<Sample<'_>>, Bad> {
    let line = line.trim_matches(BLANK);
    if line.is_empty() || line.starts_with('#') {
        return Ok(None);
    }
    let (name, after) = name(line)?;
    let mut rest = after_blanks(after);
    let mut labels = "";
    if let Some(inside) = rest.strip_prefix('{') {
        let mut end = inside;
        while let Some((_, _, after)) = next_label(end)? {
            end = after;
        }
        end = after_blanks(end);
        // `end` begins with the closing brace.
        labels = &rest[..=rest.len() - end.len()];
        rest = after_blanks(&end[1..]);
    } else if rest.len() == after.len() {
        return Err(Bad);
    }
    let (value, rest) = word(rest);
    let value = value.parse::<f64>().map_err(|_| Bad)?;
    let (stamp, exemplar) = if rest.starts_with('#') { ("", rest) } else { word(rest) };
    let fine = (stamp.is_empty() || stamp.parse::<f64>().is_ok()) && (exemplar.is_empty() || exemplar.starts_with('#'));
    if fine { Ok(Some(Sample { name, value, labels })) } else { Err(Bad) }
}

/// Splits `name="value",` off; `None` before the closing brace.
fn next_label(text: &str) -> Result<Option<(&str, &str, &str)>, Bad> {
    let text = after_blanks(text);
    if text.starts_with('}') {
        return Ok(None);
    }
    let (label, rest) = name(text)?;
    let rest = after_blanks(rest).strip_prefix('=').ok_or(Bad)?;
    let value = after_blanks(rest).strip_prefix('"').ok_or(Bad)?;
    let mut end = 0;
    loop {
        end += memchr2(b'\\', b'"', value.as_bytes().get(end..).ok_or(Bad)?).ok_or(Bad)?;
        if value.as_bytes()[end] == b'"' {
            break;
        }
        // The backslash and the byte after it; of a longer character the rest is no backslash and no quote.
        end += 2;
    }
    let rest = after_blanks(&value[end + 1..]);
    match rest.strip_prefix(',') {
        Some(rest) => Ok(Some((label, &value[..end], rest))),
        None if rest.starts_with('}') => Ok(Some((label, &value[..end], rest))),
        None => Err(Bad),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Name, labels that are asked for, value.
    type Wanted = (&'static str, &'static [(&'static str, &'static str)], f64);

    #[test]
    fn what_is_a_sample() {
        let lines: &[(&str, Wanted)] = &[
            ("a 1", ("a", &[], 1.0)),
            ("  a:b_c \t 1.5e+01  1772452800000 \r", ("a:b_c", &[], 15.0)),
            ("a{} 2", ("a", &[], 2.0)),
            ("a{ }2", ("a", &[], 2.0)),
            (r#"a{b="c"} -3 -1"#, ("a", &[("b", "c")], -3.0)),
            (r#"a {b = "c" , d ="e,f}=g h" ,} 0x"#, ("", &[], 0.0)),
            (r#"a {b = "c" , d ="e,f}=g {h" ,} .5"#, ("a", &[("b", "c"), ("d", "e,f}=g {h")], 0.5)),
            (r#"a{b="q\"\\\n\t",c="\\"} 1"#, ("a", &[("b", "q\"\\\n\\t"), ("c", "\\")], 1.0)),
            (r#"a{b="1",b="2"} 1"#, ("a", &[("b", "1")], 1.0)),
            (r#"a{b="é\ü"} +Inf"#, ("a", &[("b", "é\\ü")], f64::INFINITY)),
            (r#"a_bucket{le="+Inf"} 12 # {trace_id="x y"} 0.6 1.7"#, ("a_bucket", &[("le", "+Inf")], 12.0)),
            (r#"a{b="c"} 12 1.5 # {} 1"#, ("a", &[("b", "c")], 12.0)),
        ];
        for (line, (name, labels, value)) in lines {
            let mut all = samples(line).unwrap();
            let got = all.next();
            if name.is_empty() {
                assert_eq!((got, all.bad_lines()), (None, 1), "{line}");
                continue;
            }
            let got = got.unwrap_or_else(|| panic!("{line}"));
            assert_eq!((got.name, got.value, all.next(), all.bad_lines()), (*name, *value, None, 0), "{line}");
            for (label, text) in *labels {
                assert!(got.label(label).unwrap().is(text), "{line}: {label} is {:?}", got.label(label));
            }
            assert!(got.label("nothing").is_none());
        }
        let nan = samples("a NaN\n").unwrap().next().unwrap();
        assert!(nan.value.is_nan());
    }

    #[test]
    fn what_is_none() {
        for line in [
            "not a metric line",
            "a",
            "a{} ",
            "1a 1",
            "a-b 1",
            "a+1",
            "a 1 x",
            "a 1 2 3",
            "a 1,5",
            "a{b} 1",
            "a{b=} 1",
            "a{b=c} 1",
            r#"a{b="c} 1"#,
            r#"a{b="c\"} 1"#,
            r#"a{b="c\"#,
            r#"a{b="c" d="e"} 1"#,
            r#"a{,} 1"#,
            r#"a{b="c",,} 1"#,
            r#"a{b="c" 1"#,
            r#"{"a.b",c="d"} 1"#,
            r#"{b="c"} 1"#,
            "<html>",
        ] {
            let text = format!("first 1\n{line}\nlast 2");
            let mut all = samples(&text).unwrap();
            let names: Vec<_> = all.by_ref().map(|sample| sample.name).collect();
            assert_eq!((names.as_slice(), all.bad_lines()), (&["first", "last"][..], 1), "{line}");
        }
        let mut none = samples("\u{feff}# HELP a \"b\n#\n\n \t\r\n   # a 1\n# EOF").unwrap();
        assert_eq!((none.next(), none.bad_lines()), (None, 0));
    }

    #[test]
    fn a_text_has_a_bound() {
        let text = "#".repeat(MAX_TEXT + 1);
        assert_eq!(samples(&text).unwrap_err(), TooLong { bytes: MAX_TEXT + 1, limit: MAX_TEXT });
        assert!(samples(&text[1..]).unwrap().next().is_none());
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            labels in proptest::collection::btree_map("[a-z_][a-z0-9_]{0,4}", "\\PC{0,8}|[\\\\\"\n,{}= ]{0,6}", 0..6),
            value in any::<u32>(), comma in any::<bool>(), blank in "[ \t]{0,2}",
        ) {
            let escaped = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let pairs: Vec<_> = labels.iter().map(|(k, v)| format!("{blank}{k}{blank}=\"{}\"", escaped(v))).collect();
            let comma = if comma && !pairs.is_empty() { "," } else { "" };
            let line = format!("m{blank}{{{}{blank}{comma}{blank}}}{blank}{value}", pairs.join(","));
            let mut all = samples(&line).unwrap();
            let sample = all.next();
            prop_assert!(sample.is_some(), "{line}");
            let sample = sample.unwrap();
            prop_assert_eq!(sample.value, value as f64);
            for (name, text) in &labels {
                prop_assert!(sample.label(name).unwrap().is(text), "{} in {}", name, line);
            }
        }

        #[test]
        fn any_text_is_read(text in "(\\PC|[\n{}\"\\\\=,# ]){0,200}") {
            let mut all = samples(&text).unwrap();
            let lines = text.split('\n').count();
            prop_assert!(all.by_ref().count() + all.bad_lines() as usize <= lines);
        }
    }
}
