// The jobs of the server and what has changed there: one stream of events for the whole page; and a job as its reader sees it.

import { bar, button, duration, el, fill, percent, problem, quiet, row, sentence } from "/components.js";
import { said, t } from "/language.js";
import { announce, ask, dismiss, toast } from "/messages.js";
import { listen, post, remove } from "/server.js";

const jobs = new Map();
const listeners = new Set();
let isLost = false;

/** Hear of jobs and changes: onJob(job), onElsewhere(the jobs of other blogs that run), onChange(what), onLost(error or null). Returns a function that ends it. */
export function follow(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** The newest job of these kinds, or null. */
export function newest(...kinds) {
  return [...jobs.values()].filter((job) => kinds.includes(job.kind)).reduce((last, job) => (last && last.began >= job.began ? last : job), null);
}

/** The job that is under way, or null; a long one before a short one. */
export function running() {
  const live = [...jobs.values()].filter(isRunning);
  return live.find((job) => job.kind === "make") ?? live[0] ?? null;
}

export const isRunning = (job) => job?.status === "running" || job?.status === "stopping";

/** The job under way that no model can be changed beside, or null. */
export const exclusive = () => [...jobs.values()].find((job) => isRunning(job) && ["look", "make", "score"].includes(job.kind)) ?? null;

/** Whether a job runs, or was broken off and no model was made after it. */
export const isOpen = (job, model) => isRunning(job) || Boolean(job && job.status !== "done" && (!model || job.began > model.made_at));

/** Whether a scoring runs, or was broken off and this model still has no scorecard. */
export const isOpenScoring = (job, model) => isOpen(job, model) && (isRunning(job) || Boolean(model && !model.sentence));

/** Start a job, stop one, go on with one; errors become a message, and null is given back. */
export const start = (request) => asked("/api/jobs", request);
export const stop = (job) => asked(`/api/jobs/${encodeURIComponent(job.id)}/stop`);
export const resume = (job) => asked(`/api/jobs/${encodeURIComponent(job.id)}/resume`);

/** Forget all jobs of a kind that have ended, or an older one would be the newest. */
export const forget = (kind) => Promise.all([...jobs.values()].filter((job) => job.kind === kind && !isRunning(job)).map((job) => remove(`/api/jobs/${encodeURIComponent(job.id)}`))).catch(toast);

async function asked(path, body = {}) {
  try {
    const job = await post(path, body);
    take(job);
    return job;
  } catch (error) {
    const chosen = error.choices?.length ? await instead(error) : toast(error);
    return chosen ? asked(path, { ...body, ...chosen }) : null;
  }
}

/** Ask which of the trainings that are possible is to begin; null for none. */
async function instead(error) {
  let chosen = 0;
  const cards = el("fieldset", { class: "cards" }, el("legend", {}, t`What shall begin?`), error.choices.map(({ title, minutes }, i) => el("label", {},
    el("input", { type: "radio", name: "instead", checked: i === 0, on: { change: () => { chosen = i; } } }), el("span", {}, el("strong", {}, capital(said(title))), el("span", {}, duration(60 * minutes))))));
  if (!(await ask(sentence(error.message), cards, { yes: t`Start` }))) return null;
  const { base, minutes } = error.choices[chosen];
  return { base, minutes };
}

const capital = (text) => text.slice(0, 1).toUpperCase() + text.slice(1);

function take(job) {
  const before = jobs.get(job.id);
  jobs.set(job.id, job);
  if (before && isRunning(before) && !isRunning(job)) {
    dismiss(".bad"); // it may say that this job is still running
    announce(`${said(job.title)}: ${ENDS[job.status] ?? job.status}`);
  }
  tell("onJob", job);
}

const ENDS = { done: t`done`, stopped: t`paused`, failed: t`failed`, killed: t`ended unexpectedly` };

function tell(name, ...values) {
  for (const listener of listeners) listener[name]?.(...values);
}

/** Take in jobs that were read otherwise than from the stream. */
export function know(list) {
  for (const job of list) if (!jobs.has(job.id)) jobs.set(job.id, job);
}

/** Begin to listen; the page does it once. */
export function begin() {
  listen("/api/events", ({ event, data }) => {
    if (isLost) {
      isLost = false;
      dismiss(".bad");
      tell("onLost", null);
      tell("onChange", ["sources", "blog", "model", "models", "bases", "exports", "texts"]);
    }
    if (event === "jobs") {
      jobs.clear();
      for (const job of data.jobs) jobs.set(job.id, job);
      tell("onJob", null);
      tell("onElsewhere", data.elsewhere);
    } else if (event === "job") take(data);
    else if (event === "elsewhere") tell("onElsewhere", data.jobs);
    else if (event === "removed") {
      jobs.delete(data.id);
      tell("onJob", null);
    } else if (event === "changed") tell("onChange", data.what);
  }, { onLost: (error) => { isLost = true; tell("onLost", error); } });
}

/** "42%", or "" where it is not known. */
export const shareOf = (job) => (job.share === null ? "" : percent(Math.floor(100 * job.share) / 100));
const failure = (job) => job.error ?? { message: sentence(job.line || t`it ended unexpectedly`), hint: "" };

// ---- one job as its reader sees it ------------------------------------------------------------

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
    const gauge = bar(said(job.title), job.share), line = el("p", { class: "now" });
    const stages = isStaged ? el("ol", { class: "stages", "aria-label": t`Stages` }) : null;
    const end = button(job.status === "stopping" ? t`Stop at once` : t`Stop`, () => halt(job), { kind: "small", icon: "stop" });
    return {
      node: [gauge, el("div", { class: "row spread" }, line, end), stages],
      update(now) {
        if (now.share === null) gauge.removeAttribute("value");
        else gauge.value = now.share;
        line.textContent = doing(now);
        if (stages) fill(stages, now.stages.map((stage) => el("li", { class: stage.status, "aria-current": stage.status === "running" ? "step" : null }, said(stage.label))));
      },
    };
  }

  return Object.assign(node, { update });
}

function doing(job) {
  if (job.status === "stopping") return t`Saving, then stopping`;
  const left = job.remaining_s === null ? "" : job.remaining_s < 10 ? t`a few seconds left` : t`about ${duration(job.remaining_s)} left`;
  return [said(job.stage || job.line || job.title), shareOf(job), left].filter(Boolean).join(" · ");
}

function ended(job) {
  if (job?.status === "stopped") {
    return [el("p", { class: "paused" }, job.share ? t`Paused at ${shareOf(job)}. Nothing is lost.` : t`Stopped. Nothing is lost.`),
      row(button(t`Go on`, () => resume(job), { kind: "primary", icon: "start" }), dismissal(job))];
  }
  if (job?.status === "failed" || job?.status === "killed") {
    return [problem(failure(job)), row(button(t`Try again`, () => resume(job), { kind: "primary" }), dismissal(job))];
  }
  return null;
}

// A paused make keeps its offer to go on: hours of training may be in it.
const dismissal = (job) => (job.kind === "make" ? null : button(t`Dismiss`, () => forget(job.kind)));

async function halt(job) {
  if (job.kind !== "make") return void stop(job);
  const [heading, wording] = job.status === "stopping"
    ? [t`Stop at once?`, t`It is saving already. If you stop it now, you lose what it has learned since it last saved.`]
    : [t`Stop?`, t`It finishes the current step and saves everything. You can go on whenever you like.`];
  if (await ask(heading, quiet(wording), { yes: t`Stop`, no: t`Keep going`, danger: true })) await stop(job);
}
