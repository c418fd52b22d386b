"""Buckets have numbers that Spark spreads evenly: as many tasks have work as there are buckets."""

from __future__ import annotations

import pytest

from headwater import Flow, io
from headwater.spark import start
from headwater.spark.buckets import Numbers, hashed
from headwater.spark.stages import cut
from waiting import PATIENCE_S


def test_we_hash_numbers_as_spark_does(spark):
    rows = spark.range(-50, 200).selectExpr("CAST(id AS INT) AS id", "hash(CAST(id AS INT)) AS hashed").collect()
    assert [hashed(row.id) for row in rows] == [row.hashed for row in rows]


@pytest.mark.parametrize("buckets", [1, 2, 3, 8])
def test_each_bucket_of_a_stage_has_a_partition_of_its_own(buckets):
    flow = Flow("two keys")
    counts = flow.read("r", io.Items([{"a": 1, "b": 2}])).key_by("a").process("one", step, out={"a": int, "b": int})
    counts.key_by("b").process("two", step, out={"a": int, "b": int}).write("out", io.Discard())
    stages = [stage for stage in cut(flow, buckets).stages if stage.level]
    assert len(stages) == 2
    for stage in stages:
        assert [hashed(number) % buckets for number in stage.numbers] == list(range(buckets))
    numbers = [number for stage in stages for number in stage.numbers]
    assert len(set(numbers)) == len(numbers)


def test_a_micro_batch_has_as_many_tasks_with_state_as_there_are_buckets(spark, tmp_path):
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"
    flow = Flow("one bucket")
    counts = flow.read("r", io.Items([{"a": 1, "b": 2}])).key_by("a").process("one", step, out={"a": int, "b": int})
    counts.write("out", io.Discard())
    running = start(flow, master=spark.conf.get("spark.master"), checkpoint=tmp_path / "kept", buckets=1)
    assert running.wait(PATIENCE_S) is not None
    kept = tmp_path.glob("kept/*/state/0/*")  # a folder for each task that has state, by its number
    assert [each.name for each in kept if each.name.isdigit()] == ["0"]
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"  # as others find it


def test_numbers_are_given_once():
    numbers = Numbers(4)
    given = [numbers.of_partition(at) for at in range(40)]
    assert len(set(given)) == 40


def step(state, record):
    return state, record
