// A training in detail: its figures, curve, samples, plan and log, as its files show them.

import { add, bullets, clock, duration, el, figures as plain, fill, folded, lines, loading, percent, problem, quiet,
  quote, redraw, size, svg, table, tag, totals, when } from "/components.js";
import { count, fixed, said, t } from "/language.js";
import { listen } from "/server.js";

/** The newest training, kept up to date while it is unfolded. */
export function details(left, summary) {
  const inside = el("div"), node = folded(summary, inside);
  let folding = new AbortController();
  node.addEventListener("toggle", () => {
    folding.abort();
    folding = new AbortController();
    if (node.open) training(fill(inside), AbortSignal.any([left, folding.signal]));
  });
  return node;
}

function training(element, left) {
  const numbers = el("div"), course = el("div"), samples = el("div"), plan = el("div"), log = el("div");
  const lost = el("div", loading()), learned = chart({ height: 300, settle: 0.1 }), rows = el("div.as-table");
  const asTable = folded(t`As a table`, rows), now = { state: null, curve: null, samples: [] };
  add(element, el("div.details.stack", lost, numbers, course, samples, plan, log));
  const curves = [el("div.course", learned, asTable),
    quiet(t`The line shows the training, smoothed. The dots show held-out posts. Lower is better.`)];
  asTable.addEventListener("toggle", () => asTable.open && draw());

  function draw() {
    const { curve, state } = now;
    if (state) fill(numbers, (state.step > 0 || state.outcome) && totals(totalsOf(state)));
    if (!curve || !(curve.step.length || curve.evaluations.length)) return void fill(course);
    if (!course.firstChild) fill(course, el("h3", t`What it learns`), curves);
    const held = curve.evaluations.map((mark) => [mark.step, mark.bits_per_byte])
      .filter(([, value]) => Number.isFinite(value));
    const end = Math.max(curve.steps ?? 0, curve.step.at(-1) ?? 0, held.at(-1)?.[0] ?? 0, 1);
    const points = (name) => curve.step.map((step, i) => [step, curve[name][i]]).filter(([, value]) => value !== null);
    learned.update({ label: t`bits per byte`, end, level: state?.outcome?.before, series: [
      { look: "raw", points: points("bits") }, { label: t`in training`, look: "curve own", points: points("smooth") },
      { label: t`held-out posts`, look: "held", points: held, isMarked: true }] });
    return asTable.open && fill(rows, tableOf(curve));
  }

  function drawSamples() {
    const { paragraph } = now.state?.outcome ?? {};
    redraw(samples, [now.samples, paragraph], () => {
      const shown = [...now.samples].reverse().map((item) =>
        quote(lines(item.text), { cite: t`After ${count(item.step, "step")}` }));
      const cite = paragraph?.title ? t`At the end, from the title “${paragraph.title}”` : t`At the end`;
      return [(shown.length > 0 || paragraph?.text) && el("h3", t`What it writes along the way`),
        paragraph?.text && quote(lines(paragraph.text), { cite, look: "ours" }), shown.slice(0, 2),
        shown.length > 2 && folded(t`${count(shown.length - 2)} earlier`, shown.slice(2))];
    });
  }

  function drawPlan() {
    const result = now.plan, judged = now.state?.outcome?.judged ?? [];
    if (!result) return;
    redraw(plan, [result, now.settings, judged], () => {
      const cells = (item) => [el("code", item.key), valueOf(item.value),
        el("span", said(item.reason), item.origin === "setting" && [" ", tag(t`yours`, "on")]), said(item.source)];
      const all = folded(t`${count(result.numbers.length, "number")} with reasons`, table({ caption: t`The plan`,
        class: "text-table plan-table", heads: [t`Setting`, t`Value`, t`Reason`, t`Source`],
        rows: result.numbers.map(cells) }));
      all.open = plan.querySelector("details")?.open ?? false;
      const wording = expectedOf(result.expected);
      return [el("h3", t`The plan`), wording && el("p.statement", wording),
        judged.length > 0 && bullets(judged.map(said)), all,
        now.settings && folded(t`All settings`, el("pre", { tabindex: "0" }, now.settings))];
    });
  }

  function drawLog(result) {
    if (!result.length) return void fill(log);
    const line = ({ time, text }) => el("li", el("time", clock(time)), " ", said(text));
    const list = el("ol.log", { tabindex: "0", "aria-label": t`Log, newest last` }, result.map(line));
    const before = log.querySelector("ol"), held = before?.scrollTop ?? 0;
    const isAtEnd = !before || held + before.clientHeight >= before.scrollHeight - 8;
    const isFocused = before && document.activeElement === before;
    fill(log, el("h3", t`Log`), list);
    list.scrollTop = isAtEnd ? list.scrollHeight : held;
    return isFocused && list.focus({ preventScroll: true });
  }

  listen(left, "/api/train/events", ({ event, data }) => {
    fill(lost);
    if (event === "log") return drawLog(data);
    now[event] = data;
    draw();
    drawSamples();
    return drawPlan();
  }, (error) => fill(lost, problem(error)));
}

function totalsOf({ metrics: latest, status, best, step, steps, began, time, remaining_s: remaining }) {
  const limit = latest.share_of_limit, isLive = status === "training";
  return [
    { figure: figure(best?.bits ?? latest.bits_per_byte), label: t`bits per byte`,
      note: best ? t`held-out posts, step ${count(best.step)}` : t`in training` },
    { figure: count(step), label: steps ? t`of ${count(steps, "step")}` : t`steps`,
      note: steps ? percent(step / steps) : "" },
    { figure: latest.tokens_per_s ? plain(latest.tokens_per_s) : "–", label: t`tokens per second`,
      note: limit ? t`${percent(limit)} of this machine’s limit` : "" },
    isLive ? { figure: remaining === null ? "–" : duration(remaining), label: t`of training left`,
      note: began ? t`started ${clock(began)}` : "" }
      : { figure: began && time ? duration(time - began) : "–", label: t`of training`, note: time ? when(time) : "" },
  ];
}

function expectedOf(expected) {
  if (expected?.seconds === undefined) return "";
  const { bits_low: low, bits_high: high, seconds, memory_bytes: memory, epochs } = expected;
  const result = low === undefined || high === undefined ? ""
    : t`Expected: ${fixed(low, 2)} to ${fixed(high, 2)} bits per byte.`;
  const cost = t`It takes about ${duration(seconds)} and ${size(memory)} of memory, and reads your posts ${plain(epochs)} times.`;
  return [result, cost].filter(Boolean).join(" ");
}

function valueOf(value) {
  if (typeof value === "boolean") return value ? t`yes` : t`no`;
  return Number.isInteger(value) ? count(value) : String(value);
}

// ---- charts: SVG, drawn for the width they have; every figure in them also stands on the page as text ----

const LEFT = 48, RIGHT = 14, TOP = 12, BOTTOM = 30;
const figure = (value) => (Number.isFinite(value) ? fixed(value, 3) : "–");

/** Curves over the steps; `update({label, end, series, level})` redraws them.
 *  `series`: [{label, look, points: [[step, value], …], isMarked}]. The scale fits the values after the share `settle`
 *  of the steps, when the first drop is over. */
function chart({ height, settle }) {
  const legend = el("p.legend"), plot = el("div.plot", { "aria-hidden": "true" });
  let now = { label: "", end: 1, series: [] }, width = 0;

  function draw() {
    fill(legend, el("span.at", now.label), now.series.filter(({ label }) => label).map(({ label, look, points }) =>
      el("span", el("i.swatch", { class: look.split(" ").at(-1) }), label, el("b", ` ${figure(points.at(-1)?.[1])}`))));
    fill(plot, width > 0 && now.series.some((item) => item.points.length) && curves());
  }

  function curves() {
    const { series, end, level } = now, all = series.flatMap((item) => item.points);
    const settled = settle * Math.max(...all.map(([step]) => step));
    const values = all.filter(([step]) => step >= settled).map(([, value]) => value).concat(level || []);
    let low = Math.min(...values), high = Math.max(...values);
    const least = Math.abs(high) * 0.02 || 0.02; // or noise would look like mountains
    if (high - low < least) [low, high] = [(low + high - least) / 2, (low + high + least) / 2];
    const ticks = niceTicks(low, high);
    [low, high] = [Math.min(low, ticks[0]), Math.max(high, ticks.at(-1))];
    const x = (step) => LEFT + (step / end) * (width - LEFT - RIGHT);
    const y = (value) => TOP + (1 - (Math.min(value, high) - low) / (high - low)) * (height - TOP - BOTTOM);
    const across = (look, at) => svg("line", { class: look, x1: LEFT, x2: width - RIGHT, y1: y(at), y2: y(at) });
    const tick = (value) => svg("text", { class: "y", x: LEFT - 8, y: y(value) + 4 }, plain(value));
    const parts = ticks.map((value) => [across("grid", value), tick(value)]);
    for (const step of niceTicks(0, end, width < 460 ? 3 : 6).filter((value) => value <= end)) {
      const place = step === 0 ? "start" : x(step) > width - 60 ? "end" : "middle";
      parts.push(svg("text", { x: place === "end" ? width - RIGHT : x(step), y: height - 8, "text-anchor": place },
        step === 0 ? t`step ${0}` : count(step)));
    }
    if (level) {
      parts.push(across("before", level),
        svg("text", { class: "before", x: width - RIGHT, y: y(level) - 6 }, t`before training`));
    }
    for (const { look, points, isMarked } of series) {
      const places = points.map(([step, value], i) => `${i ? "L" : "M"}${x(step).toFixed(1)},${y(value).toFixed(1)}`);
      parts.push(svg("path", { class: look, d: places.join("") }));
      const lowest = Math.min(...points.map(([, value]) => value));
      const best = points.findIndex(([, value]) => value === lowest);
      if (isMarked) parts.push(points.map(([step, value], i) => svg("circle",
        { class: i === best ? "mark best" : "mark", cx: x(step), cy: y(value), r: i === best ? 5 : 3.5 })));
    }
    return svg("svg", { class: "curves", width, height, "aria-hidden": "true" }, parts);
  }

  plot.style.minHeight = `${height}px`;
  new ResizeObserver(([entry]) => {
    const measured = Math.floor(entry.contentRect.width);
    if (measured === width || !measured) return;
    width = measured;
    draw();
  }).observe(plot);
  return Object.assign(el("figure", legend, plot), { update(next) { now = next; draw(); } });
}

/** Round numbers from a little below `low` to a little above `high`. */
function niceTicks(low, high, most = 5) {
  const raw = (high - low || Math.abs(high) || 1) / most, ten = 10 ** Math.floor(Math.log10(raw));
  const step = ten * [1, 2, 2.5, 5, 10].find((item) => item * ten >= raw);
  const first = Math.floor(low / step + 1e-9) * step;
  const n = Math.min(20, Math.ceil((high - first) / step + 0.999));
  return Array.from({ length: n }, (_, i) => Number((first + i * step).toPrecision(12)));
}

function tableOf(curve) {
  const held = new Map(curve.evaluations.map((mark) => [mark.step, mark.bits_per_byte]));
  const every = Math.max(1, Math.ceil(curve.step.length / 40)), last = curve.step.length - 1;
  const shown = curve.step.filter((_, i) => i % every === 0 || i === last);
  const steps = [...new Set([...shown, ...held.keys()])].sort((a, b) => a - b);
  const cells = (step) => {
    const i = curve.step.indexOf(step), bits = held.get(step), speed = curve.speed[i] ?? null;
    return [count(step), figure(curve.bits[i]), figure(curve.loss[i]), Number.isFinite(bits) ? figure(bits) : "",
      speed === null ? "" : count(speed)];
  };
  const heads = [t`Step`, t`Bits per byte`, t`Nats per token`, t`Held-out posts`, t`Tokens per second`];
  return table({ caption: t`Training curve`, heads, rows: steps.map(cells) });
}
