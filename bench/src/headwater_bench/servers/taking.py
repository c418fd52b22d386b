"""A server of somebody's own in a process of its own, which keeps what is posted and knows requests that come again.

Records and keys go to SQLite in one transaction, so that a kill leaves it with both or neither; of each record it keeps the
path that it was posted to. Some requests it answers with an error though it has taken them, as a cut connection would;
`--refuse N` is a value of `n` that it will not take. It ends with who started it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sqlite3
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

from headwater_bench.servers import free_port, wait_for

_LOOK_S = 0.5  #: between two looks whether who started it is there


class Taking:
    """The process, which can be killed and started again; `url` is one path of many that it takes records at."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.base, self._options = folder / "taken.db", options
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/in"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Self:
        """Start it, and wait until it listens."""
        command = [sys.executable, "-m", __spec__.name, str(self.port), str(self.base), *self._options]
        self._process = subprocess.Popen(command)
        wait_for(self.port, self._process)
        return self

    def kill(self) -> None:
        """End it as a power cut would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def records(self, path: str = "/in") -> list[dict[str, Any]]:
        """Return what was posted to a path, in the order it came."""
        if not self.base.exists():
            return []
        with sqlite3.connect(self.base, timeout=10) as base:
            try:
                rows = base.execute("SELECT record FROM records WHERE path = ? ORDER BY rowid", [path])
                return [json.loads(record) for (record,) in rows]
            except sqlite3.OperationalError:  # it has made no table yet
                return []


class _Listener(ThreadingHTTPServer):
    allow_reuse_address, request_queue_size = True, 128

    def __init__(self, port: int, base: sqlite3.Connection, lossy: float, refuse: int) -> None:
        self.base, self.lossy, self.refuse, self.chance = base, lossy, refuse, random.Random(port)
        self.lock = threading.Lock()  # of a sender that was killed, one thread may be at its request yet
        super().__init__(("127.0.0.1", port), _Handler)


class _Handler(BaseHTTPRequestHandler):
    protocol_version, disable_nagle_algorithm = "HTTP/1.1", True
    server: _Listener

    def do_POST(self) -> None:
        """Keep the records of a request, unless they are here."""
        server, whole = self.server, int(self.headers["Content-Length"])
        body = self.rfile.read(whole)
        if len(body) < whole:  # who sent it was killed at it: to take the key of half a request would lose the rest
            self.close_connection = True
            return
        records = json.loads(body) if body[:1] == b"[" else [json.loads(line) for line in body.splitlines()]
        if any(record["n"] == server.refuse for record in records):
            self.answer(422, f"n {server.refuse} is unlucky")
            return
        with server.lock:
            self.take(records, self.headers["Idempotency-Key"])
        self.answer(503 if server.chance.random() < server.lossy else 200, "so be it")

    def take(self, records: list[Any], key: str) -> None:
        """Keep records, and the key that they came with, unless they came before."""
        base = self.server.base
        base.execute("BEGIN")
        if base.execute("INSERT OR IGNORE INTO keys VALUES (?, ?)", [self.path, key]).rowcount:
            rows = [(self.path, json.dumps(record), key, self.headers.get("Authorization")) for record in records]
            base.executemany("INSERT INTO records VALUES (?, ?, ?, ?)", rows)
        base.execute("COMMIT")

    def answer(self, status: int, text: str) -> None:
        """Answer a request."""
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


def main() -> None:
    """Take what is posted."""
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("base")
    parser.add_argument("--lossy", type=float, default=0.0)
    parser.add_argument("--refuse", type=int, default=-1)
    arguments = parser.parse_args()
    base = sqlite3.connect(arguments.base, check_same_thread=False, isolation_level=None, timeout=10)
    base.execute("PRAGMA synchronous = OFF")  # a killed process loses nothing by it, and there is no power cut here
    base.execute("CREATE TABLE IF NOT EXISTS keys (path TEXT, key TEXT, PRIMARY KEY (path, key))")
    base.execute("CREATE TABLE IF NOT EXISTS records (path TEXT, record TEXT, key TEXT, said TEXT)")
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    _Listener(arguments.port, base, arguments.lossy, arguments.refuse).serve_forever()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK_S)
    os._exit(1)


if __name__ == "__main__":
    main()
