// Tables and lists of facts.

const MOST_ROWS = 200;
const LONG = 44;

const isNumeric = (rows, place) => rows.some((row) => typeof row[place] === "number") && rows.every((row) => row[place] === null || typeof row[place] === "number");

// Numbers stand to the right; a wide table scrolls inside its frame.
function tableOf(table, key) {
  const numeric = table.columns.map((_, place) => isNumeric(table.rows, place));
  const kind = (place) => (place > 0 && numeric[place] ? "number" : null);
  const head = table.columns.map((title, place) => el("th", { scope: "col", class: kind(place) }, swatchOfName(title), title));
  const texts = table.columns.map((_, place) => columnTexts(table.rows.map((row) => row[place])));
  const rows = table.rows.map((row, line) => el("tr", {}, row.map((cell, place) =>
    place === 0
      ? el("th", { scope: "row" }, swatchOfName(cell), texts[place][line])
      : el("td", { class: kind(place) }, texts[place][line]))));
  return el("div", { class: "scroll", "data-scroll": key, tabindex: "0", role: "region", "aria-label": table.title },
    el("table", {}, table.columns.some(Boolean) ? el("thead", {}, el("tr", {}, head)) : null, el("tbody", {}, rows)));
}

const titledTable = (table, key) => el("div", { class: "block" }, el("h3", {}, table.title), tableOf(table, key));

function pairs(rows, attributes = {}) {
  return el("dl", { class: "facts", ...attributes }, rows.map(([name, value]) => el("div", { class: value.length > LONG ? "long" : null }, el("dt", {}, name), el("dd", {}, timeText(value)))));
}

// Evenly chosen places of a long list, the last one included.
function chosenPlaces(length, most = MOST_ROWS) {
  if (length <= most) return Array.from({ length }, (_, place) => place);
  return Array.from({ length: most }, (_, place) => Math.round((place * (length - 1)) / (most - 1)));
}
