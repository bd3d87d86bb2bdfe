//! The ledger: the books kept once more, from what was asked and reported, beside the gate's own.
//!
//! Floor 5. Invariant: an account moves only by an entry of the journal, or by what is known of an answer that was lost;
//! each is checked against the room there was, against what was asked, and against how the lease stood.

mod account;
mod names;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;

use self::account::{Account, Mark, Rule};
pub(super) use self::names::Names;
use self::names::Places;
use crate::journal::{Entry, Event};
use crate::lease::{Cause, LeaseId, Receipt, Record, State};
use crate::policy::Policy;
use crate::refusal::{Balance, Refusal, Wait};
use crate::time::Now;
use crate::units::{Amounts, Meter, Pico};
use crate::usage::Usage;

/// What a check found to be wrong, if anything.
pub(super) type Check<T = ()> = Result<T, String>;

/// A lease's place in the ledger.
pub(super) type Place = usize;

/// What was done to the gate; an entry must be the consequence of it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Act {
    /// Nothing: time alone has passed.
    Wait,
    /// A request was made.
    Ask(Asked),
    /// A lease was to end.
    End(Place, Ending),
    /// More output of a lease was to be covered.
    Cover(Place),
}

/// A request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked {
    pub(super) tenant: usize,
    pub(super) input: u64,
    pub(super) output: u64,
    pub(super) stream: bool,
}

/// How a lease was to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    Settle(Used),
    Cancel,
    Abandon,
}

/// What a request used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Used {
    requests: u64,
    input: u64,
    output: u64,
}

impl Used {
    pub(super) const NOTHING: Used = Used { requests: 0, input: 0, output: 0 };

    pub(super) fn tokens(input: u64, output: u64) -> Used {
        Used { requests: 1, input, output }
    }

    pub(super) fn usage(&self) -> Usage {
        if self.requests == 0 { Usage::not_run() } else { Usage::tokens(self.input, self.output) }
    }

    fn is(&self, usage: &Usage) -> bool {
        (self.requests, self.input, self.output) == (usage.requests, usage.input_total(), usage.output_total())
    }

    fn amounts(&self, price: Price) -> Amounts {
        Amounts::default()
            .with(Meter::Requests, self.requests)
            .with(Meter::Steps, self.requests)
            .with(Meter::Input, self.input)
            .with(Meter::Output, self.output)
            .with(Meter::Total, self.input + self.output)
            .with(Meter::Money, price.units(self))
    }
}

/// What a token costs, in and out, in 1e-12 USD.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Price {
    pub(super) input: u64,
    pub(super) output: u64,
}

impl Price {
    fn cost(&self, used: &Used) -> Pico {
        Pico(u128::from(used.input * self.input + used.output * self.output))
    }

    /// In units of 1e-8 USD, rounded up once.
    fn units(&self, used: &Used) -> u64 {
        self.cost(used).0.div_ceil(10_000) as u64
    }
}

/// What an ending has to come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Fresh,
    Repeat,
    Conflict,
    CancelAfterSent,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Held,
    Unresolved,
    /// As used, or with the reservation taken for it.
    Settled(Option<Used>),
    Cancelled,
}

#[derive(Debug)]
struct Held {
    account: u32,
    meter: Meter,
    /// What was taken, and what is left of it.
    taken: u64,
    now: u64,
    mark: Mark,
}

#[derive(Debug)]
struct Lease {
    tenant: usize,
    /// The policy that it was admitted under.
    revision: usize,
    price: Price,
    holds: Vec<Held>,
    /// How many of the holds were taken at admission.
    first: usize,
    standing: Standing,
    sent: bool,
    late: bool,
    deadline: u64,
    since: u64,
    /// Whether its admission, and its latest ending, are still to come in the journal: the answer was lost.
    admission_unseen: bool,
    ending_unseen: bool,
    /// Which of all that have ended it was.
    ending: usize,
}

impl Lease {
    fn is_open(&self) -> bool {
        matches!(self.standing, Standing::Held | Standing::Unresolved)
    }

    /// The most that it holds or held on a limit of each meter, of those that stay charged.
    fn reserved(&self) -> Amounts {
        let mut amounts = Amounts::default();
        for hold in self.holds.iter().filter(|hold| !hold.meter.is_held()) {
            let same = self.holds.iter().filter(|other| other.account == hold.account);
            let sum = same.map(|other| other.taken).sum::<u64>();
            amounts.set(hold.meter, amounts.get(hold.meter).max(sum));
        }
        amounts
    }
}

/// What a call of the gate wrote into the journal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Written {
    pub(super) admitted: u64,
    pub(super) extended: u64,
    pub(super) ended: u64,
    pub(super) expired: u64,
    pub(super) refused: u64,
    pub(super) queued: u64,
}

/// How long leases live, and how many there may be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terms {
    pub(super) life: u64,
    pub(super) age: u64,
    pub(super) open: usize,
    pub(super) unresolved: u64,
}

/// The books.
pub(super) struct Ledger {
    names: Names,
    accounts: Vec<Account>,
    leases: Vec<Lease>,
    by_id: HashMap<LeaseId, Place, ahash::RandomState>,
    /// When a lease may be due to be swept.
    due: BinaryHeap<Reverse<(u64, Place)>>,
    revision: usize,
    prices: Vec<(Arc<str>, Price)>,
    terms: Terms,
    open: usize,
    unresolved: Vec<u64>,
    /// How many have ended, and how many endings are still to come in the journal.
    endings: usize,
    unseen: usize,
}

impl Ledger {
    /// Books of these policies, of which the first is in force. They differ in amounts only.
    pub(super) fn new(policies: &[Policy], users: &[&str], prices: Vec<(Arc<str>, Price)>, terms: Terms) -> Ledger {
        let names = Names::of(policies, users);
        let accounts = names.new_accounts();
        Ledger {
            accounts,
            names,
            leases: Vec::new(),
            by_id: HashMap::default(),
            due: BinaryHeap::new(),
            revision: 0,
            prices,
            terms,
            open: 0,
            endings: 0,
            unseen: 0,
            unresolved: vec![0; policies[0].plan().tenants.len()],
        }
    }

    pub(super) fn reload(&mut self, revision: usize) {
        self.revision = revision;
    }

    /// Leases that are open.
    pub(super) fn open(&self) -> usize {
        self.open
    }

    /// Leases that were ever opened.
    pub(super) fn opened(&self) -> usize {
        self.leases.len()
    }

    pub(super) fn place(&self, id: LeaseId) -> Option<Place> {
        self.by_id.get(&id).copied()
    }

    pub(super) fn is_held(&self, place: Place) -> bool {
        self.leases[place].standing == Standing::Held
    }

    /// Whether the store may have forgotten it: it has ended, and half as many ended after it as may be open.
    pub(super) fn may_be_forgotten(&self, place: Place) -> bool {
        let lease = &self.leases[place];
        !lease.is_open() && self.endings - lease.ending >= self.terms.open.div_ceil(2)
    }

    /// Whether an ending is still to come in the journal.
    pub(super) fn has_unseen(&self) -> bool {
        self.unseen > 0
    }

    /// Notes that it was sent; whether that is right, since it is held.
    pub(super) fn sent(&mut self, place: Place) -> bool {
        let lease = &mut self.leases[place];
        lease.sent |= lease.standing == Standing::Held;
        lease.standing == Standing::Held
    }

    /// Notes a heartbeat; whether it is held.
    pub(super) fn renewed(&mut self, place: Place, now: Now) -> bool {
        let lease = &mut self.leases[place];
        lease.deadline = lease.deadline.max(now.mono + self.terms.life);
        lease.standing == Standing::Held
    }

    /// Takes in what a call of the gate wrote.
    pub(super) fn read(&mut self, entries: &[Entry], act: Act, now: Now) -> Check<Written> {
        let mut written = Written::default();
        for entry in entries {
            match &entry.event {
                Event::Admitted(record) => {
                    written.admitted += 1;
                    self.admitted(record, act, now)?;
                }
                Event::Extended(record) => {
                    written.extended += 1;
                    self.extended(record, act, now)?;
                }
                Event::Ended(record) => {
                    written.ended += 1;
                    written.expired += u64::from(self.ended(record, act, now)?);
                }
                Event::Refused(_) => written.refused += 1,
                Event::Queued(..) => written.queued += 1,
                Event::Loaded(_) => {}
                other => return Err(format!("an entry that nothing called for: {}", other.name())),
            }
        }
        Ok(written)
    }

    fn admitted(&mut self, record: &Record, act: Act, now: Now) -> Check {
        if let Some(place) = self.place(record.claim.id) {
            let unseen = std::mem::take(&mut self.leases[place].admission_unseen);
            return if unseen { Ok(()) } else { Err(format!("lease {place} was admitted twice")) };
        }
        let Act::Ask(asked) = act else { return Err("a lease that nobody asked for".into()) };
        self.opens(record, asked, now).map(drop)
    }

    /// A lease whose admission nobody was told of.
    pub(super) fn admitted_unseen(&mut self, record: &Record, asked: Asked, now: Now) -> Check<Place> {
        let place = self.opens(record, asked, now)?;
        self.leases[place].admission_unseen = true;
        Ok(place)
    }

    fn opens(&mut self, record: &Record, asked: Asked, now: Now) -> Check<Place> {
        let terms = &record.claim.terms;
        let model = self.prices.iter().find(|(name, _)| *name == terms.deal.model);
        let (_, price) = model.ok_or_else(|| format!("model {} was not asked for", terms.deal.model))?;
        let all = Used::tokens(asked.input, asked.output).amounts(*price);
        let all = all.with(Meter::InFlight, 1).with(Meter::Streams, u64::from(asked.stream));
        let (price, revision, place) = (*price, self.revision, self.leases.len());
        let places: Places = self.names.places(&terms.deal.lineup);
        let mut holds: Vec<Held> = Vec::with_capacity(places.len());
        for (nth, (hold, bound)) in record.claim.holds().zip(terms.deal.lineup.limits()).enumerate() {
            let (meter, account) = (bound.meter, places[nth]);
            if hold.limit as usize != nth {
                return Err(format!("lease {place} holds nothing on {}", self.names.show(account)));
            }
            let what = || format!("lease {place} on {}", self.names.show(account));
            let (rule, exact) = self.names.rule(account, revision);
            let (amount, most) = (hold.amount, all.get(meter));
            if if exact { amount != most } else { amount > most } {
                return Err(format!("{}: {amount} held of {most}", what()));
            }
            let before = &mut self.accounts[account as usize];
            if amount > 0 && !before.has_room(rule, amount, now) {
                let used = before.used(rule, now);
                return Err(format!("{}: admitted past the hard amount, {amount} on {used}", what()));
            }
            let mark = before.take(rule, amount, now);
            let used = before.used(rule, now);
            let of_gate = bound.used(hold.word, record.claim.at);
            if used != of_gate {
                return Err(format!("{}: {} in use by the gate, {used} by the ledger", what(), of_gate));
            }
            holds.push(Held { account, meter, taken: amount, now: amount, mark });
        }
        let first = holds.len();
        if let Some(account) = places.get(first) {
            return Err(format!("lease {place} holds nothing on {}", self.names.show(*account)));
        }
        if record.claim.holds().len() > first {
            return Err(format!("lease {place} holds on more limits than apply to it"));
        }
        let deadline = now.mono + self.terms.life;
        self.leases.push(Lease {
            tenant: asked.tenant,
            revision,
            price,
            holds,
            first,
            standing: Standing::Held,
            sent: false,
            late: false,
            deadline,
            since: 0,
            admission_unseen: false,
            ending_unseen: false,
            ending: 0,
        });
        self.by_id.insert(record.claim.id, place);
        self.due.push(Reverse((deadline, place)));
        self.open += 1;
        Ok(place)
    }

    fn extended(&mut self, record: &Record, act: Act, now: Now) -> Check {
        let place = self.place(record.claim.id).ok_or("an unknown lease was extended")?;
        if !matches!(act, Act::Cover(of) if of == place) || !self.is_held(place) {
            return Err(format!("lease {place} was extended for nothing"));
        }
        let lease = &mut self.leases[place];
        let places: Places = self.names.places(&record.claim.terms.deal.lineup);
        for (nth, hold) in record.more().iter().enumerate() {
            let known = lease.holds.get(lease.first + nth).map_or(0, |hold| hold.taken);
            let more = hold.amount.checked_sub(known).ok_or("an extension took back")?;
            if more == 0 {
                continue;
            }
            let account = places[hold.limit as usize];
            let (rule, _) = self.names.rule(account, lease.revision);
            let before = &mut self.accounts[account as usize];
            if !before.has_room(rule, more, now) {
                let name = self.names.show(account);
                return Err(format!("lease {place} on {name}: extended past the hard amount by {more}"));
            }
            let mark = before.take(rule, more, now);
            match lease.holds.get_mut(lease.first + nth) {
                Some(held) if held.mark.joins(&mark) => {
                    (held.taken, held.now, held.mark) = (held.taken + more, held.now + more, mark);
                }
                Some(_) => return Err(format!("lease {place} keeps two periods as one")),
                None => {
                    let meter = record.limit(hold).meter;
                    lease.holds.push(Held { account, meter, taken: more, now: more, mark });
                }
            }
        }
        Ok(())
    }

    /// Whether it was time alone that ended it.
    fn ended(&mut self, record: &Record, act: Act, now: Now) -> Check<bool> {
        let place = self.place(record.claim.id).ok_or("an unknown lease ended")?;
        let lease = &self.leases[place];
        let asked = match act {
            Act::End(of, ending) if of == place => Some(ending),
            // Nobody was told, and the store forgets it now.
            _ if lease.ending_unseen => match lease.standing {
                Standing::Settled(Some(used)) => Some(Ending::Settle(used)),
                Standing::Cancelled => Some(Ending::Cancel),
                Standing::Settled(None) | Standing::Unresolved => Some(Ending::Abandon),
                Standing::Held => None,
            },
            _ => None,
        };
        let crowded = self.unresolved[lease.tenant] >= self.terms.unresolved;
        let expires = lease.standing == Standing::Held && lease.deadline <= now.mono;
        let ages = lease.standing == Standing::Unresolved && lease.since + self.terms.age <= now.mono;
        let abandoned = asked == Some(Ending::Abandon) && lease.standing == Standing::Held;
        let (next, by_time) = match &*record.state() {
            State::Held => return Err(format!("lease {place} ended as held")),
            State::Unresolved(unresolved) => {
                let right = if unresolved.cause == Cause::Expired { expires } else { abandoned };
                if !(right && !crowded || lease.ending_unseen) {
                    return Err(format!("lease {place} became unresolved, {}", unresolved.cause.name()));
                }
                (Standing::Unresolved, unresolved.cause == Cause::Expired)
            }
            State::Settled(settled) => {
                let next = match (&settled.usage(), asked) {
                    (None, _) if ages || crowded && (expires || abandoned) || lease.ending_unseen => None,
                    (Some(usage), Some(Ending::Settle(used))) if used.is(usage) => Some(used),
                    _ => {
                        let (was, unresolved) = (lease.standing, self.unresolved[lease.tenant]);
                        let usage = &settled.usage();
                        return Err(format!(
                            "lease {place}, {was:?}, was settled as {usage:?}, asked {asked:?}; {unresolved} unresolved"
                        ));
                    }
                };
                let charged = next.map_or_else(|| lease.reserved(), |used| used.amounts(lease.price));
                let cost = next.map_or(settled.cost, |used| lease.price.cost(&used));
                if (record.charged(), settled.cost) != (charged, cost) {
                    let (was, is) = ((record.charged(), settled.cost), (charged, cost));
                    return Err(format!("lease {place} was charged {was:?} in place of {is:?}"));
                }
                (Standing::Settled(next), next.is_none())
            }
            State::Cancelled(_) => (Standing::Cancelled, false),
        };
        if std::mem::take(&mut self.leases[place].ending_unseen) {
            self.unseen -= 1;
            if self.leases[place].standing == next {
                return Ok(false);
            }
        }
        if next == Standing::Cancelled && asked != Some(Ending::Cancel) {
            return Err(format!("lease {place} was cancelled by nobody"));
        }
        self.step(place, next, now)?;
        Ok(by_time)
    }

    /// What an ending has to come to by the books.
    pub(super) fn outcome(&self, place: Place, ending: Ending) -> Outcome {
        let lease = &self.leases[place];
        match (lease.standing, ending) {
            (Standing::Held, Ending::Cancel) if lease.sent => Outcome::CancelAfterSent,
            (Standing::Held, _) | (Standing::Unresolved, Ending::Settle(_)) => Outcome::Fresh,
            (_, Ending::Abandon) | (Standing::Cancelled, Ending::Cancel) => Outcome::Repeat,
            (Standing::Settled(Some(first)), Ending::Settle(used)) if first == used => Outcome::Repeat,
            _ => Outcome::Conflict,
        }
    }

    /// An ending whose answer was lost.
    pub(super) fn ended_unseen(&mut self, place: Place, ending: Ending, now: Now) -> Check {
        if self.outcome(place, ending) != Outcome::Fresh {
            return Ok(());
        }
        let crowded = self.unresolved[self.leases[place].tenant] >= self.terms.unresolved;
        let next = match ending {
            Ending::Settle(used) => Standing::Settled(Some(used)),
            Ending::Cancel => Standing::Cancelled,
            Ending::Abandon if crowded => Standing::Settled(None),
            Ending::Abandon => Standing::Unresolved,
        };
        self.step(place, next, now)?;
        self.leases[place].ending_unseen = true;
        self.unseen += 1;
        Ok(())
    }

    fn step(&mut self, place: Place, next: Standing, now: Now) -> Check {
        let lease = &mut self.leases[place];
        let late = lease.standing == Standing::Unresolved;
        let allowed = match lease.standing {
            Standing::Held => true,
            Standing::Unresolved => matches!(next, Standing::Settled(_)),
            Standing::Settled(_) | Standing::Cancelled => false,
        };
        if !allowed {
            return Err(format!("lease {place} went from {:?} to {next:?}", lease.standing));
        }
        let amounts = match next {
            Standing::Settled(Some(used)) => Some(used.amounts(lease.price)),
            _ => None,
        };
        for at in 0..lease.holds.len() {
            let Held { account, meter, now: before, .. } = lease.holds[at];
            let to = match (next, &amounts) {
                _ if meter.is_held() => 0,
                (Standing::Cancelled, _) => 0,
                // Earlier holds of a limit are filled first, the last takes the rest.
                // One taking an account, as on all leases that were not extended.
                (_, Some(amounts)) if lease.holds.len() == lease.first => amounts.get(meter),
                (_, Some(amounts)) => {
                    let earlier = lease.holds[..at].iter().filter(|hold| hold.account == account);
                    let left = amounts.get(meter).saturating_sub(earlier.map(|hold| hold.now).sum());
                    let is_last = !lease.holds[at + 1..].iter().any(|hold| hold.account == account);
                    if is_last { left } else { left.min(lease.holds[at].taken) }
                }
                (_, None) => before,
            };
            if to != before {
                self.accounts[account as usize].correct(lease.holds[at].mark, before, to, now);
                lease.holds[at].now = to;
            }
        }
        (lease.standing, lease.late) = (next, late);
        self.unresolved[lease.tenant] -= u64::from(late);
        if next == Standing::Unresolved {
            lease.since = now.mono;
            self.unresolved[lease.tenant] += 1;
            self.due.push(Reverse((now.mono + self.terms.age, place)));
        } else {
            self.open -= 1;
            self.endings += 1;
            lease.ending = self.endings;
        }
        Ok(())
    }

    /// That a receipt says what the books say.
    pub(super) fn check_receipt(&self, place: Place, receipt: &Receipt) -> Check {
        let lease = &self.leases[place];
        let (outcome, charged) = match lease.standing {
            Standing::Held => return Err(format!("lease {place} has a receipt and is held")),
            Standing::Unresolved => ("unresolved", lease.reserved()),
            Standing::Settled(Some(used)) => ("settled", used.amounts(lease.price)),
            Standing::Settled(None) => ("settled", lease.reserved()),
            Standing::Cancelled => ("cancelled", Amounts::default()),
        };
        let (told, wanted) =
            ((receipt.outcome(), receipt.charged(), receipt.is_late()), (outcome, charged, lease.late));
        if told == wanted { Ok(()) } else { Err(format!("the receipt of lease {place}: {told:?}, not {wanted:?}")) }
    }

    /// That a refusal by limits is one: each that it names has no room, for as long as it says.
    pub(super) fn check_shortages(&self, refusal: &Refusal, now: Now) -> Check {
        if refusal.shortages.is_empty() {
            return Err(format!("{} without a limit", refusal.reason));
        }
        for shortage in &refusal.shortages {
            let account = self.names.find(&shortage.scope, &shortage.limit).ok_or("a limit that there is not")?;
            let (rule, _) = self.names.rule(account, self.revision);
            let kept = &self.accounts[account as usize];
            let used = kept.used(rule, now);
            let room = kept.has_room(rule, shortage.asked, now);
            let wait = match (shortage.wait, rule) {
                (Wait::After(wait), Rule::Rate { .. }) => wait.as_nanos() as u64,
                _ => kept.lacks(rule, shortage.asked, now),
            };
            if room || used != shortage.used || wait != kept.lacks(rule, shortage.asked, now) {
                let name = self.names.show(account);
                let (asked, told) = (shortage.asked, shortage.used);
                return Err(format!("{name}: refused for {asked} on {told}, by the ledger on {used}, room: {room}"));
            }
        }
        Ok(())
    }

    /// That a principal's balances are those of the books.
    pub(super) fn check_balances(&self, balances: &[Balance], now: Now) -> Check<usize> {
        for balance in balances {
            let account = self.names.find(&balance.scope, &balance.limit).ok_or("a limit that there is not")?;
            let (rule, _) = self.names.rule(account, self.revision);
            let used = self.accounts[account as usize].used(rule, now);
            if used != balance.used {
                let name = self.names.show(account);
                return Err(format!("{name}: {} in use by the gate, {used} by the ledger", balance.used));
            }
        }
        Ok(balances.len())
    }

    /// Whether a sweep might end something now.
    pub(super) fn has_due(&self, now: Now) -> bool {
        self.due.peek().is_some_and(|Reverse((at, _))| *at <= now.mono)
    }

    /// That nothing is left that a sweep should have ended.
    pub(super) fn check_swept(&mut self, now: Now) -> Check {
        while let Some(Reverse((at, place))) = self.due.peek().copied().filter(|Reverse((at, _))| *at <= now.mono) {
            self.due.pop();
            let lease = &self.leases[place];
            let due = match lease.standing {
                Standing::Held => lease.deadline,
                Standing::Unresolved => lease.since + self.terms.age,
                Standing::Settled(_) | Standing::Cancelled => continue,
            };
            if due <= now.mono {
                return Err(format!("lease {place} was due {} ns ago and is {:?}", now.mono - at, lease.standing));
            }
            self.due.push(Reverse((due, place)));
        }
        Ok(())
    }

    /// That each account is the sum of what its leases leave on it, counted anew.
    pub(super) fn check_sums(&self) -> Check {
        let mut sums = vec![0; self.accounts.len()];
        for hold in self.leases.iter().flat_map(|lease| &lease.holds) {
            if self.accounts[hold.account as usize].counts(hold.mark) == Some(true) {
                sums[hold.account as usize] += hold.now;
            }
        }
        for (at, (sum, account)) in sums.into_iter().zip(&self.accounts).enumerate() {
            let (Account::Budget(_, used) | Account::Slots(used)) = *account else { continue };
            if sum != used {
                return Err(format!("{}: {used} used, its leases come to {sum}", self.names.show(at as u32)));
            }
        }
        Ok(())
    }

    /// That nothing is held any more, and every ending has been told.
    pub(super) fn check_ended(&self) -> Check {
        let open = |(place, lease): &(usize, &Lease)| {
            (lease.is_open() || lease.ending_unseen || lease.admission_unseen).then_some(*place)
        };
        match self.leases.iter().enumerate().find_map(|at| open(&at)) {
            Some(place) => Err(format!("lease {place} is left: {:?}", self.leases[place])),
            None => Ok(()),
        }
    }

    /// Every account by scope, limit and what is in use of it; `rates` as well, or only what has periods and slots.
    pub(super) fn used(&self, rates: bool, now: Now) -> impl Iterator<Item = (&str, &str, u64)> {
        let accounts = self.accounts.iter().enumerate();
        accounts.filter(move |(_, account)| rates || !matches!(account, Account::Rate(_))).map(move |(at, account)| {
            let (rule, _) = self.names.rule(at as u32, self.revision);
            let (scope, limit) = self.names.name(at as u32);
            (scope, limit, account.used(rule, now))
        })
    }
}
