"""What the experiment that kills runs on Spark makes of what it finds; the runs themselves are stood in for."""

import json
from collections import Counter
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

pytest.importorskip("pyspark")

from headwater import io
from headwater_bench.experiments import spark_kills as bench
from headwater_bench.riot.city import CityStream
from headwater_bench.riot.generate import messages as generated

MESSAGES = 20


class KillsMade:
    """Stands for kills that were made."""

    def __init__(self, *given):
        self.kills = Counter()

    def kill(self, wanted):
        self.kills["driver"] = wanted


@pytest.fixture
def runs(monkeypatch):
    """Stand in for servers and kills; what the topic and the table hold is what the engine gives, changed by `change`."""
    change = {"kafka": lambda rows: rows, "delta": lambda rows: rows}
    undisturbed, sunk = bench._undisturbed, {}

    @contextmanager
    def server(*given, **options):
        yield SimpleNamespace(url="spark://there:7077")

    @contextmanager
    def fed(brokers, path):
        city = CityStream(seed=1, sensors=90)
        texts = generated(city, 0, MESSAGES).tolist()
        path.write_text("".join(json.dumps({"msg": n, "message": text}) + "\n" for n, text in enumerate(texts)))
        yield SimpleNamespace(sent=MESSAGES)

    def whole(folder):
        sunk.update(undisturbed(folder))
        return dict(sunk)

    monkeypatch.setattr("headwater_bench.servers.kafka.broker", server)
    monkeypatch.setattr(bench, "standalone", server)
    monkeypatch.setattr(bench, "make_topic", lambda *given: None)
    monkeypatch.setattr(bench, "Feed", fed)
    monkeypatch.setattr(bench, "Killing", KillsMade)
    monkeypatch.setattr(bench.Job, "run_to_the_end", lambda job, master: None)
    monkeypatch.setattr(bench, "_undisturbed", whole)
    monkeypatch.setattr(bench, "_in_kafka", lambda brokers, whole: change["kafka"](Counter(whole)))
    monkeypatch.setattr(bench, "_in_delta", lambda folder: change["delta"](Counter(sunk["delta"])))
    return change


def one_less(rows):
    return rows - Counter(list(rows)[:1])


def one_more(rows):
    return rows + Counter(list(rows)[:1])


def test_a_run_of_which_nothing_is_lost_or_twice(runs, tmp_path):
    pytest.importorskip("confluent_kafka")
    answer = bench.run(kills=3, output=tmp_path)
    assert (answer["kills"], answer["messages"], answer["lost"], answer["twice"]) == (3, MESSAGES, 0, 0)
    assert 0 < answer["results"] <= MESSAGES
    assert {sink: found["holds"] for sink, found in answer["sinks"].items()} == dict.fromkeys(
        ("kafka", "delta"), "exactly once"
    )
    assert "exactly once" in bench.table(answer)
    assert json.loads((tmp_path / "spark-kills.json").read_text())["lost"] == 0


@pytest.mark.parametrize("sink", ["kafka", "delta"])
@pytest.mark.parametrize("change", [one_less, one_more])
def test_what_is_lost_or_twice_where_it_must_not_be_is_an_error(runs, sink, change):
    pytest.importorskip("confluent_kafka")
    runs[sink] = change
    with pytest.raises(AssertionError, match="records are not where they belong"):
        bench.run(kills=1)


def test_what_is_twice_by_sparks_own_connector_is_told(runs):
    runs["kafka"] = one_more
    answer = bench.run(kills=1, connector=True)
    assert answer["sinks"]["kafka"] == {"holds": "at least once", "lost": 0, "twice": 1}


def test_the_flow_goes_from_a_topic_to_a_topic_and_a_table(tmp_path):
    flow = bench.flow_of("h:1", tmp_path, connector=False)
    assert isinstance(flow.steps["messages"].kind.source, io.Kafka)
    assert isinstance(flow.steps["publish"].kind.sink, io.Kafka)
    assert isinstance(flow.steps["insert"].kind.sink, io.SparkTable)
