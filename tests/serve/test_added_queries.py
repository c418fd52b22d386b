"""Queries that are added to a flow by its settings."""

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("lark")

from headwater import Flow, col, engine, io
from headwater.errors import FlowError, HeadwaterError, RunError
from headwater.serve.added_queries import add_to, check_name, toml_of, with_queries
from headwater.serve.settings import AddedQuery, read_settings


@given(st.text(), st.text(), st.text())
def test_whatever_a_query_says_is_read_back_as_it_was(query, output, step):
    try:
        (query + output + step).encode()
    except UnicodeEncodeError:
        return  # no text that anybody could send
    found = tomllib.loads(toml_of("low", AddedQuery(query, output, step)))["queries"]["low"]
    assert found["query"].strip("\n") == query.strip("\n")
    assert (found["output"], found.get("step", "")) == (output, step)


def test_settings_keep_all_else_that_is_in_them(tmp_path):
    path = tmp_path / "levels.toml"
    path.write_text('# how it runs\npromise = "100/s"\n[options]\nworkers = 1')
    path.chmod(0o640)
    add_to(path, "low", AddedQuery("from levels select tank", "low.jsonl"))
    add_to(path, "high", AddedQuery("from levels select tank", "high.jsonl", "ten seconds"))
    settings = read_settings(path)
    assert path.read_text().startswith("# how it runs\n")
    assert (settings.promise, settings.options, list(settings.queries)) == ("100/s", {"workers": 1}, ["low", "high"])
    assert (path.stat().st_mode & 0o777, [each.name for each in tmp_path.iterdir()]) == (0o640, ["levels.toml"])
    with pytest.raises(RunError, match="already"):
        add_to(path, "low", AddedQuery("from levels select height", "low.jsonl"))


@pytest.mark.parametrize("name", ["", "a b", "a.b", "ä", "1a", "a" * 41, "a]\nflow = 'x'\n[b", "../low"])
def test_a_name_that_would_be_something_else_is_refused(name):
    with pytest.raises(RunError, match="a query is named by a word"):
        check_name(name)


def test_a_flow_answers_what_was_added_by_the_name_of_a_step_or_by_the_word_for_it(tmp_path):
    flow = Flow("levels")
    rows = [{"tank": "a", "height": float(n)} for n in range(10)]
    levels = flow.read("levels", io.Items(rows))
    levels.filter("sound ones", col.height > 4).write("out", io.Discard())
    low = AddedQuery("from levels[height < 2] select height", str(tmp_path / "low.jsonl"))
    high = AddedQuery("from stream[height > 8] select height", str(tmp_path / "high.jsonl"), "sound ones")
    with_queries(flow, {"low": low, "high": high})
    engine.run(flow)
    assert (tmp_path / "low.jsonl").read_text().splitlines() == ['{"height":0.0}', '{"height":1.0}']
    assert (tmp_path / "high.jsonl").read_text().splitlines() == ['{"height":9.0}']
    with pytest.raises(FlowError, match="did you mean 'sound ones'"):
        with_queries(flow, {"more": AddedQuery("from stream select height", "x", "sound one")})
    with pytest.raises(HeadwaterError, match="heigth"):
        with_queries(flow, {"wrong": AddedQuery("from levels select heigth", "x")})
