// The schedule of an update: predicted and measured on one scale, one row for each device.

const ROW_HEIGHT = 26;
const AXIS_HEIGHT = 24;
const PAIRED_LETTERS = 12;
const MOST_ZOOM = 20;
const LABEL_PIXELS = 7;
// The names of kinds that have a colour of their own, as in the picture that a profiled run draws.
const KINDS = ["forward", "backward", "input", "weight", "recomputation", "data", "wait", "send", "receive", "gradient sum", "optimiser update"];

const kindClass = (kind) => (KINDS.includes(kind) ? `k-${kind.replaceAll(" ", "-")}` : "k-other");

function drawTimeline(pictures, run) {
  const key = `timeline:${run.id}`;
  const body = el("div", {});
  // Equally wide names, so that all drawings have the same scale.
  const longest = Math.max(...pictures.flatMap((one) => one.rows.map((row) => row.device.length)), 1);
  const draw = () => {
    const isPaired = pictures.length > 1 && kept(`${key}:paired`, false);
    body.style.setProperty("--names", `${longest + (isPaired ? PAIRED_LETTERS : 0)}ch`);
    redraw();
  };
  const redraw = () => withFocus(body, () => body.replaceChildren(...timelineParts(pictures, key)));
  const setZoom = (value) => { keep(`${key}:zoom`, value); draw(); };
  const setPaired = (on) => { keep(`${key}:paired`, on); draw(); };
  const toolbar = el("div", { class: "toolbar" },
    slider(`${key}:zoom`, "Zoom", { min: 1, max: MOST_ZOOM, step: 0.5, value: kept(`${key}:zoom`, 1), change: setZoom, say: (value) => `${value}\u00d7` }),
    pictures.length > 1 ? switchBox(`${key}:paired`, "row below row", { on: kept(`${key}:paired`, false), change: setPaired }) : null,
    timelineLegend(pictures));
  const root = el("div", { class: "timeline" }, toolbar, body, folded(`${key}:table`, "Actions as a table", () => timelineTable(pictures, key)));
  timelineWidths.observe(root, draw);
  return root;
}

// Drawings follow the width of their frame.
const timelineWidths = {
  observe(root, draw) {
    let width = 0;
    new ResizeObserver(([entry]) => {
      if (Math.abs(entry.contentRect.width - width) < 1) return;
      width = entry.contentRect.width;
      draw();
    }).observe(root);
  },
};

function timelineLegend(pictures) {
  const kinds = [...new Set(pictures.flatMap((one) => one.rows.flatMap((row) => row.actions.map(([kind]) => kind))))];
  return el("div", { class: "legend" }, kinds.map((kind) => el("span", {}, svg("svg", { width: 12, height: 12, "aria-hidden": "true" }, svg("rect", { width: 12, height: 12, rx: 2, class: kindClass(kind) })), kind)));
}

const endOf = (row) => row.actions.reduce((end, [, , start, duration]) => Math.max(end, start + duration), 0);

// A prediction is made for the devices of one replica, a measurement for those of all.
const ownName = (device) => device.split(", ").pop();

function timelineParts(pictures, key) {
  const zoom = kept(`${key}:zoom`, 1);
  const end = Math.max(1, ...pictures.flatMap((one) => one.rows.map(endOf)));
  const named = (one, row, withSource) => ({ ...row, label: withSource ? `${row.device} \u00b7 ${one.source}` : row.device, source: one.source });
  if (pictures.length > 1 && kept(`${key}:paired`, false)) {
    const all = pictures.flatMap((one) => one.rows.map((row) => named(one, row, true)));
    const devices = [...new Set(all.map((row) => ownName(row.device)))];
    const rows = devices.flatMap((device) => all.filter((row) => ownName(row.device) === device));
    return [timelineChart(rows, { end, zoom, key: `${key}:paired`, words: "Predicted and measured schedule, row below row" })];
  }
  return pictures.map((one, place) => el("div", { class: "block" },
    el("h3", {}, one.title, " ", one.title.includes(one.source) ? null : el("span", { class: "badge" }, one.source)),
    one.facts.length ? pairs(one.facts) : null,
    timelineChart(one.rows.map((row) => named(one, row, false)), { end, zoom, key: `${key}:${place}`, words: `${one.title}, ${one.source}` })));
}

function timelineChart(rows, { end, zoom, key, words }) {
  const labels = el("div", { class: "lane-names" }, rows.map((row) => el("div", { title: row.label }, row.label)));
  const scroller = el("div", { class: "lanes", "data-scroll": key, tabindex: "0", role: "group", "aria-label": `${words}: ${countText(rows.length, "device")}, ${microsecondsText(end)} long` });
  const chart = el("div", { class: "lane-chart" }, labels, scroller);
  queueMicrotask(() => {
    const width = Math.max(120, scroller.clientWidth || 600) * zoom;
    scroller.append(lanes(rows, { end, width, words }));
  });
  return chart;
}

function lanes(rows, { end, width, words }) {
  const scale = (width - 8) / end;
  const height = AXIS_HEIGHT + rows.length * ROW_HEIGHT;
  const actions = rows.flatMap((row, place) => row.actions.map((action) => ({ row, place, action })));
  const boxes = actions.map(({ row, place, action: [kind, label, start, duration] }, index) => {
    const [x, w] = [start * scale, Math.max(0.5, duration * scale)];
    const y = AXIS_HEIGHT + place * ROW_HEIGHT + 3;
    const isRoomy = kind !== "wait" && label.length * LABEL_PIXELS + 4 < w;
    return [
      svg("rect", { x, y, width: w, height: ROW_HEIGHT - 6, rx: Math.min(2, w / 4), class: `${kindClass(kind)} ${row.source}`, "data-action": index }),
      isRoomy ? svg("text", { x: x + w / 2, y: y + ROW_HEIGHT / 2 + 1, "text-anchor": "middle", class: "on" }, label) : null,
    ];
  });
  const drawing = svg("svg", { width, height, role: "img", "aria-label": words }, timeAxis(end, { scale, width, height }), boxes);
  const find = (event) => actions[event.target.dataset?.action];
  drawing.addEventListener("pointermove", (event) => {
    const found = find(event);
    if (!found) return hideTip();
    const [kind, label, start, duration] = found.action;
    showTip(event.clientX, event.clientY, [
      el("strong", {}, label || kind),
      el("div", {}, `${kind} on ${found.row.label}`),
      el("div", {}, el("b", {}, microsecondsText(duration)), ` from ${microsecondsText(start)}`),
    ]);
  });
  drawing.addEventListener("pointerleave", hideTip);
  return drawing;
}

function timeAxis(end, { scale, width, height }) {
  const most = Math.max(3, Math.floor(width / 90));
  const power = 10 ** Math.floor(Math.log10(end / most));
  const step = [1, 2, 5, 10].map((times) => times * power).find((one) => end / one <= most);
  const marks = Array.from({ length: Math.floor(end / step) + 1 }, (_, place) => place * step);
  return marks.map((time) => [
    svg("line", { class: "grid", x1: time * scale, x2: time * scale, y1: AXIS_HEIGHT - 4, y2: height }),
    svg("text", { x: time * scale, y: 13, "text-anchor": time === 0 ? "start" : "middle" }, time === 0 ? "0" : microsecondsText(time)),
  ]);
}

function timelineTable(pictures, key) {
  const rows = pictures.flatMap((one) => one.rows.flatMap((row) => row.actions.map(([kind, label, start, duration]) => [row.device, one.source, label || kind, kind, microsecondsText(start), microsecondsText(duration)])));
  const shown = rows.slice(0, MOST_ROWS);
  const table = { title: "Actions", columns: ["device", "source", "action", "kind", "start", "duration"], rows: shown };
  const note = rows.length > shown.length ? el("p", { class: "note" }, `The first ${shown.length} of ${numberText(rows.length)} actions.`) : null;
  return el("div", {}, note, tableOf(table, `${key}:table`));
}
