"""What is wrong in the settings of a flow is told with the file that has it, and the key."""

import pytest

from headwater import Flow, io
from headwater.cli.lane import _contract, _options
from headwater.errors import HeadwaterError
from headwater.serve.messages import Assignment
from headwater.serve.settings import Settings


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"on": "sprak"}, r"levels\.toml: on: there is no runner 'sprak'.*did you mean 'spark'\?"),
        ({"every": "abc"}, r"levels\.toml: every: cannot read duration 'abc'"),
        ({"every": "0 s"}, r"levels\.toml: every: every is the time between two checkpoints"),
        ({"master": "local"}, r"levels\.toml: master is Spark's"),
        ({"conf": {"spark.driver.memory": "1g"}}, r"levels\.toml: conf is Spark's"),
        (
            {"on": "spark", "conf": {"memory": "1g"}},
            r"levels\.toml: conf\.memory: settings of Spark's begin with spark\.",
        ),
        (
            {"options": {"worker": 2}},
            r"levels\.toml: options\.worker: the engine has none such.*did you mean 'workers'\?",
        ),
        ({"options": {"workers": "two"}}, r"levels\.toml: options\.workers: workers must be a whole number"),
        ({"options": {"queue_records": 5, "linger": "10 h"}}, r"levels\.toml: options\.linger: linger is how long"),
        ({"options": {"spill_bytes": "much"}}, r"levels\.toml: options\.spill_bytes is of the wrong kind"),
        ({"promise": "fast"}, r"levels\.toml: promise: --promise: "),
        ({"within": "5 s"}, r"levels\.toml: within: flow 'levels' has no contract"),
    ],
)
def test_what_is_wrong_is_told_with_the_file_and_the_key(tmp_path, settings, said):
    flow = Flow("levels")
    flow.read("in", io.Items([{"n": 1}])).write("out", io.Discard())
    task = Assignment("check", str(tmp_path / "levels.py"), str(tmp_path), Settings(**settings))
    with pytest.raises(HeadwaterError, match=said):
        checked(task, flow)


def checked(task, flow):
    _options(task)
    _contract(task, flow)
