//! The registry of reasons: one row per code that a decision other than allow can carry.
//!
//! Floor 0. Invariant: a code never changes its meaning; a test keeps the rows unique and documented.

use std::fmt;

macro_rules! reasons {
    ($($variant:ident $code:literal $status:literal $retry:ident $text:literal;)*) => {
        /// Why a request was not simply allowed. The codes are the same in every language and never change meaning.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Reason {
            $(#[doc = $text] $variant,)*
        }

        impl Reason {
            /// Every reason, in the order of the registry.
            pub const ALL: &'static [Reason] = &[$(Reason::$variant),*];

            /// The stable code, in `snake_case`.
            pub const fn code(self) -> &'static str {
                match self { $(Reason::$variant => $code,)* }
            }

            /// The reason of a code.
            pub fn from_code(code: &str) -> Option<Reason> {
                Reason::ALL.iter().copied().find(|reason| reason.code() == code)
            }

            /// The HTTP status that says the same.
            pub const fn status(self) -> u16 {
                match self { $(Reason::$variant => $status,)* }
            }

            /// Whether the same request may pass later without anybody changing anything.
            pub const fn retry(self) -> Retry {
                match self { $(Reason::$variant => Retry::$retry,)* }
            }

            /// One sentence for people.
            pub const fn text(self) -> &'static str {
                match self { $(Reason::$variant => $text,)* }
            }
        }
    };
}

/// Whether sending a request again helps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Retry {
    /// Soon: a rate refills, a slot comes free, a pool drains.
    Soon,
    /// When the budget's period ends; a client should not loop on it.
    NextPeriod,
    /// Not as it is: the request, the key or the policy has to change.
    No,
}

reasons! {
    RequestRateExceeded "request_rate_exceeded" 429 Soon "A limit on requests in a window has no room.";
    InputTokenRateExceeded "input_token_rate_exceeded" 429 Soon "A limit on input tokens in a window has no room.";
    OutputTokenRateExceeded "output_token_rate_exceeded" 429 Soon "A limit on output tokens in a window has no room.";
    TokenRateExceeded "token_rate_exceeded" 429 Soon "A limit on tokens in a window has no room.";
    RequestQuotaExceeded "request_quota_exceeded" 429 NextPeriod "The requests of this day, week or month are used up.";
    TokenQuotaExceeded "token_quota_exceeded" 429 NextPeriod "The tokens of this day, week or month are used up.";
    BudgetExceeded "budget_exceeded" 402 NextPeriod "The money of this period does not cover the request's worst case.";
    ConcurrencyExceeded "concurrency_exceeded" 429 Soon "All slots for requests in flight are taken.";
    StreamsExceeded "streams_exceeded" 429 Soon "All slots for open streams are taken.";
    QueueFull "queue_full" 429 Soon "The tenant's queue is full.";
    QueuedBehind "queued_behind" 429 Soon "Requests of the tenant that came before wait for its limits.";
    QueueTimeout "queue_timeout" 503 Soon "The request has waited in its lane as long as it may.";
    ModelPoolOverloaded "model_pool_overloaded" 503 Soon "The model's pool has no room for the request, or would not have in time.";
    ContextLengthExceeded "context_length_exceeded" 400 No "Input and output together are longer than the context allowed.";
    RequestTooLarge "request_too_large" 400 No "The request is larger than a limit's whole amount, so it can never pass.";
    RequestInvalid "request_invalid" 400 No "The request is malformed.";
    ModelNotAllowed "model_not_allowed" 403 No "The tenant may not use this model.";
    TenantUnknown "tenant_unknown" 403 No "The policy names no such tenant.";
    KeyUnknown "key_unknown" 401 No "The key is missing or unknown.";
    KeyExpired "key_expired" 401 No "The key has expired.";
    KeyRevoked "key_revoked" 401 No "The key has been revoked.";
    ClaimsInvalid "claims_invalid" 401 No "The verified claims name no principal of the policy.";
    PriceUnknown "price_unknown" 403 No "A money limit applies and the model has no price.";
    RequestIdConflict "request_id_conflict" 409 No "The request id is in use by another principal or by a smaller request.";
    RequestAlreadyEnded "request_already_ended" 409 No "A request under this id has already ended.";
    LeasesExhausted "leases_exhausted" 503 Soon "As many leases are open as the gate was built for.";
    AccountsExhausted "accounts_exhausted" 503 Soon "As many accounts are in use as the gate was built for.";
    StoreUnavailable "store_unavailable" 503 Soon "The store that holds the accounts does not answer.";
    RetryStorm "retry_storm" 429 Soon "The same refused request came again and again before it was to.";
    Frozen "frozen" 403 No "The tenant, the key or the model is frozen by an operator.";
    RunStepsExceeded "run_steps_exceeded" 429 No "The agent's run has taken all the steps that it may.";
    RunTokensExceeded "run_tokens_exceeded" 429 No "The agent's run has not enough tokens left for this step.";
    RunToolCallsExceeded "run_tool_calls_exceeded" 429 No "The agent's run has called tools as often as it may.";
    RunBudgetExceeded "run_budget_exceeded" 402 No "The agent's run has not enough money left for this step's worst case.";
    RunTimeExceeded "run_time_exceeded" 429 No "The agent's run has gone on for as long as it may.";
    PoolPressure "pool_pressure" 200 No "The model's pool is under pressure and the policy gives a lesser answer for it.";
    SoftLimitPassed "soft_limit_passed" 200 No "A soft amount is passed and the policy gives a lesser answer for it.";
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn codes_are_unique_snake_case_and_documented() {
        let mut seen = HashSet::new();
        for reason in Reason::ALL {
            let code = reason.code();
            assert!(seen.insert(code), "{code} twice");
            assert!(code.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{code}");
            assert!(reason.text().ends_with('.'), "{code}");
            assert!((200..600).contains(&reason.status()), "{code}");
        }
    }
}
