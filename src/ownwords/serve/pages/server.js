// Requests to the server, and its events.

import { t } from "/language.js";
import { dismiss } from "/messages.js";

/** An error of the server: a sentence, and what to do about it. */
export class ApiError extends Error {
  constructor(message, hint = "", status = 0, choices = []) {
    super(message);
    this.hint = hint;
    this.status = status;
    this.choices = choices; // what can be asked in its place
  }
}

const blog = new URLSearchParams(location.search).get("blog");

/** A path of the API, asked about the blog of this tab. */
export const ofBlog = (path) => `${path}${path.includes("?") ? "&" : "?"}blog=${encodeURIComponent(blog)}`;

const GONE = [t`the server does not answer`, t`start \`ownwords\` again; nothing is lost`];
const unreachable = () => new ApiError(...GONE);

/** Get something: get("/api/corpus/posts", {page: 2}). Throws an ApiError, as the others do. */
export async function get(path, query = {}, { signal } = {}) {
  const asked = new URLSearchParams(Object.entries(query).filter(([, value]) => value !== "" && value !== null && value !== undefined));
  const answer = await send(asked.size ? `${path}?${asked}` : path, { signal });
  return answer.json();
}

/** Get a page as text. */
export const text = async (path) => (await send(path)).text();

/** Change something, or send a body. */
export const post = (path, body = {}, options = {}) => change("POST", path, body, options);
export const put = (path, body) => change("PUT", path, body);
export const patch = (path, body) => change("PATCH", path, body);
export const remove = (path, body = {}) => change("DELETE", path, body);

async function change(method, path, body, { signal } = {}) {
  const answer = await send(path, { method, body: JSON.stringify(body), signal });
  dismiss(".bad"); // what failed before works now, or the reader has gone on
  return answer.status === 204 ? null : answer.json();
}

/** Send a file; `onShare` hears which share of it has arrived. */
export function upload(path, file, onShare, signal) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest(); // fetch does not tell how far it is
    request.open("POST", ofBlog(path));
    request.setRequestHeader("X-Ownwords", "1");
    request.setRequestHeader("Content-Type", "application/octet-stream");
    request.responseType = "json";
    request.upload.onprogress = ({ loaded, total }) => onShare(total ? loaded / total : 0);
    request.onload = () => (request.status < 300 ? resolve(request.response) : reject(errorOf(request.status, request.response)));
    request.onerror = () => reject(unreachable());
    request.onabort = () => reject(new ApiError(t`the upload was stopped`));
    signal?.addEventListener("abort", () => request.abort());
    request.send(file);
  });
}

/** Events as they come: for await (const {event, data} of stream("/api/draft", {text}, {signal})).
 *  Without a body it is a GET. `data` is parsed where it is JSON. Ends when the server ends. */
export async function* stream(path, body = null, { signal } = {}) {
  const how = body === null ? {} : { method: "POST", body: JSON.stringify(body) };
  const answer = await send(path, { ...how, signal, headers: { Accept: "text/event-stream" } });
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
      for (const block of blocks) {
        const result = eventOf(block);
        if (result) yield result;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

/** The same for an endless stream, reconnecting when it breaks. Returns a function that stops it. */
export function listen(path, onEvent, { onLost = () => {} } = {}) {
  const ended = new AbortController();
  (async () => {
    for (let tries = 0; !ended.signal.aborted; ) {
      try {
        for await (const result of stream(path, null, { signal: ended.signal })) {
          tries = 0;
          onEvent(result);
        }
        if (!ended.signal.aborted) onLost(unreachable());
      } catch (error) {
        if (ended.signal.aborted) return;
        onLost(error);
        if (error.status >= 400 && error.status < 500 && error.status !== 429) return;
      }
      tries += 1;
      await new Promise((resume) => setTimeout(resume, Math.min(5000, 250 * 2 ** tries)));
    }
  })();
  return () => ended.abort();
}

/** A text as it is written, piece by piece; `outcome` takes its tokens and why it ended. */
export async function* completion(body, signal, outcome = {}) {
  const asked = { ...body, stream: true, stream_options: { include_usage: true }, truncate_prompt_tokens: -1 };
  for await (const { data } of stream("/v1/completions", asked, { signal })) {
    if (data.error) throw new ApiError(data.error.message);
    if (data.usage) outcome.tokens = data.usage.completion_tokens;
    for (const { text, finish_reason: finished } of data.choices ?? []) {
      outcome.finished = finished;
      if (text) yield text;
    }
  }
}

/** A module of the page; the browser's own error does not say that the server is gone. */
export const load = (path) => import(path).catch(() => { throw unreachable(); });

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

async function send(path, options = {}) {
  const headers = { "X-Ownwords": "1", ...(options.body ? { "Content-Type": "application/json" } : {}), ...options.headers };
  let answer;
  try {
    answer = await fetch(ofBlog(path), { ...options, headers, credentials: "same-origin" });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw unreachable();
  }
  if (answer.ok) return answer;
  throw errorOf(answer.status, await answer.json().catch(() => null));
}

function errorOf(status, body) {
  if (status === 401) location.assign(`/login${location.search}${location.hash}`); // the login form
  return new ApiError(body?.error?.message ?? t`the server answered ${status}`, body?.error?.hint ?? "", status, body?.error?.choices);
}
