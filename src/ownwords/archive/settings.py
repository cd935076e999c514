"""The settings of `ownwords look`: what is taken in, what is trained on, what is held out."""

from dataclasses import dataclass, field
from typing import Annotated

from ownwords.core.errors import ConfigError
from ownwords.core.validation import Meta

MIN_TRAIN_SHARE = 0.6  # of the training words

Share = Annotated[float, Meta(gt=0, le=1)]


@dataclass(frozen=True)
class ArchiveConfig:
    """What the archive includes besides published posts. Trashed posts are never included."""

    drafts: bool = False  # unfinished and scheduled posts
    hidden: bool = False  # posts that are live at their address but listed nowhere
    private: bool = False  # private and password-protected posts
    pages: bool = True  # pages such as "About"
    max_post_characters: Annotated[int, Meta(ge=1)] = 20_000_000  # a longer "post" is a data file
    replaces_versions: bool = False  # a new version replaces a source without a question


@dataclass(frozen=True, slots=True)
class ProvenanceConfig:
    """Which posts stand out, and how much of one post is trained on."""

    # No post may be more than this share of the words a model is trained on.
    max_post_share: Share = 0.10
    # Two posts are near-duplicates if this share of the shorter is in the longer (5-word runs).
    near_duplicate: Share = 0.5
    # A post reads unlike the others if its robust z of Burrows' Delta is at least this.
    unlike_distance: Annotated[float, Meta(gt=0)] = 2.75
    # A post with more than this share of all own words dominates the archive.
    dominant_share: Share = 0.25


@dataclass(frozen=True, slots=True)
class SplitConfig:
    """How much is held out, as shares of the training words.

    A post stays in its split; changing the shares splits all posts again.
    """

    # For choosing when to stop and which settings are best.
    validation: float = 0.1
    # For the final score.
    test: float = 0.1

    def __post_init__(self) -> None:
        held_out = self.validation + self.test
        if not (self.validation >= 0 and self.test >= 0 and held_out <= 1 - MIN_TRAIN_SHARE):
            raise ConfigError(
                f"validation is {self.validation} and test {self.test} of the text",
                hint=f"set both to 0 or more, with a sum of at most {1 - MIN_TRAIN_SHARE:.1f}",
            )


@dataclass(frozen=True)
class LookSettings:
    """All settings of `look`, by section."""

    archive: ArchiveConfig = field(default_factory=ArchiveConfig)
    provenance: ProvenanceConfig = field(default_factory=ProvenanceConfig)
    split: SplitConfig = field(default_factory=SplitConfig)
