"""Dead letters that are kept in a folder, on both runners and in lanes, and given to other kinds of steps."""

import pytest

from headwater import Flow, engine, io
from headwater.engine.dead import replay
from headwater.io.dead import DeadLetterFolder

ROWS = [{"k": "ab"[n % 2], "n": n} for n in range(100)]


@pytest.mark.parametrize("options", [{"on": "engine"}, {"on": "threads"}, {"lanes": 2}])
def test_dead_letters_are_kept_beside_what_the_flow_does_with_them(options, tmp_path):
    def fails(record):
        if record["n"] % 10 == 3:
            raise ValueError("no")
        return record

    flow, dead = Flow("kept"), io.Collect()
    flow.read("r", io.Items(ROWS)).map("m", fails).write("w", io.Discard())
    flow.dead_letters.write("dead", dead)
    report = engine.run(flow, dead=tmp_path / "dead", **options)
    letters = list(DeadLetterFolder(tmp_path / "dead").letters())
    assert sorted(letter.to_json()["record"]["n"] for letter in letters) == list(range(3, 100, 10))
    assert len(dead.records) == report.dead_letters == 10
    assert letters[0].to_json().keys() >= KEYS


KEYS = {"id", "step", "error", "record", "at_ns", "created_ns"}


def test_letters_go_again_into_a_keyed_step_and_a_sink(tmp_path):
    refuses = True

    def step(state, record):
        if refuses and record["n"] == 7:
            raise ValueError("7")
        return (state or 0) + 1, record

    class Refusing(io.Collect):
        def open(self, schema):
            return self

        def write(self, batch):
            if refuses:
                bad = [row for row, n in enumerate(batch["n"].tolist()) if n == 9]
                self.batches.append(batch)
                return dict.fromkeys(bad, "9 is refused")
            self.batches.append(batch)
            return None

        def close(self):
            pass

    def flow(out):
        made = Flow("two")
        made.read("r", io.Items(ROWS)).key_by("k").process("p", step).write("w", out)
        return made

    engine.run(flow(Refusing()), dead=tmp_path / "dead")
    letters = list(DeadLetterFolder(tmp_path / "dead").letters())
    assert [(letter.step, letter.to_json()["record"]["n"]) for letter in letters] == [("p", 7), ("w", 9)]
    refuses = False
    out = Refusing()
    done = replay(flow(out), tmp_path / "dead", letters)
    assert sorted(done.released) == [letter.id for letter in letters]
    assert sorted(row["n"] for row in out.records) == [7, 9]
    assert list(DeadLetterFolder(tmp_path / "dead").letters()) == []


def test_letters_of_a_step_that_the_flow_has_no_more_stay(tmp_path):
    flow = Flow("f")
    flow.read("r", io.Items(ROWS[:2])).map("m", lambda record: 1 / 0).write("w", io.Discard())
    engine.run(flow, dead=tmp_path / "dead")
    other = Flow("f")
    other.read("r", io.Items(ROWS)).write("w", io.Discard())
    done = replay(other, tmp_path / "dead", list(DeadLetterFolder(tmp_path / "dead").letters()))
    assert done.released == []
    assert set(done.kept.values()) == {"flow 'f' has no step 'm' (any more)"}
