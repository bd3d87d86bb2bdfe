//! Each story, told in Rust, says what is expected of it in every language.

use std::process::Command;

#[track_caller]
fn tells(program: &str, expected: &str) {
    let output = Command::new(program).output().expect("it starts");
    let (told, complained) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{complained}");
    assert_eq!(told, expected);
}

#[test]
fn quick_start() {
    tells(env!("CARGO_BIN_EXE_quick_start"), include_str!("../quick_start/expected.txt"));
}

#[test]
fn gateway() {
    tells(env!("CARGO_BIN_EXE_story_gateway"), include_str!("../gateway/expected.txt"));
}

#[test]
fn streaming() {
    tells(env!("CARGO_BIN_EXE_streaming"), include_str!("../streaming/expected.txt"));
}

#[test]
fn fair_queue() {
    tells(env!("CARGO_BIN_EXE_fair_queue"), include_str!("../fair_queue/expected.txt"));
}

#[test]
fn explain_bill() {
    tells(env!("CARGO_BIN_EXE_explain_bill"), include_str!("../explain_bill/expected.txt"));
}
