/// <reference lib="esnext.disposable" />
// The package's types, by hand: `test/types` compiles what they allow and what they refuse.
//
// Durations are whole milliseconds (`…Ms`), money is decimal text, counts are numbers below 2^53. What there is not is
// `null` in what comes back, and may be left out of what is handed over.

/** Whole, from 0 to 2^53 − 1; anything else is a `TypeError`, a `BigInt` too. */
type Count = number
/** Money as decimal text, `'0.000105'`. */
type Usd = string
/** Money as decimal text, anything else as a count. */
type Amount = number | Usd
/** JSON text, its bytes, or an object as `JSON.stringify` writes it: a provider's own, or one of an SDK's classes. */
type Document = string | Uint8Array | object

export type Action = 'allow' | 'degrade' | 'queue' | 'reject'
export type Cause = 'dropped' | 'expired' | 'no_usage' | 'upstream_failed'
export type Manner = 'openai' | 'anthropic' | 'gemini'
export type HeaderManner = 'openai' | 'anthropic' | 'ietf'
export type Meter =
  | 'requests'
  | 'input_tokens'
  | 'output_tokens'
  | 'tokens'
  | 'usd'
  | 'in_flight'
  | 'streams'
  | 'steps'
  | 'tool_calls'
  | 'run_seconds'
/** What a request's body is written in. */
export type BodyDialect =
  | 'openai_chat'
  | 'openai_completions'
  | 'openai_embeddings'
  | 'openai_responses'
  | 'anthropic_messages'
  | 'gemini'
/** What a usage is reported in; `auto` finds out. */
export type Dialect =
  | 'auto'
  | 'openai_chat'
  | 'openai_responses'
  | 'openai_embeddings'
  | 'anthropic_messages'
  | 'gemini'
  | 'bedrock_converse'
  | 'cohere'
  | 'xai'
  | 'llama_cpp'
  | 'ollama'
/** The stable codes of decisions other than allow. */
export type ReasonCode =
  | 'request_rate_exceeded'
  | 'input_token_rate_exceeded'
  | 'output_token_rate_exceeded'
  | 'token_rate_exceeded'
  | 'request_quota_exceeded'
  | 'token_quota_exceeded'
  | 'budget_exceeded'
  | 'concurrency_exceeded'
  | 'streams_exceeded'
  | 'queue_full'
  | 'queued_behind'
  | 'queue_timeout'
  | 'model_pool_overloaded'
  | 'context_length_exceeded'
  | 'request_too_large'
  | 'request_invalid'
  | 'model_not_allowed'
  | 'tenant_unknown'
  | 'key_unknown'
  | 'key_expired'
  | 'key_revoked'
  | 'claims_invalid'
  | 'price_unknown'
  | 'request_id_conflict'
  | 'request_already_ended'
  | 'leases_exhausted'
  | 'accounts_exhausted'
  | 'store_unavailable'
  | 'retry_storm'
  | 'frozen'
  | 'run_steps_exceeded'
  | 'run_tokens_exceeded'
  | 'run_tool_calls_exceeded'
  | 'run_budget_exceeded'
  | 'run_time_exceeded'
  | 'pool_pressure'
  | 'soft_limit_passed'

export interface Reason {
  readonly code: ReasonCode
  /** The HTTP status that says the same. */
  readonly status: number
  /** Whether sending the request again helps: soon, when the period ends, or not as it is. */
  readonly retry: 'soon' | 'next_period' | 'no'
  readonly text: string
}

/** Every reason by its code. */
export const REASONS: Readonly<Record<ReasonCode, Reason>>

/** One amount per meter. */
export interface Amounts {
  requests: number
  inputTokens: number
  outputTokens: number
  /** Input and output together. */
  tokens: number
  usd: Usd
  inFlight: number
  streams: number
  steps: number
  toolCalls: number
  runSeconds: number
}

// ---------------------------------------------------------------------------------------------------- policy, principal

/** One thing that is wrong with a policy, or doubtful. */
export interface PolicyFault {
  path: string
  line: number
  column: number
  code: string
  message: string
}

/** Another amount of a limit for a while. */
export interface LimitOverride {
  /** From when on, as an RFC 3339 instant. */
  starts: string
  /** Until when. */
  expires: string
  hard: Amount
  burst: Amount
}

/** One limit of one scope of a policy. */
export interface PolicyLimit {
  /** Its short name (`rpm`, `daily_budget_usd`), or the name given to a free window. */
  name: string
  meter: Meter
  /** Over what: `rolling 60 s`, `fixed 60 s`, `day Europe/Berlin`, `week UTC`, `month UTC from 1`, `held` or `run`. */
  window: string
  /** Never passed by an admission. */
  hard: Amount
  /** Reported, and perhaps degraded, when passed. */
  soft: Amount | null
  /** The most that may be taken at one instant, where the window rolls. */
  burst: Amount
  /** `shadow`: counted and reported only. */
  mode: 'enforce' | 'shadow'
  /** What happens to a request that does not fit. */
  onExceed: 'reject' | 'queue' | 'degrade'
  /** How much output is held. */
  hold: 'worst_case' | 'p95' | 'adaptive'
  /** The percentage of `hard` whose crossing is an alert. */
  alertPercent: number | null
  /** In the order of the document; the last one in force counts. */
  overrides: LimitOverride[]
}

/** A scope by what it belongs to; with nothing set it is what all tenants share. */
export interface ScopeOptions {
  tenant?: string | undefined
  /** A model's own, or a tenant's for a model; `'*'` is any that the tenant does not name. */
  model?: string | undefined
  app?: string | undefined
  key?: string | undefined
  /** Each user of the tenant. */
  users?: boolean | undefined
  /** Each run of the tenant's agents. */
  runs?: boolean | undefined
  costCenter?: string | undefined
}

/** The document of all quotas, prices and queues, checked and compiled. What is wrong with one throws `PolicyError`. */
export class Policy {
  private constructor()
  /** Loads a file of YAML or JSON, and the price list that it names. */
  static fromFile(path: string): Policy
  static fromYaml(text: string): Policy
  static fromJson(text: string): Policy
  /** Amounts may be numbers or texts. An object's keys that look like whole numbers come first, in JavaScript. */
  static fromObject(document: object): Policy
  /** The JSON Schema of the document. */
  static schema(): Record<string, unknown>
  /** The same policy with the prices of a list, or of a text in LiteLLM's form, for models that have none of their own. */
  withPrices(prices: PriceList | string): Policy
  /** The limits of one scope; those of the scopes around it hold too. Throws `InputError` (`scope_unknown`) for a scope that
   *  the policy does not have. */
  limits(scope?: ScopeOptions): PolicyLimit[]
  /** The names of the tenants, sorted. */
  readonly tenants: string[]
  /** The price of a model, an alias having its upstream's; `null` for one that the policy does not price. */
  price(model: string): Price | null
  /** What is allowed and probably not meant. */
  readonly warnings: PolicyFault[]
  /** The SHA-256 of the document's text. */
  readonly digest: string
}

export interface Period {
  /** Counts up by one from each period to the next. */
  number: number
  /** The first instant that belongs to it, as RFC 3339 in UTC. */
  start: string
  /** The first instant that does not. */
  end: string
}

/** A fixed window's unit in a time zone. */
export class Calendar {
  /** `week` is from Monday; `month` from its `startDay`, the first if left out, the last day of a month that has no such day;
   *  `seconds` are so many of them, aligned to 1970. `zone` is an IANA time zone, UTC if left out. */
  constructor(
    unit: 'day' | 'week' | 'month' | 'seconds',
    zone?: string,
    options?: { seconds?: Count; startDay?: Count },
  )
  /** The period that holds an RFC 3339 instant. */
  period(at: string): Period
}

/** One line of a cost. */
export interface CostLine {
  /** What was used, by the key that a policy's `price` has for it. */
  item: string
  /** How much: tokens, requests, searches, or milliseconds. */
  units: number
  /** Picodollars for one token, request, search or second. */
  pico: number
  usd: Usd
  /** Whether the price is another class's. */
  fallback: boolean
}

/** A cost with its explanation. */
export interface Cost {
  /** The sum of the lines, exactly. */
  usd: Usd
  /** One for each class that was used and has a price. */
  lines: CostLine[]
  /** Whether a line has the price of another class. */
  fallback: boolean
  /** Whether something was used that has no price at all and is in no line. */
  unpriced: boolean
}

/** What a model costs: prices by class, context and service tier. */
export class Price {
  /** A price as a policy's `price` states it: USD per million tokens, and per one of the rest. Throws `PolicyError`. */
  constructor(document: Document)
  /** What a usage costs. */
  cost(usage: Usage | Document, options?: DialectOptions): Cost
  /** The most that a request can cost, in the dearest of the service tiers that may serve it. */
  worstCase(ask: {
    input: Count
    output: Count
    serviceTier?: string | undefined
    textOnly?: boolean | undefined
    webSearches?: Count | undefined
    audioMillis?: Count | undefined
  }): Usd
}

/** Prices of models by their exact names. */
export class PriceList {
  private constructor()
  /** Reads a list in LiteLLM's form (JSON text). Throws `InputError`. */
  static litellm(text: string): PriceList
  get(model: string): Price | null
  /** The names, sorted. */
  readonly models: string[]
  /** The first rows that were left out. */
  readonly skipped: { model: string; why: string }[]
}

export interface PrincipalOptions {
  tenant: string
  app?: string | undefined
  env?: string | undefined
  user?: string | undefined
  lane?: string | undefined
  /** The id of the key that was presented; never the key. */
  key?: string | undefined
  /** Whether it may act for users of the tenant. */
  namesUsers?: boolean | undefined
}

/** Who asks, as the host has verified it. */
export class Principal {
  constructor(options: PrincipalOptions)
  readonly tenant: string
  readonly app: string | null
  readonly env: string | null
  readonly user: string | null
  readonly lane: string | null
  readonly key: string | null
  /** The same principal acting for a user of the tenant, where it may name one; otherwise unchanged. */
  onBehalfOf(user: string): Principal
  equals(other: Principal): boolean
}

/** A new secret, with the id of the key that it opens. Printing it does not show the secret. */
export class IssuedKey {
  private constructor()
  readonly id: string
  /** The secret. It is nowhere else: who loses it has to rotate the key. */
  readonly secret: string
  /** From when on the key is refused, as an RFC 3339 instant. */
  readonly expires: string | null
}

/** What there is to know of a key; neither its secret nor a digest of it is among that. */
export interface Key {
  id: string
  tenant: string
  /** The id of the key that it narrows. */
  parent: string | null
  app: string | null
  env: string | null
  user: string | null
  lane: string | null
  /** The models that it may use; `null` for all of its parent's, or of its tenant's. */
  models: string[] | null
  expires: string | null
  /** By itself or by a parent. */
  state: 'active' | 'expired' | 'revoked'
  /** Whether the policy has it; otherwise it lives as long as the gate. */
  inPolicy: boolean
  /** How many secrets open it. */
  secrets: number
}

export interface KeyOptions {
  tenant: string
  author: string
  id?: string | undefined
  parent?: string | undefined
  app?: string | undefined
  env?: string | undefined
  user?: string | undefined
  lane?: string | undefined
  namesUsers?: boolean | undefined
  /** An RFC 3339 instant. */
  expires?: string | undefined
  models?: string[] | undefined
  /** In the words of the policy's `keys`. */
  limits?: string | object | undefined
}

// ------------------------------------------------------------------------------------------------------ request, usage

export interface RequestOptions {
  model: string
  kind?: 'chat' | 'embeddings' | undefined
  /** Either the input's text, which is estimated, or its count. */
  text?: string | undefined
  inputTokens?: Count | undefined
  maxOutputTokens?: Count | undefined
  choices?: Count | undefined
  stream?: boolean | undefined
  serviceTier?: string | undefined
  lane?: string | undefined
  user?: string | undefined
  runId?: string | undefined
  toolCalls?: Count | undefined
  fingerprint?: Count | undefined
  id?: string | undefined
}

export interface BodyOptions {
  /** For `gemini` alone, whose model stands in its address. */
  model?: string | undefined
  /** For `gemini` alone. */
  stream?: boolean | undefined
  id?: string | undefined
  lane?: string | undefined
  runId?: string | undefined
  toolCalls?: Count | undefined
}

/** What a request asks for. */
export class Request {
  constructor(options: RequestOptions)
  /** Reads a provider's JSON body. Throws `RequestError`. */
  static fromBody(dialect: BodyDialect, body: Document, options?: BodyOptions): Request
  readonly id: string | null
  readonly model: string
  readonly kind: 'chat' | 'embeddings'
  /** The count of the input where the host has made it; `null` where the gate estimates it. */
  readonly inputTokens: number | null
  readonly maxOutputTokens: number | null
  readonly choices: number
  readonly stream: boolean
  readonly serviceTier: string | null
  readonly lane: string | null
  readonly user: string | null
  readonly runId: string | null
  /** How many calls of tools this step's input newly carries. */
  readonly newToolCalls: number
  /** The texts that are counted, in their order; empty where the host has counted the input itself. */
  readonly texts: string[]
  /** The tokens of each picture, in their order. */
  readonly imageTokens: number[]
  /** The most output tokens that it can use over all its choices, cut at the ceilings of one choice and of the whole
   *  request; 0 for embeddings. */
  outputCeiling(ceilings?: { perChoice?: (Count | null)[]; total?: (Count | null)[] }): number
}

/** Tokens as they were counted. */
export interface TokenCount {
  /** The best guess. */
  expected: number
  /** What to reserve: the guess plus the method's stated error. */
  reserve: number
  /** Whether it is the tokenizer's own count. */
  exact: boolean
}

export type Tokenizer = 'heuristic' | 'o200k_base' | 'cl100k_base'

/** The tokenizers that this build counts with exactly; it guesses in place of the others. */
export const EXACT_TOKENIZERS: readonly Tokenizer[]

/** Counts the tokens of a text by itself, without any framing. `model` chooses the heuristic's weights. */
export function countTokens(text: string, options?: { tokenizer?: Tokenizer; model?: string }): TokenCount

/** Counts the input of a request as a gate without an estimator of its own does: text, framing, tools, pictures, sound and
 *  documents. */
export function estimate(request: Request, options?: { tokenizer?: Tokenizer }): TokenCount

export interface UsageCounts {
  inputUncached?: Count | undefined
  inputCacheRead?: Count | undefined
  inputCacheWrite5m?: Count | undefined
  inputCacheWrite1h?: Count | undefined
  inputCacheWriteOther?: Count | undefined
  inputAudio?: Count | undefined
  inputImage?: Count | undefined
  inputVideo?: Count | undefined
  outputText?: Count | undefined
  outputReasoning?: Count | undefined
  outputAudio?: Count | undefined
  outputImage?: Count | undefined
  audioMillis?: Count | undefined
  webSearches?: Count | undefined
  searchUnits?: Count | undefined
  pages?: Count | undefined
  images?: Count | undefined
  requests?: Count | undefined
  serviceTier?: string | undefined
  inputMissing?: boolean | undefined
}

export interface DialectOptions {
  dialect?: Dialect | undefined
}

/** What a call used, in disjoint counts. */
export class Usage {
  constructor(counts: UsageCounts)
  /** The usage of one request whose tokens the host has counted itself. */
  static tokens(input: Count, output: Count): Usage
  /** Reads a provider's usage object, or the answer that holds it. Throws `UsageError`. */
  static read(report: Usage | Document, options?: DialectOptions): Usage
  /** Prompt tokens at the full price. */
  readonly inputUncached: number
  /** Prompt tokens served from a cache. */
  readonly inputCacheRead: number
  /** Prompt tokens written to a cache for five minutes. */
  readonly inputCacheWrite5m: number
  /** Prompt tokens written to a cache for an hour. */
  readonly inputCacheWrite1h: number
  /** Prompt tokens written to a cache for another time. */
  readonly inputCacheWriteOther: number
  /** Uncached audio tokens of the prompt. */
  readonly inputAudio: number
  /** Uncached image tokens of the prompt. */
  readonly inputImage: number
  /** Uncached video tokens of the prompt. */
  readonly inputVideo: number
  /** Generated tokens that are seen. */
  readonly outputText: number
  /** Generated tokens of thinking. */
  readonly outputReasoning: number
  /** Generated audio tokens. */
  readonly outputAudio: number
  /** Generated image tokens. */
  readonly outputImage: number
  /** Milliseconds of audio, where the call is priced by time. */
  readonly audioMillis: number
  /** Searches that the provider bills. */
  readonly webSearches: number
  /** Rerank searches. */
  readonly searchUnits: number
  /** Pages of documents. */
  readonly pages: number
  /** Pictures, where the call is priced by the picture. */
  readonly images: number
  readonly requests: number
  /** What the provider itself says that the call cost. */
  readonly providerCostUsd: Usd | null
  readonly serviceTier: string | null
  /** Whether the report has no input side; the reserved input is then charged. */
  readonly inputMissing: boolean
  /** How many times the report contradicted itself. */
  readonly anomalies: number
  readonly inputTotal: number
  readonly outputTotal: number
  readonly total: number
  /** The same with so many tokens as its input if the report has none. */
  orInput(tokens: Count): Usage
  equals(other: Usage): boolean
}

/** How a call ended, as far as its charge is concerned. */
export class Outcome {
  private constructor()
  /** What an upstream's answer means: its HTTP status (`null` if no connection was made) and its body, if it is JSON. */
  static ofAnswer(status: number | null, body?: Document | null, options?: DialectOptions): Outcome
  /** The provider told what was used. */
  static final(usage: Usage | Document, options?: DialectOptions): Outcome
  /** The upstream failed without a report: whether anything is charged is the policy's choice. */
  static failed(): Outcome
  /** The request was not run: nothing is charged. */
  static notRun(): Outcome
  readonly state: 'final' | 'unresolved' | 'failed_without_usage' | 'not_run'
  /** The usage of a final one. */
  readonly usage: Usage | null
  /** Why the usage of an unresolved one is unknown. */
  readonly code: string | null
  readonly message: string | null
}

// ----------------------------------------------------------------------------------------------------------- decisions

/** One limit that had no room. */
export interface Shortage {
  scope: string
  limit: string
  /** Whether other tenants share the scope: its figures are for operators only. */
  shared: boolean
  meter: Meter
  hard: Amount
  used: Amount
  asked: Amount
  retryAfterMs: number | null
}

/** What would fit at the moment of a refusal. */
export interface Fits {
  /** The largest output ceiling with which the same request would have been admitted. */
  maxOutputTokens: number | null
  /** Other models with which the same request would have been admitted. */
  models: string[]
}

/** An HTTP answer; `content-type` is left to whoever writes the body. */
export interface ErrorResponse {
  status: number
  headers: Record<string, string>
  body: Record<string, unknown>
}

/** A request that was not admitted, and why. */
export class Refusal {
  private constructor()
  /** A refusal that another process decided, as its `toObject` gave it. Throws `InputError`. */
  static fromObject(data: Document): Refusal
  /** All of it but the receipt as plain data, to be answered by another process. */
  toObject(): Record<string, unknown>
  readonly reason: ReasonCode
  readonly status: number
  readonly tenant: string
  readonly model: string
  readonly requestId: string | null
  /** Whether the time after which there is room is known. */
  readonly wait: 'after' | 'unknown' | 'never'
  readonly retryAfterMs: number | null
  readonly shortages: Shortage[]
  readonly fits: Fits
  readonly detail: string | null
  /** What the first request under this id was charged, where the id has ended. */
  readonly receipt: Receipt | null
  /** One sentence for the asker. */
  readonly message: string
  /** Status, headers and body as the provider's own clients understand them. */
  response(manner?: Manner): ErrorResponse
  /** The same error as the last frame of an event stream that has begun. */
  streamError(manner?: Manner): string
}

/** In which lesser form a request was admitted. */
export interface Degradation {
  /** The step's place in the policy's list. */
  step: number
  reason: ReasonCode
  limit: string
  model: string
  maxOutputTokens: number
  disableTools: string[]
  lane: string
}

/** What `preview` found that `admit` would hold. */
export interface Offer {
  model: string
  lane: string
  inputTokens: number
  maxOutputTokens: number
  /** The worst case in money. */
  worstUsd: Usd
}

/** The state of one limit for one principal. */
export class Balance {
  private constructor()
  /** The balance that another process read, as its `toObject` gave it. Throws `InputError`. */
  static fromObject(data: Document): Balance
  /** All of it as plain data. */
  toObject(): Record<string, unknown>
  readonly scope: string
  readonly limit: string
  readonly meter: Meter
  readonly hard: Amount
  readonly soft: Amount | null
  readonly used: Amount
  readonly remaining: Amount
  /** Until everything is back; `null` for what is held. */
  readonly resetsMs: number | null
  /** Whether the window rolls, so that what was used comes back bit by bit. */
  readonly rolling: boolean
  /** The window, where it has a fixed length. */
  readonly windowMs: number | null
}

/** Balances as rate-limit headers. Anthropic's resets are instants: `at` is the present, the system's if left out. */
export function balanceHeaders(
  balances: Balance[],
  manner?: HeaderManner,
  options?: { at?: string },
): Record<string, string>

/** How to stop waiting. */
export interface WaitOptions {
  /** Gives the place up when it aborts; the promise is rejected with `signal.reason`. */
  signal?: AbortSignal | undefined
  /** Gives the place up after this time; the promise is rejected with a `TimeoutError`. */
  timeoutMs?: number | undefined
}

interface AnyDecision {
  readonly retryAfterMs: number | null
  /** Whether asking again may bring something else; also for what does not wait. */
  readonly isDue: boolean
  /** Decides again about a request that waits, from the place that it has, which this decision has no longer. Throws
   *  `QuotaError` (`place_left`) where the place is gone. Of one that does not wait it is itself. */
  again(): Decision
  /** Gives up the place of a request that waits. */
  leave(): void
  /** Waits for the turn, from the place that it has. Rejects with `Refused`. */
  wait(options?: WaitOptions): Promise<Lease>
  /** The lease. Throws `Refused`. */
  granted(): Lease
}

interface NotWaiting {
  readonly lane: null
  readonly pool: null
  readonly maxWaitMs: null
}

export interface Allow extends AnyDecision, NotWaiting {
  readonly action: 'allow'
  readonly reason: null
  readonly lease: Lease
  readonly refusal: null
  readonly degradation: null
}

export interface Degrade extends AnyDecision, NotWaiting {
  readonly action: 'degrade'
  readonly reason: ReasonCode
  readonly lease: Lease
  readonly refusal: null
  readonly degradation: Degradation
}

export interface Queue extends AnyDecision {
  readonly action: 'queue'
  readonly reason: ReasonCode
  readonly lease: null
  readonly refusal: Refusal
  readonly degradation: null
  /** The lane to wait in. */
  readonly lane: string
  /** The pool that it waits for; empty where nothing but its own limits keeps it out. */
  readonly pool: string
  /** The longest that the lane lets it wait. */
  readonly maxWaitMs: number
}

export interface Reject extends AnyDecision, NotWaiting {
  readonly action: 'reject'
  readonly reason: ReasonCode
  readonly lease: null
  readonly refusal: Refusal
  readonly degradation: null
}

/** The gate's answer. */
export type Decision = Allow | Degrade | Queue | Reject

interface AnyPreview {
  readonly retryAfterMs: number | null
}

/** The answer that `admit` would give, without anything taken. */
export type Preview = AnyPreview &
  (
    | { action: 'allow'; reason: null; offer: Offer; degradation: null; refusal: null; lane: null; maxWaitMs: null }
    | {
        action: 'degrade'
        reason: ReasonCode
        offer: Offer
        degradation: Degradation
        refusal: null
        lane: null
        maxWaitMs: null
      }
    | {
        action: 'queue'
        reason: ReasonCode
        offer: null
        degradation: null
        refusal: Refusal
        lane: string
        maxWaitMs: number
      }
    | { action: 'reject'; reason: ReasonCode; offer: null; degradation: null; refusal: Refusal; lane: null; maxWaitMs: null }
  )

// -------------------------------------------------------------------------------------------------------------- leases

/** An admitted request. It is ended once, by `settle`, `cancel`, `unresolved` or `finish`; all of them throw `EndError`
 *  where the ending changes nothing. */
export class Lease implements Disposable, AsyncDisposable {
  private constructor()
  readonly id: string
  readonly requestId: string | null
  /** Who asked. */
  readonly principal: Principal
  /** The model to run on. */
  readonly model: string
  /** The model to name to the upstream: the policy's `upstream` of it, else its own name. */
  readonly upstreamModel: string
  /** The lane to run in. */
  readonly lane: string
  /** The largest output over all choices that was agreed: what to tell the upstream. */
  readonly maxOutputTokens: number
  /** The input that was reserved. */
  readonly inputTokens: number
  /** The output that limits hold which hold the learned length. */
  readonly expectedOutputTokens: number
  /** The worst case in money. */
  readonly worstUsd: Usd
  /** In which lesser form it must run; `null` as asked. */
  readonly degradation: Degradation | null
  /** Whether another request under the same id has this lease already: its holder runs it. */
  readonly isRepeat: boolean
  /** Whether it has not ended. */
  readonly isOpen: boolean
  /** How long it lives without a heartbeat. */
  readonly ttlMs: number
  /** The place of its lane among the policy's, 0 the first. */
  readonly rank: number
  /** How long it waited for its turn. */
  readonly waitedMs: number
  /** Limits whose soft amount is passed with this request: scope and name. */
  readonly softPassed: [scope: string, limit: string][]
  /** Marks that bytes are about to leave; `false` if the lease has ended meanwhile, and the request must not be sent. */
  sent(): boolean
  /** A heartbeat; `false` if the lease has ended meanwhile. */
  renew(): boolean
  /** Raises the hold by so many output tokens, on every limit or on none: throws `Refused` where one has no room. */
  extend(outputTokens: Count): void
  /** Tells the queue how far the answer is. */
  progress(outputTokens: Count): void
  /** Tells that the pool itself refused the request for lack of room. The lease has still to be ended. */
  poolRefused(): void
  /** Charges what was used and gives back the rest of what was held. Throws `UsageError` for a report that can't be
   *  charged. */
  settle(usage: Usage | Document, options?: DialectOptions): Receipt
  /** Gives everything back: the request never left. */
  cancel(): Receipt
  /** Ends it as unresolved, with the best-known figures. */
  unresolved(cause?: Cause, options?: { seen?: Usage | Document | null; dialect?: Dialect }): Receipt
  /** Ends it as the upstream's answer says: an `Outcome`, or a usage. */
  finish(outcome: Outcome | Usage | Document, options?: DialectOptions): Receipt
  /** A meter for a streamed answer in this dialect. A lease has one at most. */
  stream(dialect?: Dialect, options?: { stripUsage?: boolean }): Stream
  /**
   * Marks the lease as sent, calls `send`, and ends the lease by what came of it, unless `send` has ended it: settled with
   * the usage of what it gives (a `Usage`, an `Outcome`, or a provider's answer), unresolved where that has none. What it
   * throws is thrown; an error with an HTTP `status`, as the providers' clients throw, ends the lease as that answer
   * says, any other leaves it unresolved.
   */
  run<T>(send: (lease: Lease) => T | PromiseLike<T>, options?: DialectOptions): Promise<T>
  /** Leaves the lease as losing it would: where it has not ended, it is unresolved and stays charged as reserved. */
  [Symbol.dispose](): void
  [Symbol.asyncDispose](): Promise<void>
}

/** The meter of a streamed answer. */
export class Stream implements Disposable, AsyncDisposable {
  private constructor()
  readonly lease: Lease
  /** Takes the next bytes of the upstream and gives those that go on to the asker. */
  feed(chunk: Uint8Array): Uint8Array
  /** Sends the heartbeat and raises the hold, where either is due. Throws `Refused` where the answer has to end here. */
  keep(): void
  readonly outputSoFar: number
  /** Whether it said that it is at its end (`[DONE]`, `message_stop`, the last event of a response), or is finished. Streams of
   *  other dialects end with their bytes. */
  readonly isDone: boolean
  /** Ends the stream, also one that broke off, and settles by the provider's own figures, or leaves the lease unresolved
   *  with what is known. The second time it gives the first receipt. What was held back is in `tail`. */
  finish(): Receipt
  /** Bytes that go on to the asker after `finish`. */
  readonly tail: Uint8Array
  /** The receipt, once it is finished. */
  readonly receipt: Receipt | null
  /** All of it in one: feeds and keeps what the upstream sends, gives what goes on to the asker, and finishes, also where
   *  either side breaks off. */
  pipe(source: AsyncIterable<Uint8Array> | Iterable<Uint8Array>): AsyncGenerator<Uint8Array, void, undefined>
  /** Finishes what is not finished. */
  [Symbol.dispose](): void
  [Symbol.asyncDispose](): Promise<void>
}

/** What finalizing did; the same on every repeat but for `repeat`. */
export class Receipt {
  private constructor()
  readonly leaseId: string
  readonly requestId: string | null
  readonly outcome: 'settled' | 'cancelled' | 'unresolved'
  /** The figures that it was settled with. */
  readonly usage: Usage | null
  /** The exact cost. */
  readonly costUsd: Usd
  /** The largest amount held per meter. */
  readonly held: Amounts
  /** What is charged per meter. */
  readonly charged: Amounts
  /** What came back of the holds. */
  readonly returned: Amounts
  /** What was charged beyond the holds. */
  readonly overrun: Amounts
  /** Whether it was unresolved before. */
  readonly late: boolean
  /** Whether this ending repeats an earlier one. */
  readonly repeat: boolean
}

/** A lease whose usage is unknown. */
export interface Unresolved {
  leaseId: string
  requestId: string | null
  tenant: string
  model: string
  cause: Cause
  /** The best-known figures. */
  seen: Usage | null
  held: Amounts
  worstUsd: Usd
}

// ------------------------------------------------------------------------------------------------------------ the gate

/** Counts the input of requests whose count the host has not told: `request.texts`, and what is around them. `tokenizer` is the
 *  one that the policy names for the model. A number is both the guess and the reserve. */
export type Estimator = (
  request: Request,
  tokenizer: Tokenizer,
) => number | { expected: Count; reserve?: Count; exact?: boolean }

/** Takes every entry of a gate's journal as it is written, to keep it elsewhere. */
export interface Journal {
  /** Takes one entry, as `gate.journal()` shows it. Those that another thread wrote, or the end of a lease that was lost,
   *  come on a later turn of the loop. */
  push(entry: Entry): unknown
}

/** Tells how full a pool of replicas is. */
export interface Pool {
  /** The newest that is known, at once; `nowNs` is the gate's time. Nothing (`[]`) means that it is not known. */
  load(nowNs: number): ReplicaLoad[]
  /** Asked once: `false` where replicas are not measured and only their capacity is told. */
  reports?(): boolean
}

/** A crossing of a soft amount, or of a set percentage of a limit. */
export interface Alert {
  /** The tenant whose request crossed it. */
  tenant: string
  scope: string
  limit: string
  meter: Meter
  /** The amount that was crossed. */
  crossed: Amount
  hard: Amount
  /** The amount in use after the request. */
  used: Amount
  /** Whether it is the soft amount; a percentage of the hard one otherwise. */
  soft: boolean
}

/** A function that is told of alerts, until it is stopped. Losing it changes nothing. */
export class Subscription implements Disposable {
  private constructor()
  /** Tells it of no more alerts. `false` if it was stopped before. */
  stop(): boolean
  [Symbol.dispose](): void
}

export interface GateOptions {
  /** For tests: `ManualClock` of `quota-node/testing`. */
  clock?: import('./testing.cjs').ManualClock | undefined
  /** What is known of the pools that the policy names. */
  pools?: Record<string, FixedPool | ReportedPool | import('./testing.cjs').SimulatedPool | Pool> | undefined
  journal?: Journal | undefined
  estimator?: Estimator | undefined
  /** Bounds of the store. */
  maxRows?: Count | undefined
  maxOpenLeases?: Count | undefined
}

/** A tenant, a key of a tenant, or a model. */
export type Target = { tenant: string; key?: string } | { model: string }

/** An entry of the journal: the core's own document, with the names that it has in every language. */
export type Entry = { readonly seq: number; readonly event: string } & Readonly<Record<string, unknown>>

/** Where principals' requests are decided. */
export class Gate {
  constructor(policy: Policy, options?: GateOptions)
  /** The principal of a bearer key, with or without `Bearer ` before it. Throws `Refused`. */
  authenticate(bearer: string): Principal
  /** The principal that claims name which the host has verified. Throws `Refused`. */
  principalFromClaims(claims: object): Principal
  /** Makes a key, with the only sight of its secret. Throws `KeyActError`. */
  issueKey(options: KeyOptions): IssuedKey
  /** Gives a key another secret. The earlier ones work for `overlapMs` more. Throws `KeyActError`. */
  rotateKey(tenant: string, id: string, options: { author: string; overlapMs?: Count }): IssuedKey
  /** Revokes a key with all its secrets, and its children with it; `false` if it had been. Throws `KeyActError`. */
  revokeKey(tenant: string, id: string, options: { author: string }): boolean
  /** The keys of a tenant, in the order of their ids. */
  keys(tenant: string): Key[]
  /** Decides about a request and takes what it may use, all limits or none. Never throws `Refused`. */
  admit(who: Principal, request: Request): Decision
  /** Waits for a request's turn and takes what it may use. Rejects with `Refused`, or with what stopped the wait. */
  acquire(who: Principal, request: Request, options?: WaitOptions): Promise<Lease>
  /** `acquire`, and `run` of its lease. */
  run<T>(
    who: Principal,
    request: Request,
    send: (lease: Lease) => T | PromiseLike<T>,
    options?: WaitOptions & DialectOptions,
  ): Promise<T>
  /** The answer that `admit` would give, without anything taken. */
  preview(who: Principal, request: Request): Preview
  /** Ends a lease by its request's id or its own: late, or from elsewhere. Throws `EndError`. */
  finalize(
    outcome: Outcome | Usage | Document,
    options: DialectOptions & ({ requestId: string } | { leaseId: string }),
  ): Receipt
  /** The state of every limit that applies to a principal, and of a run of it; of scopes that tenants share for operators
   *  only. */
  balances(who: Principal, options?: { runId?: string } | { operator?: boolean }): Balance[]
  /** The story of one request, oldest first: what the journal still has of it. For operators. */
  explain(requestId: string): Entry[]
  /** The newest entries of a tenant's journal, oldest first: those of the last so many milliseconds. For operators. */
  recent(tenant: string, options: { lastMs: Count }): Entry[]
  /** What the journal holds, oldest first, or those of it after a number; and how many entries other than refusals have
   *  gone. */
  journal(options?: { after?: Count }): { entries: Entry[]; dropped: number }
  /** Calls `told` with every alert from now on, on the thread of the admission that crossed it. */
  onAlert(told: (alert: Alert) => unknown): Subscription
  /** Everything that the gate has counted: the core's own document. */
  snapshot(): Record<string, unknown>
  /** Leases whose usage is unknown, the oldest first. */
  unresolved(atMost?: Count): Unresolved[]
  /** Puts another policy in force, at once and whole. Open leases keep their terms, accounts what they hold. */
  reload(policy: Policy): void
  /** Ends leases whose deadline has passed and waits that have lasted too long; how many leases. About once a second, or
   *  let a keeper do it. */
  sweep(atMost?: Count): number
  /** Starts a thread that sweeps every interval (a second), and when somebody has waited as long as may be, until it is
   *  stopped. It does not keep the process alive. */
  keeper(options?: { intervalMs?: Count }): Keeper
  /** The digest of the policy in force. */
  readonly digest: string
  /** Puts a replica's newest sample in, measured now; with `amend` only the figures that it has. `false`, and nothing is
   *  kept, for a pool without reports, or a replica that there is not. Looked at by `sweep`. */
  report(pool: string, replica: Count, load: ReplicaLoad, options?: { amend?: boolean }): boolean
  /** Refuses every request of a tenant, of a key of a tenant, or of a model from now on. */
  freeze(options: Target & { author: string; reason: string }): void
  /** Lets it go on; `false` if it was not frozen. */
  thaw(options: Target & { author: string }): boolean
  /** What is frozen, with the reason. */
  frozen(): { target: string; reason: string }[]
  /** A principal's limits as rate-limit headers. */
  headers(who: Principal, manner?: HeaderManner): Record<string, string>
  /** States how full a pool is, in percent, for steps of degrading; `false` for a pool that the policy does not name. */
  setPressure(pool: string, percent: Count): boolean
  /** How full a pool is, in percent. */
  pressure(pool: string): number | null
  /** Requests in flight in a pool, and those that wait for it; `null` for a pool that there is not. */
  poolLoad(pool: string): { inFlight: number; waiting: number } | null
  /** The most by which the open leases could together pass what they hold. */
  overshoot(): Amounts
  /** The figures of the gate in the OpenMetrics text format, which Prometheus reads. */
  metrics(): string
}

/** The thread that sweeps a gate. */
export class Keeper implements Disposable {
  private constructor()
  /** Stops it. The second time nothing happens. */
  stop(): void
  readonly isRunning: boolean
  [Symbol.dispose](): void
}

// --------------------------------------------------------------------------------------------------------------- pools

/** A pool of replicas that are all alike, of which only the capacity is known. */
export class FixedPool {
  constructor(options: { replicas: Count; maxRunning: Count; kvTokens?: Count })
  readonly replicas: number
  readonly maxRunning: number
  readonly kvTokens: number | null
}

/** A pool whose replicas report: the newest sample of each, until it is too old. `gate.report` puts samples in. */
export class ReportedPool {
  /** `maxRunning` and `kvTokens` stand in where samples tell none. */
  constructor(options: { replicas: Count; ttlMs: Count; maxRunning?: Count; kvTokens?: Count })
  readonly replicas: number
}

/** What one replica reports; a figure that its server does not tell is not there. */
export interface ReplicaLoad {
  /** Requests in the running batch. */
  running?: Count | undefined
  /** Requests that wait inside the server. */
  waiting?: Count | undefined
  /** The part of the memory for keys and values that is in use, in millionths. */
  kvUsedPpm?: Count | undefined
  /** How many tokens that memory holds. */
  kvTokens?: Count | undefined
  /** The most requests that run at once. */
  maxRunning?: Count | undefined
  /** Requests thrown back for lack of memory since the server started. */
  preemptions?: Count | undefined
  /** The gate's time at which this was measured. */
  asOfNs?: Count | undefined
  /** Whether the figures no longer hold. */
  stale?: boolean | undefined
}

/** What a server's text tells. */
export interface LoadReport {
  load: ReplicaLoad
  /** Lines that could not be read and were passed over. */
  badLines: number
  /** The models that the text names. */
  models: string[]
}

/** Reads what an inference server tells of its load: the text of its metrics, its JSON, or an ORCA header. Throws
 *  `InputError`. */
export function readLoad(server: string, text: string, options?: { model?: string }): LoadReport

/** What an engine with a queue of its own is told of a lane's rank: a field of the body, and its value. */
export function priorityHint(server: string, rank: Count): { field: string; value: number } | null

// ------------------------------------------------------------------------------------------------- streams, upstreams

/** Reads the usage of a streamed answer as it passes, without a lease. */
export class StreamReader {
  constructor(dialect?: Dialect, options?: { stripUsage?: boolean; maxEvent?: Count })
  /** Takes the next bytes of the upstream and gives those that go on to the asker. */
  feed(chunk: Uint8Array): Uint8Array
  readonly outputSoFar: number
  /** Ends the stream, also one that broke off. Once. */
  finish(): StreamEnd
}

/** What a stream came to. */
export interface StreamEnd {
  outcome: Outcome
  /** What is known if the outcome is not final. */
  seen: Usage | null
  /** Whether an event said that the answer failed. */
  failed: boolean
  /** Whether the stream said that it is at its end. */
  done: boolean
  /** Events that could not be read. */
  anomalies: number
  /** Bytes that were held back and go on to the asker. */
  tail: Uint8Array
}

interface ClockOptions {
  clock?: import('./testing.cjs').ManualClock | undefined
}

export interface UpstreamLimit {
  limit: number | null
  remaining: number | null
  resetsInMs: number | null
}

/** What an upstream's headers tell of its limits. */
export interface UpstreamLimits {
  requests: UpstreamLimit | null
  tokens: UpstreamLimit | null
  inputTokens: UpstreamLimit | null
  outputTokens: UpstreamLimit | null
  retryAfterMs: number | null
  shouldRetry: boolean | null
}

export const UpstreamLimits: {
  /** Reads `Headers`, pairs of names and values, or an object as `node:http` has it, in any case and order. */
  read(
    headers: Iterable<readonly [string, string]> | Readonly<Record<string, string | readonly string[] | undefined>>,
    options?: ClockOptions,
  ): UpstreamLimits
}

/** What an upstream's error means. */
export interface UpstreamError {
  /** Whose fault it is, as a stable code. */
  fault: string
  isRetryable: boolean
  /** The provider's own code. */
  code: string | null
  retryAfterMs: number | null
}

export const UpstreamError: {
  read(status: number, body?: Document | null, options?: ClockOptions): UpstreamError
}

/** How long a header says that one should wait: seconds, a duration, or an HTTP date; `null` where it says nothing of the
 *  kind. */
export function upstreamWaitMs(value: string, options?: ClockOptions): number | null

// ------------------------------------------------------------------------------------------------------- the scheduler

export interface Lane {
  name: string
  weight?: Count | undefined
  maxWaitMs?: Count | undefined
  maxQueued?: Count | undefined
  floorPercent?: Count | undefined
  ageAfterMs?: Count | undefined
  quantum?: Count | undefined
}

export interface SchedulerOptions {
  /** How many requests the pool runs at once. */
  capacity: Count
  lanes?: Lane[] | undefined
  mode?: 'weighted' | 'priority_with_floor' | undefined
  idleTtlMs?: Count | undefined
  earlyRefusal?: boolean | undefined
}

interface At {
  nowNs: Count
}

interface Tokens {
  inputTokens?: Count | undefined
  cachedTokens?: Count | undefined
  outputTokens?: Count | undefined
}

export interface Arrival extends At, Tokens {
  tenant: string
  lane?: string | undefined
  weight?: Count | undefined
  /** Milli-units of work for a token: input, cached input, output, and a million pairs of input and output. */
  rates?: { input?: Count; cached?: Count; output?: Count; pairs?: Count } | undefined
  reportsProgress?: boolean | undefined
  maxQueued?: Count | undefined
}

/** Who goes next into a pool, without a gate. Times are nanoseconds of a clock of the host's that never steps back. */
export class Scheduler {
  constructor(options: SchedulerOptions)
  /** Takes a place in the queue; its turn may have come when this returns. Throws `QueueRefused`. */
  arrive(arrival: Arrival): Place
  /** Changes how many requests the pool takes. */
  setCapacity(requests: Count, at: At): void
  /** Tells that something was given back in a scope for which turns were put back. */
  released(scope: string, at: At): void
  /** Refuses whoever has waited too long, and lets those that are held try again whose time has come. */
  tick(at: At): void
  /** When something is due that no call would bring about. */
  readonly nextDueNs: number | null
  /** All figures of one moment, for people and their instruments: the core's own document. */
  figures(): Record<string, unknown> | null
}

/** A place in a pool's queue. */
export class Place {
  private constructor()
  /** The turn if it has come; `null` while it waits, and once the turn was given or the place left. Throws
   *  `QueueRefused`. */
  tryTurn(): Turn | null
  /** Whether there is something to pick up, or it was. */
  readonly isDue: boolean
  /** Waits for the turn. Rejects with `QueueRefused`. */
  wait(options?: WaitOptions): Promise<Turn>
  /** Gives the place up, and a turn that has come and was not picked up. */
  leave(): void
}

/** A turn: it holds its room until it ends. */
export class Turn {
  private constructor()
  /** The request took these tokens. `false`, and nothing changes, if the turn has ended. */
  served(took: At & Tokens): boolean
  /** The request took what was expected of it. `false`, and nothing changes, if the turn has ended. */
  servedAsAsked(at: At): boolean
  /** The request never reached the pool: nothing is charged. */
  neverStarted(at: At): boolean
  /** Nobody knows what it took: what was charged stays charged. */
  unknown(at: At): boolean
  /** The output so far. */
  progress(outputTokens: Count): void
  /** Gives the turn back unused because a limit in `scope` has no room: it waits again in its old place. Throws
   *  `QueueRefused`. */
  putBack(scope: string, options: At & { wholeFlow?: boolean; dueNs?: Count }): Place
}

// -------------------------------------------------------------------------------------------------------------- errors

/** What this package throws. */
export class QuotaError extends Error {
  constructor(message: string, fields?: { code?: string; isRetryable?: boolean })
  /** Never changes its meaning and is the same in every language. */
  readonly code: string
  /** Whether the same call may succeed later without anybody changing anything. */
  readonly isRetryable: boolean
}

/** What was given can't be read: no JSON (`json_invalid`), nested too deep (`too_deep`), no price list. */
export class InputError extends QuotaError {}

/** A policy with everything that is wrong with it, in the order of its text. */
export class PolicyError extends InputError {
  readonly errors: PolicyFault[]
  /** How many more there are than `errors` tells. */
  readonly omitted: number
  /** The file's name; `policy` for a text. */
  readonly sourceName: string
}

/** A body that is no request of its kind. Nothing of its text is in here. */
export class RequestError extends InputError {
  /** Where in the body (`messages[2].content`). */
  readonly field: string
  readonly found: string
  readonly allowed: string
}

/** A provider's report that can't be charged as it stands. The lease goes on as it was. */
export class UsageError extends InputError {}

/** A request that was not admitted. `code` is the reason. */
export class Refused extends QuotaError {
  readonly code: ReasonCode
  readonly refusal: Refusal
  /** The same as `code`. */
  readonly reason: ReasonCode
  /** The HTTP status that says the same. */
  readonly status: number
  /** After how long the limits have room, where that is known. */
  readonly retryAfterMs: number | null
}

/** An ending that changed nothing. */
export class EndError extends QuotaError {
  readonly code: 'lease_unknown' | 'lease_conflict' | 'cancel_after_sent' | 'store_unavailable'
  /** Of a conflict: the first field that differs, its value at the first ending and its value now. */
  readonly field?: string
  readonly first?: string
  readonly second?: string
}

/** A key that was not made, rotated or revoked. Nothing was changed. */
export class KeyActError extends QuotaError {}

/** A place in a scheduler's queue that is refused. */
export class QueueRefused extends QuotaError {
  readonly retryAfterMs: number | null
}
