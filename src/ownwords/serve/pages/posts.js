// Posts: all of them as rows, a page at a time; the search; and the ways to decisions and the report.

import { address, go, setTitle, shortcut } from "/app.js";
import { add, button, choice, contents, day, drawn, el, empty, field, fill, folded, icon, input, link, loading, masthead, outward, p, passage, percent,
  problem, quiet, row, select, shareLine, table, tabs, tag, title } from "/components.js";
import { count, said, t } from "/language.js";
import { announce, toast } from "/messages.js";
import { get, post } from "/server.js";

const TABS = { "": [t`All posts`, list], search: [t`Search`, search], decisions: [t`Decisions`, decisions], report: [t`The report`, report],
  post: ["", showPost] };

/** The address of a post. */
const postAddress = (id, query = {}) => address("posts", ["post", id], query);
const postLink = (id, wording, query) => link(postAddress(id, query), title(wording));

export async function show(element, where) {
  const tab = TABS[where.path[0] ?? ""] ? where.path[0] ?? "" : "";
  const body = el("div", { class: "tab-body" });
  const entries = Object.entries(TABS).filter(([, [wording]]) => wording).map(([name, [wording]]) => [name, wording, address("posts", name ? [name] : [])]);
  add(element, tabs(t`Posts`, entries, tab === "post" ? "" : tab), body);
  shortcut("/", t`Search your posts`, () => go(address("posts", ["search"])));
  try {
    return await TABS[tab][1](body, where);
  } catch (error) {
    if (error.status !== 404 || tab === "post") throw error;
    fill(body, nothingYet());
    return undefined;
  }
}

const nothingYet = () => [masthead({ heading: t`Posts` }), empty(t`No posts read yet`, t`Here you will find all your posts, search them, and decide which ones to train on.`, el("a", { class: "button primary", href: address("home") }, t`Choose your blog`))];

const PAGE = 50;
const FILTERS = ["title", "year", "tag", "decision", "split", "kind", "flag"];
const SORTS = [["date", t`Date`], ["words", t`Your words`], ["share", t`Share of your words`], ["learned_words", t`Words learned from`], ["title", t`Title`]];
const DECISIONS = [["keep", t`Use all`], ["cap", t`Use part`], ["leave out", t`Leave out`]];
const SAID = { keep: t`All used`, cap: t`Part used`, "leave out": t`Left out`, train: t`Trained on`, validation: t`Decides when to stop`, test: t`Kept for the test`, post: t`Posts`, page: t`Pages`,
  dominant: t`Outweighs the others`, unlike: t`Different style`, dump: t`Machine output`, duplicate: t`Shares text`, none: t`No date` };

async function list(body, where) {
  setTitle(t`Posts`);
  const asked = Object.fromEntries(where.query);
  const rows = el("div", { class: "posts" }, loading(t`Reading`));
  const posts = () => get("/api/corpus/posts", { ...asked, most: PAGE });
  const firstPage = posts();
  firstPage.catch(() => {}); // draw() shows it
  const result = await get("/api/corpus/facets");
  let waiting = null, newest = 0;

  const option = (name, label, pairs) => {
    const known = pairs.some(([key]) => key === asked[name]) || !asked[name] ? [] : [[asked[name], asked[name]]];
    const node = select([["", t`All`], ...pairs.map(([key, n]) => [key, `${SAID[key] ?? key} (${count(n)})`]), ...known], asked[name] ?? "", (value) => ask({ [name]: value, first: "" }));
    return pairs.length > 1 || asked[name] ? field(label, node) : null;
  };
  const box = input({ type: "search", placeholder: t`Words in the title`, value: asked.title ?? "", on: { input: () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => ask({ title: box.value, first: "" }), 200);
  } } });
  const sort = select(SORTS, asked.sort ?? "date", (value) => ask({ sort: value, order: value === "title" ? "up" : "", first: "" }));
  const summary = quiet();
  const order = button("", () => ask({ order: asked.order === "up" ? "" : "up", first: "" }), { kind: "small" });
  fill(body, masthead({ heading: t`Posts` }),
    el("form", { class: "filters", role: "search", "aria-label": t`Which posts`, on: { submit: (event) => event.preventDefault() } }, field(t`Title`, box), option("year", t`Year`, result.years), option("tag", t`Tag`, result.tags),
      option("decision", t`Decision`, result.decisions), option("split", t`In training`, result.splits), option("kind", t`Kind`, result.kinds), option("flag", t`Stood out`, result.flags)),
    el("div", { class: "row spread sorted" }, summary, el("div", { class: "row" }, el("label", { for: (sort.id = "sort-by") }, t`Sort by`), sort, order)), rows);

  async function ask(change) {
    Object.assign(asked, change);
    for (const name of Object.keys(asked)) if (!asked[name]) delete asked[name];
    go(address("posts", [], asked), { quietly: true, replace: true });
    await draw();
  }

  async function draw(coming = posts()) {
    const mine = (newest += 1);
    order.textContent = asked.sort === "title" ? (asked.order === "up" ? t`A to Z` : t`Z to A`) : asked.sort && asked.sort !== "date"
      ? (asked.order === "up" ? t`Fewest first` : t`Most first`) : asked.order === "up" ? t`Oldest first` : t`Newest first`;
    try {
      const page = await coming;
      if (mine !== newest) return;
      const { learned_words: learned, held_out_words: held, left_out_words: out } = page;
      const parts = [learned && t`${count(learned)} for training`, held && t`${count(held)} held back to judge the model`, out && t`${count(out)} left out`].filter(Boolean);
      fill(summary, t`${said(page.texts)}, ${count(page.own_words, "word")} of yours: ${parts.join(", ")}.`);
      fill(rows, decideAll(page), ...drawn(page));
      announce(said(page.texts));
    } catch (error) {
      if (mine === newest) fill(rows, problem(error, () => draw()));
    }
  }

  /** Buttons that decide about all posts that the filters leave; nothing without a filter. */
  function decideAll({ total, texts }) {
    const matching = Object.fromEntries(FILTERS.filter((name) => asked[name]).map((name) => [name, asked[name]]));
    if (!total || !Object.keys(matching).length) return null;
    const decide = async (decision, wording) => {
      try {
        const { decided } = await post("/api/corpus/decide", { matching, decision });
        toast(t`${wording}: ${count(decided, "post")}, from the next training on. You can change it under “Decisions”.`);
      } catch (error) {
        toast(error);
      }
    };
    return row(quiet(t`All ${said(texts)} shown by these filters:`), DECISIONS.map(([decision, wording]) => button(wording, () => decide(decision, wording), { kind: "small" })));
  }

  function drawn(page) {
    if (!page.total) return [empty(t`No post matches`, t`Remove a filter.`, button(t`Show all`, () => go(address("posts", []))))];
    const most = Math.max(...page.rows.map((item) => item.share)) || 1;
    const cells = (item) => [el("div", {}, el("span", { class: "named" }, postLink(item.id, item.title)), item.decision !== "keep" || item.flagged ? [" ", tag(said(item.decided), item.decision === "keep" ? "" : "on")] : null,
      item.flagged ? el("span", { class: "quiet line-below" }, said(item.flagged)) : null, shareLine(item.share / most, item.decision === "leave out" ? "k4" : "k1")),
      item.day || "–", count(item.own_words), percent(item.share), count(item.learned_words), SAID[item.split] ?? "–"];
    return [table({ caption: t`Posts`, heads: [t`Post`, t`Date`, t`Words`, t`Share`, t`Learned from`, t`In training`], class: "every", rows: page.rows.map(cells) }), pager(page)];
  }

  function turn(by, total) {
    const first = Number(asked.first ?? 0) + by * PAGE;
    if (first < 0 || first >= total) return;
    ask({ first: first || "" }).then(() => rows.scrollIntoView({ block: "start" }));
  }

  function pager({ first, total }) {
    shortcut("n", t`Next page`, () => turn(1, total));
    shortcut("p", t`Previous page`, () => turn(-1, total));
    if (total <= PAGE) return null;
    return el("nav", { class: "pager row spread", "aria-label": t`Pages` }, button(t`Previous`, () => turn(-1, total), { disabled: !first }),
      el("span", {}, t`${count(first + 1)} to ${count(Math.min(total, first + PAGE))} of ${count(total)}`), button(t`Next`, () => turn(1, total), { disabled: first + PAGE >= total }));
  }

  shortcut("f", t`Find a post by title`, () => box.focus());
  await draw(firstPage);
  return () => clearTimeout(waiting);
}

const WHOSE = { quoted: t`a quotation`, other: t`not your words` };
const FOUND_BY = { title: t`by title`, phrase: t`exact phrase`, text: t`by words`, vectors: t`by meaning` };

async function search(body, where) {
  setTitle(t`Search`);
  const list = el("div", { class: "found" });
  const box = input({ type: "search", placeholder: t`A word, a phrase, a question`, value: where.query.get("q") ?? "", "aria-label": t`Search your posts`, autofocus: true });
  let running = null;

  async function find() {
    running?.abort();
    const mine = (running = new AbortController());
    const question = box.value.trim();
    go(address("posts", ["search"], { q: question }), { quietly: true, replace: true });
    if (!question) return void fill(list, quiet(t`This searches all posts, also those that are not used for training. Drafts and deleted posts are not included.`));
    const slow = setTimeout(() => fill(list, loading(t`Searching`)), 250);
    try {
      const result = await get("/api/corpus/search", { q: question }, { signal: mine.signal });
      fill(list, ...hits(result));
      announce(result.passages.length ? count(result.passages.length, "passage") : t`Nothing found`);
    } catch (error) {
      if (error.status === 404) fill(body, nothingYet());
      else if (!mine.signal.aborted) fill(list, problem(error, find));
    } finally {
      clearTimeout(slow);
    }
  }

  fill(body, masthead({ heading: t`Search` }), el("form", { class: "searching row", role: "search", on: { submit: (event) => { event.preventDefault(); find(); } } }, box, button(t`Search`, null, { kind: "primary", type: "submit", icon: "search" })), list);
  shortcut("/", t`Go to the search box`, () => { box.focus(); box.select(); });
  await find();
  return () => running?.abort();
}

function hits({ passages, kind, notes }) {
  if (!passages.length) return [empty(t`Nothing found`, t`No post contains these words.`)];
  return [kind === "absent" ? p(el("strong", {}, t`This is probably not in your archive.`), " ", t`The nearest passages are:`) : null,
    ...notes.map((note) => quiet(said(note))),
    el("ol", { class: "hits" }, [...Map.groupBy(passages, (item) => item.document).values()].map(([first, ...others]) => el("li", {}, hit(first),
      others.length ? folded(t`${count(others.length)} more from this post`, others.map(hit)) : null)))];
}

const hit = (item) => el("div", {}, el("h2", {}, postLink(item.document, item.title, { quote: item.excerpt.slice(0, 400) })),
  quiet([day(item.date), item.heading, WHOSE[item.whose], item.found_by.map((by) => FOUND_BY[by] ?? by).join(", ")].filter(Boolean).join(" · ")), passage(item, matches(item.words)));

/** Marks the words asked for. */
function matches(words) {
  const sought = words.length ? new RegExp(`(?<![\\p{L}\\p{N}])(${words.join("|")})(?![\\p{L}\\p{N}])`, "u") : null;
  return (text) => (sought ? text.split(sought).map((part, i) => (i % 2 ? el("mark", {}, part) : part)) : text);
}

// ---- decisions about posts that stand out -----------------------------------------------------

const MEANS = [[t`Use all`, t`train on all of it.`], [t`Use part`, t`train on its beginning, so that it does not outweigh the others.`],
  [t`Leave out`, t`do not train on it. You can still search and cite it.`]];

async function decisions(body) {
  setTitle(t`Decisions`);
  fill(body, loading(t`Reading`));
  const list = el("div");
  fill(body, masthead({ heading: t`Decisions`, follow: t`Choose which posts to train on. Nothing is deleted, and your choices are kept.` }), list);
  const draw = (result) => fill(list, pending(result), result.rows.length
    ? el("ul", { class: "deciding" }, result.rows.map((row) => el("li", {}, head(row), decider(row, { onChange: (next) => fillPending(next) }))))
    : p(t`No post stands out: all are used in full. You can decide about any post on its own page.`),
    el("div", { class: "card means" }, MEANS.map(([word, wording]) => p(el("strong", {}, word), ": ", wording))));
  const fillPending = (next) => list.querySelector(".pending").replaceWith(pending(next));
  draw(await get("/api/corpus/decisions"));
}

function head(row) {
  return el("div", { class: "decision-head" }, el("h2", {}, postLink(row.id, row.title)),
    quiet([t`${count(row.own_words, "word")} of yours`, t`${percent(row.share)} of your words`, said(row.flagged)].filter(Boolean).join(" · ")));
}

/** Changes that wait for the next training. */
function pending({ pending: waiting, words_now: now, words_then: then }) {
  if (!waiting) return el("div", { class: "pending", role: "status" });
  const words = now === then ? t`${count(now, "word")}, as before` : t`${count(then, "word")} instead of ${count(now)}`;
  return el("div", { class: "pending card", role: "status" },
    p(el("strong", {}, t`At the next training: ${count(waiting, "change")}.`), " ", t`It uses ${words}.`),
    link(address("home"), t`Make a new model`));
}

/** The control for one post: what is chosen, by whom, and its effect. */
function decider(row, { alone = false, onChange = () => {} } = {}) {
  const node = el("div", { class: "decider" });
  const draw = (now) => {
    const wording = now.pending ? now.then : now.now;
    fill(node, choice(t`Use ${now.title} for training?`, DECISIONS, wording.decision, (decision) => decide(decision)),
      el("div", { class: "reason" },
        now.pending ? p(tag(t`next training`, "on"), " ", t`${said(wording.word)}: ${words(now.own_words, wording.training_words)}. Now: ${said(now.now.word)}, ${count(now.now.training_words, "word")}.`) : alone || wording.decision === "cap" ? p(`${words(now.own_words, wording.training_words)}.`) : null,
        wording.reason ? quiet(said(wording.reason)) : null,
        alone && now.pending ? quiet(t`Saved. It takes effect at the next training.`) : null,
        now.by === "you" ? el("p", { class: "quiet" }, t`Your choice.`, " ", button(t`Back to the default`, () => decide("proposed"), { kind: "plain" })) : null));
  };
  let last = Promise.resolve(); // in order, however quickly keys are pressed
  const decide = (decision) => { last = last.then(() => write(decision)); };
  const write = async (decision) => {
    const before = row;
    node.setAttribute("aria-busy", "true");
    try {
      const result = await post("/api/corpus/decide", { id: row.id, decision });
      row = result.changed;
      const focused = node.contains(document.activeElement);
      draw(row);
      if (focused) node.querySelector("input:checked")?.focus();
      const wording = row.pending ? row.then : row.now;
      announce(t`${row.title}: ${said(wording.word)}. ${words(row.own_words, wording.training_words)}, from the next training on.`);
      onChange(result);
    } catch (error) {
      draw((row = before));
      toast(error);
    } finally {
      node.removeAttribute("aria-busy");
    }
  };
  draw(row);
  return node;
}

function words(own, learned) {
  if (!learned) return t`Not used`;
  return learned >= own ? t`All ${count(own, "word")} can be used` : t`The first ${count(learned)} of ${count(own, "word")} can be used`;
}

// ---- the report -------------------------------------------------------------------------------

async function report(body) {
  setTitle(t`The report`);
  fill(body, loading(t`Loading the report`));
  fill(body, contents(drawn((await get("/api/corpus")).html)));
}

// ---- one post: its text, whose words they are, and whether it is used for training --------------

const LABELS = { quoted: "Quoted", code: t`Code`, table: t`Table`, machine: t`Machine output` };

async function showPost(body, where) {
  const id = where.path[1] ?? "";
  fill(body, loading(t`Opening`));
  const result = await get("/api/corpus/post", { id });
  const sought = where.query.get("quote");
  const line = result.post;
  setTitle(line.title);
  const text = el("article", { class: "reading", "aria-label": t`The text`, dir: "auto" });
  const marks = drawText(text, result.segments, sought);
  fill(body, around(result.around),
    masthead({ kicker: el("span", {}, [day(line.day) || t`No date`, line.kind === "page" ? t`a page` : "", line.author].filter(Boolean).join(" · ")), heading: title(line.title) }),
    el("div", { class: "beside" }, el("div", {}, sought && !marks.length ? quiet(t`This passage is no longer in the post, which has changed.`) : null, text), aside(result, id)));
  if (marks.length) {
    announce(t`${count(marks.length, "passage")} marked in this text`);
    requestAnimationFrame(() => marks[0].scrollIntoView({ block: "center" }));
  }
  const { earlier, later } = result.around;
  if (later) shortcut("n", t`Next post by date`, () => go(postAddress(later.id)));
  if (earlier) shortcut("p", t`Previous post by date`, () => go(postAddress(earlier.id)));
}

function around({ earlier, later }) {
  const way = (item, rel, wording, before) => item ? el("a", { href: postAddress(item.id), rel, title: item.title }, before ? icon("back") : null, el("span", {}, wording, " ", el("bdi", {}, item.title)), before ? null : el("span", { class: "forth" }, icon("back"))) : el("span");
  return el("nav", { class: "around", "aria-label": t`By date` }, way(earlier, "prev", t`Earlier:`, true), way(later, "next", t`Later:`, false));
}

function aside(result, id) {
  const { post: line, findings, segments } = result;
  const kinds = [...new Set(segments.map((item) => item.whose))].filter((item) => item !== "own");
  const fact = (label, ...wording) => el("div", {}, el("dt", {}, label), el("dd", {}, wording));
  return el("aside", { class: "about", "aria-label": t`About this text` },
    el("dl", { class: "facts" },
      fact(t`Words`, line.words === line.own_words ? count(line.words) : t`${count(line.words)}, ${count(line.own_words)} of them yours`),
      fact(t`Share`, t`${percent(line.share)} of your words`),
      line.split ? fact(t`In training`, { train: t`The model learns from it`, validation: t`Decides when the training stops; never learned from`, test: t`Kept for the final test; never learned from` }[line.split] ?? line.split) : null,
      line.tags.length ? fact(t`Tags`, line.tags.map((item, i) => [i ? ", " : "", link(address("posts", [], { tag: item }), item)])) : null,
      /^https?:/i.test(line.url) ? fact(t`On the web`, outward(line.url, line.url.replace(/^https?:\/\//i, "").replace(/\/$/, ""))) : null,
      findings.twins.length ? fact(t`Repeated in`, findings.twins.map((item) => el("span", { class: "line-below" }, postLink(item.id, item.title), ` (${said(item.shared)})`))) : null),
    kinds.length ? el("p", { class: "quiet" }, t`${kinds.map((item) => LABELS[item]).join(", ")}: marked in the margin, and not used for training.`) : null,
    el("h2", {}, t`Use for training?`), result.decision.error ? problem(result.decision.error) : decider(result.decision, { alone: true }));
}

/** Draw the segments; returns the marks of what was searched for, in order. */
function drawText(holder, segments, sought) {
  const spans = located(segments.map((item) => item.text), sought);
  let wasLearned = true;
  const capped = segments.some((item) => item.whose === "own" && item.learned);
  segments.forEach((item, i) => {
    if (capped && item.whose === "own" && !item.learned && wasLearned) {
      wasLearned = false;
      add(holder, el("p", { class: "cut" }, t`The rest is not used for training`));
    }
    const node = drawSegment(item, withMarks(item.text, spans[i]));
    add(holder, item.whose === "own" ? node : el("div", { class: `foreign ${item.whose}` }, el("span", { class: "whose" }, tag(item.whose === "code" && item.detail ? t`Code, ${item.detail}` : LABELS[item.whose])), node));
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
function withMarks(text, spans) {
  const lines = [[]];
  const put = (part, isMarked) => part.split("\n").forEach((wording, i) => {
    if (i) lines.push([]);
    if (wording) lines.at(-1).push(isMarked ? el("mark", {}, wording) : wording);
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
function located(texts, sought) {
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
