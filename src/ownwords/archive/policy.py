"""Which documents an archive takes in by default, and the words for those it does not."""

from dataclasses import dataclass

from ownwords.archive.document import RawDocument


@dataclass(frozen=True)
class ArchiveConfig:
    """What is taken into the archive beside published posts. The bin never is."""

    drafts: bool = False  # unfinished and scheduled posts
    hidden: bool = False  # posts that are live at their address but listed nowhere
    private: bool = False  # private and password-protected posts
    pages: bool = True  # pages such as "About"
    max_post_characters: int = 20_000_000  # a longer "post" is a data file

    def __post_init__(self) -> None:
        if self.max_post_characters < 1:
            raise ValueError(
                f"max_post_characters should be 1 at least: {self.max_post_characters}"
            )


def why_left_out(document: RawDocument, config: ArchiveConfig) -> str:
    """The reason a document stays out, in plain words; empty if it is taken in."""
    if document.status == "trashed":
        return "in the bin"
    if document.status == "draft" and not config.drafts:
        return "a draft"
    if document.status == "scheduled" and not config.drafts:
        return "scheduled, not yet published"
    if document.status == "private" and not config.private:
        return "private"
    if document.status == "hidden" and not config.hidden:
        return "hidden: live at its address, listed nowhere"
    if document.kind == "page" and not config.pages:
        return "a page, not a post"
    if len(document.body) > config.max_post_characters:
        return (
            f"{len(document.body):,} characters long, over the limit of"
            f" {config.max_post_characters:,}"
        )
    return ""
