"""A city with 100,000 lampposts: traffic counted at the street, lights dimmed nearby, a map in the cloud."""

from headwater import Flow, Profile, StepProfile, Tumbling, agg, col, io
from headwater import net as nets
from headwater.place import Budget, Constraints, strategy
from headwater.place.account import account
from headwater.place.from_flow import problem_of
from headwater.place.render import render
from headwater.place.repair import repair

SEEN = {"lane": str, "speed": float, "at": "time"}


def city() -> Flow:
    flow = Flow("lampposts")
    cameras = [flow.read(name, io.Items([], SEEN)) for name in ("bridge", "square", "school")]
    cars = cameras[0].union("street", *cameras[1:]).filter("cars", col.speed > 3)
    counts = (
        cars.event_time("clock", "at", lateness="5 s")
        .key_by("lane")
        .window("minute", Tumbling("1 min"), cars=agg.count(), speed=agg.mean("speed"))
    )
    counts.filter("quiet", col.cars < 2).write("dim lights", io.Discard())
    counts.write("map", io.Discard())
    return flow


def measured() -> Profile:
    """What the steps cost on a lamppost's computer."""
    sight = {"bytes_in": 90.0, "bytes_out": 90.0}
    sources = {name: StepProfile(time_s=0.0, **sight) for name in ("bridge", "square", "school")}
    return Profile(
        "lampposts",
        "pi-2",
        sources
        | {
            "street": StepProfile(time_s=2e-6, **sight),
            "cars": StepProfile(time_s=1e-4, selectivity={"out": 0.4}, **sight),
            "clock": StepProfile(time_s=2e-6, **sight),
            "minute": StepProfile(
                time_s=1e-5, selectivity={"out": 0.05}, bytes_in=90.0, bytes_out=50.0, state_bytes=2_000_000
            ),
            "quiet": StepProfile(time_s=2e-6, selectivity={"out": 0.3}, bytes_in=50.0, bytes_out=50.0),
            "dim lights": StepProfile(time_s=1e-6, bytes_in=50.0),
            "map": StepProfile(time_s=5e-6, bytes_in=50.0),
        },
    )


def question():
    """Three cameras in neighbouring quarters, lights beside the square, a map in a cloud."""
    net = nets.city(100_000, seed=3)
    pins = {"bridge": "cabinet-4/17", "square": "cabinet-4/60", "school": "cabinet-250/3"}
    constraints = Constraints(pins=pins | {"dim lights": "cabinet-4/60", "map": "cloud-1"})
    return problem_of(city(), net, measured(), 500.0, constraints=constraints)


def main(picture: str | None = None) -> None:
    problem = question()
    found = strategy("best")(problem, Budget(time_s=120))
    print(render(account(found)))
    # the busiest host that no step is pinned to fails: what must move, and where to?
    free = [int(d) for d in found.device if d not in problem.pinned]
    if free:
        from dataclasses import replace

        mended = repair(replace(problem, closed=frozenset({free[0]})), found.device)
        print()
        print(f"after the loss of {problem.net.device_name(free[0])}, {mended.notes['moves']:.0f} steps move:")
        for step, before in found.by_name.items():
            if mended.by_name[step] != before:
                print(f"  {step:<20} {before} → {mended.by_name[step]}")
    if picture is not None:
        from headwater.place.picture import draw

        draw(found, picture)


if __name__ == "__main__":
    main("city.png")
