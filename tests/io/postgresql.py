"""A PostgreSQL server of our own on loopback, which can be killed and started again."""

import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from ports import free_port

PATIENCE_S = 60


def program(name):
    """Return where a program of PostgreSQL is, None if it is not installed."""
    found = shutil.which(name)
    return found or next((str(path) for path in sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))), None)


class Postgresql:
    """A cluster in a folder of its own; as root it belongs to another user, since the server refuses root."""

    def __init__(self):
        pytest.importorskip("psycopg")
        if program("initdb") is None:
            pytest.skip("PostgreSQL is not installed")
        self._folder = Path(tempfile.mkdtemp(prefix="headwater-pg-"))  # pytest's folders are for their owner alone
        self._user = None
        if os.getuid() == 0:
            self._user = next((name for name in ("postgres", "nobody") if _is_user(name)), None)
            shutil.chown(self._folder, self._user)
        self.port = free_port()
        self.url = f"postgresql://headwater@127.0.0.1:{self.port}/postgres"
        self._run("initdb", "-U", "headwater", "-A", "trust", "-E", "UTF8", "--no-sync")

    def start(self):
        options = f"-p {self.port} -k {self._folder} -c listen_addresses=127.0.0.1"
        self._run("pg_ctl", "-w", "-l", str(self._folder / "log"), "-o", options, "start")
        return self

    def stop(self):
        """End it as a power cut would."""
        if (self._folder / "data" / "postmaster.pid").exists():
            self._run("pg_ctl", "-w", "-m", "immediate", "stop")

    def remove(self):
        self.stop()
        shutil.rmtree(self._folder)

    def rows(self, query):
        """Return what the server says, as any other program finds it."""
        import psycopg

        with psycopg.connect(self.url) as connection:
            return connection.execute(query).fetchall()

    def execute(self, *statements):
        import psycopg

        with psycopg.connect(self.url) as connection:
            for statement in statements:
                connection.execute(statement)

    def _run(self, name, *given):
        command = [program(name), "-D", str(self._folder / "data"), *given]
        subprocess.run(command, user=self._user, cwd="/", check=True, timeout=PATIENCE_S, stdout=subprocess.DEVNULL)


def _is_user(name):
    try:
        return bool(pwd.getpwnam(name))
    except KeyError:
        return False
