// The jobs of the server and what has changed there: one stream of events for the whole page.

import { post, listen, remove } from "/server.js";
import { announce, dismiss, toast } from "/messages.js";
import { sentence } from "/components.js";

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
    toast(error);
    return null;
  }
}

function take(job) {
  const before = jobs.get(job.id);
  jobs.set(job.id, job);
  if (before && isRunning(before) && !isRunning(job)) {
    dismiss(".bad"); // it may say that this job is still running
    announce(`${job.title}: ${ENDS[job.status] ?? job.status}`);
  }
  tell("onJob", job);
}

const ENDS = { done: "done", stopped: "paused", failed: "failed", killed: "ended unexpectedly" };

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
      tell("onChange", ["workspace", "sources", "blog", "model", "models", "bases", "exports", "texts"]);
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
export const shareOf = (job) => (job.share === null ? "" : `${Math.floor(100 * job.share)}%`);
export const failure = (job) => job.error ?? { message: sentence(job.line || "it ended unexpectedly"), hint: "" };
