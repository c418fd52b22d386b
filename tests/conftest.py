import os
import sys
import threading
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # so that tests can share `strategies` and `conservation`

from conservation import missing
from headwater.engine import EngineRun
from headwater.engine.lanes import LanesRun
from headwater.errors import RunError
from properties import THOROUGH, load_profile
from sharing_out import FOLDERS, Sharing, is_on_spark
from typed_words import exit_code

#: files of few tests that take long, which two workers share out best when they begin with them
LONG = {
    "test_bench.py",
    "test_bridge.py",
    "test_cluster.py",
    "test_commands.py",
    "test_docs.py",
    "test_end.py",
    "test_kafka.py",
    "test_kill.py",
    "test_keeper.py",
    "test_lane.py",
    "test_loop.py",
    "test_pages.py",
    "test_policed_sites.py",
    "test_rehearsal.py",
    "test_serve.py",
    "test_service.py",
    "test_session.py",
    "test_site.py",
    "test_sites.py",
    "test_sites_and_plans.py",
    "test_spark_sites.py",
    "test_split.py",
    "test_trouble.py",
    "test_troubleshooting.py",
}

#: for every Java that a test starts, and that is gone before better code would pay: half the processor time of them all
_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
#: to compile a plan takes longer than to run it over a test's few rows; in CI they are compiled, as they are for users
_PLANS = {} if THOROUGH else {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
_OF_DRIVERS = " ".join((_SHORT_LIVED, *(f"-D{name}={value}" for name, value in _PLANS.items())))
for name, options in (("SPARK_SUBMIT_OPTS", _OF_DRIVERS), ("SPARK_DAEMON_JAVA_OPTS", _SHORT_LIVED)):
    os.environ.setdefault(name, options)

load_profile()


@pytest.hookimpl(wrapper=True)
def pytest_collect_file():
    """Look for no examples in the docstrings of tests: there are none, and to look takes as long as to find the tests."""
    return [each for each in (yield) if type(each) is pytest.Module]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    return Sharing(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_collection_modifyitems(items):
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()) or item.nodeid.startswith(FOLDERS):
            item.add_marker("spark")
    # Spark last: beside the threads of its session no lanes can be forked, in this process. Of the rest the long ones first.
    items.sort(key=lambda item: (is_on_spark(item.nodeid), item.path.name not in LONG))


@pytest.fixture(autouse=True)
def nothing_is_missing(monkeypatch):
    """Hold the report of every run that a test makes against its own sums, whichever runner made it."""
    found = []

    def held_to_account(kind):
        plain = kind.wait

        def wait(run, timeout_s=None):
            try:
                report = plain(run, timeout_s)
            except RunError as error:
                check(run, error.report)
                raise
            check(run, report)
            return report

        def check(run, report):
            lost = report is not None and "lanes_lost" in report.extra  # nobody can tell what a killed lane had done
            if report is not None and getattr(run.options, "measure", True) and not lost:
                found.extend(f"{run.flow.name} on {run.runner}: {why}" for why in missing(run.flow, report))

        monkeypatch.setattr(kind, "wait", wait)

    held_to_account(EngineRun)
    held_to_account(LanesRun)
    if "headwater.spark.running" in sys.modules:  # else nothing here runs on Spark
        held_to_account(sys.modules["headwater.spark.running"].SparkRun)
    yield
    assert not found, "\n".join(found)


@pytest.fixture(autouse=True)
def no_connection_outlives_its_test():
    """Find what a run leaves behind in this process: a thread of a connector that nobody ended goes on for ever."""
    before = set(threading.enumerate())
    yield
    left = [thread for thread in set(threading.enumerate()) - before if thread.name.startswith("headwater-")]
    until = time.monotonic() + 60  # who dials gives up after five seconds, twice; a busy machine takes longer
    for thread in left:
        thread.join(max(0, until - time.monotonic()))
    assert not (names := [thread.name for thread in left if thread.is_alive()]), names


@pytest.fixture
def typed(monkeypatch, capsys, tmp_path):
    """Run the command line in an empty folder; return exit code, standard output and standard error."""
    monkeypatch.chdir(tmp_path)

    def run(*words):
        code = exit_code(*words)
        out, err = capsys.readouterr()
        return code, out, err

    return run


@pytest.fixture
def lake(tmp_path):
    """An Iceberg catalog of a test's own."""
    from lake import Lake

    with Lake(tmp_path / "lakes") as made:
        yield made


@pytest.fixture(scope="session")
def spark():
    """One Spark session for all tests of a process: starting one takes longer than most tests."""
    from headwater.spark.session import session

    asking = os.environ["PYTEST_CURRENT_TEST"].rpartition(" ")[0]  # and whether it is set up
    assert is_on_spark(asking), f"{asking} asks for Spark, and its name does not end with on_spark: see sharing_out"
    running = session("local[2]", _PLANS)
    yield running
    running.stop()
