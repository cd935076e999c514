// Decisions about posts that stand out: which ones to train on.

import { address, setTitle } from "/app.js";
import { announce, toast } from "/messages.js";
import { get, post } from "/server.js";
import { button, choice, count, el, fill, link, loading, masthead, p, percent, quiet, tag } from "/components.js";
import { postLink } from "/posts.js";

const DECISIONS = [["keep", "Keep"], ["cap", "Cap"], ["leave out", "Leave out"]];
const MEANS = [["Keep", "train on all of it."], ["Cap", "train on its beginning, so that it does not outweigh the others."],
  ["Leave out", "do not train on it; you can still search and cite it."]];

export async function decisions(body) {
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

