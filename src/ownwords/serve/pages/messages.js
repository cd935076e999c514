// What the page says beside its content: announcements, toasts, questions.

import { advice, button, el, fill, icon, p, sentence, uniqueId } from "/components.js";
import { t } from "/language.js";

/** Tell screen readers something, without showing it. */
export function announce(text) {
  const announcer = document.getElementById("announcer");
  announcer.textContent = "";
  requestAnimationFrame(() => { announcer.textContent = text; });
}

/** A message, in place of the last one. It disappears by itself; an error stays until it is closed or `dismiss`ed. */
export function toast(wording) {
  const isError = wording instanceof Error;
  const text = isError ? sentence(wording.message) : wording;
  const node = el("div", { class: ["toast", isError && "bad"], role: isError ? "alert" : "status" }, el("div", {}, p(text), isError ? advice(wording) : null),
    el("button", { type: "button", class: "icon", "aria-label": t`Close this message`, on: { click: () => node.remove() } }, icon("close")));
  fill(document.getElementById("toasts"), node);
  if (!isError) setTimeout(() => node.remove(), Math.max(5000, 70 * text.length));
}

/** Remove the message where it no longer holds; `only` an error (".bad"), or any. */
export const dismiss = (only = ".toast") => document.querySelector(`#toasts > ${only}`)?.remove();

/** A dialog; resolves to `value()` if it is accepted, else to null. */
export function ask(heading, body, { yes = t`Yes`, no = t`Cancel`, danger = false, value = () => true } = {}) {
  return new Promise((resolve) => {
    let answer = null;
    const id = uniqueId("dialog");
    const decline = button(no, () => box.close());
    const accept = button(yes, null, { kind: danger ? "danger" : "primary", type: "submit" });
    const form = el("form", { method: "dialog", on: { submit: () => { answer = value(); } } },
      el("h2", { id }, heading), el("div", { class: "dialog-body" }, body), el("div", { class: "row end" }, no ? decline : null, accept));
    const box = el("dialog", { "aria-labelledby": id, on: { close: () => { box.remove(); resolve(answer); } } }, form);
    document.body.append(box);
    box.showModal();
  });
}

/** Copy a text, and say so. */
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    toast(t`Copied`);
  } catch {
    toast(t`The browser does not allow this: select the text and copy it`);
  }
}
