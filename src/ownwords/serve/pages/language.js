// The page's language. English sentences are the keys of a catalogue such as languages/de.json: "Delete {1}?".
// The server writes English, too, because its sentences stay in files: they are matched with the catalogue when shown.

const html = document.documentElement;
const unstored = new Map(); // choices, where storage is forbidden
export const LANGUAGES = ["en", ...html.dataset.languages.split(" ").filter(Boolean)];
const wanted = [remembered("language"), ...navigator.languages.map((name) => name.split("-")[0])];
export const language = wanted.find((name) => LANGUAGES.includes(name)) ?? "en";
export const LOCALE = language === "en" ? "en-GB" : language; // for dates and numbers
const catalogue = language === "en" ? {}
  : await fetch(`/${language}.json`).then((answer) => answer.json()).catch(() => ({}));
html.lang = language;

/** Store a choice of the reader in this browser. */
export function remember(name, value) {
  try {
    localStorage.setItem(`ownwords.${name}`, value);
  } catch {
    unstored.set(name, value);
  }
}

/** Return a stored choice of the reader, or null. */
export function remembered(name) {
  try {
    return unstored.get(name) ?? localStorage.getItem(`ownwords.${name}`);
  } catch {
    return null;
  }
}

/** A sentence in the page's language: t`Delete ${name}?`. A list if one of the values is an element. */
export function t(strings, ...values) {
  const key = strings.reduce((text, part, i) => `${text}{${i}}${part}`);
  return placed(catalogue[key] ?? key, values);
}

function placed(sentence, values) {
  const parts = sentence.split(/\{(\d+)\}/).map((part, i) => (i % 2 ? values[part - 1] : part));
  return values.some((value) => typeof value === "object") ? parts : parts.join("");
}

function english(n, word) {
  if (n === 1 || word.endsWith("s")) return word;
  return /[^aeiou]y$/.test(word) ? `${word.slice(0, -1)}ies` : `${word}s`;
}

/** 12,345; with a noun "1 post", "12,345 posts". */
export function count(n, word = "") {
  const figure = Math.round(n).toLocaleString(LOCALE), forms = catalogue[`{1} ${word}`];
  if (!word) return figure;
  return forms ? placed(forms[new Intl.PluralRules(LOCALE).select(n)] ?? forms.other, [figure])
    : `${figure} ${english(n, word)}`;
}

/** A number with `digits` decimal places. */
export const fixed = (n, digits) =>
  n.toLocaleString(LOCALE, { minimumFractionDigits: digits, maximumFractionDigits: digits });

// ---- sentences of the server ------------------------------------------------------------------

const MAX_CHARS = 2000; // of a text that is translated
const nouns = new Map(), known = new Map();
const patterns = Object.entries(catalogue).flatMap(([key, value]) => {
  const noun = typeof value === "object" && key.slice(4);
  if (noun) for (const n of [1, 2]) nouns.set(english(n, noun), noun);
  const parts = noun ? [] : key.split(/\{\d+\}/);
  if (parts.length < 2) return [];
  const escaped = parts.map((part) => part.replace(/[.*+?^${}()|[\]\\/]/g, "\\$&"));
  const longest = parts.reduce((a, b) => (b.length > a.length ? b : a));
  const pattern = new RegExp(`^${escaped.join("(.*?)")}$`, "s");
  return [{ pattern, value, parts, longest, size: parts.join("").length }];
}).sort((a, b) => b.size - a.size);

/** Translate a text of the server, with parts such as "12 posts" in it; names stay as they are. */
export function said(text) {
  if (language === "en" || !text || text.length > MAX_CHARS) return text ?? "";
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
    const small = capital(middle, "toLowerCase"); // the catalogue may have it in the middle of a sentence
    const other = small === middle ? null : catalogue[small] ?? matched(small);
    if (typeof other === "string") return before + capital(other, "toUpperCase") + end;
  }
  return undefined;
}

/** A noun without its number: "posts". */
function named(text) {
  const noun = nouns.get(text), forms = noun && catalogue[`{1} ${noun}`];
  return forms && placed((text === noun && forms.one) || forms.other, [""]).trim();
}

const MONTHS = "January|February|March|April|May|June|July|August|September|October|November|December";
const DATED = new RegExp(`^(\\d{1,2} )?(${MONTHS}) \\d{4}$`);
const COUNTED = /^([^\p{L}\d]*)(\d{1,3}(?:,\d{3})+|\d+)(\.\d+)?(?: (\D+)|[\s%)]*)?$/u;

/** A date, or a number with or without a noun. */
function counted(text) {
  const date = DATED.exec(text);
  if (date) {
    const look = date[1] ? { dateStyle: "long" } : { month: "long", year: "numeric" };
    return new Date(`${date[1] ? "" : "1 "}${text} 12:00`).toLocaleDateString(LOCALE, look);
  }
  const [, sign, whole, digits = "", noun = ""] = COUNTED.exec(text) ?? [];
  if (whole === undefined || (noun && !nouns.has(noun))) return undefined;
  const n = Number(whole.replaceAll(",", "") + digits);
  if (noun) return sign + count(n, nouns.get(noun));
  const figure = whole.includes(",") || digits ? fixed(n, Math.max(0, digits.length - 1)) : whole;
  return text.replace(whole + digits, figure)
    .replace("%", (0.01).toLocaleString(LOCALE, { style: "percent" }).slice(1));
}

const ENDED = /(\p{L}{3}|\))[.!?] \p{Lu}|; /u; // the end of a sentence
const NAME = /^(?!“[^”]*”.)[^\p{L}\d]*\p{Lu}.*[^.]$/su; // what begins with a capital letter is usually a name
const unquoted = (text) => text.replace(/“[^”]*”/g, "");

/** The translation by a pattern such as "Delete {1}?"; the longest pattern that fits without doubt. */
function matched(text) {
  for (const { pattern, value, parts: around, size, longest } of patterns) {
    const values = (text.includes(longest) && pattern.exec(text))?.slice?.(1);
    if (!values) continue;
    const parts = values.map(place);
    const isWrong = (part, i) => !around[i].endsWith("“") && (isUnclear(unquoted(part), size, longest)
      || ENDED.test(unquoted(part)) || isEnglish(parts[i], part));
    if (!values.some(isWrong)) return placed(value, parts);
  }
  return undefined;
}

/** Translate what fills a place of a pattern: a number, a name, or a text of its own. */
function place(part) {
  const number = counted(part);
  if (number !== undefined) return number;
  return NAME.test(part) ? (part.includes(" ") && catalogue[part]) || part : said(part);
}

/** Whether the pattern may have matched a list: the part repeats its words, or has a comma where these are few. */
const isUnclear = (part, size, longest) => part.includes(longest) || (size < 10 && part.includes(", "));

/** Whether a part has words that stay English: then the whole sentence should. */
const isEnglish = (result, part) => result === part && /(?<![\p{L}])\p{Ll}{2,} \p{Ll}{2,}/u.test(unquoted(part));

const SEPARATORS = [[" · ", " · "], [/(?<=[.!?]) /, " "], ["; ", "; "], [/ (?=\()/, " "], [": ", ": "], [", ", ", "],
  [" and ", t` and `], [" or ", t` or `]];

/** Sentences, clauses and lists, part by part; undefined if none of the parts is known. */
function joined(text) {
  for (const [mark, between] of SEPARATORS) {
    const parts = text.split(mark), results = parts.length > 1 ? parts.map(said) : [];
    const isKnown = results.length && (parts.every((part) => /^“.*”$/.test(part))
      || results.some((result, i) => result !== parts[i]));
    if (isKnown && !results.some((result, i) => isEnglish(result, parts[i]))) return results.join(between);
  }
  return undefined;
}

/** Translate the texts of an element that the server has drawn; names, quotations and code stay as they are. */
export function translate(root) {
  if (language === "en") return root;
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_ELEMENT | NodeFilter.SHOW_TEXT, (node) =>
    (node.matches?.("bdi, q, blockquote p, code, pre, style") ? NodeFilter.FILTER_REJECT : NodeFilter.FILTER_ACCEPT));
  while (walker.nextNode()) {
    const node = walker.currentNode;
    if (node.nodeType === Node.TEXT_NODE) node.data = said(node.data);
    else for (const name of ["aria-label", "title", "placeholder"]) {
      if (node.hasAttribute(name)) node.setAttribute(name, said(node.getAttribute(name)));
    }
  }
  return root;
}
