"""Water tanks: which are low, and how does the level of each develop?

Run it as it is, or with the command line: `headwater run examples/tanks.py`, `headwater show examples/tanks.py`.
"""

from datetime import UTC, datetime, timedelta

from headwater import Flow, Tumbling, agg, col, engine, io

EIGHT = datetime(2026, 11, 15, 8, tzinfo=UTC)
LEVELS = [
    {"tank": tank, "height": 180.0 - 7 * minute * (i + 1), "at": EIGHT + timedelta(minutes=minute)}
    for minute in range(10)
    for i, tank in enumerate(["north", "south"])
]

flow = Flow("tanks")
levels = flow.read("levels", io.Items(LEVELS, {"tank": str, "height": float, "at": "time"}))

alarms = io.Collect()
levels.filter("low", col.height < 100).with_columns("missing", missing=180 - col.height).write("alarms", alarms)

means = io.Collect()
(
    levels.event_time("clock", "at", lateness="1 min")
    .key_by("tank")
    .window("five minutes", Tumbling("5 min"), mean=agg.mean("height"), n=agg.count())
    .write("means", means)
)

if __name__ == "__main__":
    report = engine.run(flow)
    for alarm in alarms.records:
        print(f"{alarm['tank']} is at {alarm['height']}, {alarm['missing']} below full")
    for row in means.records:
        start = datetime.fromtimestamp(row["start"] / 1e6, UTC)  # inside, a moment is microseconds since 1970
        print(f"{row['tank']} from {start:%H:%M}: mean {row['mean']} of {row['n']}")
    print(f"{report.last.records_in} records in, {report.last.records_out['alarms']} alarms")
