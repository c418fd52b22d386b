"""The comparison with other systems, without them: how a rate is sought, and what counts as the same output."""

from __future__ import annotations

import importlib
import json
import sys

import pytest

from headwater.data.column import Text
from headwater.errors import RunError
from headwater_bench.experiments import peers
from headwater_bench.experiments.peers_equal import differences, read, rows_of


def script(name):
    """Import one of the peers' scripts, which lie outside the package."""
    sys.path.insert(0, str(peers.scripts()))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.pop(0)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """Return the messages of the comparison and the results of our own flows for the first of them."""
    folder = tmp_path_factory.mktemp("peers")
    made = peers._prepared(folder)[:1200]
    notes = {sensor: tuple(words) for sensor, words in json.loads((folder / "notes").read_text()).items()}
    results = {}
    for flow in peers.FLOWS:
        script("headwater_flows").check(flow, Text.of_bytes(made), notes, folder / flow)
        results[flow] = read(folder / flow)
    return made, results


def plain_results(flow, messages, notes):
    """Return what the peers' own functions make of messages, one after the other, without any system round them."""
    tasks, by_sensor = script("tasks"), {}

    def of(sensor, make):
        return by_sensor.setdefault((sensor, make), make())

    for number, message in enumerate(messages):
        row = tasks.parse((number, message))
        if flow == "etl":
            filled = of(row[2], tasks.Interpolation).fill(tasks.Known(notes).ask(tasks.in_range(row)))
            annotated = tasks.annotate(filled, notes)
            yield from (list(annotated), list(tasks.senml(annotated)))
        elif flow == "stats":
            line = of(row[2], tasks.Regression).predict(of(row[2], tasks.Kalman).smooth(row))
            made = [line, of(row[2], tasks.Moment).estimate(row), of("all", tasks.Distinct).count(row)]
            yield from (list(result) for result in made if result is not None)
        else:
            forecast = of(row[2], tasks.Average).add(tasks.regress(row))
            yield from (list(tasks.classify(row)), list(of("all", tasks.Error).estimate(forecast)))


@pytest.mark.parametrize("flow", peers.FLOWS)
def test_the_tasks_that_the_peers_run_give_what_our_flows_give(prepared, flow):
    messages, ours = prepared
    notes = {row[2]: tuple(row[10:]) for row in ours["etl"] if len(row) > 2}
    theirs = list(plain_results(flow, messages, notes))
    assert differences(flow, messages, ours[flow], theirs) == []


def plain_tall_results(flow, messages, notes):
    """Return the same with a record for each observation, as the peers' tall flows have it."""
    tasks, tall, states = script("tasks"), script("tall"), {}

    def of(key, make):
        return states.setdefault((key, make), make())

    for number, message in enumerate(messages):
        for record in tall.observations(tasks.parse((number, message))):
            key = tall.key(record)
            if flow == "etl":
                filled = of(key, tall.Interpolation).fill(tasks.Known(notes).ask(tall.in_range(record)))
                row = of(record[2], tall.Join).add(filled)
                if row is not None:
                    annotated = tasks.annotate(row, notes)
                    yield from (list(annotated), list(tasks.senml(annotated)))
            else:
                line = of(key, tall.Regression).predict(of(key, tall.Kalman).smooth(record))
                made = [line, of(key, tall.Moment).estimate(record), of(record[5], tall.Distinct).count(record)]
                yield from (list(result) for result in made if result is not None)


@pytest.mark.parametrize("flow", peers.TALL_FLOWS)
def test_so_do_those_with_a_record_for_each_observation(prepared, flow):
    messages, ours = prepared
    notes = {row[2]: tuple(row[10:]) for row in ours["etl"] if len(row) > 2}
    theirs = rows_of(flow, list(plain_tall_results(flow, messages, notes)))
    assert differences(flow, messages, ours[flow], theirs) == []


@pytest.mark.parametrize("flow", peers.FLOWS)
def test_a_result_that_is_missing_or_changed_is_told(prepared, flow):
    messages, ours = prepared
    results = ours[flow]
    assert "came out of one only" in differences(flow, messages, results, results[1:])[0]
    for place in range(0, len(results), len(results) // 4 - 1):
        changed = [list(result) for result in results]
        row = changed[place]
        if flow == "etl":
            row[-1 if len(row) == 2 else 7] = row[-1].replace('"0.', '"9.') if len(row) == 2 else row[7] + 1
        elif flow == "stats":
            row[3] = "#".join("12345" for _ in row[3].split("#"))
        else:
            row[3] = row[3] * 1.01 + 1
        if changed != results and not (flow == "stats" and row[2] == "SOM"):
            assert differences(flow, messages, results, changed), row


def test_a_moment_is_compared_until_a_random_value_had_to_go(prepared):
    messages, ours = prepared
    changed = [[*row[:3], "1", *row[4:]] if row[2] == "SOM" else row for row in ours["stats"]]
    told = differences("stats", messages, ours["stats"], changed)
    assert told
    assert all("SOM of temperature" in difference for difference in told)


@pytest.mark.parametrize("capacity", [3, 90, 1000, 77_777])
def test_the_search_ends_close_below_what_is_kept(capacity):
    search, tried = peers.Search(1000, step=1.1), 0
    while search.rate is not None:
        search.tell(search.rate <= capacity)
        tried += 1
    assert tried < 20
    assert capacity / 1.1 <= search.kept <= capacity or capacity < 1000 / 200


@pytest.mark.parametrize("flow", peers.TALL_FLOWS)
def test_the_form_with_a_record_for_each_observation_is_measured_too(tmp_path, flow):
    texts = Text.of_bytes(peers._prepared(tmp_path))
    notes = {sensor: tuple(words) for sensor, words in json.loads((tmp_path / "notes").read_text()).items()}
    found = script("headwater_flows").measure(flow, texts, notes, 500.0, 0.5, tall=True)
    assert found["sent"] > 0


def test_a_rate_counts_when_it_was_kept_and_gains_are_ratios():
    def case(system, rate, kept):
        return {"system": system, "rate": rate, "kept": kept, "cpu_us": 1.0}

    cases = [case("headwater", 400.0, True), case("headwater", 800.0, False), case("bytewax", 40.0, True)]
    told = peers._rates([*cases, case("pathway", 10.0, False)])
    assert (told["rate"], told["bytewax_rate"], told["pathway_rate"]) == (400.0, 40.0, 0.0)
    assert (told["over_bytewax"], told["over_pathway"]) == (10.0, None)
    assert "tall_rate" not in told
    told = peers._rates([*cases, case("headwater tall", 200.0, True), case("bytewax tall", 10.0, True)])
    assert (told["tall_rate"], told["tall_over_bytewax"], told["rate"]) == (200.0, 5.0, 400.0)
    assert (told["bytewax_tall_rate"], told["tall_over_bytewax_tall"]) == (10.0, 20.0)


def test_a_rate_counts_only_if_every_lower_one_that_was_tried_is_kept():
    def tried(*rates):
        return [{"rate": float(abs(rate)), "kept": rate > 0} for rate in rates]

    assert peers.sustained(tried(100, 200, -400, 300)) == 300
    assert peers.sustained(tried(100, -200, 200, 400)) == 400  # one bad moment
    assert peers.sustained(tried(100, -200, -200, 400)) == 100
    assert peers.sustained(tried(-100, 200)) == 0


def test_peers_that_cannot_be_installed_say_so_and_where(tmp_path, monkeypatch):
    def fast(home, **options):  # an environment with our own pip takes no time to make, and pip refuses all the same
        (home / "bin").mkdir(parents=True)
        (home / "bin" / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        (home / "bin" / "python").chmod(0o755)

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "requirements.txt").write_text("./no-such-package\n")
    monkeypatch.setattr(peers, "scripts", lambda: tmp_path)
    monkeypatch.setattr("venv.create", fast)
    with pytest.raises(RunError, match=r"cannot install the peers into .*peers: pip says .*needs a package registry"):
        peers.installed()
    assert not (peers.environment() / "ready.txt").exists()


def test_an_environment_that_cannot_be_made_is_told(tmp_path, monkeypatch):
    (tmp_path / "headwater").write_text("a file where a folder should be")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(RunError, match="cannot make an environment for the peers in"):
        peers.installed()


def test_an_environment_that_is_ready_is_used_as_it_is(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    peers.environment().mkdir(parents=True)
    (peers.environment() / "ready.txt").write_text((peers.scripts() / "requirements.txt").read_text())
    assert peers.installed() == peers.environment() / "bin" / "python"


def test_an_unknown_flow_is_named():
    with pytest.raises(RunError, match=r"there is no flow 'elt' to compare; .*did you mean 'etl'"):
        peers.run(flows=["elt"])


def test_the_table_tells_rates_goals_steps_and_forms():
    flow = {"rate": 400.0, "bytewax_rate": 40.0, "pathway_rate": 20.0, "over_bytewax": 10.0, "over_pathway": 20.0}
    flow |= {"outputs_equal": False, "differences": {"bytewax": ["message 3: 1 and 2"], "pathway": []}}
    flow |= {"steps": {"headwater": {"parse": 2e6}, "peers": {"parse": 1e5}}, "cpu_us": {"headwater": 1.5}}
    told = peers.table({"etl": flow, "machine": "a machine", "forms": list(peers.FORMS)})
    assert "headwater 400  bytewax 40  pathway 20" in told
    assert "10.0 x bytewax (goal 10)" in told
    assert "outputs DIFFER" in told
    assert "parse 2,000" in told
    assert "differs from bytewax: message 3: 1 and 2" in told
