"""The uplink of a site: what may go at which hours, how fast, and which stream goes first."""

import time

import pytest

from headwater import Flow, engine, io
from headwater.data.schema import Schema
from headwater.deploy import Identity, Inlet, Links, Outlet
from headwater.deploy.bridge.uplink import Meter, Uplink
from headwater.deploy.bridge_ends import BridgeEnds, note_revoked, read_revoked
from headwater.deploy.cut import Crossing
from headwater.deploy.part import Part
from headwater.errors import FlowError, RunError
from waiting import PATIENCE_S, wait_until


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("rte=1 MB/s", "does not know 'rte=1 MB/s'.*did you mean 'rate'"),
        ("hours=9-17", "hours are written as 22:00-06:00.*got '9-17'"),
        ("hours=22:00-22:00", "hours are written as"),
        ("full=drop", "a full buffer can 'drop lowest', 'drop oldest', 'hold'; --uplink says 'drop'"),
    ],
)
def test_a_slip_is_told(text, why):
    with pytest.raises(RunError, match=why):
        Uplink.read(text)


def test_an_amount_that_is_none_is_told():
    with pytest.raises(FlowError, match="cannot read 'fast'"):
        Uplink.read("rate=fast")
    with pytest.raises(FlowError, match="age of --uplink"):
        Uplink.read("age=long")


def test_hours_may_pass_midnight_and_be_several():
    uplink = Uplink.read("hours=22:00-06:00 12:30-13:00")
    assert [uplink.is_open(minute) for minute in (0, 359, 360, 749, 750, 779, 780, 1319, 1320)] == [
        *(True, True, False, False, True, True, False, False, True),
    ]


@pytest.mark.parametrize(
    ("first", "told"),
    [
        ("means", []),
        ("menas", ["has 'menas' go first, and no such stream leaves site 'barn'; did you mean 'means'?"]),
        ("means+x", ["has 'x' go first, and no such stream leaves site 'barn'; those that do are 'means'"]),
    ],
)
def test_a_stream_that_is_to_go_first_and_does_not_leave_the_part_is_told_when_it_starts(
    certificates, tmp_path, caplog, first, told
):
    part = Part(id="tanks-1", site="barn", flow="tanks.py", sites={}, listens=[], files={})
    ends = BridgeEnds(part, tmp_path, Identity.of(certificates, "barn"), None, Uplink.read(f"first={first}"))
    ends.outlet([Crossing("tanks", "means", "out", Schema.of({"n": int}), "barn", "cloud")])
    ends.open()
    try:
        assert [record.getMessage().removeprefix("--uplink ") for record in caplog.records] == told
    finally:
        assert ends._links is not None
        ends._links.close()


def test_a_note_of_what_is_revoked_that_cannot_be_read_admits_nobody_again(certificates, tmp_path, caplog):
    note = tmp_path / "revoked.json"
    part = Part(id="tanks-1", site="barn", flow="tanks.py", sites={}, listens=[], files={})
    ends = BridgeEnds(part, tmp_path, Identity.of(certificates, "barn"), None)
    outlet = ends.outlet([Crossing("tanks", "means", "out", Schema.of({"n": int}), "barn", "cloud")])
    note_revoked(tmp_path, {"shed": ""})
    writer = outlet.open(Schema.of({"n": int}))
    try:
        links = ends._links
        assert links is not None
        note.unlink()
        note.mkdir()  # which no process can read as a file, as none can that has no file to open
        time.sleep(0.2)
        assert links._revoked == {"shed": ""}
        with pytest.raises(RunError, match="which sites are revoked"):
            read_revoked(tmp_path)
        note.rmdir()
        note_revoked(tmp_path, {"shed": "2A"})
        wait_until(lambda: links._revoked == {"shed": "2A"}, "what is noted now")
    finally:
        writer.close()
        assert ends._links is not None
        ends._links.close()


def test_what_goes_is_paced_by_bytes():
    meter = Meter(Uplink(rate=1000), minute=lambda: 0)
    assert meter.wait_s(10.0) == 0.0
    meter.sent(600, 10.0)
    assert meter.wait_s(10.0) == pytest.approx(0.5)  # a tenth of a second may go at once
    assert meter.wait_s(10.5) == pytest.approx(0.0)
    meter.sent(1000, 10.5)
    assert meter.wait_s(10.5) == pytest.approx(1.0)


def test_streams_that_are_named_are_held_where_others_are_shed():
    uplink = Uplink.read("room=10 MB,full=drop lowest,first=alarms+means")
    assert [
        uplink.priority(name) > uplink.priority(other) for name, other in (("alarms", "means"), ("means", "x"))
    ] == [
        *(True, True),
    ]
    assert [uplink.room_of(name).full for name in ("alarms", "other")] == ["hold", "drop oldest"]
    assert uplink.room_of("other").nbytes == 10_000_000
    assert uplink.room_of("other").age_s is None
    aged = Uplink.read("age=36 h,full=drop lowest,first=alarms")
    assert [aged.room_of(name).bounds().age_s for name in ("alarms", "other")] == [129_600.0, 129_600.0]


class Stream:
    """A sender that has some pieces to send, as the connections see it."""

    role = "sender"

    def __init__(self, name, priority, pieces, sent):
        self.name, self.priority, self.pieces, self.sent = name, priority, pieces, sent
        self.end = self.machine = self

    def send(self, most_bytes):
        if not self.pieces:
            return 0
        self.pieces -= 1
        self.sent.append(self.name)
        return 100


def test_what_is_first_goes_first_and_nothing_before_its_hours():
    minute, sent = [0], []
    links = Links(meter=Meter(Uplink(hours=((60, 120),)), minute=lambda: minute[0]))
    try:
        for name, priority in (("others", 0), ("alarms", 200), ("means", 199)):
            links._ends[name, "sender"] = Stream(name, priority, 2, sent)
        assert links.pump()
        assert sent == []
        minute[0] = 60
        assert links.pump()
        assert sent == ["alarms", "alarms", "means", "means", "others", "others"]
    finally:
        links._ends.clear()
        links.close()


def test_records_wait_for_their_hours_and_all_come_then():
    minute = [0]
    meter = Meter(Uplink(hours=((60, 120),), rate=10**8), minute=lambda: minute[0])
    cloud, barn = Links(("127.0.0.1", 0)), Links(meter=meter)
    found = io.Collect()
    try:
        sent, taken = Flow("sent"), Flow("taken")
        rows = [{"n": n, "text": "x" * 500} for n in range(4000)]
        sent.read("r", io.Items(rows, {"n": int, "text": str})).write(
            "out", Outlet("r", barn, ("127.0.0.1", cloud.port))
        )
        taken.read("r", Inlet("r", sent.steps["r"].outputs["out"], cloud)).write("in", found)
        runs = [engine.start(taken), engine.start(sent)]
        assert runs[1].done.wait(PATIENCE_S)
        assert found.records == []
        minute[0] = 60
        barn._loop.call_soon_threadsafe(barn.pump)
        assert all(run.wait(PATIENCE_S) is not None for run in reversed(runs))
        assert found.records == rows
    finally:
        barn.close(), cloud.close()
