from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headwater.data.column import Text
from headwater.data.decimal import read_decimal, widened, write_float32, write_int
from headwater.data.text_format import float32_texts

decimals = st.from_regex(r"\A[+-]?[0-9]{0,20}(\.[0-9]{0,20})?([eE][+-]?[0-9]{0,5})?\Z")


def read(text: str) -> tuple[float, bool]:
    raw = np.frombuffer(f"<{text}>".encode(), np.uint8)
    return read_decimal(raw, 1, len(raw) - 1)


def write(value: float) -> str:
    room = np.zeros(40, np.uint8)
    stop = write_float32(value, room, 3)
    assert stop - 3 <= 24
    return room[3:stop].tobytes().decode()


@given(decimals | st.floats(allow_nan=False).map(repr) | st.text(max_size=6))
@example("9007199254740993")
@example("1e23")
@example("-0")
@example("1e99999")
@example("000000000000000000000000001")
def test_what_is_read_is_what_float_reads(text):
    value, sure = read(text)
    if sure:
        assert struct.pack("d", value) == struct.pack("d", float(text))


@given(st.integers(-(10**15), 10**15), st.integers(0, 12))
def test_ordinary_decimals_are_read_without_help(digits, places):
    text = f"{digits / 10**places:.{places}f}"
    assert read(text) == (float(text), True)


@pytest.mark.parametrize("text", ["", "-", ".", "e5", "1e", "1e+", "0x10", "1 ", "nan", "1.2.3", "1_0"])
def test_what_is_not_a_plain_decimal_is_left_to_float(text):
    assert read(text) == (0.0, False)


@given(st.floats(width=32) | st.integers(-(10**7), 10**7).map(lambda n: float(np.float32(n / 100))))
@example(1e7)
@example(9999999.0)
@example(0.001)
@example(1e-45)
@example(3.4028234663852886e38)
@example(8.589973e9)
def test_a_written_float_reads_back_and_no_shorter_one_would(value):
    text = write(value)
    back = np.float32(float(text))
    np.testing.assert_array_equal(back, np.float32(value))
    digits = "".join(filter(str.isdigit, text.split("E")[0])).strip("0")
    if np.isfinite(value) and value:
        shortest = np.format_float_scientific(np.float32(value), unique=True).split("e")[0]
        assert len(digits) == len("".join(filter(str.isdigit, shortest)).strip("0"))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (8.0, "8.0"),
        (53.7, "53.7"),
        (-0.0, "-0.0"),
        (0.0, "0.0"),
        (411.02, "411.02"),
        (0.001, "0.001"),
        (0.00099, "9.9E-4"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (1.25e10, "1.25E10"),
        (1 / 3, "0.33333334"),
        (float("nan"), "NaN"),
        (float("-inf"), "-Infinity"),
    ],
)
def test_floats_are_written_in_the_form_of_the_golden_files(value, text):
    assert write(value) == text


@given(st.integers(-(2**63) + 1, 2**63 - 1))
def test_whole_numbers_are_written_as_str_does(value):
    room = np.zeros(30, np.uint8)
    assert room[: write_int(value, room, 0)].tobytes().decode() == str(value)


def test_floats_next_to_a_border_are_written_as_shortly_as_numpy_does():
    """Powers of two, whose next float below is nearer than that above, their neighbours, and any others between."""
    powers = np.float32(2.0) ** np.arange(-1, 24, dtype=np.float32)
    near = [np.nextafter(powers, np.float32(border)) for border in (0, np.inf)]
    lowest, highest = np.array([0.5, 1e7], np.float32).view(np.int32).tolist()
    some = np.random.default_rng(1).integers(lowest, highest, 2_000, np.int32)
    values = np.concatenate([powers, *near, some.view(np.float32)])
    values = values[(values >= 0.5) & (values < 1e7)]
    written = Text(*float32_texts(values)).tolist()
    shortest = [np.format_float_positional(value, unique=True, trim="0") for value in values]
    assert list(map(len, written)) == list(map(len, shortest))  # of two that are as near, NumPy takes the even one
    np.testing.assert_array_equal(np.array(written, np.float32), values)


@given(st.lists(st.floats(width=32), min_size=1))
@example([0.0, -0.0, 1e-45, 3.4028234663852886e38, 9999999.0, 1e7, 0.001, 2.0**-149, -(2.0**-126), 2.0**-44])
def test_a_float_that_is_widened_prints_as_the_32_bits_did(values):
    narrow = np.array(values, np.float32)
    assert repr(widened(narrow).tolist()) == repr(narrow.astype("U").astype(np.float64).tolist())
