"""Reading a source to its end, or as far as there are records."""

import time

from headwater import engine
from waiting import PATIENCE_S


def rows_of(reader, limit):
    """Return all records of an open source, read so many at a time."""
    rows = []
    while (batch := reader.read(limit, 1)) is not None:
        assert len(batch) <= limit
        rows += batch.rows()
    reader.close()
    return rows


def taken(reader, count):
    """Return the numbers `n` of as many records as come from an open source without an end, at least so many."""
    numbers, end = [], time.monotonic() + PATIENCE_S
    while len(numbers) < count:
        assert time.monotonic() < end, f"only {len(numbers)} of {count} came"
        numbers += [row["n"] for row in reader.read(7, 0.05).rows()]
    return numbers


def ran_until(flow, records, **options):
    """Run a flow that has no end until its sources have brought so many records, and stop it."""
    run = engine.start(flow, **options)
    until = time.monotonic() + PATIENCE_S
    while run.sample().records_in < records and time.monotonic() < until:
        time.sleep(0.01)
    run.stop()
    run.wait(PATIENCE_S)
