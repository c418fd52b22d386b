"""A farm with 40 gateways: four fields read, watering decided near them, a ledger in the cloud."""

from pathlib import Path

from headwater import Flow, Profile, StepProfile, Tumbling, agg, col, io
from headwater import net as nets
from headwater.place import Budget, Constraints, strategy
from headwater.place.account import account
from headwater.place.from_flow import problem_of
from headwater.place.render import render

FIELDS = {"north": "field-03", "east": "field-16", "south": "field-36", "west": "field-18"}
READING = {"plot": str, "moisture": float, "at": "time"}


def farm() -> Flow:
    flow = Flow("farm")
    north, *others = (flow.read(name, io.Items([], READING)) for name in FIELDS)
    sound = north.union("all fields", *others).filter("sound", (col.moisture >= 0) & (col.moisture <= 100))
    hours = (
        sound.event_time("clock", "at", lateness="10 min")
        .key_by("plot")
        .window("ten minutes", Tumbling("10 min"), moisture=agg.mean("moisture"))
    )
    hours.filter("dry", col.moisture < 30).write("valves", io.Discard())
    hours.write("ledger", io.Discard())
    return flow


def measured() -> Profile:
    """What the steps cost on a gateway."""
    reading = {"bytes_in": 60.0, "bytes_out": 60.0}
    return Profile(
        "farm",
        "gateway",
        {name: StepProfile(time_s=0.0, **reading) for name in FIELDS}
        | {
            "all fields": StepProfile(time_s=1e-6, **reading),
            "sound": StepProfile(time_s=3e-6, selectivity={"out": 0.97}, **reading),
            "clock": StepProfile(time_s=2e-6, **reading),
            "ten minutes": StepProfile(
                time_s=9e-6, selectivity={"out": 0.002}, bytes_in=60.0, bytes_out=40.0, state_bytes=4_000_000
            ),
            "dry": StepProfile(time_s=2e-6, selectivity={"out": 0.1}, bytes_in=40.0, bytes_out=40.0),
            "valves": StepProfile(time_s=1e-6, bytes_in=40.0),
            "ledger": StepProfile(time_s=5e-6, bytes_in=40.0),
        },
    )


def question():
    """Where should it run? Fields and valves are where they are; the ledger is rented."""
    net = nets.read(Path(__file__).with_name("farm.toml"))
    pins = FIELDS | {"valves": "field-18", "ledger": "cloud"}
    return problem_of(farm(), net, measured(), 400.0, constraints=Constraints(pins=pins))


def main(picture: str | None = None) -> None:
    found = strategy("best")(question(), Budget(time_s=120))
    print(render(account(found)))
    if picture is not None:
        from headwater.place.picture import draw

        draw(found, picture)


if __name__ == "__main__":
    main("farm.png")
