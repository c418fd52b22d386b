"""The log on a disk that crashes and fails, by thousands of seeds.

HEADWATER_SEED=17 replays one; HEADWATER_SEEDS=20000 runs more.
"""

import errno
import logging
import os
from random import Random

import pytest

from headwater.errors import InputError
from headwater.io.log import Log
from headwater.sim.disk import SimulatedDisk
from headwater_bench.faults.log import LogTrial
from properties import share_of

SEEDS = int(os.environ.get("HEADWATER_SEEDS", share_of(2500)))
ONE = os.environ.get("HEADWATER_SEED")


@pytest.fixture(autouse=True)
def quiet():
    """Thousands of crashes have thousands of things to say."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


def test_what_was_acknowledged_is_there_after_any_crash():
    for seed in [int(ONE)] if ONE else range(SEEDS):
        try:
            LogTrial(seed).run()
        except BaseException as error:
            error.add_note(f"replay with HEADWATER_SEED={seed}")
            raise


@pytest.mark.parametrize("good", range(3))
def test_a_segment_that_was_written_again_has_its_name_for_good_though_the_folder_failed_at_first(good):
    disk = SimulatedDisk(Random(1))
    log = Log("d", segment_bytes=100, disk=disk)
    for number in range(20):
        log.append(b"%d" % number + bytes(40))
    log.sync()
    disk.delete("d")
    allowed, plain = [good], disk.fsync_dir

    def failing(folder):
        if not allowed[0]:
            raise OSError(errno.EIO, "the folder fails")
        allowed[0] -= 1
        plain(folder)

    disk.fsync_dir = failing
    for _ in range(10):  # each attempt comes further by one
        try:
            log.look_again()
            break
        except InputError:
            allowed[0] += 1
    else:
        raise AssertionError("it never was there again")
    disk.fsync_dir = plain
    disk.crash()
    again = Log("d", segment_bytes=100, disk=disk)
    reader, found = again.reader(), []
    while entries := reader.read(500):
        found += [entry.position for entry in entries]
    assert found == list(range(20))
