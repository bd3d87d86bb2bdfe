//! What fuzzing has found, over again: every input of `fuzz/corpus` through its target.

use std::fs;
use std::path::Path;

/// The targets themselves.
#[path = "../../fuzz/src/lib.rs"]
mod fuzz;

#[test]
fn every_input_of_the_corpus_is_read_as_promised() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus");
    for (target, run) in fuzz::TARGETS {
        let inputs: Vec<_> = fs::read_dir(root.join(target)).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(!inputs.is_empty(), "no input for {target}");
        for input in inputs {
            let bytes = fs::read(&input).unwrap();
            // The test's output, which is shown where it fails, ends with the input that failed.
            println!("{}", input.display());
            run(&bytes);
        }
    }
}

/// A target that is here and that libFuzzer does not have, or the other way about, would be run by one of the two alone.
#[test]
fn every_target_is_fuzzed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/fuzz_targets");
    let mut files: Vec<String> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    files.sort();
    assert_eq!(files, fuzz::TARGETS.map(|(target, _)| format!("{target}.rs")));
}
