"""Files that are held open, so that they can be written again where somebody deletes them under a run."""

from __future__ import annotations

import os
from pathlib import Path

from headwater.io.files import replace_whole

_MOST = 128  #: files; what is deleted of more is gone


class OpenFiles:
    """Files by number, each where it was last said to be."""

    def __init__(self) -> None:
        self._files: dict[int, tuple[Path, int]] = {}

    def hold(self, number: int, path: Path) -> None:
        """Hold a file, or hear that it has moved."""
        if number in self._files:
            self._files[number] = path, self._files[number][1]
        elif len(self._files) < _MOST:
            self._files[number] = path, os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def let_go(self, number: int) -> None:
        """Let go of a file."""
        if number in self._files:
            os.close(self._files.pop(number)[1])

    def restore(self) -> list[Path]:
        """Write the files again that were deleted; return which those are. Raises InputError."""
        missing = [(number, path, fd) for number, (path, fd) in self._files.items() if not path.exists()]
        for number, path, fd in missing:
            replace_whole(path, os.pread(fd, os.fstat(fd).st_size, 0))
            self._files[number] = path, os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            os.close(fd)
        return [path for _, path, _ in missing]

    def close(self) -> None:
        """Let all go."""
        for number in list(self._files):
            self.let_go(number)
