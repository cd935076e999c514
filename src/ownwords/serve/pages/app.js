// The app: addresses, keys, and the line at the top with the list of blogs.

import { add, ask, button, command, dismiss, dotted, el, field, fill, icon, input, link, loading, p, problem,
  quiet, rows, smallButton, tag, toast } from "/components.js";
import { ALWAYS, begin, follow, running, shareOf } from "/jobs.js";
import { count, said, t, translate } from "/language.js";
import { ApiError, get, load, patch, post, queryOf, remove } from "/server.js";

const PARTS = [["home", t`Home`], ["write", t`Write`], ["ask", t`Ask`], ["voice", t`Voice`], ["posts", t`Posts`], ["models", t`Models`],
  ["settings", t`Settings`]];
const main = document.getElementById("main");

// An action that fails is reported here, unless its part shows the error in place.
window.addEventListener("unhandledrejection", (event) => {
  const isOurs = event.reason instanceof ApiError;
  if (!isOurs && event.reason?.name !== "AbortError") return; // a fault of the page, for the console
  event.preventDefault();
  if (isOurs) toast(event.reason);
});

// ---- addresses --------------------------------------------------------------------------------

/** The address of a page: address("posts", ["post", id], {at: 3}) -> "#/posts/post/…?at=3". */
export function address(part, path = [], query = {}) {
  const asked = queryOf(query);
  return `#/${[part, ...path].map(encodeURIComponent).join("/")}${asked ? `?${asked}` : ""}`;
}

function parsed(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  const [part = PARTS[0][0], ...rest] = path.split("/").filter(Boolean).map(decoded);
  return { part, path: rest, query: new URLSearchParams(query) };
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // a lone percent sign
  }
}

/** Go to another page. `replace`: without a new entry in the history; `quietly`: only change the
 *  address, because the page has already changed itself. */
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
  heading = text;
  document.title = dotted(heading, blogName, "ownwords");
}

let leaving = new AbortController(); // aborted when the page is left: all that a page has begun ends with it
let byLink = false; // else by the browser's buttons, which restore the scroll position
let shown = null;
let heading = "", blogName = ""; // parts of the window's title
let lastRead = null; // what the server last read in the folders that it follows
const heights = new Map();

async function route() {
  if (location.hash && !location.hash.startsWith("#/")) return; // an anchor on this page
  if (shown === location.hash) return;
  heights.set(shown, window.scrollY);
  const isFirst = shown === null, isBack = !byLink;
  byLink = false;
  shown = location.hash;
  leaving.abort();
  leaving = new AbortController();
  pageKeys.clear();
  dismiss();
  const left = leaving.signal, where = parsed(location.hash), element = el("div.page", { class: where.part });
  for (const each of document.querySelectorAll("#parts a")) {
    if (each.getAttribute("href") === `#/${where.part}`) each.setAttribute("aria-current", "page");
    else each.removeAttribute("aria-current");
  }
  const waiting = setTimeout(() => left.aborted || fill(main, loading()), 150);
  try {
    await showPart(element, where, left);
  } catch (error) {
    if (!left.aborted) fill(element, problem(error, refresh));
  }
  clearTimeout(waiting);
  if (left.aborted) return;
  fill(main, element);
  if (isFirst) return;
  window.scrollTo(0, (isBack && heights.get(shown)) || 0);
  (element.querySelector("[autofocus]") ?? element.querySelector("h1") ?? main).focus({ preventScroll: true });
}

async function showPart(element, where, left) {
  const [, label] = PARTS.find(([name]) => name === where.part) ?? [];
  if (!label) {
    throw new ApiError(t`there is no page ${where.part}`, t`choose one of ${PARTS.map(([, each]) => each).join(", ")}`);
  }
  const part = await load(`/${where.part}.js`);
  left.throwIfAborted();
  setTitle(label);
  await part.show(element, where, left);
}

/** Show the page again. */
export function refresh() {
  shown = null;
  return route();
}

// ---- keys -------------------------------------------------------------------------------------

const pageKeys = new Map();

/** Run something at a key of the current page ("Escape", "Ctrl+Enter"), also while typing. */
export function shortcut(key, run) {
  pageKeys.set(key, run);
}

document.addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.altKey || event.isComposing || document.querySelector("dialog[open]")) return;
  const run = pageKeys.get((event.ctrlKey || event.metaKey ? "Ctrl+" : "") + event.key);
  if (run && run(event) !== false) event.preventDefault(); // false: it had nothing to do
});

// ---- the start --------------------------------------------------------------------------------

for (const [name, label] of PARTS) {
  add(document.getElementById("parts"), link(address(name), icon(name), el("span", label)));
}
document.getElementById("blogs").addEventListener("click", showBlogs);
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  (main.querySelector("h1") ?? main).focus();
});
document.addEventListener("click", (event) => { byLink ||= Boolean(event.target.closest?.('a[href^="#/"]')); });
window.addEventListener("hashchange", route);

async function showName() {
  const { name, read } = await get("/api/workspace");
  if (lastRead !== null && read !== lastRead) toast(said(read));
  lastRead = read;
  blogName = name;
  document.getElementById("workspace").textContent = blogName;
  setTitle(heading);
}

function showBusy() {
  const job = running(), node = document.getElementById("busy");
  node.hidden = !job;
  if (!job) return;
  node.textContent = shareOf(job) || "…";
  node.title = said(job.title);
  node.setAttribute("aria-label", `${node.title} ${shareOf(job)}`);
}

follow(ALWAYS, {
  onJob: showBusy,
  onChange: (what) => what.includes("blog") && showName(),
  onLost(error) {
    const lost = document.getElementById("lost");
    lost.hidden = !error;
    fill(lost, error && problem(error));
  },
});
translate(document.body);
begin();
route().then(() => {
  // Load the other pages while the browser is idle, so that each opens at once.
  const idle = window.requestIdleCallback ?? setTimeout; // Safari has none
  idle(() => { for (const [name] of PARTS) load(`/${name}.js`).catch(() => {}); });
});
showName();

// ---- the list of blogs ------------------------------------------------------------------------

async function showBlogs() {
  const { workspaces } = await get("/api/workspaces");
  const name = input({ maxlength: "80", placeholder: "garden-blog" });
  const list = rows(workspaces, (item) => ({
    name: item.name,
    mark: item.is_current && tag(t`open`, "on"),
    facts: dotted(item.posts === null ? t`not read yet` : count(item.posts, "text"),
      item.models && count(item.models, "model"), item.path),
    actions: [!item.is_current && smallButton(t`Open`, () => open(item), t`Open ${item.name}`),
      smallButton(t`Rename`, () => rename(item), t`Rename ${item.name}`),
      smallButton(t`Delete`, () => drop(item, workspaces), t`Delete ${item.name}`)],
  }));
  const create = button(t`Create`, () => (name.value.trim() ? open({ name: name.value.trim() }) : name.focus()));
  await ask(t`Your blogs`, [list, el("div.inline", field(t`Add a blog`, name), create)], { yes: t`Close`, no: "" });
}

async function open({ path, name }) {
  await post("/api/workspaces/open", path ? { path } : { name });
  location.assign("/#/home"); // leads to the blog that was opened last
}

/** Show the list again. */
function showBlogsAgain() {
  document.querySelector("dialog[open]")?.close();
  return showBlogs();
}

async function rename(item) {
  const name = input({ maxlength: "120", value: item.name, required: true });
  const wanted = await ask(t`Rename ${item.name}`, [field(t`Name of the blog`, name),
    quiet(t`The folder on the disk and the models that you have made keep their names.`)],
  { yes: t`Rename`, value: () => name.value.trim() });
  if (!wanted) return;
  await patch("/api/workspaces", { path: item.path, name: wanted });
  await showName();
  await showBlogsAgain();
}

/** Delete a blog. If it was open, open another one, or begin a new one. */
async function drop(item, all) {
  const wording = [p(t`Its folder is deleted for good, with its models, your saved texts, and the files that you dropped or fetched here.`),
    command(item.path), p(t`Files and folders elsewhere on your disk are not touched.`)];
  if (!(await ask(t`Delete ${item.name}?`, wording, { yes: t`Delete`, danger: true }))) return;
  await remove("/api/workspaces", { path: item.path, deletes: true });
  if (!item.is_current) return void await showBlogsAgain();
  const next = all.find((other) => other !== item);
  if (next) await post("/api/workspaces/open", { path: next.path });
  location.assign(next ? "/#/home?blogs=1" : "/#/home");
}

if (parsed(location.hash).query.has("blogs")) showBlogs();
