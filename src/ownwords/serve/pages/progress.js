// One job as its reader sees it: a bar, what is being done, how long it still takes, and Stop or Go on.

import { bar, button, duration, el, fill, problem, quiet, row } from "/components.js";
import { failure, forget, isRunning, resume, stop } from "/jobs.js";
import { ask } from "/messages.js";

/** `update(job)` shows the job's state; a job that is done, or none at all, shows nothing. */
export function progress({ isStaged = false } = {}) {
  const node = el("div", { class: "progress" });
  let shape = "", parts = null;

  function update(job) {
    const next = job ? `${job.id} ${job.status}` : "";
    if (next !== shape) {
      const focused = node.contains(document.activeElement);
      shape = next;
      parts = job && isRunning(job) ? live(job) : null;
      fill(node, parts ? parts.node : ended(job));
      if (focused) node.querySelector("button")?.focus();
    }
    parts?.update(job);
    node.hidden = !node.firstChild;
  }

  function live(job) {
    const gauge = bar(job.title, job.share), line = el("p", { class: "now" }), last = el("p", { class: "quiet last-words", "aria-hidden": "true" });
    const stages = isStaged ? el("ol", { class: "stages", "aria-label": "Stages" }) : null;
    const end = button(job.status === "stopping" ? "Stop at once" : "Stop", () => halt(job), { kind: "small", icon: "stop" });
    return {
      node: [gauge, el("div", { class: "row spread" }, line, end), stages, last],
      update(now) {
        if (now.share === null) gauge.removeAttribute("value");
        else gauge.value = now.share;
        line.textContent = doing(now);
        last.textContent = now.stage ? now.line : ""; // else it stands above
        if (stages) fill(stages, now.stages.map((stage) => el("li", { class: stage.status, "aria-current": stage.status === "running" ? "step" : null }, stage.label)));
      },
    };
  }

  return Object.assign(node, { update });
}

function doing(job) {
  if (job.status === "stopping") return "Saving, then stopping";
  const left = job.remaining_s === null ? "" : job.remaining_s < 5 ? "a few seconds left" : `about ${duration(job.remaining_s)} left`;
  return [job.stage || job.line || job.title, job.share === null ? "" : `${Math.floor(100 * job.share)}%`, left].filter(Boolean).join(" · ");
}

function ended(job) {
  if (job?.status === "stopped") {
    return [el("p", { class: "paused" }, job.share ? `Paused at ${Math.floor(100 * job.share)}%. Nothing is lost.` : "Stopped. Nothing is lost."),
      row(button("Go on", () => resume(job), { kind: "primary", icon: "start" }), dismissal(job))];
  }
  if (job?.status === "failed" || job?.status === "killed") {
    return [problem(failure(job)), row(button("Try again", () => resume(job), { kind: "primary" }), dismissal(job))];
  }
  return null;
}

// A paused make keeps its offer to go on: hours of training may be in it.
const dismissal = (job) => (job.kind === "make" ? null : button("Dismiss", () => forget(job.kind)));

async function halt(job) {
  if (job.kind !== "make") return void stop(job);
  const [heading, wording] = job.status === "stopping"
    ? ["Stop at once?", "It is already saving. If you stop it now, it loses what it learned since it last saved."]
    : ["Stop?", "It finishes the current step and saves everything. You can go on whenever you like."];
  if (await ask(heading, quiet(wording), { yes: "Stop", no: "Keep going", danger: true })) await stop(job);
}
