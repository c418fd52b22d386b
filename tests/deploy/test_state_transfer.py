"""What travels of a part that has stopped: its last checkpoint, and what the other ends of its bridges may lack."""

from urllib.parse import quote

from headwater.data.batch import Batch
from headwater.data.frames import pack
from headwater.deploy.bridge.buffer import LogBuffer
from headwater.deploy.state_transfer import Waiting, lay_bridges, note_waiting, packed, unpacked, waiting
from headwater.engine.checkpoint.recovery import VERSION
from headwater.engine.checkpoint.store import Store

OUTLET = "levels.out (sent)"


def content(*steps):
    return {"version": VERSION, "steps": {step: {} for step in steps}, "positions": {}, "tasks": {}}


def log_of(checkpoint, outlet=OUTLET):
    return checkpoint / "sinks" / quote(outlet, safe=" ") / "bridge"


def kept(checkpoint, parts=((b"a", b"b"), (b"c",), (b"d", b"e"))):
    """Keep five messages in a log, two of them in a part that no checkpoint has."""
    buffer = LogBuffer(log_of(checkpoint), after=-1)
    numbers = []
    for part, frames in enumerate(parts):
        for frame in frames:
            numbers.append(buffer.end)
            buffer.append(frame, records=1)
        buffer.mark(part)
    return buffer, numbers


def test_what_the_other_end_has_stays_and_what_no_checkpoint_has_does_not_count(tmp_path):
    store = Store(tmp_path / "old")
    store.write(0, content(OUTLET))
    buffer, numbers = kept(tmp_path / "old")
    store.write(1, content(OUTLET))
    buffer.release(numbers[1])
    buffer.close()
    files = packed(tmp_path / "old")
    assert [name for name in files if name.endswith(".checkpoint")] == ["000000001.checkpoint"]
    unpacked(files, tmp_path / "new")
    kept_there = waiting(tmp_path / "new", OUTLET)
    assert kept_there.messages == [(numbers[1], b"b"), (numbers[2], b"c")]
    assert kept_there.first == numbers[1]
    assert kept_there.end == numbers[3]
    assert waiting(tmp_path / "new", "means (sent)") == Waiting()
    assert Store(tmp_path / "new").latest() == Store(tmp_path / "old").latest()


def test_a_part_that_was_packed_can_still_go_on(tmp_path):
    store = Store(tmp_path)
    buffer, numbers = kept(tmp_path)
    store.write(1, content(OUTLET))
    buffer.close()
    assert packed(tmp_path) == packed(tmp_path)
    buffer = LogBuffer(log_of(tmp_path), after=1)
    found, _ = buffer.read(buffer.released, buffer.part_end, 2**20)
    assert [(each.number, bytes(each.frame)) for each in found] == list(zip(numbers[:3], b"a b c".split(), strict=True))
    buffer.append(b"d again", records=1)
    buffer.mark(2)
    found, _ = buffer.read(numbers[2], buffer.end, 2**20)
    assert [bytes(each.frame) for each in found] == [b"c", b"d again"]
    buffer.close()


def test_a_checkpoint_travels_with_those_that_it_builds_on(tmp_path):
    store = Store(tmp_path / "old")
    whole = content("sums") | {"tasks": {"sums": [{"state": 0, "whole": True}]}}
    changes = content("sums") | {"tasks": {"sums": [{"state": 0, "whole": False}]}}
    store.write(3, whole, [b"earlier"])
    store.write(4, whole, [b"all"])
    store.write(5, changes, [b"since"], since=4)
    unpacked(packed(tmp_path / "old"), tmp_path / "new")
    assert Store(tmp_path / "new").numbers() == [4, 5]
    (task,) = Store(tmp_path / "new").latest().content["tasks"]["sums"]
    assert (task["state"], task["changes"]) == (b"all", [b"since"])


def test_nothing_travels_of_a_part_that_has_made_no_checkpoint(tmp_path):
    kept(tmp_path)[0].close()
    assert packed(tmp_path) == {}


def test_what_waited_at_one_site_is_sent_from_another_under_the_numbers_that_it_had(tmp_path):
    """The site that has it to receive goes on meanwhile, and knows how far it has come by those numbers alone."""
    Store(tmp_path / "old").write(1, content(OUTLET))
    one, two, three, four = (pack(Batch.of_watermark(at)) for at in (1, 2, 3, 4))
    buffer, numbers = kept(tmp_path / "old", ((one, two), (three,), (four,)))
    buffer.release(numbers[1])
    buffer.close()
    unpacked(packed(tmp_path / "old"), tmp_path / "taken")
    Store(tmp_path / "new").write(7, content(OUTLET))
    known = waiting(tmp_path / "taken", OUTLET)
    note_waiting(tmp_path / "new", OUTLET, known)
    lay_bridges(tmp_path / "new")
    assert waiting(tmp_path / "new", OUTLET) == Waiting()
    buffer = LogBuffer(log_of(tmp_path / "new"), after=7)
    assert buffer.released == numbers[1]
    assert buffer.began >= known.end  # so that the other end takes it for a life that has lost nothing
    buffer.append(pack(Batch.of_watermark(5)), records=0)
    found, _ = buffer.read(buffer.released, buffer.end, 2**20)
    assert [(each.number, bytes(each.frame)) for each in found[:2]] == known.messages
    assert found[2].number >= known.end
    buffer.close()
