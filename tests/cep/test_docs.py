"""The page on queries does what it says, down to the alarm on a broker."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from headwater.io import Mqtt

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "queries.md"
sys.path.append(str(TESTS / "io"))  # for the broker


def test_the_blocks_of_the_page_run_in_order(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from broker import Broker

    from waiting import PATIENCE_S

    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) > 5
    monkeypatch.setenv("HEADWATER_MQTT_USERNAME", "reader")  # the test broker wants a name
    broker = Broker().start()
    reader: Any = Mqtt(broker.url, "alarms", {"tank": str, "height": int}).open(pytest.fail)
    names: dict[str, object] = {}
    try:
        assert reader.subscribed.wait(PATIENCE_S)
        for block in blocks:
            exec(compile(block.replace("mqtt://broker", broker.url), str(PAGE), "exec"), names)
        assert reader.read(10, PATIENCE_S).rows() == [{"tank": "south", "height": 130}]
    finally:
        reader.close()
        broker.stop()
    assert capsys.readouterr().out == "".join(re.findall(r"```text\n(.*?)```", PAGE.read_text(), re.DOTALL))
