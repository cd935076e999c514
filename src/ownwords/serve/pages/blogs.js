// The switcher: several blogs, each with its own workspace.

import { button, count, el, field, input, quiet, row, tag } from "/components.js";
import { ask, toast } from "/messages.js";
import { get, post, remove } from "/server.js";

export async function choose() {
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
  const forget = (item, line) => remove("/api/workspaces", { path: item.path }).then(() => line.remove(), toast);
  const rows = workspaces.map((item) => {
    const line = el("li", {}, el("div", {}, el("strong", {}, item.name), quiet([item.posts === null ? "not read yet" : count(item.posts, "text"), item.has_model ? "has a model" : "", item.path].filter(Boolean).join(" · "))),
      item.is_current ? tag("open", "on") : row(button("Open", () => open({ path: item.path }), { kind: "small", label: `Open ${item.name}` }), button("Forget", () => forget(item, line), { kind: "small", label: `Forget ${item.name}` })));
    return line;
  });
  await ask("Your blogs", [el("ul", { class: "rows" }, rows),
    el("div", { class: "inline" }, field("Add a blog", name), button("Create", () => (name.value.trim() ? open({ name: name.value.trim() }) : name.focus()))),
    quiet("Forgetting removes a blog from this list only. Its files stay.")], { yes: "Close", no: "" });
}
