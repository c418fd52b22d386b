"""What stands in for a kernel until it is compiled gives the same bits: results must not depend on when that is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from headwater.data import hashing, iso_text, text, text_format, timestamps
from headwater.data.column import Text
from headwater.data.jit import COMPILED
from headwater.io.senml import columns, form, scan
from headwater.io.senml.columns import SenmlParser

pytestmark = pytest.mark.skipif(not COMPILED, reason="there is nothing to compare without Numba")

rng = np.random.default_rng(5)
TEXTS = [bytes(rng.integers(0, 128, rng.integers(0, 30)).astype(np.uint8)) for _ in range(60)]
data = np.frombuffer(b"".join(TEXTS), np.uint8)
offsets = np.cumsum([0, *map(len, TEXTS)]).astype(np.int32)
rows = rng.integers(0, len(TEXTS), 100)
spans = np.stack([offsets[rows], offsets[rows + 1]], axis=1).astype(np.int64)
seed, numbers = np.uint64(2**63 + 11), [0, 1, -1, 2**62, -(2**63)]


CALLS: dict[str, tuple[Any, list[Any]]] = {
    "gather": (
        text.gather,
        [(data, offsets, rows), (data, offsets, rows[:0]), (data, offsets, np.arange(len(offsets) - 1))],
    ),
    "gather_spans": (scan.gather_spans, [(data, spans), (data, spans[:0])]),
    "escaped_size": (text_format._escaped_size, [(data,), (data[:0],)]),
    "mix": (hashing.mix, [(seed,), (np.uint64(0),)]),
    "hash_int": (hashing.hash_int, [(number, seed) for number in numbers]),
    "hash_bytes": (hashing.hash_bytes, [(data, int(a), int(b), seed) for a, b in spans[:40]]),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_stand_in_gives_the_same_bits(name):
    kernel, calls = CALLS[name]
    assert kernel.stand_in is not None
    for args in calls:
        for one, other in zip(_arrays(kernel(*args)), _arrays(kernel.plain(*args)), strict=True):
            assert (one.dtype, one.tobytes()) == (other.dtype, other.tobytes())


def _arrays(answer):
    return answer if isinstance(answer, tuple) else [np.asarray(answer).astype(np.uint64)]


def test_texts_formatted_by_kernels_that_are_not_compiled_are_the_same():
    both, edges = np.tile(data, 2), np.stack([offsets, offsets + len(data)]).astype(np.int64)
    pieces, ends = np.frombuffer(b'{"a":"","b":""}', np.uint8), np.array([0, 6, 13, 15])
    kernel: Any = text_format._format
    for escape in (True, False):
        one = kernel(pieces, ends, both, edges, escape)
        other = kernel.plain(pieces, ends, both, edges, escape)
        assert one[1].tobytes() == other[1].tobytes()
        assert one[0][: one[1][-1]].tobytes() == other[0][: other[1][-1]].tobytes()


def test_moments_are_read_the_same_by_a_kernel_that_is_not_compiled():
    said = [
        "2026-11-15T08:00:00Z",
        " 2026-11-15 ",
        "2026-02-30",
        "0000-01-01",
        "2026-11-15 08:00:01,1234567+01",
        "x",
        "",
        "5",
    ]
    said += [
        "2026-11-15t08:00:00.5z",
        "2026-11-15T24:00Z",
        "0001-01-01T00:00:00+14:00",
        "9999-12-31T23:59:59.999999-14",
    ]
    given, found = Text.of(said), []
    assert timestamps  # which has what stands in
    kernel: Any = iso_text.read_moments
    for read in (kernel, kernel.stand_in):
        out, valid = np.zeros(len(said), np.int64), np.zeros(len(said), np.bool_)
        read(given.data, given.offsets, out, valid)
        found.append((out.tolist(), valid.tolist()))
    assert found[0] == found[1]
    assert found[0][1] == [True, True, False, False, True, False, False, False, True, False, True, True]


def test_messages_are_read_the_same_by_kernels_that_are_not_compiled(monkeypatch):
    numbers = [("8.5", "53.7"), ("-0.06", "1e-7"), ("x", "1"), ("3", "123456789.123456789")]
    entries = '[{{"n":"id","sv":"a"}},{{"u":"C","n":"heat","v":"{}"}},{{"n":"dust","v":{}}}]'
    sent = [f'{{"e":{entries.format(*pair)},"bt":1500000000000}}' for pair in numbers] + ["{}", "no"]
    fields: dict[str, Any] = {"id": "text", "heat": "float", "dust": "float"}
    compiled = SenmlParser(fields).parse(Text.of(sent))
    kernels: list[Any] = [scan.scan, form.read_form, scan.gather_spans]
    for kernel in kernels:
        monkeypatch.setattr(columns, kernel.__name__, kernel.plain)
    plain = SenmlParser(fields).parse(Text.of(sent))
    assert plain.status.tolist()[:2] == [0, 0]
    for one, other in zip(_parts(compiled), _parts(plain), strict=True):
        assert (one.dtype, one.tobytes()) == (other.dtype, other.tobytes())


def _parts(parsed):
    found = [parsed.columns["id"].data, parsed.columns["id"].offsets, parsed.columns["heat"], parsed.columns["dust"]]
    return [parsed.time_ms, parsed.status, *found]
