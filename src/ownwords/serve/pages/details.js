// A training in detail: its figures, curve, samples, plan and log, as its files show them.

import { lineChart, trainingChart } from "/charts.js";
import { add, bullets, choice, clock, count, duration, el, figures as plain, fill, folded, lines, loading, percent, problem, quiet, quote, size, statement, table, tag, totals, when } from "/components.js";
import { listen } from "/server.js";

/** Fill `element` with the newest training, and keep it up to date. Returns a function that ends it. */
export function details(element) {
  const numbers = el("div"), course = el("div"), samples = el("div"), plan = el("div"), log = el("div"), lost = el("div");
  const chart = trainingChart();
  const small = (label, sayY) => lineChart(label, [], { height: 130, sayX: count, sayY, from: 0 });
  const speed = small("Tokens per second", plain), rate = small("Learning rate", (value) => plain(value, 2));
  const now = { state: null, curve: null, samples: [] }, last = {};
  let measure = "bits";
  fill(lost, loading("Loading"));
  add(element, el("div", { class: "details stack" }, lost, numbers, course, samples, plan, log));
  const curves = [choice("Measure", [["bits", "Bits per byte"], ["loss", "Loss"]], measure, (to) => { measure = to; draw(); }), chart,
    el("div", { class: "small-charts" }, speed, rate), quiet("The line shows training, smoothed; the dots show posts that it does not learn from. Lower is better.")];

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
    if (!course.firstChild) fill(course, el("h3", {}, "What it learns"), curves);
    chart.update(curve, { measure, before: state?.outcome?.before ?? null });
    const points = (name) => curve.step.map((step, i) => [step, curve[name][i]]).filter(([, value]) => value !== null);
    speed.update([{ label: "tokens/s", tone: "k2", points: points("speed") }]);
    rate.update([{ label: "rate", tone: "k2", points: points("rate") }]);
  }

  function written() {
    const { paragraph } = now.state?.outcome ?? {};
    if (!isNew("samples", [now.samples, paragraph])) return;
    const shown = [...now.samples].reverse().map((item) => quote(lines(item.text), { cite: `After ${count(item.step, "step")}` }));
    fill(samples, shown.length || paragraph?.text ? el("h3", {}, "What it writes on the way") : null,
      paragraph?.text ? quote(lines(paragraph.text), { cite: paragraph.title ? `At the end, from the title “${paragraph.title}”` : "At the end", class: "ours" }) : null,
      shown.slice(0, 2), shown.length > 2 ? folded(`${shown.length - 2} earlier`, shown.slice(2)) : null);
  }

  function planned() {
    const result = now.plan;
    if (!result || !isNew("plan", [result, now.settings, now.state?.outcome?.judged])) return;
    const isOpen = plan.querySelector("details")?.open ?? false;
    const rows = result.numbers.map((item) => [el("code", {}, item.key), valueOf(item.value), el("span", {}, item.reason, item.origin === "setting" ? [" ", tag("yours", "on")] : null), item.source]);
    const all = folded(`${count(rows.length, "number")} with reasons`, table({ caption: "The plan", class: "text-table plan-table", heads: ["Setting", "Value", "Reason", "Source"], rows }));
    all.open = isOpen;
    const wording = expectedOf(result.expected), judged = now.state?.outcome?.judged ?? [];
    fill(plan, el("h3", {}, "The plan"), wording ? statement(wording) : null, judged.length ? bullets(judged) : null, all,
      now.settings ? folded("All settings", el("pre", { tabindex: "0" }, now.settings)) : null);
  }

  function logged(result) {
    if (!result.length) return void fill(log);
    const list = el("ol", { class: "log", tabindex: "0", "aria-label": "Log, newest last" }, result.map((line) => el("li", {}, el("time", {}, clock(line.time)), " ", line.text)));
    const before = log.querySelector("ol"), atEnd = !before || before.scrollTop + before.clientHeight >= before.scrollHeight - 8, held = before?.scrollTop ?? 0;
    const focused = document.activeElement === before;
    if (before) before.replaceWith(list);
    else fill(log, el("h3", {}, "Log"), list);
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
    { figure: bits === undefined ? "–" : bits.toFixed(3), label: "bits per byte", note: result.best ? `held-out posts, step ${count(result.best.step)}` : "in training" },
    { figure: count(result.step), label: result.steps ? `of ${count(result.steps, "step")}` : "steps", note: result.steps ? percent(result.step / result.steps) : "" },
    { figure: latest.tokens_per_s ? plain(latest.tokens_per_s) : "–", label: "tokens per second", note: limit ? `${percent(limit)} of this machine’s limit` : "" },
    isLive ? { figure: result.remaining_s === null ? "–" : duration(result.remaining_s), label: "of training left", note: result.began ? `started ${clock(result.began)}` : "" }
      : { figure: result.began && result.time ? duration(result.time - result.began) : "–", label: "of training", note: result.time ? when(result.time) : "" },
  ];
}

function expectedOf(expected) {
  if (!expected || expected.seconds === undefined) return "";
  const low = expected.bits_low, high = expected.bits_high;
  return `Expected: ${low !== undefined && high !== undefined ? `${low.toFixed(2)} to ${high.toFixed(2)} bits per byte, ` : ""}${duration(expected.seconds)}, `
    + `${plain(expected.epochs)} passes over your posts, ${size(expected.memory_bytes)} of memory.`;
}

const valueOf = (value) => (value === true ? "yes" : value === false ? "no" : typeof value === "number" ? (Number.isInteger(value) ? count(value) : String(value)) : String(value));
