// All charts over the updates, with what they share: picked runs, smoothing and zoom.

const drawn = new Map();
const curvesGrid = el("div", { class: "charts" });
const resetButton = el("button", { type: "button", "data-key": "reset-zoom", hidden: true, onclick: () => zoomTo(null) }, "Show all updates");
const picker = el("fieldset", { class: "picker" });
let curvesBody = null;

function zoomTo(range) {
  state.range = range === null ? null : withinData(range);
  resetButton.hidden = state.range === null;
  hideTip();
  drawn.forEach((chart) => chart.plot && chart.place());
}

// A zoom out beyond the data is no zoom.
function withinData([min, max]) {
  const ranges = [...drawn.values()].filter((chart) => chart.plot?.data[0].length).map((chart) => chart.fullRange());
  if (!ranges.length) return null;
  const first = Math.min(...ranges.map((range) => range[0]));
  const last = Math.max(...ranges.map((range) => range[1]));
  const found = [Math.max(min, first), Math.min(max, last)];
  const isAll = (found[0] <= first && found[1] >= last) || found[1] <= found[0];
  return isAll ? null : found;
}

function setSmoothing(weight) {
  state.smoothing = weight;
  drawn.forEach((chart) => chart.draw());
}

function drawCurves() {
  curvesBody ??= el("div", {},
    el("div", { class: "toolbar" },
      slider("smoothing", "Smoothing", { max: 0.99, value: state.smoothing, change: setSmoothing, say: (value) => value.toFixed(2) }),
      resetButton,
      el("p", { class: "note screen" }, "Drag across a chart to zoom, on a touch screen spread two fingers; double-click to see all updates.")),
    picker, curvesGrid);
  return curvesBody;
}

function updateCurves() {
  const charts = chartsOf(pickedRuns());
  updatePicker();
  const ids = new Set(charts.map((chart) => chart.id));
  for (const id of [...drawn.keys()].filter((one) => !ids.has(one))) {
    drawn.get(id).plot?.destroy();
    drawn.delete(id);
  }
  charts.forEach((chart) => {
    if (!drawn.has(chart.id)) drawn.set(chart.id, new Chart(chart, { zoom: zoomTo }));
  });
  arrange(curvesGrid, charts.map((chart) => drawn.get(chart.id).root));
  charts.forEach((chart) => drawn.get(chart.id).show(chart));
}

// Leaves elements that are already in their place untouched, so that focus stays.
function arrange(parent, elements) {
  elements.forEach((element, place) => {
    if (parent.children[place] !== element) parent.insertBefore(element, parent.children[place] ?? null);
  });
  while (parent.children.length > elements.length) parent.lastElementChild.remove();
}

function updatePicker() {
  picker.hidden = !areSeveral();
  const boxes = allRuns().map((run, place) => {
    const box = el("input", { type: "checkbox", "data-key": `pick:${run.id}`, onchange: () => { state.picked.set(run.id, box.checked); updateCurves(); } });
    box.checked = state.picked.get(run.id);
    return el("label", { class: "chip" }, box, swatch(place), el("span", {}, run.name));
  });
  withFocus(picker, () => picker.replaceChildren(el("legend", {}, "Runs in the charts"), ...boxes));
}

const resizeCurves = () => drawn.forEach((chart) => chart.resize());
const redrawCurves = () => drawn.forEach((chart) => chart.chart && chart.draw({ anew: true }));

// What tests and other scripts may ask: the points that each chart shows.
function chartFacts() {
  return [...drawn].map(([id, chart]) => ({
    id,
    range: [chart.plot.scales.x.min, chart.plot.scales.x.max],
    yRange: [chart.plot.scales.y.min, chart.plot.scales.y.max],
    isLog: chart.isLog,
    lines: chart.chart.lines.map((line, place) => ({ label: line.label, points: countOf(chart.plot.data[2 * place + 2]) })),
  }));
}
