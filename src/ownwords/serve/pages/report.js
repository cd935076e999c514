// The report: what is in the blog, with links to every post.

import { address, setTitle } from "/app.js";
import { get } from "/server.js";
import { answers, bullets, contents, count, day, el, fill, folded, link, loading, masthead, p, percent, quiet, section, statement, table, title, totals } from "/components.js";
import { postLink } from "/posts.js";
import { shareLine, stackedBar, yearColumns } from "/charts.js";

export async function report(body) {
  setTitle("The report");
  fill(body, loading("Loading the report"));
  const result = await get("/api/corpus");
  fill(body, contents(
    masthead({ kicker: "What is in it", heading: el("bdi", {}, result.name), lede: result.lede, follow: result.follow }),
    el("div", { class: "figures" }, totals(result.totals), result.average && quiet(result.average)),
    training(result.advice), lengths(result), whose(result), years(result.years), twice(result.twice), unlike(result.unlike), links(result.links),
    phrases(result.phrases), leftOut(result.left_out), split(result.split), privacy(result.privacy), notes(result.notes),
    el("footer", { class: "colophon" }, quiet(`${result.created} Fingerprint of the texts `, el("code", {}, result.fingerprint), ". Same texts, same fingerprint."),
      result.sources.map((item) => quiet("Read from ", el("code", {}, item.path), item.detected_as ? `, ${item.detected_as}` : "", `: ${count(item.documents, "text")}.`)))));
}

function training({ headline, sentences, rows }) {
  return section("What you can train with this much text", headline && statement(headline), sentences.map((item) => p(item)), rows.length ? answers(rows) : null);
}

function lengths({ lengths: result, decided }) {
  if (!result.longest.length) return null;
  const most = Math.max(...result.longest.map((item) => item.share)) || 1;
  const rows = result.longest.map((item) => [el("div", {}, postLink(item.id, item.title),
    el("span", { class: "quiet line-below" }, [day(item.day), item.decision === "keep" ? "" : item.decided.toLowerCase()].filter(Boolean).join(" · ")),
    shareLine(item.share / most, item.decision === "leave out" ? "k3" : "own")), count(item.own_words), percent(item.share)]);
  if (result.others.count) rows.push([link(address("posts", [], { sort: "words" }), `${count(result.others.count)} others together`), count(result.others.own_words), percent(result.others.share)]);
  const bar = (caption, slices) => slices.length > 1 ? el("figure", {}, el("figcaption", {}, caption), stackedBar("Share of the prose per text", slices)) : null;
  return section("Where the words are", bar("In the archive", result.found), bar("In training", result.used),
    p(`${result.evenness} Only your own words count here, not quotations, code, logs or tables.`.trim()),
    decided ? p(link(address("posts", ["decisions"]), `${count(decided, "text")} stood out`), "; you decide which to train on.") : p("Nothing stood out: every text is kept in full."),
    table({ caption: result.others.count ? "Longest texts" : "All texts, longest first", heads: ["Text", "Words", "Share"], rows, shown: true, class: "shares" }));
}

function whose({ kinds, dumps }) {
  if (!kinds.length) return null;
  const total = kinds.reduce((sum, item) => sum + item.value, 0);
  return section("Whose words these are", el("figure", {}, stackedBar("Words by whose they are", kinds, { labelled: false })),
    table({ caption: "Words by whose they are", heads: ["Kind", "Words", "Share"], class: "narrow",
      rows: kinds.map((item) => [el("span", {}, el("i", { class: `swatch ${item.tone}` }), item.label), count(item.value), percent(item.value / total)]) }),
    dumps.total ? [el("h3", {}, "Machine output"), p("These blocks look like pasted output of a program. The first line of each:"),
      el("ul", { class: "stack-list" }, dumps.rows.map((item) => el("li", {}, p(postLink(item.id, item.title), " ", el("span", { class: "quiet" }, `${count(item.words, "word")} in ${count(item.lines, "line")}`)),
        el("pre", {}, item.first_line), quiet(item.reason)))), more(dumps, "block")] : null);
}

const more = ({ total, rows }, noun) => total > rows.length ? quiet(`And ${count(total - rows.length, `more ${noun}`)}.`) : null;

function years(result) {
  if (!result.columns.length) return section("Year by year", p("None of your texts has a date."));
  return section("Year by year", result.sentence && p(result.sentence),
    el("figure", {}, el("figcaption", {}, "Words above the line, posts below it"), yearColumns(`Words and posts per year. ${result.sentence} The numbers follow as a table.`, result.columns)),
    result.undated && quiet(result.undated),
    folded("The numbers", table({ caption: "Words and posts per year", heads: ["Year", "Words", "Posts"], class: "narrow",
      rows: result.columns.filter((item) => item.posts).map((item) => [link(address("posts", [], { year: item.year }), String(item.year)), count(item.words), count(item.posts)]) })));
}

function twice(result) {
  if (!result.total) return section("Duplicate text", p("No two texts share a long passage."));
  const passage = (cite, pieces) => el("blockquote", {}, el("cite", {}, cite), el("p", { dir: "auto" }, pieces.map(([text, differs]) => differs ? [el("mark", {}, text.trimEnd()), " "] : text)));
  const pair = (item) => el("li", {}, el("h3", {}, postLink(item.id, item.title), " and ", postLink(item.other_id, item.other_title)), quiet(item.extent),
    item.passages.map(([left, right]) => left.some(([, differs]) => differs) || right.some(([, differs]) => differs)
      ? el("div", { class: "two passages" }, passage(item.title, left), passage(item.other_title, right)) : el("div", { class: "passages" }, passage("In both", left))));
  return section("Duplicate text", p("A model learns repeated text twice. Words that differ are ", el("mark", {}, "marked"), "."),
    el("ul", { class: "pairs" }, result.rows.map(pair)), more(result, "pair"));
}

function unlike(result) {
  if (!result.total) return section("Posts in a different style", p("No post reads unlike your other posts."));
  return section("Posts in a different style", p("Their common words differ from those of your other posts: a guest, a long quotation, a translation, or you on another day. Only you know."),
    el("ul", { class: "stack-list" }, result.rows.map((item) => el("li", {}, p(postLink(item.id, item.title), el("span", { class: "quiet" }, ` ${count(item.words, "word")}`)),
      item.signs && p(`The signs: ${item.signs}.`)))), more(result, "post"));
}

function links(result) {
  return section("Internal links", p(result.sentence),
    result.dead.total ? [table({ caption: "Dead links", heads: ["Text", "Words of the link", "Target"], class: "text-table",
      rows: result.dead.rows.map((item) => [postLink(item.id, item.title), item.text || "–", el("code", {}, item.address)]) }), more(result.dead, "link")] : null,
    result.alone && [p(result.alone), folded("Show them", el("ul", { class: "columns-list" }, result.orphans.rows.map((item) => el("li", {}, postLink(item.id, item.title)))), more(result.orphans, "text"))]);
}

function phrases(result) {
  if (!result.overall.length && !result.years.length) return section("Favourite phrases", p("No phrase comes back often enough to be a favourite."));
  return section("Favourite phrases",
    el("ol", { class: "phrases" }, result.overall.map((item) => el("li", {}, el("q", {}, item.text), el("span", { class: "quiet" }, `${count(item.count, "time")} in ${count(item.posts, "post")}`)))),
    result.years.length ? table({ caption: "Favourites of each year", heads: ["Year", "Phrases"], class: "text-table keyed", shown: true,
      rows: result.years.map((item) => [String(item.year), item.phrases.map(([text, times], i) => [i ? ", " : "", el("q", {}, text), `\u00a0${count(times)}×`])]) }) : null);
}

function leftOut(rows) {
  if (!rows.length) return section("What is not in the archive", p("Nothing was left out."));
  return section("What is not in the archive", p("You cannot search any of this either."),
    table({ caption: "Left out", heads: ["What", "Why"], class: "text-table keyed", rows: rows.map((item) => [item.what, el("div", {}, item.reason, named(item))]) }));
}

function named({ titles, more: left }) {
  if (!titles.length) return null;
  const list = el("ul", { class: "quiet" }, titles.map((item) => el("li", {}, title(item))), left ? el("li", {}, `and ${count(left)} more`) : null);
  return titles.length > 4 ? folded(count(titles.length + left, "title"), list) : list;
}

function split(sides) {
  if (!sides.length) return null;
  return section("Training, validation and test", p("A model must be tested on posts it has never seen, so whole posts are held out. The model learns from the training posts, the validation posts decide when to stop, and the test posts are used once, at the end."),
    stackedBar("Words per split", sides, { slim: true, labelled: false }),
    table({ caption: "Posts and words per split", heads: ["Split", "Posts", "Words", "Share"],
      rows: sides.map((side) => [el("span", {}, el("i", { class: `swatch ${side.tone}` }), side.label), count(side.posts), count(side.value), side.note]) }));
}

function privacy(result) {
  return section("Privacy", el("dl", { class: "receipt" }, result.lines.map(([name, wording]) => el("div", {}, el("dt", {}, name), el("dd", {}, wording)))),
    result.found.length ? [p("Check these before you share the archive or a model trained on it. They are masked here, but not in your texts."),
      table({ caption: "Addresses and numbers", heads: ["In", "Found"], class: "text-table", rows: result.found.map(([where, masked]) => [title(where), el("code", {}, masked)]) })] : null);
}

const notes = (result) => result.length ? section("Notes", bullets(result)) : null;

