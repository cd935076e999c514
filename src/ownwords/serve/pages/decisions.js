// What becomes of the texts that stand out: the author's word is the last.

import { announce, setTitle, get, post, toast } from "/app.js";
import { button, choice, command, count, el, fill, loading, masthead, p, percent, quiet, tag } from "/components.js";
import { postLink } from "/corpus.js";

const DECISIONS = [["keep", "Keep"], ["cap", "Cap"], ["leave out", "Leave out"]];
const MEANS = [["Keep", "every word of it may be learned from."], ["Cap", "so much of it that it does not outweigh the others."],
  ["Leave out", "nothing of it is learned from; it can still be searched and cited."]];

export async function decisions(body) {
  setTitle("Decisions");
  fill(body, loading("Reading"));
  const list = el("div");
  fill(body, masthead({ heading: "Decisions", follow: "Nothing is deleted, whatever you choose: a decision says only what a model learns from. What you decide is kept, and never asked about again." }), list);
  const draw = (found) => fill(list, pending(found), found.rows.length
    ? el("ul", { class: "decisions" }, found.rows.map((row) => el("li", {}, head(row), decider(row, { onChange: (next) => fillPending(next) }))))
    : p("Nothing stood out: every text is kept in full. Any text can be decided about where it is read."),
    el("div", { class: "card means" }, MEANS.map(([word, said]) => p(el("strong", {}, word), ": ", said))));
  const fillPending = (next) => list.querySelector(".pending").replaceWith(pending(next));
  draw(await get("/api/corpus/decisions"));
}

function head(row) {
  return el("div", { class: "decision-head" }, el("h2", {}, postLink(row.id, row.title)),
    quiet([`${count(row.own_words, "word")} of yours`, `${percent(row.share)} of the prose`, row.flagged].filter(Boolean).join(" · ")));
}

/** What waits for the next look, and how to have it done. */
function pending({ pending: waiting, words_now: now, words_then: then, command: said }) {
  if (!waiting) return el("div", { class: "pending", role: "status" });
  const words = now === then ? `${count(now, "word")} as before` : `${count(then, "word")} instead of ${count(now)}`;
  return el("div", { class: "pending card", role: "status" },
    p(el("strong", {}, `${count(waiting, "text")} will be learned from otherwise than now. `), `The next model learns from ${words}.`),
    quiet("It is written down in choices.toml, and used by the next ", el("code", {}, "ownwords make"), ", from here under Train, or when your posts are read again:"), said ? command(said) : null);
}

/** The control for one text: what is chosen, by whom, and what will come of it. */
export function decider(row, { alone = false, onChange = () => {} } = {}) {
  const node = el("div", { class: "decider" });
  const draw = (now) => {
    const said = now.pending ? now.then : now.now;
    fill(node, choice(`What becomes of ${now.title}`, DECISIONS, said.decision, (decision) => decide(decision)),
      el("div", { class: "reason" },
        now.pending ? p(tag("next time", "on"), ` ${said.word}: ${words(now.own_words, said.training_words)}. Now ${now.now.word.toLowerCase()}, ${count(now.now.training_words, "word")}.`) : alone || said.decision === "cap" ? p(`${words(now.own_words, said.training_words)}.`) : null,
        said.reason ? quiet(said.reason) : null,
        alone && now.pending ? quiet("It is written down in choices.toml; the next model learns accordingly.") : null,
        now.by === "you" ? el("p", { class: "quiet" }, "You decided this. ", button("Leave it to ownwords", () => decide("proposed"), { kind: "plain" })) : null));
  };
  let last = Promise.resolve(); // one after the other, however quickly keys are pressed
  const decide = (decision) => { last = last.then(() => write(decision)); };
  const write = async (decision) => {
    const before = row;
    node.setAttribute("aria-busy", "true");
    try {
      const found = await post("/api/corpus/decide", { id: row.id, decision });
      row = found.changed;
      const focused = node.contains(document.activeElement);
      draw(row);
      if (focused) node.querySelector("input:checked")?.focus();
      const said = row.pending ? row.then : row.now;
      announce(`${row.title}: ${said.word}. ${words(row.own_words, said.training_words)}, from the next model on.`);
      onChange(found);
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
  if (!learned) return "None of it is learned from";
  return learned >= own ? `All ${count(own, "word")} are learned from` : `The first ${count(learned)} of ${count(own, "word")} are learned from`;
}

