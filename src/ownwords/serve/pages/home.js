// Home: five steps from a blog to a model, and the state of each; a step that is done folds to one line.

import { address, setTitle } from "/app.js";
import { add, bullets, button, checkbox, command, day, duration, el, field, fill, folded, icon, input, lines, link, masthead, p, problem, quiet, quote, row, select,
  sentence, size, totals, uniqueId, when } from "/components.js";
import { exclusive, follow, isOpen, isOpenScoring, isRunning, know, newest, progress, shareOf, start } from "/jobs.js";
import { count, fixed, said, t } from "/language.js";
import { announce, ask, toast } from "/messages.js";
import { baseChoice, sharing } from "/models.js";
import { get, load, ofBlog, patch, post, remove, upload } from "/server.js";

const REREAD = ["sources", "blog", "model", "models"];

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
  if (isRunning(job)) return { heading: model && model.made_at < job.began ? t`Making another model` : t`Making your model`, lede: t`You can close this page; the work goes on.` };
  if (isOpen(job, model)) {
    if (job.status !== "stopped") return { heading: t`The model could not be made` };
    return { heading: job.share ? t`Paused at ${shareOf(job)}` : t`Paused`, lede: t`Go on whenever you like.` };
  }
  if (model) return { heading: t`Here is your model`, lede: model.sentence ? t`It runs on this machine. Nothing is sent anywhere.` : t`It runs on this machine, and has not been scored yet.` };
  if (blog?.is_too_little) return { heading: t`Too little text for a model`, lede: t`Add more posts or other texts of yours. What is here can be searched.` };
  if (blog?.is_read) return { heading: t`Ready to make your model`, lede: t`You choose how long it may take. It runs on this machine, and nothing is sent anywhere.` };
  return { heading: t`A language model of your own writing`, lede: t`Made from your blog in a few minutes, on this machine. Nothing is sent anywhere.` };
}

/** What has changed in the blog, and the job that takes it in; null where a job is at work. */
function newsOf({ model, blog, sources }) {
  if (exclusive() || !blog?.is_read) return null;
  if (blog.is_stale && sources.length) return { wording: t`Your blog has changed since it was read.`, label: t`Read it again`, job: { kind: "look" } };
  const job = { kind: "make", base: model?.base || "none", ...model?.minutes && { minutes: model.minutes } };
  return blog.new_sentence ? { wording: sentence(blog.new_sentence), label: model.minutes ? t`Train on them: ${duration(60 * model.minutes)}` : t`Train on them`, job } : null;
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

const TAKES = [["drafts", t`Drafts`], ["pages", t`Pages, such as “About”`], ["hidden", t`Hidden posts`], ["private", t`Private posts`]];

function blogStep(state) {
  const sources = el("div"), found = el("div"), sending = el("div", { role: "status" });
  const fetching = progress(), readable = quiet();
  const file = el("input", { type: "file", multiple: true, hidden: true, on: { change: () => { send([...file.files]); file.value = ""; } } });
  const zone = el("div", { class: "drop" }, icon("drop"), el("p", { class: "title" }, t`Drop your blog’s file here`), row(button(t`Choose a file`, () => file.click(), { kind: "primary" }), file), readable);
  const path = input({ placeholder: "/home/me/Documents/Publii/sites/my-blog", spellcheck: "false" });
  const site = input({ type: "url", placeholder: "https://blog.example", inputmode: "url" });
  const fetchIt = button(t`Fetch`, null, { type: "submit", disabled: true });
  site.addEventListener("input", () => {
    fetchIt.disabled = !hostOf(site.value);
    fetchIt.textContent = hostOf(site.value) ? t`Fetch from ${hostOf(site.value)}` : t`Fetch`;
  });
  const others = folded(t`A folder, or a blog’s address`,
    form(() => addPath(path.value.trim()), field(t`Folder or file on this machine`, path), button(t`Add`, null, { type: "submit" })),
    form(() => start({ kind: "fetch", url: site.value.trim(), host: hostOf(site.value) }), field(t`Feed or site address`, site, t`Nothing is fetched before you press the button, and nothing from other sites.`), fetchIt));
  let asked = null;

  for (const [event, isOver] of [["dragenter", true], ["dragover", true], ["dragleave", false], ["drop", false]]) {
    zone.addEventListener(event, (moved) => {
      moved.preventDefault();
      zone.classList.toggle("over", isOver);
      if (event !== "drop") return;
      const isFolder = [...moved.dataTransfer.items].some((item) => item.webkitGetAsEntry?.()?.isDirectory);
      if (isFolder) toast(t`This is a folder. Drop it as a zip file, or type its path below.`);
      else send([...moved.dataTransfer.files]);
    });
  }

  /** Take in files one by one: each is compared with what was read before it, which shows a new version of the same blog. */
  async function send(files) {
    for (const each of files) {
      const ends = new AbortController(), gauge = el("progress", { class: "bar", max: "1", value: 0, "aria-label": t`Reading ${each.name}` });
      fill(sending, gauge, row(p(t`Reading ${each.name}, ${size(each.size)}`), button(t`Stop`, () => ends.abort(), { kind: "small" })));
      try {
        await readingEnded();
        const source = await upload(`/api/uploads?name=${encodeURIComponent(each.name)}`, each, (share) => { gauge.value = share; }, ends.signal);
        fill(sending);
        await read(source);
      } catch (error) {
        fill(sending, problem(error));
        break;
      }
    }
  }

  async function addPath(wanted) {
    if (!wanted) return path.focus();
    try {
      const source = await post("/api/sources", { path: wanted });
      path.value = "";
      fill(sending);
      await read(source);
    } catch (error) {
      fill(sending, problem(error));
    }
    return undefined;
  }

  /** Read the blog with this source; a new version of another waits for the user's decision. */
  async function read(source) {
    if (!source.version) await look();
    await state.refresh();
  }

  async function readingEnded() {
    while (isRunning(newest("look"))) await new Promise((resume) => setTimeout(resume, 300));
  }

  /** Read the blog, after a reading that began before the last change. */
  async function look() {
    await readingEnded();
    await start({ kind: "look" });
  }

  async function decide(source, replaces) {
    try {
      await post(`/api/sources/${encodeURIComponent(source.id)}/decide`, { replaces });
      await look();
      await state.refresh();
    } catch (error) {
      toast(error);
    }
  }

  /** What a new version would change, and the choice. */
  function offerOf(source) {
    const { of, new: added, changed, same, gone } = source.version;
    const old = state.home.sources.find((item) => item.path === of)?.name ?? of;
    const parts = [added && t`${count(added)} new`, changed && t`${count(changed)} changed`, same && t`${count(same)} as before`].filter(Boolean);
    return el("div", { class: "notice stack" }, p(el("strong", {}, t`A new version of ${old}?`), " ", parts.join(", "), "."), gone ? p(t`${count(gone, "post")} of the old one would go: this file does not have them.`) : null,
      row(button(t`Replace`, () => decide(source, true), { kind: gone ? "small" : "primary small" }), button(t`Keep both`, () => decide(source, false), { kind: "small" }), button(t`Cancel`, () => drop(source), { kind: "small" })),
      quiet(t`Posts keep what you decided about them.`));
  }

  async function drop(source) {
    try {
      await remove(`/api/sources/${encodeURIComponent(source.id)}`);
      await state.refresh();
      if (!source.version && state.home.sources.some((item) => !item.version)) await look();
    } catch (error) {
      toast(error);
    }
  }

  async function search() {
    asked ??= get("/api/sources").catch(() => ({ found: [], kinds: [] }));
    const { found: sites, kinds } = await asked;
    fill(readable, kinds.length ? t`${kinds.map(said).join(", ")}; zip files are fine.` : null);
    fill(found, sites.length ? [el("h3", {}, t`Found on this machine`), el("ul", { class: "rows" }, sites.map((item) => el("li", {}, el("div", {}, el("strong", {}, item.name), quiet([said(item.label), item.path].filter(Boolean).join(" · "))),
      button(t`Add`, () => addPath(item.path), { label: t`Add ${item.name}` }))))] : null);
  }

  const draw = () => {
    const all = state.home.sources;
    fill(sources, all.length ? el("ul", { class: "rows" }, all.map((item) => el("li", {}, el("div", {}, el("strong", {}, item.name), quiet([said(item.label), item.bytes ? size(item.bytes) : "", item.read_at && !item.version ? t`read ${when(item.read_at)}` : "", item.newest_day ? t`newest post of ${day(item.newest_day)}` : "", item.how === "path" ? item.path : ""].filter(Boolean).join(" · ")),
      item.problem ? problem({ message: item.problem }) : null, item.version ? offerOf(item) : null), item.version ? null : button(t`Remove`, () => drop(item), { kind: "small", label: t`Remove ${item.name}` })))) : null);
    zone.querySelector(".title").textContent = all.length ? t`Drop another file here to add it` : t`Drop your blog’s file here`;
    fetching.update(newest("fetch"));
  };

  return {
    heading: t`Your blog`, node: el("div", { class: "stack" }, sources, zone, sending, found, others, fetching), draw, opened: search,
    state: () => (state.home.sources.some((item) => item.version) ? "now" : state.home.sources.length || state.home.blog?.is_read ? "done" : "now"),
    summary: () => state.home.name,
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
    if (!result?.is_read) return void fill(body, isReading() ? null : job ? null : row(button(t`Read my blog`, () => start({ kind: "look" }), { kind: "primary" }), quiet(t`It takes seconds and does not change your files.`)));
    fill(body, result.problem ? problem({ message: result.problem }) : null, el("div", { class: "lines" }, result.lines.map((line) => p(said(line)))),
      row(result.decisions ? el("a", { class: "button", href: address("posts", ["decisions"]) }, t`Decide about ${count(result.decisions, "post")}`) : null, link(address("posts", ["report"]), t`Read the full report`), link(address("posts"), t`All posts`)),
      folded(t`What is read`, el("div", { class: "checks" }, TAKES.map(([name, label]) => checkbox(label, result.flags?.[name] ?? false, (isOn) => choose(name, isOn)))), row(button(t`Read it again`, () => start({ kind: "look" }), { kind: "small" }))));
  }

  return {
    heading: t`What is in it`, node: el("div", { class: "stack" }, reading, body), draw, later: t`What is yours, what repeats, what a model can learn from`,
    state: (isNext) => (blog()?.is_read && !isReading() ? "done" : isNext ? "now" : "later"),
    isOpen: () => !state.home.model && (isReading() || !newest("make")),
    summary: () => [said(blog().texts), count(blog().words, "word"), said(blog().new_sentence)].filter(Boolean).join(", "),
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
    const label = isLast ? t`Until it learns no more` : isOnce ? t`Once through` : t`A quick try`;
    return { label, times, minutes, time: duration(60 * Math.max(1, total)), isUsual: isLast ? readings.length === 1 : isOnce, remark: t`reads ${reading(times)}` };
  });
}

/** "your posts once", "a third of your posts", "your posts 2.5 times". */
function reading(times) {
  if (times >= 0.9) return times < 1.2 ? t`your posts once` : t`your posts ${fixed(times, 1)} times`;
  if (times >= 0.67) return t`most of your posts`;
  if (times < 0.01) return t`less than a hundredth of your posts`;
  const part = Math.max(2, Math.round(1 / times));
  return { 2: t`half of your posts`, 3: t`a third of your posts`, 4: t`a quarter of your posts` }[part] ?? t`1/${part} of your posts`;
}

function makeStep(state) {
  const running = progress({ isStaged: true }), body = el("div"), details = folded(t`For the curious`);
  let offer = null, shown = "", leaveDetails = null, isAgain = false, turn = 0;
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
    if ((wantsForm || isAgain) && !offer) return void options(status);
    fill(body, wantsForm ? formOf() : isRunning(job) ? null : row(button(isOver ? t`Make another model` : t`Start over with other choices`, again, { kind: isOver ? "" : "small" })),
      isAgain && !isOver ? formOf() : null);
  }

  async function again() {
    isAgain = true;
    shown = "";
    await (offer ? draw("now") : options("now"));
    body.querySelector("input:checked")?.focus();
  }

  async function options(status) {
    const now = (turn += 1);
    try {
      const answer = await get("/api/models");
      if (now !== turn) return; // the blog has changed since, and a newer answer is on its way
      offer = answer;
      shown = "";
      draw(status);
    } catch (error) {
      if (now === turn) fill(body, problem(error, () => options(status)));
    }
  }

  function formOf() {
    if (!offer.can_train) return problem({ message: t`training needs PyTorch, which is not installed`, hint: t`\`ownwords doctor\` names the command that installs it; then start ownwords again` });
    const base = baseChoice(offer, async () => { offer = await get("/api/models"); return offer; }, () => drawTimes());
    const cards = el("fieldset", { class: "cards" }), group = uniqueId("time");
    let chosen = null, offered = null;
    const minutes = input({ type: "number", min: "0.1", step: "any", inputmode: "decimal", placeholder: t`as chosen above` });
    drawTimes();
    function drawTimes() {
      offered = offer.bases.find((item) => item.name === base.value()) ?? offer.bases.find((item) => item.is_usual) ?? null;
      const all = trainings(offered ?? { readings: [] });
      chosen = all.find((item) => item.isUsual) ?? all.at(-1);
      fill(cards, el("legend", {}, t`How often may it read your posts?`), all.map((item) => el("label", {},
        el("input", { type: "radio", name: group, checked: item === chosen, on: { change: () => { chosen = item; minutes.value = ""; } } }),
        el("span", {}, el("strong", {}, item.label), el("span", {}, item.time), el("small", {}, item.remark)))));
    }
    const name = input({ maxlength: "80", placeholder: t`chosen for you` });
    return el("form", { class: "stack", on: { submit: async (event) => {
      event.preventDefault();
      const own = Number(minutes.value), wanted = own || chosen?.minutes;
      // What the card stands for begins; with minutes of their own, the best that these allow.
      const job = await start({ kind: "make", ...wanted && { minutes: wanted }, base: base.value() || (own ? "" : offered?.name ?? ""), ...name.value.trim() && { name: name.value.trim() } });
      if (!job) return;
      isAgain = false;
      state.refresh();
    } } }, cards, base, folded(t`More`, el("div", { class: "two" }, field(t`Name of the model`, name), field(t`Minutes`, minutes, t`For reading and training. Scoring takes up to a third more time.`))),
    row(button(t`Start`, null, { kind: "primary", icon: "start", type: "submit" }),
      quiet(state.home.model ? t`The models you have stay.` : t`You can stop at any time and go on later.`)));
  }

  return {
    heading: t`Make my model`, node: el("div", { class: "stack" }, running, body, details), draw, later: t`Minutes, on this machine`,
    state: (isNext) => (isOpen(newest("make"), state.home.model) ? "now" : state.home.model ? "done" : isNext ? "now" : "later"),
    isOpen: () => isOpen(newest("make"), state.home.model) || isAgain || !state.home.model,
    summary: () => [state.home.model.name, state.home.model.minutes ? duration(60 * state.home.model.minutes) : ""].filter(Boolean).join(", "),
    changed(what) {
      if (["bases", "blog", "sources"].some((part) => what.includes(part))) { // its times are for the posts as they were
        offer = null;
        turn += 1; // an answer that is on its way is of before, too
        shown = "";
      }
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
    const isBusy = isRunning(job) || isRunning(newest("make")), text = JSON.stringify([model, isBusy, state.home.blog?.words]);
    if (text === shown || status === "later" || !model) return;
    shown = text;
    advise(model);
    fill(body, model.sentence ? el("p", { class: ["verdict", model.tone] }, said(model.sentence)) : p(t`This model has not been scored yet.`), advice,
      el("div", { class: "samples three" }, model.samples.map((item) => quote(beginning(item.text), { cite: said(item.beginning).replace(/ …$/, "\u00a0…"), class: "tuned" }))),
      row(model.sentence ? el("a", { class: "button", href: address("models", [model.name]) }, t`See the scorecard`) : isBusy ? null : button(t`Score it`, () => start({ kind: "score" })),
        el("a", { class: "button", href: address("write") }, t`Let it write more`),
        model.sentence ? sharing(model.name) : null),
      model.limits.length ? folded(t`What it is not good for`, bullets(model.limits.map(said))) : null,
      model.figures.length ? folded(t`For the curious`, totals(model.figures, said)) : null);
  }

  /** How often it has read the posts, and the one step that helps most. */
  async function advise(model) {
    const asked = shown, { bases } = await get("/api/models").catch(() => ({ bases: [] }));
    if (shown !== asked) return; // another model is shown by now, whose advice is on its way
    const isShort = model.read !== null && model.read < 0.9;
    const base = bases.find((item) => [item.name, item.title].includes(model.base)), better = bases.find((item) => item.is_recommended && item !== base && !item.is_too_large);
    const once = isShort && base ? trainings(base).find((item) => item.times >= 0.9) : null;
    const best = better?.is_installed ? trainings(better).at(-1) : null;
    const make = (from, { minutes }) => button(once ? t`Read them once: ${once.time}` : t`Make one from ${better.title}: ${best.time}`, () => start({ kind: "make", minutes, base: from.name }));
    fill(advice, model.read === null ? null : p(t`It has read ${reading(model.read)}.`),
      isRunning(newest("make")) ? null : once ? make(base, once)
        : best ? make(better, best)
          : better ? el("a", { class: "button", href: address("models") }, t`Use a starting model that writes better sentences: ${size(better.bytes)}`) : null);
  }

  return {
    heading: t`Result`, node: el("div", { class: "stack" }, scoring, body), draw, later: t`How good it is, in one sentence`,
    state: () => (state.home.model ? "done" : "later"), isOpen: () => Boolean(state.home.model) && !isRunning(newest("make")),
    summary: () => state.home.model.sentence ? state.home.model.name : t`${state.home.model.name}: not scored yet`,
  };
}

function useStep(state) {
  const node = el("div", { class: "stack" }), files = el("div", { class: "stack" }), connect = el("div", { class: "stack" }), exporting = progress();
  // Made once, so that what the reader has unfolded stays open when the step is drawn anew.
  const unfolding = [folded(t`Take it with you`, files), folded(t`Use it from other programs`, connect)];
  let shown = "", isKnown = false;
  const way = (part, name, wording) => el("a", { class: "way", href: address(part) }, icon(part), el("strong", {}, name), el("span", {}, wording));

  function draw(status) {
    exporting.update(newest("export")?.status === "done" ? null : newest("export"));
    const text = `${status} ${state.home.model?.name}`;
    if (text === shown || status === "later") return;
    shown = text;
    fill(node, el("div", { class: "ways" }, way("write", t`Write`, t`Turn notes into a text, check a draft, or let your model continue it.`), way("ask", t`Ask`, t`What did I write about …? With quotations.`), way("models", t`Models`, t`Compare your models, or go back to an earlier one.`)),
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
    heading: t`Use it`, node, draw, opened, later: t`Write, ask, export, or call it from a program`,
    state: () => (state.home.model ? (isRunning(newest("make")) ? "done" : "now") : "later"),
    isOpen: () => Boolean(state.home.model) && !isRunning(newest("make")),
    summary: () => t`Write, ask, export`,
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
  const which = first ? select(options.map((item) => [key(item), t`${said(item.label)}, about ${size(item.bytes)}`]), key(first)) : null;
  const begin = () => {
    const { to, type } = options.find((item) => key(item) === which.value);
    start({ kind: "export", to, type });
  };
  const drop = async (item) => {
    if (!(await ask(t`Delete ${item.name}?`, quiet(t`Your model stays; you can export it again.`), { yes: t`Delete`, danger: true }))) return;
    remove(`/api/exports/${encodeURIComponent(item.name)}`).catch(toast);
  };
  return [made.length ? el("ul", { class: "rows" }, made.map((item) => el("li", {}, el("div", {}, el("strong", {}, item.name), quiet([size(item.bytes), when(item.made_at), item.path].join(" · ")),
    item.commands.map((line) => command(line))), row(item.can_download ? el("a", { class: "button small", href: ofBlog(`/api/exports/${encodeURIComponent(item.name)}`), download: item.name }, t`Download`) : null, button(t`Delete`, () => drop(item), { kind: "small", label: t`Delete ${item.name}` }))))) : null,
  which ? el("div", { class: "inline" }, field(t`Format`, which, t`GGUF runs in llama.cpp, LM Studio and Jan; the folder is for Hugging Face’s libraries.`), button(t`Export`, begin, { icon: "drop" })) : null];
}

function connection({ address: at, key, model, curl, python }) {
  return [quiet(t`An API like OpenAI’s, on this machine only. In programs, the model is called ${model}.`),
    el("dl", { class: "facts" }, el("div", {}, el("dt", {}, t`Address`), el("dd", {}, command(at))), key ? el("div", {}, el("dt", {}, t`Key`), el("dd", {}, command(key, { isSecret: true }))) : null),
    folded(t`With curl`, command(curl)), folded(t`With the openai package of Python`, command(python))];
}
