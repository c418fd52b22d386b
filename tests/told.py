"""A source that a test tells what to bring."""

from queue import Empty, SimpleQueue

from headwater import Batch, Schema
from headwater.data.batch import NO_WATERMARK


class Told:
    """Hands out what a test puts into it, as rows that `made` makes of that, and ends when it is told None."""

    resume = "never"

    def __init__(self, schema, *given, made=dict):
        self.schema, self._made = Schema.of(schema), made
        self.rows = SimpleQueue()
        self.put(*given)

    def put(self, *given):
        for each in given:
            self.rows.put(None if each is None else self._made(each))

    def open(self, reject):
        return self

    def read(self, limit, timeout_s):
        try:
            row = self.rows.get(timeout=timeout_s)
        except Empty:
            return Batch.of_watermark(NO_WATERMARK)
        return None if row is None else Batch.of_rows([row], self.schema)

    def close(self):
        pass
