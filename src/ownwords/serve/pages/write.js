// Write: a text that you and your model write in turns, saved as it grows.

import { address, go, shortcut } from "/app.js";
import { add, bullets, button, checkbox, count, day, duration, el, empty, field, fill, folded, input, lines, link, masthead, problem, quiet, quote, row,
  select, sentence, slider, title } from "/components.js";
import { editor, ending } from "/editor.js";
import { announce, copy, toast } from "/messages.js";
import { get, post, stream } from "/server.js";
import { savedList, saver } from "/texts.js";

const SEEDS = 1_000_000_000;
// Settings stay while other pages are open.
let settings = null;

export async function show(element, { path, query }) {
  const id = path[0] ?? "";
  const [offer, text] = await Promise.all([get("/api/write"), id ? get(`/api/texts/${encodeURIComponent(id)}`) : null]);
  const isOwn = offer.models.some((item) => item.role === "tuned");
  add(element, masthead({ heading: text ? title(text.title) : isOwn ? "Write with your model" : "Write with the built-in model", follow: isOwn || !offer.models.length ? "" : ["It does not write like you. ", link(address("home"), "Make a model of your own"), "."] }));
  if (!offer.models.length) {
    add(element, empty("No model yet", "Once you have made one, it writes here.", el("a", { class: "button primary", href: address("home") }, "Make one")));
    return undefined;
  }
  const page = pageOf(element, offer, text, query);
  shortcut("Ctrl+Enter", "Write", page.begin, { whileTyping: true });
  shortcut("Escape", "Stop writing", page.stop, { whileTyping: true });
  return page.leave;
}

function pageOf(element, offer, saved, query) {
  const models = offer.models, named = (name) => models.find((item) => item.name === name || item.label === name)?.name ?? "";
  const first = models.find((item) => item.role === "tuned") ?? models[0], defaults = offer.defaults;
  const set = (settings ??= { model: first.name, beside: "", tokens: defaults.tokens, temperature: defaults.temperature, min_p: defaults.min_p, seed: "", guard: true, suggests: true });
  set.model = named(saved?.model) || named(query.get("model")) || named(set.model) || first.name;
  set.beside = named(query.get("beside") ?? set.beside);
  let writing = null, isLeft = false, last = null; // the stretch that was written last: {from, to, seed}
  const saving = saver(saved?.id ?? "", (result) => {
    if (isLeft) return;
    if (location.hash !== address("write", [result.id])) go(address("write", [result.id]), { replace: true, quietly: true });
    list.mark(result.id);
  });

  const draft = editor({ text: saved?.text ?? query.get("prompt") ?? "", machine: saved?.machine ?? [] },
    { placeholder: "The trouble with backups", model: () => (set.suggests ? set.model : ""), onChange: () => { store(); label(); } });
  const start = button("Write", null, { kind: "primary", icon: "write", type: "submit" });
  const end = button("Stop", stop, { icon: "stop" });
  const again = button("Try again", (event) => begin(event, true), {});
  const whose = quiet(), below = el("div", { class: "below" }), second = el("div", { class: "second" });
  const copying = button("Copy", () => copy(draft.text), { kind: "small", icon: "copy" });
  const sources = button("Where did this come from?", (event) => origins(event.currentTarget), { kind: "small", icon: "search" });
  const anew = button("New text", () => saving.flush().then(() => go(address("write"))), { kind: "small" });
  const keeping = row(copying, sources, anew);
  const list = savedList("text", "write", "Saved texts");

  const aside = el("aside", { "aria-label": "Settings" }, controls(), list);
  const form = el("form", { class: "writing", on: { submit: (event) => { event.preventDefault(); begin(); } } },
    el("div", { class: "beside" }, el("div", { class: "columns-of-text" }, el("div", { class: "first" }, draft.node, row(draft.take, whose),
      row(start, end, again, draft.undo, draft.redo), keeping, below), second), aside));
  add(element, form);
  label();
  list.mark(saved?.id ?? "");

  function controls() {
    const seed = input({ type: "number", min: "0", max: String(SEEDS * 2), step: "1", inputmode: "numeric", placeholder: "random", value: set.seed });
    seed.addEventListener("input", () => { set.seed = seed.value; });
    const names = models.map((item) => [item.name, labelOf(item)]);
    return [
      models.length > 1 ? field("Model", select(names, set.model, (to) => { set.model = to; })) : null,
      checkbox("Suggest as I type", set.suggests, (to) => { set.suggests = to; }, "Grey text ends your sentence: Tab takes it, Esc drops it."),
      slider({ label: "Length", min: 50, max: 1000, step: 50, value: set.tokens, onChange: (to) => { set.tokens = to; }, say: (n) => `about ${Math.round(n * 0.75)} words` }),
      models.length > 1 ? field("Compare with", select([["", "nothing"], ...names], set.beside, (to) => { set.beside = to; fill(second); }), "Writes the same beginning beside it.") : null,
      folded("More", slider({ label: "Temperature", min: 0, max: 1.5, step: 0.05, value: set.temperature, onChange: (to) => { set.temperature = to; },
        say: (value) => `${value.toFixed(2)}${value === 0 ? ", no randomness" : value < 0.6 ? ", calm" : value > 1.1 ? ", wild" : ""}` }),
      slider({ label: "Leave out unlikely words", min: 0, max: 0.3, step: 0.01, value: set.min_p, onChange: (to) => { set.min_p = to; },
        say: (value) => (value ? `under ${Math.round(100 * value)}% of the likeliest` : "none") }),
      field("Seed", seed, "The same seed gives the same text."),
      checkbox("Copy guard", set.guard, (to) => { set.guard = to; }, "Never copies ten words in a row from the posts that it learned from.")),
    ];
  }

  function labelOf(item) {
    return { tuned: `${item.label} (yours)`, base: item.name === "shipped" ? "Built-in model" : `${item.name} (starting model)` }[item.role] ?? item.name;
  }

  /** Whether the stretch that was written last still stands at the end, unchanged. */
  function isIntact() {
    return Boolean(last) && draft.text.length === last.to && draft.text.endsWith(last.text);
  }

  function label() {
    const busy = Boolean(writing);
    start.lastChild.textContent = draft.machine.length ? "Continue" : "Write";
    start.disabled = busy;
    end.disabled = !busy;
    again.hidden = busy || !isIntact();
    draft.freeze(busy);
    keeping.hidden = !draft.text.trim();
    copying.disabled = sources.disabled = anew.disabled = busy;
    const words = (text) => text.split(/\s+/).filter(Boolean).length, theirs = words(draft.machine.map(([from, to]) => draft.text.slice(from, to)).join(" "));
    fill(whose, theirs ? [`${count(Math.max(0, words(draft.text) - theirs), "word")} of yours, `, el("span", { class: "machine" }, `${count(theirs)} of the model’s`)] : null);
  }

  function store() {
    const { text, machine } = draft;
    if (text.trim()) saving.save({ kind: "text", text, machine, model: set.model, prompt: last ? text.slice(0, last.from) : "", settings: set });
  }

  async function begin(event, isAgain = false) {
    if (writing) return;
    const given = String(set.seed).trim(), seed = given === "" ? Math.floor(Math.random() * SEEDS) : Math.max(0, Math.floor(Number(given)) || 0);
    const ends = (writing = new AbortController()), prompt = isAgain ? draft.text.slice(0, last.from) : draft.text, from = prompt.length;
    last = null;
    fill(below);
    fill(second);
    if (isAgain) draft.put(from, draft.text.length, "", ends);
    label();
    announce(set.beside ? "Writing two texts" : "Writing");
    const { box } = draft, follows = box.getBoundingClientRect().bottom <= innerHeight + 4;
    const other = set.beside && set.beside !== set.model ? beside(prompt, seed, ends) : null;
    const result = await run(set.model, prompt, seed, ends, (piece) => {
      const at = draft.text.length;
      draft.put(at, at, at ? piece : piece.trimStart(), ends);
      if (follows && !other && box.getBoundingClientRect().bottom > innerHeight) scrollTo({ top: scrollY + box.getBoundingClientRect().bottom - innerHeight + 90 });
    });
    await other;
    writing = null;
    last = { from, to: draft.text.length, text: draft.text.slice(from), seed };
    fill(below, told(result, seed));
    label();
    store();
    saving.flush();
    announce(result.problem ? sentence(result.problem.message) : result.end ? `Written: ${count(last.text.split(/\s+/).filter(Boolean).length, "word")}` : "Stopped");
  }

  /** The same beginning, by the other model, in a column of its own. */
  async function beside(prompt, seed, ends) {
    const words = document.createTextNode(""), under = el("div", { class: "below" }), model = models.find((item) => item.name === set.beside);
    fill(second, el("article", { class: "written", "aria-label": `Written by ${labelOf(model)}` }, el("h2", {}, labelOf(model)), el("div", { class: "text", dir: "auto" }, prompt ? el("span", { class: "prompt" }, prompt) : null, words), under));
    fill(under, told(await run(model.name, prompt, seed, ends, (piece) => words.appendData(piece)), seed));
  }

  async function run(model, prompt, seed, ends, onText) {
    const result = { begin: null, end: null, problem: null };
    const body = { model, prompt: ending(prompt), tokens: set.tokens, temperature: set.temperature, seed, guard: set.guard, min_p: set.min_p };
    // Chunks that come faster than the screen refreshes are added together.
    let waiting = "", frame = 0;
    const put = () => {
      frame = 0;
      if (waiting) onText(waiting);
      waiting = "";
    };
    try {
      for await (const { event, data } of stream("/api/write", body, { signal: ends.signal })) {
        if (event === "text") {
          waiting += data;
          frame ||= requestAnimationFrame(put);
        } else if (event === "error") result.problem = data;
        else result[event] = data;
      }
    } catch (error) {
      if (!ends.signal.aborted) result.problem = error;
    }
    cancelAnimationFrame(frame);
    put();
    return result;
  }

  function told({ begin: begun, end: ended, problem: wrong }, seed) {
    if (wrong) return problem(wrong);
    if (!ended) return quiet("Stopped.");
    const seconds = ended.seconds < 10 ? `${ended.seconds.toFixed(1)} s` : duration(ended.seconds);
    return [quiet(`${count(ended.tokens, "token")} in ${seconds}, ${count(ended.tokens / Math.max(ended.seconds, 0.001))} a second; seed ${seed}${ended.finished === "stop" ? "; the model ended it" : ""}.`),
      begun?.guarded ? guardNote(ended.blocked) : begun?.has_guard ? quiet("The copy guard was off: passages may be copied from your posts.") : null];
  }

  async function origins(asked) {
    const written = ending(last ? draft.text.slice(last.from) : draft.text);
    asked.disabled = true;
    try {
      const result = await post("/api/write/origins", { text: written });
      below.querySelector(".origins")?.remove();
      add(below, originsOf(result));
      announce(originsLede(result));
      below.querySelector(".origins h3")?.focus({ preventScroll: true });
    } catch (error) {
      toast(error);
    }
    asked.disabled = false;
  }

  function stop() {
    writing?.abort();
    return Boolean(writing);
  }

  const hide = () => { if (document.hidden) saving.flush(); };
  document.addEventListener("visibilitychange", hide);
  return { begin, stop, leave() { isLeft = true; document.removeEventListener("visibilitychange", hide); draft.close(); stop(); saving.flush(); } };
}

function guardNote(blocked) {
  if (!blocked.length) return quiet("The copy guard blocked nothing.");
  const times = blocked.length === 1 ? "once" : blocked.length === 2 ? "twice" : `${blocked.length} times`;
  return folded(`The copy guard stepped in ${times}`, quiet("After these words, continuing as in one of your posts was blocked:"),
    bullets(blocked.map((wording) => el("span", { dir: "auto" }, `… ${wording}`, el("span", { class: "cut", "aria-hidden": "true" }, " ⌇")))));
}

function originsLede(result) {
  const longest = result.shared[0];
  return longest ? `The longest passage copied from a post has ${count(longest.words, "word")}.` : "No five words in a row are from your posts.";
}

function originsOf(result) {
  const open = (item, quoted) => link(address("posts", ["post", item.document], { quote: quoted }), title(item.title));
  return el("div", { class: "origins" }, el("h3", { tabindex: "-1" }, "Where it may come from"), el("p", {}, originsLede(result)),
    result.shared.length ? el("ul", { class: "shared" }, result.shared.map((item) => el("li", {},
      el("q", { dir: "auto" }, item.text), el("span", { class: "quiet" }, `${count(item.words, "word")}, in `, open(item, item.text), item.date ? `, ${day(item.date)}` : "")))) : null,
    result.nearest.length ? [el("h4", {}, "Similar passages"), result.nearest.map((item) => quote(short(item.matching || firstLine(item.text), 240),
      { cite: [open(item, item.matching || firstLine(item.text)), item.date ? `, ${day(item.date)}` : "", item.whose === "own" ? "" : ", not your own words"] }))] : null,
    result.is_complete ? null : quiet("Your archive is large; only its first 64 MB were searched."));
}

const firstLine = (text) => short(lines(text)[0] ?? "", 160).replace(/^> ?/, "").replace(/…$/, "");
const short = (text, most) => (text.length <= most ? text : `${text.slice(0, text.lastIndexOf(" ", most))}…`);
