// Posts: all of them as rows, a page at a time; the search; and the ways to decisions and the report.

import { address, go, setTitle, shortcut } from "/app.js";
import { shareLine } from "/charts.js";
import { add, button, choice, contents, count, day, drawn, el, empty, field, fill, input, link, loading, masthead, p, passage, percent, problem, quiet,
  select, table, tabs, tag, title } from "/components.js";
import { announce, toast } from "/messages.js";
import { get, load, post } from "/server.js";

const TABS = { "": ["All posts", list], search: ["Search", search], decisions: ["Decisions", decisions], report: ["The report", report],
  post: ["", async (...where) => (await load("/post.js")).post(...where)] };

/** The address of a post. */
export const postAddress = (id, query = {}) => address("posts", ["post", id], query);
export const postLink = (id, wording, query) => link(postAddress(id, query), title(wording));

export async function show(element, where) {
  const tab = TABS[where.path[0] ?? ""] ? where.path[0] ?? "" : "";
  const body = el("div", { class: "tab-body" });
  const entries = Object.entries(TABS).filter(([, [wording]]) => wording).map(([name, [wording]]) => [name, wording, address("posts", name ? [name] : [])]);
  add(element, tabs("Posts", entries, tab === "post" ? "" : tab), body);
  shortcut("/", "Search your posts", () => go(address("posts", ["search"])));
  try {
    return await TABS[tab][1](body, where);
  } catch (error) {
    if (error.status !== 404 || tab === "post") throw error;
    fill(body, nothingYet());
    return undefined;
  }
}

const nothingYet = () => [masthead({ heading: "Posts" }), empty("No posts read yet", "Here you will find all your posts, search them, and decide which ones to train on.", el("a", { class: "button primary", href: address("home") }, "Choose your blog"))];

const PAGE = 50;
const SORTS = [["date", "Date"], ["words", "Your words"], ["share", "Share of your words"], ["learned_words", "Words learned from"], ["title", "Title"]];
const SAID = { keep: "Kept", cap: "Capped", "leave out": "Left out", train: "Training", validation: "Validation", test: "Test", post: "Posts", page: "Pages",
  dominant: "Outweighs the others", unlike: "Different style", dump: "Machine output", duplicate: "Shares text", none: "No date" };

async function list(body, where) {
  setTitle("Posts");
  const asked = Object.fromEntries(where.query);
  const rows = el("div", { class: "posts" }, loading("Reading"));
  const posts = () => get("/api/corpus/posts", { ...asked, most: PAGE });
  const firstPage = posts();
  firstPage.catch(() => {}); // draw() shows it
  const result = await get("/api/corpus/facets");
  let waiting = null, newest = 0;

  const option = (name, label, pairs) => {
    const known = pairs.some(([key]) => key === asked[name]) || !asked[name] ? [] : [[asked[name], asked[name]]];
    const node = select([["", "All"], ...pairs.map(([key, n]) => [key, `${SAID[key] ?? key} (${count(n)})`]), ...known], asked[name] ?? "", (value) => ask({ [name]: value, first: "" }));
    return pairs.length > 1 || asked[name] ? field(label, node) : null;
  };
  const box = input({ type: "search", placeholder: "Words in the title", value: asked.title ?? "", on: { input: () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => ask({ title: box.value, first: "" }), 200);
  } } });
  const sort = select(SORTS, asked.sort ?? "date", (value) => ask({ sort: value, order: value === "title" ? "up" : "", first: "" }));
  const summary = quiet();
  const order = button("", () => ask({ order: asked.order === "up" ? "" : "up", first: "" }), { kind: "small" });
  fill(body, masthead({ heading: "Posts" }),
    el("form", { class: "filters", role: "search", "aria-label": "Which posts", on: { submit: (event) => event.preventDefault() } }, field("Title", box), option("year", "Year", result.years), option("tag", "Tag", result.tags),
      option("decision", "Decision", result.decisions), option("split", "Split", result.splits), option("kind", "Kind", result.kinds), option("flag", "Stood out", result.flags)),
    el("div", { class: "row spread sorted" }, summary, el("div", { class: "row" }, el("label", { for: (sort.id = "sort-by") }, "Sort by"), sort, order)), rows);

  async function ask(change) {
    Object.assign(asked, change);
    for (const name of Object.keys(asked)) if (!asked[name]) delete asked[name];
    go(address("posts", [], asked), { quietly: true, replace: true });
    await draw();
  }

  async function draw(coming = posts()) {
    const mine = (newest += 1);
    order.textContent = asked.sort === "title" ? (asked.order === "up" ? "A to Z" : "Z to A") : asked.sort && asked.sort !== "date"
      ? (asked.order === "up" ? "Fewest first" : "Most first") : asked.order === "up" ? "Oldest first" : "Newest first";
    try {
      const page = await coming;
      if (mine !== newest) return;
      const parts = [["learned from", page.learned_words], ["held back to judge the model", page.held_out_words], ["left out", page.left_out_words]].filter(([, words]) => words);
      fill(summary, `${page.texts}, ${count(page.own_words, "word")} of yours: ${parts.map(([what, words]) => `${count(words)} ${what}`).join(", ")}.`);
      fill(rows, ...drawn(page));
      announce(page.texts);
    } catch (error) {
      if (mine === newest) fill(rows, problem(error, () => draw()));
    }
  }

  function drawn(page) {
    if (!page.total) return [empty("No post matches", "Remove a filter.", button("Show all", () => go(address("posts", []))))];
    const most = Math.max(...page.rows.map((item) => item.share)) || 1;
    const row = (item) => [el("div", {}, el("span", { class: "named" }, postLink(item.id, item.title)), item.decision !== "keep" || item.flagged ? [" ", tag(item.decided, item.decision === "keep" ? "" : "on")] : null,
      item.flagged ? el("span", { class: "quiet line-below" }, item.flagged) : null, shareLine(item.share / most, item.decision === "leave out" ? "k4" : "k1")),
      item.day || "–", count(item.own_words), percent(item.share), count(item.learned_words), SAID[item.split] ?? "–"];
    return [table({ caption: "Posts", heads: ["Post", "Date", "Words", "Share", "Learned from", "Split"], class: "every", rows: page.rows.map(row) }), pager(page)];
  }

  function turn(by, total) {
    const first = Number(asked.first ?? 0) + by * PAGE;
    if (first < 0 || first >= total) return;
    ask({ first: first || "" }).then(() => rows.scrollIntoView({ block: "start" }));
  }

  function pager({ first, total }) {
    shortcut("n", "Next page", () => turn(1, total));
    shortcut("p", "Previous page", () => turn(-1, total));
    if (total <= PAGE) return null;
    return el("nav", { class: "pager row spread", "aria-label": "Pages" }, button("Previous", () => turn(-1, total), { disabled: !first }),
      el("span", {}, `${count(first + 1)} to ${count(Math.min(total, first + PAGE))} of ${count(total)}`), button("Next", () => turn(1, total), { disabled: first + PAGE >= total }));
  }

  shortcut("f", "Find a post by title", () => box.focus());
  await draw(firstPage);
  return () => clearTimeout(waiting);
}

const WHOSE = { quoted: "a quotation", other: "not your words" };
const FOUND_BY = { title: "by title", phrase: "exact phrase", text: "by words", vectors: "by meaning" };

async function search(body, where) {
  setTitle("Search");
  const list = el("div", { class: "found" });
  const box = input({ type: "search", placeholder: "A word, a phrase, a question", value: where.query.get("q") ?? "", "aria-label": "Search your posts", autofocus: true });
  let running = null;

  async function find() {
    running?.abort();
    const mine = (running = new AbortController());
    const question = box.value.trim();
    go(address("posts", ["search"], { q: question }), { quietly: true, replace: true });
    if (!question) return void fill(list, quiet("This searches all posts, also those that are not used for training. Drafts and deleted posts are not included."));
    const slow = setTimeout(() => fill(list, loading("Searching")), 250);
    try {
      const result = await get("/api/corpus/search", { q: question }, { signal: mine.signal });
      fill(list, ...hits(result));
      announce(result.passages.length ? count(result.passages.length, "passage") : "Nothing found");
    } catch (error) {
      if (error.status === 404) fill(body, nothingYet());
      else if (!mine.signal.aborted) fill(list, problem(error, find));
    } finally {
      clearTimeout(slow);
    }
  }

  fill(body, masthead({ heading: "Search" }), el("form", { class: "searching row", role: "search", on: { submit: (event) => { event.preventDefault(); find(); } } }, box, button("Search", null, { kind: "primary", type: "submit", icon: "search" })), list);
  shortcut("/", "Go to the search box", () => { box.focus(); box.select(); });
  await find();
  return () => running?.abort();
}

function hits({ passages, is_weak: isWeak, why, nearest, notes = [] }) {
  const shown = passages.length ? passages : nearest;
  if (!shown.length) return [empty("Nothing found", why || "No post contains these words.")];
  return [isWeak ? p(el("strong", {}, "This is probably not in your archive. "), why, " Similar passages:") : null,
    ...notes.map((note) => quiet(note)),
    el("ol", { class: "hits" }, shown.map((item) => el("li", {}, el("h2", {}, postLink(item.document, item.title, { chunk: item.id })),
      quiet([day(item.date), item.heading, WHOSE[item.whose], item.found_by.map((by) => FOUND_BY[by] ?? by).join(", ")].filter(Boolean).join(" · ")), passage(item, matches(item.words)))))];
}

/** Marks the words asked for. */
function matches(words) {
  const sought = words.length ? new RegExp(`(?<![\\p{L}\\p{N}])(${words.join("|")})(?![\\p{L}\\p{N}])`, "u") : null;
  return (text) => (sought ? text.split(sought).map((part, i) => (i % 2 ? el("mark", {}, part) : part)) : text);
}

// ---- decisions about posts that stand out -----------------------------------------------------

const DECISIONS = [["keep", "Keep"], ["cap", "Cap"], ["leave out", "Leave out"]];
const MEANS = [["Keep", "train on all of it."], ["Cap", "train on its beginning, so that it does not outweigh the others."],
  ["Leave out", "do not train on it; you can still search and cite it."]];

async function decisions(body) {
  setTitle("Decisions");
  fill(body, loading("Reading"));
  const list = el("div");
  fill(body, masthead({ heading: "Decisions", follow: "Choose which posts to train on. Nothing is deleted, and your choices are kept." }), list);
  const draw = (result) => fill(list, pending(result), result.rows.length
    ? el("ul", { class: "decisions" }, result.rows.map((row) => el("li", {}, head(row), decider(row, { onChange: (next) => fillPending(next) }))))
    : p("No post stands out: all are used in full. You can decide about any post on its own page."),
    el("div", { class: "card means" }, MEANS.map(([word, wording]) => p(el("strong", {}, word), ": ", wording))));
  const fillPending = (next) => list.querySelector(".pending").replaceWith(pending(next));
  draw(await get("/api/corpus/decisions"));
}

function head(row) {
  return el("div", { class: "decision-head" }, el("h2", {}, postLink(row.id, row.title)),
    quiet([`${count(row.own_words, "word")} of yours`, `${percent(row.share)} of your words`, row.flagged].filter(Boolean).join(" · ")));
}

/** Changes that wait for the next training. */
function pending({ pending: waiting, words_now: now, words_then: then }) {
  if (!waiting) return el("div", { class: "pending", role: "status" });
  const words = now === then ? `${count(now, "word")}, as before` : `${count(then, "word")} instead of ${count(now)}`;
  return el("div", { class: "pending card", role: "status" },
    p(el("strong", {}, `${count(waiting, "change")} ${waiting === 1 ? "takes" : "take"} effect at the next training. `), `It uses ${words}.`),
    link(address("home"), "Make a new model"));
}

/** The control for one post: what is chosen, by whom, and its effect. */
export function decider(row, { alone = false, onChange = () => {} } = {}) {
  const node = el("div", { class: "decider" });
  const draw = (now) => {
    const wording = now.pending ? now.then : now.now;
    fill(node, choice(`Use ${now.title} for training?`, DECISIONS, wording.decision, (decision) => decide(decision)),
      el("div", { class: "reason" },
        now.pending ? p(tag("next training", "on"), ` ${wording.word}: ${words(now.own_words, wording.training_words)}. Currently ${now.now.word.toLowerCase()}, ${count(now.now.training_words, "word")}.`) : alone || wording.decision === "cap" ? p(`${words(now.own_words, wording.training_words)}.`) : null,
        wording.reason ? quiet(wording.reason) : null,
        alone && now.pending ? quiet("Saved in choices.toml. It takes effect at the next training.") : null,
        now.by === "you" ? el("p", { class: "quiet" }, "Your choice. ", button("Back to the default", () => decide("proposed"), { kind: "plain" })) : null));
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
      announce(`${row.title}: ${wording.word}. ${words(row.own_words, wording.training_words)}, from the next training on.`);
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
  if (!learned) return "Not used";
  return learned >= own ? `All ${count(own, "word")} can be used` : `The first ${count(learned)} of ${count(own, "word")} can be used`;
}

// ---- the report -------------------------------------------------------------------------------

async function report(body) {
  setTitle("The report");
  fill(body, loading("Loading the report"));
  fill(body, contents(drawn((await get("/api/corpus")).html)));
}
