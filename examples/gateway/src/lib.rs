//! A gateway in OpenAI's and Anthropic's manner that enforces a quota policy: what it takes in front of a model pool to use
//! [`quota_core`].
//!
//! The path of a request, whichever [`endpoint`] it is for: [`serve`] takes its connection, [`identity`] says whose it is, [`spend`] reads its body and
//! waits for its turn, [`rewrite`] makes the upstream's body of it, [`call`] sends it and ends the lease whatever happens,
//! [`relay`] passes a stream through. The tenant comes from the key alone. [`pools`] says how full the upstream is.

pub mod acts;
pub mod answer;
pub mod args;
mod aside;
pub mod call;
pub mod dashboard;
pub mod endpoint;
pub mod figures;
pub mod identity;
#[cfg(feature = "jwt")]
pub mod jwt;
pub mod models;
pub mod operator;
pub mod pools;
pub mod relay;
pub mod rewrite;
pub mod serve;
pub mod server;
pub mod simulated;
pub mod source;
pub mod spend;
pub mod sse;
pub mod upstream;
