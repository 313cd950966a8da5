// Light and dark, and the colours of runs: the same run has the same colour in every chart.

const COLOURS = 8;
const DASHES = [[], [7, 4], [2, 3], [9, 3, 2, 3]];
const root = document.documentElement;
const prefersDark = window.matchMedia("(prefers-color-scheme: dark)");
const afterTheme = [];

const cssColour = (name) => getComputedStyle(root).getPropertyValue(name).trim();
const colourName = (place) => `--c${place % COLOURS}`;
const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : prefersDark.matches);

function setTheme(theme) {
  if (theme) root.dataset.theme = theme;
  else delete root.dataset.theme;
  afterTheme.forEach((act) => act());
}

function themeButton() {
  const words = () => (isDark() ? "Light" : "Dark");
  const made = el("button", {
    type: "button", class: "plain", "data-key": "theme", "aria-label": "Switch between light and dark",
    onclick: () => setTheme(isDark() ? "light" : "dark"),
  }, words());
  afterTheme.push(() => { made.textContent = words(); });
  return made;
}

prefersDark.addEventListener("change", () => afterTheme.forEach((act) => act()));

const swatch = (place) => el("span", { class: "swatch", "aria-hidden": "true", style: { background: `var(${colourName(place)})` } });

// The swatch of the run that a table names, if it names one.
function swatchOfName(name) {
  const place = areSeveral() ? allRuns().findIndex((run) => run.name === name) : -1;
  return place < 0 ? null : swatch(place);
}
