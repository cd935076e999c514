// Voice: how the author writes, compared with other people and language models; the card for any model.

import { address } from "/app.js";
import { add, announce, button, copy, el, empty, field, fill, folded, form, input, link, masthead, problem, quiet,
  quote, row, section, smallButton, title, totals } from "/components.js";
import { count, fixed, said, t } from "/language.js";
import { get, post } from "/server.js";

const UNITS = { words: t`per 1,000 words`, sentences: t`of the sentences`, paragraphs: t`of the paragraphs`,
  texts: t`of the posts`, contractions: t`of the cases` };

export async function show(element, { query }, left) {
  let card, decided;
  try {
    decided = await get("/api/marks", {}, left);
    card = await post("/api/voice", { about: query.get("about") ?? "" }, left);
  } catch (error) {
    if (error.status !== 404) throw error;
    return void add(element, masthead({ heading: t`Voice` }), empty(t`No posts read yet`,
      t`Here you can see how you write, and give that description to any model.`,
      el("a.button.primary", { href: address("home") }, t`Choose your blog`)));
  }
  const { portrait, headings } = card, task = input({ value: query.get("about") ?? "", maxlength: "2000" });
  const passages = el("div.body"), marked = Object.values(portrait.groups).flat().filter((habit) => habit.is_marked);
  const draw = () => fill(passages, card.passages.map((each) => quote(each.text, { cite: title(each.title) })));
  const choose = form("inline", async () => {
    try {
      card = await post("/api/voice", { about: task.value }, left);
      draw();
      announce(t`${count(card.passages.length, "passage")} chosen`);
    } catch (error) {
      fill(passages, problem(error));
    }
  }, field(t`What you want to write about`, task), button(t`Choose passages`, null, { type: "submit" }));
  draw();
  const [low, middle, high] = portrait.sentences;
  add(element,
    masthead({ heading: t`How you write`,
      lede: t`In ${count(marked.length, "way")} you differ from most people who write today, or from language models.`,
      follow: t`Counted in ${count(portrait.words, "word")} of ${count(portrait.posts, "post")}. Nothing left this machine.` }),
    row(button(t`Copy the card`, () => copy(card.text), { kind: "primary", icon: "copy" }),
      button(t`Save as text`, () => save("voice.txt", card.text)),
      button(t`Save as a skill for agents`, () => save("SKILL.md", card.skill))),
    quiet(t`The card describes your voice to any model or person, with these figures, your words and whole passages. Paste it before your request, then ${link(address("write"), t`check what comes back`)}.`),
    totals([{ figure: String(middle), label: t`words in a typical sentence`,
      note: t`one in ten has fewer than ${low}, one in ten more than ${high}` },
    { figure: String(portrait.paragraphs[1]), label: t`words in a typical paragraph`,
      note: t`one in ten has more than ${portrait.paragraphs[2]}` }]),
    el("p.quiet.voice-key", el("i.own"), t`you`, el("i.machines"), t`language models`, el("i.others"),
      t`other people today: the line is the median, the dark bar the middle half`),
    ...Object.entries(portrait.groups).filter(([, habits]) => habits.length).map(([name, habits]) =>
      section(said(headings[name]), el("ul.habits", habits.filter((habit) => habit.is_marked).map(line)),
        folded(t`Like others`, el("ul.habits", habits.filter((habit) => !habit.is_marked).map(line))))),
    section(t`Your words`, wordsOf(portrait)),
    section(t`What you decided about marks`, marksOf(decided)),
    section(t`The card`, folded(t`Read it as a model does`, el("pre", { tabindex: "0", lang: "en" }, card.text))),
    section(t`Passages for a model to imitate`, choose, passages));
}

/** A habit: its figures in words, and drawn on a scale. */
function line(habit) {
  const [own, fewest, low, middle, high, most] = habit.places.map((share) => `${(100 * share).toFixed(1)}%`);
  const machines = habit.machines_place === null ? null : `${(100 * habit.machines_place).toFixed(1)}%`;
  const mark = (look, vars) => el(`i.${look}`, { vars });
  const label = habit.label.startsWith("“") ? el("span", { lang: "en" }, habit.label) : said(habit.label);
  return el("li", el("span.label", label, el("b", said(habit.own)), UNITS[habit.per] && el("small", UNITS[habit.per])),
    el("span.strip", { "aria-hidden": "true" }, mark("range", { from: fewest, to: most }), mark("half", { from: low, to: high }),
      mark("middle", { at: middle }), machines && mark("machines", { at: machines }), mark("own", { at: own })),
    quiet(habit.machines === null ? t`others ${said(habit.others)}`
      : t`others ${said(habit.others)}, language models ${said(habit.machines)}`));
}

function wordsOf({ favourites, avoided, machine_words: theirs, phrases }) {
  const list = (heading, words) => words.length > 0 && [el("h3", heading), el("p", { lang: "en" }, words.join(", "))];
  return [list(t`Words that you use far more than others`, favourites), list(t`Your set phrases`, phrases),
    list(t`Common words that you never use`, avoided),
    list(t`Words that language models like and you hardly use`, theirs)];
}

/** Decisions in marks.toml, each with a button that takes it back, and proposals. */
function marksOf(decided) {
  const node = el("div.body");
  const decide = async (body) => draw(await post("/api/marks", body));
  const line = (text, ...actions) => el("li", el("span", { dir: "auto" }, text), row(actions));
  const taken = (name, [text, value]) =>
    line(text, smallButton(t`Remove`, () => decide({ remove: [name, value] }), t`Remove ${text}`));
  const list = (heading, name, values) => values.length > 0 &&
    [el("h3", heading), el("ul.saved", values.map((value) => taken(name, value)))];
  const plain = (values) => values.map((value) => [value, value]);
  const rule = (before, after) => t`“${after}” instead of “${before}”`;
  const proposed = ([kind, before, after]) => (kind === "changed" ? rule(before, after)
    : kind === "unlike you" ? t`Mark only half as many sentences as unlike yours`
      : before ? t`Never mark “${before}”` : t`Never mark this: ${said(kind.replaceAll("_", " "))}`);
  function draw({ sentences, silenced, words, marked, rule: rules, proposals }) {
    const all = [
      proposals.length > 0 && [el("h3", t`Proposed because you often chose this`), el("ul.saved", proposals.map((each) =>
        line(proposed(each), smallButton(t`Adopt`, () => decide({ accept: each })),
          smallButton(t`Decline`, () => decide({ decline: each })))))],
      list(t`Your rules`, "rule", rules.map((each) => [rule(each.instead_of, each.write), each.instead_of])),
      list(t`Words that are yours`, "words", plain(words)),
      list(t`Never marked`, "silenced", silenced.map((kind) => [said(kind.replaceAll("_", " ")), kind])),
      list(t`Sentences to keep as they are`, "sentences", plain(sentences)),
      marked < 0.05 && list(t`Sentences unlike yours`, "marked",
        [[t`${fixed(100 * marked, 1)}% of your own may be marked`, ""]]),
    ].filter(Boolean);
    fill(node, all.length ? all : quiet(t`Nothing yet. If you choose “Keep mine” under Write, or “Keep this sentence as it is” or “Never mark this again” in your editor, that is remembered here and applies everywhere.`));
  }
  draw(decided);
  return node;
}

function save(name, text) {
  const href = URL.createObjectURL(new Blob([text], { type: "text/plain" }));
  el("a", { href, download: name }).click();
  URL.revokeObjectURL(href);
}
