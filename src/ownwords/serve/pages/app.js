// The app: routing, keys, colours, and the line at the top.

import { bullets, button, checkbox, command, el, field, fill, icon, input, kbd, link, loading, problem, quiet, row, tag } from "/components.js";
import { begin, follow, running, shareOf } from "/jobs.js";
import { count, said, t, translate } from "/language.js";
import { remember, remembered } from "/memory.js";
import { announce, ask, dismiss, toast } from "/messages.js";
import { ApiError, get, load, patch, post, remove } from "/server.js";

const PARTS = [["home", t`Home`], ["write", t`Write`], ["ask", t`Ask`], ["posts", t`Posts`], ["models", t`Models`], ["settings", t`Settings`]];
const main = document.getElementById("main");

// ---- addresses --------------------------------------------------------------------------------

/** The address of a page: address("posts", ["post", id], {at: 3}) -> "#/posts/post/…?at=3". */
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
  if (quietly && location.hash !== shown) return; // a link was followed, and its page is about to be shown
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
const place = { name: "" };

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
  dismiss();
  const waiting = setTimeout(() => now === turn && fill(main, loading(t`Loading`)), 150);
  const element = el("div", { class: `page ${where.part}` });
  try {
    if (!known) throw new ApiError(t`there is no page ${where.part}`, t`choose one of ${PARTS.map(([, label]) => label).join(", ")}`);
    const page = await load(`/${where.part}.js`);
    setTitle(known[1]);
    const left = await page.show(element, where);
    if (now !== turn) return void (typeof left === "function" && left());
    leave = typeof left === "function" ? left : () => {};
  } catch (error) {
    if (now !== turn) return;
    fill(element, problem(error, refresh));
  } finally {
    clearTimeout(waiting);
  }
  fill(main, element);
  if (first) return;
  window.scrollTo(0, (isBack && heights.get(shown)) || 0);
  (element.querySelector("[autofocus]") ?? element.querySelector("h1") ?? main).focus({ preventScroll: true });
}

/** Show the page anew. */
export function refresh() {
  shown = null;
  route();
}

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

const setKeys = (isOn) => remember("keys", isOn ? "on" : "off");

function showKeys() {
  const line = ([key, { label }]) => el("div", {}, el("dt", {}, kbd(key)), el("dd", {}, label));
  ask(t`Keyboard shortcuts`, [el("dl", { class: "keys" }, [...pageKeys].map(line), [...globalKeys].map(line)),
    checkbox(t`Single-key shortcuts`, keysOn(), setKeys, t`Switch them off if you dictate, or often press keys by accident.`),
    el("p", { class: "quiet" }, t`Tab and Shift+Tab move through everything, arrow keys within a group. Esc closes dialogs and leaves fields.`)], { yes: t`Close`, no: "" });
}

// ---- colours ----------------------------------------------------------------------------------

const THEMES = ["auto", "light", "dark"];
const THEME_SAID = { auto: t`System colours`, light: t`Light colours`, dark: t`Dark colours` };
const themeNow = () => document.documentElement.dataset.theme ?? "auto";

function setTheme(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  remember("theme", theme);
  showTheme();
  announce(THEME_SAID[theme]);
}

const nextTheme = () => setTheme(THEMES[(THEMES.indexOf(themeNow()) + 1) % THEMES.length]);

function showTheme() {
  const node = document.getElementById("theme"), wording = `${THEME_SAID[themeNow()]} (t)`;
  node.title = wording;
  node.setAttribute("aria-label", wording);
  fill(node, icon(themeNow()));
}

// ---- the beginning ----------------------------------------------------------------------------

PARTS.forEach(([name, label], i) => globalKeys.set(String(i + 1), { label, run: () => go(address(name)) }));
globalKeys.set("t", { label: t`Switch between light, dark and system colours`, run: nextTheme });
globalKeys.set("?", { label: t`Show keyboard shortcuts`, run: showKeys });
document.getElementById("theme").addEventListener("click", nextTheme);
document.getElementById("keys").addEventListener("click", showKeys);
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  (main.querySelector("h1") ?? main).focus();
});
document.addEventListener("click", (event) => { byLink ||= Boolean(event.target.closest?.('a[href^="#/"]')); });
window.addEventListener("hashchange", route);
document.getElementById("blogs").addEventListener("click", async () => {
  try {
    await choose();
  } catch (error) {
    toast(error);
  }
});

function named() {
  get("/api/workspace").then((result) => {
    const before = place.name;
    Object.assign(place, result);
    document.getElementById("workspace").textContent = place.name;
    const ending = [before, "ownwords"].filter(Boolean).join(" · ");
    if (place.name !== before && document.title.endsWith(ending)) document.title = `${document.title.slice(0, -ending.length)}${place.name} · ownwords`;
  }).catch(() => {});
}

function busy() {
  const job = running(), node = document.getElementById("busy");
  node.hidden = !job;
  if (!job) return;
  node.textContent = shareOf(job) || "…";
  node.title = said(job.title);
  node.setAttribute("aria-label", `${node.title} ${shareOf(job)}`);
}

follow({
  onJob: busy,
  onElsewhere(jobs) {
    const line = document.getElementById("elsewhere");
    line.hidden = !jobs.length;
    fill(line, jobs.map((job) => quiet(link(`/?blog=${encodeURIComponent(job.path)}#/home`, job.name), `: ${said(job.title)} ${shareOf(job)}`)));
  },
  onChange: (what) => what.includes("blog") && named(),
  onLost(error) {
    const lost = document.getElementById("lost");
    lost.hidden = !error;
    fill(lost, error ? problem(error) : null);
  },
});
translate(document.body);
begin();
showTheme();
route().then(() => {
  // The other pages, while nobody waits for one: each then opens without asking for its code.
  const idle = window.requestIdleCallback ?? setTimeout; // Safari has none
  idle(() => { for (const [name] of PARTS) load(`/${name}.js`).catch(() => {}); });
});
named();

// ---- the switcher -----------------------------------------------------------------------------

async function choose() {
  const { workspaces } = await get("/api/workspaces");
  const name = input({ maxlength: "80", placeholder: "garden-blog" });
  const open = async (body) => {
    try {
      await post("/api/workspaces/open", body);
      location.assign("/#/home"); // leads to the blog that was opened last
    } catch (error) {
      toast(error);
    }
  };
  const list = el("ul", { class: "rows" }, workspaces.map((item) => el("li", {}, el("div", {}, el("strong", {}, item.name), item.is_current ? [" ", tag(t`open`, "on")] : null, quiet([item.posts === null ? t`not read yet` : count(item.posts, "text"), item.models ? count(item.models, "model") : "", item.path].filter(Boolean).join(" · "))),
    row(item.is_current ? null : button(t`Open`, () => open({ path: item.path }), { kind: "small", label: t`Open ${item.name}` }), button(t`Rename`, () => rename(item), { kind: "small", label: t`Rename ${item.name}` }),
      item.is_current ? null : button(t`Forget`, () => forget(item), { kind: "small", label: t`Forget ${item.name}` }), button(t`Delete`, () => drop(item, workspaces), { kind: "small", label: t`Delete ${item.name}` })))));
  await ask(t`Your blogs`, [list, el("div", { class: "inline" }, field(t`Add a blog`, name), button(t`Create`, () => (name.value.trim() ? open({ name: name.value.trim() }) : name.focus())))], { yes: t`Close`, no: "" });
}

/** Do it, and show the list anew. */
async function changed(work) {
  try {
    await work();
    document.querySelector("dialog[open]")?.close();
    await choose();
  } catch (error) {
    toast(error);
  }
}

async function rename(item) {
  const name = input({ maxlength: "120", value: item.name, required: true });
  const wanted = await ask(t`Rename ${item.name}`, [field(t`Name of the blog`, name), quiet(t`The folder on the disk, and models that you have made, keep their names.`)], { yes: t`Rename`, value: () => name.value.trim() });
  if (wanted) await changed(() => patch("/api/workspaces", { path: item.path, name: wanted }).then(named));
}

async function forget(item) {
  const wording = [el("p", {}, t`It is only removed from this list. Everything stays in its folder:`), command(item.path), el("p", {}, t`To have it back, start ownwords with that folder:`), command(`ownwords serve "${item.path}"`)];
  if (await ask(t`Forget ${item.name}?`, wording, { yes: t`Forget` })) await changed(() => remove("/api/workspaces", { path: item.path }));
}

/** Delete a blog. After the open one the list of the others is shown, or else the first step. */
async function drop(item, all) {
  const parts = [t`what was read of your posts`, item.models ? count(item.models, "model") : "", item.texts ? count(item.texts, "saved text") : "", item.uploads ? t`${count(item.uploads, "file")} that you dropped or fetched here` : ""];
  const wording = [el("p", {}, t`Its folder is deleted for ever, with:`), bullets(parts.filter(Boolean)), command(item.path), el("p", {}, t`Files and folders elsewhere on your disk are not touched.`)];
  if (!(await ask(t`Delete ${item.name}?`, wording, { yes: t`Delete`, danger: true }))) return;
  const work = () => remove("/api/workspaces", { path: item.path, deletes: true });
  if (!item.is_current) return void changed(work);
  try {
    await work();
    const next = all.find((other) => other !== item);
    if (next) await post("/api/workspaces/open", { path: next.path });
    location.assign(next ? "/#/home?blogs=1" : "/#/home");
  } catch (error) {
    toast(error);
  }
}

if (parsed(location.hash).query.has("blogs")) choose().catch(toast);
