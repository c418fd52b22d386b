"""Water levels from MQTT: low ones go back as alarms, what breaks is kept. Runs until it is told to stop.

As a service: `headwater.service` in the folder above; in a container: `Containerfile`; by hand: `headwater run levels.py`.
"""

import os

from headwater import Flow, Tumbling, agg, col, io

BROKER = os.environ.get("BROKER", "mqtt://localhost")
LEVEL = {"tank": str, "height": float, "at": "time"}

flow = Flow("levels")
levels = flow.read("levels", io.Mqtt(f"{BROKER}/tanks/+/level?qos=1", schema=LEVEL))
levels.filter("low", col.height < 150).write("alarms", io.Mqtt(BROKER, "tanks/{tank}/low", qos=1))
(
    levels.event_time("clock", "at", lateness="10 s", ahead="1 min")
    .key_by("tank")
    .window("means", Tumbling("1 min"), mean=agg.mean("height"))
    .write("table", io.Sqlite("levels.db", "means", key=("tank", "start")))
)
flow.dead_letters.write("broken", io.JsonLines("broken.jsonl", append=True))
