//! Runs of agents: steps, tokens, tool calls, money and time per run id; what comes back and what does not.

use std::sync::Arc;
use std::time::Duration;

use quota_core::request::{Input, MAX_RUN_ID, Part};
use quota_core::store::memory::{Bounds, Memory};
use quota_core::usage::Outcome;
use quota_core::{
    Decision, Gate, Lease, ManualClock, Meter, Name, Policy, Principal, Reason, Request, Usage, Usd, Wait,
};

/// $1 a million tokens either way.
fn policy(runs: &str) -> Policy {
    let text = format!(
        "models: {{m: {{price: {{input: 1, output: 1}}}}}}\ntenants: {{acme: {{agent_runs: {runs}, models: {{m: {{}}}}}}}}"
    );
    Policy::from_yaml(&text).unwrap()
}

struct Bench {
    gate: Gate,
    clock: Arc<ManualClock>,
    who: Principal,
}

impl Bench {
    fn new(runs: &str) -> Bench {
        Bench::with_rows(runs, 1024)
    }

    fn with_rows(runs: &str, rows: u32) -> Bench {
        let clock = Arc::new(ManualClock::at_instant("2026-11-30T12:00:00Z").unwrap());
        let store = Memory::new(Bounds { rows, open_leases: 256 });
        let gate = Gate::builder(policy(runs)).store(store).clock(clock.clone()).build();
        Bench { gate, clock, who: Principal::builder("acme").build() }
    }

    fn step(&self, run: &str) -> Request {
        Request::chat("m").run_id(run).input_tokens(100).max_output_tokens(100)
    }

    fn admit(&self, request: &Request) -> Result<Lease, Reason> {
        match self.gate.admit(&self.who, request) {
            Decision::Allow(lease) => Ok(lease),
            decision => Err(decision.reason().unwrap()),
        }
    }

    /// Settles a step of a run with these tokens.
    fn run(&self, run: &str, input: u64, output: u64) -> Result<(), Reason> {
        self.admit(&self.step(run)).map(|lease| assert!(lease.settle(Usage::tokens(input, output)).is_ok()))
    }

    fn used(&self, run: &str, limit: &str) -> u64 {
        let balances = self.gate.run_balances(&self.who, run);
        balances.iter().find(|balance| *balance.limit == *limit).unwrap_or_else(|| panic!("no {limit}")).used
    }
}

#[test]
fn each_bound_refuses_with_its_own_reason_and_no_retry() {
    let calls = || Part::ToolCall { name: "search".into(), arguments: "{}".into() };
    let assistant = || Part::Message { role: "assistant".into(), name: None };
    for (runs, passes, reason) in [
        ("{max_steps: 3}", 3, Reason::RunStepsExceeded),
        // Each step holds 200 and uses 150.
        ("{max_tokens: 500}", 3, Reason::RunTokensExceeded),
        // Each carries two calls.
        ("{max_tool_calls: 5}", 2, Reason::RunToolCallsExceeded),
        // Each holds $0.0002 and uses $0.00015.
        ("{max_usd: 0.0005}", 3, Reason::RunBudgetExceeded),
        // Each takes two seconds.
        ("{max_seconds: 7}", 4, Reason::RunTimeExceeded),
    ] {
        let bench = Bench::new(runs);
        let mut request = bench.step("r");
        if reason == Reason::RunToolCallsExceeded {
            request.input = Input::Parts(vec![assistant(), calls(), calls()]);
        }
        for passed in 0..passes {
            let lease = bench.admit(&request).unwrap_or_else(|why| panic!("{runs}: {why} after {passed}"));
            lease.settle(Usage::tokens(75, 75)).unwrap();
            bench.clock.advance(Duration::from_secs(2));
        }
        let Decision::Reject(refusal) = bench.gate.admit(&bench.who, &request) else { panic!("{runs}: not refused") };
        assert_eq!((refusal.reason, refusal.wait), (reason, Wait::Never), "{runs}");
        assert_eq!(&*refusal.shortages[0].scope, "tenant:acme/run:r");
        assert_eq!(refusal.reason.status(), if reason == Reason::RunBudgetExceeded { 402 } else { 429 });
        let answer = quota_core::respond::openai::response(&refusal);
        assert!(answer.headers.contains(&("x-should-retry", "false".to_owned())), "{:?}", answer.headers);
        // Another run, a request outside of any, and another tenant's accounts are none of its business.
        assert!(bench.admit(&Request { run_id: Some("other".into()), ..request.clone() }).is_ok());
        assert!(bench.admit(&Request { run_id: None, ..request }).is_ok());
    }
}

#[test]
fn a_hold_is_corrected_to_what_was_used_and_nothing_else_comes_back() {
    let bench = Bench::new("{max_steps: 10, max_tokens: 1000, max_tool_calls: 9, max_usd: 1}");
    let request = bench.step("r").tool_calls(2);
    let usd = |text: &str| text.parse::<Usd>().unwrap().units();
    let all = |limits: [u64; 4]| {
        let names = ["max_steps", "max_tokens", "max_tool_calls", "max_usd"];
        assert_eq!(names.map(|name| bench.used("r", name)), limits);
    };
    let lease = bench.admit(&request).unwrap();
    all([1, 200, 2, usd("0.0002")]);
    lease.sent();
    let receipt = lease.settle(Usage::tokens(90, 30)).unwrap();
    assert_eq!([Meter::Steps, Meter::ToolCalls, Meter::RunTime].map(|meter| receipt.charged().get(meter)), [1, 2, 0]);
    all([1, 120, 2, usd("0.00012")]);
    // Again: nothing moves.
    assert!(lease.settle(Usage::tokens(90, 30)).unwrap().is_repeat());
    all([1, 120, 2, usd("0.00012")]);
    // Cancelled before it left: everything comes back, the step and the calls too.
    bench.admit(&request).unwrap().cancel().unwrap();
    all([1, 120, 2, usd("0.00012")]);
    // The provider refused to run it: as if cancelled.
    bench.admit(&request).unwrap().finish(Outcome::NotRun).unwrap();
    all([1, 120, 2, usd("0.00012")]);
    // Dropped: it stays, until one late settle corrects it.
    drop(bench.admit(&Request { id: Some("late".into()), ..request.clone() }).unwrap());
    all([2, 320, 4, usd("0.00032")]);
    bench.gate.finalize(Name::Request("late".into()), Outcome::Final(Usage::tokens(1, 1))).unwrap();
    all([2, 122, 4, usd("0.000122")]);
    // Usage above the hold is debt: what was used counts, and the next step finds no room.
    bench.admit(&request).unwrap().settle(Usage::tokens(100, 2000)).unwrap();
    assert_eq!(bench.used("r", "max_tokens"), 2222);
    assert_eq!(bench.admit(&request).err(), Some(Reason::RunTokensExceeded));
    // Replaying the journal gives the same.
    let replayed = quota_core::journal::replay(bench.gate.journal());
    for limit in ["max_steps", "max_tokens", "max_tool_calls", "max_usd", "max_seconds"] {
        let used = replayed.used("tenant:acme/run:r", limit, bench.gate.now(), Default::default());
        assert_eq!(used, Some(bench.used("r", limit)), "{limit}");
    }
    let story = bench.gate.explain("late");
    assert_eq!(story[0].to_json()["run"], "r");
    assert_eq!(story[0].to_json()["holds"][0]["scope"], "tenant:acme/run:r");
    assert_eq!(story[2].to_json()["charged"]["steps"], "1");
}

#[test]
fn the_last_of_what_a_run_has_is_taken_whole() {
    let bench = Bench::new("{max_tokens: 400, max_steps: 2}");
    assert_eq!(bench.run("r", 100, 100), Ok(()));
    assert_eq!(bench.run("r", 100, 100), Ok(()));
    assert_eq!((bench.used("r", "max_tokens"), bench.used("r", "max_steps")), (400, 2));
    let Decision::Reject(refusal) = bench.gate.admit(&bench.who, &bench.step("r")) else { panic!() };
    assert_eq!(refusal.shortages.len(), 2, "both are named");
    // What would fit is told where output is what lacks.
    let bench = Bench::new("{max_tokens: 250}");
    bench.run("r", 50, 50).unwrap();
    let Decision::Reject(refusal) = bench.gate.admit(&bench.who, &bench.step("r")) else { panic!() };
    assert_eq!((refusal.reason, refusal.fits.max_output_tokens), (Reason::RunTokensExceeded, Some(50)));
}

#[test]
fn time_runs_from_the_first_admission_and_a_reload_does_not_lengthen_it() {
    let bench = Bench::new("{max_seconds: 900}");
    assert_eq!(bench.used("r", "max_seconds"), 0);
    bench.admit(&bench.step("r")).unwrap().cancel().unwrap();
    bench.clock.advance(Duration::from_secs(400));
    assert_eq!(bench.used("r", "max_seconds"), 400);
    bench.gate.reload(&policy("{max_seconds: 9000}"));
    bench.clock.advance(Duration::from_secs(500));
    assert_eq!(bench.run("r", 1, 1), Ok(()), "the last moment is within");
    bench.clock.advance(Duration::from_nanos(1));
    assert_eq!(bench.run("r", 1, 1), Err(Reason::RunTimeExceeded));
    assert_eq!(bench.run("s", 1, 1), Ok(()));
    // Where another bound is set the time is a day.
    let bench = Bench::new("{max_steps: 9}");
    bench.run("r", 1, 1).unwrap();
    bench.clock.advance(Duration::from_secs(86_400));
    bench.run("r", 1, 1).unwrap();
    bench.clock.advance(Duration::from_secs(1));
    assert_eq!(bench.run("r", 1, 1), Err(Reason::RunTimeExceeded));
    assert_eq!(bench.run("r", 1, 1), Err(Reason::RunTimeExceeded), "asking again does not help");
}

#[test]
fn runs_are_bounded_and_expire() {
    // Passing scopes have three quarters of sixteen rows, and those of one tenant half of them.
    let bench = Bench::with_rows("{max_steps: 2, max_seconds: 60}", 16);
    for run in 0..6 {
        assert_eq!(bench.run(&format!("r{run}"), 1, 1), Ok(()));
    }
    assert_eq!(bench.run("one too many", 1, 1), Err(Reason::AccountsExhausted));
    // Over, but remembered for an hour: no room is made by refusing it.
    bench.clock.advance(Duration::from_secs(60 + 3599));
    assert_eq!(bench.run("one too many", 1, 1), Err(Reason::AccountsExhausted));
    assert_eq!(bench.run("r0", 1, 1), Err(Reason::RunTimeExceeded));
    let open = {
        bench.clock.advance(Duration::from_secs(1));
        bench.admit(&bench.step("one too many")).unwrap()
    };
    // The old ids made room: used again, they name new runs.
    assert_eq!((bench.run("r0", 1, 1), bench.run("r0", 1, 1)), (Ok(()), Ok(())));
    assert_eq!(bench.run("r0", 1, 1), Err(Reason::RunStepsExceeded));
    // A run with an open lease is never forgotten.
    bench.clock.advance(Duration::from_secs(3 * 3600));
    for run in 0..5 {
        assert_eq!(bench.run(&format!("s{run}"), 1, 1), Ok(()));
    }
    assert_eq!(bench.run("s5", 1, 1), Err(Reason::AccountsExhausted));
    assert_eq!(bench.run("one too many", 1, 1), Err(Reason::RunTimeExceeded));
    assert!(open.settle(Usage::tokens(1, 1)).is_ok());
}

#[test]
fn a_run_id_is_bounded_and_only_looked_at_where_runs_are_limited() {
    let bench = Bench::new("{max_steps: 1}");
    let long = "r".repeat(MAX_RUN_ID);
    assert_eq!(bench.run(&long, 1, 1), Ok(()));
    assert_eq!(bench.run(&format!("{long}r"), 1, 1), Err(Reason::RequestInvalid));
    assert_eq!(bench.run("", 1, 1), Err(Reason::RequestInvalid));
    let bench = Bench::new("{}");
    for _ in 0..100 {
        assert_eq!(bench.run("r", 1, 1), Ok(()));
    }
    assert!(bench.gate.run_balances(&bench.who, "r").is_empty());
    // A bound of nothing lets nothing pass.
    for (runs, reason) in [
        ("{max_steps: 0}", Reason::RunStepsExceeded),
        ("{max_tokens: 0}", Reason::RunTokensExceeded),
        ("{max_usd: 0}", Reason::RunBudgetExceeded),
        ("{max_seconds: 0}", Reason::RunTimeExceeded),
    ] {
        assert_eq!(Bench::new(runs).run("r", 1, 1), Err(reason), "{runs}");
    }
    assert_eq!(Bench::new("{max_tool_calls: 0}").run("r", 1, 1), Ok(()), "a step without calls");
}

#[test]
fn many_threads_take_no_step_too_many() {
    let bench = Bench::new("{max_steps: 100}");
    let passed: usize = std::thread::scope(|scope| {
        let work = || (0..60).filter(|_| bench.run("r", 1, 1).is_ok()).count();
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(work)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!((passed, bench.used("r", "max_steps")), (100, 100));
}
