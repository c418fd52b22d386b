"""ETL, STATS and PRED on Headwater, Bytewax and Pathway: the highest rate of each within a latency bound.

Every run is a child process on the same processors, with the same messages, an open-loop source and a null sink. The systems
take turns, so that a machine whose speed drifts is fair to all. The peers' flows are in `bench/peers` of the source tree;
the peers themselves are installed into an environment of their own, the first time they are needed.
"""

from __future__ import annotations

import json
import math
import os
import platform
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headwater.cores import whole_cores
from headwater.errors import RunError, listed, suggestion
from headwater_bench.experiments.peers_equal import differences, read, rows_of
from headwater_bench.experiments.rows import write_rows

BOUND_MS = 100.0
FLOWS = ("etl", "stats", "pred")
SYSTEMS = ("headwater", "bytewax", "pathway")
#: the same with a record for each observation, as RIoTBench has it
TALL, TALL_FLOWS = ("headwater tall", "bytewax tall"), ("etl", "stats")
GOALS = {"bytewax": 10, "pathway": 3}
_FIRST_HZ = {
    "headwater": 80_000.0,
    "bytewax": 8000.0,
    "pathway": 4000.0,
    "headwater tall": 40_000.0,
    "bytewax tall": 4000.0,
}
_MESSAGES, _SENSORS = 2**14, 90  #: the stream has 90 real sensors; so regressions are warm after a thousand messages

#: What differs between the forms of the flows, and how far their results can be compared.
FORMS = (
    "all: a message stays one row, and STATS puts out one row for each message and kind of result",
    "tall: a record for each observation of a message in ETL and STATS, as RIoTBench has it; PRED has one form",
    "headwater: the engine as it comes, 32-bit floats in arrays, a Bloom filter of the benchmark's size",
    "peers: Python's 64-bit floats, a set instead of the Bloom filter, SenML by msgspec, hashes of sensors remembered",
    "bytewax: one worker (Python functions share the GIL), up to 1000 messages at a time, state by sensor in stateful_batch",
    "compared: a moment until a random value is replaced; an error by any mean nearby, as the latest depends on timing",
    "pathway: one thread, commits every 10 ms, all steps with state in one reducer, since each takes earlier results back",
)


def run(
    quick: bool = False,
    output: Path | None = None,
    *,
    flows: Sequence[str] | None = None,
    seconds: float | None = None,
) -> dict[str, Any]:
    """Compare the systems on each flow; results are checked to be equal before rates are sought."""
    for name in flows or ():
        if name not in FLOWS:
            raise RunError(f"there is no flow {name!r} to compare; known are {listed(FLOWS)}{suggestion(name, FLOWS)}")
    span = seconds or (1.0 if quick else 3.0)
    answer: dict[str, Any] = {}
    cases: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), installed())
        for name in flows or FLOWS:
            equal, mismatches = bench.check(name)
            tried = bench.search(name, span, step=1.3 if quick else 1.1, tries=1 if quick else 2)
            cases += tried
            answer[name] = {
                **_rates(tried),
                "outputs_equal": equal,
                "differences": mismatches,
                "steps": bench.steps(name),
            }
    answer["machine"] = f"{platform.machine()}, {whole_cores()} cores, Python {platform.python_version()}"
    answer["bound_ms"], answer["seconds"], answer["forms"] = BOUND_MS, span, list(FORMS)
    if output is not None:
        _write(cases, answer, output)
    return answer


def _rates(tried: list[dict[str, Any]]) -> dict[str, Any]:
    best = {system: sustained([case for case in tried if case["system"] == system]) for system in SYSTEMS}
    figures: dict[str, Any] = {"rate": best["headwater"]}
    for peer in SYSTEMS[1:]:
        figures[f"{peer}_rate"] = best[peer]
        figures[f"over_{peer}"] = round(best["headwater"] / best[peer], 2) if best[peer] else None
    if any(case["system"] in TALL for case in tried):
        best |= {system: sustained([case for case in tried if case["system"] == system]) for system in TALL}
        ours, theirs = (best[system] for system in TALL)
        figures |= {"tall_rate": ours, "bytewax_tall_rate": theirs}
        figures["tall_over_bytewax_tall"] = round(ours / theirs, 2) if theirs else None
        figures["tall_over_bytewax"] = round(ours / best["bytewax"], 2) if best["bytewax"] else None
    figures["cpu_us"] = {
        system: next((case["cpu_us"] for case in tried if (case["system"], case["rate"]) == (system, rate)), None)
        for system, rate in best.items()
    }
    return figures


def sustained(cases: Sequence[dict[str, Any]]) -> float:
    """Return the highest rate that was kept in one of its tries, as every lower rate that was tried was too; 0 for none."""
    best = 0.0
    for rate in sorted({case["rate"] for case in cases}):
        if not any(case["kept"] for case in cases if case["rate"] == rate):
            break
        best = rate
    return best


class Bench:
    """Runs flows in child processes on one set of messages."""

    def __init__(self, folder: Path, peers: Path) -> None:
        self._folder, self._scripts = folder, scripts()
        self._python = {"headwater": sys.executable, "bytewax": str(peers), "pathway": str(peers)}
        self.messages = _prepared(folder)

    def check(self, flow: str) -> tuple[bool, dict[str, list[str]]]:
        """Send all messages through each system once; return whether results agree, and where they do not."""
        results = {}
        for system in _systems(flow):
            path = self._folder / f"{flow}-{system}.jsonl"
            self._child(system, flow, "--check", str(path))
            results[system] = rows_of(flow, read(path)) if system in TALL else read(path)
        ours = results.pop("headwater")
        mismatches = {system: differences(flow, self.messages, ours, theirs) for system, theirs in results.items()}
        return not any(mismatches.values()), mismatches

    def search(self, flow: str, seconds: float, *, step: float, tries: int) -> list[dict[str, Any]]:
        """Seek each system's highest rate, one run of each in turn; return all runs."""
        searches = {system: Search(_FIRST_HZ[system], step) for system in _systems(flow)}
        cases: list[dict[str, Any]] = []
        while any(search.rate is not None for search in searches.values()):
            for system, search in searches.items():
                if search.rate is None:
                    continue
                is_kept = False
                for _ in range(tries):
                    if not is_kept:
                        cases.append(self._case(flow, system, search.rate, seconds))
                        is_kept = cases[-1]["kept"]
                search.tell(is_kept)
        return cases

    def steps(self, flow: str) -> dict[str, dict[str, float]]:
        """Return how many records per second each step does: measured in the engine, and of the peers' functions alone."""
        ours = self._child("headwater", flow, "--steps", "--rate", "50000", "--seconds", "1")
        return {"headwater": ours, "peers": self._child("bytewax", flow, "--steps")}

    def _case(self, flow: str, system: str, rate: float, seconds: float) -> dict[str, Any]:
        figures = self._child(system, flow, "--rate", f"{rate:.0f}", "--seconds", str(seconds))
        is_kept = figures["p99_ms"] <= BOUND_MS and figures["out_hz"] >= 0.97 * rate
        rounded_figures = {name: round(figures[name], 3) for name in ("out_hz", "p50_ms", "p99_ms", "cpu_us")}
        return {"flow": flow, "system": system, "rate": rate, **rounded_figures, "kept": is_kept}

    def _child(self, system: str, flow: str, *options: str) -> Any:
        files = ("--messages", str(self._folder / "messages"), "--notes", str(self._folder / "notes"))
        if system in TALL:
            system, options = system.removesuffix(" tall"), ("--tall", *options)
        script = str(self._scripts / f"{system}_flows.py")
        process = subprocess.run(
            [self._python[system], script, flow, *files, *options], capture_output=True, text=True, check=False
        )
        if process.returncode != 0:
            raise RunError(f"{system} could not run {flow}: {_last_line(process.stderr)}")
        return json.loads(process.stdout.splitlines()[-1])


def _systems(flow: str) -> tuple[str, ...]:
    return (*SYSTEMS, *TALL) if flow in TALL_FLOWS else SYSTEMS


class Search:
    """Seeks the highest rate that is kept: doubles or halves until it has one on each side, then narrows.

    >>> search = Search(1000, step=1.1)
    >>> while search.rate is not None:
    ...     search.tell(search.rate <= 3300)
    >>> 3000 < search.kept <= 3300
    True
    """

    def __init__(self, first: float, step: float) -> None:
        self.rate: float | None = first  #: to be tried next; None when it is known well enough
        self.kept, self._lost, self._step = 0.0, math.inf, step
        self._least = first / 200

    def tell(self, is_kept: bool) -> None:
        """Take note whether the rate was kept."""
        assert self.rate is not None
        if is_kept:
            self.kept = self.rate
        else:
            self._lost = self.rate
        if self._lost == math.inf:
            self.rate = 2 * self.kept
        elif self.kept == 0:
            self.rate = self._lost / 2 if self._lost / 2 >= self._least else None
        else:
            self.rate = math.sqrt(self.kept * self._lost) if self._lost > self._step * self.kept else None


def scripts() -> Path:
    """Return the folder with the peers' flows."""
    folder = Path(__file__).parents[3] / "peers"
    if not (folder / "requirements.txt").is_file():
        raise RunError(f"the peers' flows are in bench/peers of the source tree, which is not there: {folder}")
    return folder


def environment() -> Path:
    """Return where the peers are installed: a folder of the user's cache."""
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "headwater" / "peers"


def installed() -> Path:
    """Return the interpreter of the peers' environment; makes it, if it is not there or asks for other versions."""
    home, requirements = environment(), scripts() / "requirements.txt"
    python, stamp = home / "bin" / "python", home / "ready.txt"
    if stamp.is_file() and stamp.read_text() == requirements.read_text():
        return python
    try:
        venv.create(home, clear=True, with_pip=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise RunError(f"cannot make an environment for the peers in {home}: {error}") from error
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", str(requirements)]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    if process.returncode != 0:
        raise RunError(
            f"cannot install the peers into {home}: pip says {_last_line(process.stderr)!r}; the comparison needs a package "
            f"registry that has what {requirements} lists, and about 1.5 GB of room"
        )
    stamp.write_text(requirements.read_text())
    return python


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "nothing"


def _prepared(folder: Path) -> list[bytes]:
    """Write the messages and what is known of their sensors; return the messages."""
    from headwater_bench.riot.city import CityStream
    from headwater_bench.riot.datasets import CITY
    from headwater_bench.riot.generate import messages
    from headwater_bench.riot.notes import notes_of

    stream = CityStream(sensors=_SENSORS)
    lines = messages(stream, 0, _MESSAGES).bytes_list()
    (folder / "messages").write_bytes(b"\n".join(lines))
    notes = notes_of(CITY, stream.ids)
    (folder / "notes").write_text(json.dumps({sensor: notes[sensor] for sensor in stream.ids.tolist()}))
    return lines


def table(answer: dict[str, Any]) -> str:
    """Return the answer for people."""
    lines = [f"highest rate with p99 <= {BOUND_MS:.0f} ms, messages/s, null sink; {answer['machine']}"]
    for name in FLOWS:
        if name not in answer:
            continue
        flow = answer[name]
        rates = "  ".join(f"{peer} {flow[f'{peer}_rate']:,.0f}" for peer in SYSTEMS[1:])
        lines.append(f"{name:6s} headwater {flow['rate']:,.0f}  {rates}")
        if "tall_rate" in flow:
            gain = (
                f"{flow['tall_over_bytewax_tall']} x bytewax that has them too, {flow['tall_over_bytewax']} x bytewax"
            )
            lines.append(f"       with a record for each observation {flow['tall_rate']:,.0f}: {gain}")
        gains = ", ".join(f"{flow[f'over_{peer}']} x {peer} (goal {GOALS[peer]})" for peer in SYSTEMS[1:])
        lines.append(f"       {gains}; outputs {'equal' if flow['outputs_equal'] else 'DIFFER'}")
        costs = "  ".join(f"{system} {cost}" for system, cost in flow["cpu_us"].items())
        lines.append(f"       processor time of a message at that rate, µs: {costs}")
        for who, steps in flow["steps"].items():
            rates = "  ".join(f"{step} {rate / 1e3:,.0f}" for step, rate in steps.items())
            lines.append(f"       {'steps' if who == 'headwater' else 'functions of the peers'}, thousand/s: {rates}")
        for peer, mismatches in flow["differences"].items():
            lines += [f"       differs from {peer}: {difference}" for difference in mismatches[:3]]
    return "\n".join([*lines, *(f"form: {form}" for form in answer["forms"])])


def _write(cases: list[dict[str, Any]], answer: dict[str, Any], output: Path) -> None:
    write_rows(cases, output / "peers.csv")
    (output / "peers.txt").write_text(table(answer) + "\n")
    from headwater_bench.experiments.plots import figure

    drawn = [name for name in FLOWS if name in answer]
    fig, axes = figure(1, len(drawn), 4.2 * len(drawn), 3.6)
    for axis, name in zip(axes[0], drawn, strict=True):
        for system in dict.fromkeys(case["system"] for case in cases if case["flow"] == name):
            mine = sorted((case for case in cases if case["flow"] == name and case["system"] == system), key=_rate)
            axis.plot([_rate(case) for case in mine], [case["p99_ms"] for case in mine], marker=".", label=system)
        axis.set(title=name, xscale="log", yscale="log", xlabel="offered, messages/s", ylabel="p99 latency, ms")
        axis.axhline(BOUND_MS, color="#bbbbbb", linestyle=":", linewidth=1)
    axes[0][0].legend(fontsize=8)
    fig.savefig(output / "peers.png", dpi=110)


def _rate(case: dict[str, Any]) -> float:
    return float(case["rate"])
