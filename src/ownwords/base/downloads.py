"""Files from the network: asked for politely, gone on with where they broke off, checked.

What is under way is called NAME.part, with the server's mark of its version in NAME.etag.
"""

import hashlib
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from types import TracebackType
from typing import Literal, TypeVar

import httpx

from ownwords.core.errors import OwnwordsError
from ownwords.core.progress import Stage, in_words, printable
from ownwords.core.version import __version__
from ownwords.core.workspace import telling_of_the_disk, write_atomically

GOES_ON = "the same command goes on where it was"

_TRIES = 5  # in a row, with nothing new to show for it
_FIRST_WAIT_S = 1.0  # doubled each time
_LONGEST_WAIT_S = 300.0  # a server that asks for more is asked another day
_CONNECT_S, _SILENCE_S = 10.0, 60.0
_MAY_PASS = frozenset({408, 429, 500, 502, 503, 504})
_BLOCK_BYTES = 1 << 20
_PAGE_BYTES = 32 << 20  # the hub's list of a model's files has some kB, Gutenberg's catalogue 20 MB
_FILE_BYTES = 1 << 40
_SHA256 = re.compile(r"[0-9a-f]{64}")
_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")

T = TypeVar("T")


class FetchError(OwnwordsError):
    """What was asked of a server did not come, or was not what it should be."""


class RefusedError(FetchError):
    """The server answered, and will not give it."""

    def __init__(self, message: str, status: int, hint: str = "") -> None:
        super().__init__(message, hint)
        self.status = status


class _AgainError(Exception):
    """It may come if it is asked for again, after so many seconds where the server says so."""

    def __init__(self, reason: str, after_s: float | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.after_s = after_s


@dataclass(frozen=True)
class Checksum:
    """What a whole file must come to: its SHA-256, or its name as an object of git."""

    kind: Literal["sha256", "git"]
    value: str

    def is_of(self, path: Path) -> bool:
        """Whether a file comes to it."""
        found = git_name_of(path) if self.kind == "git" else sha256_of(path)
        return found == self.value.lower()


@dataclass(frozen=True)
class Fetched:
    """A file that is there, whole."""

    path: Path
    bytes: int
    sha256: str


class Counted:
    """Tells a stage of MiB how many bytes came."""

    def __init__(self, stage: Stage) -> None:
        self._stage, self._bytes = stage, 0

    def __call__(self, count: int) -> None:
        before = self._bytes >> 20
        self._bytes += count
        self._stage.advance((self._bytes >> 20) - before)


def nobody(count: int) -> None:
    """Nobody wants to know how many bytes came."""


class Downloads:
    """Asks for one thing at a time; between two requests `between_s` seconds go by.

    What is busy or breaks off is asked for again, as late as the server says. `headers` are not
    passed on where a server sends us to another one, if they are those of an authorization.
    """

    def __init__(
        self,
        *,
        between_s: float = 0.0,
        headers: Mapping[str, str] | None = None,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._between_s, self._sleep, self._clock = between_s, sleep, clock
        self._free_at = clock()
        ours = {"User-Agent": f"ownwords/{__version__}", "Accept-Encoding": "identity"}
        self._client = httpx.Client(
            follow_redirects=True,
            timeout=httpx.Timeout(_SILENCE_S, connect=_CONNECT_S),
            headers={**ours, **(headers or {})},
            event_hooks={"request": [self._wait]},  # called for each redirection, too
        )

    def __enter__(self) -> "Downloads":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._client.close()

    def page(self, url: str, limit: int = _PAGE_BYTES) -> bytes:
        """What stands at an address, at most so many bytes; FetchError if it does not come."""

        def once() -> bytes:
            data = bytearray()
            with self._answer(url, {}) as response:
                for chunk in response.iter_bytes():
                    data += chunk
                    if len(data) > limit:
                        raise FetchError(f"{url} is longer than the {limit:,} bytes it may have")
            return bytes(data)

        return self._tried(url, once, lambda: 0)

    def file(
        self,
        url: str,
        path: Path,
        *,
        size: int | None = None,
        checksum: Checksum | None = None,
        limit: int = _FILE_BYTES,
        came: Callable[[int], None] = nobody,
    ) -> Fetched:
        """Fetch a file to `path`, or the rest of it, where it is not there whole.

        `size` and `checksum` are what is known of it beforehand. `came` is told how many bytes
        came, those of earlier times too, and of fewer than none where it has to begin anew.
        FetchError or RefusedError if it does not come; what came of it stays for the next time.
        """
        coming = _Coming(url, path, size, checksum, limit, came)
        with telling_of_the_disk(path):
            fetched = self._tried(url, lambda: self._some_of(coming), coming.have)
            coming.mark.unlink(missing_ok=True)
        return fetched

    def _some_of(self, coming: "_Coming") -> Fetched:
        """One attempt at a file: the whole, or what is missing of it."""
        have = coming.to_go_on_from()
        if not have or have != coming.size:  # else it came whole, and the process was killed then
            wanted = {"Range": f"bytes={have}-"} if have else {}
            # Where the checksum will tell, a copy of the file on another server will do.
            if have and not coming.checksum:
                wanted["If-Range"] = coming.validator()
            with self._answer(coming.url, wanted) as response:
                coming.take(response, have)
        return coming.checked()

    def _tried(self, url: str, once: Callable[[], T], have: Callable[[], int]) -> T:
        """What `once` gives, tried again as long as that may help; what comes is not in vain."""
        tries, most = 0, have()
        while True:
            try:
                return once()
            except _AgainError as again:
                tries = 1 if have() > most else tries + 1
                most = max(most, have())
                wait_s = (
                    _FIRST_WAIT_S * 2 ** (tries - 1) if again.after_s is None else again.after_s
                )
                if wait_s > _LONGEST_WAIT_S:
                    raise RefusedError(
                        f"{_host(url)} asks to come again in {in_words(wait_s)}",
                        status=429,
                        hint=f"do that: {GOES_ON}",
                    ) from again
                if tries == _TRIES:
                    raise FetchError(f"{url} did not come: {again.reason}", hint=GOES_ON) from again
            self._sleep(wait_s)

    @contextmanager
    def _answer(self, url: str, headers: Mapping[str, str]) -> Iterator[httpx.Response]:
        """The answer to a request, its body still to come."""
        try:
            with self._client.stream("GET", url, headers=headers) as response:
                _check(response, usable=(200, 206, 416) if headers else (200,))
                yield response
        except httpx.InvalidURL as error:
            raise FetchError(f"{url!r:.200} is no address: {error}") from error
        except httpx.UnsupportedProtocol as error:
            raise FetchError(f"{url!r:.200} is no address of the web") from error
        except httpx.TransportError as error:
            said = printable(" ".join(str(error).split())) or type(error).__name__
            if "CERTIFICATE_VERIFY_FAILED" in said:
                raise FetchError(
                    f"{_host(str(error.request.url))} cannot show that it is who it says: {said}",
                    hint="nothing was fetched from it; give another address, or try another day",
                ) from error
            raise _AgainError(said) from error
        except httpx.RequestError as error:
            raise FetchError(f"{url} did not come: {error}") from error
        finally:
            self._free_at = self._clock() + self._between_s

    def _wait(self, request: httpx.Request) -> None:
        """Until the next request may be made."""
        if (wait_s := self._free_at - self._clock()) > 0:
            self._sleep(wait_s)
        self._free_at = self._clock() + self._between_s


class _Coming:
    """A file under way."""

    def __init__(
        self,
        url: str,
        path: Path,
        size: int | None,
        checksum: Checksum | None,
        limit: int,
        came: Callable[[int], None],
    ) -> None:
        self.url, self.path, self.size, self.checksum = url, path, size, checksum
        self.part = path.with_name(path.name + ".part")
        self.mark = path.with_name(path.name + ".etag")
        self._limit = limit if size is None else size
        self._came, self._told = came, 0
        self._was_wrong = False

    def have(self) -> int:
        """How much of it lies here."""
        return self.part.stat().st_size if self.part.exists() else 0

    def validator(self) -> str:
        """What tells the version that a part is of; empty where the server gave nothing."""
        return self.mark.read_text(encoding="latin-1") if self.mark.exists() else ""

    def to_go_on_from(self) -> int:
        """How much of it is not asked for again: none, if nothing could tell of which version."""
        have = self.have()
        if have > self._limit or not (self.checksum or self.validator()):
            have = 0
        self._tell(have)
        return have

    def take(self, response: httpx.Response, have: int) -> None:
        """Write what an answer holds where it belongs."""
        if encoding := response.headers.get("content-encoding", "").replace("identity", ""):
            raise FetchError(f"{self.url} came packed ({encoding}), which nobody asked for")
        self.checksum = self.checksum or _linked(response)
        begin, whole = self._place(response, have)
        self._tell(begin)
        if begin == 0:
            write_atomically(self.mark, _validator(response).encode("latin-1"))
        with self.part.open("r+b" if begin else "wb") as file:
            at = file.seek(begin)
            file.truncate()
            for chunk in response.iter_raw():
                at += file.write(chunk)
                if at > self._limit:
                    self._forget()
                    raise FetchError(
                        f"{self.url} is longer than it should be, {self._limit:,} bytes"
                    )
                self._tell(at)
            file.flush()
            os.fsync(file.fileno())
        if whole is not None and at < whole:
            raise _AgainError(f"it broke off after {at:,} of {whole:,} bytes")

    def _place(self, response: httpx.Response, have: int) -> tuple[int, int | None]:
        """Where in the file an answer begins, and where the file ends, if anybody knows."""
        if response.status_code == 200:
            length = response.headers.get("content-length", "")
            return 0, self.size or (int(length) if length.isdecimal() else None)
        said = _RANGE.fullmatch(response.headers.get("content-range", ""))
        told, now = self.validator(), _validator(response)
        is_same = self.checksum is not None or told == now
        if response.status_code == 206 and said and int(said[1]) == have and is_same:
            return have, self.size or (int(said[2]) if said[2].isdecimal() else None)
        self._forget()  # another file by now, or a server that cannot do this
        raise _AgainError("it cannot be gone on with, and has to begin anew")

    def checked(self) -> Fetched:
        """The file in its place, if it is what it should be."""
        have = self.have()
        wrong = ""
        if self.size not in (None, have):
            wrong = f"it has {have:,} bytes, and should have {self.size:,}"
        elif self.checksum and not self.checksum.is_of(self.part):
            wrong = f"its checksum is not {self.checksum.value}"
        if not wrong:
            os.replace(self.part, self.path)  # noqa: PTH105 - as everywhere here
            return Fetched(self.path, have, sha256_of(self.path))
        self._forget()
        if self._was_wrong:
            raise FetchError(
                f"{self.url} did not come as it should: {wrong}",
                hint="somebody may have changed it on the way, or its server is out of order",
            )
        self._was_wrong = True
        raise _AgainError(wrong)

    def _forget(self) -> None:
        self.part.unlink(missing_ok=True)
        self.mark.unlink(missing_ok=True)
        self._tell(0)

    def _tell(self, at: int) -> None:
        if at != self._told:
            self._came(at - self._told)
            self._told = at


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, as hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def git_name_of(path: Path) -> str:
    """What git calls a file of that content: how the hub tells the small ones apart."""
    hasher = hashlib.sha1(f"blob {path.stat().st_size}\0".encode(), usedforsecurity=False)
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            hasher.update(block)
    return hasher.hexdigest()


def _check(response: httpx.Response, usable: tuple[int, ...]) -> None:
    """Raise what an answer that cannot be used means."""
    status = response.status_code
    if status in usable:
        return
    said = f"{status} {printable(response.reason_phrase)}".strip()
    if status in _MAY_PASS:
        raise _AgainError(said, _retry_after(response.headers.get("retry-after", "")))
    raise RefusedError(f"{_host(str(response.url))} answers {said} for {response.url}", status)


def _retry_after(text: str) -> float | None:
    """The seconds a server asks to wait, given as such or as a date; None where it does not."""
    if text.strip().isdecimal():
        return float(text)
    try:
        date = parsedate_to_datetime(text)
    except (TypeError, ValueError):
        return None
    aware = date if date.tzinfo else date.replace(tzinfo=UTC)
    return max(0.0, (aware - datetime.now(UTC)).total_seconds())


def _validator(response: httpx.Response) -> str:
    """What stands for just these bytes; a weak mark stands for like ones only, and is none."""
    etag = str(response.headers.get("etag", ""))
    if etag and not etag.startswith("W/"):
        return etag
    return "" if etag else str(response.headers.get("last-modified", ""))


def _linked(response: httpx.Response) -> Checksum | None:
    """What a hub that sends us elsewhere for a large file says it must come to."""
    for one in (*response.history, response):
        if _SHA256.fullmatch(said := one.headers.get("x-linked-etag", "").strip('"')):
            return Checksum("sha256", said)
    return None


def _host(url: str) -> str:
    return httpx.URL(url).host or url
