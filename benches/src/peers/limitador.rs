//! `limitador`: a reservation under six limits and its commit, on its in-memory storage.

use std::collections::HashMap;

use limitador::RateLimiter;
use limitador::limit::{Context, Expression, Limit, Namespace};

/// A limiter with six limits on a user.
pub struct SixReservations {
    limiter: RateLimiter,
    namespace: Namespace,
}

impl SixReservations {
    /// Six limits that are never reached.
    pub fn new() -> SixReservations {
        let limiter = RateLimiter::new(1_000_000);
        for n in 0..6 {
            let user: Expression = "user".try_into().expect("a name is an expression");
            limiter.add_limit(Limit::new("llm", 1 << 40, 60 + n, Vec::new(), vec![user]));
        }
        SixReservations { limiter, namespace: "llm".into() }
    }

    /// Reserves for a user and commits.
    pub fn turn(&self, user: usize) {
        let context = || Context::from(HashMap::from([("user".to_owned(), format!("u{user}"))]));
        let reserved = self.limiter.reserve(&self.namespace, &context(), 1500, None).expect("it reserves");
        assert!(!reserved.limited, "no limit is reached");
        let id = reserved.reservation_id.as_ref();
        self.limiter.commit_reservation(&self.namespace, &context(), id, 1200).expect("it commits");
    }
}

impl Default for SixReservations {
    fn default() -> SixReservations {
        SixReservations::new()
    }
}
