from __future__ import annotations

import hashlib

import numpy as np
import pytest
import reference
from hypothesis import example, given
from hypothesis import strategies as st

from headwater.data.column import Text
from headwater.errors import FlowError
from headwater.steps.bloom import BloomFilter
from headwater.steps.distinct import distinct_count
from headwater.steps.sha1 import sha1_head


@given(st.binary(max_size=200))
@example(b"x" * 55)
@example(b"x" * 56)
@example(b"x" * 64)
def test_sha1_is_that_of_hashlib(raw):
    expected = int.from_bytes(hashlib.sha1(raw).digest()[:4], "little", signed=True)
    assert sha1_head(np.frombuffer(b"ab" + raw, np.uint8), 2, 2 + len(raw)) == expected


@given(st.lists(st.tuples(st.integers(0, 2), st.text(max_size=8)), max_size=60), st.sampled_from([2, 5, 10]))
def test_distinct_counts_are_those_of_the_plain_sketch(rows, bits):
    plain, ranks = reference.DistinctCount(bits), np.zeros((3, 2**bits + 1), np.int64)
    for part in (rows[:7], rows[7:]):
        texts, out = Text.of([text for _, text in part]), np.empty(len(part), np.int64)
        distinct_count(np.array([s for s, _ in part], np.int64), texts.data, texts.offsets, ranks, out)
        assert out.tolist() == [plain.step(sketch, text) for sketch, text in part]


def test_the_estimate_of_many_distinct_texts_is_near_the_truth():
    ranks, texts = np.zeros((1, 1025), np.int64), Text.of([f"sensor-{i}" for i in range(50_000)])
    out = np.empty(50_000, np.int64)
    distinct_count(np.zeros(50_000, np.int64), texts.data, texts.offsets, ranks, out)
    assert out[-1] == pytest.approx(50_000, rel=0.1)  # the sketch's standard error is 1.3 / sqrt(1024)


@given(st.lists(st.text(max_size=10), max_size=50))
def test_a_bloom_filter_never_denies_what_it_was_given(texts):
    known = BloomFilter(100, 0.01)
    known.add(Text.of(texts))
    assert known.contains(Text.of(texts)).all()


def test_a_full_bloom_filter_is_wrong_as_rarely_as_it_promised():
    known = BloomFilter(20_000, 0.01)
    known.add(Text.of([f"in-{i}" for i in range(20_000)]))
    wrong = known.contains(Text.of([f"out-{i}" for i in range(20_000)])).mean()
    assert 0.005 < wrong < 0.015
    assert known.hash_count == 7
    assert BloomFilter(20_000_000, 0.01).bit_count == pytest.approx(191.7e6, rel=1e-3)


@pytest.mark.parametrize(("capacity", "share"), [(0, 0.1), (10, 0), (10, 1.0)])
def test_an_impossible_bloom_filter_is_refused(capacity, share):
    with pytest.raises(FlowError, match="capacity of 1 or more"):
        BloomFilter(capacity, share)
