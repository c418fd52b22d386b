"""How a source is told from the one that a checkpoint was made with."""

import pytest

from headwater import io
from headwater.flow.identity import differs, identity_of


@pytest.mark.parametrize("first", ["JsonLines", "Replay"])
def test_a_source_that_is_replayed_at_a_rate_is_not_told_as_one_with_other_content(tmp_path, first):
    path = tmp_path / "a.jsonl"
    path.write_text('{"n": 1}\n')
    lines = io.JsonLines(path, {"n": int})
    sources = {"JsonLines": lines, "Replay": io.Replay(lines, 10)}
    before = sources.pop(first)
    ((second, now),) = sources.items()
    why = differs(now, identity_of(before))
    assert f"was read as {first} then, and is read as {second} now" in why
    assert "a.jsonl" in why
    assert "content" not in why
