from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ownwords.core.config import as_toml, resolve, settings_of
from ownwords.core.errors import ConfigError, OwnwordsError
from ownwords.training.settings import Recipe


@dataclass(frozen=True)
class Deep:
    rate: float = 0.5

    def __post_init__(self) -> None:
        if self.rate < 0:
            raise OwnwordsError("room.deep.rate must not be negative")


@dataclass(frozen=True)
class Room:
    lamps: int = 2
    open: bool = False
    share: float = 0.1
    name: str = "hall"
    folder: Path = Path("here")
    way: Literal["in", "out", 3] = "in"
    limit: int | None = None
    parts: tuple[str, ...] = ()
    pair: tuple[int, float] = (1, 2.0)
    deep: Deep = field(default_factory=Deep)

    def __post_init__(self) -> None:
        if self.lamps < 0:
            raise ValueError("lamps cannot be fewer than none")


@dataclass(frozen=True)
class House:
    room: Room = field(default_factory=Room)
    max_post_share: float = 0.1


def toml(folder: Path, text: str, name: str = "ownwords.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_the_later_source_wins_and_every_value_names_its_source(tmp_path: Path) -> None:
    first = toml(tmp_path, "[room]\nlamps = 3\nshare = 1\nname = 'a'\n[room.deep]\nrate=2")
    second = toml(tmp_path, "[room]\nshare = 0.25\nname = 'b'\n", "second.toml")
    resolved = resolve(
        House,
        toml=[first, second],
        sets=["room.open=false", "room.parts = a, b", "room.name=2024"],
        flags={"room.open": True, "room.limit": None},
    )
    room = resolved.settings.room
    assert (room.lamps, room.share, room.name, room.open) == (3, 0.25, "2024", True)
    assert room.parts == ("a", "b")
    assert room.deep == Deep(2.0)
    origins = resolved.origins
    assert origins["room.lamps"] == first.as_posix()
    assert origins["room.share"] == second.as_posix()
    assert origins["room.parts"] == "--set"
    assert origins["room.open"] == "flag --open"
    assert origins["room.limit"] == "default"
    assert resolve(House, flags={"room.open": False}).origins["room.open"] == "flag --no-open"


@pytest.mark.parametrize(
    ("given_as", "message"),
    [
        ({"sets": ["max_post_shar=1"]}, "did you mean max_post_share?"),
        ({"sets": ["lamps=1"]}, "did you mean room.lamps?"),
        ({"sets": ["zzzz=1"]}, "one of room.lamps"),
        ({"sets": ["room.lamps"]}, '"=" is missing'),
        (
            {"sets": ["room.lamps=many"]},
            'room.lamps must be a whole number, not "many"',
        ),
        ({"sets": ["room.share=nan"]}, "room.share must be a number"),
        ({"sets": ["room.open=perhaps"]}, "room.open must be true or false"),
        ({"sets": ["room.way=up"]}, 'room.way must be "in" or "out" or 3, not "up"'),
        ({"sets": ["room.pair=1"]}, "room.pair must be a list of 2"),
        ({"sets": ["room.parts=[1,"]}, "room.parts must be a list of values, each text"),
        ({"sets": ["room.limit=x"]}, 'room.limit must be a whole number or none, not "x"'),
        ({"sets": ["room.folder="]}, "room.folder must be a path"),
        ({"sets": ["room.folder=~nobody-of-this-name/x"]}, "room.folder must be a path"),
        ({"sets": ["room.name=\udc80"]}, "room.name must be text"),
        ({"sets": ["room.lamps=-1"]}, "--set: room: lamps cannot be fewer than none"),
        ({"sets": ["room.deep.rate=-1"]}, "--set: room.deep.rate must not be negative"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(given_as: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        resolve(House, **given_as)  # type: ignore[arg-type]
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[room]\nlamp = 1", "ownwords.toml: there is no setting"),
        ("[rom]\nlamps = 1", 'there is no setting "rom"'),
        ("room = 1", "room is a section, not a setting"),
        ("[room.lamps]\nx = 1", 'room.lamps must be a whole number, not {"x": 1}'),
        ("[room]\nlamps = true", "room.lamps must be a whole number, not true"),
        ("[room]\nlamps = 1.5", "not 1.5"),
        ("[room]\nopen = 1", "room.open must be true or false, not 1"),
        ("[room]\nopen = 'yes'", "room.open must be true or false"),
        ("[room]\nparts = 'a,b'", "room.parts must be a list"),
        ("[room]\nparts = [1]", "room.parts[0] must be text, not 1"),
        ("[room]\nname = 2020-01-01", "room.name must be text"),
        ("room = [", "is not valid TOML"),
    ],
)
def test_files_are_read_strictly(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        resolve(House, toml=[toml(tmp_path, text)])
    assert message in str(raised.value)


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        resolve(House, toml=[tmp_path / "missing.toml"])
    with pytest.raises(ConfigError, match="cannot be read"):
        resolve(House, toml=[tmp_path])
    (tmp_path / "latin.toml").write_bytes(b"a = '\xe9'")
    with pytest.raises(ConfigError, match="not UTF-8"):
        resolve(House, toml=[tmp_path / "latin.toml"])


def test_a_byte_order_mark_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "ownwords.toml"
    path.write_bytes(b"\xef\xbb\xbfmax_post_share = 0.2")
    assert resolve(House, toml=[path]).settings.max_post_share == 0.2


texts = st.text(st.characters(codec="utf-8"))
rooms = st.builds(
    Room,
    lamps=st.integers(min_value=0),
    open=st.booleans(),
    share=st.floats(allow_nan=False),
    name=texts,
    folder=texts.filter(lambda text: "~" not in text).map(Path),
    way=st.sampled_from(["in", "out", 3]),
    limit=st.none() | st.integers(),
    parts=st.lists(texts).map(tuple),
    pair=st.tuples(st.integers(), st.floats(allow_nan=False)),
    deep=st.builds(Deep, rate=st.floats(min_value=0)),
)


@given(rooms)
def test_a_written_file_reads_back_equal(
    tmp_path_factory: pytest.TempPathFactory, room: Room
) -> None:
    house = House(room=room)
    text = "".join(f"{each.key} = {as_toml(each.default)}\n" for each in settings_of(house))
    path = tmp_path_factory.getbasetemp() / "written.toml"
    path.write_text(text, encoding="utf-8", newline="\n")
    assert resolve(House, toml=[path]).settings == house


def test_every_setting_of_the_program_can_be_given_as_text() -> None:
    from ownwords.cli.options import Settings

    for setting in settings_of(Settings()):
        text = as_toml(setting.default).strip('"')
        assert resolve(Settings, sets=[f"{setting.key}={text}"]).settings == Settings()


def test_settings_that_contradict_each_other_are_refused_with_their_sources() -> None:
    sets = ["schedule.warmup_fraction=0.5", "schedule.decay_fraction=0.6"]
    with pytest.raises(ConfigError, match=r"--set: schedule: .* add up to more than 1"):
        resolve(Recipe, sets=sets)
