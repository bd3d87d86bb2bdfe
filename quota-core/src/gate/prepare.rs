//! Preparing: what a request would reserve, or why it can't be asked for at all.
//!
//! Floor 3. Invariant: pure but for remembering rosters; nothing is taken here, and the same request at the same moment
//! prepares the same reservation whatever the store.

use std::sync::Arc;

use smallvec::SmallVec;

use super::Shared;
use super::wiring::{NoRoster, Roster, Wiring};
use crate::estimate::{InputEstimate, output_ceiling};
use crate::lease::Terms;
use crate::policy::plan::{DegradeStep, Hold, OnExceed, UnknownPrice};
use crate::policy::price;
use crate::principal::{MAX_NAME, Principal};
use crate::reason::Reason;
use crate::refusal::{Fits, Refusal, Wait};
use crate::request::{Input, Kind, MAX_REQUEST_ID, Part, Request};
use crate::store::{Ask, Choice, Reservation, Store};
use crate::time::Now;
use crate::units::{Meter, Pico};

/// The most answers that one request may ask for.
pub(super) const MAX_CHOICES: u64 = 128;

/// The longest name of a service tier, in bytes.
const MAX_TIER: usize = 64;

/// A reservation and what is needed to read its answer.
pub(super) struct Prepared {
    pub(super) reservation: Reservation,
    /// The roster of each choice, in their order.
    pub(super) rosters: SmallVec<[Arc<Roster>; 1]>,
}

/// A refusal of a request before any limit was looked at.
pub(super) fn refusal(
    reason: Reason,
    who: Option<&Principal>,
    request: &Request,
    detail: Option<String>,
) -> Box<Refusal> {
    let cut = |text: &str| -> Arc<str> { text.chars().take(MAX_NAME).collect::<String>().into() };
    Box::new(Refusal {
        reason,
        tenant: who.map_or_else(|| "".into(), |who| cut(who.tenant())),
        model: cut(&request.model),
        request_id: request.id.as_ref().map(|id| cut(id)),
        wait: Wait::Never,
        shortages: Vec::new(),
        fits: Fits::default(),
        detail,
        receipt: None,
    })
}

pub(super) fn prepare<S: Store>(
    gate: &Shared<S>,
    wiring: &Wiring,
    who: &Principal,
    request: &Request,
    now: Now,
) -> Result<Prepared, Box<Refusal>> {
    let no = |reason, detail| refusal(reason, Some(who), request, detail);
    check(who, request).map_err(|detail| no(Reason::RequestInvalid, Some(detail)))?;
    let who = match &request.user {
        Some(user) if user.len() > MAX_NAME => {
            return Err(no(Reason::RequestInvalid, Some(format!("user: {} bytes; allowed: {MAX_NAME}", user.len()))));
        }
        Some(user) => &who.on_behalf_of(user),
        None => who,
    };
    let draft = Draft { gate, wiring, who, request, now };
    let roster = draft.roster(&request.model)?;
    let lane = draft.lane(&roster)?;
    let first = draft.choice(&roster, &request.model, &lane, None)?;
    let mut choices = SmallVec::from_buf([first]);
    let mut rosters = SmallVec::from_buf([roster]);
    if !wiring.plan.degrade.is_empty() {
        draft.degrade(&mut choices, &mut rosters);
    }
    Ok(Prepared { reservation: Reservation { choices }, rosters })
}

/// What is wrong with a request before its policy is looked at.
fn check(who: &Principal, request: &Request) -> Result<(), String> {
    if !who.is_well_formed() {
        return Err(format!("principal: a name is empty or longer than {MAX_NAME} bytes"));
    }
    if request.model.is_empty() || request.model.len() > MAX_NAME {
        return Err(format!("model: {} bytes; allowed: 1 to {MAX_NAME}", request.model.len()));
    }
    if let Some(id) = request.id.as_ref().filter(|id| id.is_empty() || id.len() > MAX_REQUEST_ID) {
        return Err(format!("request id: {} bytes; allowed: 1 to {MAX_REQUEST_ID}", id.len()));
    }
    if let Some(tier) = request.service_tier.as_ref().filter(|tier| tier.len() > MAX_TIER) {
        return Err(format!("service tier: {} bytes; allowed: at most {MAX_TIER}", tier.len()));
    }
    if request.choices == 0 || request.choices > MAX_CHOICES {
        return Err(format!("choices: {}; allowed: 1 to {MAX_CHOICES}", request.choices));
    }
    Ok(())
}

/// One request on its way to a reservation.
struct Draft<'a, S: Store> {
    gate: &'a Shared<S>,
    wiring: &'a Wiring,
    who: &'a Principal,
    request: &'a Request,
    now: Now,
}

impl<S: Store> Draft<'_, S> {
    fn no(&self, reason: Reason, detail: Option<String>) -> Box<Refusal> {
        refusal(reason, Some(self.who), self.request, detail)
    }

    fn roster(&self, model: &str) -> Result<Arc<Roster>, Box<Refusal>> {
        if let Some(freeze) = self.gate.freeze_on(self.who, model) {
            return Err(self.frozen(&freeze));
        }
        let Shared { store, tallies, keyring, .. } = self.gate;
        let roster = self.wiring.roster(store, tallies, keyring, self.who, model, self.now);
        let upstream = roster.as_ref().ok().and_then(|roster| roster.model.as_ref()?.upstream.as_ref());
        if let Some(freeze) = upstream.and_then(|upstream| self.gate.freeze_on(self.who, upstream)) {
            return Err(self.frozen(&freeze));
        }
        roster.map_err(|why| match why {
            NoRoster::TenantUnknown => self.no(Reason::TenantUnknown, None),
            NoRoster::ModelNotAllowed => self.no(Reason::ModelNotAllowed, Some(format!("`{model}`"))),
            NoRoster::Key(reason) => self.no(reason, None),
            NoRoster::AccountsFull => {
                Box::new(Refusal { wait: Wait::Unknown, ..*self.no(Reason::AccountsExhausted, None) })
            }
        })
    }

    fn frozen(&self, freeze: &super::Freeze) -> Box<Refusal> {
        self.no(Reason::Frozen, Some(format!("{}: {}", freeze.target.label(), freeze.reason)))
    }

    fn lane(&self, roster: &Roster) -> Result<Arc<str>, Box<Refusal>> {
        let plan = &self.wiring.plan;
        if let Some(asked) = &self.request.lane {
            return match plan.lanes.get_key_value(asked) {
                Some((name, _)) => Ok(name.clone()),
                None if plan.lanes.is_empty() && *asked == plan.default_lane => Ok(plan.default_lane.clone()),
                None => {
                    let detail = format!("lane: `{}` is none of the policy's", cut(asked));
                    Err(self.no(Reason::RequestInvalid, Some(detail)))
                }
            };
        }
        let own = self.who.lane().and_then(|lane| plan.lanes.get_key_value(lane)).map(|(name, _)| name);
        Ok(own.or(roster.tenant.lane.as_ref()).unwrap_or(&plan.default_lane).clone())
    }

    /// Input, and the largest output over all choices, within every ceiling.
    fn size(&self, roster: &Roster, model: &str, cap: Option<u64>) -> Result<(InputEstimate, u64), Box<Refusal>> {
        let tokenizer = roster.model.as_ref().map(|model| model.tokenizer).unwrap_or_default();
        // An alias is counted as the model behind it.
        let counted_as = roster.model.as_ref().and_then(|m| m.upstream.as_deref()).unwrap_or(model);
        let input = if counted_as == &*self.request.model {
            self.gate.estimator.estimate(self.request, tokenizer)
        } else {
            let renamed = Request { model: counted_as.into(), ..self.request.clone() };
            self.gate.estimator.estimate(&renamed, tokenizer)
        };
        let smallest = |of: fn(&crate::policy::plan::Ceilings) -> Option<u64>| {
            let all = roster.ceilings.iter().chain([&roster.model_ceilings]);
            all.filter_map(of).min()
        };
        let too_long = |what: &str, found: u64, allowed: u64| {
            let detail = format!("{what}: {found} tokens; allowed: {allowed}");
            self.no(Reason::ContextLengthExceeded, Some(detail))
        };
        if let Some(most) = smallest(|c| c.input).filter(|most| input.expected > *most) {
            return Err(too_long("input", input.expected, most));
        }
        let context = smallest(|c| c.context);
        if let Some(most) = context.filter(|most| input.expected > *most) {
            return Err(too_long("input", input.expected, most));
        }
        if self.request.kind == Kind::Embeddings {
            return Ok((input, 0));
        }
        let rest = context.map(|most| most - input.expected);
        let per_choice =
            [roster.model_ceilings.output, self.request.max_output_tokens.is_none().then_some(rest).flatten()];
        let total = [roster.ceilings[0].output, roster.ceilings[1].output, cap];
        let output = output_ceiling(self.request.max_output_tokens, self.request.choices, &per_choice, &total);
        if let (Some(rest), Some(most)) = (rest, context)
            && output.div_ceil(self.request.choices) > rest
        {
            let both = input.expected.saturating_add(output.div_ceil(self.request.choices));
            return Err(too_long("input and output", both, most));
        }
        Ok((input, output))
    }

    fn choice(
        &self,
        roster: &Arc<Roster>,
        model: &Arc<str>,
        lane: &Arc<str>,
        step: Option<(u16, &DegradeStep)>,
    ) -> Result<Choice, Box<Refusal>> {
        let request = self.request;
        let (input, output) = self.size(roster, model, step.and_then(|(_, step)| step.max_output_tokens))?;
        let expected = learned(roster, request.choices, output);
        let ask = |output| price::Ask {
            input: input.reserve,
            output,
            service_tier: request.service_tier.as_deref(),
            text_only: !has_media(request),
            web_searches: 0,
            audio_millis: 0,
        };
        let cost = |output| self.cost(roster, &ask(output));
        let worst_cost = cost(output)?;
        let plan = &self.wiring.plan;
        let terms = Terms {
            request_id: request.id.clone(),
            principal: self.who.clone(),
            model: model.clone(),
            group: roster.group.clone(),
            lane: lane.clone(),
            input,
            output_ceiling: output,
            output_expected: expected,
            worst_cost,
            price: roster.price.clone(),
            stream: request.stream,
            choices: request.choices,
            service_tier: request.service_tier.clone(),
            degraded: step.map(|(at, _)| at),
            ttl: plan.lease_ttl,
            unresolved_ttl: plan.unresolved_ttl,
            lineup: roster.lineup.clone(),
        };
        // The cheaper figure is reckoned only where a limit holds money by the learned length.
        let cheaper = |bound: &crate::account::Bound, hold| bound.meter == Meter::Money && hold != Hold::WorstCase;
        let limits = roster.lineup.limits().iter().zip(&roster.terms);
        let expected_cost = match limits.clone().any(|(bound, term)| cheaper(bound, term.hold)) {
            true => cost(expected)?,
            false => worst_cost,
        };
        let asks = limits.map(|(bound, term)| {
            let amount = |output, cost: Pico| match bound.meter {
                Meter::Requests | Meter::InFlight => 1,
                Meter::Streams => request.stream as u64,
                Meter::Input => input.reserve,
                Meter::Output => output,
                Meter::Total => input.reserve.saturating_add(output),
                Meter::Money => cost.to_usd().units(),
            };
            let (worst, likely) = (amount(output, worst_cost), amount(expected, expected_cost));
            let (amount, near) = match term.hold {
                Hold::WorstCase => (worst, worst),
                Hold::P95 => (likely, likely),
                Hold::Adaptive => (likely, worst),
            };
            Ask { amount, near, period: self.wiring.period(term, self.now) }
        });
        Ok(Choice { terms, asks: asks.collect(), within_soft: SmallVec::new(), yields: Some(SmallVec::new()) })
    }

    fn cost(&self, roster: &Roster, ask: &price::Ask<'_>) -> Result<Pico, Box<Refusal>> {
        // A price without a side that the request uses is no price for it.
        let needs_output = self.request.kind != Kind::Embeddings;
        let whole = |price: &&Arc<price::Price>| {
            price.has(price::PriceClass::Input) && (!needs_output || price.has(price::PriceClass::Output))
        };
        match (roster.price.as_ref().filter(whole), &self.wiring.plan.unknown_price) {
            (Some(price), _) => Ok(price.worst_case(ask)),
            (None, _) if !roster.has_money => Ok(Pico(0)),
            (None, UnknownPrice::Deny) => {
                Err(self.no(Reason::PriceUnknown, Some(format!("model `{}`", cut(&self.request.model)))))
            }
            (None, UnknownPrice::Ceiling) => Ok(self.wiring.dearest(ask)),
            (None, UnknownPrice::Shadow) => Ok(Pico(0)),
        }
    }

    /// Adds the degraded forms, where a limit of the first choice can call for one.
    fn degrade(&self, choices: &mut SmallVec<[Choice; 1]>, rosters: &mut SmallVec<[Arc<Roster>; 1]>) {
        let plan = &self.wiring.plan;
        let roster = rosters[0].clone();
        let mut steps: SmallVec<[(u16, &DegradeStep); 4]> = SmallVec::new();
        for (at, step) in plan.degrade.iter().enumerate() {
            if step.when_model.as_ref().is_some_and(|model| *model != self.request.model) {
                continue;
            }
            let calls = roster.lineup.limits().iter().zip(&roster.terms).enumerate().filter(|(_, (bound, term))| {
                let named = step.when_soft.as_ref().is_none_or(|name| *name == bound.limit);
                named && (term.soft || term.on_exceed == OnExceed::Degrade)
            });
            let mut any = false;
            for (place, (_, term)) in calls {
                any = true;
                let first = &mut choices[0];
                if term.soft && !first.within_soft.contains(&(place as u16)) {
                    first.within_soft.push(place as u16);
                }
                if term.on_exceed == OnExceed::Degrade
                    && let Some(yields) = &mut first.yields
                    && !yields.contains(&(place as u16))
                {
                    yields.push(place as u16);
                }
            }
            if any {
                steps.push((at as u16, step));
            }
        }
        for (at, step) in &steps {
            let model = step.model.clone().unwrap_or_else(|| self.request.model.clone());
            let lane = step.lane.clone().unwrap_or_else(|| choices[0].terms.lane.clone());
            // A step that this request can't take (its model is not allowed, its context too short) is passed over.
            let Ok(roster) = self.roster(&model) else { continue };
            let Ok(choice) = self.choice(&roster, &model, &lane, Some((*at, step))) else { continue };
            choices.push(Choice { yields: None, ..choice });
            rosters.push(roster);
        }
        if choices[0].within_soft.is_empty() {
            return;
        }
        // A soft amount never refuses: where no lesser form fits, the request goes as asked.
        let last = Choice { within_soft: SmallVec::new(), ..choices[0].clone() };
        choices.push(last);
        rosters.push(rosters[0].clone());
    }
}

/// What is held on limits that hold the learned length of the output.
fn learned(roster: &Roster, choices: u64, ceiling: u64) -> u64 {
    let one = roster.tally.p95().unwrap_or(crate::estimate::DEFAULT_OUTPUT);
    one.saturating_mul(choices).min(ceiling)
}

pub(super) fn has_media(request: &Request) -> bool {
    match &request.input {
        Input::Counted(_) => true,
        Input::Parts(parts) => {
            parts.iter().any(|part| matches!(part, Part::Image(_) | Part::Audio { .. } | Part::Document { .. }))
        }
    }
}

fn cut(text: &str) -> String {
    text.chars().take(64).collect()
}
