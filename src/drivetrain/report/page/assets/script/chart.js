// One chart: uPlot, its legend, its hover box, its keys and its table.

const CHART_HEIGHT = 230;
const STEP_SHARE = 0.02;

class Chart {
  constructor(chart, { zoom }) {
    this.zoom = zoom;
    this.plot = null;
    this.shape = "";
    this.title = el("figcaption", {});
    this.frame = el("div", {
      class: "plot", tabindex: "0", role: "img", "data-key": `plot:${chart.id}`, onkeydown: (event) => this.press(event),
      onblur: hideTip,
    });
    this.legend = el("div", { class: "legend", "aria-hidden": "true" });
    this.logBox = switchBox(`log:${chart.id}`, "log", { on: state.logged.has(chart.id), change: (on) => this.setLog(on) });
    this.table = el("div", {});
    this.root = el("figure", { class: "chart", "data-chart": chart.id },
      el("div", { class: "chart-head" }, this.title, this.logBox), this.frame, this.legend, this.table);
    followFingers(this);
  }

  get isLog() {
    return state.logged.has(this.chart.id) && hasPositive(this.chart.lines);
  }

  setLog(on) {
    on ? state.logged.add(this.chart.id) : state.logged.delete(this.chart.id);
    this.draw();
  }

  // Takes new values; a chart of the same shape keeps its canvas.
  show(chart) {
    this.chart = chart;
    this.title.replaceChildren(chart.title, chart.unit ? el("span", { class: "unit" }, ` ${chart.unit}`) : "");
    this.frame.setAttribute("aria-label", `${chartWords(chart)} Arrow keys read values, plus and minus zoom, 0 shows all.`);
    this.logBox.hidden = !hasPositive(chart.lines);
    this.draw();
    this.showTable();
  }

  showTable() {
    const key = `data:${this.chart.id}`;
    withFocus(this.table, () => this.table.replaceChildren(folded(key, "Values as a table", () => {
      const table = chartTable(this.chart);
      const note = table.of > table.rows.length ? el("p", { class: "note" }, `${table.rows.length} of ${numberText(table.of)} updates.`) : null;
      return el("div", {}, note, tableOf(table, key));
    })));
  }

  draw({ anew = false } = {}) {
    const width = this.width();
    if (!width) return;
    const columns = columnsOf(this.chart.lines, { weight: state.smoothing, isLog: this.isLog });
    const shape = JSON.stringify([this.isLog, state.smoothing > 0, isDark(), this.chart.lines.map((line) => [line.label, line.place, line.dash, hasFew(line)])]);
    if (!anew && this.plot && shape === this.shape) {
      this.plot.setData(columns, false);
      this.place();
      return;
    }
    this.shape = shape;
    this.plot?.destroy();
    this.plot = new uPlot(this.options(width), columns, this.frame);
    this.place();
    this.showLegend();
  }

  showLegend() {
    this.legend.replaceChildren(...legendLines(this.chart).map(({ line, words, isGrey }) => el("span", {}, keyLine(line, isGrey), words)));
  }

  width() {
    return Math.floor(this.frame.getBoundingClientRect().width);
  }

  resize(width = this.width()) {
    if (this.plot && width && width !== this.plot.width) this.plot.setSize({ width, height: CHART_HEIGHT });
  }

  fullRange() {
    const x = this.plot.data[0];
    const [first, last] = [x[0], x[x.length - 1]];
    return first === last ? [first - 1, last + 1] : [first, last];
  }

  place() {
    if (!this.plot.data[0].length) return;
    const [min, max] = state.range ?? this.fullRange();
    this.plot.setScale("x", { min, max });
  }

  options(width) {
    const [text, grid] = [cssColour("--muted"), cssColour("--line")];
    const font = "12px system-ui, sans-serif";
    const axis = { stroke: text, font, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, width: 1, size: 4 }, gap: 4 };
    return {
      width,
      height: CHART_HEIGHT,
      padding: [10, 12, 0, 0],
      legend: { show: false },
      scales: { x: { time: false }, y: this.isLog ? { distr: 3 } : {} },
      series: [{}, ...this.chart.lines.flatMap((line) => this.seriesOf(line))],
      axes: [
        { ...axis, size: 28, space: 64, grid: { show: false }, values: (_, splits) => splits.map(axisText) },
        { ...axis, size: 52, values: (_, splits) => splits.map(axisText) },
      ],
      cursor: {
        points: { size: 7 },
        drag: { x: true, y: false, setScale: false },
        sync: { key: "updates", filters: { pub: (type) => type === "mousemove" || type === "mouseleave" } },
        bind: { dblclick: () => () => { this.zoom(null); } },
      },
      hooks: { setSelect: [(plot) => this.select(plot)], setCursor: [(plot) => this.hover(plot)] },
    };
  }

  seriesOf(line) {
    const stroke = cssColour(colourName(line.place));
    const few = hasFew(line);
    const isSmooth = state.smoothing > 0;
    const raw = { stroke, alpha: 0.25, width: 1, show: isSmooth, points: { show: false } };
    const points = few ? { show: true, size: 5, fill: stroke } : { show: false };
    return [raw, { stroke, width: 1.75, dash: line.dash, points }];
  }

  select(plot) {
    const { left, width } = plot.select;
    if (width < 5) return;
    const range = [plot.posToVal(left, "x"), plot.posToVal(left + width, "x")];
    plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    this.zoom(range);
  }

  // Only the chart under the pointer, or the one that has the keys, shows its values; the others move their line.
  hover(plot) {
    const isOwn = plot.over.matches(":hover") || document.activeElement === this.frame;
    if (!isOwn) return;
    if (plot.cursor.idx === null || plot.cursor.idx === undefined || plot.cursor.left < 0) return hideTip();
    const x = plot.data[0][plot.cursor.idx];
    const box = plot.over.getBoundingClientRect();
    showTip(box.left + plot.cursor.left, box.top + Math.max(plot.cursor.top, 0), this.valuesAt(x));
  }

  valuesAt(x) {
    const rows = this.chart.lines.map((line) => [line, valueAt(line, x)]).filter(([, found]) => found !== null);
    return [el("strong", {}, `update ${numberText(x)}`), ...rows.map(([line, found]) =>
      el("div", {}, keyLine(line), el("span", {}, line.label), el("b", {}, numberText(found.y)),
        found.x === x ? null : el("small", {}, ` at ${numberText(found.x)}`)))];
  }

  press(event) {
    const { plot } = this;
    if (event.target !== this.frame || !plot) return;
    const [min, max] = [plot.scales.x.min, plot.scales.x.max];
    const at = plot.cursor.left >= 0 ? plot.posToVal(plot.cursor.left, "x") : (min + max) / 2;
    const zoomed = (by) => [at - (at - min) * by, at + (max - at) * by];
    const acts = {
      ArrowLeft: () => this.step(-1),
      ArrowRight: () => this.step(1),
      "+": () => this.zoom(zoomed(0.5)),
      "=": () => this.zoom(zoomed(0.5)),
      "-": () => this.zoom(zoomed(2)),
      0: () => this.zoom(null),
      Escape: () => { hideTip(); plot.setCursor({ left: -10, top: -10 }); },
    };
    if (!acts[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    acts[event.key]();
  }

  step(by) {
    const { plot } = this;
    const x = plot.data[0];
    const [first, last] = plot.series[0].idxs;
    const stride = Math.max(1, Math.round((last - first) * STEP_SHARE));
    const now = plot.cursor.left >= 0 && plot.cursor.idx !== null ? plot.cursor.idx + by * stride : by > 0 ? first : last;
    const place = Math.min(last, Math.max(first, now));
    plot.setCursor({ left: plot.valToPos(x[place], "x"), top: plot.over.clientHeight / 3 });
  }
}

// The runs' colours stand above all charts; a chart of several runs only tells its kinds of lines apart.
function legendLines(chart) {
  if (!areSeveral()) return chart.lines.length > 1 ? chart.lines.map((line) => ({ line, words: line.label })) : [];
  const first = chart.names.map((name) => chart.lines.find((line) => line.name === name));
  return first.length > 1 ? first.map((line) => ({ line, words: line.name, isGrey: true })) : [];
}

function keyLine(line, isGrey = false) {
  return svg("svg", { width: 18, height: 8, class: "key", "aria-hidden": "true" },
    svg("line", { x1: 0, x2: 18, y1: 4, y2: 4, "stroke-width": 2.5, "stroke-dasharray": line.dash.join(" ") || null, style: { stroke: isGrey ? "var(--muted)" : `var(${colourName(line.place)})` } }));
}
