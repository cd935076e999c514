// The editor of Write: whose words are whose, grey text that ends the sentence, and undo.

import { add, announce, button, el, field, fill } from "/components.js";
import { t } from "/language.js";
import { completion } from "/server.js";

const PAUSE_MS = 100, BURST_MS = 1000, MAX_STEPS = 1000;
const MAX_PROMPT = 20_000, STEP = MAX_PROMPT / 2; // characters; more than any of our models reads
const MAX_SUFFIX = 400, MAX_SUGGESTED = 40; // characters, tokens

/** The end of a text, as it is sent. Its start seldom moves, so that the model has most of it in its cache. */
export const ending = (text) => text.slice(Math.ceil(Math.max(0, text.length - MAX_PROMPT) / STEP) * STEP);

/** `start`: {text, machine}: ranges [from, to] of what a model wrote; `model()`: the one that suggests, or "". */
export function editor(left, start, { label: name, hint, placeholder, model = () => "", onChange }) {
  const box = el("textarea.manuscript", { rows: "8", dir: "auto", spellcheck: "true", placeholder });
  const shades = el("div.shades", { dir: "auto", "aria-hidden": "true" });
  const take = button(t`Accept the grey text (Tab)`, () => accept(), { kind: "small", disabled: true });
  const undo = button(t`Undo`, () => travel(past, future)), redo = button(t`Redo`, () => travel(future, past));
  const node = field(name, box, hint), paper = el("div.paper");
  const past = [], future = [];
  let now = { machine: [], ...start, text: lined(start.text), marks: [], at: 0 }, last = { group: null, time: 0 };
  let grey = "", asked = null, pause = 0, caret = -1;
  box.replaceWith(paper);
  add(paper, shades, box);
  left.addEventListener("abort", drop);
  // The text keeps the focus, and a phone its keyboard.
  take.addEventListener("pointerdown", (event) => event.preventDefault());

  function show(state) {
    now = state;
    if (box.value !== now.text) {
      box.value = now.text;
      box.setSelectionRange(now.at, now.at);
    }
    label();
    draw();
  }

  function label() {
    undo.disabled = box.readOnly || !past.length;
    redo.disabled = box.readOnly || !future.length;
  }

  /** Change the text. Changes of one group are undone together, typing in bursts. */
  function edit(state, group) {
    const time = performance.now();
    if (group !== last.group || (group === "typing" && time - last.time > BURST_MS)) past.push(now);
    if (past.length > MAX_STEPS) past.shift();
    last = { group, time };
    future.length = 0;
    show(state);
    onChange();
  }

  function travel(from, to) {
    if (!from.length || box.readOnly) return;
    drop();
    to.push(now);
    last.group = null;
    show(from.pop());
    onChange();
  }

  /** Replace a stretch of the text with words of a model; `made` are the ranges that are its own, if not all. */
  function put(from, to, written, group, made = [[0, Infinity]]) {
    const words = lined(written), at = from + words.length;
    const added = made.map(([a, b]) => [from + a, from + Math.min(b, words.length)]);
    const machine = joined([...replaced(now.machine, from, to, words.length), ...added]);
    edit({ text: now.text.slice(0, from) + words + now.text.slice(to), machine, marks: now.marks, at }, group);
  }

  /** Replace the whole text, and the ranges of a model's words. */
  function replace(text, machine) {
    edit({ text: lined(text), machine, marks: [], at: text.length }, {});
  }

  /** Mark some ranges, until they are changed. */
  function mark(marks) {
    now = { ...now, marks };
    draw();
  }

  function typed(event) {
    const { value, selectionEnd: at } = box;
    const same = now.text.endsWith(value.slice(at)) ? value.length - at : 0; // characters at the end
    const most = Math.min(value.length, now.text.length) - same, to = now.text.length - same;
    let from = 0;
    while (from < most && value[from] === now.text[from]) from += 1;
    const words = value.slice(from, value.length - same), kept = (ranges) => replaced(ranges, from, to, words.length);
    const isGrey = grey && from === to && words && grey.startsWith(words);
    if (isGrey) [grey, caret] = [grey.slice(words.length), at];
    edit({ text: value, machine: kept(now.machine), marks: kept(now.marks), at }, "typing");
    if (!(isGrey && grey) && !event.isComposing) suggest();
  }

  /** Draw the text in two shades, its marks, and the grey text at the caret. The box in front is transparent. */
  function draw() {
    const { text, machine, marks } = now, within = (ranges, at) => ranges.some(([from, to]) => from <= at && at < to);
    const places = [0, ...machine.flat(), ...marks.flat(), ...(grey ? [caret] : []), text.length];
    const cuts = [...new Set(places)].sort((a, b) => a - b);
    fill(shades, cuts.map((from, i) => {
      const words = text.slice(from, cuts[i + 1] ?? from), look = within(machine, from) && "machine";
      const part = within(marks, from) ? el("mark", { class: look }, words)
        : look ? el("span", { class: look }, words) : words;
      return [grey && from === caret && el("span.grey", grey), part];
    }), "\u200b"); // gives the last line a height, too
    take.disabled = !grey;
  }

  // ---- the grey text ----------------------------------------------------------------------------

  function drop() {
    clearTimeout(pause);
    asked?.abort();
    if (!grey) return;
    grey = "";
    draw();
  }

  function suggest() {
    drop();
    caret = box.selectionEnd;
    const isOne = caret === box.selectionStart && document.activeElement === box && !box.readOnly;
    const isLineEnd = /^[^\S\n]*(\n|$)/.test(now.text.slice(caret));
    if (isOne && model() && now.text.trim() && isLineEnd) pause = setTimeout(ask, PAUSE_MS);
  }

  async function ask() {
    const mine = (asked = new AbortController());
    const body = { model: model(), prompt: ending(now.text.slice(0, caret)), sentence: true, temperature: 0,
      suffix: now.text.slice(caret, caret + MAX_SUFFIX), max_tokens: MAX_SUGGESTED };
    try {
      for await (const text of completion(body, mine.signal)) {
        if (mine.signal.aborted) return;
        grey += text;
        draw();
      }
      if (grey) announce(t`Tab adds: ${grey}`);
    } catch {
      // A missing suggestion is no failure. Real trouble is reported when the text is saved.
    }
  }

  function accept() {
    const words = grey;
    drop();
    put(caret, caret, words, {});
    suggest();
  }

  box.addEventListener("input", typed);
  box.addEventListener("blur", drop);
  for (const moved of ["focus", "keyup", "pointerup"]) {
    box.addEventListener(moved, () => (box.selectionEnd !== caret || box.selectionStart !== caret) && suggest());
  }
  box.addEventListener("beforeinput", (event) => {
    // The browser's own undo knows nothing of the model's words.
    if (event.inputType.startsWith("history")) event.preventDefault();
    if (event.inputType === "historyUndo") travel(past, future);
    if (event.inputType === "historyRedo") travel(future, past);
  });
  box.addEventListener("keydown", (event) => {
    const key = event.key.toLowerCase(), isCommand = (event.ctrlKey || event.metaKey) && !event.altKey;
    const isPlain = !isCommand && !event.altKey && !event.shiftKey;
    if (isPlain && grey && key === "tab") accept();
    else if (isPlain && grey && key === "escape") drop();
    else if (isCommand && (key === "y" || (key === "z" && event.shiftKey))) travel(future, past);
    else if (isCommand && key === "z") travel(past, future);
    else return;
    event.preventDefault();
  });
  show(now);
  return {
    node, box, take, undo, redo, put, replace, mark,
    get text() { return now.text; },
    get machine() { return now.machine; },
    freeze(isFrozen) {
      if (isFrozen) drop();
      box.readOnly = isFrozen;
      label();
    },
  };
}

/** The ranges of a text's words that a source does not have in any form; each word of the source counts once. */
export function added(source, text) {
  const left = new Map(), ranges = [];
  for (const word of source.match(/\S+/g) ?? []) left.set(stem(word), (left.get(stem(word)) ?? 0) + 1);
  let follows = false;
  for (const { 0: word, index: from } of text.matchAll(/\S+/g)) {
    const known = left.get(stem(word)) ?? 0, to = from + word.length;
    left.set(stem(word), known - 1);
    if (known <= 0) ranges.push([follows ? ranges.pop()[0] : from, to]);
    follows = known <= 0;
  }
  return ranges;
}

/** What the forms of an English word have in common: count of "counts", "counted" and "counting". */
const stem = (word) => word.toLowerCase().replace(/^[^\p{L}\p{N}]+|[^\p{L}\p{N}]+$/gu, "").replace(/(?<=..)['’]?s$/, "")
  .replace(/(?<=...)(ing|ed|e)$/, "").replace(/(.)\1$/, "$1").replace(/y$/, "i");

/** Normalise line breaks as a text box does. */
const lined = (text) => text.replace(/\r\n?/g, "\n");

/** The ranges after [from, to] was replaced by `length` other characters. */
function replaced(ranges, from, to, length) {
  const shift = length - (to - from);
  return ranges.flatMap(([a, b]) => [[a, Math.min(b, from)], [Math.max(a, to) + shift, b + shift]])
    .filter(([a, b]) => a < b);
}

/** The ranges in order; those that touch are one. */
function joined(ranges) {
  const result = [];
  for (const [a, b] of ranges.sort(([a], [b]) => a - b)) {
    if (result.length && result.at(-1)[1] === a) result.push([result.pop()[0], b]);
    else result.push([a, b]);
  }
  return result;
}
