// Charts as SVG, drawn for the width they have; every figure in them also stands on the page as text.

import { count, el, fill, svg } from "/components.js";

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
export function niceTicks(low, high, most = 5) {
  const raw = (high - low || Math.abs(high) || 1) / most, ten = 10 ** Math.floor(Math.log10(raw));
  const step = ten * [1, 2, 2.5, 5, 10].find((item) => item * ten >= raw);
  const first = Math.floor(low / step + 1e-9) * step;
  const ticks = [];
  for (let i = 0; first + i * step < high + step * 0.999 && i < 20; i += 1) ticks.push(Number((first + i * step).toPrecision(12)));
  return ticks;
}

/** Redraw whenever the width changes; `takes` gets the function that redraws. */
export function drawnToFit(holder, draw, takes = () => {}) {
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
