'use strict'

const native = require('./native.cjs')
const errors = require('./errors.cjs')
const { Usage, Outcome, usage } = require('./usage.cjs')
const { Lease, Receipt, Stream } = require('./lease.cjs')
const { Refusal } = require('./decision.cjs')
const { Gate } = require('./gate.cjs')
const { document, object } = require('./text.cjs')
const { show } = require('./shown.cjs')
const { wait } = require('./waiting.cjs')

const { Policy, PriceList, Calendar, Principal, IssuedKey, Request, Balance } = native
const { Keeper, Subscription, FixedPool, ReportedPool, StreamReader, Scheduler, Place, Turn } = native
const { QuotaError, InputError, PolicyError, RequestError, UsageError } = errors
const { Refused, EndError, KeyActError, QueueRefused } = errors

Policy.fromObject = (value) => Policy.fromJson(object(value))
Policy.prototype.withPrices = function (prices) {
  return this._withPrices(typeof prices === 'string' ? PriceList.litellm(prices) : prices)
}
Policy.schema = () => JSON.parse(Policy._schema())
/** `new Price(document)`: what the addon makes by itself is one, too. */
function Price(value) {
  if (!new.target) throw new TypeError('Price is made with `new`')
  return new native.Price(document(value))
}
Price.prototype = native.Price.prototype
Price.prototype.constructor = Price
Price.prototype.cost = function (report, { dialect } = {}) {
  return this._cost(usage(report, dialect))
}
Balance.fromObject = (data) => Balance._fromText(document(data))
Balance.prototype.toObject = function () {
  return JSON.parse(this._toText())
}
Request.fromBody = (dialect, body, options) => Request._fromBody(dialect, document(body), options)
Scheduler.prototype.figures = function () {
  return JSON.parse(this._figures())
}

Place.prototype.wait = async function (options) {
  return wait({ due: () => this._due(), leave: () => this.leave(), next: () => this.tryTurn() }, options)
}

for (const type of [Policy, PriceList, Principal, Request, Balance, FixedPool, ReportedPool]) show(type)
show(IssuedKey, { hidden: ['secret'] })

const readLoad = (server, text, { model } = {}) => native._readLoad(server, text, model)
const { priorityHint } = native

const UpstreamLimits = { read: (headers, { clock } = {}) => native._upstreamLimits([...pairs(headers)], clock) }
const UpstreamError = {
  read: (status, body, { clock } = {}) => native._upstreamError(status, body == null ? null : document(body), clock),
}
const upstreamWaitMs = (value, { clock } = {}) => native._upstreamWaitMs(value, clock)

/** Names and values of `Headers`, of pairs, or of an object as `node:http` has it. */
function* pairs(headers) {
  const all = typeof headers[Symbol.iterator] === 'function' ? headers : Object.entries(headers)
  for (const [name, value] of all) {
    for (const one of Array.isArray(value) ? value : [value]) if (one != null) yield [name, String(one)]
  }
}

const countTokens = (text, { tokenizer, model } = {}) => native._countTokens(text, tokenizer, model)
const estimate = (request, { tokenizer } = {}) => native._estimate(request, tokenizer)

/** The tokenizers that this build counts with exactly. */
const EXACT_TOKENIZERS = Object.freeze(native._exactTokenizers())

const balanceHeaders = (balances, manner, { at } = {}) =>
  Object.fromEntries(native._balanceHeaders(balances, manner, at))

/** Every reason by its code. */
const REASONS = Object.freeze(Object.fromEntries(native._reasons().map((row) => [row.code, Object.freeze(row)])))

module.exports = {
  Balance,
  Calendar,
  EXACT_TOKENIZERS,
  EndError,
  FixedPool,
  Gate,
  InputError,
  IssuedKey,
  Keeper,
  KeyActError,
  Lease,
  Outcome,
  Place,
  Policy,
  PolicyError,
  Price,
  PriceList,
  Principal,
  QueueRefused,
  QuotaError,
  REASONS,
  Receipt,
  Refusal,
  Refused,
  ReportedPool,
  Request,
  RequestError,
  Scheduler,
  Stream,
  StreamReader,
  Subscription,
  Turn,
  UpstreamError,
  UpstreamLimits,
  Usage,
  UsageError,
  balanceHeaders,
  countTokens,
  estimate,
  priorityHint,
  readLoad,
  upstreamWaitMs,
}
