// How things are shown. Nothing here sends a request. All text is set as text, never as HTML, and
// nodes are changed only where they differ, so that a selection, the focus and a click survive.

export const words = {held: "held", free: "free", broken: "broken", unknown: "unknown", late: "expires soon", absent: "no record", unreadable: "unreadable record"};

export function element(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === "class") node.className = value;
    else if (name in node) node[name] = value;
    else node.setAttribute(name, value);
  }
  node.append(...children.filter((c) => c !== null && c !== undefined));
  return node;
}

export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// sync makes the children of a node show the items, in their order. A child stays as long as
// there is an item with its key.
export function sync(parent, items, keyOf, make, update) {
  const old = new Map([...parent.children].map((child) => [child.key, child]));
  const focused = document.activeElement;
  items.forEach((item, at) => {
    const key = keyOf(item);
    let child = old.get(key);
    if (!child) {
      child = make(item);
      child.key = key;
    }
    old.delete(key);
    update(child, item);
    // Of a row that moves down, the row itself moves: those behind it keep focus and selection.
    if (parent.children[at] !== child && parent.children[at + 1] === child) parent.append(parent.children[at]);
    if (parent.children[at] !== child) parent.insertBefore(child, parent.children[at] || null);
  });
  for (const child of old.values()) child.remove();
  if (focused !== document.activeElement && parent.contains(focused)) focused.focus({preventScroll: true}); // it was moved
}

export function duration(ms) {
  if (ms < 10_000) return (ms / 1000).toFixed(1) + " s";
  if (ms < 120_000) return Math.round(ms / 1000) + " s";
  if (ms < 7_200_000) return Math.round(ms / 60_000) + " min";
  if (ms < 172_800_000) return Math.round(ms / 3_600_000) + " h";
  return Math.round(ms / 86_400_000) + " days";
}

export function moment(text) {
  const at = new Date(text);
  const today = new Date().toDateString() === at.toDateString();
  return today ? at.toLocaleTimeString() : at.toLocaleString();
}

// leftOf is the time left of a row that came at a time of this page's clock. It is null if it is not
// known, as it is when now is null, because what is shown is old.
function leftOf(row, now) {
  return row.remainingMs === undefined || now === null ? null : Math.max(0, row.remainingMs - (now - row.came));
}

// stateOf names a state. A held lock with little time left has its own: its holder may be gone.
export function stateOf(row, now) {
  const left = leftOf(row, now);
  return row.state === "held" && left !== null && row.ttlMs && left < row.ttlMs / 3 ? "late" : row.state;
}

const isHeld = (row) => row.state === "held" || row.state === "broken";

function showState(node, row, now) {
  const state = stateOf(row, now);
  if (!node.firstChild) node.append(element("span"), element("span", {class: "waiters"}));
  const [name, waiters] = node.children;
  if (name.className !== "state " + state) name.className = "state " + state;
  setText(name, words[state] || state);
  setText(waiters, [row.sharing && `shared by ${row.sharing}`, row.waiters && `${row.waiters} waiting`].filter(Boolean).join(", "));
}

// showLeft shows the time left and its bar. A backend that does not report it may know the TTL.
function showLeft(node, row, now) {
  const left = leftOf(row, now);
  if (!node.firstChild) {
    node.className = "left";
    node.append(element("span"), element("progress", {max: 1, value: 0, "aria-label": "Time left of " + row.name}));
  }
  const [text, bar] = node.children;
  const known = isHeld(row) && left !== null;
  bar.hidden = !known;
  if (known) {
    bar.max = row.ttlMs || left || 1;
    bar.value = left;
  }
  setText(text, known ? duration(left) : !isHeld(row) ? "–" : row.endless ? "never ends" : now === null ? "not known" : row.ttlMs ? "at most " + duration(row.ttlMs) : "not reported");
}

function ownerText(row) {
  if (isHeld(row)) return (row.owner || "not reported") + (row.sharing > 1 ? ` and ${row.sharing - 1} more` : "");
  return row.owner ? "last: " + row.owner : "–";
}

const renewedText = (row) => isHeld(row) ? (row.renewedAt ? moment(row.renewedAt) : "not reported") : "–";

const labels = ["Lock", "State", "Owner", "Token", "Time left", "Last renewal"];

export function tableRow(row) {
  const cells = labels.map((label) => {
    const cell = element("td", {role: "cell"}, element("div"));
    cell.dataset.label = label;
    return cell;
  });
  cells[0].className = "name";
  cells[0].replaceChildren(element("a", {href: "#/lock/" + encodeURIComponent(row.name)}, row.name));
  return element("tr", {role: "row"}, ...cells);
}

export function updateRow(line, row, now) {
  line.row = row;
  const [, state, owner, token, left, renewed] = [...line.children].map((cell) => cell.firstChild);
  showState(state, row, now);
  setText(owner, ownerText(row));
  setText(token, row.token || "–");
  showLeft(left, row, now);
  setText(renewed, renewedText(row));
}

// facts lists what is known of a lock: a label, and a text or a function that shows it in a node.
function facts(row, now) {
  const list = [["State", (node) => showState(node, row, now)]];
  if (row.state === "absent" || row.state === "unreadable") return list;
  if (!row.sharing) list.push([isHeld(row) ? "Owner" : "Last owner", isHeld(row) ? ownerText(row) : row.owner || "–"], ["Token", row.token || "–"]);
  if (isHeld(row)) {
    list.push(["Time left", (node) => showLeft(node, row, now)]);
    if (row.endless) list.push(["Lease", `${row.lease} Make sure that its holder has stopped before you break it.`]);
    if (row.ttlMs) list.push(["TTL", duration(row.ttlMs)]);
    if (row.sharing) return list;
    list.push(["Held since", row.acquiredAt ? moment(row.acquiredAt) : "not reported"], ["Last renewal", renewedText(row)]);
  }
  return list;
}

export function showFacts(node, row, now) {
  const list = facts(row, now);
  sync(node, list.flatMap(([label, value]) => [{key: "dt " + label, label}, {key: "dd " + label, value}]), (item) => item.key,
    (item) => element(item.label ? "dt" : "dd", {}, item.label || element("div")),
    (child, item) => {
      if (item.label) return;
      if (typeof item.value === "function") item.value(child.firstChild);
      else setText(child.firstChild, item.value);
    });
}

// holderLine makes the line of one who shares a lock. toBreak is called when its button is pressed.
export function holderLine(toBreak) {
  const button = element("button", {type: "button", class: "danger"}, "Break…");
  const line = element("li", {}, element("span"), button);
  button.addEventListener("click", () => toBreak(line.holder, button));
  return line;
}

export function updateHolder(line, holder, now, mayBreak) {
  line.holder = holder;
  const [text, button] = line.children;
  const left = leftOf(holder, now);
  setText(text, `${holder.owner || "an owner that is not reported"}, token ${holder.token}` + (left === null ? "" : `, ${duration(left)} left`) + (holder.broken ? ", broken" : ""));
  button.hidden = !mayBreak || !!holder.broken;
  button.setAttribute("aria-label", `Break ${holder.owner || "the holder"}, token ${holder.token}`);
}

export function card(instance) {
  const plural = (n, what) => `${n} ${what}${n === 1 ? "" : "s"}`;
  const items = instance.partitions.map((p) => element("li", {},
    element("a", {href: "#/?" + new URLSearchParams({q: p.group + "/partition-"})}, `${plural(p.count, "partition")} of ${p.group}`), `: ${p.numbers}`));
  for (const name of instance.locks) items.push(element("li", {}, element("a", {href: "#/lock/" + encodeURIComponent(name)}, name)));
  if (instance.locksHeld > instance.locks.length) items.push(element("li", {}, `and ${plural(instance.locksHeld - instance.locks.length, "more lock")}`));
  return element("article", {class: "card"}, element("h3", {}, instance.owner || "Owner not reported"), element("ul", {}, ...items));
}

export function change(before, now) {
  if (!before) return `now: ${describe(now)}`;
  if (["token", "owner", "state", "sharing", "endless"].some((key) => before[key] !== now[key])) return describe(now);
  return null; // a renewal
}

function describe(row) {
  if (row.state === "free") return row.owner ? `free, last held by ${row.owner}` : "free";
  if (!isHeld(row)) return words[row.state] || row.state;
  if (row.sharing > 1) return `${words[row.state]}, shared by ${row.sharing}: the latest is ${row.owner || "an owner that the backend does not report"}, token ${row.token}`;
  return `${words[row.state]} by ${row.owner || "an owner that the backend does not report"}` + (row.token ? `, token ${row.token}` : "") +
    (row.endless ? ", with a lease that never ends" : "");
}

// when is the time at which a tenure ended, or else the time at which it began.
function when(tenure) {
  const at = tenure.until || tenure.from;
  return at ? element("time", {dateTime: at}, moment(at)) : element("span", {}, "–");
}

export function pastHolder(tenure) {
  const ms = tenure.from && tenure.until ? new Date(tenure.until) - new Date(tenure.from) : 0;
  return element("li", {class: "past"}, when(tenure), `${tenure.owner || "an unknown owner"}, token ${tenure.token}` + (tenure.mode === "shared" ? ", shared" : "") +
    (ms > 0 ? `, held for ${duration(ms)}` : "") + `, since ${tenure.from ? moment(tenure.from) : "an unknown time"}: ${tenure.end}`);
}
