// Fingers on a chart: two zoom, one moves a zoomed chart along the updates; up and down still scroll the page.

const FEWEST_PIXELS = 12;

function followFingers(chart) {
  let from = null;
  const placesOf = (event) => {
    const { left } = chart.plot.over.getBoundingClientRect();
    return [...event.touches].slice(0, 2).map((touch) => touch.clientX - left).sort((one, other) => one - other);
  };
  const begin = (event) => {
    const { min, max } = chart.plot.scales.x;
    from = { places: placesOf(event), min, perPixel: (max - min) / chart.plot.over.clientWidth };
  };
  const follow = (event) => {
    if (!from || !chart.plot || (from.places.length === 1 && state.range === null)) return;
    if (event.cancelable) event.preventDefault();
    const range = rangeUnder(from, placesOf(event), chart.plot.over.clientWidth);
    if (range) chart.zoom(from.places.length > 1 ? range : movedInside(range, chart.fullRange()));
  };
  const target = chart.frame;
  for (const name of ["touchstart", "touchend", "touchcancel"]) target.addEventListener(name, (event) => { chart.plot && begin(event); }, { passive: true });
  target.addEventListener("touchmove", follow, { passive: false });
}

// The updates to show, such that those that were under the fingers at first are under them again.
function rangeUnder({ places, min, perPixel }, now, width) {
  if (!places.length || now.length !== places.length) return null;
  const [first, last] = places.length > 1 ? [places[1] - places[0], now[1] - now[0]] : [1, 1];
  if (places.length > 1 && Math.min(first, last) < FEWEST_PIXELS) return null;
  const by = (perPixel * first) / last;
  const start = min + places[0] * perPixel - now[0] * by;
  return [start, start + width * by];
}

// At the ends of the data a chart that is moved keeps its width.
function movedInside([min, max], [first, last]) {
  const by = Math.max(first - min, 0) + Math.min(last - max, 0);
  return [min + by, max + by];
}
