"""Links between sites on this machine that are cut for a while: who asks for it, and who does it.

`headwater up` has the links; whoever wants one cut notes that in a file beside its sites, and it notes in another what it
has done. So a link that is cut needs nobody to wait, and is mended when that was asked for, whoever is gone by then.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import msgspec

from headwater.deploy.token import COORDINATOR
from headwater.errors import RunError, listed, suggestion

_ASKED, _DONE = "cut.json", "links.json"
_ANSWER_S, _LOOK_S = 10.0, 0.02

#: what becomes of what is said over it: it vanishes, or each end is told that the other has hung up
How = Literal["silent", "reset"]


class CutLink(msgspec.Struct, frozen=True):
    """The link between a site and another, or the coordinator, while it is cut."""

    one: str
    other: str
    how: How
    until_s: float | None = None  #: by the clock of the machine; None until it is mended

    def is_between(self, one: str, other: str) -> bool:
        """Say whether it is the link between two, whichever is named first."""
        return {self.one, self.other} == {one, other}


class LinksDone(msgspec.Struct):
    """What `headwater up` has done about it."""

    sites: list[str] = []
    why_not: str = ""  #: why none of its links can be cut
    cut: list[CutLink] = []


class Cuts:
    """Both files, in the folder of the sites."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    # -- for who asks -------------------------------------------------------------------------------------------------

    def cut(self, site: str, other: str | None, how: How, for_s: float | None = None) -> list[CutLink]:
        """Have a link cut, or all of a site, that to the coordinator too; return all that are, once they are."""
        until_s = None if for_s is None else time.time() + for_s
        site, others = self._ends(site, other)
        new = [CutLink(site, each, how, until_s) for each in others]
        return self._ask(lambda cut: [*(each for each in cut if not _meets(each, site, others)), *new])

    def mend(self, site: str | None = None, other: str | None = None) -> list[CutLink]:
        """Have a link carry again what it is given, all of a site, or all; return those that are still cut."""
        if site is None:
            return self._ask(lambda cut: [])
        site, others = self._ends(site, other)
        return self._ask(lambda cut: [each for each in cut if not _meets(each, site, others)])

    def why_not(self) -> str:
        """Say why no link can be cut; nothing where they can."""
        links = self._read_links()
        return "no 'headwater up' runs with this state folder" if links is None else links.why_not

    def _ends(self, site: str, other: str | None) -> tuple[str, list[str]]:
        """Return a site and the other ends of its links that are meant; RunError for what is none of them."""
        if why := self.why_not():
            raise RunError(f"no link can be cut: {why}")
        links = self._read_links() or LinksDone()
        if site == COORDINATOR and other is not None:
            site, other = other, site
        ends = [*links.sites, COORDINATOR]
        for name, names in ((site, links.sites), (other, ends)):
            if name is not None and name not in names:
                slip = suggestion(name, names) or f"; there are {listed(names)}"
                raise RunError(f"'headwater up' runs no site '{name}'{slip}")
        if site == other:
            raise RunError(f"site '{site}' has no link to itself; name another site, '{COORDINATOR}', or neither")
        return site, [each for each in ends if each != site] if other is None else [other]

    def _ask(self, change: Callable[[list[CutLink]], list[CutLink]]) -> list[CutLink]:
        if why := self.why_not():
            raise RunError(f"no link can be cut or mended: {why}")
        with self._alone():
            links = change(self.due(time.time()))
            _replace(self._folder / _ASKED, msgspec.json.encode(links))
        give_up_s = time.monotonic() + _ANSWER_S
        while self.due(time.time()) == links:  # else somebody wants something else by now, or its time is over
            answer = self._read_links()
            if answer is not None and answer.cut == links:
                break
            if answer is None or time.monotonic() > give_up_s:
                raise RunError(f"nobody cuts or mends links in {self._folder}: does 'headwater up' still run?")
            time.sleep(_LOOK_S)
        return links

    def _read_links(self) -> LinksDone | None:
        try:
            return msgspec.json.decode((self._folder / _DONE).read_bytes(), type=LinksDone)
        except (OSError, msgspec.DecodeError):
            return None

    @contextmanager
    def _alone(self) -> Iterator[None]:
        with (self._folder / f".{_ASKED}.lock").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    # -- for who does it ----------------------------------------------------------------------------------------------

    def begin(self, sites: Sequence[str], why_not: str) -> None:
        """Say which sites there are, and why their links cannot be cut where that is so; none is cut."""
        (self._folder / _ASKED).unlink(missing_ok=True)
        self._note(LinksDone(list(sites), why_not))

    def due(self, now_s: float) -> list[CutLink]:
        """Return what should be cut by now."""
        try:
            links = msgspec.json.decode((self._folder / _ASKED).read_bytes(), type=list[CutLink])
        except (OSError, msgspec.DecodeError):
            return []
        return [each for each in links if each.until_s is None or each.until_s > now_s]

    def did(self, sites: Sequence[str], cut: list[CutLink]) -> None:
        """Say what is cut."""
        self._note(LinksDone(list(sites), cut=cut))

    def end(self) -> None:
        """Leave: there are no links any more."""
        (self._folder / _DONE).unlink(missing_ok=True)

    def _note(self, links: LinksDone) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _replace(self._folder / _DONE, msgspec.json.encode(links))


def _meets(cut: CutLink, site: str, others: Sequence[str]) -> bool:
    return any(cut.is_between(site, other) for other in others)


def _replace(path: Path, content: bytes) -> None:
    new = path.with_name(f".{path.name}.{os.getpid()}")
    new.write_bytes(content)
    new.replace(path)
