"""Somebody who posts to a webhook, with a key by which a request that comes again is known."""

from __future__ import annotations

import http.client

_PATIENCE_S = 60.0


def posted(port: int, body: bytes, key: str) -> int:
    """Post a request; return the status of the answer, 0 if there was none."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_PATIENCE_S)
    try:
        connection.request("POST", "/", body, {"Idempotency-Key": key})
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()
