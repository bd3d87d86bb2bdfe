//! The gateway over real sockets.

mod acts;
mod calls;
mod endpoints;
mod harness;
mod queues;
mod streams;
