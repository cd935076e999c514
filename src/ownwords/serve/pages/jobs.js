// The jobs of the server, what changes there, and how a part of the page follows both.

import { announce, ask, bar, button, dismiss, dotted, duration, el, fill, percent, problem, quiet, redraw, row }
  from "/components.js";
import { said, t } from "/language.js";
import { listen, post, remove } from "/server.js";

/** The signal of what lasts as long as the window; that of a page is aborted when it is left. */
export const ALWAYS = new AbortController().signal;

const jobs = new Map();
const listeners = new Set();
let isLost = false;

/** Call a listener until the page is left: onJob(job), onChange(what), onLost(error or null). */
export function follow(left, listener) {
  listeners.add(listener);
  left.addEventListener("abort", () => listeners.delete(listener));
}

/** Load and show something, and again when one of `parts` changes on the server. Returns the function that does it.
 *
 *  A newer call cancels an older one, and leaving the page cancels all: a late answer never replaces a newer one. */
export function live(left, load, show, parts = []) {
  let current = new AbortController(), newest = null;

  function again() {
    current.abort();
    current = new AbortController();
    newest = run(AbortSignal.any([left, current.signal]));
    return newest;
  }

  async function run(signal) {
    const answer = await load(signal).catch((error) => {
      if (!signal.aborted) throw error;
    });
    left.throwIfAborted();
    return signal.aborted ? newest : show(answer);
  }

  if (parts.length) follow(left, { onChange: (what) => what.some((part) => parts.includes(part)) && again() });
  return again;
}

/** Work that the reader can stop, and that ends when the page is left: run(work) calls work(signal). `stop` ends all. */
export function task(left) {
  const current = new Set();
  return {
    isBusy: () => current.size > 0,
    async run(work) {
      const own = new AbortController();
      current.add(own);
      try {
        return await work(AbortSignal.any([left, own.signal]));
      } finally {
        current.delete(own);
      }
    },
    stop() {
      for (const each of current) each.abort();
      return current.size > 0;
    },
  };
}

/** The newest job of a kind, or null. */
export const newest = (kind) => [...jobs.values()].filter((job) => job.kind === kind)
  .reduce((last, job) => (last && last.began >= job.began ? last : job), null);

/** The running job, or null; a training before any other. */
export function running() {
  const all = [...jobs.values()].filter(isRunning);
  return all.find((job) => job.kind === "make") ?? all[0] ?? null;
}

export const isRunning = (job) => job?.status === "running" || job?.status === "stopping";

/** The running job during which no model can be changed, or null. */
export const exclusive = () =>
  [...jobs.values()].find((job) => isRunning(job) && ["look", "make", "score"].includes(job.kind)) ?? null;

/** Whether a job runs, or was broken off and no model was made after it. */
export const isOpen = (job, model) =>
  isRunning(job) || Boolean(job && job.status !== "done" && (!model || job.began > model.made_at));

/** Whether a scoring runs, or was broken off and this model still has no scorecard. */
export const isOpenScoring = (job, model) => isOpen(job, model)
  && (isRunning(job) || Boolean(model && !model.sentence));

const pathOf = (job) => `/api/jobs/${encodeURIComponent(job.id)}`;

/** Start a job, stop one, go on with one. Returns the job. */
export const start = (request) => change("/api/jobs", request);
export const stop = (job) => change(`${pathOf(job)}/stop`);
export const resume = (job) => change(`${pathOf(job)}/resume`);

/** Forget all jobs of a kind that have ended, or an older one would be the newest. */
const forget = (kind) => Promise.all([...jobs.values()].filter((job) => job.kind === kind && !isRunning(job))
  .map((job) => remove(pathOf(job))));

async function change(path, body = {}) {
  const job = await post(path, body);
  take(job);
  return job;
}

const ENDS = { done: t`done`, stopped: t`paused`, failed: t`failed`, killed: t`ended unexpectedly` };

function take(job) {
  const before = jobs.get(job.id);
  jobs.set(job.id, job);
  if (before && isRunning(before) && !isRunning(job)) {
    dismiss(".bad"); // it may say that this job is still running
    announce(`${said(job.title)}: ${ENDS[job.status] ?? job.status}`);
  }
  tell("onJob", job);
}

function tell(name, ...values) {
  for (const listener of listeners) listener[name]?.(...values);
}

/** Take in jobs that were not read from the stream. */
export function know(list) {
  for (const job of list) if (!jobs.has(job.id)) jobs.set(job.id, job);
}

/** Listen to the server; the page does it once. */
export function begin() {
  listen(ALWAYS, "/api/events", ({ event, data }) => {
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
    } else if (event === "job") take(data);
    else if (event === "removed") {
      jobs.delete(data.id);
      tell("onJob", null);
    } else if (event === "changed") tell("onChange", data.what);
  }, (error) => {
    isLost = true;
    tell("onLost", error);
  });
}

// ---- one job as its reader sees it ------------------------------------------------------------

/** "42%", or "" if it is not known. */
export const shareOf = (job) => (job.share === null ? "" : percent(Math.floor(100 * job.share) / 100));

/** The state of the job that `pick()` returns, as long as the page is open; nothing for a job that is done, or null. */
export function progress(left, pick, { isStaged = false } = {}) {
  const node = el("div.progress");
  let gauge, line, stages;

  function live(job) {
    gauge = bar(said(job.title));
    line = el("p.now");
    stages = isStaged && el("ol.stages", { "aria-label": t`Stages` });
    const label = job.status === "stopping" ? t`Stop at once` : t`Stop`;
    return [gauge, el("div.row.spread", line, button(label, () => halt(job), { kind: "small", icon: "stop" })), stages];
  }

  function update() {
    const job = pick();
    redraw(node, [job?.id, job?.status], () => (isRunning(job) ? live(job) : ended(job)));
    node.hidden = !node.firstChild;
    if (!isRunning(job)) return;
    if (job.share === null) gauge.removeAttribute("value");
    else gauge.value = job.share;
    line.textContent = doing(job);
    if (stages) fill(stages, job.stages.map(({ status, label }) =>
      el("li", { class: status, "aria-current": status === "running" ? "step" : null }, said(label))));
  }

  follow(left, { onJob: update });
  update();
  return Object.assign(node, { update });
}

function doing(job) {
  if (job.status === "stopping") return t`Saving, then stopping`;
  const left = job.remaining_s === null ? ""
    : job.remaining_s < 10 ? t`a few seconds left` : t`about ${duration(job.remaining_s)} left`;
  return dotted(said(job.stage || job.line || job.title), shareOf(job), left);
}

function ended(job) {
  // A paused training stays: hours may be in it.
  const dismissal = job?.kind !== "make" && button(t`Dismiss`, () => forget(job.kind));
  if (job?.status === "stopped") {
    return [el("p.paused", job.share ? t`Paused at ${shareOf(job)}. Nothing is lost.` : t`Stopped. Nothing is lost.`),
      row(button(t`Resume`, () => resume(job), { kind: "primary", icon: "start" }), dismissal)];
  }
  if (job?.status === "failed" || job?.status === "killed") {
    return [problem(job.error ?? { message: job.line || t`it ended unexpectedly` }),
      row(button(t`Try again`, () => resume(job), { kind: "primary" }), dismissal)];
  }
  return null;
}

async function halt(job) {
  const [heading, wording] = job.status === "stopping"
    ? [t`Stop at once?`, t`It is already saving. If you stop it now, you lose what it has learned since it last saved.`]
    : [t`Stop the training?`, t`It finishes the current step and saves everything. You can resume whenever you like.`];
  const options = { yes: t`Stop`, no: t`Keep going`, danger: true };
  if (job.kind !== "make" || await ask(heading, quiet(wording), options)) await stop(job);
}
