"""How the experiment about sites keeps its account: what was paid, what could have been, and which windows were kept."""

import json
import time

import numpy as np
import pytest

from headwater.cli.locate import find_flow
from headwater.data.batch import CREATED
from headwater.flow.contract import Contract
from headwater_bench.experiments.sites import decisions_on
from headwater_bench.sites.account import Moment, Output, compared, cost, least, messages_done, paid, windows_kept
from headwater_bench.sites.flows import RATES, Promised, write_net, write_program
from headwater_bench.sites.pauses import Span, pauses_of, waits_of
from headwater_bench.sites.picture import draw

NEEDED = {"etl": 0.2, "stats": 0.3, "pred": 0.1}
LENT = {"cloud": 1.0, "edge1": 0.6, "edge2": 0.3, "edge3": 0.1}
EVERYWHERE = frozenset(LENT)


def test_the_least_is_the_cheapest_way_that_fits():
    assert least(LENT, frozenset({"cloud"}), NEEDED) == pytest.approx(0.6)
    assert least(LENT, EVERYWHERE, NEEDED) == pytest.approx(0.6 * 0.25)
    assert least(LENT | {"edge1": 0.5}, EVERYWHERE, NEEDED) == pytest.approx(0.5 * 0.25 + 0.1 * 0.5)
    assert least(LENT | {"edge1": 0.3}, EVERYWHERE, NEEDED) == pytest.approx(0.3 * 0.25 + 0.3 * 0.5)


def test_a_flow_on_its_way_is_paid_for_where_it_was():
    at = dict.fromkeys(NEEDED, "cloud")
    moments = [
        Moment(0.0, at, LENT, frozenset({"cloud"})),
        Moment(10.0, at, LENT, EVERYWHERE),
        Moment(11.0, dict.fromkeys(NEEDED), LENT, EVERYWHERE),
        Moment(12.0, dict.fromkeys(NEEDED, "edge1"), LENT, EVERYWHERE),
        Moment(20.0, dict.fromkeys(NEEDED, "edge1"), LENT, EVERYWHERE),
    ]
    best = 10 * 0.6 + 10 * 0.15
    found = paid(moments, NEEDED)
    assert found.over_best == pytest.approx((12 * 0.6 + 8 * 0.15) / best)
    assert found.waiting == pytest.approx(0.45 / best)  # a second until it was decided
    assert found.moving == pytest.approx(0.45 / best)  # and one on the way
    assert cost(at, NEEDED) == pytest.approx(0.6)


@pytest.fixture
def flow(tmp_path):
    """Ten messages a second for ten seconds, two lines each."""
    (tmp_path / "began").write_text("1000.0")
    lines = "".join(json.dumps({"msg": n // 2, "k": n % 2}) + "\n" for n in range(200))
    (tmp_path / "undisturbed.jsonl").write_text(lines)
    return Promised("etl", tmp_path, Contract(10.0, 1.0), 0.1, 0.1)


def test_messages_are_as_old_as_they_have_been_due_whenever_they_are_read(tmp_path):
    source = find_flow(f"{write_program('stats', tmp_path / 'stats', 3.0)}:moved").steps["messages"].kind.source
    (tmp_path / "stats" / "began").write_text(repr(time.time() - 60.0))
    made_ns = source.open(None).read(100, 0.0).stamps[:, CREATED]
    assert np.allclose(np.diff(made_ns), 1e9 / RATES["stats"], atol=1000)
    assert time.time() - made_ns[0] / 1e9 >= 59.0


def test_a_window_is_kept_if_all_that_fell_due_in_it_came_in_time(flow):
    steady = Output(flow.folder / "moved.jsonl", points=[(1000 + s / 4, int(s / 4 * 20)) for s in range(60)])
    assert windows_kept(flow, steady, until_s=1010.0) == (8, 8)
    held = [(at_s, lines if at_s < 1003 or at_s >= 1006 else 60) for at_s, lines in steady.points]
    assert windows_kept(flow, Output(flow.folder / "moved.jsonl", points=held), until_s=1010.0) == (7, 8)


def test_what_is_lost_and_what_is_twice_is_counted(flow):
    lines = (flow.folder / "undisturbed.jsonl").read_text().splitlines(keepends=True)
    (flow.folder / "moved.jsonl").write_text("".join([*lines[:150], *lines[151:], lines[0]]))
    assert compared(flow) == (1, 1)


def test_the_one_figure_that_depends_on_what_came_first_is_left_out(flow):
    for name, error in (("moved", "null"), ("undisturbed", "0.5")):
        told = (f'{{"msg":1,"kind":"MLR","result":{error}}}\n', '{"msg":1,"kind":"DTC","result":1.0}\n')
        (flow.folder / f"{name}.jsonl").write_text("".join(told))
    assert compared(flow) == (0, 0)


def test_lines_are_counted_as_they_are_written(flow):
    output = Output(flow.folder / "moved.jsonl")
    output.look(1.0)
    output.path.write_text("a\nb\nhalf")
    output.look(2.0)
    with output.path.open("a") as file:
        file.write(" a line\n")
    output.look(3.0)
    output.look(4.0)  # nothing new
    assert [output.at(moment) for moment in (0.5, 1.5, 2.0, 9.0)] == [0, 0, 2, 3]
    assert len(output.points) == 2


def written_at(flow, came_s):
    """Return what was seen of a flow whose message n was written at a moment, two lines each."""
    by_moment = sorted((came_s(n), n) for n in range(100))
    lines = "".join(json.dumps({"msg": n, "k": k}) + "\n" for _, n in by_moment for k in (0, 1))
    (flow.folder / "moved.jsonl").write_text(lines)
    return Output(
        flow.folder / "moved.jsonl", points=[(at_s, 2 * number) for number, (at_s, _) in enumerate(by_moment, start=1)]
    )


def test_a_pause_is_what_the_longest_wait_around_a_move_is_longer_than_usual(flow):
    def came_s(n):
        due_s = 1000 + n / 10
        if 1004.95 < due_s < 1005.45:
            return 1005.9  # all of them held by a move
        return due_s + (0.3 if n % 10 == 5 else 0.1)

    waits = waits_of(flow, written_at(flow, came_s))
    assert len(waits.due_s) == 200
    assert waits.longest_s(Span(1004.9, 1006.0)) == pytest.approx(0.9)
    assert waits.longest_s(Span(999.0, 1000.0)) == 0.0
    move, other = Span(1005.0, 1005.5), Span(1007.0, 1007.5)
    (pause,) = pauses_of(waits, [move], [move])
    assert pause == (pytest.approx(0.9), pytest.approx(0.3))  # the longest usual wait of any 1.5 s
    assert pause.caused_s == pytest.approx(0.6)
    assert [each.caused_s for each in pauses_of(waits, [other], [move, other])] == [pytest.approx(0.0)]


def test_where_moves_follow_soon_on_each_other_the_usual_is_of_as_long_times_as_there_were(flow):
    waits = waits_of(flow, written_at(flow, lambda n: 1000 + n / 10 + (0.3 if n % 10 == 5 else 0.1)))
    moves = [Span(1004.5, 1007.5), Span(1009.5, 1012.5), Span(1014.5, 1019.6)]
    pauses = pauses_of(waits, moves, moves)
    assert [each.usual_s for each in pauses] == [pytest.approx(0.3)] * 3  # not the 0.1 that most records take
    assert [each.caused_s for each in pauses] == [pytest.approx(0.0)] * 3


def test_what_waits_while_another_flow_is_moved_is_not_usual(flow):
    def came_s(n):
        return max(1000 + n / 10 + 0.1, 1008.5 if n >= 60 else 0.0)

    waits = waits_of(flow, written_at(flow, came_s))
    mine, other = Span(1003.6, 1004.0), Span(1006.0, 1009.5)
    assert [each.caused_s for each in pauses_of(waits, [mine], [mine, other])] == [pytest.approx(0.0)]
    assert [each.caused_s for each in pauses_of(waits, [other], [mine, other])] == [pytest.approx(2.4)]


def test_the_net_is_that_of_the_paper(tmp_path):
    from headwater import net as nets

    write_net(tmp_path / "net.toml")
    net = nets.read(tmp_path / "net.toml")
    assert {kind.name: kind.price_per_hour for kind in net.classes if kind.name != "sensors"} == {
        "cloud": 1.0,
        "edge1": 0.25,
        "edge2": 0.5,
        "edge3": 0.75,
    }
    assert net.sensors == (("messages", 0),)


def test_messages_are_counted_by_the_lines_that_each_comes_to(tmp_path):
    flow = Promised("stats", tmp_path, Contract(100.0, 1.0), 0.1, 0.1)
    (tmp_path / "undisturbed.jsonl").write_text("".join(f'{{"msg":{n}}}\n' for n in (0, 1, 2, 2, 2, 3, 3, 3)))
    done = messages_done(flow, Output(tmp_path / "out.jsonl", points=[(1.0, 1), (2.0, 2), (3.0, 5), (4.0, 8)]))
    assert [done(at_s) for at_s in (0.5, 1.0, 2.0, 3.0, 4.0)] == [0, 1, 2, 3, 4]


def test_a_move_that_is_told_again_once_it_was_measured_counts_once(tmp_path):
    flow = Promised("stats", tmp_path, Contract(100.0, 1.0), 0.1, 0.1)
    (tmp_path / "state").mkdir()
    lines = [{"id": "a", "came": {}}, {"id": "a", "came": {"gap_s": 1}}, {"id": "b", "came": {"gap_s": 2}}]
    (tmp_path / "state" / "journal.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines))
    assert decisions_on(flow) == lines[1:]


def test_the_picture_has_what_serverless_did_where_that_was_played(tmp_path):
    at = {"etl": "cloud", "stats": "edge1", "pred": None}
    moments = [Moment(1000.0 + s, at, LENT, EVERYWHERE) for s in range(20)]
    done = dict.fromkeys(at, lambda at_s: 5 * (at_s - 1000.0))
    beside = {"kept": 0.5, "act_s": 2.0, "arrived": {name: [5, 4, 3, 2, 1, 0] for name in at}}
    acts = [(1000.0, "cloud alone"), (1010.0, "SCAN at edge1")]
    sizes = []
    for given in (None, beside):
        draw(moments, done, NEEDED, acts, given, tmp_path / "sites.png")
        sizes.append((tmp_path / "sites.png").read_bytes()[16:24])  # width and height
    assert sizes[0] != sizes[1]
