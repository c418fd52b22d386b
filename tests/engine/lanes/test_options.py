"""`headwater run --lanes`."""

import pytest

from headwater.cli.run import parsed_lanes, run
from headwater.errors import RunError


def test_lanes_are_a_number_or_auto():
    assert parsed_lanes(None) is None
    assert parsed_lanes("auto") == "auto"
    assert parsed_lanes("3") == 3


@pytest.mark.parametrize("text", ["0", "-1", "many", "1.5"])
def test_other_numbers_of_lanes_are_refused(text):
    with pytest.raises(RunError, match=f"--lanes is 'auto' or a number of processes above 0; got '{text}'"):
        parsed_lanes(text)


def test_lanes_are_not_for_spark():
    with pytest.raises(RunError, match="--lanes is the engine's and means nothing with --on spark"):
        run("riot:etl", on="spark", lanes="2")
