// The top of the page: what the run is and how it ended.

const MOST_WARNINGS = 5;
// Characters that fit into the first tile, whose letters are the largest.
const LONGEST_IN_A_TILE = 9;
const STATES = { running: "running", finished: "finished", stopped: "stopped" };

function drawOverview(run) {
  return el("div", {},
    areSeveral() ? runChoice(run) : null,
    el("p", { class: "badges" },
      el("span", { class: `badge state-${STATES[run.state] ?? "unknown"}` }, run.state),
      el("span", { class: "badge" }, run.task), run.kind === "training" ? null : el("span", { class: "badge" }, run.kind)),
    run.headline.length ? el("dl", { class: "tiles" }, run.headline.map(([name, value]) => tile(name, value))) : null,
    run.warnings.length ? warningList(run.warnings, run) : null,
    run.facts.length ? pairs(run.facts) : null);
}

// "0.9833 (update 88)": the remark in brackets goes to the name.
function tile(name, value) {
  const [, short, remark] = /^(.+?)\s+(\(.+\))$/.exec(value) ?? [null, value, ""];
  return el("div", { class: short.length > LONGEST_IN_A_TILE ? "wide" : null }, el("dt", {}, name, remark ? ` ${remark}` : ""), el("dd", {}, short));
}

function runChoice(run) {
  const choice = el("select", { "data-key": "run", "aria-label": "Run", onchange: () => { state.chosen = choice.value; drawAll(); } },
    allRuns().map((one) => el("option", { value: one.id }, one.name)));
  choice.value = run.id;
  return el("label", { class: "run-choice" }, "Run ", choice);
}

function warningList(warnings, run) {
  const list = (some) => el("ul", {}, some.map((warning) => el("li", {}, warning)));
  const rest = warnings.slice(MOST_WARNINGS);
  return el("div", { class: "warnings", role: "note", "aria-label": "Warnings" },
    el("h3", {}, countText(warnings.length, "warning")), list(warnings.slice(0, MOST_WARNINGS)),
    rest.length ? folded(`warnings:${run.id}`, `${rest.length} more`, () => list(rest)) : null);
}

function drawCommand(command) {
  const said = el("span", { role: "status", class: "note" });
  const code = el("code", {}, command);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(command);
      said.textContent = "copied";
    } catch {
      window.getSelection().selectAllChildren(code);
      said.textContent = "selected: press Ctrl+C";
    }
    setTimeout(() => { said.textContent = ""; }, 3000);
  };
  return el("div", { class: "command" }, el("pre", {}, code), el("button", { type: "button", "data-key": "copy", onclick: copy }, "Copy"), said);
}
