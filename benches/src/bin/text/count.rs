//! Instructions, as callgrind counts them in this program when it starts itself under valgrind.

use std::process::Command;

/// The instructions of this program with these arguments; `None` without valgrind.
pub fn instructions(args: &[&str]) -> Option<u64> {
    let own = std::env::current_exe().ok()?;
    let run = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(own)
        .args(args)
        .output()
        .ok()?;
    let said = String::from_utf8_lossy(&run.stderr).into_owned();
    let line = said.lines().find_map(|line| line.split_once("Collected :"))?.1;
    line.trim().parse().ok()
}
