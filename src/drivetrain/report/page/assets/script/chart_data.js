// From the curves of runs to the columns that uPlot draws.

// One entry per chart, in the order of first appearance; its lines are those of all picked runs.
function chartsOf(runs) {
  const charts = new Map();
  const kinds = [...new Set(runs.flatMap((run) => run.curves.flatMap((curve) => curve.series.map((series) => series.name))))];
  for (const run of runs) {
    for (const curve of run.curves) {
      if (!charts.has(curve.id)) charts.set(curve.id, { id: curve.id, title: curve.title, unit: curve.unit, names: [], lines: [] });
      addLines(charts.get(curve.id), curve, { run, kinds });
    }
  }
  const full = [...charts.values()].filter((chart) => chart.lines.length);
  const long = full.filter((chart) => chart.lines.some((line) => line.x.length > 1));
  return isOver(runs) && long.length ? long : full;
}

// A single value of a finished run stands among its results; a chart of it would say no more.
const isOver = (runs) => !areSeveral() && runs.every((run) => run.state !== "running");

// Several runs have their colours, and dashes for kinds of lines; the lines of a single run have a colour for each kind.
function addLines(chart, curve, { run, kinds }) {
  const ofRun = areSeveral();
  for (const series of curve.series) {
    if (!series.x.length) continue;
    if (!chart.names.includes(series.name)) chart.names.push(series.name);
    const order = chart.names.indexOf(series.name);
    const runPlace = allRuns().indexOf(run);
    const place = ofRun ? runPlace : kinds.indexOf(series.name);
    chart.lines.push({
      label: ofRun ? (curve.series.length > 1 ? `${run.name} \u00b7 ${series.name}` : run.name) : series.name,
      name: series.name,
      place,
      dash: DASHES[((ofRun ? order : 0) + Math.floor(place / COLOURS)) % DASHES.length],
      x: series.x,
      y: series.y,
    });
  }
}

// A line of few points shows them, and is not smoothed: each of them counts.
const FEW_POINTS = 30;
const hasFew = (line) => line.x.length <= FEW_POINTS;

// Exponential smoothing that does not lean towards its first value.
function smoothed(values, weight) {
  let sum = 0;
  let scale = 1;
  return values.map((value) => {
    if (value === null) return null;
    sum = sum * weight + (1 - weight) * value;
    scale *= weight;
    return sum / (1 - scale);
  });
}

// Columns for uPlot: x, then each line as it is and smoothed.
function columnsOf(lines, { weight, isLog }) {
  const tables = lines.map((line) => {
    const raw = isLog ? line.y.map((value) => (value > 0 ? value : null)) : line.y;
    return [line.x, raw, weight > 0 && !hasFew(line) ? smoothed(raw, weight) : raw];
  });
  return tables.length ? uPlot.join(tables) : [[]];
}

const countOf = (values) => values.reduce((count, value) => count + (value === null || value === undefined ? 0 : 1), 0);
const hasPositive = (lines) => lines.some((line) => line.y.some((value) => value > 0));

// The value of a line at an update, or the last one before it.
function valueAt(line, x) {
  let low = 0;
  let high = line.x.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (line.x[middle] <= x) low = middle;
    else high = middle - 1;
  }
  return line.x[low] <= x ? { x: line.x[low], y: line.y[low] } : null;
}

function lineWords(line) {
  const values = line.y.filter((value) => value !== null);
  if (!values.length) return `${line.label}: no values`;
  let lowest = values[0];
  let highest = values[0];
  for (const value of values) {
    lowest = Math.min(lowest, value);
    highest = Math.max(highest, value);
  }
  return `${line.label}: first ${numberText(values[0])}, last ${numberText(values[values.length - 1])}, lowest ${numberText(lowest)}, highest ${numberText(highest)}`;
}

const chartWords = (chart) => `${chart.title} over the updates. ${chart.lines.map(lineWords).join(". ")}.`;

function chartTable(chart) {
  const [x, ...columns] = uPlot.join(chart.lines.map((line) => [line.x, line.y]));
  const places = chosenPlaces(x.length);
  return {
    title: chart.title,
    columns: ["update", ...chart.lines.map((line) => line.label)],
    rows: places.map((place) => [x[place], ...columns.map((column) => column[place] ?? null)]),
    of: x.length,
  };
}
