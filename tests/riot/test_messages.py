"""Messages out of lines of files."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headwater.data.column import Text
from headwater_bench.riot.kernels.messages import _bare_messages, bare_messages, count_messages

lines = st.lists(st.text(" \t\r\x0b,{}17a", max_size=8).map(str.encode), min_size=1)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"17,{}", [b"{}"]),
        (b" 17 , {} \r", [b" {}"]),
        (b"17,a", [b"17,a"]),
        (b",{}", [b",{}"]),
        (b"1 7,{}", [b"1 7,{}"]),
        (b"a7,{}", [b"a7,{}"]),
        (b"17", [b"17"]),
        (b"17,", [b"17,"]),
        (b" \t", []),
        (b"", []),
    ],
)
def test_a_line_is_a_message_without_its_time(line, message):
    given = Text.of_bytes([line, b"{1}"])
    assert Text(*bare_messages(given.data, given.offsets)).bytes_list() == [*message, b"{1}"]


@given(lines)
@example([b"1,{", b"", b"1 ,\t{"])
def test_compiled_or_not_messages_are_the_same(lines):
    given = Text.of_bytes(lines)
    found, other = (Text(*of(given.data, given.offsets)).bytes_list() for of in (bare_messages, _bare_messages))
    assert found == other
    assert count_messages(b"\n".join(lines)) == len(found)


@pytest.mark.parametrize(
    ("data", "count"), [(b"", 0), (b"\n", 0), (b"a", 1), (b"a\n", 1), (b"a\n \n\nb\n", 2), (b" a", 1)]
)
def test_blank_lines_do_not_count(data, count):
    assert count_messages(data) == count
