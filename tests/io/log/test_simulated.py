"""The log on a disk that crashes and fails, by thousands of seeds.

HEADWATER_SEED=17 replays one; HEADWATER_SEEDS=20000 runs more.
"""

import logging
import os

import pytest

from headwater_bench.faults.log import LogTrial

SEEDS = int(os.environ.get("HEADWATER_SEEDS", "2500"))
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


def test_a_segment_that_was_written_again_has_its_name_for_good_though_the_folder_failed_at_first():
    LogTrial(12805).run()  # of a hundred thousand, the one that showed it
