// Numbers as people read them.

const NONE = "\u2013";

function numberText(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return NONE;
  if (typeof value !== "number") return String(value);
  if (Number.isInteger(value) && Math.abs(value) < 1e15) return value.toLocaleString("en-US");
  const size = Math.abs(value);
  if (size < 1e-3 || size >= 1e9) return value.toExponential(2).replace("e+", "e");
  if (size >= 1000) return value.toLocaleString("en-US", { maximumFractionDigits: 0 });
  return String(Number(value.toPrecision(4)));
}

// The numbers of a column with equally many decimals, so that they can be compared at a glance.
function columnTexts(values) {
  const texts = values.map(numberText);
  const fractions = values.map((value, place) => typeof value === "number" && !Number.isInteger(value) && /^-?[\d.]+$/.test(texts[place]));
  const decimals = Math.max(0, ...texts.filter((_, place) => fractions[place]).map((text) => (text.split(".")[1] ?? "").length));
  return texts.map((text, place) => (fractions[place] ? values[place].toFixed(decimals) : text));
}

function axisText(value) {
  if (value === null) return "";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e9)) return value.toExponential().replace("e+", "e");
  if (size >= 1e6) return `${Number((value / 1e6).toPrecision(4))}M`;
  if (size >= 1e4) return `${Number((value / 1e3).toPrecision(4))}k`;
  return String(Number(value.toPrecision(6)));
}

function secondsText(value) {
  if (value === null || value === undefined) return NONE;
  if (value >= 5400) return `${(value / 3600).toFixed(1)} h`;
  if (value >= 120) return `${(value / 60).toFixed(1)} min`;
  if (value >= 10) return `${value.toFixed(0)} s`;
  if (value >= 1) return `${value.toFixed(1)} s`;
  return `${numberText(Number((value * 1000).toPrecision(2)))} ms`;
}

function microsecondsText(value) {
  if (value >= 1e6) return `${numberText(Number((value / 1e6).toPrecision(4)))} s`;
  if (value >= 1e3) return `${numberText(Number((value / 1e3).toPrecision(3)))} ms`;
  return `${numberText(Number(value.toPrecision(3)))} \u00b5s`;
}

const timeText = (value) => value.replace(/^(\d{4}-\d\d-\d\d)T(\d\d:\d\d):\d\d(\.\d+)?Z$/, "$1 $2 UTC");
const percentText = (share) => `${share >= 0.0995 || share === 0 ? Math.round(share * 100) : (share * 100).toFixed(1)}%`;
const countText = (count, one, many = `${one}s`) => `${numberText(count)} ${count === 1 ? one : many}`;
