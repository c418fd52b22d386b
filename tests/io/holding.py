"""A sink that is away and full holds the flow before it, and nothing beside it: shown for each kind of sink that waits."""

import sqlite3

from headwater import Flow, engine, io
from headwater.data.schema import Schema
from waiting import wait_until

SCHEMA = Schema.of({"n": int})


def check_nothing_else_is_held(sink, other_side, folder, caplog, *, on):
    """Fill what waits for the other side, and see another pipeline and checkpoints go on; return all that was read.

    The other side comes back, by its `up`, before the run is stopped.
    """
    table = folder / "other.db"

    def rows():
        with sqlite3.connect(table) as database:
            return database.execute("select count(*) from other").fetchone()[0]

    flow = Flow("two")
    flow.read("in", io.Generate(lambda n: {"n": n}, SCHEMA, rate=200_000)).write("out", sink)
    flow.read("other in", io.Generate(lambda n: {"n": n}, SCHEMA, rate=1_000)).write("here", io.Sqlite(table, "other"))
    run = engine.start(flow, on=on, workers=1, queue_records=1_000, checkpoint=folder / "state", every="50 ms")
    try:
        wait_until(lambda: "the flow is held" in caplog.text)
        made, before = run.checkpointer.made, rows()
        complete = made.complete
        wait_until(lambda: made.complete > complete + 3)
        wait_until(lambda: rows() > before)
    finally:
        other_side.up = True
        run.stop()
        report = run.wait()
    assert rows() == report.last.steps["other in"].records_in
    return list(range(report.last.steps["in"].records_in))
