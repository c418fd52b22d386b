"""The other end of the API: asks a server that runs on this machine, found by its note."""

from __future__ import annotations

import http.client
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from headwater.errors import RunError
from headwater.serve.home import Note, token_of

_ANSWER_S = 10.0


def ask(note: Note, path: str, *, method: str = "GET", body: Any = None) -> Any:
    """Return the document that a server answers with; RunError where it does not, or says no."""
    token = token_of(Path(note.token_file), must_exist=True)
    head = {"Authorization": f"Bearer {token}"}
    payload = None
    if body is not None:
        payload = msgspec.json.encode(body)
        head["Content-Type"] = "application/json"
    address = urlsplit(note.url)
    assert address.hostname is not None
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=_ANSWER_S)
    try:
        connection.request(method, path, payload, head)
        answer = connection.getresponse()
        document = msgspec.json.decode(answer.read())
    except (OSError, http.client.HTTPException, msgspec.DecodeError) as error:
        raise RunError(f"the server at {note.url} does not answer: {error or type(error).__name__}") from None
    finally:
        connection.close()
    if answer.status >= 400:
        raise RunError(f"the server at {note.url} says: {document.get('error', answer.status)}")
    return document
