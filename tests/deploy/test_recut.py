"""A flow that is stopped in the middle, cut anew and taken up again gives what one engine gives, wherever its steps go."""

import random
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote

import pytest

from headwater import Flow, Tumbling, agg, col, engine, io
from headwater.data.batch import NO_WATERMARK, Batch
from headwater.deploy import Cut, Inlet, Links, Outlet
from headwater.deploy.bridge.buffer import LogBuffer
from headwater.deploy.bridge.outlet import Way
from headwater.deploy.recut import check_move, going_on, movable, moved, recut
from headwater.deploy.site import on_spark
from headwater.deploy.state_transfer import bring_notes, lay_bridges, made_in, packed, unpacked
from headwater.engine.checkpoint.checkpointer import Checkpointer
from headwater.engine.checkpoint.store import Store
from headwater.errors import PlacementError
from headwater.flow.flow import DEAD_LETTERS
from headwater.serve.home import FlowHome
from waiting import PATIENCE_S

SITES = ("barn", "cloud", "office")
ROWS = [{"n": n, "key": f"k{n % 7}", "at": n * 10_000} for n in range(6000)]
STAY = {"r": "barn", "t": "barn", "out": "cloud", "late": "barn", "dead letters": "office", "broken": "office"}
MOVE = ("picky", "sound", "count", "some", "many")


class Slow(io.Items):
    """Does not come to its end before a file is there."""

    def __init__(self, hurry, pause_s, *given):
        super().__init__(*given)
        self.hurry, self.pause_s = hurry, pause_s
        self.waits = False  #: for the file, with all else read

    def open(self, reject, position=None):
        reader = super().open(reject, position)
        read = reader.read

        def slowly(limit, timeout_s):
            if self.hurry.exists():
                return read(limit, timeout_s)
            time.sleep(self.pause_s)
            self.waits = reader.position > 5000
            return Batch.of_watermark(NO_WATERMARK) if self.waits else read(20, timeout_s)

        reader.read = slowly
        return reader


def flow_of(folder, hurry, *, letters=True, pause_s=0.005):
    def picky(record):
        if letters and record["n"] % 1000 == 999:
            raise ValueError("broken")
        return record

    flow = Flow("counted")
    read = flow.read("r", Slow(hurry, pause_s, ROWS, {"n": int, "key": str, "at": "time"})).event_time("t", "at")
    sound = read.map("picky", picky).filter("sound", col.n % 3 != 0)
    counted = sound.key_by("key").window("count", Tumbling("5 s"), n=agg.count(), most=agg.max("n"))
    counted.filter("some", col.n > 0).write("out", io.JsonLines(folder / "out.jsonl"))
    sound.key_by("key").window("many", Tumbling("2 s"), n=agg.sum("n")).write(
        "late", io.JsonLines(folder / "late.jsonl")
    )
    if letters:
        flow.dead_letters.select("letters", "step", "error").write("broken", io.JsonLines(folder / "broken.jsonl"))
    return flow


class Ends:
    """The ends of all bridges, whose streams go where they do at present; the first of two sites by name is dialed."""

    def __init__(self, links, streams):
        self.links, self.made = links, []
        self.go_by(streams)

    def go_by(self, *streams):
        """Have streams go by the first plan, and be kept for those who will read them by the others."""
        self.targets = {}
        for stream, origin, target in {each for plan in streams for each in plan}:
            soon = (stream, origin, target) not in streams[0]
            self.targets.setdefault((stream, origin), []).append((target, soon))
        self.origins = {(stream, target): origin for stream, origin, target in streams[0]}
        for end in self.made:
            end.look_anew()

    def dial(self, ours, other):
        return ("127.0.0.1", self.links[other].port) if other < ours else None

    def name(self, crossing, target):
        origin = crossing.origin if crossing.step == DEAD_LETTERS else ""
        return f"{crossing.stream} {origin} → {target}"

    def outlet(self, crossings):
        first, ours = crossings[0], crossings[0].origin

        def ways():
            targets = self.targets.get((first.stream, ours), [])
            return {to: Way(self.name(first, to), self.dial(ours, to), soon=soon) for to, soon in targets}

        self.made.append(Outlet(first.stream, self.links[ours], linger_s=60, ways=ways))
        return self.made[-1]

    def inlet(self, crossing):
        def way():
            letters = crossing.step == DEAD_LETTERS
            origin = crossing.origin if letters else self.origins.get((crossing.stream, crossing.target))
            return (None if origin is None else self.dial(crossing.target, origin)), origin

        bridge = self.name(crossing, crossing.target)
        self.made.append(Inlet(bridge, crossing.schema, self.links[crossing.target], way=way))
        return self.made[-1]


def lines(folder):
    return {
        path.name: sorted(path.read_text().splitlines())
        for path in sorted(folder.glob("*.jsonl"))
        if path.stat().st_size
    }


@pytest.mark.parametrize(
    ("seed", "anywhere", "letters"),
    [
        *((0, False, True), (1, False, True), (2, False, True), (4, True, True)),
        *((6, False, False), (7, False, False), (8, False, False), (9, True, False), (11, False, False)),
    ],
)
def test_a_flow_that_is_cut_anew_gives_what_one_engine_gives(tmp_path, monkeypatch, seed, anywhere, letters):
    """Without dead letters, the parts of sites go on none of whose steps comes or goes."""
    if seed % 2:  # state of any size is saved as what has changed, after the first time
        monkeypatch.setitem(Checkpointer.__init__.__kwdefaults__, "small_bytes", 0)
    chance, hurry = random.Random(seed), tmp_path / "hurry"
    (tmp_path / "one").mkdir()
    (tmp_path / "many").mkdir()
    hurry.touch()
    engine.run(flow_of(tmp_path / "one", hurry, letters=letters))
    hurry.unlink()
    flow = flow_of(tmp_path / "many", hurry, letters=letters)
    flow.steps["r"].kind.source.anywhere = anywhere
    stay = {name: site for name, site in STAY.items() if not (anywhere and name in ("r", "t"))}
    links = {site: Links(("127.0.0.1", 0)) for site in SITES}
    placed = {name: chance.choice(SITES) for name in (*MOVE, "r", "t")}
    try:
        before, runs, ends = None, {}, Ends(links, [])
        for generation in range(4):
            chosen = (*MOVE, "r", "t") if letters else chance.sample((*MOVE, "r", "t"), 1)
            placed |= {name: chance.choice(SITES) for name in chosen}
            sites = {name: stay.get(name) or placed.get(name, "office") for name in flow.steps}
            homes = {site: tmp_path / f"{generation}" / site for site in SITES}
            cut = Cut(flow, sites)
            on = [] if before is None else going_on(flow, before[0], sites)
            homes |= {} if before is None else {site: before[1][site] for site in on}
            if before is not None:
                ends.go_by(Cut(flow, before[0]).streams, *([cut.streams] if on else []))
                changing = [site for site in runs if site not in on]
                for site in chance.sample(changing, len(changing)):
                    runs[site].stop()
                    assert (
                        runs[site].wait(PATIENCE_S) is not None
                    )  # none has come to its end, so none waits for another
                move(flow, before, sites, tmp_path / "taken" / str(generation), homes, on)
                ends.made = [end for end in ends.made if not is_over(end)]
            before = sites, homes
            ends.go_by(cut.streams)
            runs = {site: runs[site] for site in on} | {
                site: engine.start(cut.part(site, ends), checkpoint=homes[site], every="50 ms", chunk=20)
                for site in cut.sites
                if site not in on
            }
            if generation == 3:
                hurry.touch()
                with ThreadPoolExecutor(len(runs)) as pool:  # each makes its last checkpoint while others wait for it
                    assert all(pool.map(lambda run: run.wait(PATIENCE_S), runs.values()))
            else:
                until = time.monotonic() + PATIENCE_S
                source, seen = runs[sites["r"]], (generation + 1) * chance.randrange(100, 300)
                while source.sample().steps["r"].records_out < seen and time.monotonic() < until:
                    time.sleep(0.01)
    finally:
        for run in runs.values():
            run.abort()
        for each in links.values():
            each.close()
    expected = lines(tmp_path / "one")
    assert len(expected.get("broken.jsonl", [])) == (6 if letters else 0)
    assert lines(tmp_path / "many") == expected


def begin_and_stop(cut, homes):
    """Start all parts of a flow and stop them at once: each leaves a checkpoint."""
    links = {site: Links(("127.0.0.1", 0)) for site in SITES}
    try:
        ends = Ends(links, cut.streams)
        runs = [engine.start(cut.part(site, ends), checkpoint=homes[site], every="50 ms") for site in cut.sites]
        for run in runs:
            run.stop()
        assert all(run.wait(PATIENCE_S) is not None for run in runs)
    finally:
        for each in links.values():
            each.close()


def is_over(end):
    return not [each for each in end._open if not getattr(each, "closed", False)]


def test_a_part_goes_on_none_of_whose_steps_comes_or_goes(tmp_path):
    flow = flow_of(tmp_path, tmp_path, letters=False)
    sites = {name: STAY.get(name, "barn") for name in flow.steps}
    assert going_on(flow, sites, sites | {"some": "cloud"}) == []  # there are no others than those two
    apart = sites | {"many": "office"}
    assert going_on(flow, apart, apart | {"some": "cloud"}) == ["office"]
    assert going_on(flow, apart, apart | {"count": "office"}) == ["cloud"]
    spread = sites | {"count": "office", "many": "cloud", "some": "cloud"}
    assert going_on(flow, spread, spread | {"count": "cloud"}) == []  # who met there had come differently far


def move(flow, before, sites, taken, homes, on=()):
    old_sites, old_homes = before
    kept, into = {}, {}
    for site in [site for site in SITES if site not in on]:
        if old_homes[site].is_dir():
            kept[site] = taken / "old" / site
            unpacked(packed(old_homes[site]), kept[site])
        into[site] = taken / "new" / site
    recut(flow, old_sites, sites, kept, into, on)
    for site in into:
        if into[site].is_dir():
            unpacked(made_in(into[site]), homes[site])
            lay_bridges(homes[site])
            bring_notes(old_homes[site], homes[site])


def test_sources_and_sinks_stay(tmp_path):
    flow = flow_of(tmp_path, tmp_path)
    sites = dict.fromkeys(flow.steps, "barn")
    with pytest.raises(PlacementError, match="step 'out' of flow 'counted' is a sink, which stays at site 'barn'"):
        check_move(flow, sites, {**sites, "out": "cloud"})
    for resume, why in (
        ("position", "what it reads may be there alone. One whose address is reached from every site may say so"),
        ("sender", "what came from its sender .* is noted there. Move the steps behind it"),
        ("never", "it could not go on elsewhere behind what it has read. Move the steps behind it"),
    ):
        flow.steps["r"].kind.source.resume = resume
        with pytest.raises(PlacementError, match=f"step 'r' of flow 'counted' is a source, .*: {why}"):
            check_move(flow, sites, {**sites, "r": "cloud"})
    flow.steps["r"].kind.source.resume = "position"
    flow.steps["r"].kind.source.anywhere = True
    check_move(flow, sites, {**sites, "r": "cloud"})
    assert "r" in movable(flow, sites, "barn")


def test_a_file_of_a_checkpoint_stays_in_its_folder(tmp_path):
    with pytest.raises(ValueError, match="is not within the folder of a checkpoint"):
        unpacked({"../evil": b""}, tmp_path / "folder")
    assert not (tmp_path / "evil").exists()


def test_what_was_written_to_a_bridge_behind_a_checkpoint_that_does_not_know_it_is_not_on_its_way(tmp_path):
    flow = flow_of(tmp_path, tmp_path / "hurry")
    sites = [{name: at if name in MOVE else STAY.get(name, "office") for name in flow.steps} for at in SITES]
    homes = [{site: tmp_path / str(n) / site for site in SITES} for n in range(3)]
    begin_and_stop(Cut(flow, sites[0]), homes[0])
    move(flow, (sites[0], homes[0]), sites[1], tmp_path / "first", homes[1])
    crossing = next(each for each in Cut(flow, sites[1]).crossings if each.origin == "barn")
    log = homes[1]["barn"] / "sinks" / quote(crossing.outlet, safe=" ") / "bridge"
    buffer = LogBuffer(log, after=-1)  # the part has begun, and was killed before its first checkpoint was complete
    buffer.append(b"whatever it had sent", records=1)
    buffer.mark(7)
    buffer.close()
    move(flow, (sites[1], homes[1]), sites[2], tmp_path / "second", homes[2])
    assert Store(homes[2]["barn"]).latest() is not None


def test_a_flow_moves_by_its_own_name_with_all_its_steps_that_can():
    flow = Flow("tanks")
    levels = flow.read("levels", io.Items([{"n": 1}], {"n": int}))
    levels.filter("some", col.n > 0).filter("more", col.n > 1).write("archive", io.Discard())
    before = {"levels": "barn", "some": "barn", "more": "shed", "archive": "barn"}
    assert moved(flow, before, ["tanks"], "cloud") == before | {"some": "cloud", "more": "cloud"}
    assert moved(flow, before, ["more"], "cloud") == before | {"more": "cloud"}
    with pytest.raises(PlacementError, match="flow 'tanks' has no step 'tnaks'; did you mean 'tanks'"):
        moved(flow, before, ["tnaks"], "cloud")


def test_what_waited_before_a_bridge_when_a_checkpoint_was_hurried_comes_to_who_was_to_read_it(tmp_path):
    """Such a checkpoint is what is left of a part that did not stop in time."""
    flow = flow_of(tmp_path, tmp_path / "hurry")
    sites = [{name: at if name in MOVE else STAY.get(name, "office") for name in flow.steps} for at in SITES]
    homes = [{site: tmp_path / str(n) / site for site in SITES} for n in range(2)]
    cut = Cut(flow, sites[1])
    begin_and_stop(cut, homes[0])
    crossing = next(each for each in cut.crossings if each.origin == "barn" and each.step == "t")
    store = Store(homes[0]["barn"])
    found = store.latest()
    late = Batch.of({"n": [7], "key": ["k0"], "at": [70_000]}, crossing.schema)
    (outlet,) = found.content["tasks"][crossing.outlet]
    outlet["queue"] += [[0, late, NO_WATERMARK], [0, None, 60_000]]
    states = []
    for tasks in found.content["tasks"].values():
        for task in tasks:
            states.append(task["state"])
            task |= {"state": len(states) - 1, "whole": True, "changes": []}
    store.write(found.number, found.content, states)
    move(flow, (sites[1], homes[0]), sites[2], tmp_path / "taken", homes[1])
    (reader,) = Store(homes[1]["office"]).latest().content["tasks"]["picky"]
    assert [(None if batch is None else batch.rows(), at) for _, batch, at in reader["queue"]][-2:] == [
        (late.rows(), NO_WATERMARK),
        (None, 60_000),
    ]


def there_and_back(folder, begun, pause_s=0.005):
    """Move steps from the office to the cloud and back, with parts that are `begun` so; hold it against one engine."""
    hurry, links = folder / "hurry", {site: Links(("127.0.0.1", 0)) for site in SITES}
    for name in ("one", "many"):
        (folder / name).mkdir()
    hurry.touch()
    engine.run(flow_of(folder / "one", hurry))
    hurry.unlink()
    flow, before = flow_of(folder / "many", hurry, pause_s=pause_s), None
    try:
        for generation, place in enumerate(("office", "cloud", "office")):
            sites = {name: {**STAY, "out": "barn"}.get(name, place) for name in flow.steps} | {"letters": "office"}
            homes = {site: FlowHome(folder / f"{generation}" / site) for site in SITES}
            kept = {site: home.checkpoint for site, home in homes.items()}
            if before is not None:
                move(flow, before, sites, folder / "taken" / str(generation), kept, ())
            before, cut = (sites, kept), Cut(flow, sites)
            ends = Ends(links, cut.streams)
            runs = {site: begun(site, cut.part(site, ends), homes[site]) for site in cut.sites}
            source = flow.steps["r"].kind.source  # on Spark all may have come before
            wait_until(lambda run=runs[place], of=source: run.sample().records_in > 50 or of.waits)
            if generation == 2:
                hurry.touch()
                with ThreadPoolExecutor(len(runs)) as pool:
                    assert all(pool.map(lambda run: run.wait(180), runs.values()))
            else:
                for run in runs.values():
                    run.stop()
                    assert run.wait(180) is not None
                assert not any((home.path / "spark").exists() for home in homes.values())  # all are kept alike
    finally:
        for each in links.values():
            each.close()
    assert lines(folder / "many") == lines(folder / "one")


def on_engine(site, part, home):
    return engine.start(part, checkpoint=home.checkpoint, every="50 ms", chunk=20)


def wait_until(met):
    until = time.monotonic() + 180  # Spark may take a minute for what it does in a second, where all cores are wanted
    while not met():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_dead_letters_are_gathered_from_a_site_that_had_no_part_before(tmp_path):
    there_and_back(tmp_path, on_engine)


def test_steps_go_there_and_back_and_a_run_that_is_cut_off_goes_on_while_on_spark(spark, tmp_path):
    def begun(site, part, home):
        if site != "cloud":
            return on_engine(site, part, home)
        first = on_spark.start(part, home, None, {"spark.sql.streaming.numRecentProgressUpdates": "7"})
        assert spark.conf.get("spark.sql.streaming.numRecentProgressUpdates") == "7"
        wait_until(lambda: first.sample().records_in > 50)
        first._run.abort()  # as where its process is killed
        first._run.wait(180)
        return on_spark.start(part, home, None, {})

    there_and_back(tmp_path, begun, pause_s=0.2)
