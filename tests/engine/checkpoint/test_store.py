"""Checkpoints in a folder whose disk fails."""

import random

import pytest

from headwater.engine.checkpoint.store import Store
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
