// Components of the page. Text is added as text, never as markup.

import { LOCALE, count, said, t, translate } from "/language.js";

const SVG = "http://www.w3.org/2000/svg";

/** An element. `options`: attributes by name; `class`; `on` {event: run}; `data`; `vars`
 *  (custom properties of style, set by script since a strict policy forbids inline style).
 *  Children: elements, texts, numbers, arrays of these; null and false are left out. */
export function el(name, options = {}, ...children) {
  return filled(document.createElement(name), options, children);
}

/** The same for what is drawn. */
export function svg(name, options = {}, ...children) {
  return filled(document.createElementNS(SVG, name), options, children);
}

function filled(node, options, children) {
  for (const [key, value] of Object.entries(options ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "class") node.setAttribute("class", Array.isArray(value) ? value.filter(Boolean).join(" ") : value);
    else if (key === "on") for (const [event, run] of Object.entries(value)) node.addEventListener(event, run);
    else if (key === "data") Object.assign(node.dataset, value);
    else if (key === "vars") for (const [name, wording] of Object.entries(value)) node.style.setProperty(`--${name}`, wording);
    else if (key === "value" || key === "checked") node[key] = value;
    else node.setAttribute(key, value === true ? "" : String(value));
  }
  return add(node, ...children);
}

/** Append children; gives the node back. */
export function add(node, ...children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false || child === "") continue;
    node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return node;
}

/** Empty a node and fill it anew. */
export function fill(node, ...children) {
  node.replaceChildren();
  return add(node, ...children);
}

// The only markup that the page takes: reports and scorecards, whose texts the server has escaped.
const policy = globalThis.trustedTypes?.createPolicy("drawn", { createHTML: (html) => html });

/** What the server has drawn, as nodes. */
export function drawn(html) {
  const template = document.createElement("template");
  template.innerHTML = policy ? policy.createHTML(html) : html;
  return translate(template.content);
}

// ---- text -------------------------------------------------------------------------------------

export const p = (...children) => el("p", {}, ...children);
export const quiet = (...children) => el("p", { class: "quiet" }, ...children);
export const title = (text) => el("bdi", {}, text || t`(untitled)`);
export const link = (href, ...children) => el("a", { href }, ...children);
/** A link to another site; only http(s) addresses become links. */
export function outward(address, ...children) {
  if (!/^https?:\/\//i.test(address ?? "")) return el("span", {}, ...children);
  return el("a", { href: address, target: "_blank", rel: "noopener noreferrer" }, ...children);
}
export const icon = (name) => svg("svg", { class: "icon", "aria-hidden": "true" }, svg("use", { href: `/icons.svg#${name}` }));
export const kbd = (keys) => el("kbd", {}, keys);

/** The header of a page: a line above, the heading, the main sentence. */
export function masthead({ kicker = "", heading, lede = "", follow = "" }) {
  return el("header", { class: "masthead" },
    kicker && el("p", { class: "kicker" }, kicker),
    el("h1", { tabindex: "-1" }, heading),
    lede && el("p", { class: "lede" }, lede),
    follow && el("p", { class: "follow" }, follow));
}

/** A part of a page: heading in the margin, the rest beside it. */
export function section(heading, ...body) {
  const id = uniqueId("section");
  return el("section", { class: "part", "aria-labelledby": id },
    el("h2", { id }, heading), el("div", { class: "body" }, ...body));
}

/** A long page with a list of its sections before them; on small screens it is folded. */
export function contents(...body) {
  const page = el("div", { class: "long" }, ...body), heads = [...page.querySelectorAll(".part > h2")];
  const list = folded(t`On this page`, el("ul", {}, heads.map((head) => el("li", {}, el("button", { type: "button", class: "plain", on: { click: () => {
    head.setAttribute("tabindex", "-1");
    head.scrollIntoView({ block: "start" });
    head.focus({ preventScroll: true });
  } } }, head.textContent)))));
  list.open = matchMedia("(min-width: 62rem)").matches;
  page.insertBefore(el("nav", { class: "contents", "aria-label": t`On this page` }, list), page.querySelector(".part"));
  return page;
}

export const card = (...children) => el("div", { class: "card" }, ...children);
export const row = (...children) => el("div", { class: "row" }, ...children);
export const statement = (...children) => el("p", { class: "statement" }, ...children);
/** A short word beside something. `tone`: "", "on" (accent), "good", "bad". */
export const tag = (text, tone = "") => el("span", { class: ["tag", tone] }, text);
export const folded = (summary, ...children) => el("details", {}, el("summary", {}, summary), ...children);
export const bullets = (items) => el("ul", { class: "notes" }, items.map((item) => el("li", {}, item)));

/** Large figures in a row: [{figure, label, note}]. */
export function totals(figures, say = String) {
  return el("dl", { class: "totals" }, figures.map(({ figure, label, note }) =>
    el("div", {}, el("dt", {}, say(label)), el("dd", {}, el("b", {}, say(figure)), note && el("small", {}, say(note))))));
}

/** Questions and their answers: [[question, answer]]. */
export const answers = (rows) => el("dl", { class: "answers" },
  rows.map(([left, right]) => el("div", {}, el("dt", {}, left), el("dd", {}, right))));

export function quote(text, { cite = "", class: look = "" } = {}) {
  const lines = Array.isArray(text) ? text : [text];
  return el("blockquote", { class: look, dir: "auto" }, cite && el("cite", {}, cite), lines.map((line) => p(line)));
}

/** A text of the archive: its paragraphs, quotations and fenced code. `mark` makes of a text its parts. */
export function prose(text, mark = (part) => part) {
  const paragraph = (part) => (/^(?:>.*(?:\n|$))+$/.test(part) ? el("blockquote", {}, p(mark(part.replace(/^> ?/gm, "")))) : p(mark(part)));
  const paragraphs = (part) => part.split(/\n{2,}/).map((one) => one.trimEnd()).filter((one) => one.trim()).map(paragraph);
  const all = text.split("\n"), nodes = [];
  const last = new Map(all.map((line, i) => [line.trimEnd(), i])); // where a fence is closed, if at all
  let begin = 0;
  for (let i = 0; i < all.length; i += 1) {
    const fence = /^`{3,}/.exec(all[i])?.[0];
    if (!(last.get(fence) > i)) continue;
    const code = [];
    nodes.push(paragraphs(all.slice(begin, i).join("\n")));
    for (i += 1; all[i].trimEnd() !== fence; i += 1) code.push(all[i]);
    nodes.push(el("pre", { tabindex: "0" }, mark(code.join("\n"))));
    begin = i + 1;
  }
  return [nodes, paragraphs(all.slice(begin).join("\n"))];
}

/** What a passage that was found says to the question; the rest is folded. */
export function passage(item, mark) {
  const text = item.text.trim(), excerpt = item.excerpt || text;
  return el("blockquote", { dir: "auto", class: item.whose === "own" ? "excerpt" : "excerpt theirs" }, prose(excerpt, mark), excerpt.length < text.length ? folded(t`Whole passage`, prose(text, mark)) : null);
}

/** `heads`: texts, or {text, numeric}; `rows`: arrays of texts or elements, the first names the row. */
export function table({ caption, heads, rows, class: look = "", shown = false }) {
  return el("div", { class: "scrolled" }, el("table", { class: look },
    el("caption", { class: shown ? "shown" : "" }, caption),
    el("thead", {}, el("tr", {}, heads.map((head) => el("th", { scope: "col" }, head)))),
    el("tbody", {}, rows.map((cells) => el("tr", {}, cells.map((cell, i) =>
      i ? el("td", { data: { head: heads[i] } }, cell) : el("th", { scope: "row" }, cell)))))));
}

// ---- states -----------------------------------------------------------------------------------

/** Shown where there is nothing yet: what it would be, and what to do. */
export function empty(heading, wording, ...actions) {
  return el("div", { class: "empty" }, el("h2", {}, heading), p(wording), actions.length ? el("div", { class: "row" }, ...actions) : null);
}

/** Something to copy: a command, an address, or a key, which is covered until it is wanted. */
export function command(text, { isSecret = false } = {}) {
  const code = el("code", { tabindex: "0" }, isSecret ? "•".repeat(12) : text);
  const copy = button(t`Copy`, async () => {
    try {
      await navigator.clipboard.writeText(text);
      copy.textContent = t`Copied`;
    } catch {
      code.textContent = text;
      getSelection().selectAllChildren(code);
      copy.textContent = t`Selected`;
    }
  }, { kind: "small" });
  const show = isSecret ? button(t`Show`, () => { code.textContent = text; show.remove(); }, { kind: "small" }) : null;
  return el("div", { class: "command" }, code, show, copy);
}

/** An error as one sentence, and what to do about it. */
export function problem(error, again = null) {
  return el("div", { class: "problem", role: "alert" },
    el("p", { class: "title" }, sentence(error?.message ?? error)),
    advice(error),
    again ? button(t`Try again`, again, { kind: "small" }) : null);
}

// Where the page does what a command of a hint does.
const INSTEAD = [[/ownwords (look|make|score)\b/, "#/home", t`Go to Home`], [/ownwords base\b/, "#/models", t`Go to Models`]];

/** What to do about an error: its hint, or a link where the hint names a command that the page has a button for. */
export function advice(error) {
  if (!error?.hint) return null;
  const [, href, label] = INSTEAD.find(([command]) => command.test(error.hint)) ?? [];
  return href ? quiet(link(href, label)) : quiet(withCode(sentence(error.hint)));
}

/** Text in which `code` is set as code. */
const withCode = (text) => String(text).split("`").map((part, i) => (i % 2 ? el("code", {}, part) : part));

export const loading = (wording = t`Loading`) => el("p", { class: "loading", role: "status" }, wording, el("span", { class: "dots", "aria-hidden": "true" }));

/** A thin bar; decoration, as its number stands beside it. */
export function shareLine(part, tone = "own") {
  const fillOf = el("i", { class: tone });
  fillOf.style.width = `${100 * Math.max(0, Math.min(1, part))}%`;
  return el("span", { class: "line", "aria-hidden": "true" }, fillOf);
}

/** A progress bar: `share` from 0 to 1, or null if unknown. */
export function bar(label, share = null) {
  const node = el("progress", { class: "bar", max: "1", "aria-label": label });
  if (share !== null) node.value = share;
  return node;
}

// ---- controls ---------------------------------------------------------------------------------

/** `kind`: "", "primary", "small", "plain", "danger". */
export function button(label, run, { kind = "", icon: name = "", label: spoken = "", type = "button", disabled = false } = {}) {
  return el("button", { type, class: kind, "aria-label": spoken || null, disabled, on: run ? { click: run } : {} },
    name ? icon(name) : null, label);
}

/** A control with its label above and a remark below. */
export function field(label, control, hint = "") {
  const id = control.id || (control.id = uniqueId("field"));
  const below = hint ? el("small", { id: `${id}-hint` }, hint) : null;
  if (below) control.setAttribute("aria-describedby", below.id);
  return el("div", { class: "field" }, el("label", { for: id }, label), control, below);
}

export const input = (options = {}) => el("input", { type: "text", autocomplete: "off", ...options });
export const textarea = (options = {}) => el("textarea", { rows: "3", ...options });

/** `choices`: [[value, label]]. */
export function select(choices, value, onChange) {
  const node = el("select", { on: onChange ? { change: () => onChange(node.value) } : {} },
    choices.map(([key, label]) => el("option", { value: key }, label)));
  node.value = value;
  return node;
}

export function checkbox(label, checked, onChange, hint = "") {
  const box = el("input", { type: "checkbox", checked, on: { change: () => onChange(box.checked) } });
  return el("label", { class: "check" }, box, el("span", {}, label, hint ? el("small", {}, hint) : null));
}

/** A slider with its value beside its label; `say` puts the value into words. */
export function slider({ label, min, max, step, value, say = String, hint = "", onChange = () => {} }) {
  const id = uniqueId("slider");
  const shown = el("output", { for: id }, say(Number(value)));
  const range = el("input", { type: "range", id, min, max, step, on: { input: moved } });
  range.value = value;
  const below = hint ? el("small", { id: `${id}-hint` }, hint) : null;
  if (below) range.setAttribute("aria-describedby", below.id);
  function drawn() {
    const now = Number(range.value);
    shown.textContent = say(now);
    range.setAttribute("aria-valuetext", say(now));
    range.style.setProperty("--filled", `${(100 * (now - min)) / (max - min || 1)}%`);
    return now;
  }
  function moved() { onChange(drawn()); }
  drawn();
  const node = el("div", { class: "field slider" }, el("div", { class: "slider-head" }, el("label", { for: id }, label), shown), range, below);
  return Object.assign(node, { get: () => Number(range.value), set: (to) => { range.value = to; drawn(); } });
}

/** Radio buttons side by side: [[value, label]]. */
export function choice(label, choices, value, onChange) {
  const name = uniqueId("choice");
  return el("fieldset", { class: "choice" }, el("legend", { class: "visually-hidden" }, label),
    choices.map(([key, wording]) => el("label", {},
      el("input", { type: "radio", name, value: key, checked: key === value, on: { change: () => onChange(key) } }), el("span", {}, wording))));
}

/** Tabs: [[key, label, href]]; each has its own address. */
export function tabs(label, entries, current) {
  return el("nav", { class: "tabs", "aria-label": label }, entries.map(([key, text, href]) =>
    el("a", { href, "aria-current": key === current ? "page" : null }, text)));
}

let idCount = 0;
/** An id that is unique on the page. */
export const uniqueId = (stem) => `${stem}-${(idCount += 1)}`;

// ---- numbers and dates in words ---------------------------------------------------------------

/** 54%; never "0%" for something, nor "100%" for less than everything. */
export function percent(share) {
  const [mark, figure] = share > 0 && share < 0.01 ? ["<", 0.01] : share > 0.99 && share < 1 ? [">", 0.99] : ["", share];
  return mark + figure.toLocaleString(LOCALE, { style: "percent" });
}
/** "2014-03-09" as "9 March 2014". */
export function day(iso) {
  const time = /^\d{4}-\d\d-\d\d/.test(iso ?? "") ? new Date(`${iso.slice(0, 10)}T12:00Z`) : NaN;
  return Number.isNaN(+time) ? iso ?? "" : time.toLocaleDateString(LOCALE, { day: "numeric", month: "long", year: "numeric", timeZone: "UTC" });
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
/** A time since 1970, as "14:03:22", or as "9 Mar, 14:03". */
export const clock = (time) => new Date(time * 1000).toLocaleTimeString(LOCALE, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
export const when = (time) => new Date(time * 1000).toLocaleString(LOCALE, { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });
/** 22.5 million; 3 figures. */
export const compact = (n) => (n >= 1e9 ? t`${figures(n / 1e9)} billion` : n >= 1e6 ? t`${figures(n / 1e6)} million` : count(n));
export const figures = (n, most = 3) => n.toLocaleString(LOCALE, { maximumSignificantDigits: most });
/** The non-empty lines of a text. */
export const lines = (text) => text.split(/\n+/).filter((line) => line.trim());
/** With a capital first and a full stop last. */
export function sentence(text) {
  const line = said(String(text ?? "").trim());
  const isName = /^\S*[./\\_]\S/.test(line); // a file's: its letters stay
  return line && (isName ? line[0] : line[0].toUpperCase()) + line.slice(1) + (/[.!?…]$/.test(line) ? "" : ".");
}
