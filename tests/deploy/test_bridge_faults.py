"""A bridge loses nothing and brings nothing twice, whoever crashes, whatever is cut, at any moment."""

from collections import Counter

import pytest

from headwater_bench.faults.bridge import trial
from properties import share_of


@pytest.mark.parametrize("seeds", [range(start, start + 25) for start in range(0, share_of(200), 25)], ids=str)
def test_every_record_comes_once_and_in_order(seeds):
    faults = Counter()
    for seed in seeds:
        found = trial(seed)
        assert found.is_right, (seed, found.lost, found.twice, found.stuck, found.faults)
        faults.update(found.faults)
    assert all(faults[what] > 5 for what in ("cut", "silence", "kill sender", "kill receiver", "power", "fuse"))
