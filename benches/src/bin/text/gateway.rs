//! S10: what the gateway adds to a call of the upstream, over 64 connections that are kept.
//!
//! The gateway is the program itself, `target/release/gateway`. The upstream is one thread that answers at once, the load
//! comes from another one, and all share the machine's cores. The same load goes to the upstream directly, in turns with
//! that through the gateway.

mod load;
mod upstream;

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use load::Load;

use crate::row::{Figure, Target, at_part};

/// Connections.
const CONNECTIONS: usize = 64;
/// How long each round lasts, and how many there are of each kind.
const ROUND: Duration = Duration::from_secs(2);
const ROUNDS: usize = 5;

/// Limits that nobody reaches, of eight kinds in three scopes. The key is `bench`.
const POLICY: &str = "
models: {small: {price: {input: 1, output: 1}, context: 100000, max_output: 1000}}
tenants:
  bench:
    tpm: 1000000000000
    max_inflight: 1000000
    daily_budget_usd: 11000000
    monthly_budget_usd: 11000000
    users: {rpm: 1000000000, tpd: 1000000000000000}
    models: {small: {rpm: 1000000000, max_inflight: 1000000}}
    keys: [{id: bench, sha256: 1b32c28cb38c05480eccc1bd60ff97029b57a05c96718b96dad7e9d84894f549, names_users: true}]
";

/// The gateway's process, ended when it is dropped.
struct Gateway {
    process: Child,
    address: SocketAddr,
}

impl Gateway {
    fn start(upstream: SocketAddr) -> Gateway {
        let own = std::env::current_exe().expect("a path of this program");
        let program = own.with_file_name("gateway");
        assert!(program.exists(), "{} is missing: cargo build --release -p gateway", program.display());
        let policy = std::env::temp_dir().join(format!("bench-policy-{}.yaml", std::process::id()));
        std::fs::write(&policy, POLICY).expect("a policy in the temporary folder");
        let mut process = Command::new(program)
            .args(["--listen", "127.0.0.1:0", "--upstream", &format!("http://{upstream}"), "--policy"])
            .arg(&policy)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the gateway starts");
        let said = process.stdout.take().expect("its output is piped");
        let mut lines = BufReader::new(said).lines().map_while(Result::ok);
        let address = lines.find_map(|line| line.split_once("listening on http://")?.1.trim().parse().ok());
        // It greets at length, and fails if nobody listens.
        std::thread::spawn(move || lines.for_each(drop));
        std::fs::remove_file(&policy).expect("the policy was written");
        Gateway { process, address: address.expect("it says where it listens") }
    }

    /// The time on a processor that it has had so far, in microseconds; nothing without Linux' figures.
    fn cpu(&self) -> Option<f64> {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.process.id())).ok()?;
        let spent = |thread: std::fs::DirEntry| {
            std::fs::read_to_string(thread.path().join("schedstat")).ok()?.split(' ').next()?.parse::<f64>().ok()
        };
        Some(threads.flatten().filter_map(spent).sum::<f64>() / 1000.0)
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // It has no state to lose; a process that has ended already can't be ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Measures and prints.
pub fn run() {
    let upstream = upstream::start();
    let gateway = Gateway::start(upstream);
    for stream in [false, true] {
        let kind = if stream { "stream" } else { "whole" };
        let what = |what: &str| format!("gateway, {kind}: {what}");
        let run = |to: SocketAddr, rate| Load { to, stream, rate }.run(CONNECTIONS, ROUND);
        // What comes through the gateway, and what of its processor time each request takes.
        let through = |rate, each: &mut Vec<f64>| {
            let before = gateway.cpu();
            let told = run(gateway.address, rate);
            each.extend(before.zip(gateway.cpu()).map(|(before, after)| (after - before) / told.micros.len() as f64));
            told
        };
        let spent = |mut each: Vec<f64>, when: &str| {
            if !each.is_empty() {
                let (value, what) = (at_part(&mut each, 0.5), what(&format!("its processor time a request, {when}")));
                Figure { row: "S10", what, value, unit: "us", target: Target::None, beside: None }.print();
            }
        };
        let (mut peaks, mut direct_peaks, mut each) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            peaks.push(through(None, &mut each).rate());
            direct_peaks.push(run(upstream, None).rate());
        }
        let (peak, direct_peak) = (at_part(&mut peaks, 0.5), at_part(&mut direct_peaks, 0.5));
        Figure {
            row: "S10",
            what: what("requests at its peak"),
            value: peak,
            unit: "1/s",
            target: Target::None,
            beside: Some(("the upstream", direct_peak)),
        }
        .print();
        spent(each, "at its peak");
        let (mut added, mut tail) = (Vec::new(), Vec::new());
        let (mut direct_median, mut each) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let half = Some(peak / 2.0);
            let mut through = through(half, &mut each).micros;
            let mut direct = run(upstream, half).micros;
            direct_median.push(at_part(&mut direct, 0.5));
            added.push(at_part(&mut through, 0.5) - at_part(&mut direct, 0.5));
            tail.push(at_part(&mut through, 0.99) - at_part(&mut direct, 0.99));
        }
        for (name, mut values, most) in
            [("added at half of it, median", added, 100.0), ("added at half of it, p99", tail, 1000.0)]
        {
            let value = at_part(&mut values, 0.5);
            Figure { row: "S10", what: what(name), value, unit: "us", target: Target::AtMost(most), beside: None }
                .print();
        }
        spent(each, "at half of it");
        let value = at_part(&mut direct_median, 0.5);
        Figure {
            row: "S10",
            what: what("the upstream alone, median"),
            value,
            unit: "us",
            target: Target::None,
            beside: None,
        }
        .print();
    }
}
