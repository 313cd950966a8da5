// Puts the parts together, and takes new contents while a run goes on.

const isFull = (value) => value !== undefined && value !== null && value.length !== 0;
const ofRun = (name, draw) => ({ data: (run) => (run && isFull(run[name]) ? run[name] : null), draw });
const tablesPart = (name) => ofRun(name, (tables, run) => el("div", { class: "tables" }, tables.map((table, place) => titledTable(table, `${name}:${run.id}:${place}`))));

const curvesPart = {
  title: "Curves",
  data: () => (allRuns().some((run) => run.curves.some((curve) => curve.series.length)) ? "curves" : null),
  draw: drawCurves,
};
const PARTS = {
  comparison: { title: "Comparison", data: () => (areSeveral() ? (state.contents.comparison ?? null) : null), draw: drawComparison },
  curves: curvesPart,
  overview: { title: "Result", data: (run) => run && [run.id, run.name, run.state, run.task, run.headline, run.facts, run.warnings, allRuns().map((one) => one.name)], draw: (_, run) => drawOverview(run) },
  folds: { title: "Folds", ...ofRun("folds", drawFolds) },
  tables: { title: "Metrics", ...tablesPart("tables") },
  confusion: { title: "Confusion matrix", ...ofRun("confusion", drawConfusion) },
  masks: { title: "Masks", ...ofRun("masks", drawMasks) },
  worst: { title: "Worst samples", ...ofRun("worst", samplesOf) },
  timeline: { title: "Schedule of an update", ...ofRun("timeline", drawTimeline) },
  memory: { title: "Memory", ...ofRun("memory", drawMemory) },
  time: { title: "Where the time went", ...ofRun("time", drawTime) },
  plan: { title: "Plan", ...tablesPart("plan") },
  recipe: { title: "Recipe", ...ofRun("recipe", drawRecipe) },
  environment: { title: "Environment", ...ofRun("environment", (rows) => pairs(rows, { class: "facts wide" })) },
  command: { title: "Run it again", ...ofRun("command", drawCommand) },
};
// One run begins with its result; several with what differs and their curves.
const ORDER_OF_ONE = ["overview", "curves", ...Object.keys(PARTS).filter((name) => !["overview", "curves", "comparison"].includes(name))];

const heading = el("h1", {});
const made = el("p", { class: "note" });
const status = el("p", { id: "status", role: "status" });
const links = el("nav", { class: "parts", "aria-label": "Parts of the page" });
const main = el("main", { id: "main", tabindex: "-1" });
const sections = new Map();

function sectionOf(name) {
  if (!sections.has(name)) {
    const body = el("div", { class: "body" });
    const section = el("section", { id: name, "aria-labelledby": `${name}-title` }, el("h2", { id: `${name}-title` }, PARTS[name].title), body);
    sections.set(name, { section, body, shown: null });
  }
  return sections.get(name);
}

function drawAll() {
  const run = chosenRun();
  heading.textContent = state.contents.title;
  document.title = state.contents.title;
  made.textContent = [`${timeText(state.contents.created)} \u00b7 Drivetrain ${state.contents.version}`, ...(state.contents.notes ?? [])].join(" \u00b7 ");
  const order = areSeveral() ? Object.keys(PARTS) : ORDER_OF_ONE;
  const shown = order.filter((name) => PARTS[name].data(run) !== null);
  arrange(main, shown.map((name) => sectionOf(name).section));
  for (const name of order) drawPart(name, run);
  drawLinks(shown);
  if (shown.includes("curves")) updateCurves();
}

function drawPart(name, run) {
  const data = PARTS[name].data(run);
  const part = sectionOf(name);
  const now = data === null ? null : JSON.stringify([name === "curves" || name === "comparison" ? null : run.id, data]);
  if (now === part.shown) return;
  part.shown = now;
  withFocus(part.body, () => part.body.replaceChildren(...(data === null ? [] : [PARTS[name].draw(data, run)])));
}

function drawLinks(shown) {
  const wanted = shown.join();
  if (links.dataset.shown === wanted) return;
  links.dataset.shown = wanted;
  links.replaceChildren(...shown.map((name) => el("a", { href: `#${name}` }, PARTS[name].title)));
}

function update(contents) {
  const place = window.scrollY;
  takeContents(contents);
  drawAll();
  if (window.scrollY !== place) window.scrollTo({ top: place, behavior: "instant" });
}

const PRINT_WIDTH = 330;

function forPrint() {
  const theme = root.dataset.theme ?? null;
  setTheme("light");
  drawn.forEach((chart) => chart.resize(PRINT_WIDTH));
  window.addEventListener("afterprint", () => { setTheme(theme); resizeCurves(); }, { once: true });
}

function start() {
  document.getElementById("page").append(
    el("a", { class: "skip", href: "#main" }, "Skip to the contents"),
    el("header", { class: "top" }, el("div", { class: "title" }, heading, made), status, themeButton()),
    links, main, tip);
  afterTheme.push(redrawCurves);
  new ResizeObserver(resizeCurves).observe(curvesGrid);
  window.addEventListener("beforeprint", forPrint);
  window.addEventListener("scroll", hideTip, { passive: true });
  window.drivetrainPage = { update, charts: chartFacts, zoom: zoomTo, status: (text) => { status.textContent = text; } };
  update(JSON.parse(document.getElementById("contents").textContent));
}

start();
