"""The flow of the README: alarms within the barn, the mean of each minute for the archive."""

from headwater import Flow, Tumbling, agg, col, io

flow = Flow("tanks")
levels = flow.read("levels", io.JsonLines("levels.jsonl", {"tank": str, "height": float, "at": "time"}))
sound = levels.filter("sound", col.height >= 0)
sound.filter("low", col.height < 15).write("alarms", io.JsonLines("alarms.jsonl"))
by_tank = sound.event_time("clock", "at", lateness="5 s").key_by("tank")
by_tank.window("minute", Tumbling("1 min"), mean=agg.mean("height")).write("archive", io.Csv("minutes.csv"))
