"use strict";

// Text from the server only ever becomes the text of an element, never markup.

const rows = new Map();
const drawn = new Map();
const chosen = new Set();
let order = { key: "began", falls: true };
let isWaiting = false;

const body = document.querySelector("#runs tbody");
const filter = document.querySelector("#filter");
const compare = document.querySelector("#compare");
const connection = document.querySelector("#connection");

function element(name, { text, classes, label } = {}, ...children) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (classes) made.className = classes;
  if (label) made.dataset.label = label;
  made.append(...children);
  return made;
}

function number(value) {
  if (value === null) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e6)) return value.toExponential(3);
  return String(Number(value.toPrecision(4)));
}

function duration(seconds) {
  if (seconds === null) return "–";
  const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  const first = units.findIndex(([, size]) => seconds >= size);
  if (first < 0) return "under 1 s";
  const [unit, size] = units[first];
  const whole = Math.floor(seconds / size);
  const next = units[first + 1];
  const rest = next ? Math.floor((seconds - whole * size) / next[1]) : 0;
  return rest ? `${whole} ${unit} ${rest} ${next[0]}` : `${whole} ${unit}`;
}

function ago(time) {
  if (time === null) return "–";
  const seconds = Math.max(0, Date.now() / 1000 - time);
  return seconds < 10 ? "just now" : `${duration(seconds).split(" ").slice(0, 2).join(" ")} ago`;
}

function share(row) {
  return row.total ? Math.min(1, row.done / row.total) : null;
}

function progress(row) {
  const text = row.total ? `${row.done} of ${row.total} ${row.unit}` : `${row.done} ${row.unit}`;
  const cell = element("div", { classes: "progress" }, element("span", { text }));
  if (row.state === "running" && share(row) !== null) {
    const bar = element("progress");
    bar.value = share(row);
    bar.setAttribute("aria-label", `progress of ${row.name}`);
    cell.append(bar);
  }
  if (row.state === "running" && row.images_per_second) {
    cell.append(element("span", { classes: "small", text: `${number(row.images_per_second)} images/s` }));
  }
  return cell;
}

function sparkline(row) {
  if (row.points.length < 2) return document.createTextNode(number(row.loss));
  const [xs, ys] = [0, 1].map((place) => row.points.map((point) => point[place]));
  const [left, right] = [Math.min(...xs), Math.max(...xs)];
  const [low, high] = [Math.min(...ys), Math.max(...ys)];
  const place = ([x, y]) =>
    `${(100 * (x - left)) / (right - left || 1)},${24 - (20 * (y - low)) / (high - low || 1)}`;
  const space = "http://www.w3.org/2000/svg";
  const picture = document.createElementNS(space, "svg");
  picture.setAttribute("viewBox", "0 0 100 26");
  picture.setAttribute("preserveAspectRatio", "none");
  picture.setAttribute("class", "spark");
  picture.setAttribute("role", "img");
  const path = document.createElementNS(space, "path");
  path.setAttribute("d", `M${row.points.map(place).join("L")}`);
  const words = `training loss from ${number(ys[0])} to ${number(ys[ys.length - 1])}`;
  picture.setAttribute("aria-label", words);
  const title = document.createElementNS(space, "title");
  title.textContent = words;
  picture.append(title, path);
  return picture;
}

function best(row) {
  const cell = element("div", { text: number(row.best) });
  if (row.metric) cell.append(element("div", { classes: "small", text: row.metric }));
  return cell;
}

function choice(row) {
  const box = element("input");
  box.type = "checkbox";
  box.checked = chosen.has(row.id);
  box.setAttribute("aria-label", `compare ${row.name}`);
  box.addEventListener("change", () => {
    if (box.checked) chosen.add(row.id);
    else chosen.delete(row.id);
    showChoice();
  });
  return box;
}

function link(row) {
  const anchor = element("a", { text: row.name });
  anchor.href = `/run/${row.id}`;
  return anchor;
}

function draw(row) {
  const last = ago(row.changed);
  const known = drawn.get(row.id);
  const text = JSON.stringify(row);
  if (known && known.text === text) {
    if (known.last.textContent !== last) known.last.textContent = last;
    return known.line;
  }
  const lastCell = element("td", { text: last, label: "Last event" });
  const cells = [
    element("td", { classes: "choose" }, choice(row)),
    element("td", { classes: row.parent ? "name fold" : "name" }, link(row)),
    element("td", { label: "State" }, element("span", { classes: `state ${row.state}`, text: row.state })),
    element("td", { label: "Model", text: row.model ?? "–" }),
    element("td", { label: "Data", text: row.data ?? "–" }),
    element("td", { label: "Progress" }, progress(row)),
    element("td", { label: "Training loss" }, sparkline(row)),
    element("td", { label: "Best value" }, best(row)),
    element("td", { label: "Time", text: duration(row.elapsed_seconds) }),
    lastCell,
  ];
  // The same line with new cells keeps its place and the reader's.
  const line = known ? known.line : element("tr");
  const hadFocus = document.activeElement && line.contains(document.activeElement)
    ? document.activeElement.tagName : null;
  line.replaceChildren(...cells);
  line.dataset.id = row.id;
  if (hadFocus) line.querySelector(hadFocus)?.focus();
  drawn.set(row.id, { line, text, last: lastCell });
  return line;
}

function keyOf(row, key) {
  if (key === "progress") return share(row) ?? -1;
  return row[key];
}

function compared(first, second) {
  const [a, b] = [keyOf(first, order.key), keyOf(second, order.key)];
  if (a === b) return first.name.localeCompare(second.name, undefined, { numeric: true });
  if (a === null) return 1;
  if (b === null) return -1;
  const rises = typeof a === "string" ? a.localeCompare(b, undefined, { numeric: true }) : a - b;
  return order.falls ? -rises : rises;
}

// The folds of a cross-validation stay under it.
function inOrder(shown) {
  const names = new Set(shown.map((row) => row.id));
  const tops = shown.filter((row) => !names.has(row.parent)).sort(compared);
  const foldsOf = (id) => shown.filter((row) => row.parent === id)
    .sort((a, b) => a.name.localeCompare(b.name, undefined, { numeric: true }));
  return tops.flatMap((row) => [row, ...(row.is_job ? foldsOf(row.id) : [])]);
}

function show() {
  isWaiting = false;
  const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
  const states = new Set([...document.querySelectorAll("#states input:checked")].map((box) => box.value));
  const all = [...rows.values()];
  const shown = all.filter((row) => {
    const text = `${row.name} ${row.model ?? ""} ${row.data ?? ""}`.toLowerCase();
    return states.has(row.state) && words.every((word) => text.includes(word));
  });
  for (const state of ["running", "finished", "stopped"]) {
    document.querySelector(`#count-${state}`).textContent = all.filter((row) => row.state === state).length;
  }
  const lines = inOrder(shown).map(draw);
  const isSame = lines.length === body.children.length && lines.every((line, at) => body.children[at] === line);
  if (!isSame) body.replaceChildren(...lines);
  document.querySelector("#empty").hidden = all.length > 0 || !connection.classList.contains("on");
  showChoice();
}

function showSoon() {
  if (isWaiting) return;
  isWaiting = true;
  requestAnimationFrame(show);
}

function showChoice() {
  const there = [...chosen].filter((id) => rows.has(id));
  compare.disabled = there.length < 2;
  compare.textContent = there.length < 2 ? "Compare" : `Compare ${there.length} runs`;
}

function take(event) {
  const news = JSON.parse(event.data);
  if (event.type === "all") {
    const there = new Set(news.rows.map((row) => row.id));
    for (const id of [...rows.keys()]) if (!there.has(id)) news.gone.push(id);
  }
  for (const row of news.rows) rows.set(row.id, row);
  for (const id of news.gone) {
    rows.delete(id);
    drawn.delete(id);
    chosen.delete(id);
  }
  showSoon();
}

let stream = null;
let again = null;

function connect() {
  disconnect();
  stream = new EventSource("/events");
  stream.addEventListener("all", take);
  stream.addEventListener("changes", take);
  stream.onopen = () => connected(true);
  stream.onerror = () => {
    connected(false);
    // After some errors the browser gives up; the server may only be starting again.
    if (stream.readyState === EventSource.CLOSED) {
      again = setTimeout(connect, 1000);
      sayIfRefused();
    }
  };
}

async function sayIfRefused() {
  const answer = await fetch("/api/runs", { method: "HEAD" }).catch(() => null);
  if (answer?.status === 403) connection.textContent = "The server has a new token; open the address that it printed.";
}

function disconnect() {
  clearTimeout(again);
  stream?.close();
  stream = null;
}

function connected(isOn) {
  connection.classList.toggle("on", isOn);
  connection.textContent = isOn ? "Live" : "The server does not answer. Trying again…";
  showSoon();
}

filter.addEventListener("input", show);
document.querySelector("#states").addEventListener("change", show);
document.querySelector("#controls").addEventListener("submit", (event) => event.preventDefault());
compare.addEventListener("click", () => {
  const ids = inOrder([...rows.values()]).map((row) => row.id).filter((id) => chosen.has(id));
  location.href = `/compare?${ids.map((id) => `run=${id}`).join("&")}`;
});
for (const head of document.querySelectorAll("th[data-key]")) {
  head.querySelector("button").addEventListener("click", () => {
    const key = head.dataset.key;
    order = { key, falls: order.key === key ? !order.falls : !["name", "model", "data", "state"].includes(key) };
    for (const other of document.querySelectorAll("th[data-key]")) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", order.falls ? "descending" : "ascending");
    show();
  });
}
// A browser opens six connections to a server; pages in the background must not use them up.
document.addEventListener("visibilitychange", () => (document.hidden ? disconnect() : connect()));
setInterval(showSoon, 5000);
if (!document.hidden) connect();
