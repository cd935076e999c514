// Models: all of them in a table, each with its scorecard, and the models to start from.

import { address, go, setTitle } from "/app.js";
import { add, ask, button, checkbox, compact, confirm, dotted, drawn, duration, el, empty, field, fill, input, link,
  masthead, outward, quiet, redraw, row, rows, section, select, size, smallButton, table, tag, title,
  when } from "/components.js";
import { exclusive, follow, isOpenScoring, isRunning, live, newest, progress, start } from "/jobs.js";
import { count, fixed, language, said, t } from "/language.js";
import { get, ofBlog, patch, post, queryOf, remove, text } from "/server.js";

export async function show(element, where, left) {
  if (where.path[0]) return one(element, where.path[0], left);
  const body = el("div"), installing = progress(left, () => newest("base"));
  const follows = t`The current model is the one that writes. The others are kept until you delete them.`;
  await live(left, (signal) => get("/api/models", {}, signal), (offer) => {
    fill(body, masthead({ heading: t`Models`, follow: offer.models.length ? follows : "" }), listed(offer), installing,
      section(t`Starting models`, rows(offer.bases, described)));
  }, ["model", "models", "bases"])();
  return add(element, body);
}

const bits = (value) => (Number.isFinite(value) ? fixed(value, 3) : "–");

function listed({ models, bases }) {
  if (!models.length) {
    return empty(t`No model yet`, t`Your models appear here once you have made one.`,
      el("a.button.primary", { href: address("home") }, t`Make one`));
  }
  const titles = new Map(bases.map((item) => [item.name, said(item.title)]));
  const heads = [t`Model`, t`Made`, t`Starting model`, t`Learned from`, t`Bits per byte`, t`Before`, t`Size`];
  const cells = (item) => [
    el("div", link(address("models", [item.name]), title(item.name)), item.is_current && [" ", tag(t`current`, "on")],
      el("span.quiet.line-below", { class: item.tone === "bad" && "bad" }, said(item.sentence) || t`Not scored yet`)),
    when(item.made_at), titles.get(item.base) ?? (item.base || t`none`),
    item.posts === null ? "–" : count(item.posts, "post"),
    bits(item.bits_per_byte), bits(item.before), size(item.bytes)];
  return el("div.stack", table({ caption: t`Your models`, class: "models-table", heads, rows: models.map(cells) }),
    quiet(t`Bits per byte: how much unseen posts surprise the model. Lower is better.`));
}

/** One model: its names and uses, and its scorecard. */
async function one(element, name, left) {
  const head = el("div"), card = el("div");
  let model = null, score = null;
  const scoring = progress(left, () =>
    (model?.is_current && isOpenScoring(newest("score"), model) ? newest("score") : null));
  add(element, el("nav.around", { "aria-label": t`Back` }, link(address("models"), t`All models`)),
    head, scoring, card);
  setTitle(name);
  follow(left, { onJob: draw });
  await live(left, async (signal) => {
    const all = (await get("/api/models", {}, signal)).models;
    const found = all.find((item) => item.name === name);
    return [found, found && await get("/api/score", { model: name }, signal)];
  }, (answer) => {
    [model, score] = answer;
    draw();
  }, ["model", "models"])();

  function draw() {
    const job = exclusive(), isScoring = isRunning(newest("score"));
    scoring.update();
    redraw(head, [model, job?.title], () => model && actions(job));
    redraw(card, [model, score, isScoring], () => (model
      ? scorecard(name, score, model.is_current && !isScoring && (() => start({ kind: "score" })))
      : [masthead({ heading: name }),
        empty(t`There is no such model`, t`It was renamed or deleted.`, link(address("models"), t`All models`))]));
  }

  function actions(job) {
    const disabled = Boolean(job), path = `/api/models/${encodeURIComponent(name)}`;

    async function use() {
      await post(`${path}/use`);
      go(address("models"));
    }

    async function rename() {
      const box = input({ value: name, maxlength: "80" });
      const wanted = await ask(t`Rename this model`, field(t`Name`, box),
        { yes: t`Rename`, value: () => box.value.trim() });
      if (!wanted || wanted === name) return;
      await patch(path, { name: wanted });
      go(address("models", [wanted]));
    }

    async function drop() {
      if (!(await confirm(t`Delete ${name}?`, t`This frees up ${size(model.bytes)} and cannot be undone.`))) return;
      await remove(path);
      go(address("models"));
    }

    return el("div.row.actions", model.is_current ? tag(t`current`, "on")
      : button(t`Make it the current one`, use, { kind: "primary small", disabled }),
    el("a.button.small", { href: address("write", [], { model: name }) }, t`Write with it`),
    button(t`Rename`, rename, { kind: "small", disabled }),
    !model.is_current && button(t`Delete`, drop, { kind: "small", disabled }),
    job && quiet(t`You can change this model when “${said(job.title)}” has ended.`));
  }
}

// ---- the models to start from -----------------------------------------------------------------

const BEST = { name: "", title: t`The best that the time allows`,
  note: t`Recommended: chosen from the installed models.` };
const NOTHING = { name: "none", title: t`Your posts only`,
  note: t`For large blogs. From a small one it learns words, but little grammar.` };

/** A choice of the installed starting models, below a better one that can be installed; `value()` is its name. */
export function baseChoice({ bases }, installing, onChoice) {
  const better = bases.filter((item) => item.is_recommended && !item.is_installed && !item.is_too_large).slice(0, 1);
  const known = [BEST, ...bases.filter((item) => item.is_installed && !item.problem), NOTHING];
  const chosen = el("summary"), list = el("div");
  let value = "";
  function choose(to) {
    const now = known.find((item) => item.name === to);
    value = to;
    fill(chosen, t`Starting model: ${said(now.title)}`);
    fill(list, field(t`Starting model`, select(known.map((item) => [item.name, said(item.title)]), to, (next) => {
      choose(next);
      onChoice();
    }), noteOf(now)));
  }
  choose(value);
  return Object.assign(el("div", rows(better, described), installing,
    el("details.bases", chosen, list, quiet(link(address("models"), t`All starting models`)))), { value: () => value });
}

/** What a starting model is, and the button that installs or deletes it. */
const described = (item) => ({
  name: said(item.title), facts: factsOf(item), more: noteOf(item) && quiet(noteOf(item)),
  actions: item.name === "shipped" ? tag(t`built in`)
    : item.is_installed ? smallButton(t`Delete`, () => uninstall(item), t`Delete ${item.title}`)
      : smallButton(t`Install`, () => install(item), t`Install ${item.title}`),
});

async function uninstall(item) {
  const wording = t`This frees up ${size(item.bytes)}. Models made from it are kept.`;
  if (await confirm(t`Delete ${item.title}?`, wording)) await remove(`/api/bases/${encodeURIComponent(item.name)}`);
}

/** Install a starting model, once its terms of use are accepted, if it has any. */
async function install({ name, title: called, terms }) {
  let accepted = !terms;
  if (terms) {
    const box = checkbox(t`I have read the terms and accept them`, false, (is) => { accepted = is; });
    const wording = [quiet(t`Read ${outward(terms.url, terms.title)}.`, " ", said(terms.gist)), box];
    if (!(await ask(t`Install ${called}?`, wording, { yes: t`Download` }))) return;
  }
  if (accepted) return void await start({ kind: "base", source: name, name, accepted });
  const refusal = t`This model may only be used by those who accept its terms.`;
  await ask(t`Not installed`, quiet(refusal), { yes: t`Close`, no: "" });
}

function factsOf({ parameters, bytes, is_installed: isInstalled, has_package: hasPackage, license }) {
  const from = hasPackage ? t`the Python package registry` : "huggingface.co";
  return dotted(parameters && t`${compact(parameters)} parameters`,
    bytes && (isInstalled ? size(bytes) : t`${size(bytes)} to download from ${from}`),
    license && t`licence: ${license}`);
}

function noteOf(item) {
  if (item.note) return item.note;
  const others = item.other_languages;
  const languages = item.is_recommended ? t`English, recommended.`
    : others ? t`English and ${others} other languages.` : others === 0 || item.name === "shipped" ? t`English.` : "";
  return [languages, expected(item)].filter(Boolean).join(" ");
}

/** What training from it takes on this machine and the result to expect, in a sentence. */
function expected({ minutes, memory_bytes: memory, is_too_large: isTooLarge, expected_bits_per_byte: range }) {
  if (!memory) return "";
  if (isTooLarge) return t`This machine has too little free memory for it: training needs about ${size(memory)}.`;
  if (!minutes) return t`This machine is too slow for it: training takes more than two days.`;
  const result = range ? t`${fixed(range[0], 1)} to ${fixed(range[1], 1)} bits per byte, depending on the blog`
    : t`bits per byte not measured yet`;
  return t`Expected here: ${duration(60 * minutes)} to read your posts once, ${size(memory)} of memory, ${result}.`;
}

// ---- the scorecard ----------------------------------------------------------------------------

/** A link that saves the scorecard as a page, in the language of this one. */
export function sharing(name) {
  const path = `/api/score/page?${queryOf({ model: name })}`;
  const node = el("a.button", { href: ofBlog(path), download: `${name}.html` }, t`Save as a page to share`);
  if (language !== "en") node.addEventListener("click", async (event) => {
    event.preventDefault();
    const page = el("html", { lang: language }, drawn(await text(path)));
    node.href = URL.createObjectURL(new Blob([`<!DOCTYPE html>\n${page.outerHTML}`], { type: "text/html" }));
    node.click();
  }, { once: true });
  return node;
}

/** The scorecard, with sections that unfold so that its main figures fit one screen; or why there is none. */
function scorecard(name, { html, unreadable }, measure) {
  if (html) {
    const content = drawn(html);
    for (const part of content.querySelectorAll(".part")) {
      const [head, ...rest] = part.childNodes;
      part.replaceWith(el("details.unfolding", { id: part.id }, el("summary", head), rest));
    }
    return [content, row(sharing(name))];
  }
  const [heading, wording] = unreadable
    ? [t`This scorecard was made by another version of ownwords`, t`Score the model again. The model itself has not changed.`]
    : [t`This model has not been scored yet`,
      t`How well it predicts posts it has never seen, whether it sounds like you, how fluent it is, and whether it copies you. This takes a few minutes.`];
  return [masthead({ heading: t`Scorecard` }),
    empty(heading, wording, measure && button(t`Score it`, measure, { kind: "primary" }))];
}
