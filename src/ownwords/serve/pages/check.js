// Check: how much a draft sounds like the author, which sentences do not, and what was written before.

import { address, shortcut } from "/app.js";
import { add, bullets, button, count, day, el, empty, fill, link, loading, masthead, percent, problem, quiet, row, section, statement, svg, textarea, title } from "/components.js";
import { announce } from "/messages.js";
import { get, post } from "/server.js";

const HEADING = "Does it sound like me?";

export async function show(element) {
  const blog = await get("/api/blog");
  if (!blog.is_read) {
    return void add(element, masthead({ heading: HEADING }), empty("No blog yet", "Once your blog has been read, a draft can be compared with it. No model is needed for that.", el("a", { class: "button primary", href: address("home") }, "Choose your blog")));
  }
  const draft = textarea({ rows: "12", dir: "auto", "aria-label": "Your draft", placeholder: "Paste a draft here." });
  const result = el("div");
  const send = button("Check", null, { kind: "primary", icon: "check", type: "submit" });
  let turn = 0;
  const form = el("form", { class: "checking", on: { submit: (event) => { event.preventDefault(); check(); } } }, draft, row(send));
  draft.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    check();
  });
  add(element, masthead({ heading: HEADING, lede: "Which words follow which in a draft, compared with your posts and with other authors of today. It stays on this machine." }), form, result);
  shortcut("/", "Go to the draft", () => draft.focus());

  async function check() {
    const text = draft.value, now = ++turn;
    if (!text.trim()) return draft.focus();
    fill(result, loading("Comparing with your posts"));
    try {
      const found = await post("/api/check", { text });
      if (now !== turn) return;
      fill(result, drawn(found, text));
      announce(found.sentence);
    } catch (error) {
      if (now === turn) fill(result, problem(error, check));
    }
  }
}

function drawn(found, text) {
  const marked = found.sentences.filter((each) => each.is_marked);
  return [
    statement(found.sentence),
    strip([["This draft", { low: 0, high: found.yours, middle: found.yours }, "own"], ["Passages of yours", found.own, ""], ["Other authors today", found.others, ""]]),
    quiet(`How likely it is yours. Bars of passages span the middle eight of ten. ${percent(found.above)} of your own passages score lower than the draft.`),
    section("Sentence by sentence", quiet(marked.length ? `${count(marked.length)} of ${count(found.sentences.length, "sentence")} sound unlike you. About one in ten of your own would be marked as well.` : "No sentence sounds unlike you."),
      reading(found.sentences, text),
      marked.length ? el("ol", { class: "notes" }, marked.map((each) => el("li", {}, el("q", { dir: "auto" }, each.text), bullets(each.because)))) : null),
    found.written_before.length ? section("You wrote this before", el("ul", { class: "notes" }, found.written_before.map((each) => el("li", {}, el("q", { dir: "auto" }, each.text), " in ", link(address("posts", ["post", each.post]), title(each.title)), each.day ? `, ${day(each.day)}` : "")))) : null,
  ];
}

/** The draft with its marks. The sentences follow one another in it, so each is found after the last. */
function reading(sentences, text) {
  const parts = [];
  let at = 0;
  for (const each of sentences) {
    const start = text.indexOf(each.text, at);
    parts.push(text.slice(at, start), each.is_marked ? el("mark", {}, each.text) : each.text);
    at = start + each.text.length;
  }
  return el("div", { class: "checked", dir: "auto" }, parts, text.slice(at));
}

function strip(rows) {
  return el("dl", { class: "strip" }, rows.map(([label, range, tone]) => el("div", {},
    el("dt", {}, label),
    el("dd", {}, svg("svg", { viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true", class: tone },
      svg("rect", { class: "track", width: "100", height: "8" }),
      svg("rect", { class: "range", x: `${100 * range.low}`, width: `${Math.max(1, 100 * (range.high - range.low))}`, height: "8" })), percent(range.middle)))));
}
