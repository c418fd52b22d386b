"""What a site has to send of a stream, to several others: kept once, until all of them have it for good."""

import numpy as np
import pytest

from headwater.data.batch import Batch
from headwater.data.column import Text
from headwater.data.frames import pack, unpack_frame
from headwater.data.schema import Schema
from headwater.deploy.bridge.buffer import LogBuffer, MemoryBuffer
from headwater.deploy.bridge.fitting import fitting
from headwater.deploy.bridge.inbound import Inbound
from headwater.deploy.bridge.outbound import Outbound
from headwater.deploy.bridge.protocol import RefusedError, Sending
from headwater.io.log.disk import SystemDisk

SCHEMA = Schema.of({"n": int})


@pytest.fixture
def outbound(tmp_path):
    """Three parts of one message each."""
    made = Outbound(LogBuffer(tmp_path, after=-1), parts=True, limit_bytes=10**9)
    for part in range(3):
        made.put(Batch.of({"n": [part]}, SCHEMA))
        made.prepare(part)
        made.commit(part)
    yield made
    made.close()


def talk(sender, inbound):
    """Connect two ends, and pass messages until neither has more to say."""
    to_receiver, to_sender = sender.connected(0.0), inbound.connected(0.0)
    while to_receiver or to_sender:
        answers = [said for message in to_sender for said in sender.heard(message, 0.0)]
        to_sender = [said for message in to_receiver for said in inbound.heard(message, 0.0)] + inbound.next()
        to_receiver = answers + sender.next()


def taken(inbound):
    found = []
    while (batch := inbound.read(1, 0.0)) is not None and batch.length:
        found += batch["n"].tolist()
    return found


def test_it_is_kept_until_all_have_it_for_good(outbound):
    senders = {name: outbound.sender(f"n → {name}") for name in ("cloud", "office")}
    ends = {name: Inbound(f"n → {name}", SCHEMA, window=2**20) for name in senders}
    talk(senders["cloud"], ends["cloud"])
    assert taken(ends["cloud"]) == [0, 1, 2]
    ends["cloud"].commit(ends["cloud"].arrivals.handed)
    talk(senders["cloud"], ends["cloud"])
    assert outbound.has_all(senders["cloud"])
    assert not outbound.is_done()
    assert outbound.buffer.released == 0
    talk(senders["office"], ends["office"])
    assert taken(ends["office"]) == [0, 1, 2]
    ends["office"].commit(ends["office"].arrivals.handed)
    talk(senders["office"], ends["office"])
    assert outbound.is_done()
    assert outbound.buffer.released == ends["office"].arrivals.handed


def test_who_comes_later_gets_what_is_kept_from_where_another_was(outbound):
    """A step that has moved goes on with a stream at another site where it was at the one before."""
    first, before = outbound.sender("n → cloud"), Inbound("n → cloud", SCHEMA, window=2**20)
    talk(first, before)
    batch = before.read(1, 0.0)
    assert batch["n"].tolist() == [0]
    position = {"life": before.machine.life, "next": before.arrivals.handed}
    then = outbound.sender("n → office")  # before the other is told that it is sent no more
    outbound.drop(first)
    after = Inbound("n → office", SCHEMA, window=2**20, **position)
    talk(then, after)
    assert taken(after) == [1, 2]


@pytest.mark.parametrize(("off_s", "made_up_s"), [(3600, 3600), (-3600, -3600), (2, 0)])
def test_a_record_is_as_old_as_it_is_though_the_clock_of_a_site_is_off(outbound, monkeypatch, off_s, made_up_s):
    """Clocks that differ by seconds may as well be a first word that took seconds: nothing is made up for."""
    monkeypatch.setattr("headwater.deploy.bridge.outbound.now_ns", lambda: 10**18)
    monkeypatch.setattr("headwater.deploy.bridge.inbound.now_ns", lambda: 10**18 + off_s * 10**9)
    end = Inbound("n → cloud", SCHEMA, window=2**20)
    sent = [unpack_frame(bytes(each.frame)).stamps for each in outbound.buffer.read(0, outbound.end, 2**20)[0]]
    talk(outbound.sender("n → cloud"), end)
    got = [end.read(1, 0.0).stamps for _ in sent]
    assert [(there - here).tolist() for there, here in zip(got, sent, strict=True)] == [[[made_up_s * 10**9] * 2]] * 3


def test_nobody_has_to_be_waited_for_who_is_sent_no_more(outbound):
    stays, leaves = outbound.sender("n → cloud"), outbound.sender("n → office")
    end = Inbound("n → cloud", SCHEMA, window=2**20)
    talk(stays, end)
    taken(end)
    end.commit(end.arrivals.handed)
    talk(stays, end)
    assert not outbound.is_done()
    outbound.drop(leaves)
    assert outbound.is_done()
    assert outbound.buffer.released == end.arrivals.handed


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (Batch.of({"m": [1]}, Schema.of({"m": int})), r"it has columns \['m'\], and the stream has \['n'\]"),
        (Batch.of({"n": ["a"]}, Schema.of({"n": str})), "its column 'n' is not 1 values of type int"),
        (Batch({"n": np.arange(2)}, 3, np.zeros((3, 2), np.int64)), "its column 'n' is not 3 values of type int"),
    ],
)
def test_what_is_none_of_the_stream_is_refused_before_any_step_has_it(tmp_path, sent, why):
    made = Outbound(MemoryBuffer(), parts=False, limit_bytes=10**9)
    made.put(sent)
    end = Inbound("n → cloud", SCHEMA, window=2**20)
    with pytest.raises(RefusedError, match=f"bridge 'n → cloud': message 0 is none of this stream: {why}"):
        talk(made.sender("n → cloud"), end)
    assert taken(end) == []


def test_who_sends_more_than_there_is_room_for_is_refused(outbound):
    sender, end = outbound.sender("n → cloud"), Inbound("n → cloud", SCHEMA, window=1)  # room for one message, no more
    sender.machine._resume = lambda at, safe, credit: Sending._resume(sender.machine, at, safe, 10**9)
    with pytest.raises(RefusedError, match="where there was room for 1, and more follow: the sender does not heed"):
        talk(sender, end)
    assert taken(end) == [0]


@pytest.mark.parametrize("offsets", [[0, 9, 3], [-1, 1, 3], [0, 1, 99]])
def test_texts_that_would_be_read_from_beyond_their_bytes_are_refused(offsets):
    texts = Text.of(["a", "bc"])
    frame, right = pack(Batch({"t": texts}, 2, np.zeros((2, 2), np.int64))), texts.offsets.tobytes()
    assert frame.count(right) == 1
    with pytest.raises(ValueError, match="its column 't' is not 2 values of type text"):
        fitting(frame.replace(right, np.array(offsets, np.int32).tobytes()), Schema.of({"t": str}))


def test_what_is_no_frame_is_refused_wherever_it_is_cut_short():
    frame = pack(Batch.of({"t": ["a", "bc"], "n": [1, 2]}, schema := Schema.of({"t": str, "n": int})))
    assert fitting(frame, schema).rows() == [{"t": "a", "n": 1}, {"t": "bc", "n": 2}]
    for size in range(len(frame) - 8):
        with pytest.raises(ValueError, match=r"it is no batch|is not 2 values"):
            fitting(frame[:size], schema)


class CountingDisk(SystemDisk):
    """Counts what is read."""

    reads = 0

    def read(self, fd, size, at):
        self.reads += 1
        return super().read(fd, size, at)


def test_that_a_receiver_has_all_is_known_without_a_look_at_the_disk(tmp_path):
    disk = CountingDisk()
    made = Outbound(LogBuffer(tmp_path, after=-1, disk=disk), parts=True, limit_bytes=10**9)
    sender = made.sender("b")
    for part in range(50):
        made.put(Batch.of({"n": [part]}, SCHEMA))
        made.prepare(part)
        made.commit(part)
    end = Inbound("b", SCHEMA)
    talk(sender, end)
    assert taken(end) == list(range(50))
    assert not made.has_all(sender)  # it has them, and not for good yet
    end.commit(end.arrivals.handed)
    talk(sender, end)
    before = disk.reads
    assert made.has_all(sender)
    assert made.account()["messages_waiting"] == 0
    assert disk.reads == before
    made.put(Batch.of({"n": [50]}, SCHEMA))
    made.prepare(50)
    assert not made.has_all(sender)
    made.close()
    again = Outbound(
        LogBuffer(tmp_path, after=50), parts=True, limit_bytes=10**9
    )  # what waits is found after a restart
    assert not again.has_all(again.sender("b"))
    again.close()
