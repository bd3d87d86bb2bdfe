// The dashboard: reads the gateway's figures as server-sent events and shows them.
// Whatever came from outside becomes text nodes, never markup.
"use strict";

const KEY = "quota-gateway-admin-key";
const byId = (id) => document.getElementById(id);
const number = new Intl.NumberFormat("en-US");

/** An element with a class, and texts or elements in it. */
function el(tag, name, ...children) {
  const made = document.createElement(tag);
  if (name) made.className = name;
  made.append(...children.filter((child) => child !== null && child !== undefined).map((child) => (child instanceof Node ? child : String(child))));
  return made;
}

/** Groups of three in a whole number or a decimal text, digit for digit. */
function grouped(value) {
  if (value === null || value === undefined) return "";
  const [whole, fraction] = String(value).split(".");
  if (!/^-?\d+$/.test(whole)) return String(value);
  const shown = number.format(BigInt(whole));
  return fraction === undefined ? shown : `${shown}.${fraction}`;
}

function duration(ms) {
  if (ms === null || ms === undefined) return "";
  const units = [["d", 86400000], ["h", 3600000], ["min", 60000], ["s", 1000]];
  const at = units.findIndex(([, size]) => ms >= size);
  if (at < 0) return `${Math.round(ms)} ms`;
  const [unit, size] = units[at];
  if (unit === "s") return `${Number((ms / 1000).toFixed(1))} s`;
  const whole = `${Math.floor(ms / size)} ${unit}`;
  const next = units[at + 1];
  const rest = next ? Math.floor((ms % size) / next[1]) : 0;
  return rest ? `${whole} ${rest} ${next[0]}` : whole;
}

const time = (at) => new Date(at).toLocaleTimeString("en-GB");
const words = (name) => String(name).replaceAll("_", " ");

// Cells: what a column makes of a line is { text, name, title, request, bar }, and a cell is only touched when that changed.

const text = (key, label) => ({
  key, label,
  cell: (line) => (line[key] ? { text: line[key], name: "name", title: line[key] } : { text: "—", name: "zero" }),
});
const amount = (key, label, warn = "") => ({
  key, label, numeric: true,
  cell: (line) => {
    const zero = line[key] === null || line[key] === undefined || Number(line[key]) === 0;
    return { text: grouped(line[key]), name: `num ${zero ? "zero" : warn}` };
  },
});
const request = { key: "request_id", label: "Request", cell: (line) => ({ request: line.request_id, text: line.request_id ? "" : "—" }) };
const badge = (key, label) => ({ key, label, cell: (line) => ({ badge: line[key] }) });

function paint(td, spec) {
  td.className = spec.name ?? "";
  if (spec.title) td.title = spec.title;
  if (spec.request) {
    const button = el("button", "link", spec.request);
    button.type = "button";
    button.dataset.request = spec.request;
    td.replaceChildren(button);
  } else if (spec.badge) {
    td.replaceChildren(el("span", `badge ${spec.badge}`, words(spec.badge)));
  } else if (spec.bar) {
    const bar = el("div", spec.bar.over ? "bar over" : "bar");
    for (const [name, percent] of spec.bar.parts) {
      const part = el("i", name);
      part.style.width = `${percent}%`;
      bar.append(part);
    }
    td.replaceChildren(bar);
  } else {
    td.replaceChildren(spec.text ?? "");
  }
}

/** A sorted table that keeps its rows from one set of figures to the next, so that a click is never lost. */
class Table {
  /** What the note under it says besides. */
  besides = "";

  constructor(home, columns, { key, sort = null, descending = true, empty }) {
    Object.assign(this, { columns, keyOf: key, sort, descending, empty });
    this.rows = new Map();
    this.lines = [];
    this.all = 0;
    this.body = el("tbody");
    this.heads = columns.map((column) => {
      const button = el("button", "", column.label);
      button.type = "button";
      button.addEventListener("click", () => this.sortBy(column));
      const head = el("th", column.numeric && !column.left ? "num" : "", button);
      head.scope = "col";
      return head;
    });
    this.note = el("p", "more");
    this.table = el("table", "", el("thead", "", el("tr", "", ...this.heads)), this.body);
    byId(home).append(this.table, this.note);
  }

  sortBy(column) {
    this.descending = this.sort === column.key ? !this.descending : Boolean(column.numeric);
    this.sort = column.key;
    this.show();
  }

  fill(lines, all = lines.length) {
    Object.assign(this, { lines, all });
    this.show();
  }

  ordered() {
    const wanted = byId("filter").value.trim().toLowerCase();
    const names = ["tenant", "model", "scope", "limit", "pool", "lane", "reason", "request_id", "event", "plan"];
    const has = (line) => names.some((name) => String(line[name] ?? "").toLowerCase().includes(wanted));
    const lines = this.lines.filter((line) => !wanted || has(line));
    const column = this.columns.find((column) => column.key === this.sort);
    if (!column) return lines;
    const of = (line) => line[column.key] ?? "";
    const compare = column.numeric ? (a, b) => Number(of(a)) - Number(of(b)) : (a, b) => String(of(a)).localeCompare(String(of(b)));
    return lines.sort((a, b) => (this.descending ? -compare(a, b) : compare(a, b)));
  }

  show() {
    const lines = this.ordered();
    const kept = new Map();
    lines.forEach((line, at) => {
      const key = this.keyOf(line);
      const row = this.rows.get(key) ?? this.row();
      kept.set(key, row);
      this.columns.forEach((column, index) => {
        const spec = column.cell(line);
        const print = JSON.stringify(spec);
        if (row.prints[index] === print) return;
        row.prints[index] = print;
        paint(row.cells[index], spec);
      });
      if (this.body.children[at] !== row.tr) this.body.insertBefore(row.tr, this.body.children[at] ?? null);
    });
    for (const [key, row] of this.rows) if (kept.get(key) !== row) row.tr.remove();
    this.rows = kept;
    this.heads.forEach((head, index) => {
      const sorted = this.columns[index].key === this.sort;
      head.setAttribute("aria-sort", sorted ? (this.descending ? "descending" : "ascending") : "none");
    });
    const left = this.all - this.lines.length;
    this.table.hidden = lines.length === 0;
    this.note.hidden = lines.length > 0 && left <= 0 && !this.besides;
    this.note.textContent = lines.length === 0 ? (this.lines.length ? "Nothing matches the filter." : this.empty) : [left > 0 ? `and ${grouped(left)} more` : "", this.besides].filter(Boolean).join("; ");
  }

  row() {
    const cells = this.columns.map(() => el("td"));
    return { tr: el("tr", "", ...cells), cells, prints: [] };
  }
}

const traffic = [
  amount("allowed", "Allowed"), amount("degraded", "Degraded", "warn"), amount("queued", "Queued"), amount("refused", "Refused", "bad"),
  amount("open", "Open"), amount("held_usd", "Held USD"), amount("settled", "Settled"), amount("unresolved", "Unresolved", "warn"),
  amount("input_tokens", "Tokens in"), amount("output_tokens", "Tokens out"), amount("charged_usd", "Charged USD"),
  {
    key: "error", label: "Estimate off by", numeric: true,
    cell: (line) => ({ text: line.error === null ? "—" : `${line.error.toFixed(1)} %`, name: line.error === null ? "num zero" : "num" }),
  },
];
const waiting = amount("waiting", "Waiting");
const wait = (key, label) => ({ key, label, numeric: true, cell: (line) => ({ text: line[key] === null ? "—" : duration(line[key]), name: line[key] ? "num" : "num zero" }) });
// What is there of the most that may be; without a most nothing bounds it.
const ofMost = (key, most, label) => ({
  key, label, numeric: true,
  cell: (line) => ({ text: line[most] === null ? grouped(line[key]) : `${grouped(line[key])} of ${grouped(line[most])}`, name: line[key] ? "num" : "num zero" }),
});

function bar(line) {
  const [hard, used, held, open] = [line.hard, line.used, line.held, line.unresolved].map(Number);
  const whole = Math.max(hard, used) || 1;
  const spent = Math.max(0, used - held - open);
  const percent = (part) => Math.round((1000 * part) / whole) / 10;
  return { parts: [["spent", percent(spent)], ["held", percent(held)], ["unresolved", percent(open)]].filter(([, part]) => part > 0), over: used > hard };
}

const tables = {
  tenants: new Table("tenants", [text("tenant", "Tenant"), text("plan", "Plan"), ...traffic.slice(0, 4), waiting, ...traffic.slice(4)],
    { key: (line) => line.tenant, empty: "The policy names no tenant." }),
  models: new Table("models", [text("model", "Model"), ...traffic], { key: (line) => line.model, empty: "The policy names no model." }),
  pairs: new Table("pairs", [text("tenant", "Tenant"), text("model", "Model"), ...traffic],
    { key: (line) => JSON.stringify([line.tenant, line.model]), empty: "No tenant has a model." }),
  pools: new Table("pools", [
    { key: "pool", label: "Pool", cell: (line) => (line.pool ? { text: line.pool, name: "name", title: line.pool } : { text: "none", name: "zero" }) },
    { key: "percent", label: "Pressure", numeric: true, left: true, cell: (line) => ({ bar: { parts: [[line.percent < 90 ? "spent" : "unresolved", line.percent]] }, title: `${line.percent} %` }) },
    ofMost("in_flight", "most", "In flight"), ofMost("kept", "most_kept", "Kept tokens"), waiting,
    {
      key: "stale_ms", label: "Last report", numeric: true,
      cell: (line) => ({ text: line.stale_ms === null ? "—" : duration(line.stale_ms), title: line.faults.join("; "), name: line.faults.length ? "num warn" : "num" }),
    },
  ], { key: (line) => line.pool, empty: "No pool is watched." }),
  turns: new Table("turns", [
    text("tenant", "Tenant"), text("lane", "Lane"), text("pool", "Pool"), waiting, amount("in_flight", "In flight"),
    amount("turns", "Turns"), wait("wait_ms", "Wait"), amount("deficit", "Deficit"), amount("served", "Served"),
  ], { key: (line) => JSON.stringify([line.pool, line.lane, line.tenant]), empty: "Nobody had to take turns lately." }),
  lanes: new Table("lanes", [
    text("lane", "Lane"), amount("weight", "Weight"), waiting, wait("wait_ms", "Wait"), amount("open", "Open"), amount("allowed", "Allowed"), amount("queued", "Queued"),
    amount("refused", "Refused", "bad"), amount("charged_usd", "USD"),
  ], { key: (line) => line.lane, empty: "There is no lane." }),
  limits: new Table("limits", [
    text("scope", "Scope"), text("limit", "Limit"),
    { key: "full", label: "Use", numeric: true, left: true, cell: (line) => ({ bar: bar(line) }) },
    amount("used", "Used"), amount("held", "Held"), amount("soft", "Soft"), amount("hard", "Hard"), amount("remaining", "Left"),
    { key: "resets_in_ms", label: "Resets in", numeric: true, cell: (line) => ({ text: line.resets_in_ms ? duration(line.resets_in_ms) : "", name: "num" }) },
  ], { key: (line) => JSON.stringify([line.scope, line.limit]), empty: "The policy has no limit." }),
  refusals: new Table("refusals", [
    { key: "reason", label: "Reason", cell: (line) => ({ text: line.reason }) }, text("tenant", "Tenant"), text("model", "Model"), amount("count", "Count"),
    { key: "share", label: "Share", numeric: true, left: true, cell: (line) => ({ bar: { parts: [["unresolved", line.share]] } }) },
  ], { key: (line) => JSON.stringify([line.tenant, line.model, line.reason]), sort: "count", empty: "Nothing was refused." }),
  unresolved: new Table("unresolved", [
    request, text("tenant", "Tenant"), text("model", "Model"),
    { key: "cause", label: "Cause", cell: (line) => ({ text: words(line.cause), name: "warn" }) },
    { key: "age_ms", label: "Age", numeric: true, cell: (line) => ({ text: duration(line.age_ms - (line.age_ms % 1000)), name: "num" }) },
    amount("charged_usd", "Charged USD"),
  ], { key: (line) => line.lease, sort: "age_ms", empty: "Every ended request has its usage." }),
  last: new Table("last", [
    { key: "at", label: "Time", cell: (line) => ({ text: time(line.at), title: line.at, name: "quiet" }) },
    badge("event", "Event"), request, text("tenant", "Tenant"), text("model", "Model"), text("lane", "Lane"),
    amount("input_tokens", "In"), amount("output_tokens", "Out"), amount("usd", "USD"),
    { key: "reason", label: "Reason", cell: (line) => {
      const told = [line.reason, line.message, line.late ? "late" : null].filter(Boolean).join(": ");
      return { text: told, title: told, name: "rest quiet" };
    } },
  ], { key: (line) => line.seq, sort: null, empty: "Nothing was decided yet." }),
};

function tiles(all) {
  const tile = (label, value, name = "") => el("div", `tile ${name}`, el("b", "", grouped(value)), el("span", "", label));
  const more = (label, money) => `${label}${Number(money) > 0 ? `, ${grouped(money)} USD` : ""}`;
  const when = (value, name) => (Number(value) > 0 ? name : "");
  const error = errorOf(all);
  byId("global").replaceChildren(
    tile("allowed", all.allowed), tile("degraded", all.degraded, when(all.degraded, "warn")), tile("told to wait", all.queued),
    tile("refused", all.refused, when(all.refused, "bad")), tile("waiting now", all.waiting), tile(more("open now", all.held_usd), all.open),
    tile(more("unresolved", all.unresolved_usd), all.unresolved, when(all.unresolved, "warn")),
    tile("USD charged", all.charged_usd), tile("tokens in", all.input_tokens), tile("tokens out", all.output_tokens),
    tile("estimate off by", error === null ? "—" : `${error.toFixed(1)} %`),
  );
}

const errorOf = (line) => (line.measured_input > 0 ? (100 * line.estimate_error) / line.measured_input : null);

let figures = null;

function show() {
  if (!figures) return;
  tiles(figures.global);
  byId("policy").textContent = `policy ${String(figures.digest).slice(0, 12)}`;
  byId("policy").title = `digest ${figures.digest}; journal entries no longer there: ${figures.journal_dropped}`;
  const frozen = figures.frozen.lines.map((one) => `${one.target} (${one.reason}, by ${one.author})`);
  byId("frozen").hidden = frozen.length === 0;
  byId("frozen").textContent = `Frozen: ${frozen.join("; ")}`;
  for (const list of ["tenants", "models", "pairs"]) {
    tables[list].fill(figures[list].lines.map((line) => ({ ...line, error: errorOf(line) })), figures[list].all);
  }
  for (const list of ["pools", "lanes", "turns"]) tables[list].fill(figures[list].lines, figures[list].all);
  const unseen = figures.limits.tenants_left_off;
  tables.limits.besides = unseen ? `${grouped(unseen)} tenants with fewer requests were not looked at` : "";
  const money = byId("money").checked;
  const limits = figures.limits.lines.filter((line) => !money || line.meter === "usd");
  tables.limits.fill(limits.map((line) => ({ ...line, full: Number(line.used) / (Number(line.hard) || 1) })), limits.length + figures.limits.all - figures.limits.lines.length);
  const most = Math.max(1, ...figures.refusals.lines.map((line) => line.count));
  tables.refusals.fill(figures.refusals.lines.map((line) => ({ ...line, share: (100 * line.count) / most })), figures.refusals.all);
  tables.unresolved.fill(figures.unresolved.lines, figures.unresolved.all);
  const refusals = byId("refusals-only").checked;
  tables.last.fill(figures.last.filter((line) => !refusals || ["refused", "queued"].includes(line.event)));
}

// A request's story.

const SKIPPED = ["seq", "at", "event", "request_id", "message", "lease"];
// What comes first; the rest follows as it came.
const FIRST = [
  "tenant", "app", "user", "key", "model", "lane", "run", "reason", "cause", "scope", "limit", "meter", "hard", "used", "asked", "held", "used_after",
  "input_guess", "input_expected", "input_reserved", "exact", "output_expected", "output_ceiling", "worst_case_usd", "charged_usd", "cost_usd",
];
const rank = (name) => (FIRST.includes(name) ? FIRST.indexOf(name) : FIRST.length);
const inOrder = (names) => names.sort((a, b) => rank(a) - rank(b));

function facts(object) {
  const list = el("dl");
  for (const name of inOrder(Object.keys(object))) {
    const value = object[name];
    if (value === null || typeof value === "object") continue;
    const shown = typeof value === "boolean" ? (value ? "yes" : "no") : name.endsWith("_ms") ? duration(value) : grouped(value);
    list.append(el("dt", "", words(name.replace(/_ms$/, ""))), el("dd", "", shown));
  }
  return list.children.length ? list : null;
}

function plainTable(lines) {
  const names = inOrder([...new Set(lines.flatMap((line) => Object.keys(line)))]);
  const numeric = (name) => lines.every((line) => line[name] === null || line[name] === undefined || /^-?[\d.]+$/.test(String(line[name])));
  const cell = (tag, name, shown) => el(tag, numeric(name) ? "num" : "", shown);
  const value = (name, value) => (typeof value === "boolean" ? (value ? "yes" : "no") : name.endsWith("_ms") ? duration(value) : grouped(value));
  const head = el("tr", "", ...names.map((name) => cell("th", name, words(name.replace(/_ms$/, "")))));
  const rows = lines.map((line) => el("tr", "", ...names.map((name) => cell("td", name, value(name, line[name])))));
  return el("div", "scroll", el("table", "", el("thead", "", head), el("tbody", "", ...rows)));
}

/** Amounts per meter in one table: charged, returned, overrun. */
function amounts(entry) {
  const kinds = ["charged", "returned", "overrun"].filter((kind) => entry[kind] && typeof entry[kind] === "object");
  if (kinds.length === 0) return [];
  const meters = Object.keys(entry[kinds[0]]);
  return [el("h3", "", "Amounts"), plainTable(meters.map((meter) => Object.fromEntries([["meter", words(meter)], ...kinds.map((kind) => [kind, entry[kind][meter]])])))];
}

function chapter(entry, first) {
  const plain = Object.fromEntries(Object.entries(entry).filter(([name]) => !SKIPPED.includes(name)));
  const after = new Date(entry.at) - new Date(first.at);
  const parts = [
    el("div", "", el("span", `badge ${entry.event}`, words(entry.event)), el("span", "at quiet", `${new Date(entry.at).toISOString()}${after > 0 ? `, ${duration(after)} later` : ""}`)),
    entry.message ? el("p", "", entry.message) : null,
    facts(plain),
    ...amounts(entry),
  ];
  const nested = (name, made) => made && parts.push(el("h3", "", words(name)), made);
  for (const [name, value] of Object.entries(plain)) {
    if (["charged", "returned", "overrun"].includes(name) || value === null || typeof value !== "object") continue;
    if (!Array.isArray(value)) {
      const lists = Object.entries(value).filter(([, inner]) => Array.isArray(inner) && inner.length);
      nested(name, facts({ ...value, ...Object.fromEntries(lists.map(([inner, items]) => [inner, items.join(", ")])) }));
    } else if (value.length) nested(name, plainTable(value));
  }
  return el("article", "", ...parts);
}

async function tell(id) {
  byId("story-title").textContent = id;
  byId("entries").replaceChildren(el("p", "empty", "…"));
  if (!byId("story").open) byId("story").showModal();
  try {
    const answer = await fetch(`/admin/requests/${encodeURIComponent(id)}`, { headers: bearer(), cache: "no-store" });
    const body = await answer.json();
    if (byId("story-title").textContent !== id) return;
    const entries = answer.ok ? body.entries.map((entry) => chapter(entry, body.entries[0])) : [el("p", "empty", body.error.message)];
    byId("entries").replaceChildren(...entries);
  } catch (why) {
    byId("entries").replaceChildren(el("p", "empty bad", `The gateway gave no answer: ${why.message}`));
  }
}

// The stream.

const bearer = () => ({ authorization: `Bearer ${sessionStorage.getItem(KEY)}` });
const pause = (ms) => new Promise((done) => setTimeout(done, ms));
let watching = null;

function state(name, told) {
  byId("state").className = `state ${name}`;
  byId("state").textContent = told;
}

/** Reads the events of one connection to its end. */
async function read(body, signal) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done || signal.aborted) return;
    const events = (rest + value).split("\n\n");
    rest = events.pop();
    const data = events.at(-1)?.split("\n").filter((line) => line.startsWith("data:")).map((line) => line.slice(5).trimStart()).join("\n");
    if (!data) continue;
    figures = JSON.parse(data);
    byId("figures").hidden = byId("filter-label").hidden = false;
    state("live", "live");
    show();
  }
}

async function watch() {
  watching?.abort();
  const here = (watching = new AbortController());
  byId("enter").hidden = true;
  byId("forget").hidden = false;
  state("", "connecting");
  for (let wait = 500; !here.signal.aborted; wait = Math.min(2 * wait, 10000)) {
    try {
      const answer = await fetch("/admin/dashboard/events", { headers: bearer(), cache: "no-store", signal: here.signal });
      if (answer.status === 401) return forget("The gateway does not know this key.");
      if (answer.ok) {
        wait = 500;
        await read(answer.body, here.signal);
      }
    } catch {
      // The connection broke: it is made again below.
    }
    if (here.signal.aborted) return;
    state("late", "connection lost, trying again");
    await pause(wait);
  }
}

function forget(why = "") {
  watching?.abort();
  sessionStorage.removeItem(KEY);
  figures = null;
  byId("figures").hidden = byId("forget").hidden = byId("filter-label").hidden = true;
  byId("enter").hidden = false;
  byId("policy").textContent = "";
  byId("refused").textContent = why;
  state("", "not connected");
  byId("key").focus();
}

byId("enter").addEventListener("submit", (event) => {
  event.preventDefault();
  // A header holds no other characters, and no key has any.
  const key = byId("key").value.trim();
  byId("key").value = "";
  if (!/^[\x21-\x7e]+$/.test(key)) return forget("A key has printable ASCII characters only.");
  byId("refused").textContent = "";
  sessionStorage.setItem(KEY, key);
  watch();
});
byId("forget").addEventListener("click", () => forget());
byId("filter").addEventListener("input", show);
byId("money").addEventListener("change", show);
byId("refusals-only").addEventListener("change", show);
byId("close").addEventListener("click", () => byId("story").close());
byId("story").addEventListener("click", (event) => event.target === byId("story") && byId("story").close());
document.addEventListener("click", (event) => {
  const { request: id } = event.target.closest?.("[data-request]")?.dataset ?? {};
  if (id) tell(id);
});
for (const tab of document.querySelectorAll("[role=tab]")) {
  tab.addEventListener("click", () => {
    for (const other of document.querySelectorAll("[role=tab]")) {
      other.setAttribute("aria-selected", String(other === tab));
      byId(other.dataset.list).hidden = other !== tab;
    }
  });
}
if (sessionStorage.getItem(KEY)) watch();
else byId("key").focus();
