"""A site does what its agent decides: parts that it can take, and those that it cannot, which it says."""

import errno
import shutil
from pathlib import Path
from zlib import crc32

import msgspec
import pytest

from headwater import Flow, engine, io
from headwater.cli.site import say_what_executors_need
from headwater.data.batch import Batch
from headwater.data.frames import pack
from headwater.deploy import part as parts
from headwater.deploy.ahead import key_of, large_states
from headwater.deploy.certificates import Identity, issue
from headwater.deploy.control.messages import (
    Fetch,
    Fetched,
    Forget,
    Have,
    Install,
    Piece,
    Prepare,
    Send,
    Sent,
    Took,
    Unfit,
)
from headwater.deploy.part import Part, Promise, checksum, sealed
from headwater.deploy.routes import Outgoing
from headwater.deploy.site.folder import SiteFolder
from headwater.deploy.site.work import Work
from headwater.deploy.state_transfer import Waiting
from headwater.engine.checkpoint.recovery import VERSION
from headwater.engine.checkpoint.store import Store
from headwater.flow.contract import Contract
from headwater.flow.profile import Profile
from headwater.rate.ledger import Refusal
from headwater.serve.claims import take_files
from headwater.serve.lane import RunFollower
from headwater.serve.service import UnknownFlowError
from headwater.serve.settings import read_settings, settings_beside

KEY = "a1" * 32
FILES = {"tanks.py": b"flow = None\n"}


class WarmPool:
    """Has no processes."""

    def __init__(self):
        self.names = []

    def warmth(self, name):
        return "warm" if name in self.names else "cold"

    def pid(self, name):
        return 4712 if name in self.names else None

    def end(self, name):
        self.names = [each for each in self.names if each != name]


class Service:
    """Serves nothing."""

    def __init__(self):
        self.warm_pool = WarmPool()
        self.pids = {}

    def warm(self, name, file):
        self.settings = read_settings(settings_beside(file))
        self.warm_pool.names.append(name)

    def look(self):
        pass

    def wait_stopped(self, name, within_s):
        return True

    def statuses(self):
        told = {"state": "running", "why": "", "restarts": 0}
        return [{"name": name, "pid": pid, **told} for name, pid in self.pids.items()]

    def sample_of(self, name):
        return None


@pytest.fixture
def certificates(tmp_path):
    if shutil.which("openssl") is None:
        pytest.skip("certificates are made with openssl")
    issue(tmp_path / "certificates", "coordinator"), issue(tmp_path / "certificates", "barn")
    return tmp_path / "certificates"


@pytest.fixture
def work(tmp_path, certificates):
    folder = SiteFolder(tmp_path / "barn")
    folder.settle("barn", None)
    shutil.copytree(certificates, folder.identity_folder)
    return Work(folder, Service())


def test_the_parts_of_a_site_have_its_settings_of_spark(tmp_path):
    folder = SiteFolder(tmp_path / "cloud")
    given = {"spark.executor.memory": "4g", "spark.jars": 'a "b".jar'}
    folder.settle("cloud", None, "", "spark://head:7077", given)
    folder.add("tanks", "1 s")
    kept = read_settings(settings_beside(SiteFolder(tmp_path / "cloud").file("tanks")))
    assert (kept.on, kept.master, kept.conf) == ("spark", "spark://head:7077", given)
    assert (folder.path / "site.json").stat().st_mode & 0o777 == 0o600  # a setting may be a password
    folder.settle("cloud", None, "", "local[2]")
    folder.add("tanks", "1 s")
    assert read_settings(settings_beside(folder.file("tanks"))).conf == {}


def test_a_site_whose_executors_are_elsewhere_says_what_they_must_see(tmp_path, caplog):
    for master, told in (("spark://head:7077", 1), ("yarn", 1), ("local[*]", 0), ("spark://127.0.0.1:7077", 0)):
        caplog.clear()
        say_what_executors_need(master, SiteFolder(tmp_path))
        assert caplog.text.count(f"{tmp_path}: let --state be a folder that they see") == told, master


def signed(certificates, id, promise=None):
    checksums = {path: checksum(content) for path, content in FILES.items()}
    told = {"id": id, "site": "barn", "flow": "tanks.py", "sites": {}, "listens": []}
    made = Part(**told, files=checksums, promise=promise)
    return sealed(made, FILES, Identity.of(certificates, "coordinator"))


def test_a_part_is_prepared_then_installed_without_being_sent_again(work, certificates):
    assert work.told(Prepare("tanks-2", signed(certificates, "tanks-2"))) == []
    report = work.report(0)
    assert [(each.id, each.phase) for each in report.prepared] == [("tanks-2", "warm")]
    assert report.parts == []
    assert work.folder.sources("tanks-2").is_dir()  # which a report does not sweep away
    assert work.told(Install("tanks-2", None, {"000000001.checkpoint": b"what was kept"})) == []
    assert [each.id for each in work.report(0).parts] == ["tanks-2"]
    assert work.report(0).prepared == []
    assert (work.folder.home("tanks-2").checkpoint / "000000001.checkpoint").read_bytes() == b"what was kept"


def test_a_part_that_is_removed_while_a_site_reports_is_reported_as_it_was(work, certificates, monkeypatch):
    work.told(Install("tanks-1", signed(certificates, "tanks-1")))
    work._service.pids = {"tanks-1": 4711}

    def gone(name):
        raise UnknownFlowError(f"there is no flow {name!r}")

    monkeypatch.setattr(work._service, "sample_of", gone)
    assert [(each.id, each.pid) for each in work.report(0).parts] == [("tanks-1", 4711)]


def test_what_a_part_took_and_how_long_its_records_did_is_reported(work, certificates, monkeypatch):
    work.told(Install("tanks-1", signed(certificates, "tanks-1")))
    work._service.pids = {"tanks-1": 4711}
    flow = Flow("tanks")
    flow.read("levels", io.Items([{"n": 1}] * 10, {"n": int})).write("archive", io.Discard())
    run = engine.start(flow)
    run.wait()
    document = RunFollower(run).document(run.sample())
    monkeypatch.setattr(work._service, "sample_of", lambda name: msgspec.json.encode(document))
    (part,) = work.report(0).parts
    assert (part.records_in, part.sinks) == (10, {"archive": 10})
    assert part.taken == {"levels": 10, "archive": 10}
    assert 0 < part.delay_ms[0] <= part.delay_ms[1]
    assert part.cores == document["process"]["cores"]
    del document["process"], document["last"]  # as one that tells less
    (part,) = work.report(0).parts
    assert (part.cores, part.delay_ms) == (0.0, None)


def test_a_part_that_was_prepared_and_is_not_needed_is_gone(work, certificates):
    work.told(Prepare("tanks-2", signed(certificates, "tanks-2")))
    work.told(Forget(["tanks-2"]))
    report = work.report(0)
    assert (report.parts, report.prepared) == ([], [])
    assert not work.folder.sources("tanks-2").exists()
    assert list((work.folder.path / "warm").iterdir()) == []


def test_a_disk_that_is_full_is_told_and_what_was_there_stays(work, certificates, monkeypatch):
    work.told(Install("tanks-1", signed(certificates, "tanks-1")))

    def full(path, content):
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    with monkeypatch.context() as patched:
        patched.setattr(parts, "_put", full)
        for message in (Prepare, Install):
            (said,) = work.told(message("tanks-2", signed(certificates, "tanks-2")))
            assert isinstance(said, Unfit)
            assert "No space left on device" in said.why
    assert [each.id for each in work.report(0).parts] == ["tanks-1"]
    assert work.told(Install("tanks-2", signed(certificates, "tanks-2"))) == []  # once there is room again


def test_a_part_takes_over_the_files_of_the_one_before_it(work, certificates, tmp_path):
    work.told(Install("tanks-1", signed(certificates, "tanks-1")))
    old, new = (work.folder.home(id).path for id in ("tanks-1", "tanks-2"))
    file = str(tmp_path / "out.csv")
    take_files([file], work.folder.parts / "tanks-1.py", old)
    work.told(Install("tanks-2", signed(certificates, "tanks-2"), after="tanks-1"))
    take_files([file], work.folder.parts / "tanks-2.py", new)  # though the old part is still here


def test_all_that_a_part_goes_on_from_is_safe_on_disk_before_it_is_said_to_be_here(work, certificates, monkeypatch):
    safe = set()
    monkeypatch.setattr("headwater.deploy.state_transfer.sync", lambda path: safe.add(Path(path)))
    work.told(Install("tanks-1", signed(certificates, "tanks-1")))
    notes = work.folder.home("tanks-1").checkpoint / "sources" / "levels"
    notes.mkdir(parents=True)
    (notes / "read").write_bytes(b"far")
    waits = msgspec.msgpack.encode(Waiting(3, 5, [(3, pack(Batch.of_watermark(7)))]))
    given = {"000000001.checkpoint": b"what was kept", "waiting/means": waits}
    assert work.told(Install("tanks-2", signed(certificates, "tanks-2"), given, "tanks-1")) == []
    home = work.folder.home("tanks-2")
    files = {path.relative_to(home.checkpoint).as_posix() for path in home.checkpoint.rglob("*") if path.is_file()}
    assert {"000000001.checkpoint", "sources/levels/read"} < files
    assert any(file.startswith("sinks/means/bridge/") for file in files)
    assert safe >= {home.path.parent, home.path, *home.path.rglob("*")} - {home.path / "stopped"}


class Ledger:
    """Has no room for a promise, but that of some processes."""

    def __init__(self, *pids):
        self.pids = set(pids)

    def refusal(self, wanted, *pids):
        left = wanted.cores if self.pids.intersection(pids) else 0.0
        return Refusal(wanted.cores, left) if wanted.cores > left else None

    def resources(self):
        return None


PROMISE = Promise(contract=Contract(500.0), profile=Profile("tanks", "here", {}), cores=0.5)


def test_a_promise_that_cannot_be_kept_is_told_before_the_part_that_runs_stops(work, certificates):
    work._site = Ledger()
    (said,) = work.told(Prepare("tanks-2", signed(certificates, "tanks-2", PROMISE)))
    assert isinstance(said, Unfit)
    assert "site 'barn' cannot promise 500/s to 'tanks.py': it wants 0.50 cores, and 0.00 are left" in said.why
    assert work.report(0).prepared == []
    assert not work.folder.sources("tanks-2").exists()  # a report sweeps what was not taken


def test_a_part_takes_over_the_promise_of_the_one_before_it_which_has_stopped(work, certificates):
    work._site, work._service.pids = Ledger(4711), {"tanks-1": 4711}
    assert work.told(Prepare("tanks-2", signed(certificates, "tanks-2", PROMISE), "tanks-1")) == []
    work._service.pids = {"tanks-1": None}  # which the ledger does not know yet
    assert work.told(Install("tanks-2", None, {}, "tanks-1")) == []
    assert [each.id for each in work.report(0).parts] == ["tanks-2"]
    assert isinstance(work.told(Install("tanks-3", signed(certificates, "tanks-3", PROMISE)))[0], Unfit)


def test_the_process_that_is_made_ready_is_told_what_it_will_be_promised_and_its_cores_are_its_own(work, certificates):
    work._site = Ledger(None)  # which has room for those that take nobody's place
    assert work.told(Prepare("tanks-2", signed(certificates, "tanks-2", PROMISE))) == []
    asked = work._service.settings
    assert (asked.promise, asked.trial) == ("500.000000/s", False)
    assert Profile.load(Path(asked.profile)) == PROMISE.profile
    work._site = Ledger(4712)  # where the last cores are held for that process by now
    assert work.told(Install("tanks-2", None, {})) == []


def test_a_checkpoint_that_cannot_be_read_is_told(work, certificates):
    work.told(Install("tanks-1", signed(certificates, "tanks-1")))
    assert work.told(Fetch("tanks-1", "tanks-2")) == [Fetched("tanks-1", {}, "tanks-2")]
    folder = work.folder.home("tanks-1").checkpoint
    folder.mkdir(parents=True)
    (folder / "000000001.checkpoint").write_bytes(b"half of one")
    (said,) = work.told(Fetch("tanks-1", "tanks-2"))
    assert isinstance(said, Unfit)
    assert "its checkpoint cannot be taken: no checkpoint in" in said.why


def test_more_state_than_can_travel_is_told_and_stays(work, certificates, monkeypatch):
    work.told(Install("tanks-1", signed(certificates, "tanks-1")))
    store = Store(work.folder.home("tanks-1").checkpoint)
    content = {"version": VERSION, "steps": {}, "positions": {}, "tasks": {}}
    store.write(1, content, [b"x" * 1000])
    monkeypatch.setattr("headwater.deploy.state_transfer.MOST_BYTES", 1000)
    (said,) = work.told(Fetch("tanks-1", "tanks-2"))
    assert isinstance(said, Unfit)
    assert "what has changed of the state of the part, and what waits at its bridges," in said.why
    assert "of which 1,000 can travel" in said.why
    monkeypatch.undo()
    (said,) = work.told(Fetch("tanks-1", "tanks-2"))
    assert isinstance(said, Fetched)  # what is there can still be gone on from


def test_large_state_goes_ahead_and_is_filled_in_when_the_part_is_installed(work, certificates, monkeypatch):
    monkeypatch.setattr("headwater.deploy.ahead.LARGE", 100)
    work.told(Install("tanks-1", signed(certificates, "tanks-1")))
    store = Store(work.folder.home("tanks-1").checkpoint)
    stays, goes = (letter * 200 for letter in (b"s", b"g"))
    tasks = {"stays": [{"state": 0, "whole": True, "queue": []}], "goes": [{"state": 1, "whole": True, "queue": []}]}
    store.write(1, {"version": VERSION, "steps": {}, "positions": {}, "tasks": tasks}, [stays, goes])
    found = large_states(store.folder, tasks, "tanks-2")
    keys = {step: key_of(stored) for step, stored in found}
    work.told(Prepare("tanks-2", signed(certificates, "tanks-2"), "tanks-1"))
    have, piece, sent = work.told(Send("tanks-1", "tanks-2", {"stays": "barn", "goes": "cloud"}))
    assert have == Have("tanks-2", keys["stays"])  # it need not travel
    assert (piece.step, piece.key, piece.data) == ("goes", keys["goes"], goes)
    assert sent == Sent("tanks-1", "tanks-2", {keys["stays"]: "stays", keys["goes"]: "goes"})
    assert work.told(msgspec.structs.replace(piece, move="tanks-3")) == []  # of a part that nobody has announced
    (fetched,) = work.told(Fetch("tanks-1", "tanks-2", [keys["stays"]]))
    assert stays not in fetched.files["000000001.checkpoint"]
    assert goes in fetched.files["000000001.checkpoint"]
    work.told(Install("tanks-2", None, fetched.files, "tanks-1"))
    found = Store(work.folder.home("tanks-2").checkpoint).latest().content["tasks"]
    assert {name: each["state"] for name, (each,) in found.items()} == {"stays": stays, "goes": goes}
    assert not (work.folder.ahead / "tanks-2").exists()


def test_state_goes_ahead_piece_by_piece_as_they_come(work, certificates, monkeypatch):
    monkeypatch.setattr("headwater.deploy.ahead.LARGE", 100)
    monkeypatch.setattr("headwater.deploy.ahead._PIECE", 10)
    assert work.told(Took("tanks-2", "goes", KEY, 0)) == []  # nothing has gone from here
    work.told(Install("tanks-1", signed(certificates, "tanks-1")))
    store, state = Store(work.folder.home("tanks-1").checkpoint), bytes(range(200))
    tasks = {"goes": [{"state": 0, "whole": True, "queue": []}]}
    store.write(1, {"version": VERSION, "steps": {}, "positions": {}, "tasks": tasks}, [state])
    work.told(Send("tanks-1", "tanks-2", {"goes": "cloud"}))
    said = work.told(Send("tanks-1", "tanks-2", {"goes": "cloud"}))  # once more, after a cut
    came = b""
    while isinstance(said[0], Piece):
        piece = said.pop(0)
        came += piece.data
        said += work.told(Took(piece.move, piece.step, piece.key, piece.at))
    assert came == state
    assert said == [Sent("tanks-1", "tanks-2", {piece.key: "goes"})]


def test_large_state_of_a_part_that_has_saved_all_anew_goes_by_pieces_when_it_has_stopped(
    work, certificates, monkeypatch
):
    monkeypatch.setattr("headwater.deploy.ahead.LARGE", 100)
    monkeypatch.setattr("headwater.deploy.site.work._HEAVY_BYTES", 100)
    work.told(Install("tanks-1", signed(certificates, "tanks-1")))
    store, state = Store(work.folder.home("tanks-1").checkpoint), bytes(range(200))
    tasks = {"goes": [{"state": 0, "whole": True, "queue": []}]}
    store.write(1, {"version": VERSION, "steps": {}, "positions": {}, "tasks": tasks}, [state])
    fetch = Fetch("tanks-1", "tanks-2", steps={"goes": "cloud"})
    piece, sent = work.told(fetch)
    assert piece.data == state
    (fetched,) = work.told(msgspec.structs.replace(fetch, known=list(sent.keys)))
    assert state not in fetched.files["000000001.checkpoint"]
    (fetched,) = work.told(fetch)  # the pieces came to nothing
    assert state in fetched.files["000000001.checkpoint"]


def test_too_much_that_waits_at_bridges_is_told_before_anything_stops(work, certificates, monkeypatch):
    monkeypatch.setattr("headwater.deploy.state_transfer.MOST_BYTES", 1000)
    work.told(Install("tanks-1", signed(certificates, "tanks-1")))
    outgoing = work.folder.sources("tanks-1") / "outgoing.json"  # as the part's process notes it
    outgoing.write_bytes(msgspec.json.encode({"means": Outgoing(5, 1000)}))
    assert work.told(Send("tanks-1", "tanks-2", {})) == [Sent("tanks-1", "tanks-2", {})]
    outgoing.write_bytes(msgspec.json.encode({"means": Outgoing(5, 600), "sums": Outgoing(5, 600)}))
    (said,) = work.told(Send("tanks-1", "tanks-3", {}))
    assert said.id == "tanks-3"
    assert "have 1,200 bytes, of which 1,000 can travel" in said.why


def test_what_is_here_for_a_move_that_ended_while_the_site_was_away_is_removed_by_the_next(work, certificates):
    work.told(Prepare("tanks-2", signed(certificates, "tanks-2")))
    work.told(Piece("tanks-2", "goes", KEY, 2, 0, 0, b"g"))
    again = Work(work.folder, work._service)  # it was killed
    assert again.told(Piece("tanks-2", "goes", KEY, 2, crc32(b"gh"), 1, b"h"))[0] == Have("tanks-2", KEY)
    again.told(Prepare("tanks-3", signed(certificates, "tanks-3")))
    found = [path.name for folder in ("ahead", "warm") for path in (work.folder.path / folder).iterdir()]
    assert {name.partition(".")[0] for name in found} == {"tanks-3"}


def test_state_that_comes_otherwise_than_it_was_sent_ends_the_move(work, certificates):
    work.told(Prepare("tanks-2", signed(certificates, "tanks-2")))
    unfit, _ = work.told(Piece("tanks-2", "goes", KEY, 1, crc32(b"g"), 0, b"h"))
    assert unfit == Unfit(
        "tanks-2", "state of step 'goes' that goes ahead has come otherwise than it was sent; try again"
    )


def test_state_that_went_ahead_of_a_move_that_came_to_nothing_is_removed(work, certificates, monkeypatch):
    work.told(Prepare("tanks-2", signed(certificates, "tanks-2")))
    assert work.told(Piece("tanks-2", "goes", KEY, 1, crc32(b"g"), 0, b"g")) == [
        Have("tanks-2", KEY),
        Took("tanks-2", "goes", KEY, 0),
    ]
    assert (work.folder.ahead / "tanks-2" / KEY).read_bytes() == b"g"
    work.told(Forget(["tanks-2"]))
    assert not (work.folder.ahead / "tanks-2").exists()
