// Settings: the machine, memory and versions, how the page looks, and stopping the server.

import { add, answers, button, checkbox, choice, count, el, fill, masthead, p, quiet, row, section, size } from "/components.js";
import { keysOn, setKeys, setTheme, showKeys, themeNow } from "/app.js";
import { ask, toast } from "/messages.js";
import { get, ofBlog, post } from "/server.js";

export async function show(element) {
  const now = await get("/api/machine");
  const disk = size(now.workspace_bytes);
  add(element, masthead({ heading: "Settings" }),
    section("This page", el("div", { class: "row" }, el("span", { class: "quiet" }, "Colours"), choice("Colours", [["auto", "As the system"], ["light", "Light"], ["dark", "Dark"]], themeNow(), setTheme)),
      checkbox("Single-key shortcuts", keysOn(), setKeys, "Switch them off if you dictate, or press keys by accident."), row(button("Show all shortcuts", showKeys, { kind: "small" }))),
    section("This machine", answers([["Processor", `${now.processor}, ${count(now.cores, "core")}`], ["Memory", `${size(now.memory_bytes)}, ${size(now.memory_free_bytes)} free`],
      ["Disk", `${size(now.disk_free_bytes)} free`], ["Instruction set", now.instruction_set || "portable"]])),
    section("Versions", answers([["ownwords", now.version], ["Python", now.python], ["PyTorch", now.torch || "not installed: models can be used, but not made"]])),
    section("Your files", p(`Everything made here takes ${disk} and stays on this machine.`), quiet(el("code", {}, now.workspace)), row(el("a", { class: "button small", href: ofBlog("/api/texts/markdown"), download: "texts.md" }, "Download all saved texts"))),
    now.can_stop ? section("Stop", p("A training that is running goes on without the server."), row(button("Stop the server", () => stop(element), { kind: "danger", icon: "stop" }))) : null);
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
