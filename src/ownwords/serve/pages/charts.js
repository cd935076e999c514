// Charts as SVG, drawn for the width they have; every figure in them also stands on the page as text.

import { count, el, fill, uniqueId, percent, svg } from "/components.js";

const share = (part, whole) => `${((100 * part) / (whole || 1)).toFixed(3)}%`;

/** One bar of slices: [{label, value, tone, note, strength}]; `tone` is a colour of the stylesheet
 *  (own, rest, k1 … k4), "out" is hatched. Labels stand below where there is the room. */
export function stackedBar(label, slices, { slim = false, labelled = true } = {}) {
  const total = slices.reduce((sum, part) => sum + part.value, 0) || 1;
  const hatch = uniqueId("hatch");
  let at = 0;
  const wording = slices.map((part) => `${part.label} ${part.note ?? percent(part.value / total)}`).join(", ");
  const drawn = slices.map((part) => {
    const node = svg("rect", { class: part.tone ?? "own", x: share(at, total), width: share(part.value, total), height: "100%",
      fill: part.tone === "out" ? `url(#${hatch})` : null, "fill-opacity": part.strength ?? null },
      svg("title", {}, `${part.label}: ${part.note ?? percent(part.value / total)}`));
    at += part.value;
    return node;
  });
  return el("div", { class: "chart" },
    svg("svg", { class: "stack", role: "img", "aria-label": `${label}: ${wording}.`, width: "100%", height: slim ? "14" : "40" }, hatched(hatch), drawn),
    labelled ? sliceLabels(slices, total) : null);
}

const hatched = (id) => svg("defs", {}, svg("pattern", { id, width: "6", height: "6", patternUnits: "userSpaceOnUse" },
  svg("rect", { width: "6", height: "6", class: "hatch-ground" }),
  svg("path", { d: "M-1,7 L7,-1 M-1,1 L1,-1 M5,7 L7,5", class: "hatch-line" })));

function sliceLabels(slices, total, room = 0.11) {
  const cells = [];
  let narrow = [];
  const together = () => {
    if (!narrow.length) return;
    const sum = narrow.reduce((all, part) => all + part.value, 0);
    const fits = sum / total >= room;
    cells.push(labelOf(fits ? percent(sum / total) : "", fits ? `${narrow.length} texts` : "", sum / total));
    narrow = [];
  };
  for (const part of slices) {
    if (part.value / total < room) narrow.push(part);
    else {
      together();
      cells.push(labelOf(part.note ?? percent(part.value / total), part.label, part.value / total));
    }
  }
  together();
  return el("div", { class: "slice-labels", "aria-hidden": "true" }, cells);
}

function labelOf(figure, name, width) {
  const node = el("span", {}, el("b", {}, figure), el("bdi", {}, name));
  node.style.width = `${100 * width}%`;
  return node;
}

/** A thin bar; decoration, as its number stands beside it. */
export function shareLine(part, tone = "own") {
  const fillOf = el("i", { class: tone });
  fillOf.style.width = `${100 * Math.max(0, Math.min(1, part))}%`;
  return el("span", { class: "line", "aria-hidden": "true" }, fillOf);
}

/** Figures of one kind as bars with confidence intervals: [{label, value, text, low, high,
 *  span, note, is_ours}]; `top` is where the scale ends. */
export function gauges(caption, rows, top) {
  const whole = top || Math.max(...rows.map((item) => Math.max(item.value, item.high ?? 0))) || 1;
  const place = (value) => 100 * Math.min(1, Math.max(0, value / whole));
  return el("table", { class: "gauges" }, el("caption", {}, caption),
    el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Of"), el("th", { scope: "col" }, "Figure"))),
    el("tbody", {}, rows.map((item) => {
      const bar = el("i", { class: item.is_ours ? "own" : "k3" });
      bar.style.width = `${place(item.value)}%`;
      const sure = item.low !== null && item.low !== undefined && item.high !== null && item.high !== undefined ? el("b") : null;
      if (sure) Object.assign(sure.style, { left: `${place(item.low)}%`, width: `${place(item.high) - place(item.low)}%` });
      const below = [item.span, item.note].filter(Boolean).join(" · ");
      return el("tr", {}, el("th", { scope: "row" },
        el("span", { class: ["label", item.is_ours && "ours"] }, item.label), el("span", { class: "gauge", "aria-hidden": "true" }, bar, sure),
        below ? el("span", { class: "quiet" }, below) : null), el("td", { class: item.is_ours ? "ours" : null }, item.text));
    })));
}

/** Words rise above the line of years, posts hang below it: [{year, posts, words, out}]. */
export function yearColumns(label, years) {
  const holder = el("div", { class: "chart" });
  return drawnToFit(holder, (width) => {
    const slot = width / Math.max(years.length, 8), axis = 152, hatch = uniqueId("hatch");
    const most = Math.max(...years.map((item) => item.words)) || 1, many = Math.max(...years.map((item) => item.posts)) || 1;
    const parts = [hatched(hatch), svg("line", { x1: 0, x2: width, y1: axis, y2: axis, class: "axis" })];
    years.forEach((item, i) => {
      const rise = (132 * item.words) / most, hang = (34 * item.posts) / many, out = rise * Math.min(1, item.out / (item.words || 1));
      const x = slot * (i + 0.16), w = slot * 0.68, middle = slot * (i + 0.5);
      const rect = (look, y, height, wording, fillOf = null) => svg("rect", { class: look, x, y, width: w, height, fill: fillOf }, svg("title", {}, `${item.year}: ${wording}`));
      parts.push(rect("own", axis - rise + out, rise - out, count(item.words, "word")),
        out ? rect("out", axis - rise, out, `${count(item.out, "word")} left out`, `url(#${hatch})`) : null,
        rect("posts", axis + 26, hang, count(item.posts, "post")));
      const roomy = slot > 34;
      if (item.words && (roomy || item.words === most)) parts.push(svg("text", { x: middle, y: axis - rise - 6 }, compact(item.words)));
      if (item.posts && (roomy || item.posts === many)) parts.push(svg("text", { class: "quiet", x: middle, y: axis + 26 + hang + 13 }, count(item.posts)));
      if (i % Math.ceil(40 / slot) === 0) parts.push(svg("text", { class: "year", x: middle, y: axis + 17 }, String(item.year || "–")));
    });
    return svg("svg", { class: "columns", role: "img", "aria-label": label, width, height: 228 }, parts);
  });
}

function compact(n) {
  for (const [size, letter] of [[1e6, "m"], [1e3, "k"]]) {
    if (n >= size) return (n < 10 * size ? (n / size).toFixed(1).replace(/\.0$/, "") : Math.floor(n / size)) + letter;
  }
  return String(n);
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
