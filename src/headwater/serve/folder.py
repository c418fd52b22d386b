"""Which flows there are: the Python files of a folder, each known by its name and by what is in it."""

from __future__ import annotations

import hashlib
import logging
import os
from dataclasses import dataclass
from pathlib import Path

from headwater.errors import FlowError, one_line
from headwater.serve.settings import settings_beside

log = logging.getLogger(__name__)

_Stat = tuple[int, int, int] | None  #: inode, size and time of change of a file; None where there is none


@dataclass(frozen=True, slots=True)
class FlowFile:
    """A flow's file as it is now."""

    name: str
    path: Path
    print: str  #: tells what is in it, and in its settings, from what was


class Folder:
    """Looks for flows; a file that is being written is not taken before it has been the same in two looks.

    `_helpers.py`, hidden files and sub-folders are left alone: flows may import them.
    """

    def __init__(self, path: Path) -> None:
        if not path.is_dir():
            raise FlowError(f"there is no folder {str(path)!r}; headwater serve takes a folder of flows")
        self.path = path.resolve()
        self._last_stats: dict[str, tuple[_Stat, _Stat]] = {}
        self._files: dict[str, tuple[tuple[_Stat, _Stat], FlowFile]] = {}
        self._unprintable: set[str] = set()
        self._unreadable = False

    def look(self, *, first: bool = False) -> dict[str, FlowFile] | None:
        """Return the flows by name; None where the folder cannot be read now, which is not the same as an empty one.

        At the `first` look files are taken as they are.
        """
        try:
            names = sorted(entry.name for entry in os.scandir(self.path) if self._is_flow(entry))
        except OSError as error:
            if not self._unreadable:
                log.error("cannot look into %s: %s; its flows run on as they are", self.path, error.strerror)
            self._unreadable = True
            return None
        self._unreadable = False
        stats_of = {name: self._stats(name) for name in names}
        for name, stats in stats_of.items():
            current = self._files.get(name)
            if (current is None or current[0] != stats) and (first or self._last_stats.get(name) == stats):
                self._files[name] = stats, self._flow_file(name)
        for name in set(self._files) - set(stats_of):
            del self._files[name]
        self._last_stats = stats_of
        return {file.name: file for _, file in self._files.values()}

    def _is_flow(self, entry: os.DirEntry[str]) -> bool:
        name = entry.name
        if not name.endswith(".py") or name.startswith(("_", ".")) or not entry.is_file():
            return False
        if not name.isprintable():  # such a name could be neither shown nor put into JSON
            if name not in self._unprintable:
                self._unprintable.add(name)
                log.warning("%s is passed over: its name has characters that cannot be shown", one_line(name))
            return False
        return True

    def _stats(self, name: str) -> tuple[_Stat, _Stat]:
        return _stat(self.path / name), _stat(settings_beside(self.path / name))

    def _flow_file(self, name: str) -> FlowFile:
        file = self.path / name
        digest = hashlib.sha256()
        for each in (file, settings_beside(file)):
            try:
                content = each.read_bytes()
            except OSError as error:
                content = f"cannot be read: {error.strerror}".encode()
            digest.update(len(content).to_bytes(8, "big") + content)
        return FlowFile(file.stem, file, digest.hexdigest())


def _stat(path: Path) -> _Stat:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_ino, stat.st_size, stat.st_mtime_ns
