// Several runs side by side.

function drawComparison(comparison) {
  const { results, settings } = comparison;
  return el("div", {},
    results.rows.length ? titledTable(results, "results") : null,
    settings.rows.length ? titledTable(settings, "settings") : el("p", { class: "note" }, "The runs have the same settings."));
}
