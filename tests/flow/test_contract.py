"""What people write for a rate and a latency is read as they mean it, or told apart with the likely slip."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater import Contract, Flow, io
from headwater.errors import FlowError
from headwater.flow.contract import rate_hz
from headwater.flow.steps import Write


def tanks() -> Flow:
    flow = Flow("tanks")
    flow.read("levels", io.Items([{"height": 1.0}])).write("out", io.Discard())
    return flow


@pytest.mark.parametrize(
    ("text", "hz"),
    [("20 000/s", 2e4), ("20,000 / s", 2e4), ("20_000/sec", 2e4), ("20k/s", 2e4), ("1.5 M/s", 1.5e6), ("90/min", 1.5)],
)
def test_a_rate_is_read_however_it_is_written(text, hz):
    assert rate_hz(text) == hz


@given(st.integers(1, 10**9))
def test_a_whole_rate_reads_back_with_any_grouping(n):
    assert rate_hz(f"{n:,}/s") == rate_hz(f"{n:_}/s") == rate_hz(f"{n:,}/s".replace(",", " ")) == n


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("20000", "did you mean '20000/s'"),
        ("fast", "such as '20 000/s'"),
        ("20000/fortnight", "such as '20 000/s'"),
        ("-3/s", "expected records by time"),
        (None, "expected records by time"),
    ],
)
def test_what_is_no_rate_says_what_was_expected(text, said):
    with pytest.raises(FlowError, match=said):
        Contract.of(text)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"rate": 0}, "rate_hz must be above 0"),
        ({"rate": "5/s", "latency": 50}, "did you mean '50 s'"),
        ({"rate": "5/s", "latency": "0 ms"}, "latency_s must be above 0"),
        ({"rate": "5/s", "burst": -1}, "burst must be above 0"),
        ({"rate": "5/s", "above": "shedd"}, "did you mean 'shed'"),
    ],
)
def test_what_cannot_be_promised_is_told_while_building(fields, said):
    with pytest.raises(FlowError, match=said):
        tanks().contract(**fields)


def test_a_burst_is_what_comes_in_a_tenth_of_a_second_unless_said():
    assert Contract.of("20 000/s").burst_records == 2000
    assert Contract.of("20 000/s", burst=5).burst_records == 5


def test_a_flow_keeps_its_contract_when_its_sinks_are_replaced_and_describes_it():
    flow = tanks().contract("20 000/s", "50 ms").replaced({"out": Write(io.Collect())})
    assert flow.promised == Contract(20_000.0, 0.05)
    assert str(flow.promised) == "20 000/s within 50 ms"
    assert flow.to_json()["contract"] == {"rate_hz": 2e4, "latency_s": 0.05, "burst": None, "above": "best effort"}
    assert "contract" not in tanks().to_json()
