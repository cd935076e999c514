// The scorecard: how good the current model is.

import { button, contents, drawn, empty, fill, lines, masthead, quote, section } from "/components.js";

/** Draw a scorecard, or what there is instead; `measure` begins to score the model, if nothing does yet. */
export function draw(body, result, measure) {
  if (result.html) return void fill(body, contents(drawn(result.html)));
  const [heading, wording] = result.unreadable ? ["This scorecard was made by another version", "Score the model again; the model itself is as good as it was."]
    : ["This model has not been scored yet", "How well it predicts posts it has never seen, whether it sounds like you, how fluent it is, and whether it copies you. This takes a few minutes."];
  return void fill(body, masthead({ heading: "Scorecard" }), empty(heading, wording, measure && button("Score it", measure, { kind: "primary" })));
}

/** The samples of a model without a scorecard. */
export const samplesOf = (rows) => section("What it writes", rows.map((item) => quote(lines(item.text), { cite: item.beginning, class: "ours" })));
