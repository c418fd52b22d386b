"""What is handed to spark-submit: a program that runs the flow wherever it is started, and the settings that go with it."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path
from shutil import rmtree
from zipfile import ZipFile

import pytest

FLOW = """\
from headwater import Flow, col, io
flow = Flow("evens")
numbers = flow.read("numbers", io.Items([{"n": n} for n in range(10)]))
numbers.filter("even", col.n % 2 == 0).write("out", io.JsonLines({out!r}))
"""


def settings_in(command):
    return dict(command[at + 1].split("=", 1) for at, word in enumerate(command) if word == "--conf")


@pytest.mark.thorough
def test_the_program_for_the_driver_runs_the_flow(spark, tmp_path, typed, monkeypatch, capsys):
    (tmp_path / "evens_flow.py").write_text(FLOW.replace("{out!r}", repr(str(tmp_path / "out.jsonl"))))
    command = [
        "spark",
        "submit",
        "evens_flow.py",
        "--master",
        "local[2]",
        "--dry-run",
        "--json",
        "--checkpoint",
        "kept",
    ]
    code, out, err = typed(*command)
    assert code == 0, err
    told = json.loads(out)
    assert told["command"][1:7] == ["--master", "local[2]", "--deploy-mode", "client", "--name", "evens"]
    assert told["command"][7:9] == ["--py-files", told["modules"]]
    assert told["command"][-1] == told["main"]
    settings = settings_in(told["command"])
    assert settings["spark.pyspark.driver.python"] == settings["spark.pyspark.python"] == sys.executable
    assert settings["spark.driver.extraJavaOptions"].endswith("/headwater/spark/log4j2.properties")  # errors alone
    sys.modules.pop("evens_flow", None)
    monkeypatch.setattr(sys, "path", [told["modules"], *sys.path])  # as spark-submit does it
    (tmp_path / "evens_flow.py").unlink()
    with pytest.raises(SystemExit, match="0"):
        runpy.run_path(told["main"])
    assert json.loads(capsys.readouterr().out)["records_in"] == 10
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 5
    assert (tmp_path / "kept" / "headwater.json").exists()


def test_the_environment_is_sent_along_and_settings_are_the_users(tmp_path, typed):
    (tmp_path / "few.py").write_text(FLOW.replace("{out!r}", "'out.jsonl'"))
    (tmp_path / "env.tar.gz").touch()
    words = ["spark", "submit", "few.py:flow", "--master", "yarn", "--deploy-mode", "cluster", "--dry-run", "--json"]
    code, out, err = typed(*words, "--environment", "env.tar.gz", "-c", "spark.executor.instances=4")
    assert code == 0, err
    command = json.loads(out)["command"]
    assert command[command.index("--archives") + 1] == "env.tar.gz#environment"
    assert settings_in(command) == {
        "spark.pyspark.python": "./environment/bin/python",
        "spark.yarn.appMasterEnv.PYSPARK_PYTHON": "./environment/bin/python",
        "spark.executor.instances": "4",
    }
    code, out, _ = typed(
        *words[:4], "spark://head:7077", "--dry-run", "--json", "-c", "spark.pyspark.driver.python=mine"
    )
    settings = settings_in(json.loads(out)["command"])
    assert settings["spark.pyspark.driver.python"] == "mine"
    assert "spark.pyspark.python" not in settings  # which executors elsewhere have to know
    code, _, err = typed(*words, "--environment", "nowhere.tar.gz")
    assert (code, "there is no file 'nowhere.tar.gz'; make it with venv-pack" in err) == (2, True)
    code, _, err = typed("spark", "submit", "few.py", "--master", "yarn", "--deploy-mode", "there", "--dry-run")
    assert (code, "--deploy-mode is client or cluster" in err) == (2, True)


PLANT = """\
from headwater import Flow, io
from helper import tenfold
from near.by import offset

plant = Flow("plant")
readings = plant.read("readings", io.Items([{"n": n} for n in range(20)]))
readings.map("scaled", lambda record: {"n": tenfold(record["n"]) + offset()}).write("out", io.JsonLines({out!r}))
"""


def test_what_is_submitted_runs_elsewhere_with_the_modules_beside_the_flow(tmp_path, typed):
    own, elsewhere = tmp_path / "own", tmp_path / "elsewhere"
    (own / "near").mkdir(parents=True)  # a folder without __init__.py
    elsewhere.mkdir()
    (own / "queue.py").write_text(
        PLANT.replace("{out!r}", repr(str(tmp_path / "out.jsonl")))
    )  # as a module of Python's
    (own / "helper.py").write_text("def tenfold(n):\n    return 10 * n\n")
    (own / "near" / "by.py").write_text("def offset():\n    return 1\n")
    (own / "unused.py").write_text("raise RuntimeError('nobody imports this')\n")
    code, out, err = typed("spark", "submit", "own/queue.py", "--master", "local[2]", "--dry-run", "--json")
    assert code == 0, err
    told = json.loads(out)
    rmtree(own)
    for name in ("helper", "near", "near.by"):
        del sys.modules[name]
    from headwater.spark import java

    done = subprocess.run(
        told["command"], cwd=elsewhere, env=os.environ | {"JAVA_HOME": str(java.find().home)},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line)["n"] for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert sorted(rows) == [10 * n + 1 for n in range(20)]


def test_a_package_is_submitted_whole_with_what_it_imports_beside_it(tmp_path, typed):
    package = tmp_path / "plant_of_test"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "levels.py").write_text("from beside_of_test import NAME\nfrom headwater import Flow, io\n"
        "def made():\n    flow = Flow(NAME)\n"
        "    flow.read('r', io.Items([{'x': 1}])).write('w', io.Discard())\n    return flow\n")  # fmt: skip
    (package / "later.py").touch()
    (tmp_path / "beside_of_test.py").write_text("NAME = 'levels'\n")
    words = ("spark", "submit", "plant_of_test.levels:made", "--master", "yarn", "--dry-run", "--json")
    code, out, err = typed(*words)
    assert code == 0, err
    with ZipFile(json.loads(out)["modules"]) as modules:
        files = {name for name in modules.namelist() if name.endswith(".py")}
    inside = {f"plant_of_test/{name}.py" for name in ("__init__", "levels", "later")}
    assert files == inside | {"beside_of_test.py"}


def test_what_run_takes_is_handed_on_and_paths_are_found_from_elsewhere_on_spark(
    spark, tmp_path, typed, monkeypatch, capsys
):
    (tmp_path / "levels_flow.py").write_text(
        "from headwater import Flow, col, io\nplant = Flow('levels')\n"
        "plant.read('r', io.Items([], {'n': int})).filter('even', col.n % 2 == 0).write('out', io.Discard())\n"
    )
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"n": n}) + "\n" for n in range(10)))
    words = ("--input", "r=in.jsonl", "--output", "there", "--checkpoint", "kept", "--every", "100ms", "--buckets", "3")
    code, out, err = typed("spark", "submit", "levels_flow.py", "--master", "local[2]", "--dry-run", "--json", *words)
    assert code == 0, err
    told = json.loads(out)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    sys.modules.pop("levels_flow", None)
    monkeypatch.setattr(sys, "path", [told["modules"], *sys.path])
    with pytest.raises(SystemExit, match="0"):
        runpy.run_path(told["main"])
    assert json.loads(capsys.readouterr().out)["records_in"] == 10
    assert len((tmp_path / "there" / "out.csv").read_text().splitlines()) == 6
    assert json.loads((tmp_path / "kept" / "headwater.json").read_text())["buckets"] == 3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("spark://head:7077", "--deploy-mode", "cluster"), "Spark runs no driver in Python on a standalone cluster"),
        (("k8s://https://head:6443", "--deploy-mode", "cluster"), "-c spark.kubernetes.file.upload.path=s3a://"),
        (("yarn", "--deploy-mode", "cluster", "--checkpoint", "kept"), "--checkpoint 'kept': a driver on the cluster"),
        (("yarn", "--input", "no.jsonl"), "there is no such file"),
        (("yarn", "--input", "s=/in.jsonl"), "'s'"),
        (("yarn", "--backfill", "table"), "--backfill is about checkpoints"),
        (("yarn", "--until", "2026-11-16"), "--until is about history"),
        (("yarn", "--meaning", "sparks"), "there is no meaning 'sparks'"),
        (("yarn", "--target", "0s"), "--target is a time above 0"),
        (("yarn", "--prometheus", "gateway"), "--prometheus takes an address and a port"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_written(tmp_path, typed, words, said):
    (tmp_path / "few.py").write_text(FLOW.replace("{out!r}", "'out.jsonl'"))
    code, _, err = typed("spark", "submit", "few.py", "--dry-run", "--master", *words)
    assert (code, said in err) == (2, True), err
    assert not (tmp_path / "evens.submit").exists()


def test_a_flow_whose_file_is_called_main_is_found(tmp_path, typed):
    (tmp_path / "main.py").write_text(FLOW.replace("{out!r}", repr(str(tmp_path / "out.jsonl"))))
    code, out, err = typed("spark", "submit", "main.py", "--master", "local[2]", "--dry-run", "--json")
    assert code == 0, err
    told = json.loads(out)
    (tmp_path / "main.py").unlink()
    # as spark-submit does it; `show` in place of `run --on spark` needs no Java to find the flow
    main = Path(told["main"])
    text = main.read_text().replace("main()\n", "sys.argv[1:] = ['show', sys.argv[2], '--json']\nmain()\n")
    main.write_text(text)
    done = subprocess.run(
        [sys.executable, str(main)], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([told["modules"], *sys.path])},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert '"even"' in done.stdout


def test_pods_fetch_what_is_handed_over_from_where_a_setting_says(tmp_path, typed):
    (tmp_path / "few.py").write_text(FLOW.replace("{out!r}", "'out.jsonl'"))
    words = (
        "--deploy-mode",
        "cluster",
        "-c",
        "spark.kubernetes.file.upload.path=s3a://lake/up",
        "--backfill",
        "levels",
    )
    words += ("--checkpoint", "s3a://lake/kept", "--until", "2026-11-16T08:00:00Z", "--history-only")
    code, _, err = typed(
        "spark", "submit", "few.py", "--dry-run", "--json", "--master", "k8s://https://head:6443", *words
    )
    assert code == 0, err
    main = (tmp_path / "evens.submit" / "submit-flow.py").read_text()
    assert (
        '"--checkpoint", "s3a://lake/kept", "--backfill", "numbers=levels", "--until", "2026-11-16T08:00:00Z"' in main
    )
    assert '"--history-only"' in main


def test_a_contract_is_not_asked_for_where_spark_submit_has_chosen_the_spark_on_spark(
    spark, tmp_path, typed, monkeypatch
):
    monkeypatch.setattr("headwater.spark.session.has_java", lambda: True)
    (tmp_path / "few.py").write_text(
        FLOW.replace("{out!r}", "'out.jsonl'") + "flow.contract(rate='100/s', latency='10 s')\n"
    )
    code, out, err = typed("run", "few.py", "--on", "spark", "--json")
    assert code == 0, err
    assert "flow evens has a contract, which spark-submit does not keep: it runs as fast as it can" in " ".join(
        err.split()
    )
    assert json.loads(out)["records_in"] == 10
