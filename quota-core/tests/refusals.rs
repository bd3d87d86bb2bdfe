//! Refusals: what they say is of their moment, whenever it is read, and their hints name what would have fitted.

use std::sync::Arc;

use quota_core::journal::Event;
use quota_core::{Decision, Gate, Policy, Principal, Reason, Refusal, Request};

fn gate(tenant: &str) -> Gate {
    Gate::new(policy(tenant))
}

fn policy(tenant: &str) -> Policy {
    let text = format!(
        "global: {{max_inflight: 1000}}
models: {{dear: {{price: {{input: 9, output: 9}}}}, cheap: {{price: {{input: 1, output: 1}}}}}}
tenants: {{t: {tenant}}}"
    );
    Policy::from_yaml(&text).unwrap()
}

fn who() -> Principal {
    Principal::builder("t").build()
}

fn ask(model: &str) -> Request {
    Request::chat(model).input_tokens(100).max_output_tokens(50)
}

fn refused(gate: &Gate, model: &str) -> Arc<Refusal> {
    match gate.admit(&who(), &ask(model)) {
        Decision::Reject(refusal) => refusal,
        other => panic!("{other:?}"),
    }
}

/// The models that a refusal of `dear` names, beside those that a preview would take at the same moment.
fn hinted(gate: &Gate) -> (Vec<String>, Vec<String>) {
    let hinted = refused(gate, "dear").fits.models.iter().map(|model| model.to_string()).collect();
    let would = |model: &&str| matches!(gate.preview(&who(), &ask(model)), Decision::Allow(_));
    (hinted, ["cheap"].iter().filter(|model| would(model)).map(|model| model.to_string()).collect())
}

#[test]
fn what_is_read_later_is_of_the_moment_of_the_refusal() {
    let gate = gate("{max_inflight: 1, rpd: 5, models: {dear: {rpm: 3}}}");
    let lease = gate.admit(&who(), &ask("dear")).lease().unwrap();
    let (unread, read) = (refused(&gate, "dear"), refused(&gate, "dear"));
    let first = (read.shortages.to_vec(), read.message());
    lease.cancel().unwrap();
    gate.reload(&policy("{max_inflight: 4, models: {dear: {}}}"));
    let other = gate.admit(&who(), &ask("dear")).lease().unwrap();
    assert_eq!((unread.shortages.to_vec(), unread.message()), first);
    let shown: Vec<_> = unread.shortages.iter().map(|s| (&*s.scope, &*s.limit, s.hard, s.used, s.asked)).collect();
    assert_eq!(shown, [("tenant:t", "max_inflight", 1, 1, 1)]);
    other.cancel().unwrap();
}

#[test]
fn a_refusal_and_its_entry_are_one_value() {
    let gate = gate("{models: {dear: {rpm: 0}}}");
    let refusal = refused(&gate, "dear");
    let mut last = None;
    gate.journal().scan(&mut |entry| {
        last = Some(entry.event.clone());
        true
    });
    let Some(Event::Refused(entry)) = last else { panic!("{last:?}") };
    assert!(Arc::ptr_eq(&refusal, &entry));
    assert_eq!(&*entry.shortages[0].limit, "rpm");
}

#[test]
fn a_hint_names_the_models_that_a_preview_would_take() {
    for (tenant, reason, models) in [
        // A limit of one model keeps no other out.
        ("{models: {dear: {rpm: 0}, cheap: {}}}", Reason::RequestRateExceeded, &["cheap"][..]),
        ("{models: {dear: {max_inflight: 0}, cheap: {}}}", Reason::ConcurrencyExceeded, &["cheap"]),
        // One of the tenant keeps all out if it asks the same of each; the cheaper one may fit into a budget.
        ("{rpm: 0, models: {dear: {}, cheap: {}}}", Reason::RequestRateExceeded, &[]),
        ("{rpm: 0, models: {dear: {rpm: 0}, cheap: {}}}", Reason::RequestRateExceeded, &[]),
        ("{max_inflight: 0, models: {dear: {}, cheap: {}}}", Reason::ConcurrencyExceeded, &[]),
        ("{daily_budget_usd: 0.0005, models: {dear: {}, cheap: {}}}", Reason::RequestTooLarge, &["cheap"]),
        ("{daily_budget_usd: 0, models: {dear: {}, cheap: {}}}", Reason::BudgetExceeded, &[]),
        ("{tpm: 0, models: {dear: {}, cheap: {}}}", Reason::TokenRateExceeded, &[]),
        // There is no other.
        ("{models: {dear: {rpm: 0}}}", Reason::RequestRateExceeded, &[]),
    ] {
        let gate = gate(tenant);
        assert_eq!(refused(&gate, "dear").reason, reason, "{tenant}");
        let (hinted, would) = hinted(&gate);
        assert_eq!(hinted, models, "{tenant}");
        assert_eq!(hinted, would, "{tenant}");
    }
}
