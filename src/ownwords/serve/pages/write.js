// Write: notes or a draft on the left, the text on the right; both are saved as they grow.

import { address, go, shortcut } from "/app.js";
import { add, announce, button, checkbox, copy, drawn, duration, el, empty, field, fill, folded, form, input, link,
  loading, masthead, problem, quiet, redraw, row, select, sentence, size, smallButton, title, toast } from "/components.js";
import { added, editor, ending } from "/editor.js";
import { live, newest, progress, start as startJob, task } from "/jobs.js";
import { count, fixed, remember, remembered, t } from "/language.js";
import { ApiError, completion, get, post, stream } from "/server.js";
import { savedList, saver } from "/texts.js";

const SEEDS = 1_000_000_000, VARIANTS = 3, SHOWN = 160; // characters before a variant
const DRAFTER = "drafter"; // the name under which the choice of who writes from notes is stored
const LENGTHS = [50, 150, 300, 600, 1000]; // tokens; the default must be one of them, as for the variety
const VARIETIES = [[0, t`no randomness`], [0.5, t`calm`], [1, t`as usual`], [1.3, t`wild`]];
// Settings stay while other pages are open.
let settings = null;

export async function show(element, { path, query }, left) {
  const id = path[0] ?? "";
  const [offer, text] = await Promise.all([get("/api/write", {}, left),
    id ? get(`/api/texts/${encodeURIComponent(id)}`, {}, left) : null]);
  const isOwn = offer.models.some((item) => item.role === "tuned");
  const heading = text ? title(text.title) : isOwn ? t`Write with your model` : t`Write with the built-in model`;
  const follow = [t`It does not write like you.`, " ", link(address("home"), t`Make a model of your own`)];
  add(element, masthead({ heading, follow: isOwn || text || !offer.models.length ? "" : follow }));
  if (!offer.models.length) {
    return void add(element, empty(t`No model yet`, t`Once you have made one, you can write with it here.`,
      el("a.button.primary", { href: address("home") }, t`Make one`)));
  }
  const page = pageOf(element, offer, text, query, left);
  shortcut("Ctrl+Enter", page.go);
  return void shortcut("Escape", page.stop);
}

const NOTES_HINT = t`Write one line of notes per sentence, small words included: the model guesses what you leave out, and gets about one sentence in three wrong. A blank line starts a new paragraph.`;
const TEXT_HINT = t`Write a title, a first sentence, or nothing: the model continues where you stop. You can change anything at any time.`;
const VOICES = [["", t`lightly: spelling, contractions, punctuation`],
  ["model", t`with the model: also rewrites each sentence, keeping what it says`]];

function pageOf(element, offer, saved, query, left) {
  const named = (name) => offer.models.find((item) => item.name === name || item.label === name)?.name ?? "";
  const usual = () => offer.models.find((item) => item.role === "tuned") ?? offer.models[0];
  const { tokens, temperature } = offer.defaults;
  const set = (settings ??= { model: "", tokens, temperature, seed: "", guard: true, suggests: true });
  set.model = named(saved?.model) || named(query.get("model")) || named(set.model) || usual().name;
  const writing = task(left);
  let last = null; // the stretch that was written last: {from, to, text}
  let drafted = saved?.drafted ?? null; // the last draft from the notes: {model, seed, notes, lines}
  let follow = () => {}; // shows a list of changes as the text has them
  const saving = saver(left, saved?.id ?? "", (id) => {
    if (location.hash !== address("write", [id])) go(address("write", [id]), { replace: true, quietly: true });
    list.mark(id);
  });

  const changed = () => { store(); label(); follow(); };
  const notes = editor(left, { text: saved?.notes ?? "" }, { label: t`Notes or a draft`, hint: NOTES_HINT,
    placeholder: t`the rain gauge is copper, five inches\nI made it in 2014, from a tube`, onChange: changed });
  const draft = editor(left, { text: saved?.text ?? query.get("prompt") ?? "", machine: saved?.machine ?? [] },
    { label: t`Your text`, hint: TEXT_HINT, placeholder: t`The trouble with backups`,
      model: () => (set.suggests ? set.model : ""), onChange: changed });
  const how = select(VOICES, "", label, { "aria-label": t`How to put it in my voice` });
  const by = el("select", { onchange() { remember(DRAFTER, by.value); label(); } }), can = el("small");
  const writtenBy = el("div.field", el("label", t`Written by`, " ", by), can);
  const fromNotes = button(t`Write it from notes`, () => writeNotes()), voice = button(t`Put it in my voice`, rewrite);
  const start = button(t`Write`, null, { kind: "primary", icon: "write", type: "submit" });
  const several = button(t`Three variants`, variants), again = button(t`Try again`, () => begin(true));
  const end = button(t`Stop`, writing.stop, { icon: "stop" }), checking = button(t`Check it`, check, { icon: "check" });
  const copying = button(t`Copy`, () => copy(draft.text), { kind: "small", icon: "copy" });
  const anew = smallButton(t`New text`, async () => {
    await saving.flush();
    go(address("write"));
  });
  const needs = el("div.needs"), below = el("div.below"), whose = quiet(), controls = el("div.two");
  const keeping = row(copying, anew), list = savedList(left, "text", "write", t`Saved texts`);

  add(element, form("writing", () => begin(), el("div.desk",
    el("div", notes.node, writtenBy, row(fromNotes), row(voice, how), needs, progress(left, () => newest("base"))),
    el("div", draft.node, row(draft.take, whose), row(start, several, again, end),
      row(checking, draft.undo, draft.redo), keeping)),
  below, folded(t`Settings`, controls), list));
  draw();
  list.mark(saved?.id ?? "");
  if (drafted && draft.text.trim()) fill(below, progressOf(drafted));
  live(left, (signal) => get("/api/write", {}, signal), (now) => {
    offer = now;
    set.model = named(set.model) || usual()?.name || "";
    draw();
  }, ["bases", "model", "models"]);

  function draw() {
    redraw(controls, [offer.models, set.model], settingsOf);
    const chosen = by.value || remembered(DRAFTER), own = drafter();
    const option = (value, called) => el("option", { value }, called);
    fill(by, option("", own ? labelOf(own) : t`No model of yours`),
      offer.endpoints.length > 0 && el("optgroup", { label: t`On this machine` },
        offer.endpoints.map((item) => option(item.name, endpointLabel(item)))));
    // Nothing is sent to a model that was not chosen.
    by.value = offer.endpoints.some((item) => item.name === chosen) ? chosen : "";
    writtenBy.hidden = !offer.endpoints.length;
    label();
  }

  function settingsOf() {
    const names = offer.models.map((item) => [item.name, labelOf(item)]);
    const setTo = (name) => (to) => { set[name] = to; label(); };
    const seed = input({ type: "number", min: "0", max: String(SEEDS * 2), step: "1", inputmode: "numeric",
      placeholder: t`random`, value: set.seed, oninput: () => { set.seed = seed.value; } });
    const lengths = LENGTHS.map((n) => [n, t`about ${count(n * 0.75, "word")}`]);
    return [el("div", names.length > 1 && field(t`Model`, select(names, set.model, setTo("model"))),
      field(t`Length`, select(lengths, set.tokens, (to) => setTo("tokens")(Number(to)))),
      checkbox(t`Suggest as I type`, set.suggests, setTo("suggests"),
        t`Grey text completes your sentence: Tab accepts it, Esc dismisses it.`)),
    el("div", field(t`Variety`, select(VARIETIES, set.temperature, (to) => setTo("temperature")(Number(to)))),
      field(t`Seed`, seed, t`The same seed gives the same text.`),
      checkbox(t`Copy guard`, set.guard, setTo("guard"),
        t`Never copies ten words in a row from the posts it learned from.`))];
  }

  function labelOf({ role, name, label: called }) {
    if (role === "tuned") return t`${called} (yours)`;
    if (role !== "base") return name;
    return name === "shipped" ? t`Built-in model` : t`${called} (starting model)`;
  }

  /** The model that writes from notes: the chosen one if it can, else another, such as a starting model. */
  function drafter() {
    const able = offer.models.filter((item) => item.writes_from_notes);
    return able.find((item) => item.name === set.model) ?? able[0];
  }

  /** What the model that is chosen to write from notes can do. */
  function abilityOf() {
    const item = offer.endpoints.find((each) => each.name === by.value), own = drafter();
    if (item) return t`${endpointLabel(item)} gets your notes, a description of how you write, and passages from your posts. It writes one paragraph at a time, with up to ten attempts each. ownwords checks the facts, and the voice as far as your posts show it.`;
    return own && t`It writes one sentence per line. It is small and often makes no sense; a larger model on this machine makes more.`;
  }

  /** Whether the stretch that was written last is still at the end, unchanged. */
  function isIntact() {
    return Boolean(last) && draft.text.length === last.to && draft.text.endsWith(last.text);
  }

  function label() {
    const isBusy = writing.isBusy(), isNoted = Boolean(notes.text.trim()), isBegun = Boolean(draft.text.trim());
    const installable = isNoted && !by.value && offer.installable;
    fill(can, abilityOf());
    by.disabled = isBusy;
    how.hidden = !by.value;
    start.lastChild.textContent = draft.machine.length ? t`Continue` : t`Write`;
    fromNotes.disabled = isBusy || !isNoted || !(by.value || drafter());
    voice.disabled = isBusy || !(isNoted || isBegun);
    checking.disabled = isBusy || !(isNoted || isBegun);
    for (const each of [start, several, copying, anew]) each.disabled = isBusy;
    end.hidden = !isBusy;
    again.hidden = isBusy || !isIntact();
    redraw(needs, [installable], () => needsOf(installable));
    notes.freeze(isBusy);
    draft.freeze(isBusy);
    keeping.hidden = !isBegun && !isNoted;
    const theirs = wordsOf(draft.machine.map(([from, to]) => draft.text.slice(from, to)).join(" "));
    const own = Math.max(0, wordsOf(draft.text) - theirs);
    fill(whose, theirs > 0 && [t`${count(own, "word")} of yours`, ", ",
      el("span.machine", t`${count(theirs)} of the model’s`)]);
  }

  /** What is missing to write from notes. */
  function needsOf(installable) {
    if (!installable) return null;
    const { name, title: called, bytes } = installable;
    return [quiet(t`No model here can write from notes yet. ${called} can, even before you make your own.`),
      row(smallButton(t`Install it: ${size(bytes)}`,
        () => startJob({ kind: "base", source: name, name, accepted: true })))];
  }

  function store() {
    const { text, machine } = draft;
    if (!text.trim() && !notes.text.trim()) return;
    saving.save({ kind: "text", text, notes: notes.text, machine, model: set.model, drafted });
  }

  /** Do one thing at a time; Stop, Esc and leaving the page end it. `work(signal)` returns what is announced. */
  async function busy(what, work) {
    if (writing.isBusy()) return;
    let outcome = "";
    fill(below, loading(what));
    announce(what);
    const done = writing.run(async (signal) => {
      try {
        outcome = await work(signal);
      } catch (error) {
        if (signal.aborted) return;
        fill(below, problem(error));
        outcome = sentence(error.message);
      }
    });
    label();
    await done;
    if (!outcome) fill(below, quiet(t`Stopped.`));
    label();
    store();
    saving.flush();
    announce(outcome || t`Stopped`);
  }

  function seedNow() {
    if (String(set.seed).trim() === "") return Math.floor(Math.random() * SEEDS);
    return Math.max(0, Math.floor(Number(set.seed)) || 0);
  }

  // ---- from notes, in the author's voice, checked ----------------------------------------------------

  /** Write a draft of the notes, line by line, a model on a server paragraph by paragraph; or the rest of one. */
  function writeNotes(begun = null) {
    return busy(t`Writing from your notes`, async (signal) => {
      const endpoint = begun ? begun.endpoint ?? "" : by.value;
      const asked = { seed: begun?.seed ?? seedNow(), lines: begun?.lines ?? [], endpoint,
        model: endpoint ? "" : named(begun?.model) || drafter().name };
      let failure = null, isBegun = false;
      try {
        for await (const { event, data } of stream("/api/draft", { text: notes.text, ...asked }, signal)) {
          if (event === "error") throw new ApiError(data.message, data.hint);
          if (event === "notes") drafted = { ...asked, notes: data };
          if (event === "line") put(data, signal);
          isBegun = true;
          fill(below, progressOf(drafted, true, event === "trying" ? data : null));
        }
      } catch (error) {
        if (!isBegun) throw error;
        if (!signal.aborted) failure = error;
      }
      if (!isBegun) return "";
      fill(below, failure && problem(failure), progressOf(drafted));
      if (failure) return sentence(failure.message);
      return drafted.lines.length < drafted.notes.length ? t`Stopped` : outcomeOf(drafted);
    });
  }

  /** Add a line of a draft to the text, and save it: a reload loses none. */
  function put(line, group) {
    const at = draft.text.length, isFirst = !drafted.lines.length;
    const gap = isFirst && draft.text.trim() ? "\n\n".slice(/\n*$/.exec(draft.text)[0].length) : "";
    const before = gap + line.before;
    const ranges = line.kept ? added(line.note, line.text) : [];
    drafted.lines = [...drafted.lines, line];
    draft.put(at, at, before + wordingOf(line), group,
      ranges.map(([from, to]) => [before.length + from, before.length + to]));
    saving.flush();
  }

  /** Each note of a draft beside what became of it, how far it is, and whose words these are. `trying`: a try so far. */
  function progressOf({ model, endpoint, seed, notes: all, lines: written }, isLive = false, trying = null) {
    const server = offer.endpoints.find((item) => item.name === endpoint);
    const writer = offer.models.find((item) => item.name === model);
    const name = server ? endpointLabel(server) : writer ? labelOf(writer) : model || endpoint;
    const isPart = written.length < all.length, next = Math.min(written.length + 1, all.length);
    const places = [count(next), count(all.length)];
    const who = writer?.role === "base" ? t`Written by ${name}, which has read none of your posts.`
      : t`Written by ${name}.`;
    const status = isPart ? t`Written so far: ${count(written.length)} of ${count(all.length, unitOf(endpoint))}.`
      : outcomeOf({ endpoint, lines: written });
    const shown = all.map((note, i) => {
      const isNow = isLive && i === written.length, line = written[i];
      return el("li", { "aria-current": isNow ? "step" : null }, el("span", { dir: "auto" }, note),
        el("span", { dir: "auto", class: line?.kept ? "" : "quiet" },
          line ? wordingOf(line) : isNow && (trying?.text || "…"),
          isNow && trying && quiet(t`Attempt ${count(trying.number)}`),
          line?.doubts?.length > 0 && el("ul.quiet", line.doubts.map((doubt) => el("li", { dir: "auto" }, doubtOf(doubt))))));
    });
    if (isLive) {
      return [loading(endpoint ? t`Writing paragraph ${places[0]} of ${places[1]}`
        : t`Writing line ${places[0]} of ${places[1]}`), el("ol.drafted", shown)];
    }
    return [quiet(status, " ", who, " ", t`Words from your notes count as yours. Read the text before you use it: a small model may say what you did not mean.`),
      isPart && (endpoint || writer || drafter()) && row(button(
        endpoint ? t`Continue with paragraph ${places[0]}` : t`Continue with line ${places[0]}`, () => writeNotes(drafted),
        { kind: "primary", icon: "start" })),
      el("ol.drafted", shown), curious(t`Seed ${seed}.`)];
  }

  function rewrite() {
    return busy(t`Comparing with your posts`, async (signal) => {
      if (!notes.text.trim()) notes.replace(draft.text, draft.machine); // what it was stays on the left
      const text = notes.text, endpoint = how.value ? by.value : "";
      const result = await rewritten({ text, endpoint }, signal);
      if (!result) return "";
      const changes = changesOf(text, result), { sentences, unchanged } = result;
      const why = result.problem && problem(new ApiError(result.problem, ""));
      const outcome = changes.length ? sentence(count(changes.length, "change"))
        : endpoint && !sentences.length ? t`The model found no paragraph to rewrite: it needs whole sentences that are neither very short nor very long.`
          : t`Nothing to change: spelling, contractions and punctuation already match your posts.`;
      fill(below, why, quiet(outcome, endpoint && changes.length > 0 && [" ",
        t`Unchanged: ${count(unchanged)} of ${count(sentences.length, "sentence")}. Read each of the others: a small model may say what you did not mean.`]),
      choices(text, changes));
      return outcome;
    });
  }

  /** The result of a rewrite; null if it was stopped. */
  async function rewritten(body, signal) {
    for await (const { event, data } of stream("/api/rewrite", body, signal)) {
      if (event === "error") throw new ApiError(data.message, data.hint);
      if (event === "end") return data;
      fill(below, loading(t`Comparing with your posts`), data.text && quiet(data.text));
    }
    return null;
  }

  /** A list of changes, each of which can be undone alone; the text follows, and the list follows undo and redo. */
  function choices(source, changes) {
    const made = new Map(); // each text that was made, and the changes it lacks
    const apply = () => {
      const next = withChanges(source, changes);
      made.set(next.text, changes.filter((change) => change.isMine));
      draft.replace(next.text, next.machine);
    };
    follow = () => made.get(draft.text) && changes.forEach((change) => {
      change.isMine = made.get(draft.text).includes(change);
      fill(change.own, change.isMine ? t`Change it` : t`Keep mine`);
      change.own.setAttribute("aria-label", `${change.own.textContent}: ${change.before || t`nothing`}`);
      change.own.closest("li").classList.toggle("mine", change.isMine);
    });
    const choose = (change) => {
      if (!made.has(draft.text))
        return toast(t`You have changed the text since then. Put it in your voice again to choose.`);
      change.isMine = !change.isMine;
      const kept = changes.filter((each) => each.isMine && each.kind);
      post("/api/marks", { text: location.hash.slice(0, 100),
        kept: kept.map(({ kind, before, after }) => [kind, before, after]) }).catch(toast);
      return apply();
    };
    const list = el("ol.changes", changes.map((change) => {
      const { from, to, before, after, because } = change;
      const [ahead = ""] = /(?<!\S).{0,40}$/.exec(source.slice(0, from)) ?? []; // whole words of its line
      const [right = ""] = /^.{0,40}(?!\S)/.exec(source.slice(to)) ?? [];
      change.own = smallButton("", () => choose(change));
      return el("li", el("div", el("span", { dir: "auto" },
        ahead, el("del", before || " "), el("ins", after || " "), right),
        because && quiet(sentence(because))), change.own);
    }));
    if (changes.length || !draft.text.trim()) apply();
    return list;
  }

  function check() {
    return busy(t`Comparing with your posts`, async (signal) => {
      const pane = draft.text.trim() ? draft : notes, { text } = pane;
      const found = await post("/api/check", { text }, signal), places = placesIn(text);
      pane.mark(found.sentences.filter((each) => each.is_marked)
        .map(({ start: from, end: to }) => [places[from], places[to]]));
      fill(below, el("h2.visually-hidden", t`Comparing with your posts`), el("div.body", drawn(found.html)));
      return sentence(found.sentence);
    });
  }

  // ---- continuing the text -------------------------------------------------------------------------

  function begin(isAgain = false) {
    return busy(t`Writing`, async (signal) => {
      const seed = seedNow(), prompt = isAgain ? draft.text.slice(0, last.from) : draft.text, from = prompt.length;
      last = null;
      if (isAgain) draft.put(from, draft.text.length, "", signal);
      const bottom = () => draft.box.getBoundingClientRect().bottom, isFollowed = bottom() <= innerHeight + 4;
      const result = await complete(prompt, seed, signal, (piece) => {
        const at = draft.text.length;
        draft.put(at, at, at ? piece : piece.trimStart(), signal);
        if (isFollowed && bottom() > innerHeight) scrollTo({ top: scrollY + bottom() - innerHeight + 90 });
      });
      last = { from, to: draft.text.length, text: draft.text.slice(from) };
      fill(below, reportOf(result, seed));
      return result ? t`Written: ${count(wordsOf(last.text), "word")}` : t`Stopped`;
    });
  }

  /** The same beginning three times, side by side. */
  function variants() {
    const first = seedNow(), prompt = draft.text, place = el("div.variants.three");
    const shown = prompt.length > SHOWN ? `… ${prompt.slice(-SHOWN).replace(/^\S+\s/, "")}` : prompt;

    async function variant(i, signal) {
      const words = document.createTextNode(""), under = el("div"), wording = t`Variant ${i + 1}`;
      add(place, el("article.written", { "aria-label": wording }, el("h2", wording),
        el("div.text", { dir: "auto" }, prompt && el("span.prompt", shown), words), under));
      const result = await complete(prompt, first + i, signal, (piece) => words.appendData(piece));
      const take = smallButton(t`Take this one`, () => {
        const at = draft.text.length;
        draft.put(at, at, at ? words.data : words.data.trimStart(), {});
        fill(below);
      });
      fill(under, words.data && row(take), reportOf(result, first + i));
    }

    return busy(t`Writing three texts`, async (signal) => {
      fill(below, place);
      await Promise.all(Array.from({ length: VARIANTS }, (_, i) => variant(i, signal)));
      return t`Written`;
    });
  }

  /** Write a text; returns its tokens and seconds, null if it was stopped. */
  async function complete(prompt, seed, signal, onText) {
    const body = { model: set.model, prompt: ending(prompt), max_tokens: set.tokens, temperature: set.temperature,
      seed, guard: set.guard };
    // Chunks that come faster than the screen refreshes are added together.
    let waiting = "", frame = 0;
    const flush = () => {
      frame = 0;
      if (waiting) onText(waiting);
      waiting = "";
    };
    const result = {}, began = performance.now();
    try {
      for await (const text of completion(body, signal, result)) {
        waiting += text;
        frame ||= requestAnimationFrame(flush);
      }
    } catch (error) {
      if (!signal.aborted) throw error;
    } finally {
      cancelAnimationFrame(frame);
      flush();
    }
    return signal.aborted ? null : { ...result, seconds: (performance.now() - began) / 1000 };
  }

  const goOn = (event) => (event.target === notes.box ? !fromNotes.disabled && void writeNotes() : void begin());
  return { go: goOn, stop: writing.stop };
}

const wordingOf = (line) => (line.kept ? line.text : `[${line.note}]`);

const endpointLabel = ({ label, where }) => t`${label} in ${where}`;
const doubtOf = ({ kind, text, post: from }) => (kind === "missing" ? t`Perhaps missing from the text: ${text}`
  : kind === "added" ? t`Not in the notes: ${text}` : t`Copied from “${from}”: ${text}`);
const unitOf = (endpoint) => (endpoint ? "paragraph" : "line");

function outcomeOf({ endpoint, lines: written }) {
  const left = written.filter((line) => !line.kept).length;
  const doubtful = written.filter((line) => line.doubts?.length).length;
  if (left) return t`Left as notes, in brackets: ${count(left)} of ${count(written.length, unitOf(endpoint))}. The model could not keep their meaning.`;
  if (doubtful) return t`Doubtful: ${count(doubtful)} of ${count(written.length, "paragraph")}. Compare them with your notes.`;
  return endpoint ? t`Every paragraph is in the text.` : t`Every line is in the text.`;
}

const wordsOf = (text) => text.split(/\s+/).filter(Boolean).length;
const curious = (...parts) => folded(t`For the curious`, quiet(parts));

function reportOf(result, seed) {
  if (!result) return quiet(t`Stopped.`);
  const { tokens, seconds, finished } = result, speed = count(tokens / Math.max(seconds, 0.001));
  const time = seconds < 10 ? t`${fixed(seconds, 1)} s` : duration(seconds);
  return curious(t`${count(tokens, "token")} in ${time}, ${speed} per second; seed ${seed}.`,
    finished === "stop" && [" ", t`The model ended the text itself.`]);
}

/** Where each character begins, and the text ends: the server counts code points, not UTF-16 units. */
function placesIn(text) {
  let at = 0;
  return [...Array.from(text, (character) => (at += character.length) - character.length), text.length];
}

/** What a rewrite changes, as places in the draft: rewritten sentences, and single edits in the others. */
function changesOf(draft, { edits, sentences }) {
  const anew = [], places = placesIn(draft);
  let at = 0, written = "";
  for (const { start, before, after } of sentences) {
    const from = places[start];
    written += draft.slice(at, from);
    at = from + before.length;
    if (before !== after) {
      const begin = written.length;
      anew.push({ from, to: at, before, after, start: begin, end: begin + after.length, isAnew: true });
    }
    written += after;
  }
  written += draft.slice(at);
  const inWritten = placesIn(written), single = [];
  for (const { start, before, after, because, kind } of edits.toReversed()) { // from the end, so that earlier places hold
    const place = inWritten[start];
    const inside = anew.find((each) => each.start <= place && place < each.end);
    if (inside) {
      const at = place - inside.start;
      inside.after = inside.after.slice(0, at) + after + inside.after.slice(at + before.length);
    } else {
      const growth = ({ start, end, before: old }) => (end <= place ? end - start - old.length : 0);
      const from = place - anew.reduce((sum, each) => sum + growth(each), 0);
      single.push({ from, to: from + before.length, before, after, because, kind });
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
