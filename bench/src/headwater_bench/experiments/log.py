"""How fast the durable log takes records while it makes them safe every 10 ms, and gives them back."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from headwater.data.batch import Batch
from headwater.data.frames import pack, unpack_frame
from headwater.data.schema import Schema
from headwater.io.log import Log
from headwater_bench.experiments.rows import write_rows

_SYNC_MS = 10
_SCHEMA = Schema.of({"n": int, "text": str})
_BATCH = 200
_TEXT = "x" * 72  # with a number, two stamps and an offset: about 100 bytes


def run(quick: bool = False, output: Path | None = None) -> dict[str, Any]:
    """Append batches as fast as it goes, until all are safe; then read them back and compare."""
    count = 200_000 if quick else 2_000_000
    with tempfile.TemporaryDirectory(prefix="headwater-log-", dir=Path.cwd()) as folder:
        answer = _measured(Path(folder), count // _BATCH)
    if output is not None:
        write_rows([answer], output / "log.csv")
    return answer


def _measured(folder: Path, batches: int) -> dict[str, Any]:
    samples = [_batch(number) for number in range(16)]
    log = Log(folder, sync_every_s=_SYNC_MS / 1000)
    checksum, syncs, synced = 0, 0, 0
    began = time.perf_counter()
    for number in range(batches):
        form = pack(samples[number % 16])
        log.append(form, records=_BATCH)
        checksum = crc32(form, checksum)
        syncs, synced = syncs + (log.synced != synced), log.synced
    log.sync()
    append_s = time.perf_counter() - began
    began = time.perf_counter()
    reader, records, checksum_back = log.reader(), 0, 0
    while entries := reader.read():
        for entry in entries:
            records += unpack_frame(entry.data).length
            checksum_back = crc32(entry.data, checksum_back)
    read_s = time.perf_counter() - began
    nbytes = log.nbytes
    log.close()
    total = batches * _BATCH
    return {
        "records": total,
        "record_bytes": round(nbytes / total),
        "records_per_s": round(total / append_s),
        "mb_per_s": round(nbytes / append_s / 1e6, 1),
        "fsync_every_ms": _SYNC_MS,
        "syncs_seen": syncs,
        "read_per_s": round(total / read_s),
        "read_back": records == total and checksum_back == checksum and not reader.lost,
    }


def _batch(number: int) -> Batch:
    return Batch.of({"n": np.arange(_BATCH) + number * _BATCH, "text": [_TEXT] * _BATCH}, _SCHEMA)


def table(answer: dict[str, Any]) -> str:
    """Say it in words."""
    equal = "all equal" if answer["read_back"] else "NOT EQUAL"
    return (
        f"{answer['records']:,} records of {answer['record_bytes']} bytes: {answer['records_per_s']:,} per second appended\n"
        f"and made safe every {answer['fsync_every_ms']} ms ({answer['mb_per_s']:g} MB/s), "
        f"{answer['read_per_s']:,} per second read back, {equal}"
    )
