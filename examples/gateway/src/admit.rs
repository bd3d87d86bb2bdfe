//! Admission, with the wait where the policy lets a request wait.

use std::time::Duration;

use quota_core::gate::Degradation;
use quota_core::{Decision, Gate, Lease, Principal, Refusal, Request, Wait};
use tokio::time::{Instant, sleep};

/// How often a waiting request looks whether there is room, at least: slots come free at any time.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// An admitted request: its lease, and in which lesser form it must run.
pub type Admitted = (Lease, Option<Degradation>);

/// Asks the gate, and asks again while the request may wait.
///
/// The place in the queue is given up when the future is dropped. Waiting requests look by `preview`, which takes and
/// records nothing.
///
/// # Errors
/// The refusal; after a wait in vain, that of the limit that had no room.
pub async fn admit(gate: &Gate, who: &Principal, request: &Request) -> Result<Admitted, Box<Refusal>> {
    let began = Instant::now();
    let mut decision = gate.admit(who, request);
    loop {
        let queued = match decision {
            Decision::Allow(lease) => return Ok((lease, None)),
            Decision::Degrade(lease, degradation) => return Ok((lease, Some(degradation))),
            Decision::Reject(refusal) => return Err(refusal),
            Decision::Queue(queued) => queued,
        };
        loop {
            let left = queued.max_wait.saturating_sub(began.elapsed());
            if left.is_zero() {
                let waited = began.elapsed().as_millis();
                let detail = Some(format!("waited {waited} ms in lane `{}`", queued.lane));
                return Err(Box::new(Refusal { detail, ..*queued.refusal }));
            }
            let pause = match queued.refusal.wait {
                Wait::After(time) => time.clamp(Duration::from_millis(1), LOOK_EVERY),
                Wait::Unknown | Wait::Never => LOOK_EVERY,
            };
            sleep(pause.min(left)).await;
            if !matches!(gate.preview(who, request), Decision::Queue(_)) {
                break;
            }
        }
        decision = gate.admit_again(queued, who, request);
    }
}
