"""A Medium export as its zip: stories, a draft, responses that look like stories, and the rest."""

from pathlib import Path

from exports import NON_ASCII, write_zip

PUBLISHED = {
    "post/0a1b2c3d4e5f": ("On hats", "2020-01-31"),
    "post/1a1b2c3d4e5f": ("Coats", "2021-06-02"),
    "post/2a1b2c3d4e5f": ("I could not agree more with this, and here is why it", "2021-07-01"),
}
LEFT_OUT = {"draft": 1}

LONG_RESPONSE = "I could not agree more with this, and here is why it matters to me. " * 10
SECTION = (
    '<section name="ab12" class="section section--body section--first section--last"><div'
    ' class="section-divider"><hr class="section-divider"></div><div class="section-content">'
    '<div class="section-inner sectionLayout--insetColumn">{}</div></div></section>'
)


def story(title: str, subtitle: str, inner: str, story_id: str, day: str) -> str:
    """A page as Medium writes it; a draft has no day."""
    time = f'on <a href="https://medium.com/p/{story_id}"><time class="dt-published" datetime="'
    time += f'{day}T10:00:00.000Z">{day}</time></a>.' if day else ""
    slug = title.lower().replace(" ", "-")
    footer = (
        '<p>By <a href="https://medium.com/@ann" class="p-author h-card">Ann Author</a>'
        f'{time if day else ""}</p><p><a href="https://medium.com/@ann/{slug}-{story_id}"'
        ' class="p-canonical">Canonical link</a></p><p>Exported from'
        ' <a href="https://medium.com">Medium</a> on March 1, 2023.</p>'
    )
    return (
        '<!DOCTYPE html><html><head><meta http-equiv="Content-Type" content="text/html;'
        f' charset=utf-8"><title>{title}</title><style>* {{ font-family: Georgia; }}</style></head>'
        f'<body><article class="h-entry">\n<header>\n<h1 class="p-name">{title}</h1>\n</header>\n'
        f'<section data-field="subtitle" class="p-summary">\n{subtitle}\n</section>\n'
        f'<section data-field="body" class="e-content">\n{SECTION.format(inner)}\n</section>\n'
        f"<footer>{footer}</footer></article></body></html>"
    )


HATS = (
    '<h3 name="1" class="graf graf--h3 graf--leading graf--title">On hats</h3>'
    f'<p class="graf graf--p">A hat is a roof one wears. {NON_ASCII}</p>'
    '<blockquote class="graf graf--blockquote">A quoted line.</blockquote>'
    '<pre class="graf graf--pre">hat = 1 &lt; 2</pre>'
    '<p class="graf graf--p">See <a href="https://medium.com/p/1a1b2c3d4e5f">coats</a>.</p>'
)
COATS = (
    '<h3 class="graf graf--h3 graf--leading graf--title">Coats</h3><p class="graf graf--p">After'
    ' <a href="https://medium.com/@ann/on-hats-0a1b2c3d4e5f?source=x">hats</a>, coats.</p>'
)


def files() -> dict[str, str]:
    """The members of the export by name."""
    title = "I could not agree more with this, and here is why it"
    return {
        "README.html": "<html><body>Your archive</body></html>",
        "posts/2020-01-31_On-hats-0a1b2c3d4e5f.html": story(
            "On hats", "What one wears", HATS, "0a1b2c3d4e5f", "2020-01-31"
        ),
        "posts/2021-06-02_Coats-1a1b2c3d4e5f.html": story(
            "Coats", "A sequel", COATS, "1a1b2c3d4e5f", "2021-06-02"
        ),
        "posts/2021-07-01_I-could-not-agree-2a1b2c3d4e5f.html": story(
            title, title, f"<p>{LONG_RESPONSE}</p>", "2a1b2c3d4e5f", "2021-07-01"
        ),
        "posts/2021-08-01_Thanks-3a1b2c3d4e5f.html": story(
            "Thanks, nice",
            "Thanks, nice",
            "<p>Thanks, nice post.</p>",
            "3a1b2c3d4e5f",
            "2021-08-01",
        ),
        "posts/draft_Not-yet-4a1b2c3d4e5f.html": story(
            "Not yet", "", "<h3>Not yet</h3><p>TRASHCANARY</p>", "4a1b2c3d4e5f", ""
        ),
        "bookmarks/bookmarks-0001.html": "<html><body>INTRUDER</body></html>",
        "ips/ips-0001.html": "<html><body>INTRUDER 192.0.2.1</body></html>",
        "profile/profile.html": "<html><body>INTRUDER ann@example.com</body></html>",
    }


def write(folder: Path) -> Path:
    """Write the export as one zip."""
    return write_zip(folder / "medium-export.zip", files())
