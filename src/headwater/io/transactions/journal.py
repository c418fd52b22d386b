"""What a sink has written, as a small file that is replaced as a whole: the parts that count, and what goes with each."""

from __future__ import annotations

import json
from pathlib import Path
from threading import Lock
from typing import Any

from headwater.errors import InputError
from headwater.flow.endpoints import Ledger
from headwater.io.files import explained, replace_whole


class Journal:
    """The parts that a sink has ended; there after a kill as it was before, or as it was just written.

    Opened, it knows of no part behind the one after which the run goes on; that one and those before it are committed.
    """

    def __init__(self, path: Path, after: int | None = None) -> None:
        self._path = path
        self._lock = Lock()  # one thread prepares a part while another commits the one before
        self.committed = -1  #: the last part that is there
        self.parts: dict[
            int, Any
        ] = {}  #: what was said of the last part that is committed and of those behind it, in order
        self.is_new = True  #: whether nothing was ever written in it
        self.closed: Any = (
            None  #: what was said when a run closed the sink with nothing left undone; None while it is open
        )
        self.foreseen: Any = None  #: what was said of what is written first behind the last part
        self.undone: dict[int, Any] = {}  #: parts that may have been there, and that the run goes back behind
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists():
                document = json.loads(path.read_bytes())
                self.committed = int(document["committed"])
                self.parts = {int(number): note for number, note in document["parts"].items()}
                self.closed, self.foreseen = document.get("closed"), document.get("foreseen")
                self.is_new = False
        except OSError as error:
            raise explained(error, path, "read") from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"cannot read {path}, which says what a sink has written: {error}") from error
        self._go_on(after)

    @classmethod
    def of(cls, ledger: Ledger) -> Journal:
        """Open the journal of a sink that notes all beside the checkpoint."""
        return cls(ledger.folder / "written", ledger.after)

    @property
    def last(self) -> Any:
        """What was said of the last part that has ended; None before the first."""
        return self.parts[max(self.parts)] if self.parts else None

    def prepare(self, number: int, note: Any = None) -> None:
        """Note that a part has ended."""
        with self._lock:
            self.parts[number] = note
            self._write(self.committed, self.parts)

    def commit(self, number: int, note: Any = None) -> None:
        """Note that all parts up to this one are there; one that was not prepared ends now.

        One that was prepared is on disk, and who goes on after it says so: that it is committed is written with the next.
        """
        with self._lock:
            is_prepared = number in self.parts
            parts = {number: note, **self.parts}
            # the one before stays: should its checkpoint be all that can be read, a run goes back to it
            before = max((part for part in parts if part < number and part <= self.committed), default=number)
            parts = {part: parts[part] for part in sorted(parts) if part >= before}
            if not is_prepared:
                self._write(number, parts)
            self.committed, self.parts = number, parts  # once it is so on disk: else it is for the next commit to do

    def close(self, note: Any) -> None:
        """Note that a run is done with the sink, and how it left it; or, with None, that one has begun with it."""
        with self._lock:
            self._write(self.committed, self.parts, note)
            self.closed = note  # once it is so on disk: else it is noted when it is tried again

    def foresee(self, note: Any) -> None:
        """Note what is about to be written, by which it is known again whoever is killed meanwhile."""
        with self._lock:
            self.foreseen = note
            self._write(self.committed, self.parts, self.closed)

    def _go_on(self, after: int | None) -> None:
        """Forget the parts behind the one that counts."""
        if after is None:
            after = self.committed
        if after < self.committed and after not in self.parts:
            raise InputError(
                f"cannot go on after part {after}: {self._path} says that part {self.committed} was committed; "
                "go on from the last checkpoint, or begin anew with another"
            )
        if after > self.committed and after not in self.parts:
            raise InputError(
                f"cannot go on after part {after}: {self._path} knows of none behind {max(self.parts, default=-1)}; "
                "was the checkpoint copied in part?"
            )
        if after > self.committed:  # who opens it next may not know of that one any more
            self._write(after, self.parts)
        self.undone = {number: note for number, note in self.parts.items() if number > after}
        self.parts = {number: note for number, note in self.parts.items() if number <= after}
        self.committed = after

    def _write(self, committed: int, parts: dict[int, Any], closed: Any = None) -> None:
        document = {"committed": committed, "parts": parts, "closed": closed, "foreseen": self.foreseen}
        replace_whole(self._path, json.dumps(document).encode())
