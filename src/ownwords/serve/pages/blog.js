// Steps 1 and 2: which blog, and what is in it.

import { address } from "/app.js";
import { button, checkbox, count, el, field, fill, folded, icon, input, link, p, problem, quiet, row, size } from "/components.js";
import { isRunning, newest, start, progress } from "/jobs.js";
import { toast } from "/messages.js";
import { get, patch, post, remove, upload } from "/server.js";

const KINDS = "Publii, WordPress, Ghost, Substack, Medium, Blogger, Markdown, EPUB or plain text; zip files are fine.";
const TAKES = [["drafts", "Drafts"], ["pages", "Pages, such as “About”"], ["hidden", "Hidden posts"], ["private", "Private posts"]];

export function blogStep(state) {
  const sources = el("div"), found = el("div"), sending = el("div", { role: "status" });
  const fetching = progress();
  const file = el("input", { type: "file", multiple: true, hidden: true, on: { change: () => { send([...file.files]); file.value = ""; } } });
  const zone = el("div", { class: "drop" }, icon("drop"), el("p", { class: "title" }, "Drop your blog’s file here"), row(button("Choose a file", () => file.click(), { kind: "primary" }), file), quiet(KINDS));
  const path = input({ placeholder: "/home/me/Documents/Publii/sites/my-blog", spellcheck: "false" });
  const site = input({ type: "url", placeholder: "https://blog.example", inputmode: "url" });
  const fetchIt = button("Fetch", null, { type: "submit", disabled: true });
  site.addEventListener("input", () => {
    fetchIt.disabled = !hostOf(site.value);
    fetchIt.textContent = hostOf(site.value) ? `Fetch from ${hostOf(site.value)}` : "Fetch";
  });
  const others = folded("A folder, or a blog’s address",
    form(() => addPath(path.value.trim()), field("Folder or file on this machine", path), button("Add", null, { type: "submit" })),
    form(() => start({ kind: "fetch", url: site.value.trim(), host: hostOf(site.value) }), field("Feed or site address", site, "Nothing is fetched before you press the button, and nothing from any other host."), fetchIt));
  let asked = null;

  for (const [event, isOver] of [["dragenter", true], ["dragover", true], ["dragleave", false], ["drop", false]]) {
    zone.addEventListener(event, (moved) => {
      moved.preventDefault();
      zone.classList.toggle("over", isOver);
      if (event !== "drop") return;
      const isFolder = [...moved.dataTransfer.items].some((item) => item.webkitGetAsEntry?.()?.isDirectory);
      if (isFolder) toast("This is a folder. Drop it as a zip file, or type its path below.");
      else send([...moved.dataTransfer.files]);
    });
  }

  async function send(files) {
    for (const each of files) {
      const ends = new AbortController(), gauge = el("progress", { class: "bar", max: "1", value: 0, "aria-label": `Reading ${each.name}` });
      fill(sending, gauge, row(p(`Reading ${each.name}, ${size(each.size)}`), button("Stop", () => ends.abort(), { kind: "small" })));
      try {
        await upload(`/api/uploads?name=${encodeURIComponent(each.name)}`, each, (share) => { gauge.value = share; }, ends.signal);
        fill(sending);
      } catch (error) {
        fill(sending, problem(error));
        return;
      }
    }
    await read();
  }

  async function addPath(wanted) {
    if (!wanted) return path.focus();
    try {
      await post("/api/sources", { path: wanted });
      path.value = "";
      fill(sending);
      await read();
    } catch (error) {
      fill(sending, problem(error));
    }
    return undefined;
  }

  async function read() {
    await start({ kind: "look" });
    await state.refresh();
  }

  async function drop(source) {
    try {
      await remove(`/api/sources/${encodeURIComponent(source.id)}`);
      await state.refresh();
      if (state.home.sources.length) await start({ kind: "look" });
    } catch (error) {
      toast(error);
    }
  }

  async function search() {
    asked ??= get("/api/sources").catch(() => ({ found: [] }));
    const sites = (await asked).found;
    fill(found, sites.length ? [el("h3", {}, "Found on this machine"), el("ul", { class: "rows" }, sites.map((item) => el("li", {}, el("div", {}, el("strong", {}, item.name), quiet([item.label, item.path].filter(Boolean).join(" · "))),
      button("Add", () => addPath(item.path), { label: `Add ${item.name}` }))))] : null);
  }

  const draw = () => {
    const all = state.home.sources;
    fill(sources, all.length ? el("ul", { class: "rows" }, all.map((item) => el("li", {}, el("div", {}, el("strong", {}, item.name), quiet([item.label, item.bytes ? size(item.bytes) : "", item.how === "path" ? item.path : ""].filter(Boolean).join(" · ")),
      item.problem ? problem({ message: item.problem }) : null), button("Remove", () => drop(item), { kind: "small" })))) : null);
    zone.querySelector(".title").textContent = all.length ? "Drop another file here to add it" : "Drop your blog’s file here";
    fetching.update(newest("fetch"));
  };

  return {
    heading: "Your blog", node: el("div", { class: "stack" }, sources, zone, sending, found, others, fetching), draw, opened: search,
    state: () => (state.home.sources.length || state.home.blog?.is_read ? "done" : "now"),
    summary: () => state.home.sources.map((item) => item.name).join(", ") || state.home.name,
    changed(what) {
      if (what.includes("sources")) asked = null;
    },
  };
}

export function lookStep(state) {
  const reading = progress(), body = el("div", { class: "stack" });
  let shown = "";
  const blog = () => state.home.blog;
  const isReading = () => isRunning(newest("look"));

  async function choose(name, isOn) {
    try {
      await patch("/api/blog", { [name]: isOn });
      await start({ kind: "look" });
    } catch (error) {
      toast(error);
    }
  }

  function draw() {
    const job = newest("look");
    reading.update(blog()?.is_read && job?.status === "done" ? null : job);
    const text = JSON.stringify([blog(), isReading(), Boolean(job)]);
    if (text === shown) return;
    shown = text;
    const result = blog();
    if (!result?.is_read) return void fill(body, isReading() ? null : job ? null : row(button("Read my blog", () => start({ kind: "look" }), { kind: "primary" }), quiet("It takes seconds, and changes nothing in your files.")));
    fill(body, result.problem ? problem({ message: result.problem }) : null, el("div", { class: "lines" }, result.lines.map((line) => p(line))),
      result.new_sentence ? el("p", { class: "notice" }, result.new_sentence, ".") : null,
      result.is_stale && !isReading() ? row(el("p", { class: "notice" }, "Your blog has changed since it was read."), button("Read it again", () => start({ kind: "look" }), { kind: "small" })) : null,
      row(result.decisions ? el("a", { class: "button", href: address("posts", ["decisions"]) }, `Decide about ${count(result.decisions, "post")}`) : null, link(address("posts", ["report"]), "Read the full report"), link(address("posts"), "All posts")),
      folded("What is read", el("div", { class: "checks" }, TAKES.map(([name, label]) => checkbox(label, result.flags?.[name] ?? false, (isOn) => choose(name, isOn)))), row(button("Read it again", () => start({ kind: "look" }), { kind: "small" }))));
  }

  return {
    heading: "What is in it", node: el("div", { class: "stack" }, reading, body), draw, later: "What is yours, what repeats, what can be learned",
    state: (isNext) => (blog()?.is_read && !isReading() ? "done" : isNext ? "now" : "later"),
    isOpen: () => !state.home.model && (isReading() || !newest("make")),
    summary: () => [blog().texts, count(blog().words, "word"), blog().new_sentence].filter(Boolean).join(", "),
  };
}

const form = (run, ...parts) => el("form", { class: "inline", on: { submit: (event) => { event.preventDefault(); run(); } } }, parts);

function hostOf(text) {
  try {
    const parsed = new URL(text.trim());
    return /^https?:$/.test(parsed.protocol) ? parsed.host : "";
  } catch {
    return "";
  }
}
