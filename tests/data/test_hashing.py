from __future__ import annotations

import subprocess
import sys

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headwater.data.column import Text
from headwater.data.hashing import partition_hash


def plain_hash(text: bytes) -> int:
    """Do in Python's big integers what the text hash does in 64 bits."""
    word_mask = 2**64 - 1
    h = len(text) * 0x9E3779B97F4A7C15 & word_mask
    whole = len(text) // 8 * 8
    for at in range(0, whole, 8):
        h = (h ^ int.from_bytes(text[at : at + 8], "little")) * 0xBF58476D1CE4E5B9 & word_mask
        h ^= h >> 32
    h ^= int.from_bytes(text[whole:], "little")
    h = (h ^ h >> 30) * 0xBF58476D1CE4E5B9 & word_mask
    h = (h ^ h >> 27) * 0x94D049BB133111EB & word_mask
    return (h ^ h >> 31) >> 1


@given(st.lists(st.text(max_size=40), max_size=10))
def test_text_hashes_follow_their_definition(values):
    expected = [plain_hash(value.encode()) for value in values]
    assert partition_hash([Text.of(values)]).tolist() == expected


def test_hashes_are_those_of_every_other_run_and_machine():
    columns = [np.array([0, -1]), np.array([1.5, -2.0]), Text.of(["", "Genève"])]
    assert partition_hash(columns[:1]).tolist() == [8147104208329303767, 8245168133484221968]
    assert partition_hash(columns[1:2]).tolist() == [7740940946405666885, 336793141747671384]
    assert partition_hash(columns).tolist() == [5136503414258293832, 6409935087877275213]


def test_equal_numbers_hash_alike():
    zeros = partition_hash([np.array([0.0, -0.0])])
    assert zeros[0] == zeros[1]
    odd = np.array([0x7FF8000000000000, 0x7FF8000000000001, -1], np.int64).view(np.float64)
    assert len(set(partition_hash([odd]).tolist())) == 1


def test_keys_spread_evenly_over_instances():
    names = Text.of([f"sensor-{i}" for i in range(8000)])
    for columns in ([np.arange(8000)], [np.arange(8000) * 1024], [names], [np.arange(8000) / 8]):
        counts = np.bincount(partition_hash(columns) % 8, minlength=8)
        assert counts.min() > 850
        assert counts.max() < 1150


def test_a_row_of_two_columns_is_not_the_row_of_them_swapped():
    a, b = np.array([1, 2]), np.array([2, 1])
    assert partition_hash([a, b])[0] != partition_hash([b, a])[0]


def test_without_numba_hashes_and_slots_are_the_same():
    program = """
import sys
sys.modules["numba"] = None
import numpy as np
from headwater.data.column import Text
from headwater.data.hashing import partition_hash
from headwater.data.jit import COMPILED
from headwater.data.keys import KeyIndex
columns = [Text.of(["long-sensor-name-1", "b", ""]), np.array([1, -1, 2**62])]
print(COMPILED, KeyIndex("text", "int").slots(columns).tolist(), partition_hash(columns).tolist())
"""
    run = [sys.executable, "-W", "error", "-c", program]
    output = subprocess.run(run, capture_output=True, text=True, check=True).stdout
    hashes = partition_hash([Text.of(["long-sensor-name-1", "b", ""]), np.array([1, -1, 2**62])]).tolist()
    assert output == f"False [0, 1, 2] {hashes}\n"
