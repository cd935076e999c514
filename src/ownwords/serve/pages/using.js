// Steps 4 and 5: what has come out, and what to do with it.

import { address } from "/app.js";
import { bullets, button, command, el, field, fill, folded, icon, lines, link, p, quiet, quote, row, select, size, totals, when } from "/components.js";
import { isRunning, newest, start } from "/jobs.js";
import { ask, toast } from "/messages.js";
import { progress } from "/progress.js";
import { get, ofBlog, remove } from "/server.js";

const SAMPLE_WORDS = 70, SAMPLE_LINES = 6;
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
  const scoring = progress({ isStaged: false }), body = el("div", { class: "stack" });
  let shown = "";

  function draw(status) {
    const job = newest("score"), model = state.home.model;
    scoring.update(job?.status === "done" ? null : job);
    const text = JSON.stringify([model, isRunning(job)]);
    if (text === shown || status === "later" || !model) return;
    shown = text;
    const measure = (label, more) => (isRunning(job) || isRunning(newest("make")) ? null : button(label, () => start({ kind: "score", more })));
    if (!model.sentence) return void fill(body, p("This model has not been scored yet."), row(measure("Score it", false)));
    fill(body, el("p", { class: ["verdict", model.tone] }, model.sentence), model.figures.length ? totals(model.figures) : null,
      model.samples.length ? el("div", { class: "samples three" }, model.samples.slice(0, 3).map((item) => quote(beginning(item.text), { cite: item.beginning.replace(/ …$/, "\u00a0…"), class: "tuned" }))) : null,
      el("div", {}, el("h3", {}, "What it is not good for"), bullets(model.limits)),
      row(el("a", { class: "button", href: address("models", [model.name]) }, "See the scorecard"), measure("Write more samples", true)));
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
