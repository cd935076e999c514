// The scorecard: how good the current model is.

import { answers, bullets, button, contents, el, empty, fill, folded, lines, masthead, outward, p, quiet, quote, section, statement, table, title, totals } from "/components.js";
import { gauges } from "/charts.js";

const OPEN = 4; // samples that are not folded

/** Draw a scorecard, or what there is instead; `measure` begins to score the model, if nothing does yet. */
export function draw(body, result, measure) {
  const card = result.card;
  if (!card) {
    const [heading, wording] = result.unreadable ? ["This scorecard was made by another version", "Score the model again; the model itself is as good as it was."]
      : ["This model has not been scored yet", "How well it predicts posts it has never seen, whether it sounds like you, how fluent it is, and whether it copies you. This takes a few minutes."];
    return void fill(body, masthead({ heading: "Scorecard" }), empty(heading, wording, measure && button("Score it", measure, { kind: "primary" })));
  }
  fill(body, contents(
    masthead({ kicker: el("span", {}, title(card.name), ": how good your model is"), heading: card.sentence }),
    card.because.length ? el("ul", { class: "notes because" }, card.because.map((item) => el("li", {}, item))) : null,
    card.headline.length ? totals(card.headline) : null, quiet(card.about),
    samples(card.samples), foresight(card.prediction),
    part("Whether it sounds like you", card.voice), part("How fluent it is", card.fluency, examples(card.fluency.examples)),
    part("Whether it copies you", card.copying, runs(card.copying.runs)), dominant(card.dominant), making(card.training),
    el("footer", { class: "colophon" }, quiet(card.measured, " The model: ", el("code", {}, card.model)))));
  if (card.is_bad) body.querySelector("h1").classList.add("bad");
  return undefined;
}

/** The samples of a model without a scorecard. */
export const samplesOf = (rows) => section("What it writes", rows.map((item) => quote(lines(item.text), { cite: item.beginning, class: "tuned" })));

function samples({ how, rows }) {
  if (!rows.length) return null;
  const list = (some) => el("ul", { class: "samples" }, some.map(sample));
  return section("What it writes", p(how), list(rows.slice(0, OPEN)), rows.length > OPEN ? folded(`${rows.length - OPEN} more`, list(rows.slice(OPEN))) : null);
}

function sample(item) {
  const side = (who, [first, rest], look) => el("blockquote", { class: look, dir: "auto" }, el("cite", {}, who), first.map((line) => p(line)), rest.length ? folded("The rest", rest.map((line) => p(line))) : null);
  return el("li", {}, el("h3", {}, title(item.beginning)), quiet(item.where),
    el("div", { class: item.base ? "two" : "" }, item.base ? side("Its base", item.base, "base") : null, side("Your model", item.tuned, "tuned")));
}

const panel = (item) => el("div", {}, el("h3", {}, item.title), p(item.meaning), gauges(item.title, item.gauges, item.top));

function foresight(result) {
  return section("How well it predicts you", result.finding && statement(result.finding), result.meaning && p(result.meaning), result.panels.map(panel), result.how && quiet(result.how));
}

function part(heading, result, ...more) {
  return section(heading, result.finding && statement(result.finding), result.panels.length ? el("div", { class: "panels" }, result.panels.map(panel)) : null, ...more, result.how ? quiet(result.how) : null);
}

function examples(result) {
  if (!result.length) return null;
  return folded("Examples from the samples", bullets(result.map((item) => [`${item.what}: `, item.what === "Made-up words" ? item.text : el("q", {}, item.text)])));
}

function runs(result) {
  if (!result.length) return null;
  return [el("h3", {}, "The longest passage copied from your posts"), result.map((item) => item.text
    ? el("blockquote", { class: "run", dir: "auto" }, el("cite", {}, `${item.source} `, outward(item.url, title(item.title)), item.day ? `, ${item.day}` : ""), p(item.text)) : p(item.source))];
}

function dominant(item) {
  if (!item) return null;
  const scored = item.rows.some((row) => row.bits);
  return section("The post that outweighs the others", p(outward(item.url, title(item.title)), item.day ? `, ${item.day}, outweighs your other posts.` : " outweighs your other posts."),
    table({ caption: `${item.title}, before and after`, heads: ["Trained on it", "Its words", "Share", ...(scored ? ["Bits per byte"] : [])],
      rows: item.rows.map((row) => [row.how, row.words, row.share, ...(scored ? [row.bits || "–"] : [])]) }), p(item.effect));
}

function making({ rows, plan, notes }) {
  return section("How it was made", answers(rows), plan.length ? [el("h3", {}, "Forecast and outcome"), bullets(plan)] : null,
    notes.length ? [el("h3", {}, "Limits of these figures"), bullets(notes)] : null);
}
