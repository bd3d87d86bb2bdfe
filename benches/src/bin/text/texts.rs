//! Texts: ordinary ones, of the project's own files, and hostile ones.

/// Prose, code and data in ASCII, and twenty languages in turn; their names and texts.
pub fn ordinary() -> [(&'static str, String); 4] {
    let ascii = |texts: &[&str]| texts.concat().replace(|c: char| !c.is_ascii(), "");
    let prose = ascii(&[
        include_str!("../../../../ARCHITECTURE.md"),
        include_str!("../../../../CHANGELOG.md"),
        include_str!("../../../../CONTRIBUTING.md"),
        include_str!("../../../../README.md"),
    ]);
    let code = ascii(&[
        include_str!("../../../../quota-core/src/estimate/body.rs"),
        include_str!("../../../../quota-core/src/usage/mod.rs"),
        include_str!("../../../../quota-core/src/usage/stream.rs"),
        include_str!("../../../../quota-core/src/store/memory/row.rs"),
    ]);
    let json = ascii(&[include_str!("../../../../quota-core/tests/vectors/scenario_scopes.json")]);
    [("prose", prose), ("code", code), ("json", json), ("mixed", include_str!("languages.txt").repeat(10))]
}

/// What hostile texts are repeated from.
pub const HOSTILE: [(&str, &str); 18] = [
    ("spaces", " "),
    ("line breaks", "\r\n \n"),
    ("one letter", "a"),
    ("capitals", "A"),
    ("letters", "qzjxkvbwpf"),
    ("short period", "abcab"),
    ("punctuation", "!#$%&*+-/:<=>?@^_~"),
    ("one mark", "="),
    ("accents", "e\u{301}\u{302}"),
    ("combining", "\u{301}"),
    ("emoji", "👩\u{200d}👩\u{200d}👧\u{200d}👦"),
    ("last characters", "\u{d7ff}\u{e000}\u{ffff}\u{10ffff}"),
    ("digits", "7"),
    ("base64", "dGhlIHF1aWNrIGJyb3duIGZveCBqdW1wcyBvdmVy"),
    ("control", "\0\u{1b}\u{7f}"),
    ("han", "你好世"),
    ("scripts", "aя你א"),
    ("one blank", "a 1 \t"),
];

/// A hostile text of so many bytes, or a few more.
pub fn hostile(piece: &str, bytes: usize) -> String {
    piece.repeat(bytes.div_ceil(piece.len()))
}
