"""Iceberg tables that are read: from any place on, side by side, and what is added to them later."""

import pyarrow as pa
import pytest
from reading import ran_until

from headwater import Flow, col, engine, io
from headwater.data.schema import Schema
from headwater.errors import InputError
from headwater.flow.ranges import RangeRequest, Sizes
from killed import killed_until
from lake import NUMBERS, added, levels, read_all


@pytest.fixture
def numbers(lake):
    lake.make(pa.schema([("n", pa.int64())]))
    return lake


def test_a_table_that_is_not_there_is_told_with_those_that_are(numbers):
    with pytest.raises(
        InputError, match=r"there is no such table; tables of plant are 'levels'; did you mean 'levels'"
    ):
        io.Iceberg("plant.level", NUMBERS, catalog=numbers.properties).open(pytest.fail)
    with pytest.raises(InputError, match="there is no such table; is the name right, and the catalog"):
        io.Iceberg("plnt.levels", catalog=numbers.properties).schema  # noqa: B018
    with pytest.raises(InputError, match="it has no column 'm'; columns are 'n'"):
        levels(numbers, {"m": int}).open(pytest.fail)
    with pytest.raises(InputError, match="it has no snapshot 7, or no longer"):
        levels(numbers, NUMBERS, since=7).open(pytest.fail)
    with pytest.raises(InputError, match="expected a snapshot with a file and a row"):
        levels(numbers, NUMBERS).open(pytest.fail, 3)


def test_a_table_is_read_in_the_order_in_which_it_was_written_and_from_any_place_on(numbers):
    for part in range(4):
        added(numbers, range(10 * part, 10 * part + 10))
    source = levels(numbers)
    assert read_all(source)[0] == list(range(40))
    reader = source.open(pytest.fail)
    found, places = [], [reader.position]
    while (batch := reader.read(7, 0)) is not None:
        found += batch["n"].tolist()
        places.append(reader.position)
    reader.close()
    added(numbers, [99])  # which another snapshot has
    for place in places:
        assert read_all(levels(numbers), place)[0] == found[10 * place["file"] + place["row"] :]


def test_a_snapshot_and_what_was_added_since_it_can_be_read(numbers):
    snapshots = [added(numbers, [part]) for part in range(4)]
    assert read_all(levels(numbers, snapshot=snapshots[1]))[0] == [0, 1]
    assert read_all(levels(numbers, since=snapshots[1]))[0] == [2, 3]
    assert read_all(levels(numbers, since=snapshots[3]))[0] == []
    assert read_all(levels(numbers, snapshot=snapshots[1], follow=True, poll="1 ms"))[0] == [0, 1, 2, 3]


def test_what_is_added_later_is_followed_and_gone_on_with(numbers):
    source = levels(numbers, follow=True, poll="1 ms")
    found, place = read_all(source)  # of a table that has nothing yet
    assert (found, place["snapshot"]) == ([], None)
    for part in range(3):
        added(numbers, [2 * part, 2 * part + 1])
        found, place = read_all(source, place)
        assert found == [2 * part, 2 * part + 1]
    assert read_all(source, place)[0] == []
    numbers.table().delete("n = 1")
    with pytest.raises(InputError, match=r"records were taken out of plant.levels .* in snapshot \d+"):
        read_all(source, place)
    assert sorted(read_all(levels(numbers))[0]) == [0, 2, 3, 4, 5]


def test_a_table_that_was_set_back_is_told_to_who_follows_it(numbers):
    first = added(numbers, [0])
    added(numbers, [1])
    source = levels(numbers, follow=True, poll="1 ms")
    found, place = read_all(source)
    assert found == [0, 1]
    numbers.table().manage_snapshots().rollback_to_snapshot(first).commit()
    added(numbers, [2])
    with pytest.raises(InputError, match=r"it does not lead to snapshot \d+, which the table has now"):
        read_all(source, place)


def test_columns_that_came_later_and_other_types_are_read(numbers):
    added(numbers, [1])
    with numbers.table().update_schema() as change:
        from pyiceberg.types import DateType, DecimalType, StringType, TimestampType

        for name, kind in {"city": StringType(), "d": DateType(), "t": TimestampType(), "m": DecimalType(9, 2)}.items():
            change.add_column(name, kind)
        change.rename_column("n", "number")
    assert (
        levels(numbers).schema.fields
        == Schema.of({"number": int, "city": str, "d": "time", "t": "time", "m": float}).fields
    )
    reader = levels(numbers).open(pytest.fail)
    assert reader.read(5, 0).rows() == [{"number": 1, "city": None, "d": None, "t": None, "m": None}]
    reader.close()


def test_tasks_read_files_side_by_side_and_engine_and_ranges_go_on_from_each_other(numbers):
    for part in range(5):
        added(numbers, range(10 * part, 10 * part + 10))
    source = levels(numbers, follow=True, poll="1 ms")
    ranges = source.ranges(RangeRequest(Sizes(2, batch_bytes=1500, piece_bytes=100)))
    at, found = ranges.start(), []
    while (end := ranges.advance(at)) != at:
        pieces = ranges.cut(at, end)
        assert pieces == ranges.cut(at, end)
        found += [n for piece in pieces for batch in ranges.batches(piece, pytest.fail) for n in batch["n"].tolist()]
        at = end
    assert found == list(range(50))
    added(numbers, range(50, 60))
    more, place = read_all(source, ranges.position(at))
    assert more == list(range(50, 60))
    reader = source.open(pytest.fail)
    assert reader.read(13, 0).length == 10
    assert reader.read(3, 0).length == 3
    at, rest = ranges.offset(reader.position), []
    reader.close()
    while (end := ranges.advance(at)) != at:
        pieces = ranges.cut(at, end)
        rest += [n for piece in pieces for batch in ranges.batches(piece, pytest.fail) for n in batch["n"].tolist()]
        at = end
    assert rest == list(range(13, 60))
    assert place["snapshot"] == at["snapshot"]


@pytest.mark.parametrize("lanes", [1, 2])
def test_a_table_goes_through_a_flow_into_another_once_though_it_is_killed(numbers, tmp_path, lanes):
    for part in range(8):
        added(numbers, range(1000 * part, 1000 * part + 1000))

    def run():
        flow = Flow("round")
        read = flow.read("in", levels(numbers))
        read.select("twice", m=col.n * 2).write("out", io.Iceberg("plant.twice", catalog=numbers.properties))
        engine.run(flow, checkpoint=tmp_path / "checkpoint", every="20 ms", lanes=lanes)

    killed_until(None, run, ends=True, kills=4, longest_s=0.6)
    assert numbers.column("m", "plant.twice") == [2 * n for n in range(8000)]


def test_a_growing_table_is_followed_by_a_flow_and_taken_up(numbers, tmp_path):
    flow = Flow("following")
    flow.read("in", levels(numbers, follow=True, poll="20 ms")).write("out", io.JsonLines(tmp_path / "out.jsonl"))
    for start, end in ((0, 1000), (1000, 1500)):
        added(numbers, range(start, end))
        ran_until(flow, end - start, checkpoint=tmp_path / "checkpoint")
    lines = (tmp_path / "out.jsonl").read_text().splitlines()
    assert lines == [f'{{"n":{n}}}' for n in range(1500)]
