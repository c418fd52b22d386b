"""What `print(report)` shows."""

from headwater import Flow, Tumbling, agg, engine, io


def test_a_printed_report_is_a_table_of_steps_with_what_was_lost():
    rows = [
        {"k": k, "at": at * 1_000_000} for k, at in (*(("a", at) for at in range(30)), ("a", 3), ("a", 4), (None, 29))
    ]
    flow = Flow("tanks")
    timed = flow.read("levels", io.Items(rows, {"k": str, "at": "time"})).event_time("time", "at")
    timed.key_by("k").window("per 10 s", Tumbling("10 s"), n=agg.count()).write("out", io.Discard())
    report = engine.run(flow)
    lines = str(report).splitlines()
    assert lines[0].startswith("tanks on engine: ")
    table = [line.split("  ") for line in lines[1:7]]
    cells = [[cell.strip() for cell in row if cell.strip()] for row in table]
    assert cells[0] == ["step", "in", "out", "dead", "late", "shed", "left", "busy"]
    assert cells[3][:7] == ["per 10 s", "33", "3", "1", "2", "0", "0"]
    assert cells[5] == ["in all", "33", "3", "1", "2", "0", "0"]
    assert lines[7:] == ["dead letter from per 10 s: the key is missing or not a number"]
    assert len(repr(report)) < 100
