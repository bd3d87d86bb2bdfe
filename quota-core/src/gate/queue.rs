//! Queueing: how a request waits for its turn, and what becomes of it then.
//!
//! Floor 3. Invariant: a request that waits holds nothing but its place; a turn that is not used is given back uncharged.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::decision::{Decision, Queued};
use super::lease::Lease;
use super::pools::Pool;
use super::prepare::Prepared;
use super::verdict::Question;
use super::wiring::{Roster, Wiring};
use super::{Gate, Shared, view};
use crate::principal::Principal;
use crate::reason::Reason;
use crate::refusal::{Refusal, Wait};
use crate::request::Request;
use crate::scheduler::drr::End;
use crate::scheduler::{Place, Refused, Turn, Why};
use crate::store::{Lack, Lacks, Memory, Reservation, Store};
use crate::time::Now;

/// A turn on its way to a lease: dropped before, it is given back as one that never started.
pub(super) struct Seat {
    turn: Option<Turn>,
    now: Now,
}

impl Seat {
    pub(super) fn new(turn: Option<Turn>, now: Now) -> Seat {
        Seat { turn, now }
    }

    pub(super) fn is_taken(&self) -> bool {
        self.turn.is_some()
    }

    /// The turn, if it is one for this pool.
    pub(super) fn take_for(mut self, pool: &Pool) -> Option<Turn> {
        self.turn.take_if(|turn| turn.is_of(&pool.scheduler))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Some(turn) = self.turn.take() {
            turn.end(End::NeverStarted, self.now.mono);
        }
    }
}

/// A request with what it takes to reserve for it.
pub(super) struct Ready<'a> {
    pub(super) reservation: Reservation,
    pub(super) question: Question<'a>,
}

impl<'a> Ready<'a> {
    pub(super) fn of(prepared: Prepared, request: &'a Request) -> Ready<'a> {
        let Prepared { reservation, routes, asked } = prepared;
        let question = Question::of(&reservation, routes, asked, request);
        Ready { reservation, question }
    }
}

/// How a request gets to its limits.
pub(super) enum Entrance {
    /// With this turn, or none where none is needed.
    Open(Option<Turn>),
    /// It has to be waited for.
    Closed,
}

/// What came of lining up.
pub(super) enum LinedUp<'a> {
    /// Its turn is there.
    Turn(Box<Ready<'a>>, Turn),
    /// It waits.
    Waits(Question<'a>, Queued),
    /// It is not to wait: the queue's refusal.
    Refused(Question<'a>, Arc<Refusal>),
    /// It is not to wait: what its limits lack.
    Short(Question<'a>, Vec<Lacks>),
}

impl<S: Store> Gate<S> {
    /// Waits for a request's turn, and reserves when it has come: [`admit`](Gate::admit) and [`wait`](Gate::wait) in one.
    ///
    /// Dropping the ticket gives up the place. Whether it has waited too long is noticed when [`sweep`](Gate::sweep) is
    /// called; a [`Keeper`](crate::keeper::Keeper) does so in time.
    pub fn acquire<'a>(&'a self, who: &'a Principal, request: &'a Request) -> Ticket<'a, S> {
        self.ticket(None, who, request)
    }

    /// Waits for the turn of a request that was told to, see [`acquire`](Gate::acquire).
    pub fn wait<'a>(&'a self, queued: Queued, who: &'a Principal, request: &'a Request) -> Ticket<'a, S> {
        self.ticket(Some(queued), who, request)
    }

    fn ticket<'a>(&'a self, queued: Option<Queued>, who: &'a Principal, request: &'a Request) -> Ticket<'a, S> {
        Ticket(Box::pin(async move {
            let mut decision = match queued {
                Some(queued) => Decision::Queue(queued),
                None => S::future(self.admit(who, request)).await,
            };
            loop {
                let queued = match decision {
                    Decision::Allow(lease) | Decision::Degrade(lease, _) => return Ok(lease),
                    Decision::Reject(refusal) => return Err(refusal),
                    Decision::Queue(queued) => queued,
                };
                poll_fn(|cx| queued.poll_due(cx)).await;
                decision = S::future(self.admit_again(queued, who, request)).await;
            }
        }))
    }
}

/// A place in a queue until its turn: a future of the lease, or of the refusal. Dropping it gives up the place.
#[must_use = "a ticket does nothing until it is awaited"]
pub struct Ticket<'a, S: Store = Memory>(Waiting<'a, S>);

type Waiting<'a, S> = Pin<Box<dyn Future<Output = Result<Lease<S>, Arc<Refusal>>> + Send + 'a>>;

impl<S: Store> std::fmt::Debug for Ticket<'_, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Ticket")
    }
}

impl<S: Store> Future for Ticket<'_, S> {
    type Output = Result<Lease<S>, Arc<Refusal>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx)
    }
}

impl Queued {
    /// Whether asking again may bring something else: its turn has come, or a refusal.
    pub fn is_due(&self) -> bool {
        self.place.as_ref().is_none_or(Place::is_due)
    }

    /// Ready when [`is_due`](Queued::is_due), for hosts that wait by themselves; wakes the task when it will be.
    pub fn poll_due(&self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.is_due() {
            if let Some(place) = &self.place {
                place.wake_by(cx.waker());
            }
            // What came between the look and the registration is seen by this one.
            if !self.is_due() {
                return Poll::Pending;
            }
        }
        Poll::Ready(())
    }
}

impl<S: Store> Shared<S> {
    /// Lines up a request that can't go at once: with its limits looked at first, so that it does not wait for nothing.
    pub(super) fn line_up<'a>(&'a self, ready: Ready<'a>, now: Now) -> S::Answer<'a, LinedUp<'a>> {
        let lineup = view::joined(ready.reservation.choices.iter().map(|choice| &choice.terms.deal.lineup));
        self.store.read(lineup, move |words| {
            let Ready { reservation, question } = ready;
            let pool = self.pool_of(&question);
            let Some(words) = words else {
                let refusal = question.unreserved(&crate::store::Reserved::Unavailable);
                return LinedUp::Refused(question, refusal);
            };
            let choices = &reservation.choices;
            let lacks = match crate::store::select(choices, view::words_of(choices, &words), now) {
                Ok(_) => None,
                Err(lacks) if question.waits(&lacks) => Some(lacks),
                Err(lacks) => return LinedUp::Short(question, lacks),
            };
            let refused = |refused| unqueued(refused, question.blank(Reason::QueueFull), question.lane(), &pool.name);
            let mut place = match pool.scheduler.arrive(question.arrival(), now.mono) {
                Ok(place) => place,
                Err(why) => {
                    let refusal = refused(why);
                    return LinedUp::Refused(question, refusal);
                }
            };
            match place.try_turn() {
                Some(Ok(turn)) => LinedUp::Turn(Box::new(Ready { reservation, question }), turn),
                Some(Err(why)) => {
                    let refusal = refused(why);
                    LinedUp::Refused(question, refusal)
                }
                None => {
                    let short = lacks.map(|lacks| question.refused(&lacks));
                    let full = || match pool.is_gated() && pool.scheduler.would_wait(&question.arrival()) {
                        true => question.pool_full(&pool.name),
                        false => Arc::new(Refusal { wait: Wait::Unknown, ..question.blank(Reason::QueuedBehind) }),
                    };
                    let refusal = short.unwrap_or_else(full);
                    let queued = self.wired(|wiring| question.queued(wiring, &pool.name, Some(place), refusal));
                    LinedUp::Waits(question, queued)
                }
            }
        })
    }

    /// The pool that a request's model names.
    pub(super) fn pool_of(&self, question: &Question<'_>) -> Arc<Pool> {
        self.wired(|wiring| wiring.pools.get(pool_named(question.roster(question.asked))).clone())
    }

    /// A turn where none has to be waited for.
    pub(super) fn entrance(&self, wiring: &Wiring, question: &Question<'_>, now: Now) -> Entrance {
        let pool = wiring.pools.get(pool_named(question.roster(question.asked)));
        // Behind others of its tenant that wait for its limits it does not go first: the queue knows whether there are.
        if pool.scheduler.may_hold(&question.roster(question.asked).tenant.name) {
            return Entrance::Closed;
        }
        match pool.is_gated() {
            true => match pool.scheduler.enter(question.arrival(), now.mono) {
                Some(turn) => Entrance::Open(Some(turn)),
                None => Entrance::Closed,
            },
            false => Entrance::Open(None),
        }
    }

    /// The turn that a lease keeps: the one that was waited for, if it is for the pool that the request runs in. In another
    /// one, where a lesser form or a reload has brought it, it is counted in any case.
    pub(super) fn turn_for(&self, question: &Question<'_>, choice: usize, seat: Seat) -> Option<Turn> {
        let now = seat.now;
        let model = question.roster(choice).model.as_ref();
        if !seat.is_taken() && model.is_none_or(|model| model.pool.is_none()) {
            // Only a pool with a name is gated.
            return None;
        }
        let pool = self.wired(|wiring| {
            let pool = wiring.pools.get(pool_named(question.roster(choice)));
            // Most requests have no turn and need none.
            (seat.is_taken() || pool.is_gated()).then(|| pool.clone())
        })?;
        seat.take_for(&pool)
            .or_else(|| pool.is_gated().then(|| pool.scheduler.enter_anyway(question.arrival(), now.mono)))
    }

    /// Puts a request back whose limits had no room, where it is to wait: the decision, or `None` where it is not.
    pub(super) fn put_back(
        &self,
        question: &Question<'_>,
        seat: Seat,
        lacks: &[Lacks],
        refusal: &Arc<Refusal>,
        now: Now,
    ) -> Option<Result<Queued, Arc<Refusal>>> {
        if !question.waits(lacks) {
            return None;
        }
        let longest = longest(lacks.get(question.asked)?)?;
        let (scope, whole_flow) = question.scope_of(&longest);
        let due = match longest.wait {
            Wait::After(wait) => now.mono.saturating_add(u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX)),
            Wait::Unknown | Wait::Never => u64::MAX,
        };
        let pool = self.pool_of(question);
        let turn = seat.take_for(&pool);
        let turn = turn.unwrap_or_else(|| pool.scheduler.enter_anyway(question.arrival(), now.mono));
        Some(match turn.put_back(scope, whole_flow, due, now.mono) {
            Ok(place) => Ok(self.wired(|wiring| question.queued(wiring, &pool.name, Some(place), refusal.clone()))),
            Err(refused) => Err(unqueued(refused, question.blank(Reason::QueueFull), question.lane(), &pool.name)),
        })
    }
}

/// The pool of a roster's model.
fn pool_named(roster: &Roster) -> Option<&Arc<str>> {
    roster.model.as_ref()?.pool.as_ref()
}

impl Question<'_> {
    /// The refusal of a request that a pool has no room for.
    pub(super) fn pool_full(&self, pool: &str) -> Arc<Refusal> {
        let detail = Some(format!("pool `{pool}`"));
        Arc::new(Refusal { wait: Wait::Unknown, detail, ..self.blank(Reason::ModelPoolOverloaded) })
    }
}

/// The shortage that lasts longest.
fn longest(lacks: &Lacks) -> Option<Lack> {
    let time = |lack: &Lack| match lack.wait {
        Wait::After(wait) => wait,
        Wait::Unknown | Wait::Never => Duration::ZERO,
    };
    lacks.iter().copied().filter(|lack| !lack.soft).max_by_key(time)
}

/// The refusal by a queue, out of one that names the request, and says what kept it waiting if that is known.
pub(super) fn unqueued(refused: Refused, told: Refusal, lane: &str, pool: &str) -> Arc<Refusal> {
    let wait = refused.retry_after.map_or(Wait::Unknown, Wait::After);
    let (reason, detail) = match refused.why {
        Why::Full | Why::UnknownLane | Why::Over => (Reason::QueueFull, format!("lane `{lane}`")),
        Why::Overloaded => (Reason::ModelPoolOverloaded, format!("pool `{pool}`")),
        Why::TimedOut => {
            let kept_out = match told.shortages.first() {
                Some(shortage) => format!("{} {}", shortage.scope, shortage.limit),
                None => format!("pool `{pool}`"),
            };
            (Reason::QueueTimeout, format!("waited in lane `{lane}` for {kept_out}"))
        }
    };
    let wait = if wait == Wait::Unknown && refused.why == Why::TimedOut { told.wait } else { wait };
    Arc::new(Refusal { reason, wait, detail: Some(detail), ..told })
}
