from __future__ import annotations

import csv
from pathlib import Path

import pytest

from headwater import engine
from headwater.errors import RunError
from headwater_bench.experiments import riot
from headwater_bench.experiments.riot_figures import compared_at


@pytest.fixture(scope="module")
def result(tmp_path_factory) -> tuple[dict, Path]:
    folder = tmp_path_factory.mktemp("bench")
    answer = riot.run(
        quick=True,
        output=folder,
        flows=["pred", "train"],
        rates=[20, 40],
        takes=["all", "50"],
        seconds=0.2,
        repeats=1,
    )
    return answer, folder


def test_the_answer_has_the_keys_that_scripts_rely_on(result):
    answer, _ = result
    for flow in ("pred", "train"):
        assert set(answer[flow]["sustained"]) == {"threads", "longest_queue"}
        assert all(len(values) == 2 for values in answer[flow]["cv"].values())
        assert "longest_queue_over_threads" in answer[flow]
        assert set(answer[flow]["takes"]) == {"all", "50"}
    assert {"parse", "dtc", "mlr", "average", "error", "publish"} == set(answer["pred"]["step_cost_us"])


def test_every_case_is_written_and_drawn(result):
    answer, folder = result
    with (folder / "riot.csv").open() as lines:
        rows = list(csv.DictReader(lines))
    assert len(rows) == len(answer["pred"]["cases"]) + len(answer["train"]["cases"])
    pictures = {path.name for path in folder.glob("*.png")}
    assert pictures == {"figure7.png", "figure8.png", "figure9-pred.png", "figure9-train.png", "figure11.png"}
    assert "longest queue / threads" in riot.table(answer)


def test_a_run_that_loses_a_record_does_not_count(tmp_path):
    bench = riot._Bench("pred", lambda name: None, tmp_path, wide=False)
    report = engine.run(bench.flow(500), seconds=0.2)
    bench.check(report)
    report.last.records_out["publish"] -= 1
    with pytest.raises(AssertionError, match="expected"):
        bench.check(report)


def test_an_unknown_flow_or_policy_is_named():
    with pytest.raises(RunError, match=r"there is no flow 'elt'; known are .*; did you mean 'etl'"):
        riot.run(flows=["elt"])
    with pytest.raises(RunError, match="there is no configuration 'fifo'"):
        riot.run(flows=["etl"], configs=["fifo"])


def test_latency_by_step_is_drawn_at_rates_that_both_runners_were_tried_at():
    def case(config, rate):
        return {"config": config, "offered_hz": rate, "take": "50"}

    cases = [*(case("threads", r) for r in (1, 2, 3)), *(case("longest_queue", r) for r in (1, 2, 3, 4, 4.5, 5))]
    assert compared_at(cases) == (["threads", "longest_queue"], [1, 2, 3])
    assert compared_at(cases[3:]) == (["longest_queue"], [1, 4, 5])
    assert compared_at([]) == ([], [])
