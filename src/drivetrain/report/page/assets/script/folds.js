// A cross-validation: each metric with its folds as dots, their mean as a line.

const DOT_WIDTH = 320;

function drawFolds(folds, run) {
  const { table, spread } = folds;
  const metrics = table.columns.map((title, place) => ({ title, place })).slice(1).filter(({ title, place }) => isNumeric(table.rows, place) && !/\bupdate\b/.test(title));
  return el("div", {},
    el("div", { class: "dots" }, metrics.map((metric) => dotPlot(table, metric))),
    titledTable(spread, `spread:${run.id}`),
    titledTable(table, `folds:${run.id}`));
}

function dotPlot(table, { title, place }) {
  const dots = table.rows.filter((row) => typeof row[place] === "number").map((row) => ({ name: String(row[0]), value: row[place] }));
  const values = dots.map((dot) => dot.value);
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
  const at = (value) => 14 + (high === low ? 0.5 : (value - low) / (high - low)) * (DOT_WIDTH - 28);
  const words = `${title}: ${countText(dots.length, "fold")}, mean ${numberText(mean)}, from ${numberText(low)} to ${numberText(high)}`;
  const drawing = svg("svg", { viewBox: `0 0 ${DOT_WIDTH} 62`, role: "img", "aria-label": words },
    svg("line", { class: "axis", x1: 8, x2: DOT_WIDTH - 8, y1: 30, y2: 30 }),
    svg("line", { class: "mean", x1: at(mean), x2: at(mean), y1: 16, y2: 44 }),
    dots.map((dot) => svg("circle", { class: "dot", cx: at(dot.value), cy: 30, r: 6 }, svg("title", {}, `${dot.name}: ${numberText(dot.value)}`))),
    svg("text", { x: 8, y: 58 }, numberText(low)),
    svg("text", { x: DOT_WIDTH - 8, y: 58, "text-anchor": "end" }, numberText(high)));
  return el("figure", { class: "dot-plot" }, el("figcaption", {}, title, el("b", {}, ` ${numberText(mean)}`), el("span", { class: "unit" }, " mean")), drawing);
}
