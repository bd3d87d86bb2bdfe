//! Preparing: what a request would reserve, or why it can't be asked for at all.
//!
//! Floor 3. Invariant: pure but for remembering rosters; nothing is taken here, and the same request at the same moment
//! prepares the same reservation whatever the store.

use std::sync::Arc;

use smallvec::SmallVec;

use super::Shared;
use super::wiring::{NoRoster, NoRoute, Roster, Route, Wiring};
use crate::estimate::{InputEstimate, output_ceiling};
use crate::lease::{Draft, Lesser, Rare, Terms};
use crate::policy::plan::{DegradeStep, OnExceed, Priority, UnknownPrice};
use crate::policy::price;
use crate::principal::{MAX_NAME, Principal};
use crate::reason::Reason;
use crate::refusal::{Refusal, Wait};
use crate::request::{Input, Kind, MAX_REQUEST_ID, MAX_RUN_ID, Part, Request};
use crate::store::{Choice, Reservation, Store, When};
use crate::time::Now;
use crate::units::Pico;

/// The most answers that one request may ask for.
pub(super) const MAX_CHOICES: u64 = 128;

/// The longest name of a service tier, in bytes.
const MAX_TIER: usize = 64;

/// A reservation and what is needed to read its answer.
pub(super) struct Prepared {
    pub(super) reservation: Reservation,
    /// The route of each choice, in their order.
    pub(super) routes: SmallVec<[Arc<Route>; 1]>,
    /// The place of the request as asked among the choices.
    pub(super) asked: usize,
}

/// What a choice can be settled at.
struct Cost {
    worst: Pico,
    /// Another model's price, where its own is unknown.
    guess: Option<Arc<price::Price>>,
}

/// A refusal of a request before any limit was looked at.
pub(super) fn refusal(
    reason: Reason,
    who: Option<&Principal>,
    request: &Request,
    detail: Option<String>,
) -> Box<Refusal> {
    let cut = |text: &str| -> Arc<str> { text.chars().take(MAX_NAME).collect::<String>().into() };
    let tenant = who.map_or_else(|| "".into(), |who| cut(who.tenant()));
    let request_id = request.id.as_ref().map(|id| cut(id));
    Box::new(Refusal { request_id, detail, ..Refusal::new(reason, tenant, cut(&request.model)) })
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
    let preparing = Preparing { gate, wiring, who, request, now };
    let route = preparing.route(&request.model, request.lane.as_ref())?;
    let first = preparing.choice(&route, None)?;
    let mut choices = SmallVec::from_buf([first]);
    let mut routes = SmallVec::from_buf([route]);
    let asked = match wiring.plan.degrade.is_empty() {
        true => 0,
        false => preparing.degrade(&mut choices, &mut routes),
    };
    Ok(Prepared { reservation: Reservation { choices }, routes, asked })
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
    if let Some(run) = request.run_id.as_ref().filter(|run| run.is_empty() || run.len() > MAX_RUN_ID) {
        return Err(format!("run id: {} bytes; allowed: 1 to {MAX_RUN_ID}", run.len()));
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
struct Preparing<'a, S: Store> {
    gate: &'a Shared<S>,
    wiring: &'a Wiring,
    who: &'a Principal,
    request: &'a Request,
    now: Now,
}

impl<S: Store> Preparing<'_, S> {
    fn no(&self, reason: Reason, detail: Option<String>) -> Box<Refusal> {
        refusal(reason, Some(self.who), self.request, detail)
    }

    fn route(&self, model: &Arc<str>, lane: Option<&Arc<str>>) -> Result<Arc<Route>, Box<Refusal>> {
        let is_frozen = self.gate.is_anything_frozen();
        if is_frozen && let Some(freeze) = self.gate.freeze_on(self.who, model) {
            return Err(self.frozen(&freeze));
        }
        let run = self.request.run_id.as_deref();
        let route = self.wiring.route(self.gate, self.who, model, lane, run, self.now);
        if is_frozen
            && let Ok(route) = &route
            && let Some(upstream) = route.roster.model.as_ref().and_then(|model| model.upstream.as_ref())
            && let Some(freeze) = self.gate.freeze_on(self.who, upstream)
        {
            return Err(self.frozen(&freeze));
        }
        route.map_err(|why| match why {
            NoRoute::Roster(NoRoster::TenantUnknown) => self.no(Reason::TenantUnknown, None),
            NoRoute::Roster(NoRoster::ModelNotAllowed) => self.no(Reason::ModelNotAllowed, Some(format!("`{model}`"))),
            NoRoute::Roster(NoRoster::Key(reason)) => self.no(reason, None),
            NoRoute::Roster(NoRoster::AccountsFull) => {
                Box::new(Refusal { wait: Wait::Unknown, ..*self.no(Reason::AccountsExhausted, None) })
            }
            NoRoute::Lane => {
                let detail = format!("lane: `{}` is none of the policy's", cut(lane.map_or("", |lane| lane)));
                self.no(Reason::RequestInvalid, Some(detail))
            }
        })
    }

    fn frozen(&self, freeze: &super::Freeze) -> Box<Refusal> {
        self.no(Reason::Frozen, Some(format!("{}: {}", freeze.target.label(), freeze.reason)))
    }

    /// The input as the method guesses it and as corrected by what was learned, and the largest output over all choices,
    /// within every ceiling.
    fn size(&self, roster: &Roster, model: &str, cap: Option<u64>) -> Result<(u64, InputEstimate, u64), Box<Refusal>> {
        let tokenizer = roster.model.as_ref().map(|model| model.tokenizer).unwrap_or_default();
        // An alias is counted as the model behind it.
        let counted_as = roster.model.as_ref().and_then(|m| m.upstream.as_deref()).unwrap_or(model);
        let guess = if counted_as == &*self.request.model {
            self.gate.estimator.estimate(self.request, tokenizer)
        } else {
            let renamed = Request { model: counted_as.into(), ..self.request.clone() };
            self.gate.estimator.estimate(&renamed, tokenizer)
        };
        let input = roster.tally.calibrate(guess);
        // What was learned may make an input fit; it refuses none that the method alone would let pass.
        let least = input.expected.min(guess.expected);
        let smallest = |of: fn(&crate::policy::plan::Ceilings) -> Option<u64>| {
            let all = roster.ceilings.iter().chain([&roster.model_ceilings]);
            all.filter_map(of).min()
        };
        let too_long = |what: &str, found: u64, allowed: u64| {
            let detail = format!("{what}: {found} tokens; allowed: {allowed}");
            self.no(Reason::ContextLengthExceeded, Some(detail))
        };
        if let Some(most) = smallest(|c| c.input).filter(|most| least > *most) {
            return Err(too_long("input", least, most));
        }
        let context = smallest(|c| c.context);
        if let Some(most) = context.filter(|most| least > *most) {
            return Err(too_long("input", least, most));
        }
        if self.request.kind == Kind::Embeddings {
            return Ok((guess.expected, input, 0));
        }
        let rest = context.map(|most| most - least);
        let per_choice =
            [roster.model_ceilings.output, self.request.max_output_tokens.is_none().then_some(rest).flatten()];
        let total = [roster.ceilings[0].output, roster.ceilings[1].output, cap];
        let output = output_ceiling(self.request.max_output_tokens, self.request.choices, &per_choice, &total);
        if let (Some(rest), Some(most)) = (rest, context)
            && output.div_ceil(self.request.choices) > rest
        {
            let both = least.saturating_add(output.div_ceil(self.request.choices));
            return Err(too_long("input and output", both, most));
        }
        Ok((guess.expected, input, output))
    }

    fn choice(&self, route: &Route, step: Option<(&DegradeStep, Lesser)>) -> Result<Choice, Box<Refusal>> {
        let Route { roster, deal } = route;
        let request = self.request;
        let cap = step.as_ref().and_then(|(step, _)| step.max_output_tokens);
        let (input_guess, input, output) = self.size(roster, &deal.model, cap)?;
        let expected = learned(roster, request.choices, output);
        let text_only = !has_media(request);
        let ask = |output| price::Ask {
            input: input.reserve,
            output,
            service_tier: request.service_tier.as_deref(),
            text_only,
            web_searches: 0,
            audio_millis: 0,
        };
        let Cost { worst: worst_cost, guess: guessed_price } = self.cost(roster, &ask(output))?;
        let tool_calls = if request.run_id.is_some() { request.new_tool_calls() } else { 0 };
        // The cheaper figure is reckoned only where a limit holds money by the learned length.
        let expected_cost = match roster.money_by_length {
            true => self.cost(roster, &ask(expected))?.worst.to_usd(),
            false => worst_cost.to_usd(),
        };
        let rare = Rare {
            run_id: request.run_id.clone(),
            tool_calls,
            lesser: step.map(|(_, lesser)| lesser),
            guessed_price,
            service_tier: request.service_tier.clone(),
        };
        let terms = Terms {
            deal: deal.clone(),
            rare: rare.boxed(),
            request_id: request.id.clone(),
            input,
            input_guess,
            output_ceiling: output,
            output_expected: expected,
            worst_cost,
            expected_cost,
            max_output_tokens: request.max_output_tokens,
            choices: request.choices,
            stream: request.stream,
            text_only,
        };
        Ok(Choice { terms: Draft::new(terms), when: None })
    }

    fn cost(&self, roster: &Roster, ask: &price::Ask<'_>) -> Result<Cost, Box<Refusal>> {
        // A price without a side that the request uses is no price for it.
        let needs_output = self.request.kind != Kind::Embeddings;
        let whole = |price: &&Arc<price::Price>| {
            price.has(price::PriceClass::Input) && (!needs_output || price.has(price::PriceClass::Output))
        };
        let own = |worst| Cost { worst, guess: None };
        if let Some(price) = roster.price.as_ref().filter(whole) {
            return Ok(own(price.worst_case(ask)));
        }
        let guess = match self.wiring.plan.unknown_price {
            UnknownPrice::Deny if roster.has_money => None,
            UnknownPrice::Ceiling if roster.has_money => self.wiring.dearest(ask),
            _ => return Ok(own(Pico(0))),
        };
        // Where nothing has a price, there is none to guess either.
        let unknown = || self.no(Reason::PriceUnknown, Some(format!("model `{}`", cut(&self.request.model))));
        let guess = guess.ok_or_else(unknown)?;
        Ok(Cost { worst: guess.worst_case(ask), guess: Some(guess) })
    }

    /// Adds the lesser forms: those that pressure calls for before the request as asked, in the policy's order, and those
    /// that a limit can call for after it. Gives the place of the request as asked.
    fn degrade(&self, choices: &mut SmallVec<[Choice; 1]>, routes: &mut SmallVec<[Arc<Route>; 1]>) -> usize {
        let mut at_once = Vec::new();
        let mut after = Vec::new();
        for (at, step) in self.wiring.plan.degrade.iter().enumerate() {
            if !self.is_for(step, &choices[0], &routes[0].roster) {
                continue;
            }
            let by_pressure = step.is_by_pressure();
            let calls = if by_pressure { SmallVec::new() } else { call_for(step, &mut choices[0], &routes[0].roster) };
            if !by_pressure && calls.is_empty() {
                continue;
            }
            let asked_in = routes[0].roster.model.as_ref().and_then(|model| model.pool.as_ref());
            let Some((choice, route)) = self.lesser(at as u16, step, &choices[0].terms, asked_in) else { continue };
            match by_pressure {
                true => at_once.push((choice, route)),
                false => after.push((calls, choice, route)),
            }
        }
        // A soft amount never refuses: where no lesser form fits, the request goes as asked.
        let soft = choices[0].when.as_ref().filter(|when| !when.within_soft.is_empty());
        let last = soft.map(|when| {
            let when = When { within_soft: SmallVec::new(), ..(**when).clone() };
            (Choice { terms: choices[0].terms.clone(), when: Some(Box::new(when)) }, routes[0].clone())
        });
        let asked = at_once.len();
        for (place, (choice, route)) in at_once.into_iter().enumerate() {
            choices.insert(place, choice);
            routes.insert(place, route);
        }
        let after = after.into_iter().map(|(calls, choice, route)| {
            let when = When { after: Some((asked as u16, calls)), ..When::default() };
            (Choice { when: Some(Box::new(when)), ..choice }, route)
        });
        for (choice, route) in after.chain(last) {
            choices.push(choice);
            routes.push(route);
        }
        asked
    }

    /// Whether a step is for this request, and its pool as full as the step says.
    fn is_for(&self, step: &DegradeStep, asked: &Choice, roster: &Roster) -> bool {
        let priority = || roster.tenant.priority.or_else(|| Priority::of(&asked.terms.deal.lane)).unwrap_or_default();
        let pressure = || self.wiring.pools.percent(roster.model.as_ref()?.pool.as_ref()?);
        step.when_model.as_ref().is_none_or(|model| *model == self.request.model)
            && step.when_priority.is_none_or(|wanted| wanted == priority())
            && step.when_pool_above.is_none_or(|above| pressure().is_some_and(|percent| percent > above))
    }

    /// The request in a step's form. `None` where it can't be taken (its model is not allowed, its context too short) or
    /// names nothing but the model or the lane that the request has already.
    fn lesser(
        &self,
        at: u16,
        step: &DegradeStep,
        asked: &Terms,
        asked_in: Option<&Arc<str>>,
    ) -> Option<(Choice, Arc<Route>)> {
        let model = step.model.as_ref().unwrap_or(&self.request.model);
        let lane = step.lane.as_ref().unwrap_or(&asked.deal.lane);
        let same = *model == asked.deal.model && *lane == asked.deal.lane;
        if same && step.disable_tools.is_empty() && step.max_output_tokens.is_none() {
            return None;
        }
        let route = self.route(model, Some(lane)).ok()?;
        // A lesser form that would go to another pool, and find that full, is none.
        let pool = |name: Option<&Arc<str>>| self.wiring.pools.get(name);
        let to = route.roster.model.as_ref().and_then(|model| model.pool.as_ref());
        let (own, other) = (pool(asked_in), pool(to));
        if !Arc::ptr_eq(own, other) && other.is_full() {
            return None;
        }
        let by_pressure = step.is_by_pressure();
        let lesser = Lesser {
            step: at,
            disable_tools: step.disable_tools.clone(),
            by_pressure,
            named: if by_pressure { asked_in.cloned() } else { step.when_soft.clone() },
            model: asked.deal.model.clone(),
            worst_cost: asked.worst_cost,
        };
        let choice = self.choice(&route, Some((step, lesser))).ok()?;
        Some((Choice { when: Some(Box::default()), ..choice }, route))
    }
}

/// The limits that can call for a step, which are marked on the request as asked.
fn call_for(step: &DegradeStep, asked: &mut Choice, roster: &Roster) -> SmallVec<[u16; 2]> {
    let mut calls = SmallVec::new();
    for (place, (bound, term)) in roster.lineup.limits().zip(&roster.terms).enumerate() {
        let named = step.when_soft.as_ref().is_none_or(|name| *name == bound.limit);
        let degrades = term.on_exceed == OnExceed::Degrade;
        if !named || !(term.soft || degrades) {
            continue;
        }
        let place = place as u16;
        calls.push(place);
        let when =
            asked.when.get_or_insert_with(|| Box::new(When { yields: Some(SmallVec::new()), ..When::default() }));
        if term.soft && !when.within_soft.contains(&place) {
            when.within_soft.push(place);
        }
        // Past the hard amount the soft one is passed too, so a limit with either calls for its steps there.
        if let Some(yields) = when.yields.as_mut().filter(|yields| !yields.contains(&place)) {
            yields.push(place);
        }
    }
    calls
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
