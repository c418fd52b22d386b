"""The state folder of a server: what it keeps of its flows, its token, and where it listens.

A server leaves a note in the runtime folder of the machine too, so that `headwater status` finds it without being told.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import msgspec

from headwater.errors import RunError
from headwater.io.lock import Lock
from headwater.rate.home import MACHINE
from headwater.rate.process import began

_TOKEN, _NOTE, _SERVERS = "token", "server.json", "servers"
_SYSTEM = Path("/var/lib/headwater")  #: the state folder of the unit in examples/service
_SHORTEST = 16


class Note(msgspec.Struct, frozen=True):
    """Where a server is found."""

    url: str
    pid: int
    began: int  #: when its process began, in ticks since boot
    folder: str
    state: str
    token_file: str

    @property
    def lives(self) -> bool:
        """Whether that process still is there."""
        return began(self.pid) == self.began


class Home:
    """A state folder that one server has for itself."""

    def __init__(self, path: Path) -> None:
        """Take the folder; RunError names the server that has it."""
        self.path = path.absolute()
        _make(self.path)
        note = note_in(self.path)
        try:
            self._lock = Lock(self.path, "state folder")
        except RunError as error:
            if note is not None and note.lives:
                raise RunError(
                    f"a server of {note.folder} has the state folder {self.path}: process {note.pid} at {note.url}; "
                    "stop it, or give another folder with --state"
                ) from None
            raise RunError(str(error)) from None

    def of_flow(self, name: str) -> FlowHome:
        """Return what is kept of a flow."""
        return flow_home(self.path, name)

    def announce(self, note: Note) -> None:
        """Let others find the server."""
        text = msgspec.json.encode(note)
        _write(self.path / _NOTE, text)
        with contextlib.suppress(OSError, RunError):  # without it, --state finds the server all the same
            servers = _runtime() / _SERVERS
            _make(servers)
            _write(servers / self._note_name, text)

    def leave(self) -> None:
        """Let others have the folder."""
        for path in (self.path / _NOTE, _runtime() / _SERVERS / self._note_name):
            with contextlib.suppress(OSError):
                path.unlink()
        self._lock.release()

    @property
    def _note_name(self) -> str:
        return hashlib.sha256(os.fsencode(self.path)).hexdigest()[:12] + ".json"


class FlowHome:
    """What is kept of one flow, whether its file is there or not."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def checkpoint(self) -> Path:
        """Where its checkpoints are."""
        return self.path / "checkpoint"

    @property
    def dead(self) -> Path:
        """Where its dead letters are."""
        return self.path / "dead"

    @property
    def is_stopped(self) -> bool:
        """Whether somebody has stopped it, which holds when the server is started again too."""
        return (self.path / "stopped").exists()

    def note_stopped(self, stopped: bool) -> None:
        """Take note that it was stopped, or started."""
        _make(self.path)
        if stopped:
            _write(self.path / "stopped", b"")
        else:
            (self.path / "stopped").unlink(missing_ok=True)


def flow_home(state: Path, name: str) -> FlowHome:
    """Return what a state folder keeps of a flow."""
    return FlowHome(state.absolute() / "flows" / quote(name, safe=" "))


def token_of(path: Path, *, must_exist: bool) -> str:
    """Return the token in a file; makes one, for its owner alone to read, unless it `must_exist`."""
    with contextlib.suppress(FileExistsError):
        if not must_exist:
            try:
                fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            except FileExistsError:
                raise
            except OSError as error:
                raise RunError(f"cannot make the token file {path}: {error.strerror}") from None
            with os.fdopen(fd, "w") as file:
                file.write(secrets.token_urlsafe(32) + "\n")
    try:
        mode = path.stat().st_mode & 0o777
        token = path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise RunError(f"cannot read the token file {path}: {getattr(error, 'strerror', None) or error}") from None
    if mode & 0o077:
        raise RunError(f"others can read the token file {path} (mode {mode:03o}); chmod 600 {path}")
    if len(token) < _SHORTEST or not token.isprintable() or " " in token:
        raise RunError(
            f"the token file {path} should hold one word of at least {_SHORTEST} characters; remove it to have one made"
        )
    return token


def default_token(state: Path) -> Path:
    """Return where the token of a state folder is."""
    return state.absolute() / _TOKEN


def note_in(state: Path) -> Note | None:
    """Return what a server has noted in its state folder; it may be gone since."""
    try:
        return msgspec.json.decode((state / _NOTE).read_bytes(), type=Note)
    except (OSError, msgspec.DecodeError):
        return None


def servers() -> Iterator[Note]:
    """Return the servers of this machine, as far as the user may know of them: the user's own, and systemd's."""
    try:
        files = sorted((_runtime() / _SERVERS).iterdir())
    except OSError:
        files = []
    for file in (*files, _SYSTEM / _NOTE):
        with contextlib.suppress(OSError, msgspec.DecodeError):
            note = msgspec.json.decode(file.read_bytes(), type=Note)
            if note.lives:
                yield note


def _runtime() -> Path:
    """Return where a user's servers leave their notes; unlike the supervisor's, nobody else may write there."""
    folder = os.environ.get("HEADWATER_RUNTIME")
    if folder or os.geteuid() == 0:
        return Path(folder) if folder else MACHINE
    return Path(os.environ.get("XDG_RUNTIME_DIR") or f"/tmp/headwater-{os.getuid()}") / "headwater"


def _make(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"cannot make the state folder {folder}: {error.strerror}") from None


def _write(path: Path, text: bytes) -> None:
    """Write a file of the server's, at once as whoever reads it sees it."""
    new = path.with_name(path.name + ".new")
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(text)
    new.replace(path)
