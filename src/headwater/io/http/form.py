"""Records as the body of a request."""

from __future__ import annotations

from headwater.data.batch import Batch
from headwater.data.schema import Schema
from headwater.io.http.endpoint import BodyForm
from headwater.io.json.texts import JsonTexts, join

_TYPES: dict[BodyForm, str] = {
    "lines": "application/x-ndjson",
    "array": "application/json",
    "object": "application/json",
}


class Form:
    """How records of a schema become bodies.

    >>> schema = Schema.of({"n": int})
    >>> Form("array", schema).body(Batch.of({"n": [1, 2]}, schema))
    b'[{"n":1},{"n":2}]'
    """

    def __init__(self, form: BodyForm, schema: Schema) -> None:
        self.content_type = _TYPES[form]
        self._form, self._texts = form, JsonTexts(schema)

    def body(self, batch: Batch) -> bytes:
        """Return records as bytes; raises InputError if one has no JSON form."""
        texts = join(self._texts.of(batch), b"\n" if self._form == "lines" else b",")
        return texts + b"\n" if self._form == "lines" else b"[" + texts + b"]" if self._form == "array" else texts
