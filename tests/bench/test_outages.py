"""`headwater bench outages`: what a flow writes to, or reads from, is away for a while. `--seconds 60` is for by hand."""

import pytest

from headwater.errors import FlowError
from headwater_bench.experiments import outages
from headwater_bench.servers import NotHereError
from headwater_bench.servers.mosquitto import program
from headwater_bench.servers.postgresql import Postgresql

AWAY_S = 1.5

with_a_broker = pytest.mark.skipif(program("mosquitto") is None, reason="mosquitto is not installed")


@pytest.mark.thorough
@pytest.mark.parametrize(
    "case",
    [
        pytest.param("to MQTT with ids", marks=with_a_broker),
        pytest.param("from MQTT", marks=with_a_broker),
        "to HTTP",
        "to PostgreSQL",
    ],
)
def test_nothing_is_lost_while_the_other_side_is_away(case):
    if case == "to PostgreSQL":
        _skip_without_postgresql()
    answer = outages.run(quick=case != "to PostgreSQL", seconds=AWAY_S, case=[case])
    assert (answer["lost"], answer["twice"], answer["dead_letters"]) == (0, 0, 0)
    [found] = answer["cases"].values()
    if case != "from MQTT":
        assert found["waiting_most"] > 0
    assert case in outages.table(answer)


def test_a_case_that_is_not_there_is_told():
    with pytest.raises(FlowError, match="no case is called 'carrier pigeon'"):
        outages.run(quick=True, case=["carrier pigeon"])


def _skip_without_postgresql():
    try:
        Postgresql().remove()
    except NotHereError as error:
        pytest.skip(str(error))
