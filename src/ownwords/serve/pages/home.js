// Home: five steps from a blog to a model, and the state of each; a step that is done folds to one line.

import { setTitle } from "/app.js";
import { blogStep, lookStep } from "/blog.js";
import { add, el, fill, icon, masthead, uniqueId } from "/components.js";
import { follow, isOpen, isRunning, know, newest, shareOf } from "/jobs.js";
import { makeStep } from "/making.js";
import { announce } from "/messages.js";
import { get } from "/server.js";
import { resultStep, useStep } from "/using.js";

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
  return leave;

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
    const says = headingOf(state.home), text = JSON.stringify(says);
    if (text !== wording) {
      const focused = head.contains(document.activeElement);
      fill(head, masthead(says));
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
