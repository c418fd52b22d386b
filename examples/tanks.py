"""Water tanks: which are low, and how does the level of each develop?"""

from headwater import Flow, Tumbling, agg, col, io

LEVELS = [
    {"tank": tank, "height": 180.0 - 7 * minute * (i + 1), "at": minute * 60_000_000}
    for minute in range(10)
    for i, tank in enumerate(["north", "south"])
]

flow = Flow("tanks")
levels = flow.read("levels", io.Items(LEVELS, {"tank": str, "height": float, "at": "time"}))
levels.filter("low", col.height < 100).write("alarms", io.Console())

means = (
    levels.event_time("clock", "at", lateness="1 min")
    .key_by("tank")
    .window("five minutes", Tumbling("5 min"), mean=agg.mean("height"), n=agg.count())
)
means.write("means", io.Console())
