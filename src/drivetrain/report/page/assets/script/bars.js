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

// Columns that sum up or bound the others are no part of them.
const isPart = (title) => !/peak|total|sum|limit|capacity|available|measured|all\b/i.test(title);
const unitOf = (title) => / in (\S+)$/.exec(title)?.[1] ?? "";

// Each row is a bar of its parts; a row that only has a peak is a bar if no row has parts.
function drawMemory(table, run) {
  const unit = unitOf(table.title);
  const columns = table.columns.map((title, place) => ({ title, place })).slice(1).filter(({ place }) => isNumeric(table.rows, place));
  const parts = columns.filter(({ title }) => isPart(title));
  const whole = columns.find(({ title }) => /peak|total/i.test(title));
  const stacked = parts.length ? parts : columns.slice(0, 1);
  const sum = (row) => stacked.reduce((all, { place }) => all + (row[place] ?? 0), 0);
  const most = Math.max(...table.rows.map(sum), 1e-12);
  const sized = (value) => `${numberText(Number(value.toPrecision(3)))} ${unit}`;
  const bar = (row) => stacked.map(({ title, place }, order) => (row[place]
    ? el("div", { title: `${title}: ${sized(row[place])}`, style: { width: `${(100 * row[place]) / most}%`, background: `var(${colourName(order)})` } })
    : null));
  const rows = table.rows.map((row) => el("tr", {},
    el("th", { scope: "row" }, numberText(row[0])),
    el("td", { class: "bar-cell" }, el("div", { class: "stacked" }, bar(row))),
    el("td", { class: "number" }, sized((whole ? row[whole.place] : null) ?? sum(row)))));
  const legend = stacked.length > 1 ? stacked.map(({ title }, order) => el("span", {}, swatch(order), title)) : [];
  return el("div", {}, el("div", { class: "legend" }, legend),
    el("table", { class: "bars" }, whole ? el("caption", {}, `Figures: ${whole.title}`) : null, el("tbody", {}, rows)),
    folded(`memory:${run.id}`, `${table.title}, as a table`, () => tableOf(table, `memory:${run.id}`)));
}
