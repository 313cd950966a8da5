// Samples as pictures with what is known about them.

const samplesOf = (examples) => el("div", { class: "samples" }, examples.map(sample));

function sample(example) {
  const { name, image, truth, predicted, loss } = example;
  const isWrong = truth !== undefined && predicted !== undefined && truth !== predicted;
  const words = [
    truth === undefined ? null : el("span", {}, "true ", el("b", {}, truth)),
    predicted === undefined ? null : el("span", { class: isWrong ? "wrong" : "right" }, "predicted ", el("b", {}, predicted)),
    loss === undefined ? null : el("span", {}, "loss ", el("b", {}, numberText(loss))),
  ];
  return el("figure", { class: "sample" },
    picture(image, `${name}${truth === undefined ? "" : `, true ${truth}`}${predicted === undefined ? "" : `, predicted ${predicted}`}`),
    el("figcaption", {}, words, el("span", { class: "name", title: name }, name)));
}
