"""A device without Numba runs the same flows, slower, with the same output."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import json, sys, tempfile
from pathlib import Path
if sys.argv[1] == "plain":
    sys.modules["numba"] = None
from headwater import engine
from headwater.data.column import Text
from headwater.io import Collect
from headwater.data.jit import COMPILED
from headwater_bench.riot.etl import etl
from headwater_bench.riot.generate import messages, stream
from headwater_bench.riot.pred import pred
from headwater_bench.riot.sources import repeated
from headwater_bench.riot.stats import stats
from headwater_bench.riot.train import train, triggers

assert COMPILED == (sys.argv[1] == "compiled")
texts = Text.of(messages(stream("CITY"), 0, 4).tolist() * 6)
notes = {json.loads(text)["e"][0]["sv"]: ("here", "solar") for text in texts.tolist()}
for build, options in ((etl, {"notes": notes}), (etl, {"notes": notes, "wide": True}), (stats, {}), (pred, {})):
    kept = Collect()
    report = engine.run(build(repeated(texts, 1e9, count=24), publish=kept, **options), workers=1)
    assert report.dead_letters == 0
    print(*sorted(str(row) for row in kept.records if row.get("kind") != "MLR"), sep="\\n")
with tempfile.TemporaryDirectory() as folder:
    engine.run(train(triggers(1e9, count=2), models=Path(folder)))
    print(*sorted(path.read_text() for path in Path(folder).glob("*.model")), sep="\\n")
"""


def output(how: str) -> str:
    run = [sys.executable, "-W", "error", "-c", PROGRAM, how]
    return subprocess.run(run, capture_output=True, text=True, check=True).stdout


def test_flows_without_numba_give_the_same_output_and_no_warnings():
    plain = output("plain")
    assert plain == output("compiled")
    assert plain.count("'senml'") == 2 * 24
    assert plain.count("'kind': 'DTC'") == 24
    assert plain.count("headwater-model") == 4
