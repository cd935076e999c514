// The page's language. Its sentences are written in English, and are the keys of a catalogue, such as languages/de.json: "Delete {1}?".
// What the server writes is English, too, since it stays in files: it is found in the catalogue by its pattern when it is shown.

import { remembered } from "/memory.js";

const html = document.documentElement;
export const LANGUAGES = ["en", ...html.dataset.languages.split(" ").filter(Boolean)];
export const language = [remembered("language"), ...navigator.languages.map((name) => name.split("-")[0])].find((name) => LANGUAGES.includes(name)) ?? "en";
export const LOCALE = language === "en" ? "en-GB" : language; // for dates and numbers
const catalogue = language === "en" ? {} : await fetch(`/${language}.json`).then((answer) => answer.json()).catch(() => ({}));
html.lang = language;

/** A sentence in the page's language: t`Delete ${name}?`. Gives a list where an element stands in it. */
export function t(strings, ...values) {
  const key = strings.reduce((text, part, i) => `${text}{${i}}${part}`);
  return placed(catalogue[key] ?? key, values);
}

function placed(sentence, values) {
  const parts = sentence.split(/\{(\d+)\}/).map((part, i) => (i % 2 ? values[part - 1] : part));
  return values.some((value) => typeof value === "object") ? parts : parts.join("");
}

const english = (n, word) => (n === 1 || word.endsWith("s") ? word : /[^aeiou]y$/.test(word) ? `${word.slice(0, -1)}ies` : `${word}s`);
/** 12,345; with a noun "1 post", "12,345 posts". */
export function count(n, word = "") {
  const figure = Math.round(n).toLocaleString(LOCALE), forms = catalogue[`{1} ${word}`];
  if (!word) return figure;
  return forms ? placed(forms[new Intl.PluralRules(LOCALE).select(n)] ?? forms.other, [figure]) : `${figure} ${english(n, word)}`;
}
/** A number with that many digits after the point. */
export const fixed = (n, digits) => n.toLocaleString(LOCALE, { minimumFractionDigits: digits, maximumFractionDigits: digits });

// ---- what the server has written --------------------------------------------------------------

const nouns = new Map(), known = new Map(), LONGEST = 2000; // characters of a sentence that is looked for
const patterns = Object.entries(catalogue).flatMap(([key, value]) => {
  const noun = typeof value === "object" && key.slice(4);
  if (noun) for (const n of [1, 2]) nouns.set(english(n, noun), noun);
  const parts = noun ? [] : key.split(/\{\d+\}/), literal = parts.join("");
  if (parts.length < 2) return [];
  const pattern = new RegExp(`^${parts.map((part) => part.replace(/[.*+?^${}()|[\]\\/]/g, "\\$&")).join("(.*?)")}$`, "s");
  return [{ pattern, value, parts, size: literal.length, telling: parts.reduce((a, b) => (b.length > a.length ? b : a)) }];
}).sort((a, b) => b.size - a.size);

/** The translation of a text of the server; its own parts, such as "12 posts", are translated with it, names are not. */
export function said(text) {
  if (language === "en" || !text || text.length > LONGEST) return text ?? "";
  if (!known.has(text)) known.set(text, catalogue[text] ?? translated(text) ?? joined(text) ?? text);
  return known.get(text);
}

/** The translation of a whole sentence, with or without the marks around it; undefined if there is none. */
function translated(text) {
  const [, before, body, marks, after] = /^(\s*)(.*?)([.:;…]*)(\s*)$/s.exec(text);
  const capital = (word, change) => word.charAt(0)[change]() + word.slice(1);
  for (const [middle, end] of [[body + marks, after], [body, marks + after]]) {
    const result = catalogue[middle] ?? named(middle) ?? counted(middle) ?? matched(middle);
    if (typeof result === "string") return before + result + end;
    const small = capital(middle, "toLowerCase"), other = small === middle ? null : catalogue[small] ?? matched(small); // it begins a sentence
    if (typeof other === "string") return before + capital(other, "toUpperCase") + end;
  }
  return undefined;
}

/** A noun whose number stands elsewhere: "posts". */
function named(text) {
  const noun = nouns.get(text), forms = noun && catalogue[`{1} ${noun}`];
  return forms && placed((text === noun && forms.one) || forms.other, [""]).trim();
}

const DATED = /^(\d{1,2} )?(January|February|March|April|May|June|July|August|September|October|November|December) \d{4}$/;

function counted(text) {
  const date = DATED.exec(text);
  if (date) return new Date(`${date[1] ? "" : "1 "}${text} 12:00`).toLocaleDateString(LOCALE, date[1] ? { dateStyle: "long" } : { month: "long", year: "numeric" });
  const [, sign, whole, digits = "", noun = ""] = /^([^\p{L}\d]*)(\d{1,3}(?:,\d{3})+|\d+)(\.\d+)?(?: (\D+)|[\s%)]*)?$/u.exec(text) ?? [];
  if (whole === undefined || (noun && !nouns.has(noun))) return undefined;
  const n = Number(whole.replaceAll(",", "") + digits);
  if (noun) return sign + count(n, nouns.get(noun));
  return text.replace(whole + digits, whole.includes(",") || digits ? fixed(n, Math.max(0, digits.length - 1)) : whole).replace("%", (0.01).toLocaleString(LOCALE, { style: "percent" }).slice(1));
}

const ENDED = /(\p{L}{3}|\))[.!?] \p{Lu}|; /u; // a part does not reach beyond the end of a sentence
const NAME = /^(?!“[^”]*”.)[^\p{L}\d]*\p{Lu}.*[^.]$/su; // a part that begins with a capital letter is a name, as a rule
const unquoted = (text) => text.replace(/“[^”]*”/g, "");

function matched(text) {
  for (const { pattern, value, parts: around, size, telling } of patterns) {
    const values = (text.includes(telling) && pattern.exec(text))?.slice?.(1);
    const parts = values?.map((part) => counted(part) ?? (NAME.test(part) ? (part.includes(" ") && catalogue[part]) || part : said(part)));
    if (values && !values.some((part, i) => !around[i].endsWith("“") && (isUnclear(unquoted(part), size, telling) || ENDED.test(unquoted(part)) || isLeft(parts[i], part)))) return placed(value, parts);
  }
  return undefined;
}

/** Whether a pattern may have met a list: its own words stand in a part, too, or it has few and a part has a comma. */
const isUnclear = (part, size, telling) => part.includes(telling) || (size < 10 && part.includes(", "));

/** Whether a part that has words, and is neither name nor quotation, stays English: better the whole sentence does, too. */
const isLeft = (result, part) => result === part && /(?<![\p{L}])\p{Ll}{2,} \p{Ll}{2,}/u.test(unquoted(part));

/** Sentences, clauses and lists, part by part; undefined if none of the parts is known. */
function joined(text) {
  for (const [mark, between] of [[" · ", " · "], [/(?<=[.!?]) /, " "], ["; ", "; "], [/ (?=\()/, " "], [": ", ": "], [", ", ", "], [" and ", t` and `], [" or ", t` or `]]) {
    const parts = text.split(mark), results = parts.length > 1 ? parts.map(said) : [];
    const isKnown = results.length && (parts.every((part) => /^“.*”$/.test(part)) || results.some((result, i) => result !== parts[i]));
    if (isKnown && !results.some((result, i) => isLeft(result, parts[i]))) return results.join(between);
  }
  return undefined;
}

/** Translate what stands in an element that was not made by this page's code; names, quotations and code stay as they are. */
export function translate(root) {
  if (language === "en") return root;
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_ELEMENT | NodeFilter.SHOW_TEXT, (node) => (node.matches?.("bdi, q, blockquote p, code, pre, style") ? NodeFilter.FILTER_REJECT : NodeFilter.FILTER_ACCEPT));
  while (walker.nextNode()) {
    const node = walker.currentNode;
    if (node.nodeType === Node.TEXT_NODE) node.data = said(node.data);
    else for (const name of ["aria-label", "title", "placeholder"]) if (node.hasAttribute(name)) node.setAttribute(name, said(node.getAttribute(name)));
  }
  return root;
}
