// Write: notes or a draft on the left, the text on the right; both are saved as they grow.

import { address, go, shortcut } from "/app.js";
import { add, button, checkbox, day, drawn, duration, el, empty, field, fill, folded, input, lines, link, loading, masthead, problem, quiet, quote, row,
  select, sentence, size, slider, title } from "/components.js";
import { added, editor, ending } from "/editor.js";
import { count, fixed, t } from "/language.js";
import { announce, copy, toast } from "/messages.js";
import { follow as followJobs, newest, progress, start as startJob } from "/jobs.js";
import { ApiError, completion, get, post, stream } from "/server.js";
import { savedList, saver } from "/texts.js";

const SEEDS = 1_000_000_000, VARIANTS = 3, SHOWN = 160; // characters before a variant
// Settings stay while other pages are open.
let settings = null;

export async function show(element, { path, query }) {
  const id = path[0] ?? "";
  const [offer, text] = await Promise.all([get("/api/write"), id ? get(`/api/texts/${encodeURIComponent(id)}`) : null]);
  const isOwn = offer.models.some((item) => item.role === "tuned");
  add(element, masthead({ heading: text ? title(text.title) : isOwn ? t`Write with your model` : t`Write with the built-in model`, follow: isOwn || text || !offer.models.length ? "" : [t`It does not write like you.`, " ", link(address("home"), t`Make a model of your own`)] }));
  if (!offer.models.length) {
    add(element, empty(t`No model yet`, t`Once you have made one, it writes here.`, el("a", { class: "button primary", href: address("home") }, t`Make one`)));
    return undefined;
  }
  const page = pageOf(element, offer, text, query);
  shortcut("Ctrl+Enter", t`Continue the text, or write from the notes`, page.go, { whileTyping: true });
  shortcut("Escape", t`Stop writing`, page.stop, { whileTyping: true });
  return page.leave;
}

function pageOf(element, offer, saved, query) {
  const models = offer.models, named = (name) => models.find((item) => item.name === name || item.label === name)?.name ?? "";
  const first = models.find((item) => item.role === "tuned") ?? models[0], defaults = offer.defaults;
  const set = (settings ??= { model: first.name, beside: "", tokens: defaults.tokens, temperature: defaults.temperature, seed: "", guard: true, suggests: true });
  set.model = named(saved?.model) || named(query.get("model")) || named(set.model) || first.name;
  set.beside = named(query.get("beside") ?? set.beside);
  let writing = null, isLeft = false, last = null; // the stretch that was written last: {from, to, text}
  let drafted = saved?.drafted ?? null; // the last draft from the notes: {model, seed, notes, lines}
  let follow = () => {}; // shows a list of changes as the text has them
  const saving = saver(saved?.id ?? "", (result) => {
    if (isLeft) return;
    if (location.hash !== address("write", [result.id])) go(address("write", [result.id]), { replace: true, quietly: true });
    list.mark(result.id);
  });

  const changed = () => { store(); label(); follow(); };
  const notes = editor({ text: saved?.notes ?? "" }, { label: t`Notes or a draft`, hint: t`Notes are a line for each sentence, small words too: what you leave out the model guesses, and one sentence in three comes out wrong. A blank line begins a paragraph.`, placeholder: t`the rain gauge is copper, five inches\nI made it in 2014, from a tube`, onChange: changed });
  const draft = editor({ text: saved?.text ?? query.get("prompt") ?? "", machine: saved?.machine ?? [] }, { label: t`Your text`, hint: t`A title, a first sentence, or nothing: the model goes on where you stop. Change anything at any time.`,
    placeholder: t`The trouble with backups`, model: () => (set.suggests ? set.model : ""), onChange: changed });
  const fromNotes = button(t`Write it from notes`, writeNotes), voice = button(t`Put it in my voice`, rewrite);
  const how = select([["", t`lightly: spelling, contractions, punctuation`], ["free", t`with the model, too: each sentence, its words kept`]], "", label);
  how.setAttribute("aria-label", t`How to put it in my voice`);
  const installing = progress(), needs = el("div", { class: "needs" });
  const start = button(t`Write`, null, { kind: "primary", icon: "write", type: "submit" }), several = button(t`Three variants`, variants);
  const end = button(t`Stop`, stop, { icon: "stop" }), again = button(t`Try again`, (event) => begin(event, true));
  const checking = button(t`Check it`, check, { icon: "check" }), below = el("div", { class: "below" }), whose = quiet();
  const copying = button(t`Copy`, () => copy(draft.text), { kind: "small", icon: "copy" });
  const sources = button(t`Where did this come from?`, (event) => origins(event.currentTarget), { kind: "small", icon: "search" });
  const anew = button(t`New text`, () => saving.flush().then(() => go(address("write"))), { kind: "small" });
  const settingsBox = el("div", { class: "two" }, controls());
  const keeping = row(copying, sources, anew), list = savedList("text", "write", t`Saved texts`);

  add(element, el("form", { class: "writing", on: { submit: (event) => { event.preventDefault(); begin(); } } },
    el("div", { class: "desk" }, el("div", {}, notes.node, row(fromNotes), row(voice, how), needs, installing),
      el("div", {}, draft.node, row(draft.take, whose), row(start, several, again, end), row(checking, draft.undo, draft.redo), keeping)),
    below, folded(t`Settings`, settingsBox), list));
  label();
  list.mark(saved?.id ?? "");
  if (drafted && draft.text.trim()) fill(below, progressOf(drafted));
  const unfollow = followJobs({
    onJob: () => installing.update(newest("base")),
    onChange: (what) => what.includes("bases") && offered().catch(toast),
  });

  /** Offer the models that there are now, as after one was installed. */
  async function offered() {
    const now = await get("/api/write");
    if (isLeft) return;
    offer = now;
    models.splice(0, models.length, ...offer.models);
    set.model = named(set.model) || (models.find((item) => item.role === "tuned") ?? models[0])?.name || "";
    set.beside = named(set.beside);
    fill(settingsBox, controls());
    label();
  }

  function controls() {
    const seed = input({ type: "number", min: "0", max: String(SEEDS * 2), step: "1", inputmode: "numeric", placeholder: t`random`, value: set.seed });
    seed.addEventListener("input", () => { set.seed = seed.value; });
    const names = models.map((item) => [item.name, labelOf(item)]);
    return [el("div", {}, models.length > 1 ? field(t`Model`, select(names, set.model, (to) => { set.model = to; label(); })) : null,
      slider({ label: t`Length`, min: 50, max: 1000, step: 50, value: set.tokens, onChange: (to) => { set.tokens = to; }, say: (n) => t`about ${count(n * 0.75, "word")}` }),
      models.length > 1 ? field(t`Compare with`, select([["", t`itself`], ...names], set.beside, (to) => { set.beside = to; label(); }), t`Shows both texts from the same beginning, side by side.`) : null,
      checkbox(t`Suggest as I type`, set.suggests, (to) => { set.suggests = to; }, t`Grey text ends your sentence: Tab takes it, Esc drops it.`)),
    el("div", {}, slider({ label: t`Variety`, min: 0, max: 1.5, step: 0.05, value: set.temperature, onChange: (to) => { set.temperature = to; },
      say: (value) => [fixed(value, 2), value === 0 ? t`no randomness` : value < 0.6 ? t`calm` : value > 1.1 ? t`wild` : ""].filter(Boolean).join(", ") }),
    field(t`Seed`, seed, t`The same seed gives the same text.`),
    checkbox(t`Copy guard`, set.guard, (to) => { set.guard = to; }, t`Never copies ten words in a row from the posts it learned from.`))];
  }

  function labelOf(item) {
    return { tuned: t`${item.label} (yours)`, base: item.name === "shipped" ? t`Built-in model` : t`${item.label} (starting model)` }[item.role] ?? item.name;
  }

  /** The model that writes from notes: the chosen one if it can, else another, such as a starting model; in the own voice only one that was made. */
  function drafter(isOwn = false) {
    const able = models.filter((item) => item.writes_from_notes && !(isOwn && item.role === "base"));
    return able.find((item) => item.name === set.model) ?? able[0];
  }

  /** Whether the stretch that was written last still stands at the end, unchanged. */
  function isIntact() {
    return Boolean(last) && draft.text.length === last.to && draft.text.endsWith(last.text);
  }

  function label() {
    const busy = Boolean(writing), isNoted = Boolean(notes.text.trim()), isBegun = Boolean(draft.text.trim());
    start.lastChild.textContent = draft.machine.length ? t`Continue` : t`Write`;
    several.textContent = set.beside && set.beside !== set.model ? t`Both models` : t`Three variants`;
    fromNotes.disabled = busy || !isNoted || !drafter();
    voice.disabled = busy || !(isNoted || isBegun) || (how.value && !drafter(true));
    checking.disabled = busy || !(isNoted || isBegun);
    start.disabled = several.disabled = copying.disabled = sources.disabled = anew.disabled = busy;
    end.hidden = !busy;
    again.hidden = busy || !isIntact();
    fill(needs, how.value && !drafter(true) ? quiet(t`Only a model made from your posts has your voice, and none here can write sentences anew. ${link(address("home"), t`Make one`)} from a starting model that can write from notes, such as SmolLM2.`)
      : isNoted && offer.installable ? [quiet(t`No model here can write from notes yet. ${offer.installable.title} can, also before you make your own.`),
        row(button(t`Install it: ${size(offer.installable.bytes)}`, () => startJob({ kind: "base", source: offer.installable.name, name: offer.installable.name, accepted: true }), { kind: "small" }))] : null);
    notes.freeze(busy);
    draft.freeze(busy);
    keeping.hidden = !isBegun && !isNoted;
    const theirs = wordsOf(draft.machine.map(([from, to]) => draft.text.slice(from, to)).join(" "));
    fill(whose, theirs ? [t`${count(Math.max(0, wordsOf(draft.text) - theirs), "word")} of yours`, ", ", el("span", { class: "machine" }, t`${count(theirs)} of the model’s`)] : null);
  }

  function store() {
    const { text, machine } = draft;
    if (text.trim() || notes.text.trim()) saving.save({ kind: "text", text, notes: notes.text, machine, model: set.model, drafted });
  }

  /** Do one thing at a time; Stop, Esc and leaving the page end it. `run` gives what is to be announced. */
  async function busy(what, run) {
    if (writing) return;
    const ends = (writing = new AbortController());
    let said = "";
    fill(below, loading(what));
    label();
    announce(what);
    try {
      said = await run(ends);
    } catch (error) {
      if (!ends.signal.aborted) fill(below, problem(error));
      said = ends.signal.aborted ? "" : sentence(error.message);
    }
    if (!said) fill(below, quiet(t`Stopped.`));
    writing = null;
    label();
    store();
    saving.flush();
    announce(said || t`Stopped`);
  }

  const seedNow = () => (String(set.seed).trim() === "" ? Math.floor(Math.random() * SEEDS) : Math.max(0, Math.floor(Number(set.seed)) || 0));

  /** What a stream ends with; null if it was stopped. */
  async function ended(path, body, ends, what) {
    for await (const { event, data } of stream(path, body, { signal: ends.signal })) {
      if (event === "error") throw new ApiError(data.message, data.hint);
      if (event === "end") return data;
      fill(below, loading(`${what} ${data.number}`));
    }
    return null;
  }

  /** Write a draft of the notes, line by line; or the other lines of one that was broken off. */
  function writeNotes(event, begun = null) {
    return busy(t`Writing from your notes`, async (ends) => {
      const asked = { seed: begun?.seed ?? seedNow(), lines: begun?.lines ?? [], model: named(begun?.model) || drafter().name };
      let failure = null, isBegun = false;
      try {
        for await (const { event: kind, data } of stream("/api/draft", { text: notes.text, ...asked }, { signal: ends.signal })) {
          if (kind === "error") throw new ApiError(data.message, data.hint);
          if (kind === "notes") drafted = { ...asked, notes: data };
          if (kind === "line") put(data, ends);
          isBegun = true;
          fill(below, progressOf(drafted, true));
        }
      } catch (error) {
        if (!isBegun) throw error;
        if (!ends.signal.aborted) failure = error;
      }
      if (!isBegun) return "";
      fill(below, failure && problem(failure), progressOf(drafted));
      return failure ? sentence(failure.message) : drafted.lines.length < drafted.notes.length ? t`Stopped` : outcome(drafted.lines);
    });
  }

  /** Add a line of a draft to the text, and save it: a reload loses none. */
  function put(line, group) {
    const at = draft.text.length, isFirst = !drafted.lines.length;
    const before = (isFirst && draft.text.trim() ? "\n\n".slice(/\n*$/.exec(draft.text)[0].length) : "") + line.before;
    const machine = line.kept ? added(line.note, line.text).map(([from, to]) => [before.length + from, before.length + to]) : [];
    drafted.lines = [...drafted.lines, line];
    draft.put(at, at, before + wordingOf(line), group, machine);
    saving.flush();
  }

  /** Each note of a draft beside what became of it, how far it is, and whose words these are. */
  function progressOf({ model, seed, notes: all, lines: written }, isLive = false) {
    const writer = models.find((item) => item.name === model), isPart = written.length < all.length, next = Math.min(written.length + 1, all.length);
    const name = writer ? labelOf(writer) : model, who = writer?.role === "base" ? t`Written by ${name}, which has read none of your posts.` : t`Written by ${name}.`;
    return [isLive ? loading(t`Writing line ${count(next)} of ${count(all.length)}`)
      : quiet(isPart ? t`Written so far: ${count(written.length)} of ${count(all.length, "line")}.` : outcome(written), " ", who, " ", t`Words of your notes count as yours. Read it before you use it: a small model may say what you did not mean.`),
    isPart && !isLive && (writer || drafter()) ? row(button(t`Go on with line ${count(next)}`, (event) => writeNotes(event, drafted), { kind: "primary", icon: "start" })) : null,
    el("ol", { class: "drafted" }, all.map((note, i) => el("li", { "aria-current": isLive && i === written.length ? "step" : null }, el("span", { dir: "auto" }, note),
      el("span", { dir: "auto", class: written[i]?.kept ? "" : "quiet" }, written[i] ? wordingOf(written[i]) : isLive && i === written.length ? "…" : "")))),
    isLive ? null : curious(t`Seed ${seed}.`)];
  }

  function rewrite() {
    return busy(t`Comparing with your posts`, async (ends) => {
      if (!notes.text.trim()) notes.replace(draft.text, draft.machine); // what it was stays on the left
      const source = notes.text, free = Boolean(how.value);
      const result = await ended("/api/rewrite", { text: source, free, model: free ? drafter(true).name : "", seed: seedNow() }, ends, t`Writing sentence`);
      if (!result) return "";
      const changes = changesOf(source, result);
      const said = changes.length ? sentence(count(changes.length, "change")) : free && !result.sentences.length ? t`The model found no paragraph to write: it takes whole sentences, neither very few words nor very many.` : t`Nothing to change: it has the forms that your posts have.`;
      fill(below, quiet(said, free && changes.length ? [" ", t`Unchanged: ${count(result.unchanged)} of ${count(result.sentences.length, "sentence")}. Read each of the others: a small model may say what you did not mean.`] : ""), choices(source, changes));
      return said;
    });
  }

  /** A list of changes, each of which can be taken back alone; the text follows, and the list follows undo and redo. */
  function choices(source, changes) {
    const made = new Map(); // each text that was made, and the changes it lacks
    const apply = () => {
      const next = withChanges(source, changes);
      made.set(next.text, changes.filter((change) => change.isMine));
      draft.replace(next.text, next.machine);
    };
    follow = () => made.get(draft.text) && changes.forEach((change) => {
      change.isMine = made.get(draft.text).includes(change);
      change.own.textContent = change.isMine ? t`Change it` : t`Keep mine`;
      change.own.setAttribute("aria-label", `${change.own.textContent}: ${change.before || t`nothing`}`);
      change.own.closest("li").classList.toggle("mine", change.isMine);
    });
    const choose = (change) => {
      if (!made.has(draft.text)) return toast(t`You have changed the text since. Put it in your voice again to choose.`);
      change.isMine = !change.isMine;
      return apply();
    };
    const list = el("ol", { class: "changes" }, changes.map((change) => {
      change.own = button("", () => choose(change), { kind: "small" });
      const [before = ""] = /(?<!\S).{0,40}$/.exec(source.slice(0, change.from)) ?? [], [after = ""] = /^.{0,40}(?!\S)/.exec(source.slice(change.to)) ?? []; // whole words of its line
      return el("li", {}, el("div", {}, el("span", { dir: "auto" }, before, el("del", {}, change.before || " "), el("ins", {}, change.after || " "), after),
        change.because ? quiet(sentence(change.because)) : null), change.own);
    }));
    if (changes.length || !draft.text.trim()) apply();
    return list;
  }

  function check() {
    return busy(t`Comparing with your posts`, async (ends) => {
      const pane = draft.text.trim() ? draft : notes, { text } = pane;
      const found = await post("/api/check", { text }, { signal: ends.signal });
      const places = placesIn(text);
      pane.mark(found.sentences.filter((each) => each.is_marked).map((each) => [places[each.start], places[each.end]]));
      fill(below, el("h2", { class: "visually-hidden" }, t`Comparing with your posts`), el("div", { class: "body" }, drawn(found.html)));
      return sentence(found.sentence);
    });
  }

  function begin(event, isAgain = false) {
    return busy(t`Writing`, async (ends) => {
      const seed = seedNow(), prompt = isAgain ? draft.text.slice(0, last.from) : draft.text, from = prompt.length;
      last = null;
      if (isAgain) draft.put(from, draft.text.length, "", ends);
      const { box } = draft, follows = box.getBoundingClientRect().bottom <= innerHeight + 4;
      const result = await run(set.model, prompt, seed, ends, (piece) => {
        const at = draft.text.length;
        draft.put(at, at, at ? piece : piece.trimStart(), ends);
        if (follows && box.getBoundingClientRect().bottom > innerHeight) scrollTo({ top: scrollY + box.getBoundingClientRect().bottom - innerHeight + 90 });
      });
      last = { from, to: draft.text.length, text: draft.text.slice(from) };
      fill(below, told(result, seed));
      return result ? t`Written: ${count(wordsOf(last.text), "word")}` : t`Stopped`;
    });
  }

  /** The same beginning several times beside one another: by one model, or by two with the same seed. */
  function variants() {
    const other = set.beside !== set.model && models.find((item) => item.name === set.beside), seed = seedNow(), prompt = draft.text;
    const each = other ? [named(set.model), other.name].map((name) => [name, seed, labelOf(models.find((item) => item.name === name))])
      : Array.from({ length: VARIANTS }, (_, i) => [set.model, seed + i, t`Variant ${i + 1}`]);
    return busy(other ? t`Writing two texts` : t`Writing three texts`, async (ends) => {
      const place = el("div", { class: ["variants", other ? "two" : "three"] });
      fill(below, place);
      await Promise.all(each.map(async ([model, own, name]) => {
        const words = document.createTextNode(""), under = el("div");
        add(place, el("article", { class: "written", "aria-label": name }, el("h2", {}, name), el("div", { class: "text", dir: "auto" }, prompt ? el("span", { class: "prompt" }, prompt.length > SHOWN ? `… ${prompt.slice(-SHOWN).replace(/^\S+\s/, "")}` : prompt) : null, words), under));
        const result = await run(model, prompt, own, ends, (piece) => words.appendData(piece));
        const take = button(t`Take this one`, () => {
          draft.put(draft.text.length, draft.text.length, draft.text ? words.data : words.data.trimStart(), {});
          fill(below);
        }, { kind: "small" });
        fill(under, words.data ? row(take) : null, told(result, own));
      }));
      return t`Written`;
    });
  }

  /** Write a text; gives its tokens and seconds, null if it was stopped. */
  async function run(model, prompt, seed, ends, onText) {
    const body = { model, prompt: ending(prompt), max_tokens: set.tokens, temperature: set.temperature, seed, guard: set.guard };
    // Chunks that come faster than the screen refreshes are added together.
    let waiting = "", frame = 0;
    const put = () => {
      frame = 0;
      if (waiting) onText(waiting);
      waiting = "";
    };
    const result = {}, began = performance.now();
    try {
      for await (const text of completion(body, ends.signal, result)) {
        waiting += text;
        frame ||= requestAnimationFrame(put);
      }
    } catch (error) {
      if (!ends.signal.aborted) throw error;
    } finally {
      cancelAnimationFrame(frame);
      put();
    }
    return ends.signal.aborted ? null : { ...result, seconds: (performance.now() - began) / 1000 };
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
  return { go: (event) => (event.target === notes.box ? !fromNotes.disabled && writeNotes() : begin()), stop,
    leave() { isLeft = true; unfollow(); document.removeEventListener("visibilitychange", hide); notes.close(); draft.close(); stop(); saving.flush(); } };
}

const wordingOf = (line) => (line.kept ? line.text : `[${line.note}]`);

function outcome(written) {
  const left = written.filter((line) => !line.kept).length;
  return left ? t`Still notes, in brackets: ${count(left)} of ${count(written.length, "line")}. The model could not keep what they say.` : t`Every line is in the text.`;
}

const wordsOf = (text) => text.split(/\s+/).filter(Boolean).length;
const curious = (...parts) => folded(t`For the curious`, quiet(parts));

function told(result, seed) {
  if (!result) return quiet(t`Stopped.`);
  const seconds = result.seconds < 10 ? t`${fixed(result.seconds, 1)} s` : duration(result.seconds);
  return curious([t`${count(result.tokens, "token")} in ${seconds}, ${count(result.tokens / Math.max(result.seconds, 0.001))} a second; seed ${seed}.`, result.finished === "stop" ? t`The model ended the text itself.` : ""].filter(Boolean).join(" "));
}

/** Where each character begins, and the text ends: the server counts characters, not their halves. */
function placesIn(text) {
  let at = 0;
  return [...Array.from(text, (character) => (at += character.length) - character.length), text.length];
}

/** What a rewrite changes, in the draft's own characters: sentences written anew, and single edits in what stays. */
function changesOf(draft, { edits, sentences }) {
  const anew = [], places = placesIn(draft);
  let at = 0, written = "";
  for (const { start, before, after } of sentences) {
    const from = places[start];
    written += draft.slice(at, from);
    at = from + before.length;
    if (before !== after) anew.push({ from, to: at, before, after, start: written.length, end: written.length + after.length, isAnew: true });
    written += after;
  }
  written += draft.slice(at);
  const inWritten = placesIn(written), single = [];
  for (const { start, before, after, because } of edits.toReversed()) { // from the end, so that earlier places hold
    const place = inWritten[start];
    const inside = anew.find((each) => each.start <= place && place < each.end);
    if (inside) {
      inside.after = inside.after.slice(0, place - inside.start) + after + inside.after.slice(place - inside.start + before.length);
    } else {
      const from = place - anew.reduce((sum, each) => sum + (each.end <= place ? each.end - each.start - each.before.length : 0), 0);
      single.push({ from, to: from + before.length, before, after, because });
    }
  }
  return [...anew, ...single].sort((a, b) => a.from - b.from);
}

/** The draft with the changes that are not taken back, and the ranges of what a model wrote. */
function withChanges(draft, changes) {
  const machine = [];
  let text = "", at = 0;
  for (const { from, to, before, after, isAnew } of changes.filter((change) => !change.isMine)) {
    text += draft.slice(at, from);
    if (isAnew) machine.push(...added(before, after).map(([start, end]) => [text.length + start, text.length + end]));
    text += after;
    at = to;
  }
  return { text: text + draft.slice(at), machine };
}

function originsLede(result) {
  const longest = result.shared[0];
  return longest ? t`The longest passage copied from a post has ${count(longest.words, "word")}.` : t`No five words in a row are from your posts.`;
}

function originsOf(result) {
  const open = (item, quoted) => link(address("posts", ["post", item.document], { quote: quoted }), title(item.title));
  return el("div", { class: "origins" }, el("h3", { tabindex: "-1" }, t`Where it may come from`), el("p", {}, originsLede(result)),
    result.shared.length ? el("ul", { class: "shared" }, result.shared.map((item) => el("li", {},
      el("q", { dir: "auto" }, item.text), el("span", { class: "quiet" }, t`${count(item.words, "word")}, in ${open(item, item.text)}`, item.date ? `, ${day(item.date)}` : "")))) : null,
    result.nearest.length ? [el("h4", {}, t`Similar passages`), result.nearest.map((item) => quote(short(item.matching || firstLine(item.text), 240),
      { cite: [open(item, item.matching || firstLine(item.text)), item.date ? `, ${day(item.date)}` : "", item.whose === "own" ? "" : [", ", t`not your words`]] }))] : null,
    result.is_complete ? null : quiet(t`Your archive is large; only its first 64 MB were searched.`));
}

const firstLine = (text) => short(lines(text)[0] ?? "", 160).replace(/^> ?/, "").replace(/…$/, "");
const short = (text, most) => (text.length <= most ? text : `${text.slice(0, text.lastIndexOf(" ", most))}…`);
