"""STATS by hand: for every observation a Kalman filter and a sliding regression, a moment, and a distinct count.

The first three remember something of each sensor, the last of all of them. So there are two stages with state: one group
for each sensor, which goes through its five observations, and one for all.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha1

import numpy as np
import pandas as pd
import senml
import state
from keyed import in_order, kalman, sliding_regression
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

PLACES, BITS = 10, 5
_RESULT = "msg long, source string, obs string, kind string, result string"
_KEPT = 2 + 11 + 2 * PLACES + 2  # numbers that are kept of each observation of a sensor


def native(messages: DataFrame) -> DataFrame:
    return _stats(senml.native(messages), state.in_pandas)


def arrow(messages: DataFrame) -> DataFrame:
    return _stats(senml.arrow(messages), state.in_pandas)


def transform(messages: DataFrame) -> DataFrame:
    return _stats(senml.arrow(messages), state.transformed)


def _stats(rows: DataFrame, keep: state.Keep) -> DataFrame:
    by_sensor = keep(rows.select("msg", "source", *senml.NUMBERS).groupBy("source"), of_sensor, _RESULT)
    every = rows.select("msg", "source", F.lit(0).alias("all"))
    counted = keep(every.groupBy("all"), distinct, "msg long, source string, result string")
    names = F.array(*(F.lit(name) for name in senml.NUMBERS))  # all kinds of observation come from the same sensors
    of_each = counted.select("msg", "source", F.explode(names).alias("obs"), F.lit("DA").alias("kind"), "result")
    return by_sensor.union(of_each)


def of_sensor(key: tuple[str], frames: Iterator[pd.DataFrame], before: bytes | None) -> tuple[pd.DataFrame, bytes]:
    rows = in_order(frames)
    memory = np.zeros((len(senml.NUMBERS), _KEPT))
    memory[:, 1] = 30.0
    if before is not None:
        memory = np.frombuffer(before).reshape(memory.shape).copy()
    numbers: list[np.ndarray] = []
    names: list[str] = []
    kinds: list[str] = []
    results: list[str] = []
    for k, name in enumerate(senml.NUMBERS):
        values = rows[name].astype(np.float32, copy=False)
        smooth, memory[k, :2] = kalman(values, memory[k, :2])
        which, lines, memory[k, 2:13] = sliding_regression(smooth, memory[k, 2:13])
        moments, memory[k, 13:] = second_moment(values, memory[k, 13:])
        numbers += [rows["msg"][which], rows["msg"]]
        kinds += ["SLR"] * len(which) + ["SOM"] * len(values)
        names += [name] * (len(which) + len(values))
        results += ["#".join(map(repr, line)) + "#" for line in lines.astype(np.float32).tolist()]
        results += map(repr, moments)
    columns = {"msg": np.concatenate(numbers), "source": key[0], "obs": names, "kind": kinds, "result": results}
    return pd.DataFrame(columns), memory.tobytes()


def second_moment(values: np.ndarray, memory: np.ndarray) -> tuple[list[float], np.ndarray]:
    from headwater.data.hashing import hash_int, place_of  # the same choice of whom to replace

    items, counts = memory[:PLACES].tolist(), memory[PLACES : 2 * PLACES].tolist()
    seen, used = int(memory[-2]), int(memory[-1])
    total = 2 * sum(counts) - PLACES
    out = []
    for value, bits in zip(values.tolist(), values.view(np.int32).tolist(), strict=True):
        seen += 1
        try:
            place = items.index(value, 0, used)
            counts[place] += 1
            total += 2
        except ValueError:
            if used < PLACES:
                place = used
                used += 1
            else:
                seed = np.uint64(hash_int(bits, np.uint64(1)))
                place = place_of(np.uint64(hash_int(seen, seed)), PLACES)
            total += 2 * (1 - counts[place])
            items[place], counts[place] = value, 1
        out.append(seen * (total / used))
    return out, np.array([*items, *counts, seen, used])


def distinct(key: tuple[int], frames: Iterator[pd.DataFrame], before: bytes | None) -> tuple[pd.DataFrame, bytes]:
    rows = in_order(frames)
    ranks = list(before) if before is not None else [0] * 2**BITS
    places: dict[str, tuple[int, int]] = {}
    total, estimate, out = sum(ranks), "", []
    for source in rows["source"]:
        place = places.get(source)
        if place is None:
            place = places[source] = _place(source)
        bucket, rank = place
        if rank > ranks[bucket]:
            total += rank - ranks[bucket]
            ranks[bucket] = rank
            estimate = ""
        out.append(estimate := estimate or str(int(0.79402 * 2**BITS * 2 ** (total / 2**BITS))))
    return pd.DataFrame({"msg": rows["msg"], "source": rows["source"], "result": out}), bytes(ranks)


def _place(source: str) -> tuple[int, int]:
    head = int.from_bytes(sha1(source.encode()).digest()[:4], "little", signed=True)
    bucket, rest = head & (2**BITS - 1), head >> BITS
    return bucket, 31 if rest == 0 else (rest & -rest).bit_length() - 1
