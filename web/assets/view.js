// How things are shown. Nothing here talks to the server; all text is set as text, never as HTML.

export const words = {held: "held", free: "free", broken: "broken", unknown: "unknown", late: "expires soon"};

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

// leftOf is the time left of a row that came at a time of this page's clock.
export function leftOf(row, now) {
  return row.remainingMs === undefined ? null : Math.max(0, row.remainingMs - (now - row.came));
}

// stateOf names a state. A held lock with little time left is told apart: its holder may be gone.
export function stateOf(row, now) {
  const left = leftOf(row, now);
  return row.state === "held" && left !== null && row.ttlMs && left < row.ttlMs / 3 ? "late" : row.state;
}

function stateCell(row, now) {
  const state = stateOf(row, now);
  return element("span", {class: "state " + state}, words[state]);
}

function leftCell(row, now) {
  const left = leftOf(row, now);
  if (row.state === "free") return "–";
  if (left === null) return "unknown";
  const bar = element("progress", {max: row.ttlMs || left || 1, value: left});
  bar.setAttribute("aria-label", "Time left of " + row.name);
  return element("div", {class: "left"}, element("span", {}, duration(left)), bar);
}

const labels = ["Lock", "State", "Owner", "Token", "Time left", "Last renewal"];

export function tableRow(row, now) {
  const link = element("a", {href: "#/lock/" + encodeURIComponent(row.name)}, row.name);
  const owner = row.owner ? (row.state === "free" ? "last: " + row.owner : row.owner) : row.state === "free" ? "–" : "unknown";
  const cells = [link, stateCell(row, now), owner, row.token || "–", leftCell(row, now), row.renewedAt && row.state !== "free" ? moment(row.renewedAt) : "–"];
  const line = element("tr", {}, ...cells.map((content, i) => {
    const cell = element("td", {}, content);
    cell.dataset.label = labels[i];
    return cell;
  }));
  line.firstChild.className = "name";
  line.row = row;
  return line;
}

// tick renews what changes with time alone.
export function tick(line, now) {
  const [, state, , , left] = line.children;
  const name = stateOf(line.row, now);
  if (!state.firstChild.classList.contains(name)) state.replaceChildren(stateCell(line.row, now));
  const ms = leftOf(line.row, now);
  const bar = left.querySelector("progress");
  if (bar && ms !== null) {
    bar.value = ms;
    bar.previousSibling.textContent = duration(ms);
  }
}

export function facts(row, now) {
  const left = leftOf(row, now);
  const list = [["State", stateCell(row, now)], [row.state === "free" ? "Last owner" : "Owner", row.owner || (row.state === "free" ? "–" : "unknown")], ["Token", row.token || "–"]];
  if (row.state !== "free") {
    list.push(["Time left", left === null ? "unknown" : duration(left) + (row.ttlMs ? " of " + duration(row.ttlMs) : "")]);
    list.push(["Held since", row.acquiredAt ? moment(row.acquiredAt) : "unknown"], ["Last renewal", row.renewedAt ? moment(row.renewedAt) : "unknown"]);
  }
  return list.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]);
}

export function card(instance) {
  const items = Object.entries(instance.partitions).map(([group, n]) => element("li", {}, `${n} partition${n === 1 ? "" : "s"} of ${group}`));
  for (const name of instance.locks) items.push(element("li", {}, element("a", {href: "#/lock/" + encodeURIComponent(name)}, name)));
  if (instance.locksHeld > instance.locks.length) items.push(element("li", {}, `and ${instance.locksHeld - instance.locks.length} more`));
  return element("article", {class: "card"}, element("h3", {}, instance.owner || "unknown owner"), element("ul", {}, ...items));
}

export function change(before, now) {
  if (!before) return `now: ${describe(now)}`;
  if (before.token !== now.token || before.owner !== now.owner || before.state !== now.state) return describe(now);
  return null; // a renewal
}

function describe(row) {
  if (row.state === "free") return row.owner ? `free, last held by ${row.owner}` : "free";
  return `${words[row.state]} by ${row.owner || "an unknown owner"}` + (row.token ? `, token ${row.token}` : "");
}

const ends = {
  released: "released", "handed over": "handed over to a waiter of its process", expired: "its lease expired",
  "taken over": "taken over by a waiter, since its lease did not end by the backend's clock",
  broken: "broken by an operator", freed: "freed at once by an operator", unknown: "ended, how is not known",
};

// when is the time at which a tenure ended, or else the time at which it began.
function when(tenure) {
  const at = tenure.until || tenure.from;
  return at ? element("time", {dateTime: at}, moment(at)) : element("span", {}, "–");
}

export function pastHolder(tenure) {
  return element("li", {}, when(tenure),
    `${tenure.owner || "an unknown owner"}, token ${tenure.token}, since ${tenure.from ? moment(tenure.from) : "an unknown time"}: ${ends[tenure.end] || tenure.end}`);
}
