// Models: all of them in a table, each with its scorecard, and the bases to start from.

import { address, go, refresh, setTitle } from "/app.js";
import { add, button, checkbox, compact, count, drawn, el, empty, field, fill, folded, input, lines, link, masthead, outward, p, quiet,
  quote, row, section, select, size, table, tag, title, totals, when } from "/components.js";
import { exclusive, follow, isOpenScoring, isRunning, newest, progress, start } from "/jobs.js";
import { ask, toast } from "/messages.js";
import { get, load, ofBlog, patch, post, remove } from "/server.js";

export async function show(element, where) {
  if (where.path[0]) return one(element, where.path[0]);
  const body = el("div"), installing = progress();
  let offer = await get("/api/models");
  const draw = () => fill(body, masthead({ heading: "Models", follow: offer.models.length ? "The current one writes and answers; the others stay until you delete them." : "" }), listed(offer), installing, startingModels(offer, reload));
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

function listed({ models, bases }) {
  const titles = new Map(bases.map((item) => [item.name, item.title]));
  if (!models.length) return empty("No model yet", "Once you have made one, it is listed here, with all later ones.", el("a", { class: "button primary", href: address("home") }, "Make one"));
  return el("div", { class: "stack" }, table({ caption: "Your models", class: "models-table", heads: ["Model", "Made", "Starting model", "Learned from", "Bits per byte", "Before", "Size"],
    rows: models.map((item) => [el("div", {}, link(address("models", [item.name]), title(item.name)), item.is_current ? [" ", tag("current", "on")] : null, el("span", { class: ["quiet", "line-below", item.tone === "bad" && "bad"] }, item.sentence || "Not scored yet")),
      when(item.made_at), titles.get(item.base) ?? (item.base || "none"), item.posts === null ? "–" : count(item.posts, "post"), item.bits_per_byte?.toFixed(3) ?? "–", item.before?.toFixed(3) ?? "–", size(item.bytes)]) }),
  quiet("Bits per byte: how much the model is surprised by posts it has never seen. Lower is better."));
}

function startingModels({ bases }, reload) {
  const drop = async (item) => {
    if (!(await ask(`Delete ${item.title}?`, quiet(`It frees ${size(item.bytes)}. Models made from it stay.`), { yes: "Delete", danger: true }))) return;
    remove(`/api/bases/${encodeURIComponent(item.name)}`).then(reload, toast);
  };
  return section("Starting models", el("ul", { class: "rows" }, bases.map((item) => described(item, () => drop(item)))));
}

async function one(element, name) {
  const head = el("div"), scoring = progress(), card = el("div"), training = folded("How the training went");
  const { models } = await get("/api/models");
  const model = models.find((item) => item.name === name);
  add(element, el("nav", { class: "around", "aria-label": "Back" }, link(address("models"), "All models")));
  if (!model) return void add(element, masthead({ heading: name }), empty("There is no such model", "It was renamed or deleted.", link(address("models"), "All models")));
  setTitle(name);
  add(element, head, scoring, card, model.is_current ? training : null);
  const use = button("Make it the current one", () => act(post(`/api/models/${encodeURIComponent(name)}/use`)), { kind: "primary small" });
  const naming = button("Rename", rename, { kind: "small" }), dropping = button("Delete", drop, { kind: "small" }), why = quiet();
  add(head, el("div", { class: "row actions" }, model.is_current ? tag("current", "on") : use,
    el("a", { class: "button small", href: address("write", [], { model: name }) }, "Write with it"), naming, model.is_current ? null : dropping, why));
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
    if (job) why.textContent = `You can ${model.is_current ? "rename" : "rename, delete or switch to"} this model when “${job.title}” has ended.`;
  }

  async function scored() {
    const job = newest("score");
    scoring.update(model.is_current && isOpenScoring(job, model) ? job : null);
    if (!model.is_current) {
      return void fill(card, masthead({ kicker: el("span", {}, title(name), ", made ", when(model.made_at)), heading: model.sentence || title(name) }), model.figures.length ? totals(model.figures) : null,
        quiet("Its full scorecard is shown while it is the current model."), model.samples.length ? samplesOf(model.samples) : null);
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
    const wanted = await ask("Rename this model", field("Name", box), { yes: "Rename", value: () => box.value.trim() });
    if (wanted && wanted !== name) act(patch(`/api/models/${encodeURIComponent(name)}`, { name: wanted }), address("models", [wanted]));
  }

  async function drop() {
    if (await ask(`Delete ${name}?`, p(`It frees ${size(model.bytes)} and cannot be brought back.`), { yes: "Delete", danger: true })) act(remove(`/api/models/${encodeURIComponent(name)}`));
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

const BEST = { name: "", title: "The best that the time allows", note: "Recommended: chosen from those that are installed." };
const NOTHING = { name: "none", title: "Your posts only", note: "For large blogs; on a small one it learns words, but little grammar." };

/** One of the installed starting models; a better one that can be installed stands above. `reload` gets them anew; `onChoice` hears of another one. */
export function baseChoice(offer, reload, onChoice) {
  const loading = progress(), recommended = el("ul", { class: "rows" }), chosen = el("summary"), list = el("div");
  const node = el("div", {}, recommended, loading, el("details", { class: "bases" }, chosen, list, quiet(link(address("models"), "All starting models"))));
  let value = "";
  function draw({ bases }) {
    const better = bases.find((item) => item.is_recommended && !item.is_installed && !item.is_too_large);
    const known = [BEST, ...bases.filter((item) => item.is_installed && !item.problem), NOTHING];
    recommended.hidden = !better;
    if (better) fill(recommended, described(better));
    const choose = (to) => {
      const now = known.find((item) => item.name === to);
      value = to;
      fill(chosen, `Starting model: ${now.title}`);
      fill(list, field("Starting model", select(known.map((item) => [item.name, item.title]), to, (next) => { choose(next); onChoice(); }), noteOf(now)));
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
const described = (item, drop) => el("li", {}, el("div", {}, el("strong", {}, item.title), quiet(facts(item)), noteOf(item) ? quiet(noteOf(item)) : null),
  item.name === "shipped" ? tag("built in") : item.is_installed ? button("Delete", drop, { kind: "small", label: `Delete ${item.title}` }) : installer(item));
const installer = (item) => button("Install", () => install(item), { kind: "small", label: `Install ${item.title}` });

/** Begin to install a base, once its terms of use are accepted, if it has any. */
async function install(item) {
  const { terms } = item;
  let isAccepted = !terms;
  if (terms && !(await ask(`Install ${item.title}?`, [quiet("Read ", outward(terms.url, terms.title), ". ", terms.gist),
    checkbox("I have read its terms and accept them", false, (is) => { isAccepted = is; })], { yes: "Download" }))) return null;
  if (!isAccepted) return void (await ask("Not installed", quiet("This model may only be used by those who accept its terms."), { yes: "Close", no: "" }));
  return start({ kind: "base", source: item.name, name: item.name, accepted: isAccepted });
}

const facts = (item) => [item.parameters ? `${compact(item.parameters)} parameters` : "", item.bytes ? (item.is_installed ? size(item.bytes) : `${size(item.bytes)} to download from ${item.has_package ? "the Python package registry" : "huggingface.co"}`) : "", item.license].filter(Boolean).join(" · ");
const noteOf = (item) => item.note ?? [item.is_recommended ? "English, recommended." : item.name === "shipped" ? "English." : item.languages ? `Languages: ${item.languages}.` : "", expected(item)].filter(Boolean).join(" ");

/** What training from it takes and brings on this machine, in a sentence. */
function expected({ minutes, memory_bytes: memory, is_too_large: isTooLarge, expected_bits_per_byte: bits }) {
  if (!memory) return "";
  if (isTooLarge) return `This machine has too little free memory for it: training takes about ${size(memory)}.`;
  if (!minutes) return "This machine is too slow for it: training takes more than two days.";
  return `Expected here: ${count(minutes, "minute")}, ${size(memory)} of memory, ${bits ? `${bits.toFixed(2)} bits per byte` : "bits per byte not measured yet"}.`;
}

// ---- the scorecard ----------------------------------------------------------------------------

/** Draw a scorecard, or what there is instead; `measure` begins to score the model, if nothing does yet. */
function drawScore(body, result, measure) {
  if (result.html) return void fill(body, unfolding(drawn(result.html)), row(el("a", { class: "button", href: ofBlog("/api/score/page"), download: "scorecard.html" }, "Save as a page to share")));
  const [heading, wording] = result.unreadable ? ["This scorecard was made by another version", "Score the model again; the model itself is as good as it was."]
    : ["This model has not been scored yet", "How well it predicts posts it has never seen, whether it sounds like you, how fluent it is, and whether it copies you. This takes a few minutes."];
  return void fill(body, masthead({ heading: "Scorecard" }), empty(heading, wording, measure && button("Score it", measure, { kind: "primary" })));
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
const samplesOf = (rows) => section("What it writes", rows.map((item) => quote(lines(item.text), { cite: item.beginning, class: "ours" })));
