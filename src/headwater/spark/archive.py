"""An archive of the classes that Spark loads: Java starts from it sooner than it has unpacked and checked them.

It is made once for a Java and a Spark (see `archiving`), and kept in the cache folder. A Java that finds an archive unfit
goes without; `HEADWATER_JAVA_ARCHIVE=off` has none made and none used.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from headwater.spark.java import Java, cache_folder

SETTING = "HEADWATER_JAVA_ARCHIVE"
_PATIENCE_S = 60.0  #: for Java to look at itself
_AGAIN_S = 86400.0  #: before what could not be made is tried again
_FORGOTTEN_S = (
    30 * 86400.0
)  #: after which an archive that nobody has used is removed: it may be of a Spark that is gone


@dataclass(frozen=True, slots=True)
class Archive:
    """Where the classes of a Spark are kept for a Java; there may be none yet."""

    java: Path  #: the program
    path: Path

    def options(self) -> list[str]:
        """Return what Java must be told to start from the archive; nothing where there is none."""
        if not is_wanted() or not self.path.exists():
            return []
        for each in self._places(self.path):
            with suppress(OSError):
                os.utime(each)  # so that it is not forgotten
        return self._shared(self.path)

    def is_due(self) -> bool:
        """Say whether it should be made: there is none, and nobody has tried lately."""
        if not is_wanted() or self.path.exists():
            return False
        try:
            return time.time() - self._lock.stat().st_mtime > _AGAIN_S
        except OSError:
            return True

    def make(self, train: Callable[[list[str]], None]) -> bool:
        """Have Java make the archive of what it has loaded when it ends, unless another process does.

        `train` starts Java with some options, has it load what is to be in the archive, and waits for its end. Say whether
        there is an archive now.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._alone() as alone:
            if alone and not self.path.exists():
                _forget_unused(self.path.parent)
                self._make(train)
        return self.path.exists()

    def _make(self, train: Callable[[list[str]], None]) -> None:
        with tempfile.TemporaryDirectory(dir=self.path.parent) as folder:
            if not self._has_own_base():
                fresh = Path(folder) / self._base.name
                command = [str(self.java), "-Xshare:dump", f"-XX:SharedArchiveFile={fresh}"]
                subprocess.run(command, capture_output=True, check=True, timeout=_PATIENCE_S)
                fresh.replace(self._base)
            fresh = Path(folder) / self.path.name
            train([*self._shared(), f"-XX:ArchiveClassesAtExit={fresh}"])
            fresh.replace(self.path)  # at once: who looks meanwhile finds none

    @property
    def _base(self) -> Path:
        """The archive of Java's own classes, where Java has come without."""
        return self.path.with_suffix(".base.jsa")

    @property
    def _lock(self) -> Path:
        return self.path.with_suffix(".lock")

    def _places(self, *more: Path) -> list[Path]:
        return [*([self._base] if self._base.exists() else []), *more]

    def _shared(self, *more: Path) -> list[str]:
        places = self._places(*more)
        return [f"-XX:SharedArchiveFile={os.pathsep.join(map(str, places))}"] if places else []

    def _has_own_base(self) -> bool:
        command = [str(self.java), "-Xshare:on", "-version"]
        return subprocess.run(command, capture_output=True, check=False, timeout=_PATIENCE_S).returncode == 0

    @contextmanager
    def _alone(self) -> Iterator[bool]:
        """Keep other processes from the same, and say whether none was at it."""
        with self._lock.open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                yield False
            else:
                yield True


def archive_of(java: Java, spark_home: Path, before: Sequence[Path] = ()) -> Archive:
    """Return the archive for a Java and the jars of a Spark, with those that come before them on the class path.

    Java takes no archive of other jars, not even of the same ones with another date: these have another archive.
    """
    jars = [*before, *sorted((spark_home / "jars").glob("*.jar"))]
    facts = [(str(jar), about.st_size, about.st_mtime_ns) for jar in jars for about in (jar.stat(),)]
    name = sha256(json.dumps([str(java.home), java.version, facts]).encode()).hexdigest()[:12]
    return Archive(java.home / "bin" / "java", cache_folder() / "classes" / f"{name}.jsa")


def is_wanted() -> bool:
    """Say whether archives may be made and used here."""
    return os.environ.get(SETTING) != "off"


def _forget_unused(folder: Path) -> None:
    for path in folder.glob("*.jsa"):
        with suppress(OSError):
            if path.stat().st_mtime < time.time() - _FORGOTTEN_S:
                path.unlink()
