// Where the time went, and what the memory is for.

function drawTime(time) {
  const total = time.reduce((sum, [, seconds]) => sum + seconds, 0);
  const most = Math.max(...time.map(([, seconds]) => seconds), 1e-12);
  const rows = [...time].sort((one, other) => other[1] - one[1]).map(([name, seconds]) => el("tr", {},
    el("th", { scope: "row" }, name),
    el("td", { class: "bar-cell" }, el("div", { class: "bar", style: { width: `${(100 * seconds) / most}%` } })),
    el("td", { class: "number" }, secondsText(seconds)),
    el("td", { class: "number quiet" }, total ? percentText(seconds / total) : "")));
  return el("table", { class: "bars" }, el("caption", {}, `${secondsText(total)} in all`), el("tbody", {}, rows));
}

// Columns that sum up or bound the others are told in words only.
const isPart = (title) => !/peak|total|sum|limit|capacity|available|measured|all\b/i.test(title);

// Numbers are bytes.
function drawMemory(table, run) {
  const columns = table.columns.map((title, place) => ({ title, place })).slice(1).filter(({ place }) => isNumeric(table.rows, place));
  const parts = columns.filter(({ title }) => isPart(title));
  const stacked = parts.length ? parts : columns.slice(0, 1);
  const sum = (row) => stacked.reduce((all, { place }) => all + (row[place] ?? 0), 0);
  const most = Math.max(...table.rows.map(sum), 1);
  const rows = table.rows.map((row) => el("tr", {},
    el("th", { scope: "row" }, numberText(row[0])),
    el("td", { class: "bar-cell" }, el("div", { class: "stacked" }, stacked.map(({ title, place }, order) =>
      row[place] ? el("div", { title: `${title}: ${bytesText(row[place])}`, style: { width: `${(100 * row[place]) / most}%`, background: `var(${colourName(order)})` } }) : null))),
    el("td", { class: "number" }, bytesText(sum(row)))));
  const legend = el("div", { class: "legend" }, stacked.map(({ title }, order) => el("span", {}, swatch(order), title)));
  const words = { ...table, rows: table.rows.map((row) => row.map((cell, place) => (place && typeof cell === "number" ? bytesText(cell) : cell))) };
  return el("div", {}, legend, el("table", { class: "bars" }, el("tbody", {}, rows)),
    folded(`memory:${run.id}`, "Values as a table", () => tableOf(words, `memory:${run.id}`)));
}
