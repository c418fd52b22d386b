"""A number on a disk that fails and loses power: it is never less than what was once safe."""

from random import Random

import pytest

from headwater.io.log.high_watermark import HighWatermark
from headwater.sim.disk import SimulatedDisk


@pytest.mark.parametrize("reopened", [False, True])
def test_a_number_that_was_safe_is_there_though_the_disk_fails_at_later_ones(reopened):
    for seed in range(300):
        disk = SimulatedDisk(Random(seed))
        mark = HighWatermark(disk, "mark", writing=True)
        mark.write(1)
        mark.sync()
        disk.fsync_dir("")
        if reopened:
            mark.close()
            mark = HighWatermark(disk, "mark", writing=True)
        disk.chances = {"fsync": 1.0}
        for value in (4, 6, 7):
            try:
                mark.write(value)
                mark.sync()
            except OSError:
                continue
        disk.crash()
        assert HighWatermark(disk, "mark", writing=False).value >= 1, seed
