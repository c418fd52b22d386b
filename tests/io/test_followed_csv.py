"""CSV files that grow and are rotated: every row once, by the columns that its file has."""

import json
import os
import shutil
import time

import pytest

from headwater import Flow, engine, io
from headwater.errors import FlowError, InputError
from waiting import PATIENCE_S

FIELDS = {"n": int, "said": str}


def add(path, text):
    with path.open("a") as file:
        file.write(text)


def taken(reader, count):
    rows, end = [], time.monotonic() + PATIENCE_S
    while len(rows) < count:
        assert time.monotonic() < end, f"only {len(rows)} of {count} came"
        rows += [(row["n"], row["said"]) for row in reader.read(5, 0.1).rows()]
    return rows


@pytest.fixture
def path(tmp_path):
    return tmp_path / "app.csv"


def test_rows_are_read_as_they_are_written_and_each_file_has_a_header(path):
    rejected = []
    reader = io.Csv(path, FIELDS, follow=True).open(lambda text, why: rejected.append(why))
    assert reader.read(10, 0).length == 0
    add(path, "n,said\n1,a\n2,")
    assert taken(reader, 1) == [(1, "a")]
    add(path, '"two\nlines"\nx,c\n3,d\n')
    assert taken(reader, 2) == [(2, "two\nlines"), (3, "d")]
    assert rejected == [f"{path} line 5: n: expected int, got 'x'"]
    path.rename(path.with_name("app.csv.1"))
    add(path, "said,more,n\ne,-,4\nf,-,5\n")
    assert taken(reader, 2) == [(4, "e"), (5, "f")]
    shutil.copy(path, path.with_name("app.csv.0"))
    os.truncate(path, 0)
    add(path, "n,said\n6,g\n")
    assert taken(reader, 1) == [(6, "g")]
    reader.close()


def test_what_follows_a_forgotten_quote_waits_for_64_lines_and_not_for_the_end(path):
    rejected = []
    reader = io.Csv(path, FIELDS, follow=True).open(lambda text, why: rejected.append(why))
    add(path, 'n,said\n1,"a\n' + "".join(f"{n},b\n" for n in range(2, 64)))
    for _ in range(20):
        assert reader.read(5, 0.1).length == 0
    add(path, "64,b\n65,b\n")
    assert taken(reader, 64) == [(n, "b") for n in range(2, 66)]
    assert rejected == [f"{path} line 2: a quote is opened and never closed"]
    reader.close()


def test_a_later_reader_knows_the_columns_of_the_file_that_it_goes_on_with(path):
    add(path, "said,more,n\na,-,1\nb,-,2\n")
    reader = io.Csv(path, FIELDS, follow=True).open(pytest.fail)
    assert taken(reader, 2) == [(1, "a"), (2, "b")]
    position = json.loads(json.dumps(reader.position))
    reader.close()
    add(path, "c,-,3\n")
    path.rename(path.with_name("app.csv.1"))
    add(path, "n,said\n4,d\n")
    later = io.Csv(path, FIELDS, follow=True).open(pytest.fail, position)
    assert taken(later, 2) == [(3, "c"), (4, "d")]
    later.close()


def test_a_file_whose_header_lacks_a_column_is_told(path):
    add(path, "n,sad\n1,a\n")
    reader = io.Csv(path, FIELDS, follow=True).open(pytest.fail)
    with pytest.raises(InputError, match=r"no column 'said'.*did you mean 'sad'"):
        taken(reader, 1)
    reader.close()


def test_a_row_that_a_file_ends_in_is_told_and_the_next_file_is_read(path):
    rejected = []
    reader = io.Csv(path, FIELDS, follow=True).open(lambda text, why: rejected.append((text, why)))
    add(path, 'n,said\n1,a\n2,"open\n')
    assert taken(reader, 1) == [(1, "a")]
    path.rename(path.with_name("app.csv.1"))
    add(path, "n,said\n3,c\n")
    assert taken(reader, 1) == [(3, "c")]
    assert [text for text, _ in rejected] == ['2,"open']
    reader.close()


def test_a_flow_goes_on_with_a_file_that_was_rotated_while_no_run_was_there(path, tmp_path):
    out = tmp_path / "out.jsonl"

    def run(count):
        flow = Flow("rows")
        flow.read("in", io.Csv(path, FIELDS, follow=True)).write("out", io.JsonLines(out))
        running = engine.start(flow, checkpoint=tmp_path / "checkpoint", every="50 ms")
        end = time.monotonic() + PATIENCE_S
        while running.sample().records_in < count and time.monotonic() < end:
            time.sleep(0.01)
        running.stop()
        running.wait()

    add(path, "n,said\n1,a\n2,b\n")
    run(2)
    add(path, "3,c\n")
    path.rename(path.with_name("app.csv.1"))
    add(path, "n,said\n4,d\n")
    run(2)
    assert [json.loads(line)["n"] for line in out.read_text().splitlines()] == [1, 2, 3, 4]


def test_standard_input_is_not_followed():
    with pytest.raises(FlowError, match="leave out follow"):
        io.Csv("-", FIELDS, follow=True)
