//! The tree of a YAML or JSON text, with the place of everything in it.
//!
//! Floor 1. Invariant: scalars stay text (a number never passes through a float), and a tree has bounded size and depth
//! whatever the text repeats.

use std::collections::{HashMap, HashSet};

use saphyr_parser::{Event, Marker, Parser, ScalarStyle};

use super::error::{ErrorKind, Origin, Report, shorten};

/// The longest document, in bytes.
pub const MAX_BYTES: usize = 16 << 20;
/// The most values of a document, those that aliases repeat included; 64 bytes of text count as one more.
pub const MAX_NODES: usize = 1 << 20;
/// The deepest nesting of a document.
pub const MAX_DEPTH: usize = 32;

/// Bytes of text that count as a value: an alias may repeat long texts as well as many.
const BYTES_PER_NODE: usize = 64;

/// A line and a column, both from 1.
pub(crate) type Place = (u32, u32);

/// A value.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) at: Place,
    pub(crate) kind: Kind,
}

/// What a value is.
#[derive(Debug, Clone)]
pub(crate) enum Kind {
    /// Nothing, `~` or `null`.
    Null,
    /// A plain `true` or `false`.
    Flag(bool),
    /// Any other scalar, quoted or not.
    Text(String),
    /// A sequence.
    List(Vec<Node>),
    /// A mapping, in the order of the text.
    Map(Vec<Entry>),
}

/// A key and its value.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) at: Place,
    pub(crate) value: Node,
}

impl Node {
    /// What a message calls it.
    pub(crate) fn describe(&self) -> String {
        match &self.kind {
            Kind::Null => "nothing".to_owned(),
            Kind::Flag(flag) => format!("`{flag}`"),
            Kind::Text(text) => format!("`{}`", shorten(text)),
            Kind::List(_) => "a list".to_owned(),
            Kind::Map(_) => "a mapping".to_owned(),
        }
    }
}

/// Reads a text; `None` where a syntax error or a bound stopped it.
///
/// Cost: linear in the text and the nodes. Tags, merge keys, keys that are not scalars and second documents are errors.
pub(crate) fn parse(text: &str, report: &mut Report) -> Option<Node> {
    if text.len() > MAX_BYTES {
        report.add(
            &Origin::default(),
            ErrorKind::TooLarge,
            format!("{} bytes; at most {MAX_BYTES} are read", text.len()),
        );
        return None;
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut tree = Tree::default();
    for event in Parser::new_from_str(text) {
        let step = match event {
            Ok((event, span)) => tree.event(event, place(&span.start), report),
            Err(error) => Err((place(error.marker()), ErrorKind::Syntax, error.info().to_owned())),
        };
        if let Err((at, kind, message)) = step {
            report.add(&Origin::top(at), kind, message);
            return None;
        }
    }
    let nothing = || Node { at: (1, 1), kind: Kind::Null };
    Some(tree.root.unwrap_or_else(nothing))
}

type Fault = (Place, ErrorKind, String);

/// A tree being built: finished values hang in the innermost open collection.
#[derive(Default)]
struct Tree {
    root: Option<Node>,
    open: Vec<Open>,
    anchors: HashMap<usize, (Node, usize)>,
    nodes: usize,
    documents: usize,
}

/// An open collection.
struct Open {
    node: Node,
    anchor: usize,
    /// The count of nodes when it was opened, by which its size is known when it closes.
    before: usize,
    /// For a mapping: the key whose value comes next.
    key: Option<(String, Place)>,
    keys: HashSet<String>,
    /// The place in the document, for errors.
    origin: Origin,
}

impl Tree {
    fn event(&mut self, event: Event<'_>, at: Place, report: &mut Report) -> Result<(), Fault> {
        match event {
            Event::DocumentStart(_) => {
                self.documents += 1;
                if self.documents > 1 {
                    return Err((at, ErrorKind::Syntax, "a second document; a policy is one".into()));
                }
                Ok(())
            }
            Event::Scalar(_, _, _, Some(tag))
            | Event::SequenceStart(_, Some(tag))
            | Event::MappingStart(_, Some(tag)) => {
                Err((at, ErrorKind::Syntax, format!("tag `{}`; tags are not read", shorten(&tag.to_string()))))
            }
            Event::Scalar(text, style, anchor, None) => self.scalar(&text, style, anchor, at, report),
            Event::SequenceStart(anchor, None) => self.start(Kind::List(Vec::new()), anchor, at),
            Event::MappingStart(anchor, None) => self.start(Kind::Map(Vec::new()), anchor, at),
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(open) = self.open.pop() else { return Ok(()) };
                let size = self.nodes - open.before;
                self.finish(open.node, open.anchor, size)
            }
            Event::Alias(id) => self.alias(id, at),
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => Ok(()),
        }
    }

    fn scalar(
        &mut self,
        text: &str,
        style: ScalarStyle,
        anchor: usize,
        at: Place,
        report: &mut Report,
    ) -> Result<(), Fault> {
        let plain = style == ScalarStyle::Plain;
        if self.awaits_key() {
            if plain && matches!(text, "" | "~") {
                return Err((at, ErrorKind::Syntax, "a key that is empty".into()));
            }
            self.count(text.len() / BYTES_PER_NODE, at)?;
            let Some(open) = self.open.last_mut() else { return Ok(()) };
            if plain && text == "<<" {
                // Read as a name, it would make a tenant or a model of what was meant as a copy.
                report.add(&open.origin.key(text, at), ErrorKind::Syntax, "merge keys are not read; an alias is");
            }
            if !open.keys.insert(text.to_owned()) {
                report.add(&open.origin.key(text, at), ErrorKind::Duplicate, "the key is there twice");
            }
            open.key = Some((text.to_owned(), at));
            return Ok(());
        }
        let kind = match text {
            "" | "~" | "null" | "Null" | "NULL" if plain => Kind::Null,
            "true" | "True" | "TRUE" if plain => Kind::Flag(true),
            "false" | "False" | "FALSE" if plain => Kind::Flag(false),
            _ => Kind::Text(text.to_owned()),
        };
        let size = 1 + text.len() / BYTES_PER_NODE;
        self.count(size, at)?;
        self.finish(Node { at, kind }, anchor, size)
    }

    fn start(&mut self, kind: Kind, anchor: usize, at: Place) -> Result<(), Fault> {
        if self.awaits_key() {
            return Err((at, ErrorKind::Syntax, "a key that is not text".into()));
        }
        if self.open.len() == MAX_DEPTH {
            return Err((at, ErrorKind::TooLarge, format!("nested deeper than {MAX_DEPTH}")));
        }
        let before = self.nodes;
        self.count(1, at)?;
        let origin = self.open.last().map_or_else(Origin::default, |open| open.child());
        self.open.push(Open { node: Node { at, kind }, anchor, before, key: None, keys: HashSet::new(), origin });
        Ok(())
    }

    fn alias(&mut self, id: usize, at: Place) -> Result<(), Fault> {
        if self.awaits_key() {
            return Err((at, ErrorKind::Syntax, "an alias as a key".into()));
        }
        let Some((node, size)) = self.anchors.get(&id) else {
            return Err((at, ErrorKind::Syntax, "an alias inside of what it stands for".into()));
        };
        let (node, size) = (node.clone(), *size);
        // The copy is as deep as the original, which may have stood higher up.
        if self.open.len() + depth(&node) > MAX_DEPTH {
            return Err((at, ErrorKind::TooLarge, format!("nested deeper than {MAX_DEPTH}")));
        }
        self.count(size, at)?;
        self.finish(node, 0, size)
    }

    fn awaits_key(&self) -> bool {
        self.open.last().is_some_and(|open| matches!(open.node.kind, Kind::Map(_)) && open.key.is_none())
    }

    fn count(&mut self, more: usize, at: Place) -> Result<(), Fault> {
        self.nodes += more;
        match self.nodes > MAX_NODES {
            true => {
                Err((at, ErrorKind::TooLarge, format!("more than {MAX_NODES} values, aliases counted as repeated")))
            }
            false => Ok(()),
        }
    }

    fn finish(&mut self, node: Node, anchor: usize, size: usize) -> Result<(), Fault> {
        if anchor > 0 {
            // The copy that waits for aliases counts as well: anchors inside of anchors would be memory for nothing.
            self.count(size, node.at)?;
            self.anchors.insert(anchor, (node.clone(), size));
        }
        let Some(open) = self.open.last_mut() else {
            self.root = Some(node);
            return Ok(());
        };
        match &mut open.node.kind {
            Kind::List(items) => items.push(node),
            Kind::Map(entries) => {
                if let Some((key, at)) = open.key.take() {
                    entries.push(Entry { key, at, value: node });
                }
            }
            _ => {}
        }
        Ok(())
    }
}

impl Open {
    fn child(&self) -> Origin {
        match (&self.node.kind, &self.key) {
            (Kind::List(items), _) => self.origin.index(items.len(), self.node.at),
            (_, Some((key, at))) => self.origin.key(key, *at),
            _ => self.origin.clone(),
        }
    }
}

/// The levels of a tree; recursion is bounded by [`MAX_DEPTH`].
fn depth(node: &Node) -> usize {
    match &node.kind {
        Kind::List(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Kind::Map(entries) => 1 + entries.iter().map(|entry| depth(&entry.value)).max().unwrap_or(0),
        _ => 0,
    }
}

fn place(marker: &Marker) -> Place {
    let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    (number(marker.line()), number(marker.col() + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(text: &str) -> String {
        let mut report = Report::default();
        parse(text, &mut report);
        assert!(!report.is_empty(), "{text}");
        report.finish("p").to_string()
    }

    #[test]
    fn scalars_stay_text_and_know_their_place() {
        let mut report = Report::default();
        let node = parse("a:\n  b: 1e400\n  c: 0.10\n  d: \"true\"\n  e: true\n  f:\n", &mut report).unwrap();
        let Kind::Map(top) = &node.kind else { panic!() };
        let Kind::Map(inner) = &top[0].value.kind else { panic!() };
        let shown: Vec<_> = inner.iter().map(|e| (e.at.0, e.value.at.1, e.value.describe())).collect();
        let want = [(2, 6, "`1e400`"), (3, 6, "`0.10`"), (4, 6, "`true`"), (5, 6, "`true`")];
        for (shown, want) in shown.iter().zip(want) {
            assert_eq!((shown.0, shown.1, shown.2.as_str()), want);
        }
        assert!(matches!(inner[2].value.kind, Kind::Text(_)) && matches!(inner[3].value.kind, Kind::Flag(true)));
        assert!(matches!(inner[4].value.kind, Kind::Null));
    }

    #[test]
    fn json_is_read_with_tabs_and_escapes() {
        let mut report = Report::default();
        let node = parse("{\n\t\"a\": [1, \"x\\/y\", null, true],\n\t\"b\": {}\n}\n", &mut report);
        assert!(report.is_empty(), "{}", report.finish("p"));
        let Kind::Map(top) = node.unwrap().kind else { panic!() };
        let Kind::List(items) = &top[0].value.kind else { panic!() };
        assert_eq!(items[1].describe(), "`x/y`");
    }

    #[test]
    fn what_is_not_read_is_told() {
        for (text, want) in [
            ("a: 1\nb: 2\na: 3\n", "p:3:1 a: the key is there twice"),
            ("t:\n  x: {a: 1, a: 2}\n", "p:2:13 t.x.a: the key is there twice"),
            ("a: 1\n---\nb: 2\n", "a second document"),
            ("a: !!str 5\n", "tags are not read"),
            ("? [a]\n: 1\n", "a key that is not text"),
            ("a: &x [*x]\n", "an alias inside of what it stands for"),
            ("a: [1\n", "p:2:1"),
            ("a: *b\n", "p:1:4"),
            ("a: &x {b: 1}\nc: {<<: *x}\n", "p:2:5 c.<<: merge keys are not read"),
        ] {
            let told = fault(text);
            assert!(told.contains(want), "{text:?}: {told}");
        }
    }

    #[test]
    fn bounds_stop_bombs_early() {
        let mut bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
        for i in 1..20 {
            let item = format!("*a{}", i - 1);
            bomb.push_str(&format!("a{i}: &a{i} [{}]\n", vec![item; 10].join(",")));
        }
        assert!(fault(&bomb).contains("more than 1048576 values"));
        let long = format!("a: &a {}\nb: [{}]\n", "x".repeat(1 << 20), vec!["*a"; 1000].join(","));
        assert!(fault(&long).contains("more than 1048576 values"));
        assert!(fault(&"[".repeat(40)).contains("nested deeper than 32"));
        assert_eq!(fault(&"[".repeat(1_000_000)), "p:1:256 recursion limit exceeded");
        assert!(fault(&"{a: ".repeat(40)).contains("nested deeper than 32"));
        assert!(fault(&" ".repeat(MAX_BYTES + 1)).contains("at most 16777216"));
    }
}
