// Home: five steps from a blog to a model, and the state of each; a step that is done folds to one line.

import { address, setTitle } from "/app.js";
import { add, bullets, button, checkbox, command, count, duration, el, field, fill, folded, icon, input, lines, link, masthead, p, problem, quiet, quote, row, select,
  size, totals, uniqueId, when } from "/components.js";
import { exclusive, follow, isOpen, isOpenScoring, isRunning, know, newest, progress, shareOf, start } from "/jobs.js";
import { announce, ask, toast } from "/messages.js";
import { baseChoice } from "/models.js";
import { get, load, ofBlog, patch, post, remove, upload } from "/server.js";

const REREAD = ["workspace", "sources", "blog", "model", "models"];

export async function show(element) {
  const state = { home: null, refresh };
  const head = el("div"), list = el("ol", { class: "steps" });
  let steps = [], wording = "", reading = null, isStale = false;
  // From the beginning, so that nothing changes unheard while the first answer is on its way.
  const leave = follow({
    onJob: draw,
    onChange: (what) => {
      if (what.some((part) => REREAD.includes(part))) refresh().catch(() => {}); // the line at the top says that the server is gone
      for (const step of steps) step.changed(what);
    },
  });
  try {
    await reread();
  } catch (error) {
    leave();
    throw error;
  }
  steps = [blogStep, lookStep, makeStep, resultStep, useStep].map((make, i) => panel(i + 1, make(state)));
  add(list, steps.map((step) => step.node));
  add(element, head, list);
  draw();
  const look = () => document.hidden || refresh().catch(() => {}); // the blog may have changed while another window was looked at
  document.addEventListener("visibilitychange", look);
  return () => {
    leave();
    document.removeEventListener("visibilitychange", look);
  };

  async function refresh() {
    await reread();
    draw();
  }

  /** Read the state; once more if it changes meanwhile, since the answer may be older than that. */
  function reread() {
    isStale = true;
    reading ??= (async () => {
      while (isStale) {
        isStale = false;
        state.home = await get("/api/home");
        know(state.home.jobs);
      }
    })().finally(() => { reading = null; });
    return reading;
  }

  function draw() {
    if (!steps.length) return;
    const says = headingOf(state.home), news = newsOf(state.home), text = JSON.stringify([says, news?.wording]);
    if (text !== wording) {
      const focused = head.contains(document.activeElement);
      fill(head, masthead(says), news ? row(el("p", { class: "notice" }, news.wording), button(news.label, () => start(news.job), { kind: "primary small" })) : null);
      setTitle(says.heading);
      if (wording) announce(says.heading);
      if (focused) head.querySelector("h1").focus({ preventScroll: true });
      wording = text;
    }
    let isNext = true;
    for (const step of steps) isNext = step.draw(isNext);
  }
}


function headingOf({ model, blog }) {
  const job = newest("make");
  if (isRunning(job)) return { heading: model ? "Making another model" : "Making your model", lede: "You can close this page; the work goes on." };
  if (isOpen(job, model)) {
    if (job.status !== "stopped") return { heading: "The model could not be made" };
    return { heading: job.share ? `Paused at ${shareOf(job)}` : "Paused", lede: "Go on whenever you like." };
  }
  if (model) return { heading: "Your model is ready", lede: model.sentence ? "It runs on this machine. Nothing is sent anywhere." : "It runs on this machine, and has not been scored yet." };
  if (blog?.is_read) return { heading: "Ready to make your model", lede: "It takes minutes, on this machine. Nothing is sent anywhere." };
  return { heading: "A language model of your own writing", lede: "From your blog’s file, in minutes, on this machine. Nothing is sent anywhere." };
}

/** What has changed in the blog, and the job that takes it in; null where a job is at work. */
function newsOf({ model, blog, sources }) {
  if (exclusive() || !blog?.is_read) return null;
  if (blog.is_stale && sources.length) return { wording: "Your blog has changed since it was read.", label: "Read it again", job: { kind: "look" } };
  const job = { kind: "make", base: model?.base || "none", ...model?.minutes && { minutes: model.minutes } };
  return blog.new_sentence ? { wording: `${blog.new_sentence}.`, label: model.minutes ? `Learn them: ${count(model.minutes, "minute")}` : "Learn them", job } : null;
}

/** A step: `draw(isNext)` shows it and says whether the one after it can be next. */
function panel(number, step) {
  const id = uniqueId("step"), mark = el("span", { class: "mark", "aria-hidden": "true" }), summary = el("span", { class: "summary" });
  const toggle = el("button", { type: "button", class: "plain", "aria-controls": id, on: { click: () => open(body.hidden) } }, step.heading);
  const heading = el("h2", {}, toggle), body = el("div", { class: "step-body", id }, step.node);
  const node = el("li", { class: "step" }, el("div", { class: "step-head" }, mark, heading, summary), body);
  let last = "";

  function open(isOpen) {
    body.hidden = !isOpen;
    toggle.setAttribute("aria-expanded", String(isOpen));
    node.classList.toggle("open", isOpen);
    if (isOpen) step.opened?.();
  }

  return {
    node,
    changed: (what) => step.changed?.(what),
    draw(isNext) {
      const state = step.state(isNext), wanted = step.isOpen?.() ?? state === "now";
      const wording = state === "done" ? step.summary() : state === "later" ? step.later ?? "" : "";
      node.dataset.state = state;
      toggle.disabled = state === "later";
      fill(mark, state === "done" ? icon("check") : String(number));
      if (summary.textContent !== wording) fill(summary, wording);
      step.draw(state);
      if (last !== `${state} ${wanted}`) open(wanted && state !== "later"); // else as the reader has left it
      last = `${state} ${wanted}`;
      return state === "done";
    },
  };
}

// ---- steps 1 and 2 ----------------------------------------------------------------------------

const KINDS = "Publii, WordPress, Ghost, Substack, Medium, Blogger, Markdown, Notion, Day One, Word, LibreOffice, EPUB, sent mail, Mastodon, Bluesky, X or plain text; zip files are fine.";
const TAKES = [["drafts", "Drafts"], ["pages", "Pages, such as “About”"], ["hidden", "Hidden posts"], ["private", "Private posts"]];

function blogStep(state) {
  const sources = el("div"), found = el("div"), sending = el("div", { role: "status" });
  const fetching = progress();
  const file = el("input", { type: "file", multiple: true, hidden: true, on: { change: () => { send([...file.files]); file.value = ""; } } });
  const zone = el("div", { class: "drop" }, icon("drop"), el("p", { class: "title" }, "Drop your blog’s file here"), row(button("Choose a file", () => file.click(), { kind: "primary" }), file), quiet(KINDS));
  const path = input({ placeholder: "/home/me/Documents/Publii/sites/my-blog", spellcheck: "false" });
  const site = input({ type: "url", placeholder: "https://blog.example", inputmode: "url" });
  const fetchIt = button("Fetch", null, { type: "submit", disabled: true });
  site.addEventListener("input", () => {
    fetchIt.disabled = !hostOf(site.value);
    fetchIt.textContent = hostOf(site.value) ? `Fetch from ${hostOf(site.value)}` : "Fetch";
  });
  const others = folded("A folder, or a blog’s address",
    form(() => addPath(path.value.trim()), field("Folder or file on this machine", path), button("Add", null, { type: "submit" })),
    form(() => start({ kind: "fetch", url: site.value.trim(), host: hostOf(site.value) }), field("Feed or site address", site, "Nothing is fetched before you press the button, and nothing from any other host."), fetchIt));
  let asked = null;

  for (const [event, isOver] of [["dragenter", true], ["dragover", true], ["dragleave", false], ["drop", false]]) {
    zone.addEventListener(event, (moved) => {
      moved.preventDefault();
      zone.classList.toggle("over", isOver);
      if (event !== "drop") return;
      const isFolder = [...moved.dataTransfer.items].some((item) => item.webkitGetAsEntry?.()?.isDirectory);
      if (isFolder) toast("This is a folder. Drop it as a zip file, or type its path below.");
      else send([...moved.dataTransfer.files]);
    });
  }

  async function send(files) {
    for (const each of files) {
      const ends = new AbortController(), gauge = el("progress", { class: "bar", max: "1", value: 0, "aria-label": `Reading ${each.name}` });
      fill(sending, gauge, row(p(`Reading ${each.name}, ${size(each.size)}`), button("Stop", () => ends.abort(), { kind: "small" })));
      try {
        await upload(`/api/uploads?name=${encodeURIComponent(each.name)}`, each, (share) => { gauge.value = share; }, ends.signal);
        fill(sending);
      } catch (error) {
        fill(sending, problem(error));
        return;
      }
    }
    await read();
  }

  async function addPath(wanted) {
    if (!wanted) return path.focus();
    try {
      await post("/api/sources", { path: wanted });
      path.value = "";
      fill(sending);
      await read();
    } catch (error) {
      fill(sending, problem(error));
    }
    return undefined;
  }

  async function read() {
    await start({ kind: "look" });
    await state.refresh();
  }

  async function drop(source) {
    try {
      await remove(`/api/sources/${encodeURIComponent(source.id)}`);
      await state.refresh();
      if (state.home.sources.length) await start({ kind: "look" });
    } catch (error) {
      toast(error);
    }
  }

  async function search() {
    asked ??= get("/api/sources").catch(() => ({ found: [] }));
    const sites = (await asked).found;
    fill(found, sites.length ? [el("h3", {}, "Found on this machine"), el("ul", { class: "rows" }, sites.map((item) => el("li", {}, el("div", {}, el("strong", {}, item.name), quiet([item.label, item.path].filter(Boolean).join(" · "))),
      button("Add", () => addPath(item.path), { label: `Add ${item.name}` }))))] : null);
  }

  const draw = () => {
    const all = state.home.sources;
    fill(sources, all.length ? el("ul", { class: "rows" }, all.map((item) => el("li", {}, el("div", {}, el("strong", {}, item.name), quiet([item.label, item.bytes ? size(item.bytes) : "", item.how === "path" ? item.path : ""].filter(Boolean).join(" · ")),
      item.problem ? problem({ message: item.problem }) : null), button("Remove", () => drop(item), { kind: "small" })))) : null);
    zone.querySelector(".title").textContent = all.length ? "Drop another file here to add it" : "Drop your blog’s file here";
    fetching.update(newest("fetch"));
  };

  return {
    heading: "Your blog", node: el("div", { class: "stack" }, sources, zone, sending, found, others, fetching), draw, opened: search,
    state: () => (state.home.sources.length || state.home.blog?.is_read ? "done" : "now"),
    summary: () => state.home.sources.map((item) => item.name).join(", ") || state.home.name,
    changed(what) {
      if (what.includes("sources")) asked = null;
    },
  };
}

function lookStep(state) {
  const reading = progress(), body = el("div", { class: "stack" });
  let shown = "";
  const blog = () => state.home.blog;
  const isReading = () => isRunning(newest("look"));

  async function choose(name, isOn) {
    try {
      await patch("/api/blog", { [name]: isOn });
      await start({ kind: "look" });
    } catch (error) {
      toast(error);
    }
  }

  function draw() {
    const job = newest("look");
    reading.update(blog()?.is_read && job?.status === "done" ? null : job);
    const text = JSON.stringify([blog(), isReading(), Boolean(job)]);
    if (text === shown) return;
    shown = text;
    const result = blog();
    if (!result?.is_read) return void fill(body, isReading() ? null : job ? null : row(button("Read my blog", () => start({ kind: "look" }), { kind: "primary" }), quiet("It takes seconds, and changes nothing in your files.")));
    fill(body, result.problem ? problem({ message: result.problem }) : null, el("div", { class: "lines" }, result.lines.map((line) => p(line))),
      row(result.decisions ? el("a", { class: "button", href: address("posts", ["decisions"]) }, `Decide about ${count(result.decisions, "post")}`) : null, link(address("posts", ["report"]), "Read the full report"), link(address("posts"), "All posts")),
      folded("What is read", el("div", { class: "checks" }, TAKES.map(([name, label]) => checkbox(label, result.flags?.[name] ?? false, (isOn) => choose(name, isOn)))), row(button("Read it again", () => start({ kind: "look" }), { kind: "small" }))));
  }

  return {
    heading: "What is in it", node: el("div", { class: "stack" }, reading, body), draw, later: "What is yours, what repeats, what can be learned",
    state: (isNext) => (blog()?.is_read && !isReading() ? "done" : isNext ? "now" : "later"),
    isOpen: () => !state.home.model && (isReading() || !newest("make")),
    summary: () => [blog().texts, count(blog().words, "word"), blog().new_sentence].filter(Boolean).join(", "),
  };
}

const form = (run, ...parts) => el("form", { class: "inline", on: { submit: (event) => { event.preventDefault(); run(); } } }, parts);

function hostOf(text) {
  try {
    const parsed = new URL(text.trim());
    return /^https?:$/.test(parsed.protocol) ? parsed.host : "";
  } catch {
    return "";
  }
}

// ---- step 3 -----------------------------------------------------------------------------------

/** The trainings to choose from, the shortest first: as often as a starting model reads the posts. */
function trainings({ readings }) {
  return readings.map(({ times, minutes, total }, i) => {
    const isLast = i === readings.length - 1, isOnce = times >= 0.9 && times < 1.5;
    const label = isLast ? "As good as it gets" : isOnce ? "Once through" : "A first taste";
    return { label, times, minutes, time: duration(60 * Math.max(1, total)), isUsual: isLast ? readings.length === 1 : isOnce, remark: `reads ${reading(times)}` };
  });
}

/** "your posts once", "a third of your posts", "your posts 2.5 times". */
function reading(times) {
  if (times >= 0.9) return `your posts ${times < 1.2 ? "once" : `${times.toFixed(1)} times`}`;
  if (times >= 0.67) return "most of your posts";
  const part = Math.max(2, Math.round(1 / times));
  return `${{ 2: "half", 3: "a third", 4: "a quarter" }[part] ?? `1/${part}`} of your posts`;
}

function makeStep(state) {
  const running = progress({ isStaged: true }), body = el("div"), details = folded("For the curious");
  let offer = null, shown = "", leaveDetails = null, isAgain = false;
  details.hidden = true;
  details.addEventListener("toggle", async () => {
    leaveDetails?.();
    leaveDetails = null;
    if (!details.open) return;
    const inside = el("div");
    fill(details, details.querySelector("summary"), inside);
    leaveDetails = (await load("/details.js")).details(inside);
  });

  function draw(status) {
    const job = newest("make"), isOver = !job || job.status === "done";
    running.update(isOver ? null : job);
    details.hidden = !job && !state.home.model;
    const next = `${status} ${job?.id} ${job?.status} ${isAgain} ${Boolean(offer)}`;
    if (next === shown || status === "later") return;
    shown = next;
    const wantsForm = isOver ? !state.home.model || isAgain : false;
    if (wantsForm && !offer) return void options();
    fill(body, wantsForm ? formOf() : isRunning(job) ? null : row(button(isOver ? "Make another model" : "Start over with other choices", again, { kind: isOver ? "" : "small" })),
      isAgain && !isOver ? formOf() : null);
  }

  function again() {
    isAgain = true;
    shown = "";
    if (!offer) return void options();
    fill(body, formOf());
    body.querySelector("input:checked")?.focus();
    return undefined;
  }

  async function options() {
    try {
      offer = await get("/api/models");
      fill(body, formOf());
      if (isAgain) body.querySelector("input:checked")?.focus();
    } catch (error) {
      fill(body, problem(error, options));
    }
  }

  function formOf() {
    if (!offer.can_train) return problem({ message: "training needs PyTorch, which is not installed", hint: 'install it with pip install "ownwords[train]", then start ownwords again' });
    const base = baseChoice(offer, async () => { offer = await get("/api/models"); return offer; }, () => drawTimes());
    const cards = el("fieldset", { class: "cards" }), group = uniqueId("time");
    let chosen = null;
    const minutes = input({ type: "number", min: "0.1", step: "any", inputmode: "decimal", placeholder: "as chosen above" });
    drawTimes();
    function drawTimes() {
      const all = trainings(offer.bases.find((item) => item.name === base.value()) ?? offer.bases.find((item) => item.is_usual) ?? { readings: [] });
      chosen = all.find((item) => item.isUsual) ?? all.at(-1);
      fill(cards, el("legend", {}, "How often may it read your posts?"), all.map((item) => el("label", {},
        el("input", { type: "radio", name: group, checked: item === chosen, on: { change: () => { chosen = item; minutes.value = ""; } } }),
        el("span", {}, el("strong", {}, item.label), el("span", {}, item.time), el("small", {}, item.remark)))));
    }
    const name = input({ maxlength: "80", placeholder: "chosen for you" });
    return el("form", { class: "stack", on: { submit: async (event) => {
      event.preventDefault();
      const job = await start({ kind: "make", ...(Number(minutes.value) || chosen) && { minutes: Number(minutes.value) || chosen.minutes }, base: base.value(), ...name.value.trim() && { name: name.value.trim() } });
      if (!job) return;
      isAgain = false;
      state.refresh();
    } } }, cards, base, folded("More", el("div", { class: "two" }, field("Name of the model", name), field("Minutes", minutes, "For reading and training; scoring takes up to a third more."))),
    row(button("Start", null, { kind: "primary", icon: "start", type: "submit" }),
      quiet(state.home.model ? "The models you have stay." : "You can stop at any time and go on later.")));
  }

  return {
    heading: "Make my model", node: el("div", { class: "stack" }, running, body, details), draw, later: "Minutes, on this machine",
    state: (isNext) => (isOpen(newest("make"), state.home.model) ? "now" : state.home.model ? "done" : isNext ? "now" : "later"),
    isOpen: () => isOpen(newest("make"), state.home.model) || isAgain || !state.home.model,
    summary: () => [state.home.model.name, state.home.model.minutes ? count(state.home.model.minutes, "minute") : ""].filter(Boolean).join(", "),
    changed(what) {
      if (what.includes("bases")) offer = null;
    },
  };
}

// ---- steps 4 and 5 ----------------------------------------------------------------------------

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

function resultStep(state) {
  const scoring = progress({ isStaged: false }), body = el("div", { class: "stack" }), advice = el("div", { class: "row" });
  let shown = "";

  function draw(status) {
    const job = newest("score"), model = state.home.model;
    scoring.update(isOpenScoring(job, model) ? job : null);
    const isBusy = isRunning(job) || isRunning(newest("make")), text = JSON.stringify([model, isBusy]);
    if (text === shown || status === "later" || !model) return;
    shown = text;
    advise(model);
    fill(body, model.sentence ? el("p", { class: ["verdict", model.tone] }, model.sentence) : p("This model has not been scored yet."), advice,
      el("div", { class: "samples three" }, model.samples.map((item) => quote(beginning(item.text), { cite: item.beginning.replace(/ …$/, "\u00a0…"), class: "tuned" }))),
      row(model.sentence ? el("a", { class: "button", href: address("models", [model.name]) }, "See the scorecard") : isBusy ? null : button("Score it", () => start({ kind: "score" })),
        el("a", { class: "button", href: address("write") }, "Let it write more"),
        model.sentence ? el("a", { class: "button", href: ofBlog("/api/score/page"), download: `${model.name}.html` }, "Save as a page to share") : null),
      model.limits.length ? folded("What it is not good for", bullets(model.limits)) : null,
      model.figures.length ? folded("For the curious", totals(model.figures)) : null);
  }

  /** How often it has read the posts, and the one step that helps most. */
  async function advise(model) {
    const { bases } = await get("/api/models").catch(() => ({ bases: [] }));
    const isShort = model.read !== null && model.read < 0.9;
    const base = bases.find((item) => [item.name, item.title].includes(model.base)), better = bases.find((item) => item.is_recommended && item !== base && !item.is_too_large);
    const once = isShort && base ? trainings(base).find((item) => item.times >= 0.9) : null;
    const best = better?.is_installed ? trainings(better).at(-1) : null;
    const make = (from, { minutes }) => button(once ? `Read them once: ${once.time}` : `Make one from ${better.title}: ${best.time}`, () => start({ kind: "make", minutes, base: from.name }));
    fill(advice, model.read === null ? null : p(`It has read ${reading(model.read)}.`),
      isRunning(newest("make")) ? null : once ? make(base, once)
        : best ? make(better, best)
          : better ? el("a", { class: "button", href: address("models") }, `Use a starting model that writes better sentences: ${size(better.bytes)}`) : null);
  }

  return {
    heading: "Result", node: el("div", { class: "stack" }, scoring, body), draw, later: "How good it is, in one sentence",
    state: () => (state.home.model ? "done" : "later"), isOpen: () => Boolean(state.home.model) && !isRunning(newest("make")),
    summary: () => `${state.home.model.name}${state.home.model.sentence ? "" : ": not scored yet"}`,
  };
}

function useStep(state) {
  const node = el("div", { class: "stack" }), files = el("div", { class: "stack" }), connect = el("div", { class: "stack" }), exporting = progress();
  // Made once, so that what the reader has unfolded stays open when the step is drawn anew.
  const unfolding = [folded("Take it with you", files), folded("Use it from other programs", connect)];
  let shown = "", isKnown = false;
  const way = (part, name, wording) => el("a", { class: "way", href: address(part) }, icon(part), el("strong", {}, name), el("span", {}, wording));

  function draw(status) {
    exporting.update(newest("export")?.status === "done" ? null : newest("export"));
    const text = `${status} ${state.home.model?.name}`;
    if (text === shown || status === "later") return;
    shown = text;
    fill(node, el("div", { class: "ways" }, way("write", "Write", "Turn notes into a text, check a draft, or let your model go on."), way("ask", "Ask", "What did I write about …? With quotations."), way("models", "Models", "Compare your models, or go back to an earlier one.")),
      exporting, ...unfolding);
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
  const [first] = options;
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
