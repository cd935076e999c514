// The report: what is in the blog, with links to every post.

import { setTitle } from "/app.js";
import { get } from "/server.js";
import { contents, drawn, fill, loading } from "/components.js";

export async function report(body) {
  setTitle("The report");
  fill(body, loading("Loading the report"));
  fill(body, contents(drawn((await get("/api/corpus")).html)));
}
