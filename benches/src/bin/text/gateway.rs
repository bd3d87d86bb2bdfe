//! S10: what the gateway adds to a call of the upstream, over 64 connections that are kept.
//!
//! The gateway is the program itself, `target/release/gateway`. The same load goes to the upstream directly, in turns with
//! that through the gateway. *Apart*, the gateway has one core to itself, and the load and the upstream are one thread on
//! another, which never sleeps, so that only what the gateway adds is measured. *Shared*, the upstream is one thread that
//! answers at once, the load comes from another one, and all share the machine's cores: how long they wait for one is
//! measured too.

mod cores;
mod head;
mod load;
mod upstream;

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use cores::Cores;
use load::{Load, Told};
use upstream::Upstream;

use crate::row::{Figure, Target, at_part};

/// Connections.
const CONNECTIONS: usize = 64;
/// How long each round lasts, and how many there are of each kind.
const ROUND: Duration = Duration::from_secs(1);
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
    fn start(upstream: SocketAddr, cores: Option<&Cores>) -> Gateway {
        let own = std::env::current_exe().expect("a path of this program");
        let program = own.with_file_name("gateway");
        assert!(program.exists(), "{} is missing: cargo build --release -p gateway", program.display());
        let policy = std::env::temp_dir().join(format!("bench-policy-{}.yaml", std::process::id()));
        std::fs::write(&policy, POLICY).expect("a policy in the temporary folder");
        let mut command = cores.map_or_else(|| Command::new(&program), |cores| cores.command(&program));
        let mut process = command
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

/// Measures with cores of the gateway's own, and with cores that all share.
pub fn run() {
    match Cores::apart() {
        Ok(cores) => {
            println!("S10  apart: the gateway on core {}, the load and the upstream on {}", cores.gateway, cores.load);
            let upstream = Upstream::new();
            let gateway = Gateway::start(upstream.address, Some(&cores));
            Setup { name: "apart", gateway, address: upstream.address, upstream: Some(upstream) }.measure();
        }
        Err(why) => println!("S10  apart: no figures: {why}"),
    }
    let upstream = Upstream::new();
    let address = upstream.address;
    upstream.run();
    Setup { name: "shared", gateway: Gateway::start(address, None), address, upstream: None }.measure();
}

/// Who runs where.
struct Setup {
    name: &'static str,
    gateway: Gateway,
    /// The upstream's.
    address: SocketAddr,
    /// The upstream, where it takes turns with the load.
    upstream: Option<Upstream>,
}

impl Setup {
    fn measure(mut self) {
        [false, true].into_iter().for_each(|stream| self.measure_kind(stream));
    }

    fn measure_kind(&mut self, stream: bool) {
        let (mut peaks, mut direct_peaks, mut spent) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            peaks.push(self.through(stream, None, &mut spent).rate());
            direct_peaks.push(self.direct(stream, None).rate());
        }
        let median = |mut values: Vec<f64>| at_part(&mut values, 0.5);
        let (peak, beside) = (median(peaks), ("the upstream", median(direct_peaks)));
        self.print(stream, "requests at its peak", peak, "1/s", Target::None, Some(beside));
        if !spent.is_empty() {
            self.print(stream, "its processor time a request, at its peak", median(spent), "us", Target::None, None);
        }
        let (mut added, mut direct) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
        let (half, parts, mut spent) = (Some(peak / 2.0), [0.5, 0.99], Vec::new());
        for _ in 0..ROUNDS {
            let mut through = self.through(stream, half, &mut spent).micros;
            let mut alone = self.direct(stream, half).micros;
            for (nth, part) in parts.into_iter().enumerate() {
                let alone = at_part(&mut alone, part);
                added[nth].push(at_part(&mut through, part) - alone);
                direct[nth].push(alone);
            }
        }
        let ([middle, tail], [direct_middle, direct_tail]) = (added.map(median), direct.map(median));
        self.print(stream, "added at half of it, median", middle, "us", Target::AtMost(100.0), None);
        self.print(stream, "added at half of it, p99", tail, "us", Target::AtMost(1000.0), None);
        if !spent.is_empty() {
            self.print(stream, "its processor time a request, at half of it", median(spent), "us", Target::None, None);
        }
        self.print(stream, "the upstream alone, median", direct_middle, "us", Target::None, None);
        self.print(stream, "the upstream alone, p99", direct_tail, "us", Target::None, None);
    }

    /// What comes through the gateway, and what of its processor time each request takes.
    fn through(&mut self, stream: bool, rate: Option<f64>, spent: &mut Vec<f64>) -> Told {
        let before = self.gateway.cpu();
        let load = Load { to: self.gateway.address, stream, rate };
        let told = load.run(CONNECTIONS, ROUND, self.upstream.as_mut());
        let after = self.gateway.cpu();
        spent.extend(before.zip(after).map(|(before, after)| (after - before) / told.micros.len() as f64));
        told
    }

    fn direct(&mut self, stream: bool, rate: Option<f64>) -> Told {
        Load { to: self.address, stream, rate }.run(CONNECTIONS, ROUND, self.upstream.as_mut())
    }

    fn print(
        &self,
        stream: bool,
        what: &str,
        value: f64,
        unit: &'static str,
        target: Target,
        beside: Option<(&'static str, f64)>,
    ) {
        let kind = if stream { "stream" } else { "whole" };
        let what = format!("{}, {kind}: {what}", self.name);
        Figure { row: "S10", what, value, unit, target, beside }.print();
    }
}
