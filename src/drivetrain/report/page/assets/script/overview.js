// The top of the page: what the run is and how it ended.

const STATES = { running: "running", finished: "finished", stopped: "stopped" };

function drawOverview(run) {
  return el("div", {},
    areSeveral() ? runChoice(run) : null,
    el("p", { class: "badges" },
      el("span", { class: `badge state-${STATES[run.state] ?? "unknown"}` }, run.state),
      el("span", { class: "badge" }, run.task), run.kind === "training" ? null : el("span", { class: "badge" }, run.kind)),
    run.headline.length ? el("dl", { class: "tiles" }, run.headline.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, ...remarked(value))))) : null,
    run.warnings.length ? warningList(run.warnings) : null,
    run.facts.length ? pairs(run.facts) : null);
}

// "0.9833 (update 88)": the remark in brackets is small.
function remarked(value) {
  const found = /^(.+?)\s+(\(.+\))$/.exec(value);
  return found ? [found[1], el("small", {}, ` ${found[2]}`)] : [value];
}

function runChoice(run) {
  const choice = el("select", { "data-key": "run", "aria-label": "Run", onchange: () => { state.chosen = choice.value; drawAll(); } },
    allRuns().map((one) => el("option", { value: one.id }, one.name)));
  choice.value = run.id;
  return el("label", { class: "run-choice" }, "Run ", choice);
}

const warningList = (warnings) => el("div", { class: "warnings", role: "note", "aria-label": "Warnings" },
  el("h3", {}, countText(warnings.length, "warning")), el("ul", {}, warnings.map((warning) => el("li", {}, warning))));

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
