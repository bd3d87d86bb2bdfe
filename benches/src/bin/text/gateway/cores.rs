//! A core for the load and another one for the gateway: by `taskset`, of util-linux.

use std::process::{Command, Stdio};

/// A core for each; while it is there, this process runs on the load's.
pub struct Cores {
    pub load: u32,
    pub gateway: u32,
    /// What this process may use otherwise.
    all: String,
}

impl Cores {
    /// Takes the first and the last core that this process may use; or why it can't.
    pub fn apart() -> Result<Cores, String> {
        let status = std::fs::read_to_string("/proc/self/status").map_err(|why| format!("/proc/self/status: {why}"))?;
        let all = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap_or_default().trim();
        let numbers: Vec<u32> = all.split([',', '-']).filter_map(|number| number.parse().ok()).collect();
        match (numbers.first(), numbers.last()) {
            (Some(&load), Some(&gateway)) if load != gateway => {
                pin(&load.to_string()).map(|()| Cores { load, gateway, all: all.to_owned() })
            }
            _ => Err(format!("this process may run on {all:?} only")),
        }
    }

    /// The command that runs a program on the gateway's core.
    pub fn command(&self, program: &std::path::Path) -> Command {
        let mut command = Command::new("taskset");
        command.args(["-c", &self.gateway.to_string()]).arg(program);
        command
    }
}

impl Drop for Cores {
    fn drop(&mut self) {
        pin(&self.all).expect("it was put onto other cores before");
    }
}

/// Puts all threads of this process, and those that they start, onto some cores.
fn pin(cores: &str) -> Result<(), String> {
    let own = std::process::id().to_string();
    let done = Command::new("taskset").args(["-a", "-p", "-c", cores, &own]).stdout(Stdio::null()).status();
    match done {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("taskset: {status}")),
        Err(why) => Err(format!("taskset: {why}")),
    }
}
