//! The verdict: what a store's answer to a reservation means for the request.
//!
//! Floor 3. Invariant: pure; a shortage is explained by the limit that keeps the request out longest.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use super::decision::{Degradation, Queued};
use super::wiring::{Roster, Route, Wiring};
use crate::lease::{Receipt, Record, Terms};
use crate::policy::plan::{OnExceed, Window};
use crate::policy::price;
use crate::reason::Reason;
use crate::refusal::{Fits, Refusal, Shortages, Wait};
use crate::request::Request;
use crate::scheduler::{Arrival, Place};
use crate::store::{Lack, Lacks, Reservation, Reserved};
use crate::tally::Tally;
use crate::time::Unit;
use crate::units::{Amounts, Meter, Usd};
use crate::work::Tokens;

/// The output that a choice is expected to have, before any has been seen, in tokens.
const EXPECTED_OUTPUT: u64 = 512;

/// A request whose reservation is under way, and what is needed to read the answer.
pub(super) struct Question<'a> {
    pub(super) request: &'a Request,
    /// The route of each choice.
    routes: SmallVec<[Arc<Route>; 1]>,
    /// The place of the request as asked among the choices; lesser forms that pressure calls for come before it.
    pub(super) asked: usize,
    /// Of the terms as asked: the input reserved and expected, the largest output, a guessed price. Not the terms
    /// themselves, whose reference counts all requests of a principal and model share.
    input: u64,
    input_expected: u64,
    output_ceiling: u64,
    guessed: Option<Arc<price::Price>>,
}

impl<'a> Question<'a> {
    pub(super) fn of(
        reservation: &Reservation,
        routes: SmallVec<[Arc<Route>; 1]>,
        asked: usize,
        request: &'a Request,
    ) -> Question<'a> {
        let terms = &reservation.choices[asked].terms;
        let (input, output_ceiling) = (terms.input.reserve, terms.output_ceiling);
        let (input_expected, guessed) = (terms.input.expected, terms.guessed_price().cloned());
        Question { request, routes, asked, input, input_expected, output_ceiling, guessed }
    }

    /// The input that would be reserved as asked, in tokens.
    pub(super) fn input(&self) -> u64 {
        self.input
    }

    pub(super) fn roster(&self, choice: usize) -> &Roster {
        &self.routes[choice].roster
    }

    pub(super) fn route(&self, choice: usize) -> &Route {
        &self.routes[choice]
    }

    /// The route of the request as asked.
    pub(super) fn into_route(mut self) -> Arc<Route> {
        self.routes.swap_remove(self.asked)
    }

    /// What the scheduler needs to know of the request as asked.
    pub(super) fn arrival(&self) -> Arrival {
        let roster = self.roster(self.asked);
        let output = roster.tally.mean_output().unwrap_or(EXPECTED_OUTPUT);
        let output = output.saturating_mul(self.request.choices).min(self.output_ceiling);
        let tokens = Tokens::new(self.input_expected, 0, output);
        Arrival {
            rates: roster.model.as_ref().map(|model| model.work).unwrap_or_default(),
            weight: roster.tenant.weight,
            reports_progress: self.request.stream,
            max_queued: roster.tenant.max_queue,
            ..Arrival::new(roster.tenant.name.clone(), self.lane().clone(), tokens)
        }
    }

    /// The lane that was asked for.
    pub(super) fn lane(&self) -> &Arc<str> {
        &self.route(self.asked).deal.lane
    }

    /// Where requests as asked are counted: with the tenant and model, and with the lane.
    pub(super) fn tallies(&self) -> &[Arc<Tally>; 2] {
        &self.route(self.asked).deal.tallies
    }

    /// A refusal of this request that is not about a limit.
    pub(super) fn blank(&self, reason: Reason) -> Refusal {
        let tenant = self.roster(0).tenant.name.clone();
        // The lengths of its names have been looked at before.
        let request_id = self.request.id.clone();
        Refusal { request_id, ..Refusal::new(reason, tenant, self.request.model.clone()) }
    }

    /// The refusal that an answer other than a shortage comes to.
    pub(super) fn unreserved(&self, reserved: &Reserved) -> Arc<Refusal> {
        let (reason, wait) = match reserved {
            Reserved::Ended(_) => (Reason::RequestAlreadyEnded, Wait::Never),
            Reserved::Conflict => (Reason::RequestIdConflict, Wait::Never),
            Reserved::LeasesFull => (Reason::LeasesExhausted, Wait::Unknown),
            Reserved::AccountsFull => (Reason::AccountsExhausted, Wait::Unknown),
            Reserved::Taken(..) | Reserved::Open(_) | Reserved::Short(_) | Reserved::Unavailable => {
                (Reason::StoreUnavailable, Wait::Unknown)
            }
        };
        let receipt = match reserved {
            Reserved::Ended(record) => Some(Box::new(Receipt::of(record.clone(), true))),
            _ => None,
        };
        Arc::new(Refusal { wait, receipt, ..self.blank(reason) })
    }

    /// The refusal that the shortages of all choices come to: those of the request as asked if it lacked more than a
    /// soft amount, else those of the first choice after it that did.
    pub(super) fn refused(&self, lacks: &[Lacks]) -> Arc<Refusal> {
        let hard = |lacks: &Lacks| lacks.iter().any(|lack| !lack.soft);
        let after = lacks.iter().skip(self.asked).position(hard);
        let at = after.map_or(self.asked, |after| self.asked + after);
        let roster = self.roster(at);
        let lacks: &[Lack] = lacks.get(at).map_or(&[], |lacks| lacks);
        let shortages = Shortages::of(roster.lineup.clone(), lacks);
        let (reason, wait) = worst(&shortages);
        let fits = Fits { max_output_tokens: self.largest_output(roster, lacks), models: Vec::new() };
        // As `blank`, without moving what it has once more.
        Arc::new(Refusal {
            reason,
            tenant: roster.tenant.name.clone(),
            model: self.request.model.clone(),
            request_id: self.request.id.clone(),
            wait,
            shortages,
            fits,
            detail: None,
            receipt: None,
        })
    }

    /// The largest output ceiling that the limits with a shortage leave room for.
    fn largest_output(&self, roster: &Roster, lacks: &[Lack]) -> Option<u64> {
        // How much room a scope has that other tenants share is not for a tenant to know.
        if lacks.iter().any(|lack| roster.terms[lack.limit as usize].shared) {
            return None;
        }
        let mut largest = self.output_ceiling.max(1);
        for lack in lacks.iter().filter(|lack| !lack.soft) {
            let bound = roster.lineup.limit(lack.limit);
            let room = bound.rule.hard().saturating_sub(lack.used);
            largest = largest.min(match bound.meter {
                Meter::Output => room,
                Meter::Total => room.checked_sub(self.input)?,
                Meter::Money => {
                    let ask = price::Ask {
                        input: self.input,
                        service_tier: self.request.service_tier.as_deref(),
                        text_only: !super::prepare::has_media(self.request),
                        ..Default::default()
                    };
                    self.guessed.as_ref().or(roster.price.as_ref())?.largest_output(&ask, Usd::from_units(room))?
                }
                _ => return None,
            });
        }
        (largest > 0).then_some(largest)
    }

    /// The degradation of terms, by what the choices before them lacked; `None` if they are as asked. Of a lease that was
    /// found open nobody knows that any more.
    pub(super) fn degradation(&self, terms: &Terms, lacks: &[Lacks]) -> Option<Degradation> {
        let lesser = terms.lesser()?;
        let roster = self.roster(self.asked);
        let (reason, limit) = if lesser.by_pressure {
            (Reason::PoolPressure, lesser.named.clone())
        } else {
            let limit = |lack: &Lack| roster.lineup.limit(lack.limit);
            let named = |lack: &&Lack| lesser.named.as_ref().is_none_or(|name| *name == limit(lack).limit);
            let calls = || lacks.get(self.asked).into_iter().flatten().filter(named);
            let bound = calls().find(|lack| !lack.soft).or(calls().next()).map(|lack| (lack, limit(lack)));
            let reason = match bound {
                Some((lack, bound)) if !lack.soft => reason_of(bound.meter, &bound.column.window),
                _ => Reason::SoftLimitPassed,
            };
            (reason, bound.map(|(_, bound)| bound.limit.clone()).or_else(|| lesser.named.clone()))
        };
        Some(Degradation {
            step: lesser.step,
            reason,
            limit: limit.unwrap_or_default(),
            model: terms.deal.model.clone(),
            max_output_tokens: terms.output_ceiling,
            disable_tools: lesser.disable_tools.clone(),
            lane: terms.deal.lane.clone(),
        })
    }

    /// A request that waits in its lane.
    pub(super) fn queued(
        &self,
        wiring: &Wiring,
        pool: &Arc<str>,
        place: Option<Place>,
        refusal: Arc<Refusal>,
    ) -> Queued {
        let max_wait = wiring.plan.lanes.get(self.lane()).map_or(0, |lane| lane.max_wait_ms);
        let max_wait = Duration::from_millis(max_wait);
        Queued { lane: self.lane().clone(), max_wait, refusal, pool: pool.clone(), place }
    }

    /// Whether every limit that had no room says that its requests wait, and will have room some time. A soft amount that is
    /// passed keeps nobody out.
    pub(super) fn waits(&self, lacks: &[Lacks]) -> bool {
        let terms = &self.roster(self.asked).terms;
        let waits = |lack: &Lack| terms[lack.limit as usize].on_exceed == OnExceed::Queue && lack.wait != Wait::Never;
        let mut short = lacks.get(self.asked).into_iter().flatten().filter(|lack| !lack.soft).peekable();
        short.peek().is_some() && short.all(waits)
    }

    /// Where the wait for a limit ends, and whether all that the tenant asks of the pool waits for it too.
    pub(super) fn scope_of(&self, lack: &Lack) -> (Arc<str>, bool) {
        let scope = self.roster(self.asked).lineup.limit(lack.limit).scope.clone();
        // Names inside a scope are escaped: what has a part below the tenant is narrower than it.
        let of_tenant = scope.starts_with("tenant:") && !scope.contains('/');
        let whole_flow = of_tenant || &*scope == "global" || scope.starts_with("cost_center:");
        (scope, whole_flow)
    }
}

/// The reason and the wait of the shortage that keeps the request out longest.
pub(super) fn worst(shortages: &Shortages) -> (Reason, Wait) {
    let rank = |wait: Wait| match wait {
        Wait::Never => (2, Duration::ZERO),
        Wait::After(time) => (1, time),
        Wait::Unknown => (0, Duration::ZERO),
    };
    let worst = shortages.found().max_by_key(|(_, lack)| rank(lack.wait));
    let Some((bound, lack)) = worst else { return (Reason::ConcurrencyExceeded, Wait::Unknown) };
    match lack.wait {
        // A limit of zero lets nobody pass, and what a run has used never comes back: that is not the request's doing.
        Wait::Never if bound.rule.hard() > 0 && bound.column.window != Window::Run => {
            (Reason::RequestTooLarge, Wait::Never)
        }
        wait => (reason_of(bound.meter, &bound.column.window), wait),
    }
}

/// What an open lease's worst case is above its hold, per meter: the most over the limits that count it.
pub(super) fn overshoot(record: &Record) -> Amounts {
    let terms = &record.claim.terms;
    let mut most = Amounts::default();
    for (bound, hold) in terms.deal.lineup.limits().zip(record.claim.holds()) {
        let worst = match bound.meter {
            Meter::Output => terms.output_ceiling,
            Meter::Total => terms.input.reserve.saturating_add(terms.output_ceiling),
            Meter::Money => terms.worst_cost.to_usd().units(),
            _ => continue,
        };
        // What was held later, by extending, raised the worst case by as much.
        most.set(bound.meter, most.get(bound.meter).max(worst.saturating_sub(hold.amount)));
    }
    most
}

fn reason_of(meter: Meter, window: &Window) -> Reason {
    let by_calendar = matches!(window, Window::Fixed(calendar) if !matches!(calendar.unit(), Unit::Seconds(_)));
    let of_run = *window == Window::Run;
    match meter {
        Meter::Total if of_run => Reason::RunTokensExceeded,
        Meter::Money if of_run => Reason::RunBudgetExceeded,
        Meter::Steps => Reason::RunStepsExceeded,
        Meter::ToolCalls => Reason::RunToolCallsExceeded,
        Meter::RunTime => Reason::RunTimeExceeded,
        Meter::Requests if by_calendar => Reason::RequestQuotaExceeded,
        Meter::Requests => Reason::RequestRateExceeded,
        Meter::Input | Meter::Output | Meter::Total if by_calendar => Reason::TokenQuotaExceeded,
        Meter::Input => Reason::InputTokenRateExceeded,
        Meter::Output => Reason::OutputTokenRateExceeded,
        Meter::Total => Reason::TokenRateExceeded,
        Meter::Money => Reason::BudgetExceeded,
        Meter::InFlight => Reason::ConcurrencyExceeded,
        Meter::Streams => Reason::StreamsExceeded,
    }
}
