//! Quotas for gateways that share language-model pools among tenants.
//!
//! A gateway describes a request, the gate answers at once, and the answer carries a lease that is finalized exactly
//! once:
//!
//! ```
//! use quota_core::{Decision, Gate, Policy, Principal, Request, Usage};
//!
//! let policy = Policy::from_yaml("
//! models: {small: {price: {input: 0.5, output: 2}}}
//! tenants: {acme: {models: {small: {rpm: 60, max_inflight: 8, daily_budget_usd: 20}}}}
//! ")?;
//! let gate = Gate::new(policy);
//! let who = Principal::builder("acme").build();
//! let request = Request::chat("small").text("Name three rivers.").max_output_tokens(200);
//! match gate.admit(&who, &request) {
//!     Decision::Allow(lease) | Decision::Degrade(lease, _) => {
//!         lease.sent(); // bytes are about to leave for the upstream
//!         let receipt = lease.settle(Usage::tokens(14, 31))?; // the provider's own figures
//!         assert!(receipt.returned(quota_core::Meter::Money) > 0);
//!     }
//!     Decision::Queue(queued) => println!("wait in {} for {:?}", queued.lane, queued.refusal.wait),
//!     Decision::Reject(refusal) => println!("{}: {}", refusal.reason, refusal.message()),
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The path of a request, and the module of each step:
//!
//! | step | what | where |
//! |---|---|---|
//! | describe | [`Principal`], [`Request`] | [`principal`], [`request`], bodies as JSON: [`estimate::body`] |
//! | measure | input and output in tokens, the worst case in money | [`estimate`], [`policy::price`] |
//! | decide | [`Gate::admit`] → [`Decision`] | [`gate`], limits from [`Policy`] |
//! | hold | [`Lease`] | [`mod@lease`], [`store`], one 64-bit word a limit: [`meter`] |
//! | run | the gateway sends it; [`Lease::sent`] | |
//! | account | [`Usage`] → [`Lease::settle`] → [`Receipt`] | [`usage`], [`journal`] |
//! | answer | a [`Refusal`] as HTTP | [`respond`] |
//!
//! On the memory store admitting and settling take no lock and do no I/O.

pub mod account;
pub mod estimate;
pub mod gate;
pub mod gpu;
pub mod journal;
pub mod keeper;
pub mod key;
pub mod lease;
pub mod meter;
#[cfg(feature = "metrics")]
pub mod observe;
pub mod policy;
#[cfg(feature = "poller")]
pub mod poller;
pub mod principal;
pub mod reason;
pub mod refusal;
pub mod request;
pub mod respond;
pub mod scheduler;
pub mod store;
pub(crate) mod sync;
pub(crate) mod tally;
#[cfg(feature = "testkit")]
pub mod testkit;
pub mod time;
pub mod units;
pub mod usage;
pub mod work;

pub use crate::gate::{Decision, Gate, GateBuilder, Lease, StreamMeter};
pub use crate::key::Secret;
pub use crate::lease::{EndError, LeaseId, Receipt};
pub use crate::policy::Policy;
pub use crate::principal::Principal;
pub use crate::reason::Reason;
pub use crate::refusal::{Balance, Refusal, Wait};
pub use crate::request::Request;
pub use crate::store::{Name, Store};
pub use crate::time::ManualClock;
pub use crate::units::{Meter, Usd};
pub use crate::usage::Usage;
