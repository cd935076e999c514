"""A Jekyll site with every form of front matter; a Hugo site and an Obsidian vault beside it."""

from pathlib import Path

from exports import NON_ASCII, write_folder

PUBLISHED = {
    "_posts/2020-01-31-on-hats.md": ("On hats", "2020-02-01"),
    "_posts/2021-06-02-coats.md": ("Coats", "2021-06-02"),
    "_posts/2022-02-03-shoes.markdown": ("Shoes and socks", "2022-02-03"),
    "_posts/2022-03-04-broken.md": ("Broken: but kept", "2022-03-04"),
    "_posts/2019-01-02-old.html": ("Old", "2019-01-02"),
    "about.md": ("About", ""),
}
LEFT_OUT = {"draft": 3, "private": 1, "hidden": 1}

FILES = {
    "_config.yml": "title: Hats and Heads\nurl: https://hats.example.org\nbaseurl: /blog\n",
    "README.md": "# INTRUDER project\n",
    "_includes/box.md": "INTRUDER",
    "_site/2020/01/31/on-hats.html": "INTRUDER",
    "node_modules/x/README.md": "INTRUDER",
    "notes.txt": "INTRUDER",
    "index.html": "<p>INTRUDER without front matter</p>",
    "_posts/2020-01-31-on-hats.md": "---\ntitle: On hats\ndate: 2020-01-31 22:00:00 -0500\n"
    "tags: hats roofs\ncategories: [Field Notes, wear]\nredirect_from: /old/hats/\n---\n\n"
    f"# On hats\n\nA hat is a roof one wears. {NON_ASCII}\n\n> A quoted line.\n\n"
    "```python\nhat = [[1, 2]]  # [[not-a-link]]\n```\n\n"
    "See [coats]({% post_url 2021-06-02-coats %}).\n",
    "_posts/2021-06-02-coats.md": '+++\ntitle = "Coats"\ntags = ["wear"]\n+++\nAfter'
    " [hats](/2020/01/31/on-hats.html), coats.\n",
    "_posts/2022-02-03-shoes.markdown": '{\n  "title": "Shoes and socks",\n  "permalink":'
    ' "/shoes/"\n}\n\nNext to [hats](2020-01-31-on-hats.md), shoes.\n',
    "_posts/2022-03-04-broken.md": "---\ntitle: Broken: but kept\ntags: [a, b\n---\nIts text.\n",
    "_posts/2019-01-02-old.html": "---\ntitle: Old\n---\n<p>From before Markdown.</p>\n",
    "about.md": "# About\n\nI write about [shoes](https://hats.example.org/blog/shoes/).\n",
    "_drafts/idea.md": "---\ntitle: Idea\n---\nTRASHCANARY\n",
    "_posts/2023-01-01-draft.md": "---\ntitle: Draft\ndraft: true\n---\nTRASHCANARY\n",
    "_posts/2023-01-02-off.md": "---\ntitle: [Off\npublished: false\n---\nTRASHCANARY\n",
    "_posts/2023-01-03-own.md": "---\ntitle: Own\nprivate: true\n---\nTRASHCANARY\n",
    "_posts/2023-01-04-unlisted.md": "---\ntitle: Unlisted\nhidden: true\n---\nTRASHCANARY\n",
}
HUGO = {
    "hugo.toml": 'baseURL = "https://hugo.example.org/"\ntitle = "A Hugo blog"\n',
    "archetypes/default.md": "---\ntitle: INTRUDER\n---\n",
    "public/index.html": "INTRUDER",
    "content/_index.md": "---\ntitle: INTRUDER\n---\n",
    "content/posts/hats/index.md": '+++\ntitle = "Hats"\ndate = 2020-01-31T10:00:00Z\n'
    'aliases = ["/old-hats/"]\n+++\nSee [coats]({{< ref "coats.md" >}}) and'
    ' [shoes]({{% relref "/posts/shoes.md#x" %}}).\n',
    "content/posts/coats.md": "---\ntitle: Coats\nslug: great-coats\n---\n[Hats](/posts/hats/)\n",
    "content/posts/shoes.md": "---\ntitle: Shoes\ndraft: true\n---\n[Coats](/posts/great-coats/)\n",
    "content/about.md": "---\ntitle: About\n---\nMe.\n",
}
VAULT = {
    ".obsidian/app.json": "{}",
    ".obsidian/plugins/readme.md": "INTRUDER",
    ".trash/Gone.md": "TRASHCANARY",
    "Daily/2020-01-31.md": "Wrote [[Hats]], `[[code]]`, [[Coats#Wool|the coats]], ![[hat.png]]"
    " and ![[Coats]].\n\n~~~\n[[fenced]]\n~~~\n\n[[#Above]] and [[1]](https://x.org).\n",
    "Hats.md": "---\naliases: [Caps, Roofs one wears]\ntags:\n  - wear\ncreated: 2020-01-30\n---\n"
    "Text on [[Daily/2020-01-31]].\n",
    "Coats.md": "---\n\nA rule, then text.\n\n---\n\nMore on [[Caps]].\n",
}


def write(folder: Path, files: dict[str, str] = FILES) -> Path:
    """Write the folder of the site."""
    return write_folder(folder / "site", files)
