// Ask: questions to the archive, with answers whose citations link to their posts.

import { address, announce, setTitle, get, go, remember, remembered, shortcut, stream } from "/app.js";
import { add, bullets, button, count, day, el, fill, folded, icon, link, loading, masthead, problem, quiet, quote, row, sentence, statement, tag, textarea, title } from "/components.js";

const NO_MODEL = "none";
const ANSWERER = "answerer"; // the name under which the choice is remembered
const AT_ONCE = 4; // passages; more are unfolded
const WHOSE = { quoted: "a quotation, not your words", other: "not your words" };
// The conversation stays while other pages are open; it is gone when the tab is closed.
const state = { turns: [], backend: null, number: 0 };

export async function show(element, { query }) {
  const [offer, facets] = await Promise.all([get("/api/ask"), get("/api/corpus/facets").catch(() => null)]);
  const years = (facets?.years ?? []).map(([year]) => year).filter((year) => /^\d{4}$/.test(year)).sort();
  const page = pageOf(element, offer, years);
  shortcut("/", "To the question", page.focus);
  shortcut("Escape", "Stop the answer", page.stop, { whileTyping: true });
  const asked = query.get("q");
  if (asked) {
    go(address("ask"), { replace: true, quietly: true });
    page.put(asked);
  }
  return page.leave;
}

function pageOf(element, offer, years) {
  let answering = null;
  const talk = el("div", { class: "talk" });
  const question = textarea({ rows: "2", dir: "auto", "aria-label": "Your question", placeholder: "What did I say about backups?" });
  const send = button("Ask", null, { kind: "primary", icon: "ask", type: "submit" });
  const end = button("Stop", stop, { icon: "stop" });
  end.hidden = true;
  const clear = button("Clear", reset, { kind: "small" });
  const who = el("div", { class: "who" });
  const form = el("form", { class: "question", on: { submit: (event) => { event.preventDefault(); put(question.value); } } },
    question, row(send, end, who, clear));
  question.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    put(question.value);
  });

  const head = el("div");
  add(element, head, talk, form);
  writers(offer);
  draw();

  function writers(result) {
    const known = [NO_MODEL, ...result.endpoints.map((item) => item.name), ...result.own.map((item) => item.name)];
    state.backend ??= remembered(ANSWERER);
    if (!known.includes(state.backend)) state.backend = NO_MODEL; // nothing is sent to a model that was not chosen
    const option = (value, label) => el("option", { value }, label);
    const choose = el("select", { "aria-label": "Who answers", on: { change: () => { state.backend = choose.value; remember(ANSWERER, choose.value); hint(); } } },
      option(NO_MODEL, "No model: show the passages"),
      result.endpoints.length ? el("optgroup", { label: "On this machine" }, result.endpoints.map((item) => option(item.name, `${item.label} (${item.where})`))) : null,
      result.own.length ? el("optgroup", { label: "Yours" }, result.own.map((item) => option(item.name, item.label))) : null);
    choose.value = state.backend;
    const wording = el("span", { class: "quiet" });
    const hint = () => {
      wording.textContent = state.backend.startsWith("own:") ? "A small model writes in your voice, but seldom answers." : result.endpoints.length ? (state.backend === NO_MODEL ? "Choose a model to have answers in words; it then reads the passages." : "") : "Ollama, llama.cpp, LM Studio or vLLM on this machine would be listed here.";
    };
    hint();
    const again = button("Look again", async () => {
      again.disabled = true;
      try {
        writers(await get("/api/ask", { refresh: "yes" }));
        announce("Searched for models on this machine");
      } catch (error) {
        fill(who, problem(error));
      }
    }, { kind: "small" });
    fill(who, choose, again, wording);
  }

  function draw() {
    fill(head, masthead({ kicker: "Ask", heading: "What did I write?", lede: state.turns.length ? "" : "Ask your archive. Every answer quotes a post that you can open." }));
    fill(talk, state.turns.length ? null : examples(), state.turns.map(drawn));
    clear.hidden = !state.turns.length;
  }

  function examples() {
    const some = ["What did I say about …?", "When did I first write about …?", years.length ? `How many posts are there from ${years.at(-1)}?` : "How many posts are there?"];
    return el("div", { class: "examples" }, quiet("Each question stands for itself. For example:"),
      el("ul", {}, some.map((text) => el("li", {}, button(text, () => { question.value = text; question.focus(); const at = text.indexOf("…"); if (at >= 0) question.setSelectionRange(at, at + 1); }, { kind: "small" })))));
  }

  async function put(text) {
    const asked = text.trim();
    if (!asked || answering) return;
    question.value = "";
    const turn = { id: (state.number += 1), question: asked, passages: null, text: "", answer: null, problem: null, isStopped: false, backend: state.backend };
    const isFirst = !state.turns.length;
    state.turns.push(turn);
    if (isFirst) draw();
    else add(talk, drawn(turn));
    turn.node.scrollIntoView({ block: "start" });
    setTitle(asked.slice(0, 60));
    const ends = (answering = new AbortController());
    send.disabled = true;
    end.hidden = false;
    announce("Searching");
    try {
      for await (const { event, data } of stream("/api/ask", { question: asked, backend: turn.backend }, { signal: ends.signal })) {
        if (event === "passages") turn.passages = data;
        else if (event === "text") turn.text += data;
        else if (event === "answer") turn.answer = data;
        else if (event === "error") turn.problem = data;
        turn.draw();
      }
      if (!turn.answer && !turn.problem) turn.isStopped = true;
    } catch (error) {
      if (ends.signal.aborted) turn.isStopped = true;
      else turn.problem = error;
    }
    answering = null;
    send.disabled = false;
    end.hidden = true;
    clear.hidden = false;
    turn.draw();
    announce(announcement(turn));
  }

  function stop() {
    if (!answering) return false;
    answering.abort();
    return true;
  }

  function reset() {
    stop();
    state.turns = [];
    draw();
    question.focus();
  }

  return { put, stop, focus: () => question.focus(), leave() { stop(); for (const turn of state.turns) turn.draw = () => {}; } };
}

function drawn(turn) {
  const inside = el("div", { class: "answer" });
  turn.node = el("article", { class: "turn", "aria-label": `Question: ${turn.question}` }, el("h2", { dir: "auto" }, turn.question), inside);
  turn.draw = () => {
    inside.setAttribute("aria-busy", String(!turn.answer && !turn.problem && !turn.isStopped));
    fill(inside, parts(turn));
  };
  turn.draw();
  return turn.node;
}

function parts(turn) {
  if (turn.problem) return [turn.text ? wording(turn, turn.text, []) : null, problem(turn.problem), turn.passages ? passagesOf(turn, turn.passages, true) : null];
  if (turn.answer) return answered(turn, turn.answer);
  const doing = turn.isStopped ? quiet("Stopped.") : loading(turn.passages ? "Reading these passages" : "Searching");
  return [turn.text ? wording(turn, turn.text, []) : null, doing, turn.passages ? passagesOf(turn, turn.passages, !turn.text) : null];
}

function answered(turn, result) {
  const isBare = !result.answer;
  return [
    result.answer ? (result.refused ? statement(result.answer) : wording(turn, result.answer, result.citations)) : null,
    result.why ? el("p", { class: "quiet why" }, sentence(result.why)) : null,
    result.citations.length ? citations(turn, result.citations) : null,
    result.notes.length ? el("div", { class: "remarks" }, bullets(result.notes.map(sentence))) : null,
    result.nearest.length ? el("div", { class: "nearest" }, el("h3", {}, "Similar passages"), el("ul", { class: "plain-list" }, result.nearest.map((item) => el("li", {}, postLink(item, item.matching?.[0] ?? ""), dated(item.date), item.matching?.length ? el("p", { class: "quiet", dir: "auto" }, item.matching[0]) : null)))) : null,
    result.passages.length && !result.refused ? passagesOf(turn, result.passages, isBare) : null,
    result.model ? quiet(`Written by ${result.model}. Every citation was checked.`) : null,
  ];
}

/** The answer's paragraphs, with [1] as links to its citations; everything else is plain text. */
function wording(turn, text, cited) {
  const known = new Map(cited.map((item) => [String(item.number), item]));
  return el("div", { class: "answer-text", dir: "auto" }, text.split(/\n{2,}/).filter((part) => part.trim()).map((part) => el("p", {}, part.split(/(\[\d+\])/).map((piece) => {
    const number = /^\[(\d+)\]$/.exec(piece)?.[1];
    if (!number) return piece;
    if (!known.has(number)) return el("sup", {}, number);
    return el("sup", {}, el("a", { href: `#${citationId(turn, number)}`, "aria-label": `Citation ${number}: ${known.get(number).title}`, on: { click: (event) => {
      event.preventDefault(); // the address stays the page's
      const target = document.getElementById(citationId(turn, number));
      target?.scrollIntoView({ block: "center" });
      target?.querySelector("a")?.focus({ preventScroll: true });
    } } }, number));
  }))));
}

const citationId = (turn, number) => `turn-${turn.id}-${number}`;

function citations(turn, cited) {
  return el("ol", { class: "citations", "aria-label": "Citations" }, cited.map((item) => el("li", { id: citationId(turn, item.number), value: item.number },
    el("p", { class: "of" }, postLink(item, item.quote), dated(item.date), WHOSE[item.whose] ? [" ", tag(WHOSE[item.whose])] : null),
    el("blockquote", { dir: "auto" }, el("p", {}, `“${item.quote}”`)))));
}

function passagesOf(turn, passages, isOpen) {
  if (!passages.length) return null;
  const listed = (some) => el("ul", { class: "passages-found" }, some.map((item) => el("li", {},
    el("p", { class: "of" }, postLink(item, best(item)), item.heading && item.heading !== item.title ? el("span", { class: "quiet" }, ` ${item.heading}`) : null, dated(item.date), WHOSE[item.whose] ? [" ", tag(WHOSE[item.whose])] : null),
    passageText(item))));
  const more = passages.slice(AT_ONCE);
  const node = folded(turn.answer ? `${count(passages.length, "passage")} found` : `Reading ${count(passages.length, "passage")}`,
    listed(passages.slice(0, AT_ONCE)), more.length ? folded(`${count(more.length, "more passage")}`, listed(more)) : null);
  node.open = turn.opened ?? isOpen;
  node.querySelector("summary").addEventListener("click", () => { turn.opened = !node.open; });
  return node;
}

/** The passage with the sentences that match marked; long ones are cut to what is around them. */
function passageText(item) {
  const marks = (item.matching ?? []).filter((text) => text && item.text.includes(text));
  const text = item.text, paragraphs = text.split(/\n{2,}/).filter((part) => part.trim());
  const wanted = marks.length ? paragraphs.filter((part) => marks.some((mark) => part.includes(mark))) : paragraphs.slice(0, 2);
  const shown = (wanted.length ? wanted : paragraphs.slice(0, 2)).map((part) => el("p", {}, marked(part, marks)));
  const rest = paragraphs.length - shown.length;
  return el("blockquote", { dir: "auto", class: item.whose === "own" ? "" : "theirs" }, shown, rest > 0 ? folded("Whole passage", paragraphs.map((part) => el("p", {}, marked(part, marks)))) : null);
}

function marked(text, marks) {
  for (const mark of marks) {
    const at = text.indexOf(mark);
    if (at >= 0) return [text.slice(0, at), el("mark", {}, mark), ...[marked(text.slice(at + mark.length), marks)].flat()];
  }
  return [text];
}

const best = (item) => item.matching?.[0] ?? item.text.split("\n").map((line) => line.replace(/^> ?/, "")).find((line) => line.trim()) ?? "";
const dated = (date) => (date ? el("span", { class: "quiet" }, ` ${day(date)}`) : null);
const postLink = (item, words) => (item.document ? link(address("corpus", ["post", item.document], { quote: words.slice(0, 400) }), title(item.title)) : title(item.title));

function announcement(turn) {
  if (turn.problem) return sentence(turn.problem.message);
  if (turn.isStopped) return "Stopped";
  const result = turn.answer;
  if (result.refused) return `${result.answer} ${result.why}`;
  if (!result.answer) return `${result.why} ${count(result.passages.length, "passage")} found.`;
  return `${result.answer.replace(/\[\d+\]/g, "").slice(0, 600)} ${count(result.citations.length, "citation")}.`;
}
