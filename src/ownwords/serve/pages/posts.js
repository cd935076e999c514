// Posts: all of them in a table, a page at a time; decisions, the report, and a post to read.

import { address, go, setTitle } from "/app.js";
import { add, announce, button, day, dotted, drawn, el, empty, field, fill, folded, form, link,
  masthead, outward, p, pairs, passage, percent, problem, quiet, radios, row, searchBox, select, shareLine,
  smallButton, table, tabs, tag, title, toast } from "/components.js";
import { live } from "/jobs.js";
import { count, said, t } from "/language.js";
import { get, post } from "/server.js";

const TABS = { "": [t`All posts`, list], decisions: [t`Decisions`, decisions],
  files: [t`Files`, files], report: [t`Report`, report], post: ["", showPost] };

const postAddress = (id, query = {}) => address("posts", ["post", id], query);
const postLink = (id, wording, query) => link(postAddress(id, query), title(wording));

export async function show(element, where, left) {
  const [name] = where.path, tab = TABS[name] ? name : "", body = el("div.tab-body");
  const entries = Object.entries(TABS).filter(([, [wording]]) => wording)
    .map(([key, [wording]]) => [key, wording, address("posts", key ? [key] : [])]);
  entries.splice(1, 0, ["search", t`Search`, address("ask")]); // Ask shows the passages alone, too
  add(element, tabs(t`Posts`, entries, tab === "post" ? "" : tab), body);
  if (tab !== "post") setTitle(tab ? TABS[tab][0] : t`Posts`);
  try {
    await TABS[tab][1](body, where, left);
  } catch (error) {
    if (error.status !== 404 || tab === "post") throw error;
    fill(body, masthead({ heading: t`Posts` }), empty(t`No posts read yet`,
      t`Here you can see all your posts, search them, and decide which ones to train on.`,
      el("a.button.primary", { href: address("home") }, t`Choose your blog`)));
  }
}

// ---- all posts --------------------------------------------------------------------------------

const PAGE = 50;
const FILTERS = ["title", "year", "tag", "decision", "split", "kind", "flag"];
const SORTS = [["date", t`Date`], ["words", t`Your words`], ["share", t`Share of your words`],
  ["learned_words", t`Words learned from`], ["title", t`Title`]];
const DECISIONS = [["keep", t`Use all`], ["cap", t`Use part`], ["leave out", t`Leave out`]];
const SAID = { keep: t`All used`, cap: t`Part used`, "leave out": t`Left out`, train: t`Trained on`,
  validation: t`Decides when training stops`, test: t`Kept for the final test`, post: t`Posts`, page: t`Pages`,
  dominant: t`Outweighs the others`, unlike: t`Different style`, dump: t`Machine output`, duplicate: t`Shares text`,
  none: t`No date` };

/** The label of the button that reverses the order. */
function orderOf({ sort = "date", order }) {
  const isUp = order === "up";
  if (sort === "title") return isUp ? t`A to Z` : t`Z to A`;
  if (sort === "date") return isUp ? t`Oldest first` : t`Newest first`;
  return isUp ? t`Fewest first` : t`Most first`;
}

async function list(body, where, left) {
  const asked = Object.fromEntries(where.query);
  const rows = el("div.posts"), summary = quiet();
  const box = searchBox(left, (title) => ask({ title, first: "" }),
    { placeholder: t`Words in the title`, value: asked.title ?? "" });
  const sort = select(SORTS, asked.sort ?? "date",
    (value) => ask({ sort: value, order: value === "title" ? "up" : "", first: "" }), { id: "sort-by" });
  const order = smallButton("", () => ask({ order: asked.order === "up" ? "" : "up", first: "" }));
  const read = live(left, (signal) => {
    fill(order, orderOf(asked));
    return get("/api/corpus/posts", { ...asked, most: PAGE }, signal);
  }, (page) => {
    const { learned_words: learned, held_out_words: held, left_out_words: out } = page;
    const parts = [learned && t`${count(learned)} for training`, held && t`${count(held)} held out to judge the model`,
      out && t`${count(out)} left out`].filter(Boolean);
    fill(summary, t`${said(page.texts)}, ${count(page.own_words, "word")} of yours: ${parts.join(", ")}.`);
    fill(rows, decideAll(page), tableOf(page));
    announce(said(page.texts));
  });
  const draw = () => read().catch((error) => {
    if (!left.aborted) fill(rows, problem(error, draw));
  });
  const option = (name, label, known) => {
    const options = known.map(([key, n]) => [key, `${SAID[key] ?? key} (${count(n)})`]);
    const isKnown = !asked[name] || known.some(([key]) => key === asked[name]);
    if (!isKnown) options.push([asked[name], asked[name]]);
    const choices = select([["", t`All`], ...options], asked[name] ?? "", (value) => ask({ [name]: value, first: "" }));
    return (known.length > 1 || asked[name]) && field(label, choices);
  };
  const [facets] = await Promise.all([get("/api/corpus/facets", {}, left), draw()]);
  const filters = form("filters", () => {}, field(t`Title`, box), option("year", t`Year`, facets.years),
    option("tag", t`Tag`, facets.tags), option("decision", t`Decision`, facets.decisions),
    option("split", t`In training`, facets.splits), option("kind", t`Kind`, facets.kinds),
    option("flag", t`Stands out`, facets.flags));
  filters.setAttribute("role", "search");
  filters.setAttribute("aria-label", t`Which posts`);
  fill(body, masthead({ heading: t`Posts` }), filters, el("div.row.spread.sorted", summary,
    row(el("label", { for: sort.id }, t`Sort by`), sort, order)), rows);

  function ask(change) {
    Object.assign(asked, change);
    for (const name of Object.keys(asked)) if (!asked[name]) delete asked[name];
    go(address("posts", [], asked), { quietly: true, replace: true });
    return draw();
  }

  /** Buttons that decide about all posts that match the filters; nothing without a filter. */
  function decideAll({ total, texts }) {
    const matching = Object.fromEntries(FILTERS.filter((name) => asked[name]).map((name) => [name, asked[name]]));
    if (!total || !Object.keys(matching).length) return null;
    const decide = async (decision, wording) => {
      const { decided } = await post("/api/corpus/decide", { matching, decision });
      toast(t`${wording}: ${count(decided, "post")}, from the next training on. You can change it under “Decisions”.`);
    };
    return row(quiet(t`All ${said(texts)} that match these filters:`), DECISIONS.map(([decision, wording]) =>
      smallButton(wording, () => decide(decision, wording))));
  }

  function tableOf({ rows: all, first, total }) {
    if (!total) {
      return empty(t`No post matches`, t`Remove a filter.`, button(t`Show all`, () => go(address("posts", []))));
    }
    const most = Math.max(...all.map((item) => item.share)) || 1;
    const cells = (item) => {
      const isUsed = item.decision === "keep";
      return [el("div", el("span.named", postLink(item.id, item.title)),
        (!isUsed || item.flagged) && [" ", tag(said(item.decided), isUsed ? "" : "on")],
        item.flagged && el("span.quiet.line-below", said(item.flagged)),
        shareLine(item.share / most, item.decision === "leave out" ? "k4" : "k1")),
      item.day || "–", count(item.own_words), percent(item.share), count(item.learned_words), SAID[item.split] ?? "–"];
    };
    const heads = [t`Post`, t`Date`, t`Words`, t`Share`, t`Learned from`, t`In training`];
    return [table({ caption: t`Posts`, heads, class: "every", rows: all.map(cells) }), pager({ first, total }, rows, ask)];
  }
}

/** The buttons of a long list; `ask` shows another part of it in `shown`. */
function pager({ first, total }, shown, ask) {
  const turn = async (by) => {
    const next = first + by * PAGE;
    if (next < 0 || next >= total) return;
    await ask({ first: next || "" });
    shown.scrollIntoView({ block: "start" });
  };
  if (total <= PAGE) return null;
  return el("nav.pager.row.spread", { "aria-label": t`Pages` },
    button(t`Previous`, () => turn(-1), { disabled: !first }),
    el("span", t`${count(first + 1)} to ${count(Math.min(total, first + PAGE))} of ${count(total)}`),
    button(t`Next`, () => turn(1), { disabled: first + PAGE >= total }));
}

// ---- the files --------------------------------------------------------------------------------

const STATUSES = { read: t`Read`, "read in part": t`Read in part`, "left out": t`Left out` };

async function files(body, where, left) {
  const asked = Object.fromEntries(where.query), rows = el("div.posts");
  const box = searchBox(left, (words) => ask({ words, first: "" }),
    { placeholder: t`Words in the name or the reason`, value: asked.words ?? "" });
  const statuses = select([["", t`All`], ...Object.entries(STATUSES)], asked.status ?? "",
    (status) => ask({ status, first: "" }));
  const cells = (file) => [file.name, STATUSES[file.status], file.texts ? count(file.words) : "–",
    el("div", file.reasons.map(said).join("; "), el("span.quiet.line-below", said(file.advice)))];
  const read = live(left, (signal) => get("/api/corpus/files", asked, signal), (page) => {
    const heads = [t`File`, t`Status`, t`Your words`, t`Why, and what to do`];
    fill(rows, quiet(page.counts.map(([status, n]) => `${STATUSES[status]}: ${count(n)}`).join(", ")),
      page.total ? table({ caption: t`Files`, heads, class: "files", rows: page.rows.map(cells) })
        : empty(t`No file matches`, t`Remove a filter.`), pager(page, rows, ask));
    announce(count(page.total, "file"));
  }, ["blog"]);
  const filters = form("filters", () => {}, field(t`Search`, box), field(t`Status`, statuses));
  filters.setAttribute("role", "search");
  fill(body, masthead({ heading: t`Files` }), filters, rows);
  await read();

  function ask(change) {
    Object.assign(asked, change);
    go(address("posts", ["files"], asked), { quietly: true, replace: true });
    return read();
  }
}

// ---- decisions about posts that stand out -----------------------------------------------------

const MEANS = [[t`Use all`, t`train on all of it.`],
  [t`Use part`, t`train on its beginning, so that it does not outweigh the others.`],
  [t`Leave out`, t`do not train on it. You can still search and cite it.`]];

async function decisions(body, where, left) {
  const result = await get("/api/corpus/decisions", {}, left), waiting = el("div", { role: "status" });
  const drawPending = (now) => fill(waiting, now.pending > 0 && pending(now));
  drawPending(result);
  fill(body, masthead({ heading: t`Decisions`,
    follow: t`Choose which posts to train on. Nothing is deleted, and your choices are kept.` }), waiting,
  result.rows.length ? el("ul.deciding", result.rows.map((item) => el("li", el("div.decision-head",
    el("h2", postLink(item.id, item.title)),
    quiet(dotted(t`${count(item.own_words, "word")} of yours`, t`${percent(item.share)} of your words`,
      said(item.flagged)))),
  decider(item, { onChange: drawPending }))))
    : p(t`No post stands out: all are used in full. You can decide about any post on its own page.`),
  el("div.card.means", MEANS.map(([word, wording]) => p(el("strong", word), ": ", wording))));
}

/** Changes that take effect at the next training. */
function pending({ pending: changes, words_now: now, words_then: then }) {
  const words = now === then ? t`${count(now, "word")}, as before` : t`${count(then, "word")} instead of ${count(now)}`;
  return el("div.pending.card", p(el("strong", t`At the next training: ${count(changes, "change")}.`),
    " ", t`It will use ${words}.`),
    link(address("home"), t`Make a new model`));
}

/** The control for one post: what is chosen, by whom, and its effect. */
function decider(row, { alone = false, onChange = () => {} } = {}) {
  const node = el("div.decider");
  const draw = (post) => {
    const wording = post.pending ? post.then : post.now, effect = words(post.own_words, wording.training_words);
    const legend = el("legend.visually-hidden", t`Use ${post.title} for training?`);
    fill(node, radios("choice", legend, DECISIONS, wording.decision, decide), el("div.reason",
      post.pending ? p(tag(t`next training`, "on"), " ",
        t`${said(wording.word)}: ${effect}. Now: ${said(post.now.word)}, ${count(post.now.training_words, "word")}.`)
        : (alone || wording.decision === "cap") && p(`${effect}.`),
      wording.reason && quiet(said(wording.reason)),
      alone && post.pending && quiet(t`Saved. It takes effect at the next training.`),
      post.by === "you" && quiet(t`Your choice.`, " ",
        button(t`Back to the default`, () => decide("proposed"), { kind: "plain" }))));
  };
  let last = Promise.resolve(); // in order, however quickly keys are pressed
  const decide = (decision) => { last = last.then(() => write(decision)); };
  const write = async (decision) => {
    node.setAttribute("aria-busy", "true");
    try {
      const result = await post("/api/corpus/decide", { id: row.id, decision });
      const isFocused = node.contains(document.activeElement);
      row = result.changed;
      draw(row);
      if (isFocused) node.querySelector("input:checked")?.focus();
      const wording = row.pending ? row.then : row.now;
      announce(t`${row.title}: ${said(wording.word)}. ${words(row.own_words, wording.training_words)}, from the next training on.`);
      onChange(result);
    } catch (error) {
      draw(row); // as it was
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
  return learned >= own ? t`All ${count(own, "word")} can be used`
    : t`The first ${count(learned)} of ${count(own, "word")} can be used`;
}

// ---- the report -------------------------------------------------------------------------------

async function report(body, where, left) {
  const { html } = await get("/api/corpus", {}, left);
  const page = el("div.long", drawn(html)), heads = [...page.querySelectorAll(".part > h2")];
  const jump = (head) => {
    head.setAttribute("tabindex", "-1");
    head.scrollIntoView({ block: "start" });
    head.focus({ preventScroll: true });
  };
  const contents = folded(t`On this page`, el("ul", heads.map((head) =>
    el("li", button(head.textContent, () => jump(head), { kind: "plain" })))));
  contents.open = matchMedia("(min-width: 62rem)").matches;
  page.insertBefore(el("nav.contents", { "aria-label": t`On this page` }, contents), page.querySelector(".part"));
  fill(body, page);
}

// ---- one post: its text, whose words they are, and whether it is used for training --------------

const LABELS = { quoted: t`Quoted`, code: t`Code`, table: t`Table`, machine: t`Machine output` };

async function showPost(body, where, left) {
  const result = await get("/api/corpus/post", { id: where.path[1] ?? "" }, left);
  const sought = where.query.get("quote"), { post: line } = result;
  const text = el("article.reading", { "aria-label": t`The text`, dir: "auto" });
  const marks = drawText(text, result.segments, sought);
  setTitle(line.title);
  fill(body, masthead({ heading: title(line.title),
    kicker: el("span", dotted(day(line.day) || t`No date`, line.kind === "page" && t`a page`, line.author)) }),
  el("div.beside", el("div", sought && !marks.length
    && quiet(t`This passage is no longer in the post, which has changed.`), text), aside(result)));
  if (marks.length) {
    announce(t`${count(marks.length, "passage")} marked in this text`);
    requestAnimationFrame(() => marks[0].scrollIntoView({ block: "center" }));
  }
}

const USES = { train: t`The model learns from it`, validation: t`Used to decide when training stops; never learned from`,
  test: t`Kept for the final test; never learned from` };

function aside({ post: line, twins: found, segments, decision }) {
  const kinds = [...new Set(segments.map((item) => item.whose))].filter((item) => item !== "own");
  const tags = line.tags.map((item, i) => [i ? ", " : "", link(address("posts", [], { tag: item }), item)]);
  const twins = found.map((item) =>
    el("span.line-below", postLink(item.id, item.title), ` (${said(item.shared)})`));
  return el("aside.about", { "aria-label": t`About this text` },
    pairs("facts", [
      [t`Words`, line.words === line.own_words ? count(line.words)
        : t`${count(line.words)}, ${count(line.own_words)} of them yours`],
      [t`Share`, t`${percent(line.share)} of your words`],
      line.split && [t`In training`, USES[line.split] ?? line.split],
      tags.length && [t`Tags`, tags],
      /^https?:/i.test(line.url) && [t`On the web`, outward(line.url, line.url.replace(/^https?:\/\/|\/$/gi, ""))],
      twins.length && [t`Repeated in`, twins]]),
    kinds.length > 0 && quiet(t`${kinds.map((item) => LABELS[item]).join(", ")}: marked in the margin, and not used for training.`),
    el("h2", t`Use for training?`), decision.error ? problem(decision.error) : decider(decision, { alone: true }));
}

/** Draw the segments; returns the marks of the words searched for, in order. */
function drawText(holder, segments, sought) {
  const spans = located(segments.map((item) => item.text), sought),
    own = segments.filter((item) => item.whose === "own");
  const cut = own.some((item) => item.learned) && own.find((item) => !item.learned);
  segments.forEach((item, i) => {
    const node = drawSegment(item, withMarks(item.text, spans[i]));
    const label = item.whose === "code" && item.detail ? t`Code, ${item.detail}` : LABELS[item.whose];
    add(holder, item === cut && el("p.cut", t`The rest is not used for training`),
      item.whose === "own" ? node : el("div.foreign", { class: item.whose }, el("span.whose", tag(label)), node));
  });
  return [...holder.querySelectorAll("mark")];
}

function drawSegment({ kind, detail }, lines) {
  const paragraphs = () => lines.map((line) => p(line)), broken = lines.map((line, i) => [i ? "\n" : "", line]);
  if (kind === "heading") return el(`h${Math.min(6, Math.max(2, Number(detail) || 2))}`, lines.flat());
  if (kind === "quote") return el("blockquote", paragraphs(), detail && el("cite", detail));
  if (kind === "code" || kind === "log") return el("pre", { tabindex: "0" }, broken);
  if (kind === "table") return el("pre.cells", { tabindex: "0" }, broken);
  if (kind === "caption") return el("p.caption", lines.map((line, i) => [i > 0 && el("br"), line]));
  if (kind !== "list") return el("div.prose", paragraphs());
  return el("div.list", lines.map((line) => {
    const spaces = /^ */.exec(typeof line[0] === "string" ? line[0] : "")[0].length;
    return el("p.item", { vars: { depth: spaces / 2 } }, line);
  }));
}

/** A segment's lines, each a list of texts and marks. */
function withMarks(text, spans) {
  const lines = [[]];
  const put = (part, isMarked) => part.split("\n").forEach((wording, i) => {
    if (i) lines.push([]);
    if (wording) lines.at(-1).push(isMarked ? el("mark", wording) : wording);
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

/** A pattern that matches the words, however they are spaced. */
function patternOf(words) {
  const word = (each) => each.replace(/[.*+?^${}()|[\]\\/]/g, "\\$&");
  return new RegExp(words.trim().split(/\s+/).map(word).join("\\s+"), "gu");
}

/** The ranges of a text where each of the parts is, in this order. */
function rangesOf(text, parts) {
  let at = 0;
  return parts.flatMap((part) => {
    const pattern = patternOf(part);
    pattern.lastIndex = at;
    const match = pattern.exec(text);
    if (!match) return [];
    at = pattern.lastIndex;
    return [[match.index, at]];
  });
}

/** For each text the ranges [from, to] of the words. A passage may run over several texts; before each line of a
 *  quotation it has "> ", and then it is found paragraph by paragraph. */
function located(texts, sought) {
  const joined = texts.join("\n");
  let found = sought?.trim() ? rangesOf(joined, [sought]) : [], start = 0;
  if (sought && !found.length) {
    const paragraphs = sought.replace(/^> ?/gm, "").split(/\n+/).filter((part) => part.trim().length > 2);
    found = rangesOf(joined, paragraphs);
  }
  return texts.map((text) => {
    const spans = found.map(([from, to]) => [Math.max(from - start, 0), Math.min(to - start, text.length)]);
    start += text.length + 1;
    return spans.filter(([from, to]) => from < to);
  });
}
