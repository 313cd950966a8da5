// What was asked: every option with where its value comes from, filtered by what is typed.

const isChosen = (value) => !/^default/i.test(value.origin);

function drawRecipe(recipe, run) {
  const key = `recipe:${run.id}`;
  const body = el("tbody", {});
  const count = el("output", { class: "note" });
  const draw = () => {
    const words = kept(`${key}:words`, "").toLowerCase().split(/\s+/).filter(Boolean);
    const all = kept(`${key}:all`, !recipe.some(isChosen));
    const found = recipe.filter((value) => (all || isChosen(value)) && words.every((word) => textOf(value).includes(word)));
    body.replaceChildren(...recipeRows(found));
    count.textContent = `${numberText(found.length)} of ${countText(recipe.length, "option")}`;
  };
  const filter = el("input", {
    type: "search", "data-key": `${key}:filter`, placeholder: "Filter by name, value or origin", "aria-label": "Filter the options",
    value: kept(`${key}:words`, ""), oninput: () => { keep(`${key}:words`, filter.value); draw(); },
  });
  draw();
  return el("div", {},
    el("div", { class: "toolbar" }, filter,
      switchBox(`${key}:all`, "with defaults", { on: kept(`${key}:all`, !recipe.some(isChosen)), change: (on) => { keep(`${key}:all`, on); draw(); } }), count),
    el("div", { class: "scroll tall", "data-scroll": key, tabindex: "0", role: "region", "aria-label": "Options" },
      el("table", { class: "recipe" }, el("thead", {}, el("tr", {}, ["option", "value", "origin"].map((title) => el("th", { scope: "col" }, title)))), body)));
}

const textOf = ({ group, option, value, origin, reason }) => `${group} ${option} ${value} ${origin} ${reason ?? ""}`.toLowerCase();

function recipeRows(values) {
  const groups = [...new Set(values.map((value) => value.group))];
  return groups.flatMap((group) => [
    el("tr", { class: "group" }, el("th", { colspan: 3, scope: "rowgroup" }, group)),
    ...values.filter((value) => value.group === group).map((value) => el("tr", {},
      el("th", { scope: "row" }, el("code", {}, value.option)),
      el("td", { class: "value" }, el("code", {}, value.value), value.reason ? el("p", { class: "reason" }, value.reason) : null),
      el("td", {}, el("span", { class: isChosen(value) ? "badge" : "quiet" }, value.origin)))),
  ]);
}
