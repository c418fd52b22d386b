"""Checkpoints in a folder whose disk fails."""

import random
from zlib import crc32

import pytest

from headwater.engine.checkpoint.store import Store, Stored, refuse_others
from headwater.sim.disk import SimulatedDisk

CONTENT = {"state": b"x" * 500, "tasks": {}}


@pytest.fixture
def disk():
    return SimulatedDisk(random.Random(1))


@pytest.fixture
def store(disk):
    return Store("/c", disk)


def test_a_full_disk_keeps_nothing_of_attempts_that_come_to_nothing(disk, store):
    store.write(0, CONTENT)
    used, disk.room = disk.used(), disk.used() + 300
    for number in range(1, 20):
        with pytest.raises(OSError, match="no room"):
            store.write(number, CONTENT)
    assert disk.used() == used
    assert store.latest().number == 0


def test_what_a_crash_left_half_written_is_removed_with_the_next(disk, store):
    fd = disk.open("/c/000000000.checkpoint.new", create=True)
    disk.write(fd, b"half")
    store.write(1, CONTENT)
    assert disk.listdir("/c") == ["000000001.checkpoint"]


def test_a_checkpoint_is_complete_though_old_ones_cannot_be_removed(disk, store):
    store.write(0, CONTENT)
    store.write(1, CONTENT)
    disk.chances = {"unlink": 1.0}
    store.write(2, CONTENT)
    disk.chances = {}
    assert store.numbers() == [0, 1, 2]
    store.write(3, CONTENT)
    assert store.numbers() == [2, 3]


def test_who_goes_on_from_a_checkpoint_finds_it_after_a_power_cut_too(store, disk):
    store.write(0, CONTENT)
    disk.chances = {"fsync_dir": 1.0}
    with pytest.raises(OSError, match="cannot fsync_dir"):
        store.write(1, CONTENT)
    disk.chances = {}
    disk.kill()
    for seed in range(20):
        disk.random = random.Random(seed)
        assert Store("/c", disk).latest().number == 1
        disk.crash()


@pytest.mark.parametrize("since", [None, 3], ids=["whole", "changes"])
def test_no_bit_of_a_checkpoint_can_flip_unnoticed(disk, store, since):
    for number, base in ((2, None), (3, 2), (4, since)):
        tasks = {"step": [{"state": 0, "whole": base is None}]}
        store.write(number, {"tasks": tasks}, [b"what is saved as %d" % number], since=base)
    fd = disk.open("/c/000000004.checkpoint")
    whole, before = disk.read(fd, 10_000, 0), store.read(4)
    for bit in range(8 * len(whole)):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        disk.write_at(fd, bytes(flipped), 0)
        with pytest.raises(ValueError, match=r"checksum is wrong|bytes|does not begin as|is not there"):
            store.read(4)
    disk.write_at(fd, whole, 0)
    assert store.read(4) == before


@pytest.fixture
def beside(tmp_path):
    """Return a store whose only checkpoint, 3, has a state in a file of its own, and where that is."""
    store, state = Store(tmp_path), b"s" * 1000
    path = store.beside("seen")
    path.write_bytes(state)
    tasks = {"seen": [{"state": 1, "whole": True, "changes": [0]}]}
    store.write(3, {"tasks": tasks}, [b"little", Stored(str(path), 0, len(state), crc32(state))])
    return store, path


def test_a_state_in_a_file_of_its_own_is_read_back_and_counts_as_the_checkpoints(beside):
    store, path = beside
    for each in (store, Store(store.folder)):
        assert each.latest().content["tasks"]["seen"] == [{"state": b"s" * 1000, "whole": True, "changes": [b"little"]}]
        assert each.files(3) == [store.folder / "000000003.checkpoint", path]
    found = []
    store.read(3, found.append)
    assert [(each.path, each.at, each.size) for each in found][1] == (str(path), 0, 1000)


@pytest.mark.parametrize("anew", [False, True])
def test_such_a_file_stays_for_as_long_as_a_checkpoint_needs_it(beside, anew):
    store, path = beside
    if anew:
        store = Store(store.folder)
    changes = {"tasks": {"seen": [{"state": 0, "whole": False}]}}
    store.write(4, changes, [b"more"], since=3)
    store.write(5, changes, [b"even more"], since=4)
    (task,) = store.latest().content["tasks"]["seen"]
    assert (task["state"], task["changes"]) == (b"s" * 1000, [b"little", b"more", b"even more"])
    store.write(6, CONTENT)
    assert path.exists()
    store.write(7, CONTENT)
    assert [each.name for each in sorted(store.folder.iterdir())] == ["000000006.checkpoint", "000000007.checkpoint"]


def test_a_checkpoint_whose_state_is_gone_cut_or_changed_is_passed_over(beside):
    store, path = beside
    store.write(2, CONTENT)  # the one before
    for spoil in (lambda: path.write_bytes(b"s" * 999 + b"t"), lambda: path.write_bytes(b"s"), path.unlink):
        spoil()
        assert Store(store.folder).latest().number == 2
    tasks = {"seen": [{"state": 0, "whole": True}]}
    store.write(4, {"tasks": tasks}, [Stored("/elsewhere/seen", 0, 1000, 0)])
    with pytest.raises(ValueError, match="it has state in 'seen', which is no name of a state beside it"):
        Store(store.folder).read(4)


def test_no_such_file_is_removed_while_a_checkpoint_cannot_say_what_it_needs(beside):
    store, path = beside
    checkpoint = store.folder / "000000003.checkpoint"
    content = checkpoint.read_bytes()
    checkpoint.write_bytes(content[:40] + b"?" + content[41:])
    store = Store(store.folder)
    store.write(4, CONTENT)
    assert path.exists()
    store.write(5, CONTENT)
    assert not path.exists()


def test_a_folder_of_nothing_but_such_a_file_can_be_begun_anew_in(tmp_path):
    (tmp_path / "seen.state").touch()
    refuse_others(tmp_path)
