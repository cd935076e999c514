"""Build the sample Publii site from the Markdown files in `posts/`.

    python examples/blog/build.py

writes `input/db.sqlite`, `input/config/site.config.json` and `input/media/posts/<id>/` beside this
script. The same sources always give the same rows: posts are numbered by date, tags by name.
"""

import json
import re
import shutil
import sqlite3
import sys
import uuid
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode

from ownwords.archive.sources.markdown import parse_front_matter

HERE = Path(__file__).resolve().parent
AUTHOR = ("Agnes Tolley", "agnes-tolley")
REQUIRED_KEYS = {"title", "date", "tags", "status"}
EDITORS = {None, "tinymce", "markdown", "blockeditor"}
FLAGS = {"published", "draft", "is-page", "hidden", "trashed", "featured", "excluded_homepage"}
FILE_NAME = re.compile(r"(\d{4}-\d{2}-\d{2})-([a-z0-9-]+)\.md")
POST_LINK = re.compile(r"\]\(([\w.-]+\.md)\)")
MEDIA_LINK = re.compile(r"\]\(([\w.-]+\.svg)(?=[ )])")
PARSER = MarkdownIt("commonmark", {"xhtmlOut": False}).enable("table")


class BuildError(Exception):
    """A source file that cannot become a post; the message names the file and what to change."""


@dataclass(frozen=True)
class Post:
    """One source file; `editor` is None where an old database would not have recorded it."""

    file_name: str
    slug: str
    title: str
    created_at: datetime
    tags: tuple[str, ...]
    editor: str | None
    status: str
    markdown: str


def read_post(path: Path) -> Post:
    """Read one Markdown file; raise BuildError if its name or front matter will not do."""
    name = FILE_NAME.fullmatch(path.name)
    if name is None:
        raise BuildError(f"{path.name}: name it like 2017-03-05-kettle.md")
    try:
        source = parse_front_matter(path.read_text(encoding="utf-8"))
        created_at = datetime.strptime(str(source.values.get("date")), "%Y-%m-%d %H:%M")
    except ValueError as error:
        raise BuildError(f"{path.name}: the front matter cannot be read: {error}") from error
    fields: dict[str, Any] = source.values
    complaints = {
        f"the front matter needs {sorted(REQUIRED_KEYS)}": not fields.keys() >= REQUIRED_KEYS,
        "the front matter has an unknown key": not fields.keys() <= REQUIRED_KEYS | {"editor"},
        "the date differs from the file name's": f"{created_at:%Y-%m-%d}" != name[1],
        "tags must be a list": not isinstance(fields.get("tags"), list),
        "editor is unknown": fields.get("editor") not in EDITORS,
        "status has an unknown flag": not set(str(fields.get("status")).split(",")) <= FLAGS,
    }
    if complaints_found := [complaint for complaint, holds in complaints.items() if holds]:
        raise BuildError(f"{path.name}: {'; '.join(complaints_found)}")
    return Post(
        file_name=path.name,
        slug=name[2],
        title=str(fields["title"]),
        created_at=created_at.replace(tzinfo=UTC),
        tags=tuple(fields["tags"]),
        editor=fields.get("editor"),
        status=fields["status"],
        markdown=source.body.strip(),
    )


def read_posts(folder: Path) -> dict[int, Post]:
    """Every post in `folder` by its id; ids count up from 1 in order of date."""
    posts = [read_post(path) for path in folder.glob("*.md")]
    slug, times = Counter(post.slug for post in posts).most_common(1)[0]
    if times > 1:
        raise BuildError(f"{times} files have the slug {slug}")
    return dict(enumerate(sorted(posts, key=lambda post: (post.created_at, post.slug)), start=1))


def with_placeholders(post: Post, id_of_file: dict[str, int]) -> str:
    """The Markdown of `post` with links to other posts and to media as Publii stores them."""

    def link(match: re.Match[str]) -> str:
        if match[1] not in id_of_file:
            raise BuildError(f"{post.file_name}: links to {match[1]}, which is not there")
        return f"](#INTERNAL_LINK#/post/{id_of_file[match[1]]})"

    return MEDIA_LINK.sub(r"](#DOMAIN_NAME#\1", POST_LINK.sub(link, post.markdown))


def render(nodes: Sequence[SyntaxTreeNode]) -> str:
    """The HTML of some nodes."""
    tokens = [token for node in nodes for token in node.to_tokens()]
    html = str(PARSER.renderer.render(tokens, PARSER.options, {}))
    # Both editors keep plain quotation marks; inside a tag the sources have none to escape.
    return html.replace("&quot;", '"').strip()


def lone_image(node: SyntaxTreeNode) -> SyntaxTreeNode | None:
    """The image of a paragraph that holds nothing else."""
    if node.type != "paragraph":
        return None
    inline = node.children[0].children
    return inline[0] if [child.type for child in inline] == ["image"] else None


def tinymce_html(node: SyntaxTreeNode) -> str:
    """One top-level node as TinyMCE would have stored it."""
    if image := lone_image(node):
        caption = escape(str(image.attrs.get("title", "")))
        picture = f'<img src="{image.attrs["src"]}" alt="{escape(image.content)}">'
        return f'<figure class="post__image">{picture}<figcaption>{caption}</figcaption></figure>'
    if node.type == "fence":
        code = escape(node.content, quote=False).rstrip("\n")
        return f'<pre class="language-{node.info or "text"}"><code>{code}</code></pre>'
    return render([node])


def block(node: SyntaxTreeNode) -> dict[str, object]:
    """One top-level node as a block of the block editor, without its id."""

    def typed(kind: str, content: object, **config: object) -> dict[str, object]:
        return {"type": f"publii-{kind}", "config": config, "content": content}

    if image := lone_image(node):
        picture = {"image": image.attrs["src"], "imageHeight": "", "imageWidth": ""}
        words = {"alt": image.content, "caption": image.attrs.get("title", "")}
        return typed("image", picture | words, imageAlign="center")
    match node.type:
        case "paragraph":
            return typed("paragraph", render(node.children), textAlign="left")
        case "heading":
            level = int(node.tag.removeprefix("h"))
            return typed("header", render(node.children), headingLevel=level, textAlign="left")
        case "bullet_list" | "ordered_list":
            return typed("list", render(node.children), listType=node.tag)
        case "blockquote":
            lines = [render(child.children) for child in node.children]
            author = lines.pop().removeprefix("— ") if lines[-1].startswith("— ") else ""
            return typed("quote", {"text": "<br>".join(lines), "author": author})
        case "fence":
            return typed("code", node.content.rstrip("\n"), language=node.info or "text")
        case "hr":
            return typed("separator", False, type="dots")
        case _:
            return typed("html", render([node]))


def stored_text(post: Post, id_of_file: dict[str, int]) -> str:
    """The `text` column of `post`, in the format of its editor."""
    markdown = with_placeholders(post, id_of_file)
    if post.editor == "markdown":
        return markdown
    nodes = SyntaxTreeNode(PARSER.parse(markdown)).children
    if post.editor != "blockeditor":
        return "\n".join(tinymce_html(node) for node in nodes)
    namespace = uuid.uuid5(uuid.NAMESPACE_URL, post.slug)
    blocks = [
        {"id": str(uuid.uuid5(namespace, str(index))), **block(node)}
        for index, node in enumerate(nodes)
    ]
    return json.dumps(blocks, ensure_ascii=False)


def write_database(posts: dict[int, Post], path: Path) -> None:
    """Write `posts` as a Publii database; `path` is replaced only once all of it is written."""
    id_of_file = {post.file_name: post_id for post_id, post in posts.items()}
    names = sorted({tag for post in posts.values() for tag in post.tags})
    id_of_tag = {name: tag_id for tag_id, name in enumerate(names, start=1)}
    partial = path.with_suffix(".partial")
    partial.unlink(missing_ok=True)
    with closing(sqlite3.connect(partial)) as database, database:
        database.executescript((HERE / "schema.sql").read_text(encoding="utf-8"))
        database.execute("INSERT INTO authors VALUES (1, ?, ?, '', '{}', '{}')", AUTHOR)
        for name, tag_id in id_of_tag.items():
            slug = name.replace(" ", "-")
            database.execute("INSERT INTO tags VALUES (?, ?, ?, '', '{}')", (tag_id, name, slug))
        for post_id, post in posts.items():
            text, when = stored_text(post, id_of_file), int(post.created_at.timestamp()) * 1000
            database.execute(
                "INSERT INTO posts VALUES (?, ?, '1', ?, ?, 0, ?, ?, ?, '')",
                (post_id, post.title, post.slug, text, when, when, post.status),
            )
            core: dict[str, str | int] = {"metaTitle": "", "metaDesc": "", "metaRobots": ""}
            core |= {"mainTag": id_of_tag[post.tags[0]]} if post.tags else {}
            core |= {"editor": post.editor} if post.editor else {}
            database.execute(
                "INSERT INTO posts_additional_data (post_id, key, value) VALUES (?, '_core', ?)",
                (post_id, json.dumps(core)),
            )
            for tag in post.tags:
                database.execute("INSERT INTO posts_tags VALUES (?, ?)", (id_of_tag[tag], post_id))
    partial.replace(path)


def copy_media(posts: dict[int, Post], source: Path, output: Path) -> None:
    """Put each picture in the folder of the post that shows it, as `#DOMAIN_NAME#` expects."""
    for post_id, post in posts.items():
        for name in MEDIA_LINK.findall(post.markdown):
            if not (source / name).is_file():
                raise BuildError(f"{post.file_name}: shows {name}, which is not in {source.name}/")
            folder = output / "posts" / str(post_id)
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source / name, folder / name)


def build(source: Path, output: Path) -> int:
    """Build the site in `source` into the folder `output`; return the number of posts."""
    posts = read_posts(source / "posts")
    (output / "config").mkdir(parents=True, exist_ok=True)
    # A picture's folder is named by its post's id, and ids move when a post is put in between.
    shutil.rmtree(output / "media", ignore_errors=True)
    copy_media(posts, source / "media", output / "media")
    shutil.copyfile(source / "site.config.json", output / "config" / "site.config.json")
    write_database(posts, output / "db.sqlite")
    return len(posts)


def main() -> int:
    try:
        print(f"{build(HERE, HERE / 'input')} posts written to {HERE / 'input'}")
    except BuildError as error:
        print(f"cannot build the sample blog: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
