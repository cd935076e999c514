// Steps 4 and 5: what has come out, and what to do with it.

import { address } from "/app.js";
import { add, bullets, button, command, el, field, fill, folded, icon, lines, p, quiet, quote, row, select, size, totals, when } from "/components.js";
import { isOpenScoring, isRunning, newest, start, progress } from "/jobs.js";
import { announce, ask, toast } from "/messages.js";
import { ApiError, get, ofBlog, remove, stream } from "/server.js";

const SAMPLE_WORDS = 70, SAMPLE_LINES = 6;
const MORE = 3, SAMPLE_TOKENS = 100; // as many samples as are shown, and about as long
/** The first lines and words of a text. One word at a time: a pattern that repeats takes forever on a short text. */
function beginning(text) {
  const words = /\S+/g;
  for (let i = 0; i < SAMPLE_WORDS; i += 1) if (!words.test(text)) return cut(text);
  return cut(`${text.slice(0, words.lastIndex)} …`);
}

function cut(text) {
  const all = lines(text);
  return all.length > SAMPLE_LINES ? [...all.slice(0, SAMPLE_LINES), "…"] : all;
}

export function resultStep(state) {
  const scoring = progress({ isStaged: false }), body = el("div", { class: "stack" }), samples = el("div", { class: "samples three" });
  const writer = button("Write more samples", () => (writing ? writing.abort() : write()));
  let shown = "", of = "", writing = null;

  function draw(status) {
    const job = newest("score"), model = state.home.model;
    scoring.update(isOpenScoring(job, model) ? job : null);
    const isBusy = isRunning(job) || isRunning(newest("make")), text = JSON.stringify([model, isBusy]);
    if (text === shown || status === "later" || !model) return;
    shown = text;
    if (of !== JSON.stringify(model)) {
      of = JSON.stringify(model);
      writing?.abort();
      fill(samples, model.samples.map((item) => quote(beginning(item.text), { cite: item.beginning.replace(/ …$/, "\u00a0…"), class: "tuned" })));
    }
    fill(body, model.sentence ? el("p", { class: ["verdict", model.tone] }, model.sentence) : p("This model has not been scored yet."), model.figures.length ? totals(model.figures) : null,
      samples, model.limits.length ? el("div", {}, el("h3", {}, "What it is not good for"), bullets(model.limits)) : null,
      row(model.sentence ? el("a", { class: "button", href: address("models", [model.name]) }, "See the scorecard") : isBusy ? null : button("Score it", () => start({ kind: "score" })), writer));
  }

  /** Let the model write new texts beside the samples, until there are enough or the reader stops it. */
  async function write() {
    const { signal } = (writing = new AbortController());
    writer.lastChild.textContent = "Stop";
    announce("Writing samples");
    try {
      for (let i = 0; i < MORE && !signal.aborted; i += 1) await writeOne(signal);
    } catch (error) {
      if (!signal.aborted) toast(error);
    }
    announce(signal.aborted ? "Stopped" : "Samples written");
    writing = null;
    writer.lastChild.textContent = "Write more samples";
  }

  async function writeOne(signal) {
    const words = el("div", {}, "…"), node = el("blockquote", { class: "tuned", dir: "auto" }, el("cite", {}, "A new text"), words);
    let text = "";
    add(samples, node);
    try {
      for await (const { event, data } of stream("/api/write", { tokens: SAMPLE_TOKENS, seed: Math.floor(Math.random() * 2 ** 31) }, { signal })) {
        if (!samples.isConnected) writing.abort(); // another page is open
        if (event === "error") throw new ApiError(data.message, data.hint);
        if (event === "text") text += data;
        fill(words, lines(event === "end" && data.finished === "stop" ? text : `${text} …`).map((line) => p(line)));
      }
    } finally {
      if (!text) node.remove();
    }
  }

  return {
    heading: "Result", node: el("div", { class: "stack" }, scoring, body), draw, later: "How good it is, in one sentence",
    state: () => (state.home.model ? "done" : "later"), isOpen: () => Boolean(state.home.model) && !isRunning(newest("make")),
    summary: () => `${state.home.model.name}${state.home.model.sentence ? "" : ": not scored yet"}`,
  };
}

export function useStep(state) {
  const node = el("div", { class: "stack" }), files = el("div", { class: "stack" }), connect = el("div", { class: "stack" }), exporting = progress();
  let shown = "", isKnown = false;
  const way = (part, name, wording) => el("a", { class: "way", href: address(part) }, icon(part), el("strong", {}, name), el("span", {}, wording));

  function draw(status) {
    exporting.update(newest("export")?.status === "done" ? null : newest("export"));
    const text = `${status} ${state.home.model?.name}`;
    if (text === shown || status === "later") return;
    shown = text;
    fill(node, el("div", { class: "ways" }, way("write", "Write", "Begin a text; your model goes on."), way("ask", "Ask", "What did I write about …? With quotations."), way("models", "Models", "Compare your models, or go back to an earlier one.")),
      el("section", {}, el("h3", {}, "Take it with you"), files, exporting), el("section", {}, el("h3", {}, "Use it from other programs"), connect));
  }

  async function opened() {
    if (!state.home.model || isKnown) return;
    isKnown = true;
    try {
      const [made, api] = await Promise.all([get("/api/exports"), get("/api/connect")]);
      fill(files, exportsOf(made));
      fill(connect, connection(api));
    } catch (error) {
      isKnown = false;
      toast(error);
    }
  }

  return {
    heading: "Use it", node, draw, opened, later: "Write, ask, export, or call it from a program",
    state: () => (state.home.model ? (isRunning(newest("make")) ? "done" : "now") : "later"),
    isOpen: () => Boolean(state.home.model) && !isRunning(newest("make")),
    summary: () => "Write, ask, export",
    changed(what) {
      if (!what.includes("exports") && !what.includes("model")) return;
      isKnown = false;
      if (node.closest(".open")) opened();
    },
  };
}

function exportsOf({ options, exports: made }) {
  const key = (item) => `${item.to} ${item.type ?? ""}`;
  const first = options.find((item) => item.is_default) ?? options[0];
  const which = first ? select(options.map((item) => [key(item), `${item.label}, about ${size(item.bytes)}`]), key(first)) : null;
  const begin = () => {
    const { to, type } = options.find((item) => key(item) === which.value);
    start({ kind: "export", to, type });
  };
  const drop = async (item) => {
    if (!(await ask(`Delete ${item.name}?`, quiet("Your model stays; you can export it again."), { yes: "Delete", danger: true }))) return;
    remove(`/api/exports/${encodeURIComponent(item.name)}`).catch(toast);
  };
  return [made.length ? el("ul", { class: "rows" }, made.map((item) => el("li", {}, el("div", {}, el("strong", {}, item.name), quiet([size(item.bytes), when(item.made_at), item.path].join(" · ")),
    item.commands.map((line) => command(line))), row(item.can_download ? el("a", { class: "button small", href: ofBlog(`/api/exports/${encodeURIComponent(item.name)}`), download: item.name }, "Download") : null, button("Delete", () => drop(item), { kind: "small", label: `Delete ${item.name}` }))))) : null,
  which ? el("div", { class: "inline" }, field("Format", which, "GGUF runs in llama.cpp, LM Studio and Jan; the folder is for Hugging Face’s libraries."), button("Export", begin, { icon: "drop" })) : null];
}

function connection({ address: at, key, model, curl, python }) {
  return [quiet(`An API like OpenAI’s, on this machine only. Programs call the model ${model}.`),
    el("dl", { class: "facts" }, el("div", {}, el("dt", {}, "Address"), el("dd", {}, command(at))), key ? el("div", {}, el("dt", {}, "Key"), el("dd", {}, command(key, { isSecret: true }))) : null),
    folded("With curl", command(curl)), folded("With the openai package of Python", command(python))];
}
