// Settings: the machine, memory and versions, the space on the disk, and stopping the server.

import { add, answers, button, count, el, fill, masthead, p, quiet, row, section, size } from "/components.js";
import { refresh } from "/app.js";
import { ask, toast } from "/messages.js";
import { get, ofBlog, post } from "/server.js";

export async function show(element) {
  const now = await get("/api/machine");
  const disk = size(now.workspace_bytes), spare = now.unfinished_bytes;
  add(element, masthead({ heading: "Settings" }),
    section("This machine", answers([["Processor", `${now.processor}, ${count(now.cores, "core")}`], ["Memory", `${size(now.memory_bytes)}, ${size(now.memory_free_bytes)} free`],
      ["Disk", `${size(now.disk_free_bytes)} free`], ["Instruction set", now.instruction_set || "portable"]])),
    section("Versions", answers([["ownwords", now.version], ["Python", now.python], ["PyTorch", now.torch || "not installed: models can be used, but not made"]])),
    section("Your files", p(`Everything made here takes ${disk} and stays on this machine.`), quiet(el("code", {}, now.workspace)),
      spare ? row(quiet(`${size(spare)} of it are kept for trainings that were broken off.`), button(`Free ${size(spare)}`, () => free(spare), { kind: "small" })) : null, row(el("a", { class: "button small", href: ofBlog("/api/texts/markdown"), download: "texts.md" }, "Download all saved texts"))),
    now.can_stop ? section("Stop", p("A training that is running goes on without the server."), row(button("Stop the server", () => stop(element), { kind: "danger", icon: "stop" }))) : null);
}

async function free(bytes) {
  if (!(await ask(`Free ${size(bytes)}?`, quiet("A paused training then begins anew. Your models, posts and texts stay."), { yes: "Free it", danger: true }))) return;
  await post("/api/machine/free").then(refresh, toast);
}

async function stop(element) {
  if (!(await ask("Stop the server?", quiet("This page then shows nothing more until you start ownwords again. Nothing is lost."), { yes: "Stop", danger: true }))) return;
  try {
    await post("/api/machine/stop");
    fill(element, masthead({ heading: "Stopped", lede: "You can close this page." }));
  } catch (error) {
    toast(error);
  }
}
