"""A plant where data may not leave: vibrations stay inside until what names a machine is taken out."""

from pathlib import Path

from headwater import Flow, Profile, StepProfile, Tumbling, agg, col, io
from headwater import net as nets
from headwater.errors import PlacementError
from headwater.place import Budget, Constraints, strategy
from headwater.place.account import account
from headwater.place.from_flow import problem_of
from headwater.place.render import render

SHAKE = {"machine": str, "shake": float, "at": "time"}


def plant() -> Flow:
    flow = Flow("plant")
    presses = flow.read("presses", io.Items([], SHAKE))
    painters = flow.read("painters", io.Items([], SHAKE))
    clean = presses.union("machines", painters).filter("sound", col.shake >= 0)
    seconds = (
        clean.event_time("clock", "at", lateness="1 s")
        .key_by("machine")
        .window("second", Tumbling("1 s"), shake=agg.max("shake"))
    )
    seconds.filter("shaking", col.shake > 9).write("stop", io.Discard())
    seconds.select("nameless", "shake").write("vendor", io.Discard())
    return flow


def measured() -> Profile:
    """What the steps cost on a controller."""
    shake = {"bytes_in": 32.0, "bytes_out": 32.0}
    return Profile(
        "plant",
        "controller",
        {name: StepProfile(time_s=0.0, **shake) for name in ("presses", "painters")}
        | {
            "machines": StepProfile(time_s=2e-6, **shake),
            "sound": StepProfile(time_s=5e-6, **shake),
            "clock": StepProfile(time_s=4e-6, **shake),
            "second": StepProfile(
                time_s=3e-5, selectivity={"out": 0.01}, bytes_in=32.0, bytes_out=32.0, state_bytes=1_000_000
            ),
            "shaking": StepProfile(time_s=4e-6, selectivity={"out": 0.001}, **shake),
            "nameless": StepProfile(time_s=4e-6, bytes_in=32.0, bytes_out=12.0),
            "stop": StepProfile(time_s=1e-6, bytes_in=32.0),
            "vendor": StepProfile(time_s=5e-6, bytes_in=12.0),
        },
    )


def question(anonymise: frozenset[str] = frozenset({"nameless"})):
    """Both sources are confined to the plant; the vendor's sink is in the cloud."""
    net = nets.read(Path(__file__).with_name("plant.toml"))
    pins = {"presses": "press-1", "painters": "paint-1", "stop": "press-1", "vendor": "vm"}
    keep = {"presses": "plant", "painters": "plant"}
    constraints = Constraints(pins=pins, keep=keep, anonymise=anonymise)
    return problem_of(plant(), net, measured(), {"presses": 8000.0, "painters": 4000.0}, constraints=constraints)


def main(picture: str | None = None) -> None:
    found = strategy("best")(question(), Budget(time_s=120))
    print(render(account(found)))
    print()
    try:
        question(anonymise=frozenset())
    except PlacementError as refusal:
        print(f"without the anonymising step: {refusal}")
    if picture is not None:
        from headwater.place.picture import draw

        draw(found, picture)


if __name__ == "__main__":
    main("plant.png")
