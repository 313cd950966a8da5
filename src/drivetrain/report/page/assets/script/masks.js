// Images under their masks: a slider leads from the image over the true mask to the prediction.

const STOPS = ["image", "truth", "prediction"];

function positionText(value) {
  const nearest = Math.round(value);
  if (Math.abs(value - nearest) < 0.03) return STOPS[nearest];
  const [from, to] = [Math.floor(value), Math.ceil(value)];
  return `${percentText(value - from)} ${STOPS[to]}, rest ${STOPS[from]}`;
}

function drawMasks(masks, run) {
  const key = `masks:${run.id}`;
  const cards = masks.map((mask, place) => maskCard(mask, `${key}:${place}`));
  const setOpacity = (value) => {
    keep(`${key}:opacity`, value);
    cards.forEach((card) => card.setOpacity(value));
  };
  const setAll = (value) => cards.forEach((card) => card.setPosition(value));
  setOpacity(kept(`${key}:opacity`, 0.6));
  const jump = STOPS.map((name, place) => el("button", { type: "button", "data-key": `${key}:all:${place}`, onclick: () => setAll(place) }, name));
  return el("div", {},
    el("div", { class: "toolbar" },
      el("div", { class: "buttons", role: "group", "aria-label": "Show in all images" }, el("span", {}, "All images"), jump),
      slider(`${key}:opacity`, "Opacity of masks", { step: 0.05, value: kept(`${key}:opacity`, 0.6), change: setOpacity, say: percentText })),
    el("p", { class: "note" }, "The images with the lowest scores come first."),
    el("div", { class: "masks" }, cards.map((card) => card.root)));
}

function maskCard(mask, key) {
  const layers = [picture(mask.truth, ""), picture(mask.predicted, "")].map((image) => el("div", { class: "layer" }, image));
  const edge = el("div", { class: "edge", "aria-hidden": "true" });
  const shown = el("output", {});
  const range = el("input", {
    type: "range", min: 0, max: 2, step: 0.01, "data-key": key, "aria-label": `${mask.name}: image, truth, prediction`,
    oninput: () => setPosition(Number(range.value)),
  });
  const box = el("div", { class: "stack" }, picture(mask.image, `${mask.name} with its masks`), layers, edge);
  // The next layer is drawn over the one before, from the left to the edge.
  function setPosition(value) {
    keep(key, value);
    range.value = value;
    layers.forEach((layer, place) => {
      const part = Math.min(1, Math.max(0, value - place));
      const gone = Math.min(1, Math.max(0, value - place - 1));
      layer.style.clipPath = `inset(0 ${(1 - part) * 100}% 0 ${gone * 100}%)`;
    });
    const part = value - Math.floor(value);
    edge.hidden = part === 0;
    edge.style.left = `${part * 100}%`;
    shown.textContent = positionText(value);
    range.setAttribute("aria-valuetext", shown.textContent);
  }
  setPosition(kept(key, 1.5));
  const scores = Object.entries(mask.scores);
  const root = el("figure", { class: "mask" }, box, range,
    el("div", { class: "stops", "aria-hidden": "true" }, STOPS.map((name) => el("span", {}, name))),
    el("figcaption", {}, el("span", { class: "name", title: mask.name }, mask.name), shown,
      el("span", { class: "scores" }, scores.map(([name, value]) => el("span", {}, `${name} `, el("b", {}, numberText(value)))))));
  return { root, setPosition, setOpacity: (value) => layers.forEach((layer) => { layer.style.opacity = value; }) };
}
