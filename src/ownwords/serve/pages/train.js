// Train: start, watch, stop and continue a training, as its files show it.

import { address, announce, ask, setTitle, go, listen, post, shortcut, toast } from "/app.js";
import { lineChart } from "/charts.js";
import { trainingChart } from "/training-chart.js";
import { add, bar, bullets, button, choice, count, duration, el, field, fill, folded, input, link, loading, masthead, percent, problem, quiet,
  quote, row, section, select, sentence, size, statement, table, tag, title, totals } from "/components.js";

const KINDS = { finetune: "tuned from a base", pretrain: "trained on your posts only", lora: "an adapter on a base" };
const BUSY = ["reading", "planning", "training", "finishing"];
const HEADINGS = {
  none: "No model yet", reading: "Reading your posts", planning: "Planning", training: "Training", finishing: "Writing and scoring",
  stopped: "Paused", failed: "Training failed", killed: "Training ended unexpectedly", done: "Your model is ready",
};
const MINUTES = ["2", "4", "10", "30"];
const plain = (n) => Number(n.toPrecision(3)).toLocaleString("en");

export async function show(element, { path }) {
  const chosen = path[0] ?? "";
  const page = pageOf(element, chosen);
  const stop = listen(`/api/train/events${chosen ? `?run=${encodeURIComponent(chosen)}` : ""}`, ({ event, data }) => page.take(event, data),
    { onLost: (error) => page.lost(error) });
  shortcut("s", "Stop the training, or start one", () => page.toggle());
  return stop;
}

function pageOf(element, chosen) {
  const now = { state: null, options: null, curve: null, plan: null };
  const head = el("div"), doing = el("div", { class: "doing" }), lostLine = el("div");
  const figures = el("div"), begin = el("div"), course = el("div"), samples = el("div"), plan = el("div"), log = el("div"), runs = el("div");
  const chart = trainingChart();
  const speed = lineChart("Tokens per second", [], { height: 130, sayX: (step) => count(step), sayY: plain, from: 0 });
  const rate = lineChart("Learning rate", [], { height: 130, sayX: (step) => count(step), sayY: (value) => Number(value.toPrecision(2)).toString(), from: 0 });
  let measure = "bits", lastSaid = "", form = null;
  // Unchanged parts are not redrawn, or their reader would lose the place.
  const last = {};
  const isNew = (name, value) => {
    const wording = JSON.stringify(value);
    if (last[name] === wording) return false;
    last[name] = wording;
    return true;
  };

  fill(head, masthead({ kicker: "Train", heading: "Training" }));
  add(element, head, lostLine, doing, figures, course, samples, plan, log, begin, runs);
  fill(doing, loading("Loading"));
  const courseSection = section("What it learns",
    choice("Measure", [["bits", "Bits per byte"], ["loss", "Loss"]], "bits", (to) => { measure = to; curve(); }), chart,
    el("div", { class: "small-charts" }, speed, rate),
    quiet("The line shows training, smoothed; the dots show posts that it does not learn from. Lower is better."));

  const takes = {
    state(result) {
      const before = now.state;
      now.state = result;
      state(before);
      curve();
      written();
    },
    curve(result) { now.curve = result; curve(); },
    options(result) { now.options = result; state(now.state); },
    plan(result) { now.plan = result; planned(); curve(); },
    settings(result) { now.settings = result; planned(); },
    samples(result) { now.samples = result; written(); },
    log: logged,
    runs: earlier,
  };

  function state(before) {
    const result = now.state;
    if (!result || !now.options) return;
    const same = before && before.status === result.status && before.run === result.run && before.stop_requests === result.stop_requests && before.can.start === result.can.start;
    if (!same || !head.dataset.status) {
      const focused = head.contains(document.activeElement);
      head.dataset.status = result.status;
      fill(head, masthead({ kicker: chosen ? `Train · ${chosen}` : "Train", heading: headingOf(result), lede: ledeOf(result), follow: followOf(result) }));
      if (focused) head.querySelector("h1").focus({ preventScroll: true });
      setTitle(headingOf(result));
      if (before) announce(`${headingOf(result)}. ${ledeOf(result)}`);
      fill(doing, actions(result));
      beginning(result);
    } else {
      const lede = head.querySelector(".lede"), wording = ledeOf(result);
      if (lede && lede.textContent !== wording) lede.textContent = wording;
      const line = doing.querySelector(".last-words");
      if (line) line.textContent = result.message;
    }
    const progress = doing.querySelector("progress");
    if (progress && result.status === "training" && result.steps) progress.value = result.step / result.steps;
    fill(figures, result.step || result.outcome ? totals(totalsOf(result)) : null);
  }

  function headingOf(result) {
    if (result.stop_requests && BUSY.includes(result.status)) return "Saving, then stopping";
    return chosen && result.status === "done" ? "Finished" : HEADINGS[result.status];
  }

  function actions(result) {
    const busy = BUSY.includes(result.status), parts = [];
    if (busy) parts.push(bar(headingOf(result), result.status === "training" && result.steps ? result.step / result.steps : null));
    if (result.can.stop) {
      parts.push(row(button(result.stop_requests ? "Stop at once" : "Stop", stop, { kind: "danger", icon: "stop" }),
        quiet(result.stop_requests ? "It finishes the current step and saves." : "Everything is saved, and you can continue later.")));
    }
    if (result.by === "elsewhere") parts.push(quiet("It was started in a terminal. Press Ctrl-C there to save and stop."));
    if (result.by === "page" && busy) parts.push(el("p", { class: "quiet last-words", "aria-hidden": "true" }, result.message));
    if (["failed", "killed"].includes(result.status)) {
      parts.push(problem({ message: result.message, hint: result.hint }));
      if (result.output.length) parts.push(folded("Output", el("pre", { tabindex: "0" }, result.output.join("\n"))));
    }
    if (result.can.resume) {
      const what = result.status === "failed" ? "Try again" : "Continue";
      parts.push(row(button(what, () => start({ resume: true }), { kind: "primary", icon: "start" }),
        quiet(`${plain(result.command.minutes)} ${result.command.minutes === 1 ? "minute" : "minutes"}, starting from ${baseName(result.command.base)}.`)));
    } else if (result.status === "stopped" && result.run && !busy && !chosen) {
      parts.push(quiet("It was started in a terminal. Run the same command there to continue."));
    }
    if (!busy && !chosen && result.status !== "none") {
      parts.push(row(result.status === "done" ? [link(address("write"), "Write with it"), link(address("score"), "See its score")] : null,
        result.can.start ? button("Train again", toForm, { kind: "small" }) : null));
    }
    if (chosen) parts.push(row(link(address("train"), "Back to the latest training")));
    return parts;
  }

  function beginning(result) {
    const offer = now.options;
    if (!result.can.start || chosen) {
      form = null;
      fill(begin);
      return;
    }
    if (!offer.can_train) {
      fill(begin, section("Start a training", problem({ message: "training needs PyTorch, which is not installed", hint: 'pip install "ownwords[train]", then start ownwords serve again' })));
      return;
    }
    if (!offer.blog.length) {
      fill(begin, section("Start a training", problem({ message: "no blog chosen yet", hint: "start the server with your blog: `ownwords serve PATH`" })));
      return;
    }
    form = startForm(offer, result);
    fill(begin, section(result.status === "none" ? "Start a training" : "Train again", form));
  }

  function startForm(offer, result) {
    const custom = input({ type: "number", min: "0.1", step: "any", inputmode: "decimal", value: String(offer.minutes), "aria-label": "Minutes" });
    const preset = MINUTES.includes(String(offer.minutes)) ? String(offer.minutes) : "other";
    const other = field("Minutes", custom);
    other.hidden = preset !== "other";
    let minutes = preset, isNamed = false; // untouched, it is left to ownwords make
    const hint = quiet();
    const say = () => {
      const given = Number(minutes === "other" ? custom.value : minutes);
      hint.textContent = given >= offer.compared_from && base.value !== "none"
        ? "For reading, planning and training; a fifth goes to a model of your posts only, for comparison. Scoring comes after that."
        : "For reading, planning and training. Scoring comes after that.";
    };
    const base = select(offer.bases.map((item) => [item.name, baseLabel(item)]), offer.bases[0].name, say);
    custom.addEventListener("input", () => { isNamed = true; say(); });
    say();
    return el("form", { class: "begin", on: { submit: (event) => {
      event.preventDefault();
      start({ ...isNamed && { minutes: Number(minutes === "other" ? custom.value : minutes) }, base: base.value }, result.status);
    } } },
    el("p", {}, "Train a model on ", el("strong", {}, offer.blog.join(", ")), "."),
    el("div", { class: "field" }, el("span", { class: "label" }, "Minutes"),
      choice("Minutes", [...MINUTES.map((each) => [each, each]), ["other", "other"]], preset, (to) => { minutes = to; isNamed = true; other.hidden = to !== "other"; say(); })),
    other, field("Start from", base), hint,
    row(button("Start training", null, { kind: "primary", icon: "start", type: "submit" })));
  }

  function toForm() {
    begin.scrollIntoView({ block: "start" });
    begin.querySelector("input:checked, button")?.focus({ preventScroll: true });
  }

  async function start(body) {
    if (!body.resume && now.state.run && !(await ask("Train again?", [el("p", {}, "The new model replaces the current one when it is ready. Until then, the current one stays.")], { yes: "Start training" }))) return;
    try {
      takeAll(await post("/api/train/start", body));
      announce("Training started");
      window.scrollTo({ top: 0 });
      if (chosen) go(address("train"));
    } catch (error) {
      toast(error);
    }
  }

  async function stop() {
    const asked = now.state.stop_requests;
    const wording = asked ? "It is already saving. If you stop it now, it loses what it learned since it last saved." : "It finishes the current step and saves everything. You can continue whenever you like.";
    if (!(await ask(asked ? "Stop at once?" : "Stop the training?", [el("p", {}, wording)], { yes: "Stop", no: "Keep training", danger: true }))) return;
    try {
      takeAll(await post("/api/train/stop"));
    } catch (error) {
      toast(error);
    }
  }

  function takeAll(parts) {
    for (const [part, data] of Object.entries(parts)) takes[part]?.(data);
  }

  function curve() {
    const result = now.curve, has = result && (result.step.length || result.evaluations.length);
    if (!has) return void fill(course);
    if (!course.firstChild) fill(course, courseSection);
    chart.update(result, { measure, before: now.state?.outcome?.before ?? null });
    if (last.curve === result) return;
    last.curve = result;
    const points = (name) => result.step.map((step, i) => [step, result[name][i]]).filter(([, value]) => value !== null);
    speed.update([{ label: "tokens/s", tone: "k2", points: points("speed") }]);
    rate.update([{ label: "rate", tone: "k2", points: points("rate") }]);
  }

  function written() {
    const result = now.samples ?? [], paragraph = now.state?.outcome?.paragraph;
    if (!isNew("samples", [result, paragraph])) return;
    if (!result.length && !paragraph?.text) return void fill(samples);
    const shown = [...result].reverse().map((item) => quote(lines(item.text), { cite: `After ${count(item.step, "step")}` }));
    fill(samples, section("What it writes",
      paragraph?.text ? quote(lines(paragraph.text), { cite: paragraph.title ? `At the end, from the title “${paragraph.title}”` : "At the end", class: "ours" }) : null,
      shown.slice(0, 3), shown.length > 3 ? folded(`${shown.length - 3} earlier`, shown.slice(3)) : null));
  }

  function planned() {
    const result = now.plan;
    if (!result) return void fill(plan);
    const open = plan.querySelector("details")?.open ?? false;
    const wording = expectedOf(result.expected), judged = now.state?.outcome?.judged ?? [];
    const numbers = table({ caption: "The plan", class: "text-table plan-table", heads: ["Setting", "Value", "Reason", "Source"],
      rows: result.numbers.map((item) => [el("code", {}, item.key), valueOf(item.value), el("span", {}, item.reason, item.origin === "setting" ? [" ", tag("yours", "on")] : null), item.source]) });
    const whole = folded(`${count(result.numbers.length, "number")} with reasons`, numbers);
    whole.open = open;
    fill(plan, section("The plan", wording ? statement(wording) : null, judged.length ? bullets(judged) : null, whole,
      now.settings ? folded("All settings", el("pre", { tabindex: "0" }, now.settings)) : null));
  }

  function logged(result) {
    if (!result.length) return void fill(log);
    const list = el("ol", { class: "log", tabindex: "0", "aria-label": "Log, newest last" }, result.map((line) => el("li", {}, el("time", {}, clock(line.time)), " ", line.text)));
    const before = log.querySelector("ol"), atEnd = !before || before.scrollTop + before.clientHeight >= before.scrollHeight - 8, held = before?.scrollTop ?? 0;
    const focused = document.activeElement === before;
    if (before) before.replaceWith(list);
    else fill(log, section("Log", list));
    list.scrollTop = atEnd ? list.scrollHeight : held;
    if (focused) list.focus({ preventScroll: true });
    const wording = result.at(-1).text;
    // Only evaluations are worth interrupting a screen reader for.
    if (lastSaid && wording !== lastSaid && /held-out/.test(wording)) announce(wording);
    lastSaid = wording;
  }

  function earlier(result) {
    const rest = result.filter((item) => item.name !== (chosen || now.state?.run));
    if (!isNew("runs", rest)) return;
    if (!rest.length) return void fill(runs);
    fill(runs, section("Other trainings", table({ caption: "Other trainings in this workspace", heads: ["Training", "Started", "Steps", "Held-out", ""],
      rows: rest.map((item) => [link(address("train", [item.name]), title(KINDS[item.kind] ?? item.name)), item.began ? when(item.began) : "", count(item.steps),
        item.best === null ? "–" : item.best.toFixed(3), item.status === "done" ? "finished" : item.status]) })));
  }

  return {
    take(event, data) {
      fill(lostLine);
      takes[event]?.(data);
    },
    lost(error) { fill(lostLine, problem(error)); },
    toggle() {
      if (now.state?.can.stop) stop();
      else if (form) toForm();
    },
  };
}

function ledeOf(result) {
  if (result.status === "none") return "Training takes minutes, on this machine. Nothing is sent anywhere.";
  if (["failed", "killed"].includes(result.status)) return "";
  if (result.status === "stopped") return result.step && result.steps ? `Paused at ${percent(result.step / result.steps)}. Nothing is lost.` : sentence(result.message || "Nothing is lost");
  if (result.status === "reading") return "Posts that have not changed take no time.";
  if (result.status === "planning") return "It measures this machine for a few seconds.";
  if (result.status === "finishing") return "The model is trained. It writes a first paragraph and is scored on posts that it has never seen.";
  if (result.status === "training") return result.remaining_s === null ? "It reads your posts and learns to predict the next word." : `About ${duration(result.remaining_s)} left.`;
  const end = result.outcome;
  if (end?.bits_per_byte && end.before) return `${end.bits_per_byte.toFixed(3)} bits per byte on held-out posts; before training it was ${end.before.toFixed(3)}.`;
  return result.best ? `${result.best.bits.toFixed(3)} bits per byte on held-out posts.` : "";
}

function followOf(result) {
  const kind = KINDS[result.kind], end = result.outcome;
  const why = { early: "It ended early, because more steps did not improve it.", memorised: "It ended early, because it began to memorise your posts." }[end?.stopped];
  return [kind ? `${kind[0].toUpperCase()}${kind.slice(1)}.` : "", why ?? ""].filter(Boolean).join(" ");
}

function totalsOf(result) {
  const latest = result.metrics, live = result.status === "training";
  const bits = result.best?.bits ?? latest.bits_per_byte;
  const limit = latest.share_of_limit;
  return [
    { figure: bits === undefined ? "–" : bits.toFixed(3), label: "bits per byte", note: result.best ? `held-out posts, step ${count(result.best.step)}` : "in training" },
    { figure: count(result.step), label: result.steps ? `of ${count(result.steps, "step")}` : "steps", note: result.steps ? percent(result.step / result.steps) : "" },
    { figure: latest.tokens_per_s ? plain(latest.tokens_per_s) : "–", label: "tokens per second", note: limit ? `${percent(limit)} of this machine’s limit` : "" },
    live ? { figure: result.remaining_s === null ? "–" : duration(result.remaining_s), label: "left", note: result.began ? `started ${clock(result.began)}` : "" }
      : { figure: result.began && result.time ? duration(result.time - result.began) : "–", label: "of training", note: result.time ? when(result.time) : "" },
  ];
}

function expectedOf(expected) {
  if (!expected || expected.seconds === undefined) return "";
  const low = expected.bits_low, high = expected.bits_high;
  return `Expected: ${low !== undefined && high !== undefined ? `${low.toFixed(2)} to ${high.toFixed(2)} bits per byte, ` : ""}${duration(expected.seconds)}, `
    + `${plain(expected.epochs)} passes over your posts, ${size(expected.memory_bytes)} of memory.`;
}

const baseName = (name) => (name === "none" ? "your posts only" : name === "shipped" || !name ? "the built-in English model" : name);
function baseLabel(item) {
  if (item.name === "none") return "Your posts only";
  if (item.name === "shipped") return "Built-in English model (recommended)";
  return `${item.name}${item.parameters ? `, ${compact(item.parameters)} parameters` : ""}`;
}
const compact = (n) => (n >= 1e9 ? `${plain(n / 1e9)} billion` : n >= 1e6 ? `${plain(n / 1e6)} million` : count(n));
const valueOf = (value) => (value === true ? "yes" : value === false ? "no" : typeof value === "number" ? (Number.isInteger(value) ? count(value) : String(value)) : String(value));
const lines = (text) => text.split(/\n+/).filter((line) => line.trim());
const clock = (time) => new Date(time * 1000).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const when = (time) => new Date(time * 1000).toLocaleString("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });
