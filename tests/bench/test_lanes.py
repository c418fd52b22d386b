"""The experiment that asks what a second lane gains."""

import json
import subprocess
import sys

import pytest

from headwater.errors import RunError
from headwater_bench.experiments import lanes

PROGRAM = """
import json, pathlib, sys
from headwater_bench.experiments import lanes
answer = lanes.run(output=pathlib.Path(sys.argv[1]), flows=["pred", "stats wide"], messages=3000, repeats=1)
print(json.dumps(answer))
"""


@pytest.mark.thorough
def test_both_say_the_same_and_both_are_measured(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, tmp_path], capture_output=True, text=True, timeout=300, check=True
    )
    answer = json.loads(done.stdout)
    assert answer["pred"]["two_over_one"] > 0
    assert len(answer["stats wide"]["two_us"]) == 2
    assert answer["stats wide"]["apart"] > 0
    assert answer["stats wide"]["messages"] == 3000
    assert "stats wide" in lanes.table(answer)
    assert (tmp_path / "lanes.csv").read_text().count("pred") == 2


def test_a_flow_that_is_not_there_is_refused():
    with pytest.raises(RunError, match="there is no flow 'train'"):
        lanes.run(flows=["train"])
