// Builds elements. Whatever comes from a run becomes a text node or the value of an attribute, never markup.

const SVG = "http://www.w3.org/2000/svg";

function filled(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, one] of Object.entries(value)) made.style.setProperty(key, one);
    else if (name === "value") made.value = value;
    else made.setAttribute(name, value === true ? "" : String(value));
  }
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

const el = (tag, attributes = {}, ...children) => filled(document.createElement(tag), attributes, children);
const svg = (tag, attributes = {}, ...children) => filled(document.createElementNS(SVG, tag), attributes, children);

// A picture that lies in the page; any other address is left out.
function picture(uri, words, attributes = {}) {
  const isInside = typeof uri === "string" && uri.startsWith("data:image/");
  return el("img", { src: isInside ? uri : "data:,", alt: words, ...attributes });
}

// A part that opens; it is filled when it is opened first, and an update leaves it as it is.
function folded(key, title, fill) {
  const made = el("details", { "data-key": key }, el("summary", {}, title));
  const show = () => made.children.length === 1 && made.append(fill());
  made.addEventListener("toggle", () => {
    if (made.open) show();
    made.open ? state.open.add(key) : state.open.delete(key);
  });
  if (state.open.has(key)) {
    show();
    made.open = true;
  }
  return made;
}

function slider(key, words, { min = 0, max = 1, step = 0.01, value, change, say = String }) {
  const shown = el("output", {}, say(value));
  const range = el("input", {
    type: "range", min, max, step, value, "data-key": key, "aria-label": words, "aria-valuetext": say(value),
    oninput: () => {
      shown.textContent = say(Number(range.value));
      range.setAttribute("aria-valuetext", shown.textContent);
      change(Number(range.value));
    },
  });
  return el("label", { class: "slider" }, el("span", {}, words), range, shown);
}

function switchBox(key, words, { on, change }) {
  const box = el("input", { type: "checkbox", "data-key": key, onchange: () => change(box.checked) });
  box.checked = on;
  return el("label", { class: "switch" }, box, el("span", {}, words));
}

const tip = el("div", { class: "tip", hidden: true, role: "presentation" });

// Shows lines of text next to a point of the window.
function showTip(x, y, children) {
  tip.replaceChildren(...children);
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  const left = x + 14 + width > window.innerWidth ? Math.max(4, x - 14 - width) : x + 14;
  tip.style.left = `${left}px`;
  tip.style.top = `${Math.max(4, Math.min(y + 14, window.innerHeight - height - 4))}px`;
}

const hideTip = () => { tip.hidden = true; };

// Draws a part anew; focus and the places of scrolled frames inside it stay.
function withFocus(parent, draw) {
  const key = parent.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  const scrolled = new Map([...parent.querySelectorAll("[data-scroll]")].map((one) => [one.dataset.scroll, [one.scrollLeft, one.scrollTop]]));
  draw();
  for (const one of parent.querySelectorAll("[data-scroll]")) {
    [one.scrollLeft, one.scrollTop] = scrolled.get(one.dataset.scroll) ?? [0, 0];
  }
  if (key === undefined) return;
  [...parent.querySelectorAll("[data-key]")].find((one) => one.dataset.key === key)?.focus({ preventScroll: true });
}
