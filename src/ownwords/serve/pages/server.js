// Requests to the server, and its events.

import { dismiss } from "/components.js";
import { t } from "/language.js";

/** An error of the server: a sentence, and what to do about it. */
export class ApiError extends Error {
  constructor(message, hint = "", status = 0) {
    super(message);
    this.hint = hint;
    this.status = status;
  }
}

const blog = new URLSearchParams(location.search).get("blog");

/** A path of the API for the blog of this tab. */
export const ofBlog = (path) => `${path}${path.includes("?") ? "&" : "?"}blog=${encodeURIComponent(blog)}`;

/** The query string of some values, without those that are empty. */
export const queryOf = (values) => new URLSearchParams(
  Object.entries(values).filter(([, value]) => value !== "" && value !== null && value !== undefined)).toString();

const unreachable = () => new ApiError(t`the server does not answer`, t`start \`ownwords\` again; nothing is lost`);

/** Get something: get("/api/corpus/posts", {page: 2}). Throws an ApiError, as the others do. */
export async function get(path, query = {}, signal = null) {
  const asked = queryOf(query);
  return (await send(asked ? `${path}?${asked}` : path, { signal })).json();
}

/** Get a page as text. */
export const text = async (path) => (await send(path)).text();

/** Change something, or send a body. */
export const post = (path, body = {}, signal = null) => change("POST", path, body, signal);
export const put = (path, body) => change("PUT", path, body);
export const patch = (path, body) => change("PATCH", path, body);
export const remove = (path, body = {}) => change("DELETE", path, body);

async function change(method, path, body, signal = null) {
  const answer = await send(path, { method, body: JSON.stringify(body), signal });
  dismiss(".bad"); // what failed before works now, or the reader has gone on
  return answer.status === 204 ? null : answer.json();
}

/** Send a file; `onShare` is called with the share of it that has arrived. */
export function upload(path, file, onShare, signal) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest(); // fetch reports no progress
    request.open("POST", ofBlog(path));
    request.setRequestHeader("Content-Type", "application/octet-stream");
    request.responseType = "json";
    request.upload.onprogress = ({ loaded, total }) => onShare(total ? loaded / total : 0);
    request.onload = () => (request.status < 300 ? resolve(request.response)
      : reject(errorOf(request.status, request.response)));
    request.onerror = () => reject(unreachable());
    request.onabort = () => reject(new ApiError(t`the upload was stopped`));
    signal.addEventListener("abort", () => request.abort());
    request.send(file);
  });
}

/** Events as they arrive: for await (const {event, data} of stream("/api/draft", {text}, signal)).
 *  A GET without a body. `data` is parsed if it is JSON. Ends when the server ends. */
export async function* stream(path, body, signal) {
  const request = body === null ? {} : { method: "POST", body: JSON.stringify(body) };
  const answer = await send(path, { ...request, signal, headers: { Accept: "text/event-stream" } });
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let left = "";
  try {
    for (;;) {
      const { value, done } = await reader.read().catch(() => {
        if (signal?.aborted) return { done: true };
        throw unreachable();
      });
      if (done) return;
      const blocks = (left + value).split(/\r?\n\r?\n/);
      left = blocks.pop();
      yield* blocks.map(eventOf).filter(Boolean);
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

function eventOf(block) {
  let event = "message";
  const data = [];
  for (const line of block.split(/\r?\n/)) {
    if (line.startsWith("event:")) event = line.slice(6).trim();
    else if (line.startsWith("data:")) data.push(line.slice(5).replace(/^ /, ""));
  }
  if (!data.length) return null; // a keep-alive comment
  const wording = data.join("\n");
  try {
    return { event, data: JSON.parse(wording) };
  } catch {
    return { event, data: wording };
  }
}

/** Listen to an endless stream until `left`, reconnecting when it breaks. */
export async function listen(left, path, onEvent, onLost) {
  for (let tries = 0; !left.aborted; tries += 1) {
    try {
      for await (const result of stream(path, null, left)) {
        tries = 0;
        onEvent(result);
      }
      if (!left.aborted) onLost(unreachable());
    } catch (error) {
      if (left.aborted) return;
      onLost(error);
      if (error.status >= 400 && error.status < 500 && error.status !== 429) return;
    }
    await new Promise((resume) => setTimeout(resume, Math.min(5000, 500 * 2 ** tries)));
  }
}

/** A text as it is written, piece by piece; `outcome` receives its tokens and why it ended. */
export async function* completion(body, signal, outcome = {}) {
  const asked = { ...body, stream: true, stream_options: { include_usage: true }, truncate_prompt_tokens: -1 };
  for await (const { data } of stream("/v1/completions", asked, signal)) {
    if (data.error) throw new ApiError(data.error.message);
    if (data.usage) outcome.tokens = data.usage.completion_tokens;
    for (const { text, finish_reason: finished } of data.choices ?? []) {
      outcome.finished = finished;
      if (text) yield text;
    }
  }
}

/** Import a module of the page; the browser's own error would not say that the server is gone. */
export const load = (path) => import(path).catch(() => { throw unreachable(); });

async function send(path, options = {}) {
  const headers = { ...options.body && { "Content-Type": "application/json" }, ...options.headers };
  const answer = await fetch(ofBlog(path), { ...options, headers, credentials: "same-origin" }).catch((error) => {
    throw options.signal?.aborted ? error : unreachable();
  });
  if (answer.ok) return answer;
  throw errorOf(answer.status, await answer.json().catch(() => null));
}

function errorOf(status, body) {
  if (status === 401) location.assign(`/login${location.search}${location.hash}`);
  const { message = t`the server answered with status ${status}`, hint } = body?.error ?? {};
  return new ApiError(message, hint, status);
}
