//! House rules that can be checked: who imports what, where the time and the atomics come from, how files look.
//!
//! The import table is read from `ARCHITECTURE.md`, so that the document can't drift from the sources.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use quota_core::reason::Reason;

/// The most lines of a source file.
const MAX_LINES: usize = 700;

/// How many lines above an ordering its comment may stand.
const ORDERING_REACH: usize = 8;

/// Words that a public name must not hold, and the project's word for the thing.
const FORBIDDEN_WORDS: &[(&str, &str)] = &[
    ("permit", "lease"),
    ("customer", "tenant"),
    ("client", "tenant"),
    ("caller", "principal"),
    ("threshold", "limit"),
    ("overdraft", "debt"),
    ("prediction", "estimate"),
    ("actuals", "usage"),
];

/// Words before `token` that make it a credential, which is a key.
const CREDENTIALS: &[&str] = &["api", "auth", "access", "bearer", "refresh", "secret", "virtual"];

/// Codes of other people's that end like ours.
const FOREIGN_CODES: &[&str] = &["rate_limit_exceeded"];

/// A file under `src`.
struct Source {
    /// The path below `src`, for instance `respond/headers.rs`.
    path: String,
    text: String,
}

impl Source {
    /// The top-level module that the file belongs to.
    fn module(&self) -> &str {
        self.path.split('/').next().unwrap_or_default().trim_end_matches(".rs")
    }

    /// The text without its unit tests and comments; lines keep their numbers.
    fn code(&self) -> String {
        let tests = self.text.find("\n#[cfg(test)]\nmod ").unwrap_or(self.text.len());
        self.text[..tests].lines().map(uncommented).collect::<Vec<_>>().join("\n")
    }
}

/// The part of a line before `//`. A text that holds `//` is cut too, which hides at most the rest of its line.
fn uncommented(line: &str) -> &str {
    line.split("//").next().unwrap_or_default()
}

fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut folders, mut found) = (vec![root.clone()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(&root).unwrap().to_string_lossy().replace('\\', "/");
                found.push(Source { path: name, text: fs::read_to_string(&path).unwrap() });
            }
        }
    }
    assert!(!found.is_empty());
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Runs a rule on every line of every file and fails with all faults.
fn each_line(text: impl Fn(&Source) -> String, rule: impl Fn(&Source, &str) -> Option<String>) {
    let mut faults = Vec::new();
    for source in sources() {
        for (number, line) in text(&source).lines().enumerate() {
            if let Some(what) = rule(&source, line) {
                faults.push(format!("{}:{}: {what}", source.path, number + 1));
            }
        }
    }
    none(faults);
}

fn none(faults: Vec<String>) {
    assert!(faults.is_empty(), "{} against the house rules:\n{}", faults.len(), faults.join("\n"));
}

/// A row of the import table.
struct Row {
    floor: u32,
    may: BTreeSet<String>,
}

/// The rows under `| module | floor | may import |`, by module, with `floor N` spelt out.
fn import_table(document: &str) -> BTreeMap<String, Row> {
    let cells =
        |line: &str| -> Vec<String> { line.trim_matches('|').split('|').map(|c| c.trim().to_owned()).collect() };
    let mut lines = document.lines().skip_while(|line| cells(line) != ["module", "floor", "may import"]);
    let rows: Vec<Vec<String>> = lines.by_ref().skip(2).take_while(|line| line.starts_with('|')).map(cells).collect();
    let floor = |row: &[String]| row[1].parse::<u32>().unwrap();
    let spell_out = |row: &[String]| -> BTreeSet<String> {
        let mut may = BTreeSet::new();
        for part in row[2].split(',').map(str::trim) {
            match part.strip_prefix("floor ") {
                Some(number) => {
                    let of_floor = rows.iter().filter(|other| other[1] == number && other[0] != row[0]);
                    may.extend(of_floor.map(|other| other[0].clone()));
                }
                None if part == "nothing" => {}
                None => may.extend([part.to_owned()]),
            }
        }
        may
    };
    rows.iter().map(|row| (row[0].clone(), Row { floor: floor(row), may: spell_out(row) })).collect()
}

fn table() -> BTreeMap<String, Row> {
    let table = import_table(&fs::read_to_string(workspace().join("ARCHITECTURE.md")).unwrap());
    assert!(table.len() > 10, "ARCHITECTURE.md has no import table");
    table
}

/// The modules named by `crate::…` paths, `crate::{…}` lists included.
fn crate_modules(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        if code[..at].ends_with(is_word) {
            continue;
        }
        let rest = &code[at + "crate::".len()..];
        match rest.strip_prefix('{') {
            None => found.push(word(rest).to_owned()),
            Some(list) => found.extend(heads(list)),
        }
    }
    found
}

/// The first word of each item of a `use` list, up to its closing brace.
fn heads(list: &str) -> Vec<String> {
    let (mut depth, mut start, mut found) = (0, true, Vec::new());
    for (at, character) in list.char_indices() {
        match character {
            '}' if depth == 0 => break,
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => start = true,
            _ if start && is_word(character) => {
                found.push(word(&list[at..]).to_owned());
                start = false;
            }
            _ => {}
        }
    }
    found
}

fn is_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// The word that a text starts with.
fn word(text: &str) -> &str {
    &text[..text.find(|c| !is_word(c)).unwrap_or(text.len())]
}

fn has_word(line: &str, wanted: &str) -> bool {
    line.split(|c| !is_word(c)).any(|word| word == wanted)
}

/// The name that a line declares publicly, if it does.
fn public_name(line: &str) -> Option<&str> {
    let mut rest = line.trim_start().strip_prefix("pub ")?;
    loop {
        let first = word(rest);
        match first {
            "use" | "" => return None,
            "async" | "const" | "enum" | "fn" | "mod" | "static" | "struct" | "trait" | "type" => {
                rest = rest[first.len()..].trim_start();
            }
            name => return Some(name),
        }
    }
}

/// The words of a `snake_case` or `CamelCase` name, in lower case.
fn words_of(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut previous_lower = false;
    for character in name.chars() {
        if character == '_' || (character.is_uppercase() && previous_lower) {
            words.push(String::new());
        }
        if character != '_' {
            words.last_mut().unwrap().extend(character.to_lowercase());
        }
        previous_lower = character.is_lowercase();
    }
    words
}

/// What is wrong with a public name.
fn name_fault(name: &str) -> Option<String> {
    let words = words_of(name);
    // The documents that people have say `alert_threshold_percent`.
    let alert = words.first().is_some_and(|first| first == "alert");
    for (forbidden, instead) in FORBIDDEN_WORDS {
        let there = words.iter().any(|word| word == forbidden || word.strip_suffix('s') == Some(forbidden));
        if there && !(alert && *forbidden == "threshold") {
            return Some(format!("`{name}` says {forbidden}; the word is {instead}"));
        }
    }
    let credential = |pair: &[String]| CREDENTIALS.contains(&&*pair[0]) && matches!(&*pair[1], "token" | "tokens");
    words.windows(2).any(credential).then(|| format!("`{name}` calls a credential a token; it is a key"))
}

/// The names in the dependency sections of a manifest.
fn dependencies(manifest: &str) -> Vec<String> {
    let mut inside = false;
    let mut names = Vec::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            inside = line.trim_end().ends_with("dependencies]");
        } else if let Some((name, _)) = line.split_once('=').filter(|_| inside && !line.starts_with('#')) {
            names.push(name.trim().split('.').next().unwrap_or_default().to_owned());
        }
    }
    names
}

#[test]
fn the_import_table_goes_down_and_has_no_circle() {
    let table = table();
    let mut faults = Vec::new();
    for (module, row) in &table {
        for import in &row.may {
            match table.get(import) {
                None => faults.push(format!("{module} may import {import}, which has no row")),
                Some(other) if other.floor > row.floor => faults.push(format!("{module} may import {import} above it")),
                Some(_) => {}
            }
        }
    }
    let mut rest: BTreeSet<&String> = table.keys().collect();
    loop {
        let free: Vec<_> = rest.iter().filter(|m| table[**m].may.iter().all(|i| !rest.contains(i))).copied().collect();
        if free.is_empty() {
            break;
        }
        free.iter().for_each(|module| assert!(rest.remove(module)));
    }
    faults.extend(rest.iter().map(|module| format!("{module} is part of a circle")));
    none(faults);
}

#[test]
fn modules_import_what_the_table_allows() {
    let table = table();
    let mut faults = Vec::new();
    for source in sources().iter().filter(|source| source.path != "lib.rs") {
        let module = source.module();
        let Some(row) = table.get(module) else {
            faults.push(format!("{}: {module} has no row in ARCHITECTURE.md", source.path));
            continue;
        };
        let code = source.code();
        for import in crate_modules(&code) {
            if import != module && !row.may.contains(&import) {
                faults.push(format!("{}: imports {import}", source.path));
            }
        }
        // As many `super::` as folders reach the crate's root, where the table no longer sees what is named.
        if code.contains(&"super::".repeat(source.path.trim_end_matches("/mod.rs").matches('/').count() + 1)) {
            faults.push(format!("{}: reaches the root by `super::`; `crate::` is the way", source.path));
        }
    }
    none(faults);
}

#[test]
fn only_time_asks_for_the_time() {
    each_line(Source::code, |source, line| {
        let asks =
            ["SystemTime", "Instant::now", "Timestamp::now", "Zoned::now"].into_iter().find(|a| line.contains(a));
        asks.filter(|_| source.path != "time.rs").map(|what| format!("{what}; the time is handed in"))
    });
}

#[test]
fn only_sync_names_atomics() {
    each_line(Source::code, |source, line| {
        (source.path != "sync.rs" && line.contains("sync::atomic")).then(|| "atomics come from crate::sync".to_owned())
    });
}

#[test]
fn every_file_says_its_floor_and_its_invariant() {
    let table = table();
    let mut faults = Vec::new();
    for source in sources() {
        let head: Vec<&str> = source.text.lines().take_while(|line| line.starts_with("//!")).collect();
        let head = head.join(" ");
        if head.is_empty() {
            faults.push(format!("{}: does not start with `//!`", source.path));
        }
        // The front page stands on all floors and has no logic.
        if source.path == "lib.rs" {
            continue;
        }
        let floor = table.get(source.module()).map(|row| format!("Floor {}.", row.floor));
        if !floor.is_some_and(|floor| head.contains(&floor)) || !head.contains("Invariant: ") {
            faults.push(format!("{}: its head lacks `Floor N.` of the table or `Invariant: `", source.path));
        }
    }
    none(faults);
}

#[test]
fn files_are_short() {
    let long = sources().into_iter().filter(|source| source.text.lines().count() > MAX_LINES);
    none(long.map(|source| format!("{}: over {MAX_LINES} lines", source.path)).collect());
}

#[test]
fn nothing_is_unsafe_unfinished_or_asleep() {
    let whole = |source: &Source| source.text.lines().map(uncommented).collect::<Vec<_>>().join("\n");
    each_line(whole, |_, line| {
        let found =
            ["todo!", "unimplemented!", "dbg!", "#[ignore", "thread::sleep"].into_iter().find(|w| line.contains(w));
        found.or(has_word(line, "unsafe").then_some("unsafe")).map(str::to_owned)
    });
}

#[test]
fn every_ordering_says_why() {
    let orderings = ["Relaxed", "Acquire", "Release", "AcqRel", "SeqCst"].map(|name| format!("Ordering::{name}"));
    let mut faults = Vec::new();
    for source in sources() {
        let lines: Vec<&str> = source.text.lines().collect();
        for (number, line) in source.code().lines().enumerate() {
            let near = &lines[number.saturating_sub(ORDERING_REACH)..=number];
            if orderings.iter().any(|o| line.contains(o)) && !near.iter().any(|line| line.contains("ORDERING:")) {
                faults.push(format!("{}:{}: no `ORDERING:` comment", source.path, number + 1));
            }
        }
    }
    none(faults);
}

#[test]
fn public_names_keep_to_the_glossary() {
    each_line(Source::code, |_, line| public_name(line).and_then(name_fault));
}

#[test]
fn reason_codes_in_documents_exist() {
    let codes: BTreeSet<&str> =
        Reason::ALL.iter().map(|reason| reason.code()).chain(FOREIGN_CODES.iter().copied()).collect();
    let last = |code: &str| code.rsplit('_').next().unwrap_or_default().to_owned();
    let endings: BTreeSet<String> = codes.iter().map(|code| last(code)).collect();
    let mut faults = Vec::new();
    for entry in fs::read_dir(workspace()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "md") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        for quoted in text.split('`').skip(1).step_by(2) {
            let like_a_code = quoted.contains('_') && quoted.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
            if like_a_code && endings.contains(&last(quoted)) && !codes.contains(quoted) {
                faults.push(format!("{}: no reason has the code `{quoted}`", path.display()));
            }
        }
    }
    none(faults);
}

#[test]
fn every_dependency_has_its_reason() {
    let document = fs::read_to_string(workspace().join("ARCHITECTURE.md")).unwrap();
    let first_cells: Vec<&str> =
        document.lines().filter_map(|line| line.strip_prefix('|')?.split('|').next()).collect();
    let mut faults = Vec::new();
    for manifest in ["quota-core/Cargo.toml", "examples/gateway/Cargo.toml"] {
        for name in dependencies(&fs::read_to_string(workspace().join(manifest)).unwrap()) {
            let has_row = first_cells.iter().any(|cell| cell.split([' ', ',']).any(|word| word == name));
            if name != "quota-core" && !has_row {
                faults.push(format!("{manifest}: {name} has no row in ARCHITECTURE.md"));
            }
        }
    }
    none(faults);
}

/// `make loom` prints the sentence of each model, which is its row.
#[test]
fn every_model_has_its_sentence() {
    let document = fs::read_to_string(workspace().join("ARCHITECTURE.md")).unwrap();
    let rows: BTreeSet<String> =
        document.lines().filter_map(|line| line.strip_prefix("| `loom_")).map(|row| word(row).to_owned()).collect();
    let models: BTreeSet<String> = sources()
        .iter()
        .flat_map(|source| source.text.lines())
        .filter_map(|line| line.trim_start().strip_prefix("fn loom_"))
        .map(|name| word(name).to_owned())
        .collect();
    assert!(!models.is_empty());
    assert_eq!(rows, models, "the rows of ARCHITECTURE.md and the models");
}

#[test]
fn the_rules_see_what_they_look_for() {
    let code = "use crate::{a::{B, C}, d::E,\n f};\nlet x = crate::g::H; pub(crate) fn i() { mycrate::j() }";
    assert_eq!(crate_modules(code), ["a", "d", "f", "g"]);
    assert_eq!(uncommented("let x; // unsafe"), "let x; ");
    assert!(has_word("unsafe {", "unsafe") && !has_word("unsafe_code", "unsafe"));
    for (line, name) in [
        ("    pub hard: u64,", Some("hard")),
        ("pub const fn name(self)", Some("name")),
        ("pub struct Permit;", Some("Permit")),
        ("pub use a::Permit;", None),
        ("pub(crate) fn permit()", None),
    ] {
        assert_eq!(public_name(line), name, "{line}");
    }
    for (name, fault) in [
        ("Permit", true),
        ("take_permits", true),
        ("permitted", false),
        ("alert_threshold_percent", false),
        ("soft_threshold", true),
        ("bearer_token", true),
        ("ApiToken", true),
        ("input_tokens", false),
        ("output_token_rate", false),
    ] {
        assert_eq!(name_fault(name).is_some(), fault, "{name}");
    }
    let table =
        import_table("| module | floor | may import |\n|---|---|---|\n| a | 0 | nothing |\n| b | 1 | floor 0 |\n");
    assert_eq!((table.len(), table["b"].floor, table["b"].may.contains("a")), (2, 1, true));
    let manifest = "[features]\nx = []\n[dependencies]\na = \"1\"\nb.workspace = true\n[target.'cfg(c)'.dependencies]\nd = {}\n[lints]\ne = 1";
    assert_eq!(dependencies(manifest), ["a", "b", "d"]);
    let source = Source { path: "a/b.rs".into(), text: "x // y\n#[cfg(test)]\nmod tests { unsafe }".into() };
    assert_eq!((source.module(), source.code().as_str()), ("a", "x "));
}
