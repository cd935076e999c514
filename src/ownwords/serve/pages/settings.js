// Settings: the machine, the language, versions, the space on the disk, and stopping the server.

import { refresh } from "/app.js";
import { add, button, confirm, el, field, fill, masthead, p, pairs, quiet, row, section, select, size, smallButton }
  from "/components.js";
import { count, language, LANGUAGES, remember, t } from "/language.js";
import { get, ofBlog, post } from "/server.js";

export async function show(element, where, left) {
  const now = await get("/api/machine", {}, left), spare = now.unfinished_bytes;
  const names = LANGUAGES.map((name) => [name, new Intl.DisplayNames(name, { type: "language" }).of(name)]);
  const choose = (name) => {
    remember("language", name);
    location.reload();
  };

  async function free() {
    const wording = t`A paused training then starts over. Your models, posts and texts are kept.`;
    if (!(await confirm(t`Free up ${size(spare)}?`, wording, t`Free up`))) return;
    await post("/api/machine/free");
    await refresh();
  }

  async function stop() {
    const wording = t`This page will not work until you start ownwords again. Nothing is lost.`;
    if (!(await confirm(t`Stop the server?`, wording, t`Stop`))) return;
    await post("/api/machine/stop");
    fill(element, masthead({ heading: t`Stopped`, lede: t`You can close this page.` }));
  }

  add(element, masthead({ heading: t`Settings` }),
    section(t`This machine`, pairs("answers", [[t`Processor`, `${now.processor}, ${count(now.cores, "core")}`],
      [t`Memory`, t`${size(now.memory_bytes)}, ${size(now.memory_free_bytes)} free`],
      [t`Disk`, t`${size(now.disk_free_bytes)} free`], [t`Instruction set`, now.instruction_set || t`portable`]])),
    LANGUAGES.length > 1 && section(t`Language`, field(t`Language of this page`, select(names, language, choose))),
    section(t`Versions`, pairs("answers", [["ownwords", now.version], ["Python", now.python],
      ["PyTorch", now.torch || t`not installed: you can use models, but not make them`]])),
    section(t`Your files`, p(t`Everything made here takes up ${size(now.workspace_bytes)} and stays on this machine.`),
      quiet(el("code", now.workspace)),
      spare > 0 && row(quiet(t`${size(spare)} of it belongs to interrupted trainings.`),
        smallButton(t`Free up ${size(spare)}`, free)),
      row(el("a.button.small", { href: ofBlog("/api/texts/markdown"), download: "texts.md" },
        t`Download all saved texts`))),
    now.can_stop && section(t`Server`, p(t`A running training continues without the server.`),
      row(button(t`Stop the server`, stop, { kind: "danger", icon: "stop" }))));
}
