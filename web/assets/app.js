import {card, change, duration, element, holderLine, pastHolder, setText, showFacts, sync, tableRow, updateHolder, updateRow} from "./view.js";

const $ = (id) => document.getElementById(id);
const session = {mayBreak: false, token: ""};
const staleAfter = 10_000; // the server sends an event at least every 4 s
const mostChanges = 200; // that the timeline shows
const defaults = {q: "", state: "", sort: "held", desc: "", page: "1"};

let stream = null; // of events
let view = "";
let query = {...defaults}; // of the view; it is in the address, too
let locksAddress = "#/"; // of the list that was shown last
let chosen = -1; // the row that the keys have chosen
let shown = null; // the lock of the detail view
let asked = null; // the lock that the question is about, with the token of the holder to break
let pressed = null; // the button that was pressed for it
let returning = null; // the name of the lock from which the reader goes back to the list
let heard = null; // when the last event came; null before the first, -Infinity after a failure
let readAt = null; // when the backend answered; null before its first answer
let overdueAt = 0; // when its next answer is overdue
let fault = "";

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch { // an address that was typed
    return text;
  }
}

function route() {
  const [path, parameters = ""] = location.hash.replace(/^#\/?/, "").split("?", 2);
  if (path.startsWith("lock/")) return {view: "detail", name: decoded(path.slice(5)), query: {...defaults}};
  const given = new URLSearchParams(parameters);
  return {view: path === "instances" ? "instances" : "locks", query: Object.fromEntries(Object.entries(defaults).map(([key, value]) => [key, given.get(key) ?? value]))};
}

// nonDefault returns the parameters that say what to show.
const nonDefault = () => new URLSearchParams(Object.entries(query).filter(([key, value]) => value !== defaults[key]));

// open shows what the address says.
function open() {
  const to = route();
  const before = view;
  view = to.view;
  query = to.query;
  for (const id of ["locks", "instances", "detail"]) $(id).hidden = id !== view;
  $("filter").hidden = view === "detail";
  $("pages").hidden = true;
  for (const node of document.querySelectorAll(".of-locks")) node.hidden = view !== "locks";
  for (const link of document.querySelectorAll("nav [data-view]")) {
    if (link.dataset.view === view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = (to.name || (view === "instances" ? "Instances" : "Locks")) + " – Holdfast";
  showQuery();
  returning = before === "detail" && view === "locks" ? shown?.name : null;
  shown = null;
  if (view === "detail") {
    shown = {name: to.name, row: null};
    $("detail-title").textContent = to.name;
    $("back").href = locksAddress;
    $("facts").replaceChildren();
    $("timeline").replaceChildren();
    $("outcome").hidden = true;
    $("break").hidden = $("sharing").hidden = true;
    $("holders-list").replaceChildren();
    if (before) $("detail-title").focus();
  } else if (before && before !== view && !returning) {
    $("main").focus({preventScroll: true});
  }
  follow();
}

// showQuery puts the query into the form. What is no choice there is replaced by the default.
function showQuery() {
  if (document.activeElement !== $("text")) $("text").value = query.q;
  for (const id of ["state", "sort"]) {
    $(id).value = query[id];
    if ($(id).selectedIndex < 0) $(id).value = query[id] = defaults[id];
  }
  query.desc = query.desc === "1" ? "1" : "";
  query.page = String(Math.max(1, Number.parseInt(query.page, 10) || 1));
  $("desc").checked = query.desc === "1";
  for (const button of document.querySelectorAll(".sort")) {
    const head = button.closest("th");
    if (button.dataset.sort === query.sort) head.setAttribute("aria-sort", query.desc ? "descending" : "ascending");
    else head.removeAttribute("aria-sort");
  }
  if (view === "locks") locksAddress = location.hash || "#/";
}

// ask changes the query, and the address with it.
function ask(changes) {
  query = {...query, page: "1", ...changes};
  chosen = -1;
  const parameters = nonDefault().toString();
  history.replaceState(null, "", (view === "instances" ? "#/instances" : "#/") + (parameters && "?" + parameters));
  showQuery();
  follow();
}

// follow connects to the events of the view. The browser reconnects by itself.
function follow() {
  stream?.close();
  stream = null;
  if (document.hidden) return; // until somebody looks again
  const parameters = view === "detail" ? new URLSearchParams({name: shown.name}) : nonDefault();
  if (view === "instances") parameters.set("view", "instances");
  else if (view === "locks") parameters.set("sort", query.sort); // the server's own default is the name
  const show = {locks: showLocks, instances: showInstances, detail: showDetail}[view];
  const mine = stream = new EventSource("api/events?" + parameters);
  for (const kind of ["view", "tick"]) {
    mine.addEventListener(kind, (event) => {
      if (mine !== stream) return;
      const {ageMs, dueMs, error = "", content} = JSON.parse(event.data);
      heard = performance.now();
      readAt = ageMs === undefined ? null : heard - ageMs;
      overdueAt = heard + dueMs;
      fault = error;
      if (content) show(content);
      showTime();
    });
  }
  mine.addEventListener("error", () => {
    if (mine !== stream) return;
    heard = -Infinity;
    showTime();
    if (mine.readyState === EventSource.CLOSED) setTimeout(() => mine === stream && follow(), 2000);
  });
}

// clock is the time by which the time left is counted. It is null while what is shown is old: the
// holder may have renewed or released since.
function clock() {
  const now = performance.now();
  return fault || now > Math.min(heard + staleAfter, overdueAt) ? null : now;
}

function showLive() {
  const now = performance.now();
  const stale = heard !== null && now - heard > staleAfter;
  const old = heard !== null && clock() === null;
  setText($("live"), heard === null ? "Connecting…" : stale ? "Not connected: what you see may be old" : fault ? "Connected, but the backend fails"
    : old ? "No answer from the backend" : "Live");
  const age = readAt === null ? 0 : now - readAt;
  setText($("age"), age > 2000 ? old ? `(last answer ${duration(age)} ago)` : `as of ${duration(age)} ago` : "");
  $("live").parentElement.classList.toggle("bad", old);
  $("live").parentElement.classList.toggle("waiting", heard === null);
  $("main").classList.toggle("old", old);
  $("problem").hidden = !fault;
  setText($("problem"), fault ? "The backend cannot be read. " + (readAt === null ? "" : "The page shows what was read last. ") + fault : "");
}

// showTime shows what changes with time alone.
function showTime() {
  const now = clock();
  for (const line of $("rows").children) updateRow(line, line.row, now);
  if (shown?.row) showHolders();
  showLive();
}

const stamped = (row) => ({...row, came: performance.now(), holders: row.holders?.map((holder) => ({...holder, came: performance.now()}))});

function showPages(content) {
  $("pages").hidden = content.pages < 2;
  setText($("page"), `Page ${content.page} of ${content.pages}`);
  $("previous").disabled = content.page <= 1;
  $("next").disabled = content.page >= content.pages;
  query.page = String(content.page);
}

function showLocks(content) {
  const now = clock();
  sync($("rows"), content.rows.map(stamped), (row) => row.name, tableRow, (line, row) => updateRow(line, row, now));
  const part = (state) => `${content.states[state] || 0} ${state}`;
  const filtered = query.q || query.state ? `${content.matching} shown of ` : "";
  setText($("counts"), `${filtered}${content.total} lock${content.total === 1 ? "" : "s"}: ${part("held")}, ${part("free")}` +
    (content.states.broken ? `, ${part("broken")}` : "") + (content.states.unknown ? `, ${part("unknown")}` : ""));
  $("unreadable").hidden = !content.unreadable;
  setText($("unreadable"), content.unreadable ? `Records that cannot be read: ${content.unreadable.join(", ")}` : "");
  $("locks").querySelector("table").hidden = !content.rows.length;
  $("empty").hidden = content.rows.length > 0;
  setText($("empty"), content.total ? "No lock matches." : "There is no lock yet.");
  showPages(content);
  if (!returning) return;
  ([...$("rows").children].find((line) => line.row.name === returning)?.querySelector("a") || $("main")).focus({preventScroll: true});
  returning = null;
}

function showInstances(content) {
  const words = `${content.total} instance${content.total === 1 ? " holds" : "s hold"} locks`;
  setText($("holders"), (query.q ? `${content.matching} shown of ` : "") + words + ". Partitions are grouped; the rest are locks and elections, by name.");
  sync($("cards"), content.instances, (i) => JSON.stringify(i), card, () => {});
  if (!content.instances.length) $("cards").replaceChildren(element("p", {class: "note"}, content.total ? "No instance matches." : "Nobody holds a lock."));
  showPages(content);
}

function addToTimeline(text) {
  $("timeline").prepend(element("li", {class: "seen"}, element("time", {}, new Date().toLocaleTimeString()), text));
  for (const line of [...$("timeline").querySelectorAll(".seen")].slice(mostChanges)) line.remove();
}

function showDetail(content) {
  const row = stamped(content);
  const text = change(shown.row, row);
  if (text) {
    addToTimeline(text);
    showHistory(row.name);
  }
  shown.row = row;
  showHolders();
}

// showHolders shows who holds the lock that is shown. Each of several can be broken by itself.
function showHolders() {
  const now = clock();
  const {row} = shown;
  const holders = row.holders || [];
  showFacts($("facts"), row, now);
  $("break").hidden = !(session.mayBreak && row.state === "held" && !row.sharing);
  $("sharing").hidden = !row.sharing;
  sync($("holders-list"), holders, (holder) => holder.token, () => holderLine(askToBreak), (line, holder) => updateHolder(line, holder, now, session.mayBreak));
  setText($("more-holders"), row.sharing > holders.length ? `and ${row.sharing - holders.length} more` : "");
}

// request returns whether the server did what was asked, and what it answered.
async function request(path, options) {
  try {
    const answer = await fetch(path, options);
    return {ok: answer.ok, content: await answer.json()};
  } catch {
    return {ok: false, content: {error: "the server does not answer"}};
  }
}

// showHistory appends the past holders that the record names, below what this page has seen.
async function showHistory(name) {
  const {ok, content} = await request("api/lock?" + new URLSearchParams({name}));
  if (!ok || shown?.name !== name) return;
  for (const line of $("timeline").querySelectorAll(".past")) line.remove();
  $("timeline").append(...(content.history || []).map(pastHolder));
}

// askToBreak asks about the holder, or about one of those who share the lock.
function askToBreak(holder, button) {
  const row = {...shown.row, ...holder};
  const others = (row.sharing || 1) - 1;
  setText($("question-text"), `${row.name} is held by ${row.owner || "an owner that the backend does not report"}, token ${row.token || "unknown"}.`);
  setText($("question-notice"), row.endless ? "The holder is not notified, and may still be at work." : "The holder's work is cancelled when it notices, before its lease ends.");
  // Until the answer the holder may renew the lease, whatever time is left.
  const ends = `when the lease ends${row.ttlMs ? `, within one TTL (${duration(row.ttlMs)})` : ""}`;
  setText($("question-when"), row.endless ? "Its lease never ends, so the lock becomes free at once." : others ? `The holder is one no longer ${ends}. ${others} more share${others > 1 ? "" : "s"} the lock, and keep${others > 1 ? "" : "s"} it.`
    : `Others can acquire the lock ${ends}. Two holders never overlap.`);
  asked = row;
  pressed = button;
  $("question").returnValue = "no";
  $("question").showModal();
}

// answered breaks the lock if the answer is yes. The event can come late, when the question was
// asked again: then it is not about the answer.
async function answered() {
  if ($("question").open || !asked) return;
  const row = asked;
  asked = null;
  if ($("question").returnValue !== "yes") {
    focusAgain();
    return;
  }
  await readSession(); // the server may have been restarted since
  const {ok, content} = await request("api/break", {
    method: "POST", headers: {"Content-Type": "application/json", "X-Holdfast-Token": session.token || ""},
    body: JSON.stringify({name: row.name, ...row.token ? {token: row.token} : {unknown: true}}),
  });
  if (shown?.name !== row.name) return;
  const whom = row.token ? `token ${row.token}` : "the unknown holder";
  const text = ok ? `Broken: the backend refuses the renewals of ${whom}.` : `Not broken: ${content.error}.`;
  $("outcome").hidden = false;
  $("outcome").classList.toggle("bad", !ok);
  setText($("outcome"), text);
  addToTimeline(ok ? `${whom} was broken from this page` : `not broken: ${content.error}`);
  focusAgain();
}

// focusAgain sets the focus where it was before the question, or, if that is gone, on the title.
function focusAgain() {
  (pressed?.isConnected && !pressed.hidden && !pressed.closest("[hidden]") ? pressed : $("detail-title")).focus();
}

async function readSession() {
  const {ok, content} = await request("api/session");
  if (!ok) return;
  session.mayBreak = content.mayBreak;
  session.token = content.token;
  $("backend").hidden = !content.backend;
  setText($("backend"), content.backend || "");
  setText($("rights"), [content.mayBreak ? "You may break locks." : "Read-only.",
    ...content.prefix ? [`Only locks that begin with ${content.prefix} are shown.`] : [], ...content.caveats || []].join(" "));
  if (shown?.row) showHolders();
}

function turn(by) {
  ask({page: String(Number(query.page) + by)});
}

function choose(by) {
  const lines = $("rows").children;
  if (!lines.length) return;
  const at = [...lines].indexOf(document.activeElement?.closest?.("tr"));
  chosen = Math.max(0, Math.min(lines.length - 1, (at < 0 ? chosen : at) + by));
  lines[chosen].querySelector("a").focus();
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || $("question").open) return;
  const typing = event.target.matches("input:not([type=checkbox]), select, textarea");
  if (event.key === "Escape") {
    if (typing) event.target.blur();
    else if (view !== "locks") location.hash = locksAddress;
    return;
  }
  if (typing || view === "detail" || (event.key.length === 1 && !$("letters").checked)) return;
  const paging = {"/": () => $("text").focus(), n: () => !$("next").disabled && turn(1), p: () => !$("previous").disabled && turn(-1)};
  const choosing = {ArrowDown: () => choose(1), ArrowUp: () => choose(-1), j: () => choose(1), k: () => choose(-1)};
  const action = paging[event.key] || (view === "locks" && choosing[event.key]);
  if (!action) return;
  event.preventDefault();
  action();
});

let typed = 0;
$("text").addEventListener("input", () => {
  clearTimeout(typed);
  typed = setTimeout(() => ask({q: $("text").value.trim()}), 200);
});
$("state").addEventListener("change", () => ask({state: $("state").value}));
$("sort").addEventListener("change", () => ask({sort: $("sort").value}));
$("desc").addEventListener("change", () => ask({desc: $("desc").checked ? "1" : ""}));
for (const button of document.querySelectorAll(".sort")) {
  button.addEventListener("click", () => ask({sort: button.dataset.sort, desc: query.sort === button.dataset.sort && !query.desc ? "1" : ""}));
}
$("filter").addEventListener("submit", (event) => event.preventDefault());
$("previous").addEventListener("click", () => turn(-1));
$("next").addEventListener("click", () => turn(1));
$("break").addEventListener("click", () => askToBreak({}, $("break")));
$("question").addEventListener("close", answered);
$("skip").addEventListener("click", (event) => {
  event.preventDefault(); // the part after # says what is shown
  $("main").focus();
});
window.addEventListener("hashchange", open);
// A tab that nobody sees asks for nothing: each reader costs the backend requests.
document.addEventListener("visibilitychange", follow);

try { // a browser may forbid storage
  $("letters").checked = localStorage.getItem("holdfast-letters") !== "no";
  $("letters").addEventListener("change", () => localStorage.setItem("holdfast-letters", $("letters").checked ? "yes" : "no"));
} catch { /* the choice lasts as long as the page */ }

setInterval(showTime, 1000);

readSession();
open();
