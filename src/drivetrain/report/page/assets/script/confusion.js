// The confusion matrix as a heat map; a cell shows the samples behind it.

const MOST_CLASSES = 60;
const MOST_NUMBERED = 25;
const MOST_PAIRS = 40;

function drawConfusion(matrix, run) {
  const shown = el("div", { class: "examples-panel", "aria-live": "polite" });
  const key = `confusion:${run.id}`;
  const choose = (row, column) => {
    keep(key, `${row},${column}`);
    shown.replaceChildren(...examplesOf(matrix, row, column));
  };
  const body = matrix.classes.length > MOST_CLASSES ? pairTable(matrix, { key, choose }) : heatMap(matrix, { key, choose });
  const first = kept(key, firstCell(matrix));
  if (first) choose(...first.split(",").map(Number));
  return el("div", { class: "confusion-part" }, body, shown);
}

// The most frequent mistake with pictures, otherwise the most frequent one.
function firstCell(matrix) {
  const cells = mistakesOf(matrix);
  const found = cells.find(({ row, column }) => matrix.examples[`${row},${column}`]?.length) ?? cells[0];
  return found ? `${found.row},${found.column}` : null;
}

function mistakesOf(matrix) {
  const cells = matrix.counts.flatMap((counts, row) => counts.map((count, column) => ({ row, column, count })));
  return cells.filter((cell) => cell.count > 0 && cell.row !== cell.column).sort((one, other) => other.count - one.count);
}

function examplesOf(matrix, row, column) {
  const [truth, predicted] = [matrix.classes[row], matrix.classes[column]];
  const count = matrix.counts[row][column];
  const words = row === column
    ? `${countText(count, "sample")} of ${truth}, predicted as such`
    : `${countText(count, "sample")} of ${truth}, predicted as ${predicted}`;
  const examples = matrix.examples[`${row},${column}`] ?? [];
  const note = examples.length ? (examples.length < count ? `${examples.length} of them:` : null) : count ? "No picture of them was kept." : null;
  return [el("h3", {}, words), note ? el("p", { class: "note" }, note) : null, samplesOf(examples)].filter((part) => part !== null);
}

function heatMap(matrix, { key, choose }) {
  const { classes, counts } = matrix;
  const isNumbered = classes.length <= MOST_NUMBERED;
  const buttons = [];
  let current = kept(key, firstCell(matrix) ?? "0,0");
  const mark = (name) => {
    current = name;
    for (const [one, button] of buttons) {
      button.tabIndex = one === name ? 0 : -1;
      button.setAttribute("aria-pressed", String(one === name));
    }
  };
  const pick = (row, column, moves) => {
    mark(`${row},${column}`);
    choose(row, column);
    if (moves) buttons.find(([name]) => name === current)[1].focus();
  };
  const cell = (count, row, column) => {
    const total = counts[row].reduce((sum, one) => sum + one, 0);
    const share = total ? count / total : 0;
    const strength = count ? 8 + 92 * Math.sqrt(share) : 0;
    const button = el("button", {
      type: "button", class: `${row === column ? "right" : "wrong"}${strength > 80 ? " strong" : ""}`, "data-key": `${key}:${row},${column}`,
      style: { "--strength": strength.toFixed(1) }, onclick: () => pick(row, column, false),
      title: `${classes[row]} predicted as ${classes[column]}: ${numberText(count)} (${percentText(share)} of ${classes[row]})`,
      "aria-label": `true ${classes[row]}, predicted ${classes[column]}: ${countText(count, "sample")}`,
      onkeydown: (event) => {
        const [down, right] = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key] ?? [0, 0];
        const next = [row + down, column + right];
        if ((!down && !right) || counts[next[0]]?.[next[1]] === undefined) return;
        event.preventDefault();
        pick(...next, true);
      },
    }, isNumbered && count ? numberText(count) : "");
    buttons.push([`${row},${column}`, button]);
    return el("td", {}, button);
  };
  const table = el("table", { class: `confusion${isNumbered ? "" : " small"}` },
    el("caption", {}, "Rows: true class. Columns: predicted class. Shade: share of the true class. Arrow keys move between cells."),
    el("thead", {}, el("tr", {}, el("th", { class: "corner" }, "true \\ predicted"), classes.map((name) => el("th", { scope: "col" }, el("span", {}, name))))),
    el("tbody", {}, counts.map((row, place) => el("tr", {}, el("th", { scope: "row" }, classes[place]), row.map((count, column) => cell(count, place, column))))));
  mark(current);
  return el("div", { class: "scroll confusion-frame", "data-scroll": key }, table);
}

// Too many classes for a picture of all cells: the most frequent mistakes.
function pairTable(matrix, { key, choose }) {
  const rows = mistakesOf(matrix).slice(0, MOST_PAIRS).map(({ row, column, count }) => el("tr", {},
    el("th", { scope: "row" }, matrix.classes[row]), el("td", {}, matrix.classes[column]), el("td", { class: "number" }, numberText(count)),
    el("td", {}, el("button", { type: "button", class: "plain", "data-key": `${key}:${row},${column}`, onclick: () => choose(row, column) }, "Show"))));
  const head = ["true class", "predicted class", "samples", ""].map((title) => el("th", { scope: "col" }, title));
  return el("div", {}, el("p", { class: "note" }, `The most frequent mistakes among ${numberText(matrix.classes.length)} classes.`),
    el("div", { class: "scroll", "data-scroll": key }, el("table", {}, el("thead", {}, el("tr", {}, head)), el("tbody", {}, rows))));
}
