// Write: text as it is generated, the base model beside it, and where it may come from.

import { address, announce, setTitle, get, post, shortcut, stream, toast } from "/app.js";
import { add, bullets, button, checkbox, choice, count, day, duration, el, empty, field, fill, folded, input, link, masthead, problem, quiet, quote, row,
  select, sentence, slider, textarea, title } from "/components.js";

const SEEDS = 1_000_000_000;
// Texts stay while other pages are open; they are gone when the tab is closed.
const state = { prompt: "", settings: null, columns: [] };

export async function show(element, { query }) {
  const offer = await get("/api/write");
  const isOwn = offer.models.some((item) => item.role === "tuned");
  add(element, masthead({ kicker: "Write", heading: isOwn ? "In your voice" : "Not in your voice yet", follow: isOwn || !offer.models.length ? "" : "You have no model of your own, so the built-in one writes." }));
  if (!isOwn && offer.models.length) add(element, el("p", {}, link(address("train"), "Train your own")));
  if (!offer.models.length) {
    add(element, empty("No model yet", "Once you have trained one, it writes here.", link(address("train"), "Train one")));
    return undefined;
  }
  if (query.get("prompt")) state.prompt = query.get("prompt");
  const page = pageOf(element, offer);
  shortcut("Ctrl+Enter", "Write", page.begin, { whileTyping: true });
  shortcut("Escape", "Stop writing", page.stop, { whileTyping: true });
  return page.leave;
}

function pageOf(element, offer) {
  const tuned = offer.models.find((item) => item.role === "tuned") ?? offer.models[0];
  const base = offer.models.find((item) => item.role === "base" && item.name !== tuned.name) ?? null;
  const defaults = offer.defaults;
  const set = (state.settings ??= { model: tuned.name, beside: Boolean(base), tokens: defaults.tokens, temperature: defaults.temperature, cut: "min_p",
    min_p: defaults.min_p, top_p: 0.9, seed: "", guard: true });
  if (!offer.models.some((item) => item.name === set.model)) set.model = tuned.name;
  let writing = [];

  const prompt = textarea({ rows: "4", dir: "auto", spellcheck: "true", placeholder: "The trouble with backups" });
  prompt.value = state.prompt;
  prompt.addEventListener("input", () => { state.prompt = prompt.value; });
  const start = button("Write", null, { kind: "primary", icon: "write", type: "submit" });
  const end = button("Stop", stop, { icon: "stop", disabled: true });
  const again = button("Try again", () => begin(), {});
  again.hidden = !state.columns.length;
  const results = el("div", { class: "columns-of-text" });

  // Beside the text on a wide screen, folded above it on a narrow one.
  const knobs = folded("Settings", settings()), isWide = matchMedia("(min-width: 60rem)");
  const aside = el("aside", { "aria-label": "Settings" }, knobs);
  const fold = () => { knobs.open = isWide.matches; };
  isWide.addEventListener("change", fold);
  fold();

  const form = el("form", { class: "writing", on: { submit: (event) => { event.preventDefault(); begin(); } } },
    el("div", { class: "beside" },
      el("div", { class: "beginning" }, field("Beginning", prompt, "A title, a first sentence, or nothing."), row(start, end, again)),
      aside, results));
  add(element, form);
  draw();

  function settings() {
    const cutSlider = el("div");
    const cut = () => fill(cutSlider, set.cut === "min_p"
      ? slider({ label: "Leave out", min: 0, max: 0.3, step: 0.01, value: set.min_p, onChange: (to) => { set.min_p = to; },
        say: (value) => (value ? `tokens under ${Math.round(100 * value)}% of the likeliest` : "nothing") })
      : slider({ label: "Leave out", min: 0.1, max: 1, step: 0.01, value: set.top_p, onChange: (to) => { set.top_p = to; },
        say: (value) => (value < 1 ? `tokens beyond the likeliest ${Math.round(100 * value)}%` : "nothing") }));
    cut();
    const seed = input({ type: "number", min: "0", max: String(SEEDS * 2), step: "1", inputmode: "numeric", placeholder: "random", value: set.seed });
    seed.addEventListener("input", () => { set.seed = seed.value; });
    return [
      offer.models.length > 1 ? field("Model", select(offer.models.map((item) => [item.name, labelOf(item)]), set.model, (to) => { set.model = to; })) : null,
      slider({ label: "Length", min: 50, max: 1000, step: 50, value: set.tokens, onChange: (to) => { set.tokens = to; }, say: (n) => `about ${Math.round(n * 0.75)} words` }),
      slider({ label: "Temperature", min: 0, max: 1.5, step: 0.05, value: set.temperature, onChange: (to) => { set.temperature = to; },
        say: (value) => `${value.toFixed(2)}${value === 0 ? ", no randomness" : value < 0.6 ? ", calm" : value > 1.1 ? ", wild" : ""}` }),
      cutSlider,
      choice("Filter for unlikely tokens", [["min_p", "min-p"], ["top_p", "top-p"]], set.cut, (to) => { set.cut = to; cut(); }),
      field("Seed", seed, "The same seed gives the same text."),
      base ? checkbox("Compare with the base", set.beside, (to) => { set.beside = to; }, "What it writes without your posts.") : null,
      checkbox("Copy guard", set.guard, (to) => { set.guard = to; }, "Never copies ten words in a row from the posts that it learned from."),
    ];
  }

  function labelOf(item) {
    return { tuned: `${item.name}, yours`, base: item.name === "shipped" ? "built-in model" : `${item.name}, the base`, "from nothing": "your posts only" }[item.role] ?? item.name;
  }

  function begin() {
    stop();
    const given = String(set.seed).trim();
    const seed = given === "" ? Math.floor(Math.random() * SEEDS) : Math.max(0, Math.floor(Number(given)) || 0);
    const names = [set.model, ...(base && set.beside && base.name !== set.model ? [base.name] : [])];
    state.columns = names.map((name) => columnOf(offer.models.find((item) => item.name === name), state.prompt, seed));
    draw();
    start.disabled = true;
    end.disabled = false;
    again.hidden = false;
    announce(names.length > 1 ? "Writing two texts" : "Writing");
    setTitle("Writing");
    const running = state.columns.map((column) => write(column, seed));
    Promise.allSettled(running).then(() => {
      if (!state.columns.every((column) => column.isDone)) return;
      start.disabled = false;
      end.disabled = true;
      setTitle("Write");
    });
  }

  async function write(column, seed) {
    const ends = new AbortController();
    writing.push(ends);
    const body = { model: column.model.name, prompt: column.prompt, tokens: set.tokens, temperature: set.temperature, seed, guard: set.guard,
      min_p: set.cut === "min_p" ? set.min_p : 0, top_p: set.cut === "top_p" ? set.top_p : 1 };
    try {
      for await (const { event, data } of stream("/api/write", body, { signal: ends.signal })) {
        if (event === "begin") Object.assign(column, { guarded: data.guarded, hasGuard: data.has_guard });
        else if (event === "text") column.feed(data);
        else if (event === "end") column.end = data;
        else if (event === "error") column.problem = data;
      }
      if (!column.end && !column.problem) column.isStopped = true;
    } catch (error) {
      if (ends.signal.aborted) column.isStopped = true;
      else column.problem = error;
    }
    column.isDone = true;
    column.draw();
    if (column.problem) announce(sentence(column.problem.message));
    else announce(column.isStopped ? "Stopped" : `Written: ${count(column.text.split(/\s+/).filter(Boolean).length, "word")}${state.columns.length > 1 ? ` by ${labelOf(column.model)}` : ""}`);
  }

  function columnOf(model, beginning, seed) {
    const column = { model, prompt: beginning, seed, text: "", isDone: false, isStopped: false, end: null, problem: null, origins: null };
    column.feed = (piece) => {
      column.text += piece;
      column.node?.data(piece);
    };
    column.draw = () => column.node?.draw();
    return column;
  }

  function draw() {
    results.classList.toggle("pair", state.columns.length > 1);
    fill(results, state.columns.map((column) => drawn(column)));
    again.hidden = !state.columns.length;
  }

  function drawn(column) {
    const heading = labelOf(column.model);
    const text = document.createTextNode(column.text);
    const caret = el("span", { class: "caret", "aria-hidden": "true" });
    const words = el("div", { class: "text", dir: "auto" }, column.prompt ? el("span", { class: "prompt" }, column.prompt) : null, text, caret);
    const below = el("div", { class: "below" });
    const article = el("article", { class: ["written", column.model.role], "aria-label": `Written by ${heading}` },
      el("header", {}, el("h2", {}, heading), el("p", { class: "quiet" }, `seed ${column.seed}`)), words, below);
    const render = () => {
      caret.hidden = column.isDone;
      article.setAttribute("aria-busy", String(!column.isDone));
      fill(below, column.isDone ? finished(column, render, below) : null);
    };
    // Chunks that come faster than the screen refreshes are added together.
    let waiting = "", isAsked = false;
    column.node = {
      data(piece) {
        waiting += piece;
        if (isAsked) return;
        isAsked = true;
        requestAnimationFrame(() => {
          text.appendData(waiting);
          waiting = "";
          isAsked = false;
        });
      },
      draw: render,
    };
    render();
    return article;
  }

  function finished(column, render, below) {
    const parts = [], end = column.end;
    if (column.problem) parts.push(problem(column.problem));
    if (end) {
      parts.push(quiet(`${count(end.tokens, "token")} in ${end.seconds < 10 ? `${end.seconds.toFixed(1)} s` : duration(end.seconds)}, ${count(end.tokens / Math.max(end.seconds, 0.001))} a second`
        + `${end.finished === "stop" ? "; the model ended it" : ""}.`));
    } else if (column.isStopped) parts.push(quiet("Stopped."));
    if (end && column.guarded) parts.push(guardNote(end.blocked));
    else if (end && column.hasGuard && !column.guarded) parts.push(quiet("The copy guard was off: passages may be copied from your posts."));
    if (column.text.trim()) {
      parts.push(row(button("Copy", () => copy(column), { kind: "small", icon: "copy" }),
        button("Where did this come from?", (event) => origins(column, event.currentTarget, render, below), { kind: "small", icon: "search" })));
      if (column.origins) parts.push(originsSaid(column.origins));
    }
    return parts;
  }

  async function origins(column, asked, render, below) {
    asked.disabled = true;
    asked.textContent = "Searching your posts…";
    try {
      column.origins = await post("/api/write/origins", { text: column.text.slice(0, 20000) });
      render();
      announce(originsLede(column.origins));
      below.querySelector(".origins h3")?.focus({ preventScroll: true });
    } catch (error) {
      toast(error);
      render();
    }
  }

  function stop() {
    const running = state.columns.some((column) => !column.isDone);
    for (const each of writing) each.abort();
    writing = [];
    return running;
  }

  return { begin, stop, leave() { stop(); isWide.removeEventListener("change", fold); for (const column of state.columns) column.node = null; } };
}

async function copy(column) {
  const whole = column.prompt + column.text;
  try {
    await navigator.clipboard.writeText(whole);
    toast("Copied");
  } catch {
    toast("The browser does not allow this; select the text and copy it");
  }
}

function guardNote(blocked) {
  if (!blocked.length) return quiet("The copy guard blocked nothing.");
  const times = blocked.length === 1 ? "once" : blocked.length === 2 ? "twice" : `${blocked.length} times`;
  return folded(`The copy guard stepped in ${times}`, quiet("After these words, continuing as in one of your posts was blocked:"),
    bullets(blocked.map((wording) => el("span", { dir: "auto" }, `… ${wording}`, el("span", { class: "cut", "aria-hidden": "true" }, " ⌇")))));
}

function originsLede(result) {
  const longest = result.shared[0];
  if (!longest) return "No five words in a row are from your posts.";
  return `The longest passage copied from a post has ${count(longest.words, "word")}.`;
}

function originsSaid(result) {
  const post_ = (item, quoted) => link(address("corpus", ["post", item.document], { quote: quoted }), title(item.title));
  return el("div", { class: "origins" }, el("h3", { tabindex: "-1" }, "Where it may come from"), el("p", {}, originsLede(result)),
    result.shared.length ? el("ul", { class: "shared" }, result.shared.map((item) => el("li", {},
      el("q", { dir: "auto" }, item.text), el("span", { class: "quiet" }, `${count(item.words, "word")}, in `, post_(item, item.text), item.date ? `, ${day(item.date)}` : "")))) : null,
    result.nearest.length ? [el("h4", {}, "Similar passages"), result.nearest.map((item) => quote(short(item.matching || firstLine(item.text), 240),
      { cite: [post_(item, item.matching || firstLine(item.text)), item.date ? `, ${day(item.date)}` : "", item.whose === "own" ? "" : ", not your own words"] }))] : null,
    result.is_complete ? null : quiet("Your archive is large; only its first 64 MB were searched."));
}

const lines = (text) => text.split(/\n+/).filter((line) => line.trim());
const firstLine = (text) => short(lines(text)[0] ?? "", 160).replace(/^> ?/, "").replace(/…$/, "");
const short = (text, most) => (text.length <= most ? text : `${text.slice(0, text.lastIndexOf(" ", most))}…`);
