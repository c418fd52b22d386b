"""Errors that Spark's users meet often are told in one line, with what to do; others as Spark tells them."""

from __future__ import annotations

import pytest

from headwater.spark.advice import advice
from headwater.spark.progress import cause_in

#: as Spark, Hadoop and Kafka write them
SEEN = {
    "java.io.IOException: No space left on device": "the disk is full",
    "org.apache.spark.SparkException: Job aborted: Total size of serialized results of 4 tasks (1030.8 MiB) is bigger than "
    "spark.driver.maxResultSize (1024.0 MiB).": "more for the driver's sinks than 1024.0 MiB",
    "java.lang.OutOfMemoryError: Java heap space": "Java is out of memory: give it more (-c spark.driver.memory=4g",
    "ExecutorLostFailure (executor 1 exited caused by one of the running tasks) Reason: Command exited with code 137": (
        "an executor was ended by its system"
    ),
    "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.12 than that in driver: 3.11": "another Python",
    "ModuleNotFoundError: No module named 'headwater'": "does not find the module 'headwater'",
    'java.io.IOException: Cannot run program "python3.11": error=2, No such file': "'python3.11', with which executors",
    'UnsupportedFileSystemException: No FileSystem for scheme "s3a"': "no file system s3a",
    "java.lang.ClassNotFoundException: Class org.apache.hadoop.fs.s3a.S3AFileSystem not found": "S3AFileSystem is not",
    "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: delta. Make sure": "Spark has no connector delta: give",
    "java.sql.SQLException: No suitable driver": "the driver of the database is not there",
    "java.nio.file.AccessDeniedException: /data/out": "access denied: /data/out",
    "NoAuthWithAWSException: No AWS Credentials provided": "S3 does not know who asks",
    "Some data may have been lost because they are not available in Kafka any more": '"failOnDataLoss": "false"',
    "UnknownTopicOrPartitionException: This server does not host": "create it first",
    "[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error occurred": "state in the checkpoint cannot be read",
    "Initial job has not accepted any resources; check your cluster UI": "no cores or memory left",
    "java.lang.UnsupportedClassVersionError: x has been compiled": "a jar was made for a newer Java",
    "java.net.UnknownHostException: broker-7": "there is no machine broker-7",
    "java.io.InvalidClassException: local class incompatible": "different versions of Spark",
}


@pytest.mark.parametrize("said", SEEN)
def test_a_frequent_error_is_told_in_one_line(said):
    told = cause_in(
        f"Job aborted due to stage failure: Task 0 failed\n\tat org.apache.spark.x\nCaused by: {said}\n\tat y"
    )
    assert SEEN[said] in told
    assert "\n" not in told


def test_other_errors_stay_what_they_are():
    assert advice("java.lang.ArithmeticException: / by zero") is None
    assert cause_in("headwater.errors.RunError: No space left on device, says a step") == (
        "No space left on device, says a step"
    )
