import {card, change, element, facts, pastHolder, tableRow, tick} from "./view.js";

const $ = (id) => document.getElementById(id);
const session = {mayBreak: false, token: ""};
let stream = null; // of events
let query = {q: "", state: "", sort: "name", desc: false, page: 1};
let chosen = -1; // the row that the keys have chosen
let shown = null; // the lock of the detail view
let heard = 0; // when the last event came
let fault = "";

const route = () => {
  const path = location.hash.replace(/^#\/?/, "");
  if (path.startsWith("lock/")) return {view: "detail", name: decodeURIComponent(path.slice(5))};
  return {view: path === "instances" ? "instances" : "locks"};
};

function open() {
  const to = route();
  for (const id of ["locks", "instances", "detail"]) $(id).hidden = id !== to.view;
  for (const link of document.querySelectorAll("nav [data-view]")) {
    if (link.dataset.view === to.view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = (to.name || (to.view === "instances" ? "Instances" : "Locks")) + " – Holdfast";
  if (to.view === "detail") {
    shown = {name: to.name, row: null};
    $("detail-title").textContent = to.name;
    $("facts").replaceChildren();
    $("timeline").replaceChildren();
    $("break").hidden = true;
    follow({name: to.name}, showDetail);
  } else if (to.view === "instances") {
    follow({view: "instances"}, (list) => {
      $("cards").replaceChildren(...list.map(card));
      if (!list.length) $("cards").replaceChildren(element("p", {class: "note"}, "Nobody holds a lock."));
    });
  } else {
    followLocks();
  }
}

function followLocks() {
  follow({q: query.q, state: query.state, sort: query.sort, desc: query.desc ? "1" : "", page: query.page}, showLocks);
}

// follow connects to the events of a view. The browser reconnects by itself.
function follow(parameters, show) {
  stream?.close();
  stream = new EventSource("api/events?" + new URLSearchParams(Object.entries(parameters).filter(([, v]) => v !== "")));
  const mine = stream;
  const came = (event) => {
    if (mine !== stream) return;
    heard = performance.now();
    return JSON.parse(event.data);
  };
  mine.addEventListener("view", (event) => {
    const content = came(event);
    if (content === undefined) return;
    fault = content.error || "";
    show(content);
    showLive();
  });
  mine.addEventListener("tick", (event) => {
    const content = came(event);
    if (content === undefined) return;
    fault = content.error || "";
    showLive();
  });
  mine.addEventListener("error", () => {
    if (mine !== stream) return;
    heard = 0;
    showLive();
    if (mine.readyState === EventSource.CLOSED) setTimeout(() => mine === stream && open(), 2000);
  });
}

function showLive() {
  const stale = !heard || performance.now() - heard > 10_000;
  $("live").textContent = stale ? "Not connected: what you see may be old" : fault ? "Connected; the backend fails" : "Live";
  $("live").classList.toggle("bad", stale || !!fault);
  $("problem").hidden = !fault;
  $("problem").textContent = fault ? "The backend cannot be read; the page shows what was read last. " + fault : "";
}

function stamped(row) {
  return {...row, came: performance.now()};
}

function showLocks(view) {
  const now = performance.now();
  const focused = document.activeElement?.closest?.("tr")?.row?.name;
  const lines = view.rows.map((row) => tableRow(stamped(row), now));
  $("rows").replaceChildren(...lines);
  if (focused) lines.find((line) => line.row.name === focused)?.querySelector("a").focus({preventScroll: true});
  const part = (state) => `${view.states[state] || 0} ${state}`;
  const filtered = query.q || query.state ? `${view.matching} shown of ` : "";
  $("counts").textContent = `${filtered}${view.total} locks: ${part("held")}, ${part("free")}` + (view.states.broken ? `, ${part("broken")}` : "") + (view.states.unknown ? `, ${part("unknown")}` : "") +
    (view.unreadable ? `. Unreadable records: ${view.unreadable.join(", ")}` : "");
  $("empty").hidden = view.rows.length > 0;
  $("empty").textContent = view.total ? "No lock matches." : "There is no lock yet.";
  $("pages").hidden = view.pages < 2;
  $("page").textContent = `Page ${view.page} of ${view.pages}`;
  $("previous").disabled = view.page <= 1;
  $("next").disabled = view.page >= view.pages;
  query.page = view.page;
}

async function showDetail(content) {
  const row = stamped(content);
  const told = change(shown.row, row);
  if (told) {
    $("timeline").prepend(element("li", {}, element("time", {}, new Date().toLocaleTimeString()), told));
    showHistory(row.name);
  }
  shown.row = row;
  $("facts").replaceChildren(...facts(row, performance.now()));
  $("break").hidden = !(session.mayBreak && row.state === "held" && row.token);
}

// showHistory appends the past holders that the record names, below what this page has seen.
async function showHistory(name) {
  const answer = await fetch("api/lock?" + new URLSearchParams({name}));
  if (!answer.ok || shown?.name !== name) return;
  const {history = []} = await answer.json();
  for (const line of $("timeline").querySelectorAll(".past")) line.remove();
  for (const tenure of history) {
    const line = pastHolder(tenure);
    line.classList.add("past");
    $("timeline").append(line);
  }
}

async function askToBreak() {
  const row = shown.row;
  $("confirm-text").textContent = `${row.name} is held by ${row.owner || "an unknown owner"}, token ${row.token}.`;
  $("confirm").returnValue = "no";
  $("confirm").showModal();
  await new Promise((done) => $("confirm").addEventListener("close", done, {once: true}));
  $("break").focus();
  if ($("confirm").returnValue !== "yes") return;
  const answer = await fetch("api/break", {
    method: "POST", headers: {"Content-Type": "application/json", "X-Holdfast-Token": session.token},
    body: JSON.stringify({name: row.name, token: row.token}),
  });
  const text = answer.ok ? "broken from this page" : (await answer.json()).error;
  $("timeline").prepend(element("li", {}, element("time", {}, new Date().toLocaleTimeString()), text));
}

function search() {
  query = {q: $("text").value.trim(), state: $("state").value, sort: $("sort").value, desc: $("desc").checked, page: 1};
  chosen = -1;
  followLocks();
}

function turn(by) {
  query.page += by;
  chosen = -1;
  followLocks();
}

function choose(by) {
  const lines = $("rows").children;
  if (!lines.length) return;
  const at = [...lines].indexOf(document.activeElement?.closest?.("tr"));
  chosen = Math.max(0, Math.min(lines.length - 1, (at < 0 ? chosen : at) + by));
  lines[chosen].querySelector("a").focus();
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || $("confirm").open) return;
  const typing = event.target.matches("input, select, textarea");
  if (event.key === "Escape") {
    if (typing) event.target.blur();
    else if (route().view !== "locks") location.hash = "#/";
    return;
  }
  if (typing || route().view !== "locks") return;
  const actions = {"/": () => $("text").focus(), ArrowDown: () => choose(1), ArrowUp: () => choose(-1), j: () => choose(1), k: () => choose(-1),
    n: () => !$("next").disabled && turn(1), p: () => !$("previous").disabled && turn(-1)};
  if (actions[event.key]) {
    event.preventDefault();
    actions[event.key]();
  }
});

let typed = 0;
$("text").addEventListener("input", () => {
  clearTimeout(typed);
  typed = setTimeout(search, 200);
});
for (const id of ["state", "sort", "desc"]) $(id).addEventListener("change", search);
$("filter").addEventListener("submit", (event) => event.preventDefault());
$("previous").addEventListener("click", () => turn(-1));
$("next").addEventListener("click", () => turn(1));
$("break").addEventListener("click", askToBreak);
window.addEventListener("hashchange", open);

setInterval(() => {
  const now = performance.now();
  for (const line of $("rows").children) tick(line, now);
  if (shown?.row && !$("detail").hidden) $("facts").replaceChildren(...facts(shown.row, now));
  showLive();
}, 1000);

const answer = await fetch("api/session");
if (answer.ok) Object.assign(session, await answer.json());
open();
