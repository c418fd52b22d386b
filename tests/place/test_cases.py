"""The published cases: generators, the shipped replicas, and replica files."""

import json
from pathlib import Path

import numpy as np
import pytest

from headwater import Flow, col, io
from headwater import net as nets
from headwater.errors import PlacementError
from headwater.place import Budget, violations
from headwater.place.from_flow import problem_of
from headwater.place.score import score
from headwater_bench.cases import ghosh, replica, veith

SHARED = Path(__file__).parents[3] / "shared" / "data" / "placement" / "cep_replicas.json"


def test_there_are_13_graphs_of_the_published_sizes_and_each_is_connected():
    graphs = veith.graphs()
    assert [len(g.stateful) for g in graphs] == [5, 6, 7, 8, 9, *[25] * 7, 50]
    for g in graphs:
        n = len(g.stateful)
        assert set(range(n)) == set(g.stream_from.tolist()) | set(g.stream_to.tolist())
        assert (g.stream_from < g.stream_to).all()
        assert np.bincount(g.stream_from).max() <= 5
        assert set(range(g.sources)).isdisjoint(g.stream_to.tolist())
        if n >= 6:
            assert len(g.sinks) >= 2
            assert np.bincount(g.stream_from).max() >= 2
        assert g.critical_sink in g.sinks


def test_a_setting_is_drawn_within_the_published_ranges():
    reading, shape = veith.preset("veith-paper"), veith.graph(25, 3)
    drawn = veith.setting(shape, 1, reading)
    assert 1_000 <= drawn.cpu.min() <= drawn.cpu.max() <= 10_000
    assert 0.1 <= drawn.selectivity.min() <= drawn.selectivity.max() <= 1
    assert 100 <= drawn.source_bytes.min() <= drawn.source_bytes.max() <= 2_500
    assert ((drawn.window > 0) == shape.stateful).all()
    again = veith.setting(shape, 1, reading)
    assert np.array_equal(drawn.cpu, again.cpu)


def test_a_merge_has_the_rate_weighted_mean_of_its_inputs_sizes():
    shape = veith.Graph(2, np.array([0, 1]), np.array([2, 2]), np.ones(2), np.zeros(3, bool), 2)
    drawn = veith.Setting(
        np.ones(3),
        np.ones(3),
        np.ones(3),
        np.ones(3),
        np.array([1_000.0, 3_000.0]),
        np.array([100.0, 500.0]),
        np.zeros(3),
    )
    step_hz, _, _, step_bytes = veith.rates(shape, drawn)
    assert step_hz[2] == 4_000
    assert step_bytes[2] == (1_000 * 100 + 3_000 * 500) / 4_000


def test_the_fitted_preset_leaves_every_source_a_fifth_of_its_link():
    reading = veith.preset("veith")
    for shape in veith.graphs()[:6]:
        drawn = veith.setting(shape, 2, reading)
        _, stream_hz, stream_bytes, _ = veith.rates(shape, drawn)
        leaving = np.bincount(shape.stream_from, stream_hz * stream_bytes * 8, len(shape.stateful))
        assert (leaving[: shape.sources] <= 80e6).all()


def test_an_unknown_preset_suggests_a_known_one():
    with pytest.raises(PlacementError, match="no preset 'vieth'; did you mean 'veith'"):
        veith.preset("vieth")


def test_the_shipped_replicas_match_their_rows_but_for_the_impossible_ones():
    dags = {dag.name: dag for dag in replica.shipped()}
    assert set(dags) == set(replica.ROWS)
    assert len(dags) == 45
    off = []
    for name, row in replica.ROWS.items():
        dag = dags[name]
        kinds = [ghosh.QUERIES[q].kind for q in dag.queries if q]
        assert (dag.sources, dag.sinks) == (row.sources, row.sinks)
        assert tuple(kinds.count(k) for k in replica.KINDS) == row.kinds
        into, out = ghosh.rates(dag, float(row.sources))
        busiest, total = into[dag.sources :].max(), out[len(out) - dag.sinks :].sum()
        if abs(busiest / row.busiest - 1) > 0.04 or abs(total / row.output - 1) > 0.04:
            off.append(name)
    assert set(off) <= {"6_1_1", "6_1_2", "6_1_3", "10_4_3"}


def test_fitting_a_row_again_gives_the_shipped_dataflow():
    row = replica.ROWS["4_1_3"]
    again, shipped = replica.fit(row, seed=17), next(d for d in replica.shipped() if d.name == "4_1_3")
    assert again.edges == shipped.edges
    assert again.queries == shipped.queries


def test_rates_double_where_two_paths_meet():
    dag = ghosh.sampled("d", 1, 1, (None, "Fil 1.0", "Fil 0.5", "Fil 1.0"), ((0, 1), (0, 2), (1, 3), (2, 3)), seed=0)
    into, out = ghosh.rates(dag, 1000.0)
    assert into.tolist() == [1000, 1000, 1000, 1500]
    assert out[2] == 500


def test_the_papers_table_serves_as_a_profile_of_any_flow():
    flow = Flow("tanks")
    flow.read("levels", io.Items([], {"height": float})).filter("low", col.height < 9).write("alarms", io.Discard())
    table = ghosh.profiles({"levels": "Fil 1.0", "low": "Fil 0.5", "alarms": "Fil 1.0"})
    asked = problem_of(flow, nets.pis_and_vm(3), table, 1000.0)
    low = asked.step("low")
    assert asked.service_s[low].tolist() == pytest.approx([1 / 117_150, 1 / 385_952])
    assert asked.rate_hz[asked.step("alarms")] == 500
    with pytest.raises(PlacementError, match=r"no query 'Fil 0\.6' in the table; did you mean 'Fil 0\.5'"):
        ghosh.profiles({"low": "Fil 0.6"})


def test_energy_never_binds_before_the_rate_does():
    for query in ghosh.QUERIES.values():
        if query.pi_ma < 358:
            assert query.pi_ma / query.peak_pi_hz * query.peak_pi_hz < 358.3


def test_a_replica_file_survives_writing(tmp_path):
    dags = [ghosh.draw(6, 1, seed=s) for s in range(3)]
    ghosh.write(dags, tmp_path / "r.json")
    back = ghosh.read(tmp_path / "r.json")
    assert [d.edges for d in back] == [d.edges for d in dags]
    assert np.array_equal(back[1].wan_s, dags[1].wan_s)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda row: row.pop("edges"), "lacks a field"),
        (lambda row: row.update(queries=[None, "Foo", "Foo", "Foo"]), "unknown query 'Foo'"),
        (lambda row: row.update(edges=[[3, 0]] * len(row["edges"])), "must lead to a later vertex"),
        (lambda row: row.update(lam_pi_s=[1.0]), "lam_pi_s must have 4 numbers"),
    ],
)
def test_a_broken_replica_file_says_what_is_wrong(tmp_path, change, message):
    path = tmp_path / "r.json"
    ghosh.write([ghosh.draw(4, 1, seed=1)], path)
    rows = json.loads(path.read_text())
    change(rows[0])
    path.write_text(json.dumps(rows))
    with pytest.raises(PlacementError, match=message):
        ghosh.read(path)


@pytest.mark.parametrize("text", ["{", '{"a": 1}'])
def test_a_file_that_holds_no_replicas_is_named(tmp_path, text):
    path = tmp_path / "r.json"
    path.write_text(text)
    with pytest.raises(PlacementError, match=r"r\.json"):
        ghosh.read(path)


@pytest.mark.skipif(not SHARED.exists(), reason="the shared replicas are not here")
def test_known_optima_are_found_again():
    from headwater.place import exact_latency

    rows = {row["id"]: row for row in json.loads(SHARED.read_text())}
    for dag in ghosh.read(SHARED):
        known = rows[dag.name].get("opt", {})
        if len(dag.queries) > 20:
            continue
        for setting, answer in known.items():
            rate, resources = setting.split("_")
            problem = ghosh.problem(dag, float(rate), resources)
            if answer["latency_s"] is not None:
                device = np.array(answer["placement"])
                assert violations(problem, device.tolist()) == []
                assert score(problem, device).critical == pytest.approx(answer["latency_s"], rel=1e-12)
            found = exact_latency.solve(problem, Budget(time_s=20))
            assert found.status == answer["status"].lower()
            if found.device is not None:
                assert found.value == pytest.approx(answer["latency_s"], abs=1e-8)
