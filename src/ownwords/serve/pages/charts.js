// Charts as SVG, drawn for the width they have; every figure in them also stands on the page as text.

import { count, el, fill, folded, svg, table } from "/components.js";

/** A thin bar; decoration, as its number stands beside it. */
export function shareLine(part, tone = "own") {
  const fillOf = el("i", { class: tone });
  fillOf.style.width = `${100 * Math.max(0, Math.min(1, part))}%`;
  return el("span", { class: "line", "aria-hidden": "true" }, fillOf);
}

/** Curves: series [{label, tone, points: [[x, y], …], dashed}]; `update(series)` redraws. The legend
 *  shows the values under the pointer; `sayX`, `sayY` put figures into words. */
export function lineChart(label, series, { sayX = count, sayY = (y) => y.toFixed(2), height = 240, from = null } = {}) {
  const holder = el("div", { class: "chart lines", "aria-hidden": "true" });
  const legend = el("p", { class: "legend" });
  let now = series, at = null, redraw = () => {};
  const xs = () => [...new Set(now.flatMap((item) => item.points.map(([x]) => x)))].sort((a, b) => a - b);
  const nearest = (points, x) => points.reduce((best, item) => (Math.abs(item[0] - x) < Math.abs(best[0] - x) ? item : best), points[0]);
  const marked = (item) => el("span", {}, el("i", { class: ["swatch", item.tone ?? "own"] }), item.label,
    item.points.length ? el("b", {}, ` ${sayY(at === null ? item.points.at(-1)[1] : nearest(item.points, at)[1])}`) : null);
  const drawLegend = () => fill(legend, el("span", { class: "at" }, at === null ? label : sayX(at)), now.map(marked));
  const inner = drawnToFit(el("div"), (width) => {
    const all = now.flatMap((item) => item.points).filter(([, y]) => Number.isFinite(y));
    if (!all.length) return svg("svg", { class: "curves", width, height, "aria-hidden": "true" });
    const left = 46, bottom = 24, right = 8, top = 8;
    const [x0, x1] = spread(all.map(([x]) => x)), [low, high] = spread(all.map(([, y]) => y));
    const ticks = niceTicks(from ?? low, high), y0 = Math.min(ticks[0], from ?? low), y1 = Math.max(ticks.at(-1), high);
    const px = (x) => left + ((x - x0) / (x1 - x0 || 1)) * (width - left - right);
    const py = (y) => top + (1 - (y - y0) / (y1 - y0 || 1)) * (height - top - bottom);
    const parts = ticks.flatMap((y) => [svg("line", { class: "grid", x1: left, x2: width - right, y1: py(y), y2: py(y) }),
      svg("text", { class: "y", x: left - 8, y: py(y) + 4 }, sayY(y))]);
    const steps = niceTicks(x0, x1, width < 420 ? 3 : 5).filter((x) => x >= x0 && x <= x1);
    parts.push(steps.map((x) => svg("text", { class: "x", x: px(x), y: height - 6 }, sayX(x))));
    for (const item of now) {
      if (!item.points.length) continue;
      const d = item.points.map(([x, y], i) => `${i ? "L" : "M"}${px(x).toFixed(1)},${py(y).toFixed(1)}`).join("");
      parts.push(svg("path", { class: ["curve", item.tone ?? "own"].join(" "), d, "stroke-dasharray": item.dashed ? "5 4" : null }));
      const [x, y] = at === null ? item.points.at(-1) : nearest(item.points, at);
      parts.push(svg("circle", { class: ["dot", item.tone ?? "own"].join(" "), cx: px(x), cy: py(y), r: 3.5 }));
    }
    if (at !== null) parts.push(svg("line", { class: "cross", x1: px(at), x2: px(at), y1: top, y2: height - bottom }));
    holder.onpointermove = (event) => moved(x0 + ((event.clientX - inner.getBoundingClientRect().left - left) / (width - left - right)) * (x1 - x0));
    return svg("svg", { class: "curves", width, height, "aria-hidden": "true" }, parts);
  }, (draw) => { redraw = draw; });
  const moved = (x) => {
    const known = xs();
    at = x === null || !known.length ? null : nearest(known.map((item) => [item]), x)[0];
    redraw();
    drawLegend();
  };
  holder.addEventListener("pointerleave", () => moved(null));
  drawLegend();
  const node = el("figure", {}, legend, holder);
  holder.append(inner);
  return Object.assign(node, { update: (next) => { now = next; redraw(); drawLegend(); } });
}

const spread = (values) => values.reduce(([low, high], item) => [Math.min(low, item), Math.max(high, item)], [Infinity, -Infinity]);

/** Round numbers from a little below `low` to a little above `high`. */
function niceTicks(low, high, most = 5) {
  const raw = (high - low || Math.abs(high) || 1) / most, ten = 10 ** Math.floor(Math.log10(raw));
  const step = ten * [1, 2, 2.5, 5, 10].find((item) => item * ten >= raw);
  const first = Math.floor(low / step + 1e-9) * step;
  const ticks = [];
  for (let i = 0; first + i * step < high + step * 0.999 && i < 20; i += 1) ticks.push(Number((first + i * step).toPrecision(12)));
  return ticks;
}

/** Redraw whenever the width changes; `takes` gets the function that redraws. */
function drawnToFit(holder, draw, takes = () => {}) {
  let width = 0;
  const redraw = () => width && fill(holder, draw(width));
  new ResizeObserver(([entry]) => {
    const now = Math.floor(entry.contentRect.width);
    if (now === width || !now) return;
    width = now;
    redraw();
  }).observe(holder);
  takes(redraw);
  return holder;
}

// ---- the training curve -----------------------------------------------------------------------

const HEIGHT = 300, LEFT = 48, RIGHT = 14, TOP = 12, BOTTOM = 30;
const figure = (value) => (value === null || value === undefined ? "–" : value.toFixed(3));

/** The curve with its legend and its table. `update(curve, {measure, before})`: `measure` is "bits"
 *  or "loss"; `before` the bits per byte before training. */
export function trainingChart() {
  const legend = el("p", { class: "legend" }), plot = el("div", { class: "plot", "aria-hidden": "true" }), rows = el("div", { class: "as-table" });
  const details = folded("As a table", rows);
  let data = null, options = { measure: "bits" }, at = null, scale = null, redraw = () => {};

  drawnToFit(plot, (width) => {
    scale = data && scaled(data, options, width);
    if (data) fill(legend, readout(data, options, at));
    return scale ? drawn(data, options, scale, width, at) : null;
  }, (draw) => { redraw = draw; });
  const move = (to) => {
    at = to;
    redraw();
  };
  plot.addEventListener("pointermove", (event) => {
    if (!scale || !data.step.length) return;
    move(nearest(data.step, scale.step(event.clientX - plot.getBoundingClientRect().left)));
  });
  plot.addEventListener("pointerleave", () => move(null));
  details.addEventListener("toggle", () => details.open && data && fill(rows, asTable(data)));

  return Object.assign(el("figure", { class: "course" }, legend, plot, details), {
    update(curve, changed = {}) {
      data = curve;
      options = { ...options, ...changed };
      if (at !== null && at >= curve.step.length) at = null;
      redraw();
      if (details.open) fill(rows, asTable(data));
    },
  });
}

/** Nats per token in one bit per byte, a constant of the run. */
function factor(curve) {
  for (let i = curve.step.length - 1; i >= 0; i -= 1) if (curve.bits[i] && curve.loss[i]) return curve.loss[i] / curve.bits[i];
  return 1;
}

const times = (curve, { measure }) => (measure === "loss" ? factor(curve) : 1);
const best = (mark) => Math.min(mark.bits_per_byte ?? Infinity, mark.averaged_bits_per_byte ?? Infinity);

function scaled(curve, how, width) {
  const by = times(curve, how), count = curve.step.length;
  if (!count && !curve.evaluations.length) return null;
  const end = Math.max(curve.steps ?? 0, curve.step[count - 1] ?? 0, curve.evaluations.at(-1)?.step ?? 0, 1);
  // The first steps' plunge does not flatten the rest.
  const from = 0.1 * (curve.step[count - 1] ?? 0);
  const later = (column) => column.filter((_, i) => curve.step[i] >= from);
  const values = [...later(curve.smooth), ...later(curve.bits)].concat(curve.evaluations.map(best))
    .concat(how.before ? [how.before] : []).filter(Number.isFinite).map((value) => value * by);
  let low = Math.min(...values), high = Math.max(...values);
  const least = Math.max(0.02, Math.abs(high) * 0.02); // or noise would look like mountains
  if (high - low < least) [low, high] = [(low + high - least) / 2, (low + high + least) / 2];
  const ticks = niceTicks(low, high);
  low = Math.min(low, ticks[0]);
  high = Math.max(high, ticks.at(-1));
  const x = (step) => LEFT + (step / end) * (width - LEFT - RIGHT);
  const y = (value) => TOP + (1 - (Math.min(value, high) - low) / (high - low)) * (HEIGHT - TOP - BOTTOM);
  return { x, y, by, ticks, end, step: (px) => ((px - LEFT) / (width - LEFT - RIGHT)) * end };
}

function drawn(curve, how, { x, y, by, ticks, end }, width, at) {
  const parts = ticks.flatMap((value) => [
    svg("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(value), y2: y(value) }),
    svg("text", { class: "y", x: LEFT - 8, y: y(value) + 4 }, value.toFixed(ticks[1] - ticks[0] < 0.1 ? 2 : 1)),
  ]);
  for (const step of niceTicks(0, end, width < 460 ? 3 : 6).filter((value) => value <= end)) {
    const place = step === 0 ? "start" : x(step) > width - 60 ? "end" : "middle";
    parts.push(svg("text", { class: "x", x: place === "end" ? width - RIGHT : x(step), y: HEIGHT - 8, "text-anchor": place }, step === 0 ? "step 0" : count(step)));
  }
  if (how.before) {
    parts.push(svg("line", { class: "before", x1: LEFT, x2: width - RIGHT, y1: y(how.before * by), y2: y(how.before * by) }),
      svg("text", { class: "before", x: width - RIGHT, y: y(how.before * by) - 6 }, "before training"));
  }
  const path = (values) => values.map((value, i) => (value === null ? "" : `${i ? "L" : "M"}${x(curve.step[i]).toFixed(1)},${y(value * by).toFixed(1)}`)).join("").replace(/^L/, "M");
  parts.push(svg("path", { class: "raw", d: path(curve.bits) }), svg("path", { class: "curve own", d: path(curve.smooth) }));
  const marks = curve.evaluations.filter((mark) => Number.isFinite(best(mark)));
  if (marks.length > 1) parts.push(svg("path", { class: "held", d: marks.map((mark, i) => `${i ? "L" : "M"}${x(mark.step).toFixed(1)},${y(best(mark) * by).toFixed(1)}`).join("") }));
  const lowest = marks.reduce((result, mark) => (result && best(result) <= best(mark) ? result : mark), null);
  for (const mark of marks) {
    parts.push(svg("circle", { class: mark === lowest ? "mark best" : "mark", cx: x(mark.step), cy: y(best(mark) * by), r: mark === lowest ? 5 : 3.5 },
      svg("title", {}, `${figure(best(mark))} bits per byte on held-out posts, step ${count(mark.step)}`)));
  }
  if (at !== null && curve.step[at] !== undefined) {
    parts.push(svg("line", { class: "cross", x1: x(curve.step[at]), x2: x(curve.step[at]), y1: TOP, y2: HEIGHT - BOTTOM }),
      svg("circle", { class: "dot own", cx: x(curve.step[at]), cy: y(curve.smooth[at] * by), r: 4 }));
  }
  return svg("svg", { class: "curves", width, height: HEIGHT, "aria-hidden": "true" }, parts);
}

function readout(curve, how, at) {
  const last = curve.step.length - 1, here = at ?? last, by = times(curve, how);
  const unit = how.measure === "loss" ? "nats per token" : "bits per byte";
  const value = curve.smooth[here];
  const marks = curve.evaluations.filter((mark) => Number.isFinite(best(mark)) && (at === null || mark.step <= curve.step[here]));
  const held = marks.at(-1);
  return [el("span", { class: "at" }, here < 0 ? unit : `${unit} at step ${count(curve.step[here])}`),
    el("span", {}, el("i", { class: "swatch own" }), "in training ", el("b", {}, value === undefined || value === null ? "–" : figure(value * by))),
    el("span", {}, el("i", { class: "swatch held" }), "held-out posts ", el("b", {}, held ? figure(best(held) * by) : "–"))];
}

function asTable(curve) {
  const held = new Map(curve.evaluations.map((mark) => [mark.step, mark]));
  const every = Math.max(1, Math.ceil(curve.step.length / 40));
  const steps = [...new Set([...curve.step.filter((_, i) => i % every === 0 || i === curve.step.length - 1), ...held.keys()])].sort((a, b) => a - b);
  return table({
    caption: "Training curve",
    heads: ["Step", "Bits per byte", "Nats per token", "Held-out", "Tokens/s"],
    rows: steps.map((step) => {
      const i = curve.step.indexOf(step), mark = held.get(step);
      return [count(step), figure(curve.bits[i]), figure(curve.loss[i]), mark && Number.isFinite(best(mark)) ? figure(best(mark)) : "",
        i < 0 || curve.speed[i] === null ? "" : count(curve.speed[i])];
    }),
  });
}

function nearest(steps, wanted) {
  let result = 0;
  for (let i = 1; i < steps.length; i += 1) if (Math.abs(steps[i] - wanted) < Math.abs(steps[result] - wanted)) result = i;
  return result;
}
