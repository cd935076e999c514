// The app: routing, requests to the server, keys, colours, messages.

import { button, checkbox, el, fill, uniqueId, icon, kbd, loading, problem, sentence } from "/components.js";

const PARTS = [["corpus", "Corpus"], ["train", "Train"], ["write", "Write"], ["ask", "Ask"], ["score", "Score"]];
const main = document.getElementById("main");

// ---- addresses --------------------------------------------------------------------------------

/** The address of a page: address("corpus", ["post", id], {at: 3}) -> "#/corpus/post/…?at=3". */
export function address(part, path = [], query = {}) {
  const asked = new URLSearchParams(Object.entries(query).filter(([, value]) => value !== "" && value !== null && value !== undefined && value !== false));
  const wording = asked.toString();
  return `#/${[part, ...path].map(encodeURIComponent).join("/")}${wording ? `?${wording}` : ""}`;
}

function parsed(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  const [part = "", ...rest] = path.split("/").filter(Boolean).map(decoded);
  return { part: part || PARTS[0][0], path: rest, query: new URLSearchParams(query) };
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // a lone percent sign
  }
}

/** Go to another page. `replace`: without a new entry in the history; `quietly`: only change the
 *  address, since the page has already changed itself. */
export function go(href, { replace = false, quietly = false } = {}) {
  byLink = !quietly;
  if (quietly) {
    history[replace ? "replaceState" : "pushState"](null, "", href);
    shown = location.hash;
  } else if (replace) {
    history.replaceState(null, "", href);
    route();
  } else location.hash = href;
}

/** Set the window's title. */
export function setTitle(text) {
  document.title = [text, place.name, "ownwords"].filter(Boolean).join(" · ");
}

let leave = () => {};
let byLink = false; // else by the browser's buttons, which restore the scroll position
const heights = new Map();
let turn = 0;
let shown = null;
export const place = { name: "", version: "", path: "" };

async function route() {
  if (location.hash && !location.hash.startsWith("#/")) return; // an anchor on this page
  if (shown === location.hash) return;
  heights.set(shown, window.scrollY);
  const isBack = !byLink;
  byLink = false;
  const first = shown === null, now = (turn += 1);
  shown = location.hash;
  const where = parsed(location.hash);
  const known = PARTS.find(([name]) => name === where.part);
  for (const each of document.querySelectorAll("#parts a")) {
    const is = each.getAttribute("href") === `#/${where.part}`;
    if (is) each.setAttribute("aria-current", "page");
    else each.removeAttribute("aria-current");
  }
  leaveNow();
  const waiting = setTimeout(() => now === turn && fill(main, loading("Loading")), 150);
  const element = el("div", { class: `page ${where.part}` });
  try {
    if (!known) throw new ApiError(`there is no page ${where.part}`, `choose one of ${PARTS.map(([, label]) => label).join(", ")}`);
    const page = await load(`/${where.part}.js`);
    setTitle(known[1]);
    const left = await page.show(element, where);
    if (now !== turn) return void (typeof left === "function" && left());
    leave = typeof left === "function" ? left : () => {};
  } catch (error) {
    if (now !== turn) return;
    fill(element, problem(error, () => { shown = null; route(); }));
  } finally {
    clearTimeout(waiting);
  }
  fill(main, element);
  if (first) return;
  window.scrollTo(0, (isBack && heights.get(shown)) || 0);
  (element.querySelector("[autofocus]") ?? element.querySelector("h1") ?? main).focus({ preventScroll: true });
}

/** A module of the page; the browser's own error does not say that the server is gone. */
export const load = (path) => import(path).catch((error) => { throw unreachable(error); });

function leaveNow() {
  const last = leave;
  leave = () => {};
  pageKeys.clear();
  try {
    last();
  } catch (error) {
    console.error(error);
  }
}

// ---- the server -------------------------------------------------------------------------------

/** An error of the server: a sentence, and what to do about it. */
export class ApiError extends Error {
  constructor(message, hint = "", status = 0) {
    super(message);
    this.hint = hint;
    this.status = status;
  }
}

/** Get something: get("/api/corpus/posts", {page: 2}). Throws an ApiError. */
export async function get(path, query = {}, { signal } = {}) {
  const asked = new URLSearchParams(Object.entries(query).filter(([, value]) => value !== "" && value !== null && value !== undefined));
  const answer = await send(asked.size ? `${path}?${asked}` : path, { signal });
  return answer.json();
}

/** Change something, or send a body. Throws an ApiError. */
export async function post(path, body = {}, { signal } = {}) {
  const answer = await send(path, { method: "POST", body: JSON.stringify(body), signal });
  return answer.status === 204 ? null : answer.json();
}

/** Events as they come: for await (const {event, data} of stream("/api/write", {prompt}, {signal})).
 *  Without a body it is a GET. `data` is parsed where it is JSON. Ends when the server ends. */
export async function* stream(path, body = null, { signal } = {}) {
  const how = body === null ? {} : { method: "POST", body: JSON.stringify(body) };
  const answer = await send(path, { ...how, signal, headers: { Accept: "text/event-stream" } });
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let left = "";
  try {
    for (;;) {
      const { value, done } = await reader.read().catch((error) => {
        if (signal?.aborted) return { done: true };
        throw unreachable(error);
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
      } catch (error) {
        if (ended.signal.aborted) return;
        onLost(error);
        if (error.status >= 400 && error.status < 500 && error.status !== 429) return;
      }
      tries += 1;
      await new Promise((resume) => setTimeout(resume, Math.min(15000, 500 * 2 ** tries)));
    }
  })();
  return () => ended.abort();
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

async function send(path, options = {}) {
  const headers = { "X-Ownwords": "1", ...(options.body ? { "Content-Type": "application/json" } : {}), ...options.headers };
  let answer;
  try {
    answer = await fetch(path, { ...options, headers, credentials: "same-origin" });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw unreachable(error);
  }
  if (answer.ok) return answer;
  if (answer.status === 401) location.assign(`/login${location.hash}`); // the login form
  const wording = await answer.json().catch(() => null);
  throw new ApiError(wording?.error?.message ?? `the server answered ${answer.status}`, wording?.error?.hint ?? "", answer.status);
}

const unreachable = (error) => new ApiError("the server does not answer", "check whether `ownwords serve` is still running, then try again");

// ---- messages and questions -------------------------------------------------------------------

/** Tell screen readers something, without showing it. */
export function announce(text) {
  const announcer = document.getElementById("announcer");
  announcer.textContent = "";
  requestAnimationFrame(() => { announcer.textContent = text; });
}

/** A message that disappears by itself; errors stay until they are closed. */
export function toast(wording, { kind = "" } = {}) {
  const isError = wording instanceof Error;
  const text = isError ? sentence(wording.message) + (wording.hint ? ` ${sentence(wording.hint)}` : "") : wording;
  const node = el("div", { class: ["toast", isError ? "bad" : kind], role: isError ? "alert" : "status" }, el("p", {}, text),
    el("button", { type: "button", class: "icon", "aria-label": "Close this message", on: { click: () => node.remove() } }, icon("close")));
  document.getElementById("toasts").append(node);
  if (!isError) setTimeout(() => node.remove(), Math.max(5000, 70 * text.length));
  return node;
}

/** A dialog; resolves to `value()` if it is accepted, else to null. */
export function ask(heading, body, { yes = "Yes", no = "Cancel", danger = false, value = () => true } = {}) {
  return new Promise((resolve) => {
    let answer = null;
    const id = uniqueId("dialog");
    const decline = button(no, () => box.close());
    const accept = button(yes, null, { kind: danger ? "danger" : "primary", type: "submit" });
    const form = el("form", { method: "dialog", on: { submit: () => { answer = value(); } } },
      el("h2", { id }, heading), el("div", { class: "dialog-body" }, body), el("div", { class: "row end" }, no ? decline : null, accept));
    const box = el("dialog", { "aria-labelledby": id, on: { close: () => { box.remove(); resolve(answer); } } }, form);
    document.body.append(box);
    box.showModal();
  });
}

// ---- what this browser remembers ---------------------------------------------------------------

const memory = new Map(); // where storage is forbidden, a choice holds until the page is closed

export function remember(name, value) {
  memory.set(name, value);
  try {
    localStorage.setItem(`ownwords.${name}`, value);
  } catch {
    // kept in `memory`
  }
}

export function remembered(name) {
  try {
    return localStorage.getItem(`ownwords.${name}`) ?? memory.get(name) ?? null;
  } catch {
    return memory.get(name) ?? null;
  }
}

// ---- keys -------------------------------------------------------------------------------------

const globalKeys = new Map();
const pageKeys = new Map();

/** Add a shortcut of the current page ("/", "j", "Enter" with `whileTyping`), listed under "?". */
export function shortcut(key, label, run, { whileTyping = false } = {}) {
  pageKeys.set(key, { label, run, whileTyping });
}

const typing = (node) => node instanceof HTMLElement && (node.isContentEditable || /^(TEXTAREA|SELECT)$/.test(node.tagName)
  || (node.tagName === "INPUT" && !/^(checkbox|radio|range|button|submit)$/.test(node.type)));

document.addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.altKey || event.isComposing || document.querySelector("dialog[open]")) return;
  const key = (event.ctrlKey || event.metaKey ? "Ctrl+" : "") + event.key;
  const result = pageKeys.get(key) ?? globalKeys.get(key);
  const isTyping = typing(event.target);
  if (!result || (isTyping && !result.whileTyping) || (key.length === 1 && !keysOn())) return leaveField();
  if (result.run(event) === false) return leaveField(); // it had nothing to do
  event.preventDefault();

  function leaveField() {
    if (isTyping && key === "Escape") event.target.blur(); // keys are keys again
  }
});

/** Single keys can be switched off: dictation software types them (WCAG 2.1.4). */
const keysOn = () => remembered("keys") !== "off";

function showKeys() {
  const line = ([key, { label }]) => el("div", {}, el("dt", {}, kbd(key)), el("dd", {}, label));
  ask("Keyboard shortcuts", [el("dl", { class: "keys" }, [...pageKeys].map(line), [...globalKeys].map(line)),
    checkbox("Single-key shortcuts", keysOn(), (on) => remember("keys", on ? "on" : "off"), "Switch them off if you dictate, or press keys by accident."),
    el("p", { class: "quiet" }, "Tab and Shift+Tab move through everything, arrow keys within a group. Esc closes dialogs and leaves fields.")], { yes: "Close", no: "" });
}

// ---- colours ----------------------------------------------------------------------------------

const THEMES = ["auto", "light", "dark"];
const THEME_SAID = { auto: "System colours", light: "Light colours", dark: "Dark colours" };
const themeNow = () => document.documentElement.dataset.theme ?? "auto";

function nextTheme() {
  const next = THEMES[(THEMES.indexOf(themeNow()) + 1) % THEMES.length];
  if (next === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = next;
  remember("theme", next);
  showTheme();
  announce(THEME_SAID[next]);
}

function showTheme() {
  const node = document.getElementById("theme"), wording = `${THEME_SAID[themeNow()]} (t)`;
  node.title = wording;
  node.setAttribute("aria-label", wording);
  fill(node, icon(themeNow()));
}

// ---- the beginning ----------------------------------------------------------------------------

PARTS.forEach(([name, label], i) => globalKeys.set(String(i + 1), { label, run: () => go(address(name)) }));
globalKeys.set("t", { label: "Switch between light, dark and system colours", run: nextTheme });
globalKeys.set("?", { label: "Show keyboard shortcuts", run: showKeys });
document.getElementById("theme").addEventListener("click", nextTheme);
document.getElementById("keys").addEventListener("click", showKeys);
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  (main.querySelector("h1") ?? main).focus();
});
document.addEventListener("click", (event) => { byLink ||= Boolean(event.target.closest?.('a[href^="#/"]')); });
window.addEventListener("hashchange", route);
showTheme();
route();
get("/api/workspace").then((result) => {
  Object.assign(place, result);
  document.getElementById("workspace").textContent = place.name;
  if (place.name) document.title = document.title.replace(/ownwords$/, `${place.name} · ownwords`);
}).catch(() => {});
