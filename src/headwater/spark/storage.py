"""Small files at any URL that Spark's file systems know, through Java: each is there as it was, or as it was just written.

No file system of an object store replaces a file in one go, and none of HDFS' kind renames over one. A file is therefore
written under a name with a number that grows; the highest one counts, and older ones are removed behind it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar
from uuid import uuid4

from headwater.errors import RunError
from headwater.io.urls import without_password
from headwater.spark.progress import cause_in

Done = TypeVar("Done")


class Storage:
    """A folder at a URL; a session must be running."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._versions: dict[str, int] = {}  #: the last of each file, once it is known

    def __str__(self) -> str:
        return without_password(self.url)

    def names(self, folder: str = "") -> list[str]:
        """Return what a folder of it holds; nothing where there is none."""

        def names_there() -> list[str]:
            files, path = self._files(folder)
            return [each.getPath().getName() for each in files.listStatus(path)] if files.exists(path) else []

        return self._attempt("read", names_there)

    def is_file(self) -> bool:
        """Say whether the URL names a file, rather than a folder or nothing."""

        def is_there() -> bool:
            files, path = self._files("")
            return bool(files.exists(path) and files.getFileStatus(path).isFile())

        return self._attempt("read", is_there)

    def exists(self, name: str) -> bool:
        """Say whether there is a file or folder of exactly this name."""

        def is_there() -> bool:
            files, path = self._files(name)
            return bool(files.exists(path))

        return self._attempt("read", is_there)

    def raw(self, name: str) -> bytes:
        """Return the bytes of a file that others have written, under exactly this name."""

        def content() -> bytes:
            files, path = self._files(name)
            stream = files.open(path)
            try:
                return bytes(stream.readAllBytes())
            finally:
                stream.close()

        return self._attempt("read", content)

    def read(self, name: str) -> bytes | None:
        """Return what a file of ours held when it was last written; None if it never was."""
        last = self._last(name)
        return self.raw(f"{name}.{last}") if last else None

    def write(self, name: str, data: bytes) -> None:
        """Write a file of ours."""
        last = self._last(name)

        def write_version() -> None:
            files, fresh = self._files(f"{name}.new")
            _, path = self._files(f"{name}.{last + 1}")
            _create(files, fresh, data)
            if files.exists(path) or not files.rename(fresh, path):
                raise RunError(f"{self} is in use by another run, which has just written {name!r} there")
            if last:
                files.delete(self._files(f"{name}.{last}")[1], False)

        self._attempt("write", write_version)
        self._versions[name] = last + 1

    def remove(self, name: str) -> None:
        """Remove a file of ours, all that is left of it included."""

        def removed() -> None:
            for number in self._numbers(name):
                files, path = self._files(f"{name}.{number}")
                files.delete(path, False)

        self._attempt("write", removed)
        self._versions.pop(name, None)

    def put(self, name: str, data: bytes) -> bool:
        """Write a file under exactly this name, whole or not at all, unless there is one; return whether it was written."""

        def write_new() -> bool:
            files, path = self._files(name)
            fresh = self._fresh(name, data)
            if not files.exists(path) and files.rename(fresh, path):
                return True
            files.delete(fresh, False)
            return False

        return self._attempt("write", write_new)

    def replace(self, name: str, data: bytes) -> None:
        """Write a file under exactly this name, in place of the one that is there; for a moment there may be none."""

        def write_over() -> None:
            files, path = self._files(name)
            fresh = self._fresh(name, data)
            files.delete(path, False)
            files.rename(fresh, path)

        self._attempt("write", write_over)

    def _fresh(self, name: str, data: bytes) -> Any:
        """Write data under a name that nobody looks for, beside the one that it is for."""
        folder, slash, plain = name.rpartition("/")
        files, fresh = self._files(f"{folder}{slash}.{plain}.{uuid4().hex}.tmp")
        _create(files, fresh, data)
        return fresh

    def size(self, name: str) -> int:
        """Return how many bytes a file has."""

        def length() -> int:
            files, path = self._files(name)
            return int(files.getFileStatus(path).getLen())

        return self._attempt("read", length)

    def move(self, name: str, to: str) -> None:
        """Give a file another name, under which there is none yet."""

        def moved() -> None:
            files, path = self._files(name)
            if not files.rename(path, self._files(to)[1]):
                raise RunError(f"cannot rename {self}/{name} to {to!r}")

        self._attempt("write", moved)

    def drop(self, folder: str) -> None:
        """Remove a folder and all that it holds, if it is there."""

        def dropped() -> None:
            files, path = self._files(folder)
            files.delete(path, True)

        self._attempt("write", dropped)

    def _last(self, name: str) -> int:
        if name not in self._versions:
            self._versions[name] = max(self._numbers(name), default=0)
        return self._versions[name]

    def _numbers(self, name: str) -> list[int]:
        folder, _, plain = name.rpartition("/")
        ends = (each.removeprefix(f"{plain}.") for each in self.names(folder) if each.startswith(f"{plain}."))
        return [int(end) for end in ends if end.isdecimal()]

    def _files(self, name: str) -> tuple[Any, Any]:
        """Return Java's file system and path of a name."""
        from headwater.spark.session import session

        context: Any = session().sparkContext
        path = context._jvm.org.apache.hadoop.fs.Path(f"{self.url}/{name}" if name else self.url)
        return path.getFileSystem(context._jsc.hadoopConfiguration()), path

    def _attempt(self, doing: str, act: Callable[[], Done]) -> Done:
        from py4j.protocol import Py4JJavaError

        try:
            return act()
        except Py4JJavaError as error:
            raise RunError(f"cannot {doing} {self}: {cause_in(f'{type(error).__name__}: {error}')}") from None


def _create(files: Any, path: Any, data: bytes) -> None:
    """Write a file anew, through Java's file system and path."""
    stream = files.create(path, True)
    try:
        stream.write(data)
    finally:
        stream.close()
