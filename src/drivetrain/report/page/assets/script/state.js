// What the reader has set; an update of the contents leaves it alone.

const MOST_SHOWN_AT_FIRST = 8;

const state = {
  contents: null,
  chosen: null,
  picked: new Map(),
  smoothing: 0,
  logged: new Set(),
  range: null,
  open: new Set(),
  kept: new Map(),
};

const kept = (key, initial) => (state.kept.has(key) ? state.kept.get(key) : initial);
const keep = (key, value) => { state.kept.set(key, value); };

function takeContents(contents) {
  state.contents = contents;
  const runs = contents.runs;
  runs.forEach((run, place) => {
    if (!state.picked.has(run.id)) state.picked.set(run.id, place < MOST_SHOWN_AT_FIRST);
  });
  if (!runs.some((run) => run.id === state.chosen)) state.chosen = runs.length ? runs[0].id : null;
}

const allRuns = () => state.contents.runs;
const chosenRun = () => allRuns().find((run) => run.id === state.chosen) ?? null;
const pickedRuns = () => allRuns().filter((run) => state.picked.get(run.id));
const areSeveral = () => allRuns().length > 1;
