// A training in detail: its figures, curve, samples, plan and log, as its files show them.

import { add, bullets, clock, duration, el, figures as plain, fill, folded, lines, loading, percent, problem, quiet, quote, size, statement, svg, table, tag,
  totals, when } from "/components.js";
import { count, fixed, said, t } from "/language.js";
import { listen } from "/server.js";

/** Fill `element` with the newest training, and keep it up to date. Returns a function that ends it. */
export function details(element) {
  const numbers = el("div"), course = el("div"), samples = el("div"), plan = el("div"), log = el("div"), lost = el("div"), rows = el("div", { class: "as-table" });
  const learned = chart({ height: 300, settle: 0.1 });
  const asTable = folded(t`As a table`, rows), now = { state: null, curve: null, samples: [] }, last = {};
  fill(lost, loading(t`Loading`));
  add(element, el("div", { class: "details stack" }, lost, numbers, course, samples, plan, log));
  const curves = [el("div", { class: "course" }, learned, asTable), quiet(t`The line shows the training, smoothed. The dots show posts that it does not learn from. Lower is better.`)];
  asTable.addEventListener("toggle", () => asTable.open && draw());

  // Unchanged parts are not redrawn, or their reader would lose the place.
  const isNew = (name, value) => {
    const text = JSON.stringify(value);
    if (last[name] === text) return false;
    last[name] = text;
    return true;
  };

  function draw() {
    const { curve, state } = now;
    if (state) fill(numbers, state.step || state.outcome ? totals(totalsOf(state)) : null);
    if (!curve || !(curve.step.length || curve.evaluations.length)) return void fill(course);
    if (!course.firstChild) fill(course, el("h3", {}, t`What it learns`), curves);
    const held = curve.evaluations.map((mark) => [mark.step, mark.bits_per_byte]).filter(([, value]) => Number.isFinite(value));
    const end = Math.max(curve.steps ?? 0, curve.step.at(-1) ?? 0, held.at(-1)?.[0] ?? 0, 1);
    const points = (name) => curve.step.map((step, i) => [step, curve[name][i]]).filter(([, value]) => value !== null);
    learned.update({ label: t`bits per byte`, end, level: state?.outcome?.before, series: [{ look: "raw", points: points("bits") },
      { label: t`in training`, look: "curve own", points: points("smooth") }, { label: t`held-out posts`, look: "held", points: held, isMarked: true }] });
    if (asTable.open) fill(rows, tableOf(curve));
  }

  function written() {
    const { paragraph } = now.state?.outcome ?? {};
    if (!isNew("samples", [now.samples, paragraph])) return;
    const shown = [...now.samples].reverse().map((item) => quote(lines(item.text), { cite: t`After ${count(item.step, "step")}` }));
    fill(samples, shown.length || paragraph?.text ? el("h3", {}, t`What it writes on the way`) : null,
      paragraph?.text ? quote(lines(paragraph.text), { cite: paragraph.title ? t`At the end, from the title “${paragraph.title}”` : t`At the end`, class: "ours" }) : null,
      shown.slice(0, 2), shown.length > 2 ? folded(t`${count(shown.length - 2)} earlier`, shown.slice(2)) : null);
  }

  function planned() {
    const result = now.plan;
    if (!result || !isNew("plan", [result, now.settings, now.state?.outcome?.judged])) return;
    const isOpen = plan.querySelector("details")?.open ?? false;
    const rows = result.numbers.map((item) => [el("code", {}, item.key), valueOf(item.value), el("span", {}, said(item.reason), item.origin === "setting" ? [" ", tag(t`yours`, "on")] : null), said(item.source)]);
    const all = folded(t`${count(rows.length, "number")} with reasons`, table({ caption: t`The plan`, class: "text-table plan-table", heads: [t`Setting`, t`Value`, t`Reason`, t`Source`], rows }));
    all.open = isOpen;
    const wording = expectedOf(result.expected), judged = now.state?.outcome?.judged ?? [];
    fill(plan, el("h3", {}, t`The plan`), wording ? statement(wording) : null, judged.length ? bullets(judged.map(said)) : null, all,
      now.settings ? folded(t`All settings`, el("pre", { tabindex: "0" }, now.settings)) : null);
  }

  function logged(result) {
    if (!result.length) return void fill(log);
    const list = el("ol", { class: "log", tabindex: "0", "aria-label": t`Log, newest last` }, result.map((line) => el("li", {}, el("time", {}, clock(line.time)), " ", said(line.text))));
    const before = log.querySelector("ol"), atEnd = !before || before.scrollTop + before.clientHeight >= before.scrollHeight - 8, held = before?.scrollTop ?? 0;
    const focused = document.activeElement === before;
    if (before) before.replaceWith(list);
    else fill(log, el("h3", {}, t`Log`), list);
    list.scrollTop = atEnd ? list.scrollHeight : held;
    if (focused) list.focus({ preventScroll: true });
  }

  return listen("/api/train/events", ({ event, data }) => {
    fill(lost);
    if (event === "log") return void logged(data);
    now[event] = data;
    if (event === "state" || event === "curve") draw();
    if (event === "state" || event === "samples") written();
    if (event === "state" || event === "plan" || event === "settings") planned();
  }, { onLost: (error) => fill(lost, problem(error)) });
}

function totalsOf(result) {
  const latest = result.metrics, isLive = result.status === "training", limit = latest.share_of_limit;
  const bits = result.best?.bits ?? latest.bits_per_byte;
  return [
    { figure: figure(bits), label: t`bits per byte`, note: result.best ? t`held-out posts, step ${count(result.best.step)}` : t`in training` },
    { figure: count(result.step), label: result.steps ? t`of ${count(result.steps, "step")}` : t`steps`, note: result.steps ? percent(result.step / result.steps) : "" },
    { figure: latest.tokens_per_s ? plain(latest.tokens_per_s) : "–", label: t`tokens per second`, note: limit ? t`${percent(limit)} of this machine’s limit` : "" },
    isLive ? { figure: result.remaining_s === null ? "–" : duration(result.remaining_s), label: t`of training left`, note: result.began ? t`started ${clock(result.began)}` : "" }
      : { figure: result.began && result.time ? duration(result.time - result.began) : "–", label: t`of training`, note: result.time ? when(result.time) : "" },
  ];
}

function expectedOf(expected) {
  if (!expected || expected.seconds === undefined) return "";
  const low = expected.bits_low, high = expected.bits_high;
  return [low !== undefined && high !== undefined ? t`Expected: ${fixed(low, 2)} to ${fixed(high, 2)} bits per byte.` : "",
    t`It takes about ${duration(expected.seconds)} and ${size(expected.memory_bytes)} of memory, and reads your posts ${plain(expected.epochs)} times.`].filter(Boolean).join(" ");
}

const valueOf = (value) => (value === true ? t`yes` : value === false ? t`no` : typeof value === "number" ? (Number.isInteger(value) ? count(value) : String(value)) : String(value));

// ---- charts: SVG, drawn for the width they have; every figure in them also stands on the page as text ----

const LEFT = 48, RIGHT = 14, TOP = 12, BOTTOM = 30;
const figure = (value) => (Number.isFinite(value) ? fixed(value, 3) : "–");

/** Curves over the steps; `update({label, end, series, level})` redraws them.
 *  `series`: [{label, look, points: [[step, value], …], isMarked}]; `settle`: the share of the steps whose plunge does not flatten the rest. */
function chart({ height, settle }) {
  const legend = el("p", { class: "legend" }), plot = el("div", { class: "plot", "aria-hidden": "true" });
  let now = { label: "", end: 1, series: [] }, width = 0;

  function draw() {
    fill(legend, el("span", { class: "at" }, now.label), now.series.filter((item) => item.label).map((item) =>
      el("span", {}, el("i", { class: ["swatch", item.look.split(" ").at(-1)] }), item.label, el("b", {}, ` ${figure(item.points.at(-1)?.[1])}`))));
    fill(plot, width && now.series.some((item) => item.points.length) ? curves() : null);
  }

  function curves() {
    const { series, end, level } = now, all = series.flatMap((item) => item.points), most = Math.max(...all.map(([step]) => step));
    const values = [...all.filter(([step]) => step >= settle * most).map(([, value]) => value), ...(level ? [level] : [])];
    let low = Math.min(...values), high = Math.max(...values);
    const least = Math.abs(high) * 0.02 || 0.02; // or noise would look like mountains
    if (high - low < least) [low, high] = [(low + high - least) / 2, (low + high + least) / 2];
    const ticks = niceTicks(low, high);
    [low, high] = [Math.min(low, ticks[0]), Math.max(high, ticks.at(-1))];
    const x = (step) => LEFT + (step / end) * (width - LEFT - RIGHT);
    const y = (value) => TOP + (1 - (Math.min(value, high) - low) / (high - low)) * (height - TOP - BOTTOM);
    const across = (look, value) => svg("line", { class: look, x1: LEFT, x2: width - RIGHT, y1: y(value), y2: y(value) });
    const parts = ticks.map((value) => [across("grid", value), svg("text", { class: "y", x: LEFT - 8, y: y(value) + 4 }, plain(value))]);
    for (const step of niceTicks(0, end, width < 460 ? 3 : 6).filter((value) => value <= end)) {
      const place = step === 0 ? "start" : x(step) > width - 60 ? "end" : "middle";
      parts.push(svg("text", { x: place === "end" ? width - RIGHT : x(step), y: height - 8, "text-anchor": place }, step === 0 ? t`step ${0}` : count(step)));
    }
    if (level) parts.push(across("before", level), svg("text", { class: "before", x: width - RIGHT, y: y(level) - 6 }, t`before training`));
    for (const { look, points, isMarked } of series) {
      parts.push(svg("path", { class: look, d: points.map(([step, value], i) => `${i ? "L" : "M"}${x(step).toFixed(1)},${y(value).toFixed(1)}`).join("") }));
      const lowest = Math.min(...points.map(([, value]) => value)), first = points.findIndex(([, value]) => value === lowest);
      if (isMarked) parts.push(points.map(([step, value], i) => svg("circle", { class: i === first ? "mark best" : "mark", cx: x(step), cy: y(value), r: i === first ? 5 : 3.5 })));
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
  return Object.assign(el("figure", {}, legend, plot), { update(next) { now = next; draw(); } });
}

/** Round numbers from a little below `low` to a little above `high`. */
function niceTicks(low, high, most = 5) {
  const raw = (high - low || Math.abs(high) || 1) / most, ten = 10 ** Math.floor(Math.log10(raw));
  const step = ten * [1, 2, 2.5, 5, 10].find((item) => item * ten >= raw);
  const first = Math.floor(low / step + 1e-9) * step;
  const ticks = [];
  for (let i = 0; first + i * step < high + step * 0.999 && i < 20; i += 1) ticks.push(Number((first + i * step).toPrecision(12)));
  return ticks;
}

function tableOf(curve) {
  const held = new Map(curve.evaluations.map((mark) => [mark.step, mark]));
  const every = Math.max(1, Math.ceil(curve.step.length / 40));
  const steps = [...new Set([...curve.step.filter((_, i) => i % every === 0 || i === curve.step.length - 1), ...held.keys()])].sort((a, b) => a - b);
  return table({
    caption: t`Training curve`,
    heads: [t`Step`, t`Bits per byte`, t`Nats per token`, t`Held-out posts`, t`Tokens per second`],
    rows: steps.map((step) => {
      const i = curve.step.indexOf(step), mark = held.get(step);
      return [count(step), figure(curve.bits[i]), figure(curve.loss[i]), mark && Number.isFinite(mark.bits_per_byte) ? figure(mark.bits_per_byte) : "",
        i < 0 || curve.speed[i] === null ? "" : count(curve.speed[i])];
    }),
  });
}
