"""A PostgreSQL server of our own on loopback, which can be killed and started again."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

from headwater_bench.servers import NotHereError, free_port

_PATIENCE_S = 60


def program(name: str) -> str | None:
    """Return where a program of PostgreSQL is, None if it is not installed."""
    on_path = shutil.which(name)
    return on_path or next((str(path) for path in sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))), None)


class Postgresql:
    """A cluster in a folder of its own; as root it belongs to another user, since the server refuses root."""

    def __init__(self) -> None:
        if find_spec("psycopg") is None:
            raise NotHereError("psycopg is not installed")
        if program("initdb") is None:
            raise NotHereError("PostgreSQL is not installed")
        self._folder = Path(tempfile.mkdtemp(prefix="headwater-pg-"))  # pytest's folders are for their owner alone
        self._user: str | None = None
        if os.getuid() == 0:
            self._user = next((name for name in ("postgres", "nobody") if _is_user(name)), None)
            if self._user is not None:
                shutil.chown(self._folder, self._user)
        self.port = free_port()
        self.url = f"postgresql://headwater@127.0.0.1:{self.port}/postgres"
        self._run("initdb", "-U", "headwater", "-A", "trust", "-E", "UTF8", "--no-sync")

    def start(self) -> Self:
        """Start the server, and wait until it answers."""
        options = f"-p {self.port} -k {self._folder} -c listen_addresses=127.0.0.1"
        self._run("pg_ctl", "-w", "-l", str(self._folder / "log"), "-o", options, "start")
        return self

    def stop(self) -> None:
        """End it as a power cut would."""
        if (self._folder / "data" / "postmaster.pid").exists():
            self._run("pg_ctl", "-w", "-m", "immediate", "stop")

    def remove(self) -> None:
        """End it, and remove all that it kept."""
        self.stop()
        shutil.rmtree(self._folder)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Return what the server says, as any other program finds it."""
        import psycopg

        with psycopg.connect(self.url) as connection:
            return connection.execute(query.encode()).fetchall()

    def execute(self, *statements: str) -> None:
        """Have the server do something."""
        import psycopg

        with psycopg.connect(self.url) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def _run(self, name: str, *arguments: str) -> None:
        command = [str(program(name)), "-D", str(self._folder / "data"), *arguments]
        subprocess.run(command, user=self._user, cwd="/", check=True, timeout=_PATIENCE_S, stdout=subprocess.DEVNULL)


def _is_user(name: str) -> bool:
    try:
        return bool(pwd.getpwnam(name))
    except KeyError:
        return False
