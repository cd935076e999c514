// Home: five steps from a blog to a model, and the state of each; a step that is done folds to one line.

import { address, setTitle } from "/app.js";
import { add, announce, bar, bullets, button, checkbox, command, confirm, day, dotted, duration, el, field, fill,
  folded, form, icon, input, lines, link, loading, masthead, p, pairs, problem, quiet, quote, radios, redraw, row, rows,
  select, sentence, size, smallButton, toast, totals, uniqueId, when } from "/components.js";
import { ALWAYS, exclusive, follow, isOpen, isOpenScoring, isRunning, know, live, newest, progress, shareOf, start,
  task } from "/jobs.js";
import { count, fixed, said, t } from "/language.js";
import { baseChoice, sharing } from "/models.js";
import { get, ofBlog, patch, post, remove, upload } from "/server.js";

export async function show(element, where, left) {
  const head = el("div"), list = el("ol.steps");
  const state = { left, home: null, offer: null, refresh: null }; // what the server says, drawn by each step
  let heading = "";
  const steps = [blogStep, lookStep, makeStep, resultStep, useStep].map((make, i) => panel(i + 1, make(state)));
  state.refresh = live(left, (signal) => get("/api/home", {}, signal), (home) => {
    state.home = home;
    know(home.jobs);
    draw();
  }, ["sources", "blog", "model", "models"]);
  const readOffer = live(left, (signal) => get("/api/models", {}, signal), (offer) => {
    state.offer = offer;
    draw();
  }, ["sources", "blog", "model", "bases"]); // the times depend on the posts and the installed starting models
  follow(left, { onJob: draw });
  await state.refresh();
  add(list, steps.map((step) => step.node));
  add(element, head, list);
  readOffer();
  // The blog may have changed while another window was in front.
  document.addEventListener("visibilitychange", () => document.hidden || state.refresh(), { signal: left });

  function draw() {
    if (!state.home) return;
    const wording = headingOf(state.home), news = newsOf(state.home);
    redraw(head, [wording, news?.wording], () => [masthead(wording), news && row(el("p.notice", news.wording),
      button(news.label, () => start(news.job), { kind: "primary small" }))]);
    setTitle(wording.heading);
    if (heading && heading !== wording.heading) announce(wording.heading);
    ({ heading } = wording);
    let isNext = true;
    for (const step of steps) isNext = step.draw(isNext);
  }
}

function headingOf({ model, blog }) {
  const job = newest("make"), privacy = t`It runs on this machine, and nothing is sent anywhere.`;
  if (isRunning(job)) {
    return { heading: model && model.made_at < job.began ? t`Making another model` : t`Making your model`,
      lede: t`You can close this page: the work continues without it.` };
  }
  if (isOpen(job, model)) {
    if (job.status !== "stopped") return { heading: t`The model could not be made` };
    return { heading: job.share ? t`Paused at ${shareOf(job)}` : t`Paused`, lede: t`Resume whenever you like.` };
  }
  if (model) {
    return { heading: t`Here is your model`,
      lede: model.sentence ? privacy : t`It runs on this machine, and has not been scored yet.` };
  }
  if (blog?.is_too_little) {
    return { heading: t`Too little text for a model`,
      lede: t`Add more posts or other texts that you wrote. You can already search the ones here.` };
  }
  if (blog?.is_read) {
    return { heading: t`Ready to make your model`, lede: [t`You choose how long it may take.`, " ", privacy] };
  }
  return { heading: t`A language model of your own writing`,
    lede: t`Made from your blog in a few minutes, on this machine. Nothing is sent anywhere.` };
}

/** What has changed in the blog, and the job that reads or learns it; null while a job is running. */
function newsOf({ model, blog, sources }) {
  if (exclusive() || !blog?.is_read) return null;
  if (blog.is_stale && sources.length) {
    return { wording: t`Your blog has changed since it was read.`, label: t`Read it again`, job: { kind: "look" } };
  }
  if (!blog.new_sentence) return null;
  const { base, minutes } = model ?? {};
  const job = { kind: "make", base: base || "none", ...minutes && { minutes } };
  const label = minutes ? t`Train on them: ${duration(60 * minutes)}` : t`Train on them`;
  return { wording: sentence(blog.new_sentence), label, job };
}

/** A step: `draw(isNext)` shows it and says whether the one after it can be next. */
function panel(number, step) {
  const id = uniqueId("step"), mark = el("span.mark", { "aria-hidden": "true" }), summary = el("span.summary");
  const body = el("div.step-body", { id }, step.node);
  const toggle = button(step.heading, () => open(body.hidden), { kind: "plain" });
  const node = el("li.step", el("div.step-head", mark, el("h2", toggle), summary), body);
  let last = "";
  toggle.setAttribute("aria-controls", id);

  function open(isOpen) {
    body.hidden = !isOpen;
    toggle.setAttribute("aria-expanded", String(isOpen));
    node.classList.toggle("open", isOpen);
    if (isOpen) step.opened?.();
  }

  return {
    node,
    draw(isNext) {
      const state = step.state(isNext), isWanted = step.isOpen?.() ?? state === "now";
      const wording = { done: () => step.summary(), later: () => step.later ?? "", now: () => "" }[state]();
      node.dataset.state = state;
      toggle.disabled = state === "later";
      fill(mark, state === "done" ? icon("check") : String(number));
      if (summary.textContent !== wording) fill(summary, wording);
      step.draw(state);
      if (last !== `${state} ${isWanted}`) open(isWanted && state !== "later"); // otherwise it stays as the reader left it
      last = `${state} ${isWanted}`;
      return state === "done";
    },
  };
}

// ---- steps 1 and 2 ----------------------------------------------------------------------------

const TAKES = [["drafts", t`Drafts`], ["pages", t`Pages, such as “About”`], ["hidden", t`Hidden posts`],
  ["private", t`Private posts`]];

/** Read the blog, after a reading that began before the last change. */
async function look() {
  await readingEnded();
  return start({ kind: "look" });
}

async function readingEnded(signal = ALWAYS) {
  while (!signal.aborted && isRunning(newest("look"))) await new Promise((resume) => setTimeout(resume, 300));
}

function blogStep(state) {
  const sources = el("div"), found = el("div"), sending = el("div", { role: "status" }), sends = task(ALWAYS);
  const file = el("input", { type: "file", multiple: true, hidden: true, onchange: () => send(file) });
  const drop = el("p.title"), readable = quiet();
  const zone = el("div.drop", icon("drop"), drop,
    row(button(t`Choose a file`, () => file.click(), { kind: "primary" }), file), readable);
  const path = input({ placeholder: "/home/me/Documents/Publii/sites/my-blog", spellcheck: "false" });
  const site = input({ type: "url", placeholder: "https://blog.example", inputmode: "url", oninput() {
    fetching.disabled = !hostOf(site.value);
    fill(fetching, hostOf(site.value) ? t`Fetch from ${hostOf(site.value)}` : t`Fetch`);
  } });
  const fetching = button(t`Fetch`, null, { type: "submit", disabled: true });
  const others = folded(t`A folder, or a blog’s address`,
    form("inline", () => addPath(path.value.trim()), field(t`Folder or file on this machine`, path),
      button(t`Add`, null, { type: "submit" })),
    form("inline", () => start({ kind: "fetch", url: site.value.trim(), host: hostOf(site.value) }),
      field(t`Feed or site address`, site,
        t`Nothing is fetched until you press the button, and then only from this site.`),
      fetching));
  const search = live(state.left, (signal) => get("/api/sources", {}, signal), ({ found: sites, kinds }) => {
    fill(readable, kinds.length > 0 && t`${kinds.map(said).join(", ")}; zip files work, too.`);
    fill(found, sites.length > 0 && el("h3", t`Found on this machine`), rows(sites, (item) => ({
      name: item.name, facts: dotted(said(item.label), item.path),
      actions: button(t`Add`, () => addPath(item.path), { label: t`Add ${item.name}` }),
    })));
  }, ["sources"]);

  for (const event of ["dragenter", "dragover", "dragleave", "drop"]) {
    zone.addEventListener(event, (moved) => {
      moved.preventDefault();
      zone.classList.toggle("over", ["dragenter", "dragover"].includes(event));
      if (event !== "drop") return undefined;
      const isFolder = [...moved.dataTransfer.items].some((item) => item.webkitGetAsEntry?.()?.isDirectory);
      if (isFolder) return toast(t`This is a folder. Drop it as a zip file, or type its path below.`);
      return send(moved.dataTransfer);
    });
  }

  /** Take in files one by one: each is compared with what was read before, to find a new version of the same blog. */
  async function send(dropped) {
    const files = [...dropped.files];
    file.value = "";
    await shownHere(() => sends.run(async (signal) => {
      for (const each of files) if (!signal.aborted) await sendOne(each, signal);
    }));
  }

  async function sendOne(each, signal) {
    const gauge = bar(t`Reading ${each.name}`, 0);
    fill(sending, gauge, row(p(t`Reading ${each.name}, ${size(each.size)}`), smallButton(t`Stop`, sends.stop)));
    await readingEnded(signal);
    if (signal.aborted) return void fill(sending);
    const path = `/api/uploads?name=${encodeURIComponent(each.name)}`;
    return read(await upload(path, each, (share) => { gauge.value = share; }, signal));
  }

  const addPath = (wanted) => (wanted ? shownHere(async () => {
    const source = await post("/api/sources", { path: wanted });
    path.value = "";
    await read(source);
  }) : path.focus());

  /** Show an error beside the input of the file or path. */
  async function shownHere(work) {
    try {
      await work();
    } catch (error) {
      fill(sending, problem(error));
    }
  }

  /** Read the blog with this source; a new version of another waits for the user's decision. */
  async function read(source) {
    fill(sending);
    if (!source.version) await look();
    await state.refresh();
  }

  async function decide(source, replaces) {
    await post(`/api/sources/${encodeURIComponent(source.id)}/decide`, { replaces });
    await look();
    await state.refresh();
  }

  /** What a new version would change, and the choice. */
  function offerOf(source) {
    const { of, new: added, changed, same, gone } = source.version;
    const old = state.home.sources.find((item) => item.path === of)?.name ?? of;
    const parts = [added && t`${count(added)} new`, changed && t`${count(changed)} changed`,
      same && t`${count(same)} as before`].filter(Boolean);
    return el("div.notice.stack", p(el("strong", t`A new version of ${old}?`), " ", parts.join(", "), "."),
      gone > 0 && p(t`${count(gone, "post")} of the old version would be removed: this file does not contain them.`),
      row(button(t`Replace`, () => decide(source, true), { kind: gone ? "small" : "primary small" }),
        smallButton(t`Keep both`, () => decide(source, false)), smallButton(t`Cancel`, () => removeSource(source))),
      quiet(t`Your decisions about posts are kept.`));
  }

  async function removeSource(source) {
    await remove(`/api/sources/${encodeURIComponent(source.id)}`);
    await state.refresh();
    if (!source.version && state.home.sources.some((item) => !item.version)) await look();
  }

  function draw() {
    const all = state.home.sources;
    redraw(sources, all, () => rows(all, (item) => ({
      name: item.name,
      facts: dotted(said(item.label), item.bytes && size(item.bytes),
        item.read_at && !item.version && t`read ${when(item.read_at)}`,
        item.newest_day && t`newest post of ${day(item.newest_day)}`, item.how === "path" && item.path),
      more: [item.problem && problem({ message: item.problem }), item.version && offerOf(item)],
      actions: !item.version && smallButton(t`Remove`, () => removeSource(item), t`Remove ${item.name}`),
    })));
    fill(drop, all.length ? t`Drop another file here to add it` : t`Drop your blog’s export or your texts here`);
  }

  const reading = progress(state.left, () => newest("fetch"));
  return {
    heading: t`Your blog`, node: el("div.stack", sources, zone, sending, found, others, reading), draw, opened: search,
    state() {
      const { sources: all, blog } = state.home;
      return !all.some((item) => item.version) && (all.length || blog?.is_read) ? "done" : "now";
    },
    summary: () => state.home.name,
  };
}

function hostOf(text) {
  const url = URL.canParse(text.trim()) ? new URL(text.trim()) : null;
  return /^https?:$/.test(url?.protocol) ? url.host : "";
}

function lookStep(state) {
  const body = el("div.stack"), reading = progress(state.left, () => newest("look"));
  const isReading = () => isRunning(newest("look"));

  async function choose(name, isOn) {
    await patch("/api/blog", { [name]: isOn });
    await look();
  }

  function draw() {
    const { blog } = state.home, job = newest("look");
    redraw(body, [blog, isReading(), Boolean(job)], () => (blog?.is_read ? found(blog)
      : !job && row(button(t`Read my blog`, look, { kind: "primary" }),
        quiet(t`It takes seconds and does not change your files.`))));
  }

  function found(blog) {
    const checks = TAKES.map(([name, label]) =>
      checkbox(label, blog.flags?.[name] ?? false, (isOn) => choose(name, isOn)));
    return [blog.problem && problem({ message: blog.problem }),
      el("div.lines", blog.lines.map((line) => p(said(line)))),
      row(blog.decisions > 0 && el("a.button", { href: address("posts", ["decisions"]) },
        t`Decide about ${count(blog.decisions, "post")}`),
      link(address("posts", ["report"]), t`Read the full report`), link(address("posts"), t`All posts`)),
      folded(t`What is read`, el("div.checks", checks), row(smallButton(t`Read it again`, look)))];
  }

  return {
    heading: t`What is in it`, node: el("div.stack", reading, body), draw,
    later: t`What is yours, what repeats, what a model can learn from`,
    state: (isNext) => (state.home.blog?.is_read && !isReading() ? "done" : isNext ? "now" : "later"),
    isOpen: () => !state.home.model && (isReading() || !newest("make")),
    summary({ texts, words, new_sentence: news } = state.home.blog) {
      return [said(texts), count(words, "word"), said(news)].filter(Boolean).join(", ");
    },
  };
}

// ---- step 3 -----------------------------------------------------------------------------------

/** The trainings to choose from, the shortest first: by how often a starting model reads the posts. */
function trainings({ readings }) {
  return readings.map(({ times, minutes, total }, i) => {
    const isLast = i === readings.length - 1, isOnce = times >= 0.9 && times < 1.5;
    const label = isLast ? t`Until it stops improving` : isOnce ? t`Once through` : t`A quick try`;
    return { label, times, minutes, time: duration(60 * Math.max(1, total)),
      isUsual: isLast ? readings.length === 1 : isOnce, remark: t`reads ${reading(times)}` };
  });
}

/** "your posts once", "a third of your posts", "your posts 2.5 times". */
function reading(times) {
  if (times >= 0.9) return times < 1.2 ? t`your posts once` : t`your posts ${fixed(times, 1)} times`;
  if (times >= 0.67) return t`most of your posts`;
  if (times < 0.01) return t`less than a hundredth of your posts`;
  const part = Math.max(2, Math.round(1 / times));
  const named = { 2: t`half of your posts`, 3: t`a third of your posts`, 4: t`a quarter of your posts` };
  return named[part] ?? t`1/${part} of your posts`;
}

function makeStep(state) {
  const made = progress(state.left, () => (newest("make")?.status === "done" ? null : newest("make")),
    { isStaged: true });
  const installing = progress(state.left, () => newest("base"));
  const body = el("div");
  let isAgain = false;

  function draw(status) {
    const job = newest("make"), isOver = !job || job.status === "done", { home: { model }, offer } = state;
    made.update();
    if (status === "later") return;
    const wantsForm = !isRunning(job) && (isAgain || (isOver && !model));
    redraw(body, [job?.id, job?.status, wantsForm, Boolean(model), offer?.can_train, offer?.bases], () => [
      !isRunning(job) && !(isOver && wantsForm) && row(button(
        isOver ? t`Make another model` : t`Start over with other choices`, again, { kind: isOver ? "" : "small" })),
      wantsForm && (offer ? formOf(offer) : loading())]);
  }

  function again() {
    isAgain = true;
    draw("now");
    body.querySelector("input:checked")?.focus();
  }

  function formOf(offer) {
    if (!offer.can_train) {
      return problem({ message: t`training needs PyTorch, which is not installed`,
        hint: t`\`ownwords doctor\` names the command that installs it; then start ownwords again` });
    }
    const base = baseChoice(offer, installing, drawTimes), cards = el("div");
    const minutes = input({ type: "number", min: "0.1", step: "any", inputmode: "decimal",
      placeholder: t`as chosen above` });
    const name = input({ maxlength: "80", placeholder: t`chosen for you` });
    let chosen = null, offered = null;
    drawTimes();

    function drawTimes() {
      offered = offer.bases.find((item) => item.name === base.value())
        ?? offer.bases.find((item) => item.is_usual) ?? null;
      const all = offered ? trainings(offered) : [];
      const legend = el("legend", t`How many times should it read your posts?`);
      const options = all.map(({ label, time, remark }, i) =>
        [i, el("strong", label), el("span", time), el("small", remark)]);
      chosen = all.find((item) => item.isUsual) ?? all.at(-1);
      fill(cards, radios("cards", legend, options, all.indexOf(chosen), (i) => {
        chosen = all[i];
        minutes.value = "";
      }));
    }

    async function begin() {
      // Start the training on the card, or the best that fits the minutes typed in.
      const own = Number(minutes.value), wanted = own || chosen?.minutes, called = name.value.trim();
      await start({ kind: "make", base: base.value() || (own ? "" : offered?.name ?? ""),
        ...wanted && { minutes: wanted }, ...called && { name: called } });
      isAgain = false;
      await state.refresh();
    }

    return form("stack", begin, cards, base, folded(t`More`, el("div.two", field(t`Name of the model`, name),
      field(t`Minutes`, minutes, t`For reading and training. Scoring takes up to a third more time.`))),
    row(button(t`Start training`, null, { kind: "primary", icon: "start", type: "submit" }),
      quiet(state.home.model ? t`Your existing models are kept.` : t`You can stop at any time and resume later.`)));
  }

  return {
    heading: t`Make my model`, node: el("div.stack", made, body), draw, later: t`Takes minutes, on this machine`,
    state(isNext) {
      if (isOpen(newest("make"), state.home.model)) return "now";
      return state.home.model ? "done" : isNext ? "now" : "later";
    },
    isOpen: () => isOpen(newest("make"), state.home.model) || isAgain || !state.home.model,
    summary() {
      const { name, minutes } = state.home.model;
      return minutes ? `${name}, ${duration(60 * minutes)}` : name;
    },
  };
}

// ---- steps 4 and 5 ----------------------------------------------------------------------------

const SAMPLE_WORDS = 70, SAMPLE_LINES = 6;

/** The first lines and words of a text. One word at a time: a pattern with a count takes forever on a short text. */
function beginning(text) {
  const words = /\S+/g;
  let end = text.length;
  for (let i = 0; i < SAMPLE_WORDS && words.test(text); i += 1) end = words.lastIndex;
  const all = lines(end < text.trimEnd().length ? `${text.slice(0, end)} …` : text);
  return all.length > SAMPLE_LINES ? [...all.slice(0, SAMPLE_LINES), "…"] : all;
}

function resultStep(state) {
  const body = el("div.stack"), isMaking = () => isRunning(newest("make"));
  const scoring = progress(state.left, () =>
    (isOpenScoring(newest("score"), state.home?.model) ? newest("score") : null));

  function draw() {
    const { home: { model }, offer } = state, isBusy = isRunning(newest("score")) || isMaking();
    scoring.update();
    if (model) redraw(body, [model, isBusy, isMaking(), offer?.bases], () => result(model, isBusy));
  }

  function result(model, isBusy) {
    const score = model.sentence ? el("a.button", { href: address("models", [model.name]) }, t`See the scorecard`)
      : !isBusy && button(t`Score it`, () => start({ kind: "score" }));
    return [model.sentence ? el("p.verdict", { class: model.tone }, said(model.sentence))
      : p(t`This model has not been scored yet.`),
    row(advice(model)),
    el("div.samples.three", model.samples.map((item) =>
      quote(beginning(item.text), { cite: said(item.beginning).replace(/ …$/, "\u00a0…"), look: "ours" }))),
    row(score, el("a.button", { href: address("write") }, t`Let it write more`), model.sentence && sharing(model.name)),
    model.because.length > 0 && folded(t`Why this verdict, and what to expect`, bullets([...model.because.map(said),
      t`It continues a text; it does not answer questions. It makes up names, dates and numbers, and a small model often makes no sense. To find what you wrote, use Ask.`])),
    model.figures.length > 0 && folded(t`For the curious`, totals(model.figures, said))];
  }

  /** How often it has read the posts, and the one step that helps most. */
  function advice(model) {
    const bases = state.offer?.bases ?? [];
    const base = bases.find((item) => [item.name, item.title].includes(model.base));
    const better = bases.find((item) => item.is_recommended && item !== base && !item.is_too_large);
    const isShort = model.read !== null && model.read < 0.9;
    const once = isShort && base ? trainings(base).find((item) => item.times >= 0.9) : null;
    const best = better?.is_installed ? trainings(better).at(-1) : null;
    const make = (label, from, { minutes }) => button(label, () => start({ kind: "make", minutes, base: from.name }));
    const read = model.read !== null && p(t`It has read ${reading(model.read)}.`);
    if (isMaking()) return read;
    if (once) return [read, make(t`Let it read all once: ${once.time}`, base, once)];
    if (best) return [read, make(t`Make one from ${better.title}: ${best.time}`, better, best)];
    return [read, better && el("a.button", { href: address("models") },
      t`Get a starting model that writes better sentences: ${size(better.bytes)}`)];
  }

  return {
    heading: t`Result`, node: el("div.stack", scoring, body), draw, later: t`How good it is, in one sentence`,
    state: () => (state.home.model ? "done" : "later"), isOpen: () => Boolean(state.home.model) && !isMaking(),
    summary({ name, sentence: scored } = state.home.model) {
      return scored ? name : t`${name}: not scored yet`;
    },
  };
}

function useStep(state) {
  const files = el("div.stack"), connect = el("div.stack"), isMaking = () => isRunning(newest("make"));
  const way = (part, name, wording) => el("a.way", { href: address(part) }, icon(part),
    el("strong", name), el("span", wording));
  const node = el("div.stack", el("div.ways",
    way("write", t`Write`, t`Turn notes into a text, check a draft, or let your model continue it.`),
    way("ask", t`Ask`, t`Find what you wrote about something, with quotations.`),
    way("models", t`Models`, t`Compare your models, or go back to an earlier one.`)),
  progress(state.left, () => newest("export")),
  folded(t`Take it with you`, files), folded(t`Use it from other programs`, connect));
  const read = live(state.left, (signal) =>
    Promise.all([get("/api/exports", {}, signal), get("/api/connect", {}, signal)]),
    ([made, api]) => {
      fill(files, exportsOf(made));
      fill(connect, connection(api));
    });
  const opened = () => state.home?.model && read();
  follow(state.left, { onChange: (what) => (what.includes("exports") || what.includes("model"))
    && node.closest(".open") && opened() });
  return {
    heading: t`Use it`, node, draw() {}, opened, later: t`Write, ask, export, or call it from a program`,
    state: () => (state.home.model ? (isMaking() ? "done" : "now") : "later"),
    isOpen: () => Boolean(state.home.model) && !isMaking(),
    summary: () => t`Write, ask, export`,
  };
}

function exportsOf({ options, exports: made }) {
  const label = (item) => t`${said(item.label)}, about ${size(item.bytes)}`;
  const which = select(options.map((item, i) => [i, label(item)]), 0);
  const begin = () => {
    const { to, type } = options[which.value];
    return start({ kind: "export", to, type });
  };
  const pathOf = (item) => `/api/exports/${encodeURIComponent(item.name)}`;
  const drop = async (item) => {
    const isAgreed = await confirm(t`Delete ${item.name}?`, t`Your model is kept; you can export it again.`);
    if (isAgreed) await remove(pathOf(item));
  };
  return [rows(made, (item) => ({
    name: item.name, facts: dotted(size(item.bytes), when(item.made_at), item.path),
    more: item.commands.map((line) => command(line)),
    actions: [item.can_download && el("a.button.small",
      { href: ofBlog(pathOf(item)), download: item.name }, t`Download`),
      smallButton(t`Delete`, () => drop(item), t`Delete ${item.name}`)],
  })), options.length > 0 && el("div.inline",
    field(t`Format`, which, t`GGUF runs in llama.cpp, LM Studio and Jan; the folder is for Hugging Face’s libraries.`),
    button(t`Export`, begin, { icon: "drop" }))];
}

function connection({ address: at, editors, key, model }) {
  return [quiet(t`An API like OpenAI’s, on this machine only. In programs, the model is called ${model}.`),
    pairs("facts", [[t`Address`, command(at)], key && [t`Key`, command(key, { isSecret: true })]]),
    quiet(t`Programs that check a text with LanguageTool, such as LibreOffice and browser add-ons, can show the marks of your own check. Give them this address:`), command(editors)];
}
