// Models: all of them in a table, each with its scorecard, and the bases to start from.

import { address, go, refresh, setTitle } from "/app.js";
import { facts, install, noteOf } from "/bases.js";
import { add, button, count, el, empty, field, fill, folded, input, link, masthead, p, quiet, row, section, size, table, tag, title, totals, when } from "/components.js";
import { exclusive, follow, isOpenScoring, isRunning, newest, start } from "/jobs.js";
import { ask, toast } from "/messages.js";
import { progress } from "/progress.js";
import { get, load, patch, post, remove } from "/server.js";

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
  const compare = new Set(models.slice(0, 2).map((item) => item.name));
  const both = el("a", { class: "button" }, "Let both write the same beginning");
  const drawn = () => {
    const [left, right] = compare;
    both.hidden = compare.size !== 2;
    both.href = address("write", [], { model: left, beside: right });
  };
  const box = (item) => el("input", { type: "checkbox", checked: compare.has(item.name), "aria-label": `Compare ${item.name}`, on: { change: (event) => {
    if (event.target.checked) compare.add(item.name);
    else compare.delete(item.name);
    drawn();
  } } });
  drawn();
  return el("div", { class: "stack" }, table({ caption: "Your models", class: "models-table", heads: ["Model", "Made", "Starting model", "Learned from", "Bits per byte", "Before", "Size", ...(models.length > 1 ? ["Compare"] : [])],
    rows: models.map((item) => [el("div", {}, link(address("models", [item.name]), title(item.name)), item.is_current ? [" ", tag("current", "on")] : null, el("span", { class: ["quiet", "line-below", item.tone === "bad" && "bad"] }, item.sentence || "Not scored yet")),
      when(item.made_at), titles.get(item.base) ?? (item.base || "none"), item.posts === null ? "–" : count(item.posts, "post"), item.bits_per_byte?.toFixed(3) ?? "–", item.before?.toFixed(3) ?? "–", size(item.bytes), ...(models.length > 1 ? [box(item)] : [])]) }),
  models.length > 1 ? row(both) : null, quiet("Bits per byte: how much the model is surprised by posts it has never seen. Lower is better."));
}

function startingModels({ bases }, reload) {
  const drop = async (item) => {
    if (!(await ask(`Delete ${item.title}?`, quiet(`It frees ${size(item.bytes)}. Models made from it stay.`), { yes: "Delete", danger: true }))) return;
    remove(`/api/bases/${encodeURIComponent(item.name)}`).then(reload, toast);
  };
  return section("Starting models", el("ul", { class: "rows" }, bases.filter((item) => item.name !== "none").map((item) => el("li", {}, el("div", {}, el("strong", {}, item.title), quiet(facts(item)), noteOf(item) ? quiet(noteOf(item)) : null),
    item.is_installed ? (item.name === "shipped" ? tag("built in") : button("Delete", () => drop(item), { kind: "small", label: `Delete ${item.title}` })) : button("Install", () => install(item), { kind: "small", label: `Install ${item.title}` })))));
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
        quiet("Its full scorecard is shown while it is the current model."), model.samples.length ? (await load("/score.js")).samplesOf(model.samples) : null);
    }
    const score = await load("/score.js");
    score.draw(card, await get("/api/score"), isRunning(job) ? null : () => start({ kind: "score" }));
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
