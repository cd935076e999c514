// Step 3: a model of the blog; how long, from which starting model, and how it goes.

import { baseChoice } from "/models.js";
import { button, count, el, field, fill, folded, input, problem, quiet, row } from "/components.js";
import { isOpen, isRunning, newest, start, progress } from "/jobs.js";
import { get, load } from "/server.js";

const BUDGETS = [["quick", "Quick", "a first impression"], ["good", "Good", "right for most blogs"], ["best", "Best", "for long blogs"]];

export function makeStep(state) {
  const running = progress({ isStaged: true }), body = el("div"), details = folded("Details");
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
    const budget = { name: "good" };
    const cards = el("fieldset", { class: "cards" }, el("legend", {}, "How long may it take?"), BUDGETS.map(([name, label, remark]) => el("label", {},
      el("input", { type: "radio", name: "budget", value: name, checked: name === budget.name, on: { change: () => { budget.name = name; minutes.value = ""; } } }),
      el("span", {}, el("strong", {}, label), el("span", {}, count(offer.minutes[name], "minute")), el("small", {}, remark)))));
    const base = baseChoice(offer, async () => { offer = await get("/api/models"); return offer; });
    const minutes = input({ type: "number", min: "0.1", step: "any", inputmode: "decimal", placeholder: "as chosen above" });
    const name = input({ maxlength: "80", placeholder: "chosen for you" });
    return el("form", { class: "stack", on: { submit: async (event) => {
      event.preventDefault();
      const job = await start({ kind: "make", minutes: Number(minutes.value) || offer.minutes[budget.name], base: base.value(), ...name.value.trim() && { name: name.value.trim() } });
      if (!job) return;
      isAgain = false;
      state.refresh();
    } } }, cards, base, folded("More", el("div", { class: "two" }, field("Name of the model", name), field("Minutes", minutes, "For reading, training and scoring together."))),
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
