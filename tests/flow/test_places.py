"""Who owns a path: two steps of a flow do not write one place, nor one what the other reads, whatever it is called."""

import os
from dataclasses import dataclass
from typing import Any

import pytest

from headwater import Flow, engine, io
from headwater.errors import FlowError
from headwater.flow.places import Place

ROWS = [{"id": "a", "n": 1}, {"id": "b", "n": 2}]


def flow_of(*sinks, source=None):
    flow = Flow("places")
    stream = flow.read("in", source or io.Items(ROWS))
    for number, sink in enumerate(sinks):
        stream.write(f"out {number}", sink)
    return flow


FILES = [io.JsonLines, io.Csv, io.Parquet, io.ParquetTable, lambda path: io.Sqlite(path, "t")]
NAMES = ["a", "./a", "sub/../a", "link", "hard", "folder/a"]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    (tmp_path / "a").write_text("")
    os.symlink("a", "link")
    os.link("a", "hard")
    os.symlink(".", "folder")
    return tmp_path


@pytest.mark.parametrize("make", FILES)
@pytest.mark.parametrize("name", NAMES)
def test_two_sinks_on_one_path_are_refused_with_both_names(here, make, name):
    with pytest.raises(FlowError, match=r"step 'out 1' writes .*, which step 'out 0' \(from .*\) writes too.*union"):
        engine.run(flow_of(make("a"), make(here / name)))
    assert (here / "a").read_text() == ""


def test_a_path_that_is_not_there_yet_is_known_by_its_folder(here):
    with pytest.raises(FlowError, match="writes too"):
        engine.run(flow_of(io.Csv("sub/new/x"), io.JsonLines("folder/sub/./new/x")))


@pytest.mark.parametrize("write", [io.JsonLines, io.Csv, io.Parquet, lambda path: io.JsonLines(path, append=True)])
@pytest.mark.parametrize("name", NAMES)
def test_a_sink_on_its_own_sources_path_is_refused_and_the_file_is_whole(here, write, name):
    before = '{"id":"a","n":1}\n'
    (here / "a").write_text(before)
    for source in (io.JsonLines("a"), io.Replay(io.JsonLines("a"), rate=100, count=1)):
        with pytest.raises(
            FlowError, match=r"step 'out 0' writes .*, which step 'in' \(from .*\) reads.*another place"
        ):
            engine.run(flow_of(write(name), source=source))
    assert (here / "a").read_text() == before


def test_tables_of_one_database_are_places_of_their_own(here):
    engine.run(flow_of(io.Sqlite("b.db", "one"), io.Sqlite("b.db", "two")))
    kept = io.Collect()
    engine.run(flow_of(io.Sqlite("b.db", "three"), kept, source=io.Sqlite("b.db", "one")))
    assert kept.records == ROWS
    engine.run(flow_of(io.Sqlite("b.db", "one"), source=io.Sqlite("b.db", query="SELECT * FROM two")))
    for sink in (io.Sqlite("./b.db", "ONE"), io.JsonLines("b.db")):
        with pytest.raises(FlowError, match="which step 'in'"):
            engine.run(flow_of(sink, source=io.Sqlite("b.db", "one")))


def test_what_can_be_read_once_is_read_by_one_step(here):
    os.mkfifo("pipe")
    for path in ("pipe", "-"):
        source = io.JsonLines(path, {"n": int})
        flow = Flow("twice")
        flow.read("one", source).union("all", flow.read("two", source)).write("out", io.Discard())
        with pytest.raises(
            FlowError, match=r"step 'two' reads .*, which step 'one' .* reads too: each would get a part"
        ):
            flow.check()


def test_any_number_of_steps_read_a_file_and_write_what_is_nobodys(here):
    (here / "a").write_text('{"id":"a","n":1}\n')
    flow, kept = Flow("often"), io.Collect()
    both = flow.read("one", io.JsonLines("a")).union("all", flow.read("two", io.JsonLines("a")))
    both.write("kept", kept)
    both.write("again", kept)
    both.write("gone", io.Discard())
    engine.run(flow)
    assert len(kept.records) == 4


def test_standard_output_has_one_writer_and_is_not_standard_input():
    flow = flow_of(io.JsonLines("-"), source=io.JsonLines("-", {"n": int}))
    flow.check()
    with pytest.raises(FlowError, match="writes standard output, which step 'out 0'"):
        flow_of(io.JsonLines("-"), io.Csv("-")).check()


def test_the_same_client_id_twice_is_refused():
    schema = {"id": str, "n": int}
    source = io.Mqtt("mqtt://host/t?client_id=gate", schema=schema)
    with pytest.raises(FlowError, match=r"client id 'gate' .* lets in one"):
        flow_of(io.Mqtt("host", "u", client_id="gate"), source=source).check()
    flow_of(io.Mqtt("host", "u", client_id="other"), io.Mqtt("host", "u"), source=source).check()
    twice = Flow("twice")
    kept = [twice.read(name, io.Mqtt("host", "t", schema, qos=1)) for name in ("one", "two")]
    kept[0].union("all", kept[1]).write("out", io.Discard())
    with pytest.raises(FlowError, match="step 'two' reads client id"):
        twice.check()


@dataclass
class Own:
    """A user's sink that says how many writers it takes."""

    writers: str = "one"
    opened: int = 0
    written: int = 0

    def open(self, schema):
        self.opened += 1
        return self

    def write(self, batch):
        self.written += len(batch)

    def close(self):
        pass


@pytest.mark.parametrize(("sink", "opened"), [(Own(), 1), (Own(writers="many"), 3)])
def test_a_sink_has_one_writer_unless_it_takes_many(sink, opened):
    flow = Flow("parallel")
    flow.read("in", io.Items(ROWS)).write("out", sink, parallel=3)
    engine.run(flow)
    assert (sink.opened, sink.written) == (opened, 2)


def test_an_endpoint_that_claims_in_words_of_its_own_is_left_alone():
    sink: Any = Own()
    sink.claims = "nothing to do with places"
    flow_of(sink, sink).check()
    assert not Place("a", 1, part="x").overlaps(Place("a", 1, part="y"))
