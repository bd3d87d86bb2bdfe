//! The model's forms: as what a request can be admitted, and which of them it is.
//!
//! Floor 5. Invariant: reads the policy's steps and the accounts, and changes nothing but the marks of periods.

use std::sync::Arc;

use super::limits::{Applied, applied, reason};
use super::words::Agreed;
use super::{Lack, Model};
use crate::gate::Degradation;
use crate::policy::plan::{DegradeStep, OnExceed, Plan, Priority};
use crate::policy::price::{Ask, Price};
use crate::principal::Principal;
use crate::reason::Reason;
use crate::refusal::Wait;
use crate::request::{Input, Request};
use crate::time::Now;
use crate::units::{Amounts, Meter, Pico};

/// A request in one form.
#[derive(Debug, Clone)]
pub(super) struct Form {
    pub(super) agreed: Agreed,
    /// The limit that its step names, where it came of one that does.
    pub(super) named: Option<Arc<str>>,
    pub(super) price: Option<Arc<Price>>,
    /// What is asked of a limit that holds the worst case.
    pub(super) worst: Amounts,
    /// What is asked of a limit that holds the learned length.
    pub(super) likely: Amounts,
    pub(super) limits: Vec<Applied>,
}

/// A step with its place in the policy, and why it is taken: the reason, and the limit or the pool.
type Taken<'a> = (usize, &'a DegradeStep, (Reason, Arc<str>));

/// What a request comes to.
pub(super) enum Chosen {
    /// It is admitted like this.
    Form(Box<Form>),
    /// These limits have no room for it as it was asked.
    Short(Vec<Lack>),
}

pub(super) fn input_of(request: &Request) -> u64 {
    let Input::Counted(input) = request.input else { panic!("the model counts nothing") };
    input
}

pub(super) fn worst_cost(price: &Option<Arc<Price>>, input: u64, output: u64) -> Pico {
    price.as_ref().map_or(Pico(0), |price| price.worst_case(&Ask { input, output, ..Ask::default() }))
}

/// The calls of tools of a step of a run.
pub(super) fn calls_of(request: &Request) -> u64 {
    request.run_id.as_ref().map_or(0, |_| request.tool_calls.unwrap_or(0))
}

fn is_for(step: &DegradeStep, request: &Request, priority: Priority) -> bool {
    step.when_model.as_ref().is_none_or(|model| *model == request.model)
        && step.when_priority.is_none_or(|wanted| wanted == priority)
}

/// Whether a step is one for a shortage of this limit.
fn is_called_by(step: &DegradeStep, applied: &Applied) -> bool {
    let limit = &applied.limit;
    let yields = limit.soft.is_some() || limit.on_exceed == OnExceed::Degrade;
    yields && step.when_soft.as_ref().is_none_or(|name| *name == limit.name)
}

impl Model {
    /// The form that a request is admitted in, by the steps of the policy; or what it lacks as it was asked.
    pub(super) fn choose(&mut self, who: &Principal, request: &Request, now: Now) -> Chosen {
        let plan = self.plan.clone();
        let asked = self.form(&plan, who, request, None).expect("its model is allowed");
        let pool = plan.models.get(&request.model).and_then(|model| model.pool.clone());
        let pressure = pool.as_ref().and_then(|pool| self.pressure.get(pool)).copied().unwrap_or(0);
        let by_lane = || Priority::of(&asked.agreed.lane).unwrap_or_default();
        let priority = plan.tenants[who.tenant()].priority.unwrap_or_else(by_lane);
        let steps = plan.degrade.iter().enumerate().filter(|(_, step)| {
            is_for(step, request, priority)
                && step.when_pool_above.is_none_or(|above| pool.is_some() && pressure > above)
        });
        let (at_once, called): (Vec<_>, Vec<_>) =
            steps.partition(|(_, step)| step.when_soft.is_none() && step.when_pool_above.is_some());

        for (at, step) in at_once {
            let why = (Reason::PoolPressure, pool.clone().unwrap_or_default());
            if let Some(form) = self.fitting(&plan, who, request, (at, step, why), now) {
                return Chosen::Form(form);
            }
        }
        // A soft amount counts where some step would follow from it.
        let minded = |applied: &Applied| called.iter().any(|(_, step)| is_called_by(step, applied));
        let mut passed = Vec::new();
        let lacks = self.lacks(&asked, now);
        for (place, applied) in asked.limits.iter().enumerate() {
            let Some(soft) = applied.limit.soft.filter(|_| minded(applied)) else { continue };
            let used = self.account(applied, now).used(&applied.limit, now);
            let amount = self.amount(&asked, applied, now);
            if used + amount > soft && !lacks.iter().any(|lack| lack.place == place) {
                passed.push(place);
            }
        }
        if lacks.iter().all(|lack| minded(&lack.applied)) {
            for (at, step) in called {
                let named = |place: usize| {
                    let name = &asked.limits[place].limit.name;
                    step.when_soft.as_ref().is_none_or(|named| named == name)
                };
                let hard = lacks.iter().map(|lack| lack.place).find(|place| named(*place));
                let Some(place) = hard.or_else(|| passed.iter().copied().find(|place| named(*place))) else { continue };
                let limit = &asked.limits[place].limit;
                let why = match hard {
                    Some(_) => reason(limit, Wait::Unknown),
                    None => Reason::SoftLimitPassed,
                };
                if let Some(form) = self.fitting(&plan, who, request, (at, step, (why, limit.name.clone())), now) {
                    return Chosen::Form(form);
                }
            }
        }
        if lacks.is_empty() { Chosen::Form(Box::new(asked)) } else { Chosen::Short(lacks) }
    }

    /// The form of a step, if it can be taken and all its limits have room.
    fn fitting(
        &mut self,
        plan: &Arc<Plan>,
        who: &Principal,
        request: &Request,
        step: Taken<'_>,
        now: Now,
    ) -> Option<Box<Form>> {
        let form = self.form(plan, who, request, Some(step))?;
        self.lacks(&form, now).is_empty().then(|| Box::new(form))
    }

    /// A request as it was asked or by a step; `None` where there is no such form of it.
    fn form(&mut self, plan: &Arc<Plan>, who: &Principal, request: &Request, step: Option<Taken<'_>>) -> Option<Form> {
        let tenant = &plan.tenants[who.tenant()];
        let own_lane = tenant.lane.as_ref().unwrap_or(&plan.default_lane);
        let (mut model, mut lane) = (request.model.clone(), request.lane.as_ref().unwrap_or(own_lane).clone());
        let mut output = request.max_output_tokens.expect("a stated output") * request.choices;
        let mut lesser = None;
        if let Some((at, step, (reason, limit))) = &step {
            let changes = step.model.as_ref().is_some_and(|other| *other != model)
                || step.lane.as_ref().is_some_and(|other| *other != lane)
                || step.max_output_tokens.is_some()
                || !step.disable_tools.is_empty();
            if !changes {
                return None;
            }
            model = step.model.clone().unwrap_or(model);
            lane = step.lane.clone().unwrap_or(lane);
            output = step.max_output_tokens.map_or(output, |most| output.min(most));
            lesser = Some(Degradation {
                step: *at as u16,
                reason: *reason,
                limit: limit.clone(),
                model: model.clone(),
                max_output_tokens: output,
                disable_tools: step.disable_tools.clone(),
                lane: lane.clone(),
            });
        }
        if !tenant.models.contains_key(&model) || self.frozen.contains(&model) {
            return None;
        }
        let (input, calls) = (input_of(request), calls_of(request));
        let price = plan.models[&model].price.clone();
        let speaker = (Arc::from(who.tenant()), model.clone());
        let short = self.lengths.get(&speaker).cloned().unwrap_or_default().likely(request.choices, output);
        let asked = |output| {
            let cost = worst_cost(&price, input, output);
            (amounts(input, output, request.stream, calls, cost), cost)
        };
        let ((worst, worst_cost), (likely, _)) = (asked(output), asked(short));
        let limits = applied(plan, who, &model, request.run_id.as_deref());
        let agreed = Agreed { model, lane, output, worst: worst_cost, lesser };
        let named = step.and_then(|(_, step, _)| step.when_soft.clone());
        Some(Form { agreed, named, price, worst, likely, limits })
    }
}

/// What a request asks of each meter.
pub(super) fn amounts(input: u64, output: u64, stream: bool, calls: u64, cost: Pico) -> Amounts {
    Amounts::default()
        .with(Meter::Steps, 1)
        .with(Meter::ToolCalls, calls)
        .with(Meter::RunTime, 1)
        .with(Meter::Requests, 1)
        .with(Meter::InFlight, 1)
        .with(Meter::Streams, stream as u64)
        .with(Meter::Input, input)
        .with(Meter::Output, output)
        .with(Meter::Total, input + output)
        .with(Meter::Money, cost.to_usd().units())
}
