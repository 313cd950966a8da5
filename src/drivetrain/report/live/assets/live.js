(() => {
"use strict";

// The page of runs that go on: hears of changes, fetches the new contents and lets the page draw them.

const address = location.pathname + location.search;
const source = `/api${address}`;
const contents = JSON.parse(document.querySelector("#contents").textContent);
const shown = new Map(Object.entries(contents.versions ?? {}));
const events = `/events?${[...shown.keys()].map((id) => `run=${id}`).join("&")}`;

const wanted = new Map();
let isFetching = false;
let stream = null;
let again = null;

const bar = document.createElement("div");
bar.id = "live";
const list = document.createElement("a");
list.href = "/";
list.textContent = "All runs";
const note = document.createElement("span");
note.setAttribute("role", "status");
bar.append(list, " · ", note);
Object.assign(bar.style, { padding: "12px 16px 0", fontSize: "13px" });
document.body.prepend(bar);

function say(text) {
  if (note.textContent !== text) note.textContent = text;
}

function isOld() {
  return [...wanted].some(([id, version]) => shown.get(id) !== version);
}

async function refresh() {
  if (isFetching) return;
  isFetching = true;
  try {
    while (isOld()) {
      const answer = await fetch(source);
      if (answer.status === 404) return say("This run is gone.");
      if (!answer.ok) throw new Error(`status ${answer.status}`);
      const fresh = await answer.json();
      for (const [id, version] of Object.entries(fresh.versions)) shown.set(id, version);
      window.drivetrainPage.update(fresh);
      await new Promise((done) => setTimeout(done, 1000));
    }
  } catch {
    clearTimeout(again);
    again = setTimeout(connect, 2000);
  } finally {
    isFetching = false;
  }
}

function take(event) {
  const news = JSON.parse(event.data);
  for (const row of news.rows) wanted.set(row.id, row.version);
  const states = news.rows.map((row) => row.state);
  if (states.length) say(states.includes("running") ? "Live" : "Not running; the page follows if it goes on.");
  if (news.gone.length) say("This run is gone.");
  refresh();
}

function connect() {
  disconnect();
  stream = new EventSource(events);
  stream.addEventListener("all", take);
  stream.addEventListener("changes", take);
  stream.onerror = () => {
    say("The server does not answer. Trying again…");
    // After some errors the browser gives up; the server may only be starting again.
    if (stream.readyState === EventSource.CLOSED) {
      again = setTimeout(connect, 1000);
      sayIfRefused();
    }
  };
}

async function sayIfRefused() {
  const answer = await fetch("/api/runs", { method: "HEAD" }).catch(() => null);
  if (answer?.status === 403) say("The server has a new token; open the address that it printed.");
}

function disconnect() {
  clearTimeout(again);
  stream?.close();
  stream = null;
}

// A browser opens six connections to a server; pages in the background must not use them up.
document.addEventListener("visibilitychange", () => (document.hidden ? disconnect() : connect()));
if (!document.hidden) connect();
})();
