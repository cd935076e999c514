// One post: its text, whose words they are, and whether it is used for training.

import { address, go, setTitle, shortcut } from "/app.js";
import { announce, toast } from "/messages.js";
import { get } from "/server.js";
import { add, count, day, el, fill, icon, link, loading, masthead, outward, percent, problem, quiet, tag, title } from "/components.js";
import { postAddress, postLink, decider } from "/posts.js";

const LABELS = { quoted: "Quoted", code: "Code", table: "Table", machine: "A machine's output" };

export async function post(body, where) {
  const id = where.path[1] ?? "";
  fill(body, loading("Opening"));
  const result = await get("/api/corpus/post", { id });
  const asked = where.query.get("quote"), sought = asked || (await passageText(where.query.get("chunk")));
  const line = result.post;
  setTitle(line.title);
  const text = el("article", { class: "reading", "aria-label": "The text", dir: "auto" });
  const marks = drawText(text, result.segments, sought, asked ? "" : "passage");
  fill(body, around(result.around),
    masthead({ kicker: el("span", {}, [day(line.day) || "No date", line.kind === "page" ? "a page" : "", line.author].filter(Boolean).join(" · ")), heading: title(line.title) }),
    el("div", { class: "beside" }, el("div", {}, sought && !marks.length ? quiet("This passage is no longer in the post, which has changed.") : null, text), aside(result, id)));
  if (marks.length) {
    announce(`${count(marks.length, "marked passage")} in this text`);
    requestAnimationFrame(() => marks[0].scrollIntoView({ block: "center" }));
  }
  const { earlier, later } = result.around;
  if (later) shortcut("n", "Next post by date", () => go(postAddress(later.id)));
  if (earlier) shortcut("p", "Previous post by date", () => go(postAddress(earlier.id)));
}

async function passageText(chunk) {
  if (!chunk) return "";
  try {
    return (await get("/api/corpus/passage", { id: chunk })).text;
  } catch (error) {
    toast(error);
    return "";
  }
}

function around({ earlier, later }) {
  const way = (item, rel, wording, before) => item ? el("a", { href: postAddress(item.id), rel, title: item.title }, before ? icon("back") : null, el("span", {}, wording, el("bdi", {}, item.title)), before ? null : el("span", { class: "forth" }, icon("back"))) : el("span");
  return el("nav", { class: "around", "aria-label": "By date" }, way(earlier, "prev", "Earlier: ", true), way(later, "next", "Later: ", false));
}

function aside(result, id) {
  const { post: line, findings, segments } = result;
  const kinds = [...new Set(segments.map((item) => item.whose))].filter((item) => item !== "own");
  const fact = (label, ...wording) => el("div", {}, el("dt", {}, label), el("dd", {}, wording));
  return el("aside", { class: "about", "aria-label": "About this text" },
    el("dl", { class: "facts" },
      fact("Words", count(line.words), line.words !== line.own_words ? `, ${count(line.own_words)} of them yours` : ""),
      fact("Share", `${percent(line.share)} of your words`),
      line.split ? fact("Split", { train: "training", validation: "validation: decides when training stops", test: "test: never trained on" }[line.split] ?? line.split) : null,
      line.tags.length ? fact("Tags", line.tags.map((item, i) => [i ? ", " : "", link(address("posts", [], { tag: item }), item)])) : null,
      /^https?:/i.test(line.url) ? fact("On the web", outward(line.url, line.url.replace(/^https?:\/\//i, "").replace(/\/$/, ""))) : null,
      findings.twins.length ? fact("Repeated in", findings.twins.map((item) => el("span", { class: "line-below" }, postLink(item.id, item.title), ` (${item.shared})`))) : null,
      findings.unlike ? fact("Different style", findings.unlike) : null),
    kinds.length ? el("p", { class: "quiet" }, `${kinds.map((item) => LABELS[item]).join(", ")}: marked in the margin, and not used for training.`) : null,
    el("h2", {}, "Use for training?"), result.decision.error ? problem(result.decision.error) : decider(result.decision, { alone: true }));
}

/** Draw the segments; returns the marks of what was searched for, in order. */
function drawText(holder, segments, sought, look) {
  const spans = located(segments.map((item) => item.text), sought);
  let wasLearned = true;
  const capped = segments.some((item) => item.whose === "own" && item.learned);
  segments.forEach((item, i) => {
    if (capped && item.whose === "own" && !item.learned && wasLearned) {
      wasLearned = false;
      add(holder, el("p", { class: "cut" }, "The rest is not used for training"));
    }
    const node = drawSegment(item, withMarks(item.text, spans[i], look));
    add(holder, item.whose === "own" ? node : el("div", { class: `foreign ${item.whose}` }, el("span", { class: "whose" }, tag(item.whose === "code" && item.detail ? `Code, ${item.detail}` : LABELS[item.whose])), node));
  });
  return [...holder.querySelectorAll("mark")];
}

function drawSegment({ kind, detail }, lines) {
  const paragraphs = () => lines.map((line) => el("p", {}, line));
  if (kind === "heading") return el(`h${Math.min(6, Math.max(2, Number(detail) || 2))}`, {}, lines.flat());
  if (kind === "quote") return el("blockquote", {}, paragraphs(), detail ? el("cite", {}, detail) : null);
  if (kind === "code" || kind === "log") return el("pre", { tabindex: "0" }, lines.map((line, i) => [i ? "\n" : "", line]));
  if (kind === "caption") return el("p", { class: "caption" }, lines.map((line, i) => [i ? el("br") : "", line]));
  if (kind === "table") return el("pre", { class: "cells", tabindex: "0" }, lines.map((line, i) => [i ? "\n" : "", line]));
  if (kind === "list") return el("div", { class: "list" }, lines.map((line) => {
    const first = typeof line[0] === "string" ? line[0] : "";
    const depth = /^ */.exec(first)[0].length;
    return el("p", { class: "item", vars: { depth: String(depth / 2) } }, line);
  }));
  return el("div", { class: "prose" }, paragraphs());
}

/** A segment's lines, each a list of texts and marks. */
function withMarks(text, spans, look) {
  const lines = [[]];
  const put = (part, isMarked) => part.split("\n").forEach((wording, i) => {
    if (i) lines.push([]);
    if (wording) lines.at(-1).push(isMarked ? el("mark", { class: look || null }, wording) : wording);
  });
  let at = 0;
  for (const [from, to] of spans) {
    put(text.slice(at, from), false);
    put(text.slice(from, to), true);
    at = to;
  }
  put(text.slice(at), false);
  return lines.filter((line, i) => line.length || (i && i < lines.length - 1));
}

// ---- finding a passage ------------------------------------------------------------------------

const FOLDED = { "\u2018": "'", "\u2019": "'", "\u201a": "'", "\u201c": '"', "\u201d": '"', "\u201e": '"', "\u00ab": '"', "\u00bb": '"', "\u2013": "-", "\u2014": "-", "\u2026": "..." };

/** Text without differences of white space, quotation marks and dashes; `at[i]` is where its letter i came from. */
function foldedText(text) {
  let out = "";
  const at = [];
  for (let i = 0; i < text.length; i += 1) {
    const letter = /\s/.test(text[i]) ? " " : FOLDED[text[i]] ?? text[i].toLowerCase();
    if (letter === " " && (out === "" || out.endsWith(" "))) continue;
    for (const item of letter) {
      out += item;
      at.push(i);
    }
  }
  return { out, at };
}

/** Where the words are: for each segment its spans [from, to]. A passage may run over several
 *  segments, and what it holds of a quotation carries "> " before each line. */
export function located(texts, sought) {
  const spans = texts.map(() => []);
  if (!sought?.trim()) return spans;
  const whole = [], owner = [];
  let joined = "";
  texts.forEach((text, i) => {
    const { out, at } = foldedText(`${text}\n`);
    joined += out;
    for (const place of at) {
      whole.push(place);
      owner.push(i);
    }
  });
  const result = [];
  const seek = (wording, from = 0) => {
    const needle = foldedText(wording).out.trim();
    const start = needle ? joined.indexOf(needle, from) : -1;
    if (start >= 0) result.push([start, start + needle.length]);
    return start < 0 ? from : start + needle.length;
  };
  seek(sought);
  // Not in one piece: paragraph by paragraph, in order.
  if (!result.length) sought.replace(/^> ?/gm, "").split(/\n+/).filter((part) => part.trim().length > 2).reduce((from, part) => seek(part, from), 0);
  for (const [from, to] of result) {
    for (let i = from; i < to; ) {
      const segment = owner[i];
      let end = i;
      while (end < to && owner[end] === segment) end += 1;
      spans[segment].push([whole[i], Math.min(whole[end - 1] + 1, texts[segment].length)]);
      i = end;
    }
  }
  return spans;
}
