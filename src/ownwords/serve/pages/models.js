// Models: all of them in a table, each with its scorecard, and the bases to start from.

import { address, go, refresh, setTitle } from "/app.js";
import { add, button, checkbox, compact, drawn, duration, el, empty, field, fill, folded, input, lines, link, masthead, outward, p, quiet, quote, row, section, select,
  size, table, tag, title, totals, when } from "/components.js";
import { exclusive, follow, isOpenScoring, isRunning, newest, progress, start } from "/jobs.js";
import { count, fixed, language, said, t } from "/language.js";
import { ask, toast } from "/messages.js";
import { get, load, ofBlog, patch, post, remove, text } from "/server.js";

const SCORECARD = "/api/score/page";

export async function show(element, where) {
  if (where.path[0]) return one(element, where.path[0]);
  const body = el("div"), installing = progress();
  let offer = await get("/api/models");
  const draw = () => fill(body, masthead({ heading: t`Models`, follow: offer.models.length ? t`The current model writes. The others stay until you delete them.` : "" }), listed(offer), installing, startingModels(offer, reload));
  async function reload() {
    offer = await get("/api/models");
    draw();
  }
  draw();
  add(element, body);
  installing.update(newest("base"));
  return follow({
    onJob: () => installing.update(newest("base")),
    onChange: (what) => what.some((part) => ["model", "models", "bases"].includes(part)) && reload().catch(toast),
  });
}

const bits = (value) => (Number.isFinite(value) ? fixed(value, 3) : "–");

function listed({ models, bases }) {
  const titles = new Map(bases.map((item) => [item.name, said(item.title)]));
  if (!models.length) return empty(t`No model yet`, t`Once you have made models, you see them here.`, el("a", { class: "button primary", href: address("home") }, t`Make one`));
  return el("div", { class: "stack" }, table({ caption: t`Your models`, class: "models-table", heads: [t`Model`, t`Made`, t`Starting model`, t`Learned from`, t`Bits per byte`, t`Before`, t`Size`],
    rows: models.map((item) => [el("div", {}, link(address("models", [item.name]), title(item.name)), item.is_current ? [" ", tag(t`current`, "on")] : null, el("span", { class: ["quiet", "line-below", item.tone === "bad" && "bad"] }, said(item.sentence) || t`Not scored yet`)),
      when(item.made_at), titles.get(item.base) ?? (item.base || t`none`), item.posts === null ? "–" : count(item.posts, "post"), bits(item.bits_per_byte), bits(item.before), size(item.bytes)]) }),
  quiet(t`Bits per byte: how much posts that it has never seen surprise the model. Lower is better.`));
}

function startingModels({ bases }, reload) {
  const drop = async (item) => {
    if (!(await ask(t`Delete ${item.title}?`, quiet(t`This frees ${size(item.bytes)}. Models made from it stay.`), { yes: t`Delete`, danger: true }))) return;
    remove(`/api/bases/${encodeURIComponent(item.name)}`).then(reload, toast);
  };
  return section(t`Starting models`, el("ul", { class: "rows" }, bases.map((item) => described(item, () => drop(item)))));
}

async function one(element, name) {
  const head = el("div"), scoring = progress(), card = el("div"), training = folded(t`How the training went`);
  const { models } = await get("/api/models");
  const model = models.find((item) => item.name === name);
  add(element, el("nav", { class: "around", "aria-label": t`Back` }, link(address("models"), t`All models`)));
  if (!model) return void add(element, masthead({ heading: name }), empty(t`There is no such model`, t`It was renamed or deleted.`, link(address("models"), t`All models`)));
  setTitle(name);
  add(element, head, scoring, card, model.is_current ? training : null);
  const use = button(t`Make it the current one`, () => act(post(`/api/models/${encodeURIComponent(name)}/use`)), { kind: "primary small" });
  const naming = button(t`Rename`, rename, { kind: "small" }), dropping = button(t`Delete`, drop, { kind: "small" }), why = quiet();
  add(head, el("div", { class: "row actions" }, model.is_current ? tag(t`current`, "on") : use,
    el("a", { class: "button small", href: address("write", [], { model: name }) }, t`Write with it`), naming, model.is_current ? null : dropping, why));
  locked();
  await scored();
  let leave = null;
  training.addEventListener("toggle", async () => {
    if (training.open) leave ??= (await load("/details.js")).details(training);
  });

  function locked() {
    const job = exclusive();
    use.disabled = naming.disabled = dropping.disabled = Boolean(job);
    why.hidden = !job;
    if (job) why.textContent = t`You can change this model when “${said(job.title)}” has ended.`;
  }

  async function scored() {
    const job = newest("score");
    scoring.update(model.is_current && isOpenScoring(job, model) ? job : null);
    if (!model.is_current) {
      return void fill(card, masthead({ kicker: el("span", {}, t`${title(name)}, made ${when(model.made_at)}`), heading: said(model.sentence) || title(name) }), model.figures.length ? totals(model.figures, said) : null,
        quiet(t`Its full scorecard is shown while it is the current model.`), model.samples.length ? samplesOf(model.samples) : null);
    }
    drawScore(card, await get("/api/score"), isRunning(job) ? null : () => start({ kind: "score" }));
    return undefined;
  }

  async function changed() {
    const now = (await get("/api/models")).models.find((item) => item.name === name);
    if (!element.isConnected) return undefined;
    return now?.is_current === model.is_current ? Object.assign(model, now) && scored() : refresh();
  }

  async function act(asked, next = address("models")) {
    try {
      await asked;
      go(next);
    } catch (error) {
      toast(error);
    }
  }

  async function rename() {
    const box = input({ value: name, maxlength: "80" });
    const wanted = await ask(t`Rename this model`, field(t`Name`, box), { yes: t`Rename`, value: () => box.value.trim() });
    if (wanted && wanted !== name) act(patch(`/api/models/${encodeURIComponent(name)}`, { name: wanted }), address("models", [wanted]));
  }

  async function drop() {
    if (await ask(t`Delete ${name}?`, p(t`This frees ${size(model.bytes)}, and cannot be undone.`), { yes: t`Delete`, danger: true })) act(remove(`/api/models/${encodeURIComponent(name)}`));
  }

  const unfollow = follow({
    onJob(job) {
      locked();
      if (!job || job.kind === "score") scored().catch(toast);
    },
    onChange: (what) => what.includes("model") && changed().catch(toast),
  });
  return () => {
    unfollow();
    leave?.();
  };
}

// ---- the models to start from -----------------------------------------------------------------

const BEST = { name: "", title: t`The best that the time allows`, note: t`Recommended: chosen from those that are installed.` };
const NOTHING = { name: "none", title: t`Your posts only`, note: t`For large blogs. From a small one it learns words, but little grammar.` };

/** One of the installed starting models; a better one that can be installed stands above. `reload` gets them anew; `onChoice` hears of another one. */
export function baseChoice(offer, reload, onChoice) {
  const loading = progress(), recommended = el("ul", { class: "rows" }), chosen = el("summary"), list = el("div");
  const node = el("div", {}, recommended, loading, el("details", { class: "bases" }, chosen, list, quiet(link(address("models"), t`All starting models`))));
  let value = "";
  function draw({ bases }) {
    const better = bases.find((item) => item.is_recommended && !item.is_installed && !item.is_too_large);
    const known = [BEST, ...bases.filter((item) => item.is_installed && !item.problem), NOTHING];
    recommended.hidden = !better;
    if (better) fill(recommended, described(better));
    const choose = (to) => {
      const now = known.find((item) => item.name === to);
      value = to;
      fill(chosen, t`Starting model: ${said(now.title)}`);
      fill(list, field(t`Starting model`, select(known.map((item) => [item.name, said(item.title)]), to, (next) => { choose(next); onChoice(); }), noteOf(now)));
    };
    choose(value);
  }
  const leave = follow({
    onJob(job) {
      if (!node.isConnected && list.firstChild && job) return; // the form has been replaced
      loading.update(newest("base"));
    },
    async onChange(what) {
      if (!node.isConnected) return void leave();
      if (what.includes("bases")) { draw(await reload()); onChoice(); }
    },
  });
  draw(offer);
  return Object.assign(node, { value: () => value });
}

/** A row of a list: what a base is, and the button that installs or deletes it. */
const described = (item, drop) => el("li", {}, el("div", {}, el("strong", {}, said(item.title)), quiet(facts(item)), noteOf(item) ? quiet(noteOf(item)) : null),
  item.name === "shipped" ? tag(t`built in`) : item.is_installed ? button(t`Delete`, drop, { kind: "small", label: t`Delete ${item.title}` }) : installer(item));
const installer = (item) => button(t`Install`, () => install(item), { kind: "small", label: t`Install ${item.title}` });

/** Begin to install a base, once its terms of use are accepted, if it has any. */
async function install(item) {
  const { terms } = item;
  let isAccepted = !terms;
  if (terms && !(await ask(t`Install ${item.title}?`, [quiet(t`Read ${outward(terms.url, terms.title)}.`, " ", said(terms.gist)),
    checkbox(t`I have read its terms and accept them`, false, (is) => { isAccepted = is; })], { yes: t`Download` }))) return null;
  if (!isAccepted) return void (await ask(t`Not installed`, quiet(t`This model may only be used by those who accept its terms.`), { yes: t`Close`, no: "" }));
  return start({ kind: "base", source: item.name, name: item.name, accepted: isAccepted });
}

const facts = (item) => [item.parameters ? t`${compact(item.parameters)} parameters` : "", item.bytes ? (item.is_installed ? size(item.bytes) : t`${size(item.bytes)} to download from ${item.has_package ? t`the Python package registry` : "huggingface.co"}`) : "", item.license ? t`licence ${item.license}` : ""].filter(Boolean).join(" · ");
const noteOf = (item) => item.note ?? [item.is_recommended ? t`English, recommended.` : item.other_languages ? t`English and ${item.other_languages} other languages.` : item.other_languages === 0 || item.name === "shipped" ? t`English.` : "", expected(item)].filter(Boolean).join(" ");

/** What training from it takes and brings on this machine, in a sentence. */
function expected({ minutes, memory_bytes: memory, is_too_large: isTooLarge, expected_bits_per_byte: bits }) {
  if (!memory) return "";
  if (isTooLarge) return t`This machine has too little free memory for it: training needs about ${size(memory)}.`;
  if (!minutes) return t`This machine is too slow for it: training takes more than two days.`;
  return t`Expected here: ${duration(60 * minutes)} to read your posts once, ${size(memory)} of memory, ${bits ? t`${fixed(bits[0], 1)} to ${fixed(bits[1], 1)} bits per byte, depending on the blog` : t`bits per byte not measured yet`}.`;
}

// ---- the scorecard ----------------------------------------------------------------------------

/** A link that saves the scorecard as a page, in the language of this one. */
export function sharing(name) {
  const node = el("a", { class: "button", href: ofBlog(SCORECARD), download: `${name}.html` }, t`Save as a page to share`);
  if (language !== "en") node.addEventListener("click", async (event) => {
    event.preventDefault();
    const page = el("html", { lang: language }, drawn(await text(SCORECARD)));
    node.href = URL.createObjectURL(new Blob([`<!DOCTYPE html>\n${page.outerHTML}`], { type: "text/html" }));
    node.click();
  }, { once: true });
  return node;
}

/** Draw a scorecard, or what there is instead; `measure` begins to score the model, if nothing does yet. */
function drawScore(body, result, measure) {
  if (result.html) return void fill(body, unfolding(drawn(result.html)), row(sharing("scorecard")));
  const [heading, wording] = result.unreadable ? [t`This scorecard was made by another version`, t`Score the model again; the model itself is as good as it was.`]
    : [t`This model has not been scored yet`, t`How well it predicts posts it has never seen, whether it sounds like you, how fluent it is, and whether it copies you. This takes a few minutes.`];
  return void fill(body, masthead({ heading: t`Scorecard` }), empty(heading, wording, measure && button(t`Score it`, measure, { kind: "primary" })));
}

/** A drawn view whose sections unfold, so that its main figures fit one screen. */
function unfolding(content) {
  for (const part of content.querySelectorAll(".part")) {
    const [head, ...rest] = part.childNodes;
    part.replaceWith(el("details", { class: "unfolding", id: part.id }, el("summary", {}, head), rest));
  }
  return content;
}

/** The samples of a model without a scorecard. */
const samplesOf = (rows) => section(t`What it writes`, rows.map((item) => quote(lines(item.text), { cite: said(item.beginning), class: "ours" })));
