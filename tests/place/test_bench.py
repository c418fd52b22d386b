"""The experiments keep the keys that scripts rely on, and check themselves."""

import csv
import json

import numpy as np
import pytest

from headwater.errors import RunError
from headwater_bench.cases import ghosh
from headwater_bench.experiments import aels, aels_played, cep_placement


@pytest.fixture(scope="module")
def small_aels(tmp_path_factory):
    output = tmp_path_factory.mktemp("aels")
    answer = aels.run(quick=True, output=output, sizes=((10, 10, 10), (10, 20, 30)), settings=1, time_s=5.0)
    return answer, output


@pytest.mark.thorough
def test_aels_has_its_keys_and_no_time_violation(small_aels):
    answer, output = small_aels
    keys = {"runs", "over_600_s", "seconds_250500x50", "seconds_10m", "gain_over_cloud_only", "gain_over_tcep"}
    assert set(answer) >= keys | {"best_at_least_as_good"}
    assert answer["runs"] == 2 * 13 * 6
    assert answer["over_600_s"] == 0
    json.dumps(answer, allow_nan=False)
    drawn = {f"figure{number}.png" for number in (5, 6)}
    assert {p.name for p in output.iterdir()} == {"aels.csv", "aels.txt", *drawn}


@pytest.mark.thorough
def test_aels_finds_the_gains_of_the_paper_and_best_is_never_worse(small_aels):
    answer, _ = small_aels
    assert answer["best_at_least_as_good"] == 1.0
    assert answer["gain_over_cloud_only"] > 0.2
    assert answer["gain_over_tcep"] > 0.2
    assert all(row["status"] == "optimal" for row in answer["optimality"])
    assert all(row[name] is None or row[name] > -1e-6 for row in answer["optimality"] for name in aels.STRATEGIES)


@pytest.mark.thorough
def test_every_strategys_placement_is_played_and_comes_out_as_expected(small_aels):
    answer, output = small_aels
    with (output / "aels.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["status"] != "infeasible"]
    assert {row["strategy"] for row in rows} == {*aels.STRATEGIES, "best"}
    assert all(float(row["played_for_s"]) == 5.0 and float(row["played_s"]) > 0 for row in rows)
    found = answer["played"]
    assert found["placements"] == len(rows)
    assert found["played_over_expected"] == pytest.approx(1, abs=0.01)
    assert found["lower_than"]["tcep"]["regular"] > 0.2
    assert "placements played" in aels.table(answer)


def test_latency_that_is_not_what_the_model_expects_is_an_error():
    row = {"net": "regular", "strategy": "aels", "played_s": 1.1, "expected_s": 1.0}
    with pytest.raises(AssertionError, match="played over expected"):
        aels_played.summary([row])
    with pytest.raises(RunError, match="more than 0 s"):
        aels.run(quick=True, time_s=0.0)


@pytest.mark.thorough
def test_what_is_predicted_is_what_is_simulated(small_aels):
    answer, _ = small_aels
    assert answer["simulated"]["cases"] == 26
    assert answer["simulated"]["mean_ratio"] == pytest.approx(1, abs=0.01)


@pytest.mark.thorough
def test_cep_placement_has_its_keys_and_proves_every_case(tmp_path):
    ghosh.write([ghosh.draw(6, 1, seed=1), ghosh.draw(8, 1, seed=1)], tmp_path / "two.json")
    answer = cep_placement.run(quick=True, output=tmp_path / "out", replicas=tmp_path / "two.json")
    assert set(answer) >= {"cases", "proven", "max_exact_s", "ga_mean_s", "table_iv"}
    assert answer["cases"] == answer["proven"] == 8
    assert answer["brute_equals_exact"]
    assert set(answer["table_iv"]) == set(cep_placement.PAPER_TABLE_IV)
    assert answer["complexity"]["brute"]["cases"] == answer["complexity"]["ga"]["cases"] == 8
    assert answer["complexity"]["brute"]["ns_per_step"] > 0
    assert (tmp_path / "out" / "cep-complexity.png").exists()
    json.dumps(answer, allow_nan=False)
    assert {p.suffix for p in (tmp_path / "out").iterdir()} == {".csv", ".txt", ".png"}


def test_a_deviation_is_relative_to_the_better_one_and_leaves_invalid_cases_out():
    rows = [{"a": 1.0, "b": 1.1}, {"a": 3.0, "b": 3.0}, {"a": 2.0, "b": np.inf}]
    assert cep_placement._deviation(rows, "a", "b") == pytest.approx(2.5)
    assert cep_placement._deviation(rows[2:], "a", "b") is None
