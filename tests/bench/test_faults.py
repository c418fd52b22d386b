"""Checkpoints under faults, by seeds: `HEADWATER_SEEDS=20000` runs more, `headwater bench faults --seed 17` replays one."""

import os

from headwater_bench.experiments import faults
from headwater_bench.faults import Trial

SEEDS = int(os.environ.get("HEADWATER_SEEDS", "500"))


def test_the_end_is_that_of_an_undisturbed_run_whatever_happens():
    answer = faults.run(seeds=SEEDS)
    assert (answer["seeds"], answer["violations"]) == (SEEDS, 0)
    assert answer["checkpoints"] > SEEDS
    assert min(answer[name] for name in ("kills", "power_cuts", "stops", "told", "rescaled")) > 0


def test_a_seed_does_the_same_each_time():
    assert Trial(4).run() == Trial(4).run()
