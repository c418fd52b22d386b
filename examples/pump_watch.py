"""Pumps: a function of one's own per pump, a record that breaks it, and where that record goes."""

from headwater import Flow, engine, io

READINGS = [
    {"pump": "p1", "bar": 2.0},
    {"pump": "p2", "bar": 3.0},
    {"pump": "p1", "bar": 2.5},
    {"pump": "p1", "bar": None},
    {"pump": "p2", "bar": 1.0},
    {"pump": "p1", "bar": 4.5},
]


def jump(last, reading):
    """Tell how far the pressure moved since the pump's last reading."""
    moved = reading["bar"] - last if last is not None else 0.0
    return reading["bar"], {"pump": reading["pump"], "moved": moved}


flow = Flow("pumps")
jumps, broken = io.Collect(), io.Collect()
readings = flow.read("readings", io.Items(READINGS, {"pump": str, "bar": float}))
readings.key_by("pump").process("jump", jump, out={"pump": str, "moved": float}).write("jumps", jumps)
flow.dead_letters.write("broken", broken)

if __name__ == "__main__":
    engine.run(flow)
    for row in jumps.records:
        print(f"{row['pump']} moved by {row['moved']}")
    for letter in broken.records:
        print(f"{letter['step']} could not take {letter['record']}: {letter['error']}")
