"""Parts in lanes: where their steps run, and a checkpoint of lanes that goes on elsewhere in another number of them."""

import json
import random
from collections import Counter

import pyarrow.dataset as ds
import pytest

from headwater import Flow, Tumbling, agg, col, engine, io
from headwater.data.batch import NO_WATERMARK
from headwater.deploy import Cut, MemoryEnds
from headwater.deploy.recut import recut
from headwater.deploy.site.folder import SiteFolder
from headwater.deploy.state_transfer import bring_notes, lay_bridges, made_in, packed, unpacked
from headwater.engine.checkpoint.instances import of_instances
from headwater.engine.checkpoint.store import Checkpoint, Store
from headwater.engine.lanes.layout import laid_out
from headwater.errors import RunError
from headwater.operators import Operator
from headwater.operators.snapshot import pack_state
from kept_flow import add_up
from killed import cut_off
from properties import share_of

RECORDS = 4_000


def numbers(at):
    return {
        "key": [f"k{n % 13}" for n in at.tolist()],
        "part": at % 3,
        "n": at,
        "at": 10**9 + at * 100_000 + (at * 7919 % 11) * 100_000,
    }


def flow(folder, rate=1e9):
    """State by one key behind that by another, windows, a join of two streams; sinks of one lane and of all."""
    made = Flow("lanes")

    def source():
        fields = {"key": str, "part": int, "n": int, "at": "time"}
        return io.Generate(numbers, fields, rate=rate, count=RECORDS)

    left = made.read("left", source()).event_time("time", "at", lateness="2 s")
    right = made.read("right", source()).event_time("its time", "at", lateness="2 s")
    keyed = left.filter("some", col.n % 7 != 3).key_by("key")
    sums = keyed.process("sum", add_up, out={"key": str, "n": int, "total": int})
    sums.write("sums", io.JsonLines(folder / "sums.jsonl"))
    paired = keyed.join("pair", right.key_by("key"), within="1 s")
    paired.select("pairs", "key", n=col.n, other=col["its time_n"]).write(
        "joined", io.JsonLines(folder / "pairs.jsonl")
    )
    windows = left.key_by("key", "part").window("windows", Tumbling("20 s"), count=agg.count(), highest=agg.max("n"))
    windows.write("table", io.ParquetTable(folder / "windows"))
    windows.key_by("key").window("more", Tumbling("1 min"), windows=agg.count()).write(
        "of windows", io.JsonLines(folder / "more.jsonl")
    )
    return made


def held(folder):
    found = {
        path.name: Counter(tuple(sorted(json.loads(line).items())) for line in path.read_text().splitlines())
        for path in sorted(folder.glob("*.jsonl"))
    }
    rows = ds.dataset(folder / "windows", format="parquet").to_table().to_pylist()
    return found | {
        "windows": Counter(tuple(sorted((name, str(value)) for name, value in row.items())) for row in rows)
    }


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    engine.run(flow(folder), workers=1)
    found = held(folder)
    assert all(found.values())
    return found


def part_of(folder, rate=1e9):
    """Return the part of a site that runs all of the flow."""
    made = flow(folder, rate)
    sites = dict.fromkeys(made.steps, "barn")
    return made, sites, Cut(made, sites).part("barn", MemoryEnds())


@pytest.mark.parametrize("seed", range(share_of(4)))
def test_a_killed_part_goes_on_elsewhere_in_any_number_of_lanes(tmp_path, whole, seed):
    chance = random.Random(seed)
    lanes = chance.choice([1, 2, 3])
    for number in range(4):
        rate = chance.choice([3_000, 5_000, 9_000])

        def run(lanes=lanes, rate=rate, number=number):
            *_, part = part_of(tmp_path, rate)
            engine.run(part, checkpoint=tmp_path / f"kept-{number}", every="20 ms", lanes=lanes)

        is_over = cut_off(run, 0.4 + chance.random() * 0.4)
        moved(tmp_path, tmp_path / f"kept-{number}", tmp_path / f"kept-{number + 1}")
        if is_over:
            break
        lanes = chance.choice([1, 2, 3])
    *_, part = part_of(tmp_path)
    engine.run(part, checkpoint=tmp_path / f"kept-{number + 1}", lanes=lanes)
    assert held(tmp_path) == whole


def moved(folder, before, after):
    """Have the whole part move, as it does where some of its steps go or others come."""
    made, sites, _ = part_of(folder)
    if not list(before.glob("*.checkpoint")):
        bring_notes(before, after)
        return
    old, new = before.with_suffix(".old"), before.with_suffix(".new")
    unpacked(packed(before), old)
    recut(made, sites, sites, {"barn": old}, {"barn": new})
    unpacked(made_in(new), after)
    lay_bridges(after)
    bring_notes(before, after)
    found = Store(after).latest()
    assert found is not None
    assert "lanes" not in found.content


class Keeper(Operator):
    """Saves what it keeps by key, and cannot part with some of it."""

    stateless = False

    def process(self, batch, port):
        return batch

    def snapshot(self, select=None):
        return b""

    def restore(self, data):
        pass


def tanks(*, operator=None):
    made = Flow("tanks")
    levels = made.read("levels", io.Items([], {"tank": str, "farm": str, "n": int, "at": "time"}))
    timed = levels.event_time("time", "at").filter("sound", col.n > 0)
    by_tank = timed.key_by("tank", of="farm")
    first = by_tank.window("means", Tumbling("1 s"), n=agg.sum("n"), farm=agg.min("n"))
    first.key_by("tank").window("longer", Tumbling("1 min"), n=agg.sum("n")).write("archive", io.JsonLines("x"))
    timed.key_by("farm").window("farms", Tumbling("1 s"), n=agg.sum("n")).write("of farms", io.JsonLines("y"))
    timed.key_by("farm", "tank").process("sum", add_up, out={"key": str, "n": int, "total": int}).write(
        "sums", io.JsonLines("z")
    )
    if operator is not None:
        timed.key_by("tank").apply("keep", operator, out=dict(timed.schema)).write("kept", io.JsonLines("k"))
    return made


def at_cloud(made):
    """Return the part of a site that has all but the source and its time, which come over a bridge."""
    return Cut(made, {name: "barn" if name in ("levels", "time") else "cloud" for name in made.steps})


def test_bridges_end_in_the_first_lane_and_keys_are_spread_whole():
    layout = laid_out(at_cloud(tanks(operator=Keeper)).part("cloud", MemoryEnds()))
    assert layout.where["time (received)"] == "one"  # with its event time
    assert layout.where["sound"] == "one"
    assert {name for name, where in layout.where.items() if where == "key"} == {"means", "longer", "farms", "sum"}
    moves = {reader: move.keys for move in layout.moves for reader in move.readers if move.to_where == "key"}
    assert moves == {
        ("means", 0): ("tank",),
        ("farms", 0): ("farm",),
        ("sum", 0): ("farm", "tank"),
    }  # and `longer` has its records where `means` makes them
    assert all(move.columns == tuple(move.edge.schema) for move in layout.moves)  # somebody elsewhere may read them
    assert "for want of a method forget" in layout.why_one["keep"]  # it could go on in no other number of lanes
    assert laid_out(tanks(operator=Keeper)).where["keep"] == "key"  # a flow that is no part goes nowhere


def test_what_is_sent_over_a_bridge_takes_its_event_time_along():
    """Behind blocks of a source, a filter would leave it behind where nobody needed it."""
    layout = laid_out(at_cloud(tanks()).part("barn", MemoryEnds()))
    [move] = [move for move in layout.moves if move.readers == [("time (sent)", 0)]]
    assert move.time is not None
    whole = Cut(tanks(), {name: "barn" if name in ("levels", "time", "sound") else "cloud" for name in tanks().steps})
    assert laid_out(whole.part("barn", MemoryEnds())).where["sound"] == "one"


def test_a_part_of_which_nothing_can_be_spread_runs_in_one_lane_and_says_why(caplog, tmp_path):
    made = Flow("plain")
    made.read("read", io.Items([{"n": n} for n in range(10)])).to_all().apply("all", Keeper, out={"n": int}).write(
        "out", io.JsonLines(tmp_path / "out.jsonl")
    )
    part = Cut(made, dict.fromkeys(made.steps, "barn")).part("barn", MemoryEnds())
    report = engine.run(part, lanes=2, checkpoint=tmp_path / "kept")
    assert report.last.steps["all"].instances == 1
    assert "flow plain runs in one lane, since nothing of it can be spread (all: " in caplog.text


def test_what_is_on_its_way_between_lanes_waits_at_the_instances_of_its_keys():
    made = tanks()
    fields = {"tank": str, "farm": str, "n": int, "at": "time"}
    records = made.steps["levels"].outputs["out"]
    assert dict(records.fields) == {name: {str: "text", int: "int"}.get(kind, kind) for name, kind in fields.items()}
    rows = [{"tank": f"t{n}", "farm": "f", "n": n, "at": n} for n in range(20)]
    batch = io.Items(rows, fields).open(lambda text, error: None).read(100, 0)
    part = at_cloud(made).part("cloud", MemoryEnds())
    state = {"state": b"", "changes": [], "ports": [0], "watermarks": [5], "idle": [], "watermark": 5, "ended": False}
    content = {
        "lanes": 2,
        "layout": {
            "where": {"means": "key", "sound": "key"},
            "moves": [["means", 0, "key", ["tank"]]],
            "by": {"means": [0]},
            "outlets": {"means, 0 (to lanes)": [["means", 0]]},
        },
        "steps": {name: {"kind": type(step.kind).__name__} for name, step in part.steps.items()}
        | {"time": {"kind": "-"}},
        "tasks": {
            "time": [{**state, "state": clock_at(at), "lane": lane, "queue": []} for lane, at in enumerate((3, 8))],
            "sound": [
                {**state, "lane": 0, "queue": [[0, batch, NO_WATERMARK], [0, None, 9]]},
                {**state, "lane": 1, "queue": [[0, batch, NO_WATERMARK], [0, None, 7]]},
            ],
            "means": [{**state, "lane": lane, "queue": []} for lane in range(2)],
            "means, 0 (to lanes)": [{**state, "lane": 0, "queue": [[0, batch, NO_WATERMARK]]}],
            "archive": [{**state, "lane": lane, "queue": []} for lane in range(2)],
        },
    }
    found = of_instances(Checkpoint(7, content), made).content
    assert not {"lanes", "layout"} & found.keys()
    [sound] = found["tasks"]["sound"]
    assert [each[2] for each in sound["queue"]] == [NO_WATERMARK, NO_WATERMARK, 7]  # no lane is behind
    means = [[each[1].length for each in task["queue"]] for task in found["tasks"]["means"]]
    assert sum(map(sum, means)) == 20
    assert all(means)
    assert [task["state"] for task in found["tasks"]["time"]] == [clock_at(8)]  # each lane had seen other blocks
    assert [task["lane"] for task in found["tasks"]["archive"]] == [0, 1]  # by which its writers are known
    assert of_instances(Checkpoint(7, {**content, "lanes": 1}), made).content["lanes"] == 1


def clock_at(watermark):
    return pack_state("event time", {"watermark": watermark})


def test_a_site_that_says_another_number_of_lanes_has_its_parts_run_in_them(tmp_path):
    folder = SiteFolder(tmp_path / "site")
    folder.settle("barn", None, lanes=2)
    folder.add("tanks-1", "100 ms")
    settings = folder.file("tanks-1").with_suffix(".toml")
    assert "options.lanes = 2\n" in settings.read_text()
    folder.settle("barn", None, lanes="auto")
    assert 'options.lanes = "auto"\n' in settings.read_text()
    assert "options.lanes = 2" not in settings.read_text()
    folder.settle("barn", None)
    assert "lanes" not in settings.read_text()
    settings.write_text(settings.read_text() + 'promise = "100/s"\n')
    folder.settle("barn", None, lanes=3)
    assert "lanes" not in settings.read_text()  # a part that is promised a rate has what it was promised


def test_a_site_on_spark_has_no_lanes():
    from headwater.cli.site import lanes_of

    assert lanes_of(None, "local[2]") is None
    assert lanes_of("2", None) == 2
    with pytest.raises(RunError, match="--lanes are the engine's, and mean nothing with --kind spark"):
        lanes_of("2", "local[2]")
    with pytest.raises(RunError, match="lanes is at most"):
        lanes_of("100000", None)
