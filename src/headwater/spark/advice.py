"""What Spark's frequent errors mean, each in one line: what is wrong, and what to do about it."""

from __future__ import annotations

import re

#: a form that the text of an error has, and what is told then; groups of the form are filled in
_KNOWN: tuple[tuple[str, str], ...] = (
    (
        r"No space left on device",
        "the disk is full: free some space where the checkpoint is and where Spark keeps its own (spark.local.dir)",
    ),
    (
        r"spark\.driver\.maxResultSize \(([^)]+)\)",
        "a micro-batch has more for the driver's sinks than {0} (spark.driver.maxResultSize): let it read less at once "
        "(sizes), write a table, which tasks write themselves, or raise the setting",
    ),
    (
        r"OutOfMemoryError: (?:Java heap space|GC overhead limit exceeded)",
        "Java is out of memory: give it more (-c spark.driver.memory=4g, elsewhere spark.executor.memory), or let a "
        "micro-batch read less at once (sizes)",
    ),
    (
        r"exit(?:ed with|\s*code:?| status:?)[^\n]{0,30}\b(?:137|143)\b|Container killed .* exceeding",
        "an executor was ended by its system, which happens when memory is short: Python processes need 300 MB for each "
        "core beside Java (spark.executor.memoryOverhead)",
    ),
    (
        r"Python in worker has different version[^0-9]*([\d.]+)[^0-9]+([\d.]+)|PYTHON_VERSION_MISMATCH",
        "executors have another Python than the driver: both need the same minor version (PYSPARK_PYTHON says which)",
    ),
    (
        r"ModuleNotFoundError: No module named '([^']+)'",
        "a Python process of Spark's does not find the module {0!r}: install it where executors run, or send the whole "
        "environment (headwater spark submit --environment)",
    ),
    (
        r"Cannot run program \"([^\"]+)\"",
        "{0!r}, with which executors should start Python, is not there: set PYSPARK_PYTHON to one that is, on every machine",
    ),
    (
        r"No FileSystem for scheme \"?(\w+)\"?",
        "Spark knows no file system {0}: its jar is missing, for s3a org.apache.hadoop:hadoop-aws, for abfss "
        "org.apache.hadoop:hadoop-azure, of the version of Hadoop that Spark has (-c spark.jars.packages=…)",
    ),
    (
        r"ClassNotFoundException: (?:Class )?(org\.apache\.hadoop\.fs\.\S+)",
        "Spark's file system {0} is not there: give its jar, such as org.apache.hadoop:hadoop-aws "
        "(-c spark.jars.packages=…)",
    ),
    (
        r"(?:Failed to find|Cannot find) (?:the )?data source:? ?\"?`?([\w.]*\w)|DATA_SOURCE_NOT_FOUND[^\n]*?: ([\w.]*\w)",
        "Spark has no connector {0}: give its jars, as -c spark.jars.packages=… or -c spark.jars=…",
    ),
    (
        r"No suitable driver|ClassNotFoundException: (\S*[Dd]river\S*)",
        "the driver of the database is not there: give its jar, as -c spark.jars=…",
    ),
    (
        r"AccessDeniedException: ([^\n:]+)|Permission denied: ([^\n]+)",
        "access denied: {0}; may the user that Spark runs as do this?",
    ),
    (
        r"NoAuthWithAWSException|Unable to load AWS credentials|InvalidAccessKeyId",
        "S3 does not know who asks: set fs.s3a.access.key and fs.s3a.secret.key (-c spark.hadoop.fs.s3a.…), or the "
        "variables AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    ),
    (
        r"Some data may have been lost because they are not available in Kafka",
        "Kafka has no longer what the checkpoint goes on from: it was deleted by the topic's retention; begin anew with "
        'another checkpoint, or accept the gap with io.Kafka(…, options={{"failOnDataLoss": "false"}})',
    ),
    (
        r"UnknownTopicOrPartitionException",
        "the broker has no such topic, and does not make topics by itself: create it first",
    ),
    (
        r"CANNOT_LOAD_STATE_STORE|Error reading (?:delta|snapshot) file|FAILED_TO_READ_DELTA_FILE",
        "state in the checkpoint cannot be read: files of it are missing or broken, or executors do not see its folder; "
        "restore it as a whole, or begin anew with another",
    ),
    (
        r"Initial job has not accepted any resources",
        "the master has no cores or memory left for this: ask for less (spark.cores.max, spark.executor.memory), or wait",
    ),
    (
        r"All masters are unresponsive",
        "no master has taken it on; is it one, and of the same version of Spark?",
    ),
    (
        r"UnsupportedClassVersionError|class file major version (\d+)",
        "a jar was made for a newer Java than this one; `headwater doctor` says which Java is used",
    ),
    (
        r"UnknownHostException: ([^\s:]+)",
        "there is no machine {0}: is the name right, and known here and where executors run?",
    ),
    (
        r"InvalidClassException|local class incompatible",
        "driver and executors run different versions of Spark or of a jar; all need the same",
    ),
)


def advice(message: str) -> str | None:
    """Return what an error of Spark's means, in one line; None for one that is not among the frequent.

    >>> advice('java.lang.RuntimeException: No FileSystem for scheme "s3a"')[:34]
    'Spark knows no file system s3a: it'
    """
    for form, text in _KNOWN:
        match = re.search(form, message)
        if match:
            groups = [group for group in match.groups() if group]
            return text.format(*(groups or [""]))
    return None
