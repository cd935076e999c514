// Saved texts and conversations: a list that can be searched, beside Write and Ask.

import { address, go } from "/app.js";
import { confirm, day, dotted, el, fill, folded, link, quiet, row, searchBox, smallButton, title, toast } from
  "/components.js";
import { live } from "/jobs.js";
import { count, t } from "/language.js";
import { get, ofBlog, post, put, remove } from "/server.js";

const WAIT_MS = 800;

/** The list of one kind ("text" or "conversation"); `part` is the page on which they open. `mark(id)` marks the open
 *  one. */
export function savedList(left, kind, part, heading) {
  let current = "";
  const box = searchBox(left, () => reload(), { placeholder: t`Search`, "aria-label": t`Search: ${heading}` });
  const list = el("ul.saved"), rest = el("div");
  const all = el("a.button.small", { href: ofBlog("/api/texts/markdown"), download: "texts.md" }, t`Download all`);
  const node = folded(heading, box, list, rest, row(all));
  node.hidden = true;
  const reload = live(left, (signal) => get("/api/texts", { q: box.value.trim(), kind }, signal), ({ rows, total }) => {
    node.hidden = !total && !box.value.trim();
    fill(list, rows.map(line));
    fill(rest, !rows.length && quiet(t`Nothing found.`),
      total > rows.length && quiet(t`${count(total - rows.length)} more: use the search.`));
  });

  function line(item) {
    const path = `/api/texts/${item.id}`, label = t`Download ${item.title}`;
    return el("li", { "aria-current": item.id === current ? "true" : null },
      link(address(part, [item.id]), title(item.title)),
      el("span.quiet", dotted(day(new Date(item.changed * 1000).toISOString()), count(item.words, "word"))),
      row(el("a.button.small", { href: ofBlog(`${path}/markdown`), download: "", "aria-label": label }, t`Download`),
        smallButton(t`Delete`, () => drop(item), t`Delete ${item.title}`)));
  }

  async function drop(item) {
    if (!(await confirm(t`Delete “${item.title}”?`, t`This cannot be undone.`))) return;
    await remove(`/api/texts/${item.id}`);
    if (item.id === current) go(address(part));
    else await reload();
  }

  return Object.assign(node, { mark(id) { current = id; return reload(); } });
}

/** Saves one text, in order and one version at a time: `save(body)` soon, `flush()` now, and when the page is left. */
export function saver(left, id, onSaved) {
  let waiting = null, next = null, last = Promise.resolve();

  function flush() {
    clearTimeout(waiting);
    if (!next) return last;
    const body = next;
    next = null;
    last = last.then(async () => {
      const result = id ? await put(`/api/texts/${id}`, body) : await post("/api/texts", body);
      ({ id } = result);
      if (!left.aborted) onSaved(id);
    }).catch(toast);
    return last;
  }

  document.addEventListener("visibilitychange", () => document.hidden && flush(), { signal: left });
  left.addEventListener("abort", flush);
  return {
    flush,
    save(body) {
      next = body;
      clearTimeout(waiting);
      waiting = setTimeout(flush, WAIT_MS);
    },
  };
}
