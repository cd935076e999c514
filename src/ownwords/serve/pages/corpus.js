// Corpus: the report, with links to every post.

import { address, get, go, load, place, shortcut } from "/app.js";
import { add, answers, bullets, command, count, day, el, empty, fill, folded, link, loading, masthead, p, percent, quiet, section, statement, table, tabs, title, totals } from "/components.js";
import { shareLine, stackedBar, yearColumns } from "/charts.js";

const TABS = { "": ["The report", report], posts: ["Posts", () => load("/posts.js")], search: ["Search", () => load("/posts.js")],
  decisions: ["Decisions", () => load("/decisions.js")], post: ["", () => load("/post.js")] };

/** The address of a post. */
export const postAddress = (id, query = {}) => address("corpus", ["post", id], query);
export const postLink = (id, said, query) => link(postAddress(id, query), title(said));

export async function show(element, where) {
  const tab = TABS[where.path[0] ?? ""] ? where.path[0] ?? "" : "";
  const body = el("div", { class: "tab-body" });
  const entries = Object.entries(TABS).filter(([, [said]]) => said).map(([name, [said]]) => [name, said, address("corpus", name ? [name] : [])]);
  add(element, tabs("Corpus", entries, tab === "post" ? "posts" : tab), body);
  shortcut("/", "Search your posts", () => go(address("corpus", ["search"])));
  try {
    if (!tab) return await report(body);
    const module = await TABS[tab][1]();
    return await module[tab](body, where);
  } catch (error) {
    if (error.status !== 404 || tab === "post") throw error;
    fill(body, nothingYet(error));
  }
}

function nothingYet(error) {
  return empty("No posts read yet", "Here you will see what is in your posts: how many words are yours, which texts repeat, and what a model can learn from them. Reading takes seconds and changes nothing in your files.",
    command(`ownwords look PATH${place.path ? ` --workspace ${place.path}` : ""}`), quiet(error.hint || error.message));
}

async function report(body) {
  fill(body, loading("Loading the report"));
  const found = await get("/api/corpus");
  fill(body,
    masthead({ kicker: "What is in it", heading: el("bdi", {}, found.name), lede: found.lede, follow: found.follow }),
    el("div", { class: "figures" }, totals(found.totals), found.average && quiet(found.average)),
    training(found.advice), lengths(found), whose(found), years(found.years), twice(found.twice), unlike(found.unlike), links(found.links),
    phrases(found.phrases), leftOut(found.left_out), split(found.split), privacy(found.privacy), notes(found.notes),
    el("footer", { class: "colophon" }, quiet(`${found.made} Fingerprint of the texts `, el("code", {}, found.fingerprint), ". Same texts, same fingerprint."),
      found.sources.map((one) => quiet("Read from ", el("code", {}, one.path), one.seen_as ? `, ${one.seen_as}` : "", `: ${count(one.documents, "text")}.`))));
}

function training({ headline, sentences, rows }) {
  return section("What you can train with this much", headline && statement(headline), sentences.map((one) => p(one)), rows.length ? answers(rows) : null);
}

function lengths({ lengths: found, decided }) {
  if (!found.longest.length) return null;
  const most = Math.max(...found.longest.map((one) => one.share)) || 1;
  const rows = found.longest.map((one) => [el("div", {}, postLink(one.id, one.title),
    el("span", { class: "quiet line-below" }, [day(one.day), one.decision === "keep" ? "" : one.decided.toLowerCase()].filter(Boolean).join(" · ")),
    shareLine(one.share / most, one.decision === "leave out" ? "k3" : "own")), count(one.own_words), percent(one.share)]);
  if (found.others.count) rows.push([link(address("corpus", ["posts"], { sort: "words" }), `${count(found.others.count)} others together`), count(found.others.own_words), percent(found.others.share)]);
  const bar = (caption, slices) => slices.length > 1 ? el("figure", {}, el("figcaption", {}, caption), stackedBar("Share of the prose per text", slices)) : null;
  return section("Where the words are", bar("As it was found", found.found), bar("As it is used for training", found.used),
    p(`${found.evenness} Counted are your own words, without quotations, code, logs and tables.`.trim()),
    decided ? p(link(address("corpus", ["decisions"]), `${count(decided, "text")} stood out`), "; what becomes of each is yours to decide.") : p("Nothing stood out: every text is kept in full."),
    table({ caption: found.others.count ? "The longest" : "Every text, longest first", heads: ["Text", "Words", "Share"], rows, shown: true, class: "shares" }));
}

function whose({ kinds, dumps }) {
  if (!kinds.length) return null;
  const total = kinds.reduce((sum, one) => sum + one.value, 0);
  return section("Whose words these are", el("figure", {}, stackedBar("Words by whose they are", kinds, { labelled: false })),
    table({ caption: "Words by whose they are", heads: ["Kind", "Words", "Share"], class: "narrow",
      rows: kinds.map((one) => [el("span", {}, el("i", { class: `swatch ${one.tone}` }), one.label), count(one.value), percent(one.value / total)]) }),
    dumps.total ? [el("h3", {}, "Blocks a machine wrote"), p("These stretches look like output that was pasted in. The first line of each:"),
      el("ul", { class: "stack-list" }, dumps.rows.map((one) => el("li", {}, p(postLink(one.id, one.title), " ", el("span", { class: "quiet" }, `${count(one.words, "word")} in ${count(one.lines, "line")}`)),
        el("pre", {}, one.first_line), quiet(one.reason)))), more(dumps, "block")] : null);
}

const more = ({ total, rows }, noun) => total > rows.length ? quiet(`And ${count(total - rows.length, `more ${noun}`)}.`) : null;

function years(found) {
  if (!found.columns.length) return section("Year by year", p("None of your texts carries a date, so there are no years to show."));
  return section("Year by year", found.sentence && p(found.sentence),
    el("figure", {}, el("figcaption", {}, "Words above the line, posts below it"), yearColumns(`Words and posts per year. ${found.sentence} The numbers follow as a table.`, found.columns)),
    found.undated && quiet(found.undated),
    folded("The numbers", table({ caption: "Words and posts per year", heads: ["Year", "Words", "Posts"], class: "narrow",
      rows: found.columns.filter((one) => one.posts).map((one) => [link(address("corpus", ["posts"], { year: one.year }), String(one.year)), count(one.words), count(one.posts)]) })));
}

function twice(found) {
  if (!found.total) return section("Said twice", p("No two texts share more than a passing phrase."));
  const passage = (cite, pieces) => el("blockquote", {}, el("cite", {}, cite), el("p", { dir: "auto" }, pieces.map(([text, differs]) => differs ? [el("mark", {}, text.trimEnd()), " "] : text)));
  const pair = (one) => el("li", {}, el("h3", {}, postLink(one.id, one.title), " and ", postLink(one.other_id, one.other_title)), quiet(one.said),
    one.passages.map(([left, right]) => left.some(([, differs]) => differs) || right.some(([, differs]) => differs)
      ? el("div", { class: "two passages" }, passage(one.title, left), passage(one.other_title, right)) : el("div", { class: "passages" }, passage("In both", left))));
  return section("Said twice", p("Text that appears twice is learned twice. Words that differ are ", el("mark", {}, "marked"), "."),
    el("ul", { class: "pairs" }, found.rows.map(pair)), more(found, "pair"));
}

function unlike(found) {
  if (!found.total) return section("Unlike the rest", p("No post reads unlike your other posts."));
  return section("Unlike the rest", p("A guest, a long quotation, a translation, or you on another day: the small words differ, and only you know why."),
    el("ul", { class: "stack-list" }, found.rows.map((one) => el("li", {}, p(postLink(one.id, one.title), el("span", { class: "quiet" }, ` ${count(one.words, "word")}`)),
      one.signs && p(`The signs: ${one.signs}.`)))), more(found, "post"));
}

function links(found) {
  return section("Links within the site", p(found.said),
    found.dead.total ? [table({ caption: "Dead links", heads: ["In", "On the words", "Leads to"], class: "told",
      rows: found.dead.rows.map((one) => [postLink(one.id, one.title), one.text || "–", el("code", {}, one.address)]) }), more(found.dead, "link")] : null,
    found.alone && [p(found.alone), folded("Which ones", el("ul", { class: "columns-list" }, found.orphans.rows.map((one) => el("li", {}, postLink(one.id, one.title)))), more(found.orphans, "text"))]);
}

function phrases(found) {
  if (!found.overall.length && !found.years.length) return section("Turns of phrase", p("No turn of phrase comes back often enough to be called a favourite."));
  return section("Turns of phrase",
    el("ol", { class: "phrases" }, found.overall.map((one) => el("li", {}, el("q", {}, one.text), el("span", { class: "quiet" }, `${count(one.count, "time")} in ${count(one.posts, "post")}`)))),
    found.years.length ? table({ caption: "Favourites of each year", heads: ["Year", "Phrases"], class: "told keyed", shown: true,
      rows: found.years.map((one) => [String(one.year), one.phrases.map(([text, times], i) => [i ? ", " : "", el("q", {}, text), `\u00a0${count(times)}×`])]) }) : null);
}

function leftOut(rows) {
  if (!rows.length) return section("What is not in the archive", p("Nothing was left out."));
  return section("What is not in the archive", p("You cannot search any of this either."),
    table({ caption: "Left out", heads: ["What", "Why"], class: "told keyed", rows: rows.map((one) => [one.what, el("div", {}, one.reason, named(one))]) }));
}

function named({ titles, more: left }) {
  if (!titles.length) return null;
  const list = el("ul", { class: "quiet" }, titles.map((one) => el("li", {}, title(one))), left ? el("li", {}, `and ${count(left)} more`) : null);
  return titles.length > 4 ? folded(count(titles.length + left, "title"), list) : list;
}

function split(sides) {
  if (!sides.length) return null;
  return section("Training, validation and test", p("A model must be tested on posts it has never seen, so whole posts are held out. The model learns from the training posts, the validation posts decide when to stop, and the test posts are used once, at the end."),
    stackedBar("Words per split", sides, { slim: true, labelled: false }),
    table({ caption: "Posts and words per split", heads: ["Split", "Posts", "Words", "Share"],
      rows: sides.map((side) => [el("span", {}, el("i", { class: `swatch ${side.tone}` }), side.label), count(side.posts), count(side.value), side.note]) }));
}

function privacy(found) {
  return section("Privacy", el("dl", { class: "receipt" }, found.lines.map(([name, said]) => el("div", {}, el("dt", {}, name), el("dd", {}, said)))),
    found.found.length ? [p("Check these before you share the archive or a model trained on it. They are masked here, but not in your texts."),
      table({ caption: "Addresses and numbers", heads: ["In", "Found"], class: "told", rows: found.found.map(([where, masked]) => [title(where), el("code", {}, masked)]) })] : null);
}

const notes = (found) => found.length ? section("Notes", bullets(found)) : null;

