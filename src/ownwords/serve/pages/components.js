// Components of the page. Text is added as text, never as markup.

import { count, LOCALE, said, t, translate } from "/language.js";

// ---- elements ---------------------------------------------------------------------------------

/** Make an element: el("a.button.small", { href, onclick: run }, …children). Options are attributes, and may be omitted;
 *  `class` is added to the classes of the name, `vars` are custom properties (the policy forbids inline style).
 *  Children are elements, texts, numbers and arrays of these; null and false are left out. */
export function el(name, ...parts) {
  const [tag, ...classes] = name.split(".");
  return made(document.createElement(tag), classes, parts);
}

/** The same for SVG. */
function svg(name, ...parts) {
  return made(document.createElementNS("http://www.w3.org/2000/svg", name), [], parts);
}

function made(node, classes, [first, ...rest]) {
  const hasOptions = first?.constructor === Object;
  for (const [key, value] of Object.entries(hasOptions ? first : {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "class") classes.push(value);
    else if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key === "vars") for (const [own, to] of Object.entries(value)) node.style.setProperty(`--${own}`, to);
    else if (key === "value" || key === "checked") node[key] = value;
    else node.setAttribute(key, value === true ? "" : String(value));
  }
  if (classes.length) node.setAttribute("class", classes.join(" "));
  return add(node, hasOptions ? null : first, ...rest);
}

/** Append children; returns the node. */
export function add(node, ...children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false || child === "") continue;
    node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return node;
}

/** Replace the children of a node; returns the node. */
export function fill(node, ...children) {
  node.replaceChildren();
  return add(node, ...children);
}

const states = new WeakMap();

/** Fill a node with `draw()` if `state` has changed; otherwise the reader keeps the place and the focus. */
export function redraw(node, state, draw) {
  const wording = JSON.stringify(state);
  if (states.get(node) === wording) return;
  const isFocused = node.contains(document.activeElement);
  states.set(node, wording);
  fill(node, draw());
  if (isFocused) node.querySelector("h1, input:checked, button, a")?.focus({ preventScroll: true });
}

// The only markup that the page accepts: reports and scorecards, whose texts the server has escaped.
const policy = globalThis.trustedTypes?.createPolicy("drawn", { createHTML: (html) => html });

/** What the server has drawn, as nodes. */
export function drawn(html) {
  const template = document.createElement("template");
  template.innerHTML = policy ? policy.createHTML(html) : html;
  return translate(template.content);
}

let idCount = 0;
/** Return an id that is unique on the page. */
export const uniqueId = (stem) => `${stem}-${(idCount += 1)}`;

// ---- text -------------------------------------------------------------------------------------

export const p = (...children) => el("p", ...children);
export const quiet = (...children) => el("p.quiet", ...children);
export const title = (text) => el("bdi", text || t`(untitled)`);
export const link = (href, ...children) => el("a", { href }, ...children);
export const icon = (name) => svg("svg", { class: "icon", "aria-hidden": "true" },
  svg("use", { href: `/icons.svg#${name}` }));
export const row = (...children) => el("div.row", ...children);
/** A short word beside something. `tone`: "", "on" (accent), "good", "bad". */
export const tag = (text, tone = "") => el("span.tag", { class: tone }, text);
export const folded = (summary, ...children) => el("details", el("summary", summary), ...children);
export const bullets = (items) => el("ul.notes", items.map((item) => el("li", item)));
/** "a · b", without the parts that are empty. */
export const dotted = (...parts) => parts.filter(Boolean).join(" · ");

/** A link to another site; only http(s) addresses become links. */
export function outward(address, ...children) {
  if (!/^https?:\/\//i.test(address ?? "")) return el("span", ...children);
  return el("a", { href: address, target: "_blank", rel: "noopener noreferrer" }, ...children);
}

/** The header of a page: a small line above, the heading, the main sentence. */
export function masthead({ kicker = "", heading, lede = "", follow = "" }) {
  return el("header.masthead", kicker && el("p.kicker", kicker), el("h1", { tabindex: "-1" }, heading),
    lede && el("p.lede", lede), follow && el("p.follow", follow));
}

/** A part of a page: heading in the margin, the rest beside it. */
export function section(heading, ...body) {
  const id = uniqueId("section");
  return el("section.part", { "aria-labelledby": id }, el("h2", { id }, heading), el("div.body", ...body));
}

/** Labels and values, [[label, value]]: `look` is "answers" or "facts"; null is left out. */
export const pairs = (look, rows) =>
  el("dl", { class: look }, rows.filter(Boolean).map(([label, value]) => el("div", el("dt", label), el("dd", value))));

/** Large figures side by side: [{figure, label, note}]. */
export const totals = (figures, say = String) => el("dl.totals", figures.map(({ figure, label, note }) =>
  el("div", el("dt", say(label)), el("dd", el("b", say(figure)), note && el("small", say(note))))));

/** A list of things, each described by `describe(item)`: {name, mark, facts, more, actions}; nothing without items. */
export const rows = (items, describe) => items.length > 0 && el("ul.rows", items.map((item) => {
  const { name, mark, facts, more, actions } = describe(item);
  return el("li", el("div", el("strong", name), mark && [" ", mark], quiet(facts), more), actions && row(actions));
}));

export const quote = (text, { cite = "", look = "" } = {}) =>
  el("blockquote", { class: look, dir: "auto" }, cite && el("cite", cite), [text].flat().map((line) => p(line)));

/** A text of the archive: its paragraphs, quotations and fenced code. `mark` makes parts of a text. */
export function prose(text, mark = (part) => part) {
  const paragraph = (part) => (/^(?:>.*(?:\n|$))+$/.test(part) ? el("blockquote", p(mark(part.replace(/^> ?/gm, ""))))
    : p(mark(part)));
  const paragraphs = (some) => some.join("\n").split(/\n{2,}/).map((part) => part.trimEnd())
    .filter((part) => part.trim()).map(paragraph);
  const all = text.split("\n"), nodes = [];
  const last = new Map(all.map((line, i) => [line.trimEnd(), i])); // where a fence is closed, if at all
  let begin = 0;
  for (let i = 0; i < all.length; i += 1) {
    const fence = /^`{3,}/.exec(all[i])?.[0];
    if (!(last.get(fence) > i)) continue;
    const code = [];
    nodes.push(paragraphs(all.slice(begin, i)));
    for (i += 1; all[i].trimEnd() !== fence; i += 1) code.push(all[i]);
    nodes.push(el("pre", { tabindex: "0" }, mark(code.join("\n"))));
    begin = i + 1;
  }
  return [nodes, paragraphs(all.slice(begin))];
}

/** The excerpt of a passage that answers the question; the whole passage is folded. */
export function passage(item, mark) {
  const text = item.text.trim(), excerpt = item.excerpt || text;
  return el("blockquote.excerpt", { dir: "auto", class: item.whose === "own" ? "" : "theirs" }, prose(excerpt, mark),
    excerpt.length < text.length && folded(t`Whole passage`, prose(text, mark)));
}

/** `rows`: arrays of texts or elements, the first of which names the row. */
export function table({ caption, heads, rows: all, class: look = "" }) {
  const cell = (content, i) => (i ? el("td", { "data-head": heads[i] }, content) : el("th", { scope: "row" }, content));
  return el("div.scrolled", el("table", { class: look }, el("caption", caption),
    el("thead", el("tr", heads.map((head) => el("th", { scope: "col" }, head)))),
    el("tbody", all.map((cells) => el("tr", cells.map(cell))))));
}

// ---- states -----------------------------------------------------------------------------------

/** Shown where there is nothing yet: what it would be, and what to do. */
export const empty = (heading, wording, ...actions) =>
  el("div.empty", el("h2", heading), p(wording), actions.length > 0 && row(...actions));

export const loading = (wording = t`Loading`) =>
  el("p.loading", { role: "status" }, wording, el("span.dots", { "aria-hidden": "true" }));

/** A thin bar beside its number. */
export const shareLine = (part, tone = "own") =>
  el("span.line", { "aria-hidden": "true" }, el("i", { class: tone, vars: { share: `${100 * part}%` } }));

/** A progress bar: `share` from 0 to 1, or null if unknown. */
export const bar = (label, share = null) => el("progress.bar", { max: "1", "aria-label": label, value: share });

// ---- errors and messages: an error of the server is a sentence and a hint ----------------------

/** Shown in place of what could not be loaded. */
export function problem(error, again = null) {
  return el("div.problem", { role: "alert" }, el("p.title", sentence(error.message)), advice(error),
    again && smallButton(t`Try again`, again));
}

// Where the page does what a command of a hint does.
const INSTEAD = [[/ownwords (look|make|score)\b/, "#/home", t`Go to Home`],
  [/ownwords base\b/, "#/models", t`Go to Models`]];

/** What to do about an error: its hint, or a link if the page has a button for the command in the hint. */
function advice({ hint }) {
  if (!hint) return null;
  const [, href, label] = INSTEAD.find(([command]) => command.test(hint)) ?? [];
  if (href) return quiet(link(href, label));
  return quiet(sentence(hint).split("`").map((part, i) => (i % 2 ? el("code", part) : part)));
}

/** Show a message in place of the last one. It disappears by itself; an error stays until closed or `dismiss`ed. */
export function toast(wording) {
  const isError = wording instanceof Error, text = isError ? sentence(wording.message) : wording;
  const node = el("div.toast", { class: isError ? "bad" : "", role: isError ? "alert" : "status" },
    el("div", p(text), isError && advice(wording)),
    button("", () => node.remove(), { kind: "icon", icon: "close", label: t`Close this message` }));
  fill(document.getElementById("toasts"), node);
  if (!isError) setTimeout(() => node.remove(), Math.max(5000, 70 * text.length));
}

/** Remove the message: only an error (".bad"), or any. */
export const dismiss = (only = ".toast") => document.querySelector(`#toasts > ${only}`)?.remove();

/** Tell screen readers something, without showing it. */
export function announce(text) {
  const announcer = document.getElementById("announcer");
  announcer.textContent = "";
  requestAnimationFrame(() => { announcer.textContent = text; });
}

/** A dialog; resolves to `value()` if it is accepted, else to null. */
export function ask(heading, body, { yes = t`Yes`, no = t`Cancel`, danger = false, value = () => true } = {}) {
  const { promise, resolve } = Promise.withResolvers(), id = uniqueId("dialog");
  let answer = null;
  const form = el("form", { method: "dialog", onsubmit: () => { answer = value(); } }, el("h2", { id }, heading),
    el("div.dialog-body", body), el("div.row.end", no && button(no, () => box.close()),
      button(yes, null, { kind: danger ? "danger" : "primary", type: "submit" })));
  const box = el("dialog", { "aria-labelledby": id, onclose: () => { box.remove(); resolve(answer); } }, form);
  document.body.append(box);
  box.showModal();
  return promise;
}

/** Ask before something is deleted or ended. */
export const confirm = (heading, wording, yes = t`Delete`) => ask(heading, quiet(wording), { yes, danger: true });

/** Copy a text, and `say` so; if the browser forbids it, select it in `shown`. */
export async function copy(text, shown = null, say = toast) {
  try {
    await navigator.clipboard.writeText(text);
    say(t`Copied`);
  } catch {
    if (shown) getSelection().selectAllChildren(fill(shown, text));
    say(t`The browser does not allow copying: select the text and copy it yourself`);
  }
}

/** Something to copy: a command, an address, or a key, which is hidden at first. */
export function command(text, { isSecret = false } = {}) {
  const code = el("code", { tabindex: "0" }, isSecret ? "•".repeat(12) : text);
  const show = isSecret && smallButton(t`Show`, () => { fill(code, text); show.remove(); });
  // A dialog covers any toast.
  const say = (wording) => (copying.closest("dialog") ? fill(copying, wording) : toast(wording));
  const copying = smallButton(t`Copy`, () => copy(text, code, say));
  return el("div.command", code, show, copying);
}

// ---- controls ---------------------------------------------------------------------------------

const TYPING_MS = 200;

/** `kind`: "", "primary", "small", "plain", "danger"; `label`: for screen readers. */
export const button = (wording, run, { kind = "", icon: name = "", label = null, type = "button", disabled } = {}) =>
  el("button", { type, class: kind, "aria-label": label, disabled, onclick: run }, name && icon(name), wording);

export const smallButton = (wording, run, label = null) => button(wording, run, { kind: "small", label });

/** A form whose submission calls `run`. */
export const form = (look, run, ...parts) =>
  el("form", { class: look, onsubmit: (event) => { event.preventDefault(); return run(); } }, parts);

/** A control with its label above and a remark below. */
export function field(label, control, hint = "") {
  const id = control.id || (control.id = uniqueId("field"));
  if (hint) control.setAttribute("aria-describedby", `${id}-hint`);
  return el("div.field", el("label", { for: id }, label), control, hint && el("small", { id: `${id}-hint` }, hint));
}

export const input = (options = {}) => el("input", { type: "text", autocomplete: "off", ...options });

/** A box to search in: `search(words)` is called when the typing pauses. */
export function searchBox(left, search, options) {
  let waiting = 0;
  const box = input({ type: "search", ...options, oninput() {
    clearTimeout(waiting);
    waiting = setTimeout(() => search(box.value), TYPING_MS);
  } });
  left.addEventListener("abort", () => clearTimeout(waiting));
  return box;
}

/** `choices`: [[value, label]]. */
export function select(choices, value, onChange = () => {}, options = {}) {
  const node = el("select", { ...options, onchange: () => onChange(node.value) },
    choices.map(([key, label]) => el("option", { value: key }, label)));
  node.value = value;
  return node;
}

export function checkbox(label, checked, onChange, hint = "") {
  const box = el("input", { type: "checkbox", checked, onchange: () => onChange(box.checked) });
  return el("label.check", box, el("span", label, hint && el("small", hint)));
}

/** Radio buttons as cards or side by side (`look`: "cards" or "choice"): [[value, …wording]]. */
export function radios(look, legend, choices, value, onChange) {
  const name = uniqueId("choice");
  return el("fieldset", { class: look }, legend, choices.map(([key, ...wording]) => el("label",
    el("input", { type: "radio", name, value: key, checked: key === value, onchange: () => onChange(key) }),
    el("span", wording))));
}

/** Tabs: [[key, label, href]]; each has its own address. */
export const tabs = (label, entries, current) => el("nav.tabs", { "aria-label": label },
  entries.map(([key, text, href]) => el("a", { href, "aria-current": key === current ? "page" : null }, text)));

// ---- numbers and dates in words ---------------------------------------------------------------

/** 54%; "0%" only for nothing, "100%" only for everything. */
export function percent(share) {
  const mark = share > 0 && share < 0.01 ? "<" : share > 0.99 && share < 1 ? ">" : "";
  const figure = mark ? Math.min(Math.max(share, 0.01), 0.99) : share;
  return mark + figure.toLocaleString(LOCALE, { style: "percent" });
}

/** "2014-03-09" as "9 March 2014"; anything else unchanged. */
export function day(iso) {
  const time = /^\d{4}-\d\d-\d\d/.test(iso ?? "") ? new Date(`${iso.slice(0, 10)}T12:00Z`) : NaN;
  if (Number.isNaN(+time)) return iso ?? "";
  return time.toLocaleDateString(LOCALE, { day: "numeric", month: "long", year: "numeric", timeZone: "UTC" });
}

/** 812 bytes, 171 kB, 4.1 MB, 149 MB. */
export function size(bytes) {
  if (bytes < 1e3) return count(bytes, "byte");
  if (bytes < 1e6) return t`${count(bytes / 1e3)} kB`;
  return bytes < 1e9 ? t`${figures(bytes / 1e6)} MB` : t`${figures(bytes / 1e9)} GB`;
}

/** 8 s, 4 min, 1 h 20 min. */
export function duration(seconds) {
  if (seconds < 90) return t`${Math.max(0, Math.round(seconds))} s`;
  const minutes = Math.round(seconds / 60);
  return minutes < 90 ? t`${minutes} min` : t`${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

const SHORT = { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" };
/** A time in seconds since 1970 as "9 Mar, 14:03". */
export const when = (time) => new Date(time * 1000).toLocaleString(LOCALE, SHORT);
/** 22.5 million; 3 significant figures. */
export function compact(n) {
  if (n >= 0.9995e9) return t`${figures(n / 1e9)} billion`; // 1 billion, not 1,000 million
  return n >= 0.9995e6 ? t`${figures(n / 1e6)} million` : count(n);
}
export const figures = (n) => n.toLocaleString(LOCALE, { maximumSignificantDigits: 3 });
/** The non-empty lines of a text. */
export const lines = (text) => text.split(/\n+/).filter((line) => line.trim());

/** A text with a capital letter first and a full stop last. */
export function sentence(text) {
  const line = said(String(text ?? "").trim());
  const isName = /^\S*[./\\_]\S/.test(line); // of a file: keeps its case
  return line && (isName ? line[0] : line[0].toUpperCase()) + line.slice(1) + (/[.!?…]$/.test(line) ? "" : ".");
}
