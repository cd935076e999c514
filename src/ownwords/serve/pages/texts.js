// Saved texts and conversations: a list that can be searched, beside Write and Ask.

import { address, go } from "/app.js";
import { button, day, el, fill, folded, input, link, quiet, row, sentence, title } from "/components.js";
import { count, t } from "/language.js";
import { ask, toast } from "/messages.js";
import { get, ofBlog, post, put, remove } from "/server.js";

const WAIT_MS = 800;

/** The list of one kind ("text" or "conversation"); `part` is the page on which they open. */
export function savedList(kind, part, heading) {
  const box = input({ type: "search", placeholder: t`Search`, "aria-label": t`Search: ${heading}`, on: { input: () => { clearTimeout(waiting); waiting = setTimeout(reload, 200); } } });
  const list = el("ul", { class: "saved" }), rest = el("div"), all = el("a", { class: "button small", href: ofBlog("/api/texts/markdown"), download: "texts.md" }, t`Download all`);
  const node = folded(heading, box, list, rest, row(all));
  let waiting = null, current = "";
  node.hidden = true;

  async function reload() {
    try {
      const q = box.value.trim(), result = await get("/api/texts", { q, kind });
      node.hidden = !result.total && !q;
      fill(list, result.rows.map(line));
      fill(rest, result.rows.length ? null : quiet(t`Nothing found.`), result.total > result.rows.length ? quiet(t`${count(result.total - result.rows.length)} more: use the search.`) : null);
    } catch (error) {
      fill(rest, quiet(sentence(error.message)));
    }
  }

  function line(item) {
    return el("li", { "aria-current": item.id === current ? "true" : null }, link(address(part, [item.id]), title(item.title)),
      el("span", { class: "quiet" }, [day(new Date(item.changed * 1000).toISOString()), count(item.words, "word")].join(" · ")),
      el("div", { class: "row" }, el("a", { class: "button small", href: ofBlog(`/api/texts/${item.id}/markdown`), download: "", "aria-label": t`Download ${item.title}` }, t`Download`),
        button(t`Delete`, () => drop(item), { kind: "small", label: t`Delete ${item.title}` })));
  }

  async function drop(item) {
    if (!(await ask(t`Delete “${item.title}”?`, quiet(t`This cannot be undone.`), { yes: t`Delete`, danger: true }))) return;
    try {
      await remove(`/api/texts/${item.id}`);
      if (item.id === current) go(address(part));
      else await reload();
    } catch (error) {
      toast(error);
    }
  }

  return Object.assign(node, { reload, mark(id) { current = id; return reload(); } });
}

/** Keeps one text saved: `save(body)` soon, `flush()` now; in order, and one at a time. */
export function saver(id, onSaved) {
  let waiting = null, next = null, last = Promise.resolve();

  function flush() {
    clearTimeout(waiting);
    if (!next) return last;
    const body = next;
    next = null;
    last = last.then(async () => {
      const result = id ? await put(`/api/texts/${id}`, body) : await post("/api/texts", body);
      ({ id } = result);
      onSaved(result);
    }).catch(toast);
    return last;
  }

  return {
    flush,
    save(body) {
      next = body;
      clearTimeout(waiting);
      waiting = setTimeout(flush, WAIT_MS);
    },
  };
}
