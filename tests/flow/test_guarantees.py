"""What holds from end to end, said by declarations alone: nothing is opened."""

import pytest

from headwater import Flow, Tumbling, agg, col, io
from headwater.flow.guarantees import guarantees
from headwater.operators import Operator

SCHEMA = {"id": str, "x": float, "at": "time"}


class Own:
    """A source that says nothing of itself."""

    schema = io.Items([], SCHEMA).schema

    def open(self, reject):
        raise AssertionError("it was opened")


class Overwriting(io.Discard):
    delivery = "idempotent"


SOURCES = {
    "position": io.Items([], SCHEMA),
    "sender": io.Mqtt("localhost", "t", SCHEMA, qos=1),
    "beginning": Own(),
    "never": io.Mqtt("localhost", "t", SCHEMA, qos=0),
}
SINKS = {"transactional": io.Sqlite("absent.db", "t"), "idempotent": Overwriting(), "neither": io.Console()}


def through(source, sink, *, counted=False):
    flow = Flow("f")
    stream = flow.read("in", source).filter("some", col.x > 0)
    if counted:
        stream = stream.event_time("time", "at").key_by("id").window("count", Tumbling("1 s"), n=agg.count())
    stream.write("out", sink)
    [found] = guarantees(flow)
    return found


@pytest.mark.parametrize(
    ("resume", "delivery", "holds"),
    [
        ("position", "transactional", "exactly once"),
        ("position", "idempotent", "exactly once"),
        ("position", "neither", "at least once"),
        ("sender", "transactional", "at least once"),
        ("sender", "idempotent", "exactly once"),
        ("sender", "neither", "at least once"),
        ("beginning", "transactional", "at least once"),
        ("beginning", "neither", "at least once"),
        ("never", "transactional", "at most once"),
        ("never", "idempotent", "at most once"),
        ("never", "neither", "neither"),
    ],
)
def test_what_holds_is_what_the_weakest_link_allows(resume, delivery, holds):
    found = through(SOURCES[resume], SINKS[delivery])
    assert (found.holds, found.resumes, found.delivery) == (holds, {"in": resume}, delivery)
    assert bool(found.weakest) == (holds != "exactly once")


def test_what_was_counted_twice_does_not_go_away_by_overwriting():
    assert through(SOURCES["sender"], SINKS["idempotent"]).holds == "exactly once"
    assert through(SOURCES["sender"], SINKS["idempotent"], counted=True).holds == "at least once"
    assert through(SOURCES["position"], SINKS["idempotent"], counted=True).holds == "exactly once"


def test_a_source_that_recognizes_what_is_sent_again_has_it_once():
    source = io.Mqtt("localhost", "t", SCHEMA, qos=2)
    assert through(source, SINKS["transactional"], counted=True).holds == "exactly once"
    assert through(source, SINKS["neither"]).holds == "at least once"


def test_each_sink_has_its_own_sources_and_links_are_named():
    flow = Flow("two")
    first, second = flow.read("list", SOURCES["position"]), flow.read("broker", SOURCES["never"])
    first.write("alone", io.JsonLines("alone.jsonl"))
    first.union("both", second).write("shown", io.Console())
    alone, shown = guarantees(flow)
    assert (alone.holds, alone.resumes) == ("exactly once", {"list": "position"})
    assert shown.resumes == {"list": "position", "broker": "never"}
    assert str(shown) == (
        "shown: neither, since source 'broker' (Mqtt(mqtt://localhost:1883/t)): what comes while it is away is gone; "
        "sink 'shown' (Console(console)): what comes again is there twice"
    )
    assert shown.to_json()["sources"] == {"list": "position", "broker": "never"}


def test_dead_letters_come_from_every_source():
    flow = Flow("letters")
    flow.read("list", SOURCES["position"]).write("out", io.JsonLines("out.jsonl"))
    flow.read("broker", SOURCES["never"]).write("other", io.JsonLines("other.jsonl"))
    flow.dead_letters.write("dead", io.JsonLines("dead.jsonl"))
    assert [found.holds for found in guarantees(flow)] == ["exactly once", "at most once", "at most once"]


class Forgetful(Operator):
    stateless = False

    def process(self, batch, port):
        return batch


def test_state_that_cannot_be_saved_is_a_weak_link():
    flow = Flow("f")
    flow.read("in", SOURCES["position"]).apply("memory", Forgetful).write("out", SINKS["transactional"])
    [found] = guarantees(flow)
    assert found.holds == "at most once"
    assert found.weakest == ("step 'memory' keeps state that it cannot save",)
