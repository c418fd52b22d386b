"""Spark's Python processes find the installed pyspark, and all else that was on their path."""

import os
import subprocess
import sys
from pathlib import Path

import pyspark

from headwater.spark.interpreter import launcher

ARCHIVES = Path(pyspark.__file__).parent / "python" / "lib"


def test_the_archive_is_left_out_and_the_rest_of_the_path_is_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("HEADWATER_CACHE", str(tmp_path))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "tank_heights.py").write_text("low = 150\n")
    path = os.pathsep.join([str(ARCHIVES / "pyspark.zip"), str(ARCHIVES / "py4j-src.zip"), str(tmp_path / "mine")])
    said = subprocess.run(
        [launcher(), "-c", "import pyspark, tank_heights; print(pyspark.__file__, tank_heights.low)"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert said.split() == [pyspark.__file__, "150"]


def test_arguments_pass_as_they_are(tmp_path, monkeypatch):
    monkeypatch.setenv("HEADWATER_CACHE", str(tmp_path / "a folder"))
    code = "import sys; print(sys.argv[1:])"
    done = subprocess.run([launcher(), "-c", code, "a b", "*", ""], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['a b', '*', '']"


def test_another_spark_keeps_its_own_pyspark(tmp_path, monkeypatch):
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert launcher() == sys.executable


def test_a_cache_that_cannot_be_written_is_done_without(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HEADWATER_CACHE", str(tmp_path / "file" / "cache"))
    assert launcher() == sys.executable
