//! Errors of a policy: what is wrong, where, and what was probably meant; all of them in one report.
//!
//! Floor 1. Invariant: a report is bounded whatever the document holds, and never shows a key.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

/// The most errors that a report tells one by one; the others are counted.
pub const MAX_ERRORS: usize = 1000;
/// The most errors for which the nearest valid name is looked up, so that a report stays linear in the document.
const MAX_HINTS: usize = 100;
/// The most names among which the nearest is looked up.
const MAX_CANDIDATES: usize = 2000;
/// The most characters of a document's text that a message shows.
const SHOWN: usize = 64;

/// What sort of thing is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The file can't be read.
    Unreadable,
    /// The text is not YAML or JSON of the kind that is read here.
    Syntax,
    /// The document, or what it compiles into, is larger than a bound.
    TooLarge,
    /// A key, name, limit or digest is there twice.
    Duplicate,
    /// A key that has no meaning at this place.
    UnknownKey,
    /// A value of another type than the key takes.
    WrongType,
    /// A number, date or other value outside what is allowed.
    BadValue,
    /// A plan, model, cost centre, lane, tenant or limit that the document doesn't define.
    UnknownName,
    /// Something without which the record means nothing.
    Missing,
    /// Two things that can't both hold, such as a soft amount above the hard one.
    Conflict,
    /// A chain that comes back to where it began.
    Cycle,
    /// What is said has no effect (a warning).
    NoEffect,
    /// A tenant that nothing limits (a warning).
    Unlimited,
    /// A money limit on a model without a price (a warning).
    NoPrice,
}

impl ErrorKind {
    /// The stable code, in `snake_case`.
    pub const fn code(self) -> &'static str {
        match self {
            ErrorKind::Unreadable => "unreadable",
            ErrorKind::Syntax => "syntax",
            ErrorKind::TooLarge => "too_large",
            ErrorKind::Duplicate => "duplicate",
            ErrorKind::UnknownKey => "unknown_key",
            ErrorKind::WrongType => "wrong_type",
            ErrorKind::BadValue => "bad_value",
            ErrorKind::UnknownName => "unknown_name",
            ErrorKind::Missing => "missing",
            ErrorKind::Conflict => "conflict",
            ErrorKind::Cycle => "cycle",
            ErrorKind::NoEffect => "no_effect",
            ErrorKind::Unlimited => "unlimited",
            ErrorKind::NoPrice => "no_price",
        }
    }
}

/// One thing that is wrong with a policy, or doubtful (see [`Policy::warnings`](super::Policy::warnings)).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyError {
    /// Where, as keys from the top (`tenants.acme.models.gpt-large.rpm`); empty for the whole document.
    pub path: String,
    /// The line, from 1; 0 where there is no text.
    pub line: u32,
    /// The column in characters, from 1; 0 where there is no text.
    pub column: u32,
    /// The sort of error.
    pub kind: ErrorKind,
    /// What was found and what is allowed.
    pub message: String,
}

impl fmt::Display for PolicyError {
    /// Line, column, path and message: `12:5 tenants.acme.rmp: unknown key`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line > 0 {
            write!(f, "{}:{} ", self.line, self.column)?;
        }
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)
    }
}

/// Everything that is wrong with a policy, in the order of the text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub struct PolicyErrors {
    /// The file's name; `policy` for a text.
    pub source_name: String,
    /// At least one, at most [`MAX_ERRORS`].
    pub errors: Vec<PolicyError>,
    /// How many more there are.
    pub omitted: usize,
}

impl PolicyErrors {
    /// A report of one error, for hosts that read documents by themselves before they hand them over.
    pub fn one(source_name: &str, error: PolicyError) -> PolicyErrors {
        PolicyErrors { source_name: source_name.to_owned(), errors: vec![error], omitted: 0 }
    }

    /// The stable code of this fault in every language.
    pub fn code(&self) -> &'static str {
        "policy_invalid"
    }

    /// Whether loading the same document again may succeed: only where the file could not be read.
    pub fn is_retryable(&self) -> bool {
        self.errors.iter().all(|error| error.kind == ErrorKind::Unreadable)
    }
}

impl fmt::Display for PolicyErrors {
    /// One line for each error: `policy.yaml:12:5 tenants.acme.rmp: …`, or `policy.yaml: …` where it has no place.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, error) in self.errors.iter().enumerate() {
            let (line, mark) = (if i > 0 { "\n" } else { "" }, if error.line > 0 { ":" } else { ": " });
            write!(f, "{line}{}{mark}{error}", self.source_name)?;
        }
        match self.omitted {
            0 => Ok(()),
            more => write!(f, "\n{}: and {more} more", self.source_name),
        }
    }
}

/// A place in a document: the path of keys to it, and where it stands in the text.
///
/// Paths share their beginnings, so that one costs the same however deep it lies.
#[derive(Debug, Clone, Default)]
pub(crate) struct Origin {
    pub(crate) line: u32,
    pub(crate) column: u32,
    step: Option<Arc<Step>>,
}

#[derive(Debug)]
struct Step {
    parent: Option<Arc<Step>>,
    name: Name,
}

#[derive(Debug)]
enum Name {
    Key(String),
    Index(usize),
}

impl Origin {
    /// A place of the whole document.
    pub(crate) fn top((line, column): (u32, u32)) -> Origin {
        Origin { line, column, step: None }
    }

    /// The place of a key's value below this one.
    pub(crate) fn key(&self, key: &str, (line, column): (u32, u32)) -> Origin {
        self.below(Name::Key(shorten(key)), line, column)
    }

    /// The place of a list's item below this one.
    pub(crate) fn index(&self, index: usize, (line, column): (u32, u32)) -> Origin {
        self.below(Name::Index(index), line, column)
    }

    fn below(&self, name: Name, line: u32, column: u32) -> Origin {
        Origin { line, column, step: Some(Arc::new(Step { parent: self.step.clone(), name })) }
    }

    fn path(&self) -> String {
        let mut steps = Vec::new();
        let mut at = &self.step;
        while let Some(step) = at {
            steps.push(&step.name);
            at = &step.parent;
        }
        let mut path = String::new();
        for name in steps.into_iter().rev() {
            match name {
                Name::Index(index) => path.push_str(&format!("[{index}]")),
                Name::Key(key) if path.is_empty() => path.push_str(key),
                Name::Key(key) => {
                    path.push('.');
                    path.push_str(key);
                }
            }
        }
        path
    }

    /// An error or a warning at this place.
    pub(crate) fn error(&self, kind: ErrorKind, message: impl Into<String>) -> PolicyError {
        PolicyError { path: self.path(), line: self.line, column: self.column, kind, message: message.into() }
    }
}

/// Collects the errors of one document.
#[derive(Debug, Default)]
pub(crate) struct Report {
    errors: Vec<PolicyError>,
    seen: HashSet<(u32, u32, String)>,
    omitted: usize,
    hints: usize,
}

impl Report {
    /// Adds an error, unless the same stands there already: a plan's limit is looked at once for each of its tenants.
    pub(crate) fn add(&mut self, at: &Origin, kind: ErrorKind, message: impl Into<String>) {
        let message = message.into();
        let place = (at.line, at.column, message);
        if self.seen.contains(&place) {
            return;
        }
        if self.errors.len() == MAX_ERRORS {
            self.omitted += 1;
            return;
        }
        self.errors.push(at.error(kind, place.2.as_str()));
        self.seen.insert(place);
    }

    /// Adds an error about a name that is none of `names`, with the nearest of them.
    pub(crate) fn unknown<'n>(
        &mut self,
        at: &Origin,
        kind: ErrorKind,
        what: &str,
        found: &str,
        names: impl IntoIterator<Item = &'n str>,
    ) {
        let near = if self.hints() { nearest(found, names) } else { None };
        self.hints += 1;
        let hint = near.map_or(String::new(), |name| format!("; did you mean `{name}`?"));
        self.add(at, kind, format!("{what}{hint}"));
    }

    /// Whether the nearest name is still looked up.
    pub(crate) fn hints(&self) -> bool {
        self.hints < MAX_HINTS
    }

    /// Whether nothing is wrong.
    pub(crate) fn is_empty(&self) -> bool {
        self.errors.is_empty()
    }

    /// The errors in the order of the text.
    pub(crate) fn finish(mut self, source_name: &str) -> PolicyErrors {
        self.errors.sort_by_key(|error| (error.line, error.column));
        PolicyErrors { source_name: source_name.to_owned(), errors: self.errors, omitted: self.omitted }
    }
}

/// The start of a text, as messages show it: control characters replaced, so that a report stays one line an error.
pub(crate) fn shorten(text: &str) -> String {
    let clean = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    let mut short: String = text.chars().take(SHOWN).map(clean).collect();
    if text.chars().nth(SHOWN).is_some() {
        short.push('…');
    }
    short
}

/// The name with the fewest edits from `found`, letters' case aside, if a third of it at most has to change.
fn nearest<'n>(found: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let found: String = found.to_lowercase().chars().take(SHOWN).collect();
    let most = (found.chars().count() / 3).max(1);
    let near = |name: &&'n str| name.len() <= 4 * SHOWN;
    let scored = names
        .into_iter()
        .take(MAX_CANDIDATES)
        .filter(near)
        .map(|name| (strsim::damerau_levenshtein(&found, &name.to_lowercase()), name));
    scored.filter(|(edits, _)| *edits <= most).min_by_key(|(edits, _)| *edits).map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_a_small_slip_away() {
        let names = ["rpm", "tpm", "daily_budget_usd", "max_inflight"];
        for (found, want) in [
            ("rmp", Some("rpm")),
            ("RPM", Some("rpm")),
            ("daily_bugdet_usd", Some("daily_budget_usd")),
            ("max_in_flight", Some("max_inflight")),
            ("colour", None),
            ("x", None),
        ] {
            assert_eq!(nearest(found, names), want, "{found}");
        }
    }

    #[test]
    fn a_report_is_bounded_and_tells_a_thing_once() {
        let mut report = Report::default();
        for line in 0..2 * MAX_ERRORS as u32 {
            let at = Origin::default().key("tenants", (1, 1)).index(3, (line + 1, 2));
            report.add(&at, ErrorKind::BadValue, "bad");
            report.add(&at, ErrorKind::BadValue, "bad");
        }
        let errors = report.finish("p.yaml");
        assert_eq!(errors.errors.len(), MAX_ERRORS);
        assert!(errors.omitted >= MAX_ERRORS);
        assert_eq!(errors.to_string().lines().next(), Some("p.yaml:1:2 tenants[3]: bad"));
    }
}
