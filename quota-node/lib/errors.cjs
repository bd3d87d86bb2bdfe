'use strict'
// What this package throws: all of it derives from `QuotaError` and has a stable `code`.

class QuotaError extends Error {
  constructor(message, fields = {}) {
    super(message)
    this.code = 'quota_error'
    this.isRetryable = false
    Object.assign(this, fields)
  }

  // On the prototype, so that it is no field of each error.
  get name() {
    return this.constructor.name
  }
}

class InputError extends QuotaError {}

class PolicyError extends InputError {}

class RequestError extends InputError {}

class UsageError extends InputError {}

class Refused extends QuotaError {
  get reason() {
    return this.code
  }

  get status() {
    return this.refusal.status
  }

  get retryAfterMs() {
    return this.refusal.retryAfterMs
  }
}

class EndError extends QuotaError {}

class KeyActError extends QuotaError {}

class QueueRefused extends QuotaError {}

const classes = {
  QuotaError,
  InputError,
  PolicyError,
  RequestError,
  UsageError,
  Refused,
  EndError,
  KeyActError,
  QueueRefused,
}

// Called by the addon.
function make(name, message, fields, refusal) {
  const error = new classes[name](message, JSON.parse(fields))
  if (refusal) Object.defineProperty(error, 'refusal', { value: refusal, enumerable: false })
  return error
}

module.exports = { ...classes, make }
