"""A server of somebody's own in a process of its own, which keeps what is posted and knows requests that come again.

Records and keys go to SQLite in one transaction, so that a kill leaves it with both or neither. Some requests it answers
with an error though it has taken them, as a cut connection would; `--refuse N` is a value of `n` that it will not take.
"""

import argparse
import json
import random
import sqlite3
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("base")
    parser.add_argument("--lossy", type=float, default=0.0)
    parser.add_argument("--refuse", type=int, default=-1)
    given = parser.parse_args()
    base = sqlite3.connect(given.base, check_same_thread=False, isolation_level=None, timeout=10)
    base.execute("PRAGMA synchronous = OFF")  # a killed process loses nothing by it, and there is no power cut here
    base.execute("CREATE TABLE IF NOT EXISTS keys (key TEXT PRIMARY KEY)")
    base.execute("CREATE TABLE IF NOT EXISTS records (n INTEGER, key TEXT, said TEXT)")
    chance = random.Random(given.port)

    class Handler(BaseHTTPRequestHandler):
        protocol_version, disable_nagle_algorithm = "HTTP/1.1", True

        def do_POST(self):
            whole = int(self.headers["Content-Length"])
            body = self.rfile.read(whole)
            if len(body) < whole:  # who sent it was killed at it: to take the key of half a request would lose the rest
                self.close_connection = True
                return
            said = json.loads(body) if body[:1] == b"[" else [json.loads(line) for line in body.splitlines()]
            if any(record["n"] == given.refuse for record in said):
                self.answer(422, f"n {given.refuse} is unlucky")
                return
            key = self.headers["Idempotency-Key"]
            base.execute("BEGIN")
            if base.execute("INSERT OR IGNORE INTO keys VALUES (?)", [key]).rowcount:
                rows = [(record["n"], key, self.headers.get("Authorization")) for record in said]
                base.executemany("INSERT INTO records VALUES (?, ?, ?)", rows)
            base.execute("COMMIT")
            self.answer(503 if chance.random() < given.lossy else 200, "so be it")

        def answer(self, status, said):
            self.send_response(status)
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said.encode())

        def log_message(self, *args):
            pass

    ThreadingHTTPServer.allow_reuse_address = True
    ThreadingHTTPServer(("127.0.0.1", given.port), Handler).serve_forever()


if __name__ == "__main__":
    main()
