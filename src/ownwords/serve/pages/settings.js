// Settings: the machine, memory and versions, the space on the disk, and stopping the server.

import { refresh } from "/app.js";
import { add, answers, button, el, field, fill, masthead, p, quiet, row, section, select, size } from "/components.js";
import { LANGUAGES, count, language, t } from "/language.js";
import { remember } from "/memory.js";
import { ask, toast } from "/messages.js";
import { get, ofBlog, post } from "/server.js";

export async function show(element) {
  const now = await get("/api/machine");
  const disk = size(now.workspace_bytes), spare = now.unfinished_bytes;
  add(element, masthead({ heading: t`Settings` }),
    section(t`This machine`, answers([[t`Processor`, `${now.processor}, ${count(now.cores, "core")}`], [t`Memory`, t`${size(now.memory_bytes)}, ${size(now.memory_free_bytes)} free`],
      [t`Disk`, t`${size(now.disk_free_bytes)} free`], [t`Instruction set`, now.instruction_set || t`portable`]])),
    LANGUAGES.length > 1 ? section(t`Language`, field(t`Language of this page`, select(LANGUAGES.map((name) => [name, new Intl.DisplayNames(name, { type: "language" }).of(name)]), language, (name) => { remember("language", name); location.reload(); }))) : null,
    section(t`Versions`, answers([["ownwords", now.version], ["Python", now.python], ["PyTorch", now.torch || t`not installed: you can use models, but not make any`]])),
    section(t`Your files`, p(t`Everything made here takes ${disk} and stays on this machine.`), quiet(el("code", {}, now.workspace)),
      spare ? row(quiet(t`${size(spare)} of it belong to trainings that were interrupted.`), button(t`Free ${size(spare)}`, () => free(spare), { kind: "small" })) : null, row(el("a", { class: "button small", href: ofBlog("/api/texts/markdown"), download: "texts.md" }, t`Download all saved texts`))),
    now.can_stop ? section(t`Stop`, p(t`A training goes on without the server.`), row(button(t`Stop the server`, () => stop(element), { kind: "danger", icon: "stop" }))) : null);
}

async function free(bytes) {
  if (!(await ask(t`Free ${size(bytes)}?`, quiet(t`A paused training then starts from the beginning. Your models, posts and texts stay.`), { yes: t`Free it`, danger: true }))) return;
  await post("/api/machine/free").then(refresh, toast);
}

async function stop(element) {
  if (!(await ask(t`Stop the server?`, quiet(t`This page will not work until you start ownwords again. Nothing is lost.`), { yes: t`Stop`, danger: true }))) return;
  try {
    await post("/api/machine/stop");
    fill(element, masthead({ heading: t`Stopped`, lede: t`You can close this page.` }));
  } catch (error) {
    toast(error);
  }
}
