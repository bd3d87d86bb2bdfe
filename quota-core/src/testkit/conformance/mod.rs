//! The conformance suite: every promise of a store, once, as named checks through the gate.
//!
//! Floor 5. Invariant: a check asks only through [`Gate`](crate::Gate) and [`Store`](crate::Store), so it means the same
//! for every store; it panics with what was found.

mod bounds;
mod endings;
mod holds;
mod scene;

pub use self::bounds::*;
pub use self::endings::*;
pub use self::holds::*;
pub use self::scene::Scene;

use super::TestStore;

macro_rules! suite {
    (($d:tt) $($check:ident)*) => {
        /// Every check with its name, in the order of the invariants.
        pub fn suite<S: TestStore>() -> Vec<(&'static str, fn())> {
            vec![$((stringify!($check), $check::<S> as fn())),*]
        }

        /// Makes a test of every check of the conformance suite for a [`TestStore`](crate::testkit::TestStore).
        ///
        /// ```
        /// mod memory {
        ///     quota_core::store_conformance!(quota_core::store::Memory);
        /// }
        /// ```
        #[macro_export]
        macro_rules! store_conformance {
            ($d store:ty) => {
                $(
                    #[test]
                    fn $check() {
                        $d crate::testkit::conformance::$check::<$d store>();
                    }
                )*
            };
        }
    };
}

suite! { ($)
    worked_example
    l1_no_admission_passes_a_hard_amount
    l1_usage_beyond_the_hold_is_debt
    l2_every_order_of_endings_leaves_the_sum_of_usage
    l3_an_ending_repeats_its_first_receipt
    l3_other_figures_change_nothing
    l4_a_refusal_changes_nothing
    l4_a_preview_changes_nothing
    l4_full_of_leases_moves_no_budget
    l5_unknown_usage_is_never_free
    l5_what_was_sent_is_not_cancelled
    l6_a_repeat_finds_the_open_lease
    l6_an_ended_id_is_refused_with_its_receipt
    l6_an_id_belongs_to_its_principal
    l6_a_long_lease_is_remembered_once_it_has_ended
    l7_each_decision_and_ending_is_written_once
    l7_the_replay_gives_the_live_balances
    l8_a_correction_lands_in_its_period
    l8_a_spent_period_is_not_opened_again
    l9_full_of_leases_refuses_and_forgets_nothing_open
    l9_full_of_accounts_refuses_and_forgets_nothing_in_use
    l9_accounts_at_rest_make_room_and_come_back
    a_lease_expires_at_its_deadline_and_not_before
    a_heartbeat_moves_the_deadline
    a_late_settle_corrects_once
    an_unresolved_lease_is_closed_after_its_age
    a_shortage_ends_what_has_expired
    a_sweep_looks_at_no_more_than_it_may
    an_extension_raises_all_or_nothing
    an_extension_needs_an_open_lease
    a_rate_gives_back_only_what_lies_ahead
    a_wait_is_exact_to_the_nanosecond
    streams_are_counted_beside_requests
    shadow_counts_and_never_refuses
    a_reload_refills_nothing
    an_unknown_lease_is_told
    open_leases_can_be_looked_at
}
