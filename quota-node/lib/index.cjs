'use strict'

const native = require('./native.cjs')
const errors = require('./errors.cjs')
const { Usage, Outcome } = require('./usage.cjs')
const { Lease, Receipt, Stream } = require('./lease.cjs')
const { Refusal } = require('./decision.cjs')
const { Gate, Keeper } = require('./gate.cjs')
const { document, object } = require('./text.cjs')
const { show } = require('./shown.cjs')

const { Policy, Principal, Request, IssuedKey, FixedPool, ReportedPool, StreamReader, Scheduler, Place, Turn } = native
const { QuotaError, InputError, PolicyError, RequestError, UsageError } = errors
const { Refused, EndError, KeyActError, QueueRefused } = errors

Policy.fromObject = (value) => Policy.fromJson(object(value))
Policy.schema = () => JSON.parse(Policy._schema())
Request.fromBody = (dialect, body, options) => Request._fromBody(dialect, document(body), options)
Scheduler.prototype.figures = function () {
  return JSON.parse(this._figures())
}

for (const type of [Policy, Principal, Request, FixedPool, ReportedPool]) show(type)
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

/** Every reason by its code. */
const REASONS = Object.freeze(Object.fromEntries(native._reasons().map((row) => [row.code, Object.freeze(row)])))

module.exports = {
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
  Turn,
  UpstreamError,
  UpstreamLimits,
  Usage,
  UsageError,
  priorityHint,
  readLoad,
  upstreamWaitMs,
}
