"""What is handed to spark-submit: a program that runs the flow wherever it is started, and the settings that go with it."""

from __future__ import annotations

import json
import runpy
import sys

FLOW = """\
from headwater import Flow, col, io
flow = Flow("evens")
numbers = flow.read("numbers", io.Items([{"n": n} for n in range(10)]))
numbers.filter("even", col.n % 2 == 0).write("out", io.JsonLines({out!r}))
"""


def settings_in(command):
    return dict(command[at + 1].split("=", 1) for at, word in enumerate(command) if word == "--conf")


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
