"""Every table and figure of the four papers that Headwater puts into one, and the command that makes it here.

An exhibit is *made* (a command writes it, our numbers beside the published ones), *words* (a drawing or a list: nothing is
measured in it), or *not yet*: it needs something that is still to be built, and says what.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

PAPERS = {
    "edgewise": "EdgeWise: Fu, Ghaffar, Davis and Lee, USENIX ATC 2019",
    "storm-rts": "Storm-RTS: Nguyen and Chien",
    "aels": "AELS: da Silva Veith, Dias de Assunção and Lefèvre, IEEE TCC 2021",
    "cep": "CEP placement: Ghosh and Simmhan",
}


@dataclass(frozen=True, slots=True)
class Exhibit:
    """One table or figure of a paper."""

    paper: str
    name: str
    """`table 5`, `figure 12`, numbered as the paper does."""
    shows: str
    command: str | None = None
    file: str | None = None
    """The picture, or table, in the command's output folder."""
    note: str = ""
    """For what is made, how it differs from the paper's; for the rest, what it waits for."""
    words: bool = False

    @property
    def status(self) -> str:
        """made, words or not yet."""
        return "made" if self.command else "words" if self.words else "not yet"


def _words(paper: str, name: str, shows: str) -> Exhibit:
    return Exhibit(paper, name, shows, words=True)


_RIOT = "headwater bench riot --output out/riot"
_AELS = "headwater bench aels --output out/aels"
_PLAYED = "headwater bench aels --time 60 --output out/aels"
_PLACED = "headwater bench cep-placement --output out/cep-placement"
_RATES = "headwater bench rates --output out/rates"

EXHIBITS = (
    _words("edgewise", "figure 1", "the edge between things and cloud"),
    _words("edgewise", "figure 2", "one worker per operation"),
    _words("edgewise", "figure 3", "EdgeWise's architecture"),
    _words("edgewise", "figure 4", "a scheduling example"),
    _words("edgewise", "figure 5", "an example of where latency comes from"),
    Exhibit(
        "edgewise",
        "figure 6",
        "the four RIoTBench topologies",
        "headwater show riot:pred --form svg --output pred.svg",
        "pred.svg",
        "riot:train, riot:etl and riot:stats likewise",
    ),
    Exhibit(
        "edgewise",
        "figure 7",
        "latency over throughput of PRED, STATS, ETL",
        _RIOT,
        "figure7.png",
        "a second row has kernels that keep the interpreter's lock; workers.png and sizes.png vary those",
    ),
    Exhibit("edgewise", "figure 8", "CV of utilisation over the input rate", _RIOT, "figure8.png"),
    Exhibit(
        "edgewise",
        "figure 9",
        "latency by operation of PRED, one thread each, at three rates",
        _RIOT,
        "figure9-pred.png",
        "upper row; our runner `threads` stands for Storm",
    ),
    Exhibit(
        "edgewise", "figure 10", "the same on a worker pool", _RIOT, "figure9-pred.png", "lower row; `longest_queue`"
    ),
    Exhibit(
        "edgewise",
        "figure 11",
        "consumption policies, STATS",
        _RIOT,
        "figure11.png",
        "`--take` and `--flow` for the others",
    ),
    Exhibit(
        "edgewise",
        "figure 12",
        "PRED on 1, 2, 4 and 8 machines",
        "headwater bench nodes --output out/nodes",
        "figure12.png",
        "simulated, by what steps cost here; for real with lanes of one machine",
    ),
    _words("storm-rts", "figure 1", "a worker-based engine"),
    Exhibit(
        "storm-rts",
        "figure 2",
        "throughput across resources, and beside a competing load",
        _RATES,
        "isolation.png",
        "beside a competing load; across resources: two cores here",
    ),
    _words("storm-rts", "figure 3", "rate-based machines"),
    _words("storm-rts", "table I", "workers and rate-based machines compared"),
    _words("storm-rts", "figure 4", "Storm-RTS's architecture"),
    _words("storm-rts", "figure 5", "several sites"),
    Exhibit(
        "storm-rts",
        "figure 6",
        "the RIoTBench workflows",
        "headwater show riot:stats --form svg --output stats.svg",
        "stats.svg",
        "riot:etl and riot:pred likewise",
    ),
    _words("storm-rts", "figure 7", "a cloud and three edge sites"),
    Exhibit(
        "storm-rts",
        "figure 8",
        "most throughput on 4 to 16 cores",
        _RATES,
        "cores.png",
        "promised lanes on 4 to 80 simulated cores, by what was measured here; one lane and two for real",
    ),
    Exhibit(
        "storm-rts",
        "figure 9",
        "throughput and latency beside worker-based engines",
        _RATES,
        "cores.png, scaling.png",
        "throughput over several machines, simulated; latency at 70 %",
    ),
    Exhibit(
        "storm-rts",
        "figure 10",
        "rates kept beside competing load",
        _RATES,
        "isolation.png",
        "figure 10b, to eight times the machine; figure 10a is scaling.png",
    ),
    Exhibit(
        "storm-rts",
        "figure 11",
        "rates kept through bursts",
        _RATES,
        "burst.png, burst_at_scale.png",
        "the paper's rates, and those that fill one lane of this machine",
    ),
    Exhibit(
        "storm-rts",
        "figure 12",
        "workflows that move between sites as costs change",
        "headwater bench sites --output out/sites",
        "sites.png",
        "sites are processes of one machine with a share of it each",
    ),
    _words("aels", "table 1", "related work"),
    _words("aels", "table 2", "symbols"),
    Exhibit(
        "aels",
        "table 3",
        "the 27 nets",
        "headwater bench aels-cases --output out/aels-cases",
        "table3.png",
        "each built and counted",
    ),
    Exhibit(
        "aels",
        "table 4",
        "parameters of operators",
        "headwater bench aels-cases --output out/aels-cases",
        "table4.png",
        "all draws held against the ranges",
    ),
    Exhibit("aels", "table 5", "time-outs on regular nets", _AELS, "aels.txt"),
    Exhibit("aels", "table 6", "time-outs on large nets", _AELS, "aels.txt"),
    Exhibit("aels", "table 7", "time-outs on extra-large nets", _AELS, "aels.txt"),
    _words("aels", "figure 1", "clouds and edge sites"),
    _words("aels", "figure 2", "operators, queues, resources"),
    _words("aels", "figure 3", "paths of an application"),
    _words("aels", "figure 4", "regions of an application"),
    Exhibit("aels", "figure 5", "seconds to place, regular nets", _AELS, "figure5.png"),
    Exhibit(
        "aels",
        "figure 6",
        "latency, regular nets",
        _PLAYED,
        "figure6.png",
        "every placement played for 60 s of virtual time",
    ),
    Exhibit("aels", "figure 7", "seconds to place, large nets", _AELS, "figure7.png"),
    Exhibit("aels", "figure 8", "latency, large nets", _PLAYED, "figure8.png", "as figure 6"),
    Exhibit("aels", "figure 9", "seconds to place, extra-large nets", _AELS, "figure9.png"),
    Exhibit("aels", "figure 10", "latency, extra-large nets", _PLAYED, "figure10.png", "as figure 6"),
    Exhibit(
        "cep",
        "table I",
        "example queries",
        "headwater bench cep-cases --output out/cep-cases",
        "table1.png",
        "every result held against a plain loop",
    ),
    Exhibit("cep", "table II", "the 21 query configurations", "headwater bench cep --output out/cep", "cep.txt"),
    Exhibit(
        "cep",
        "figure 1",
        "peak rates of all queries",
        "headwater bench cep --output out/cep",
        "cep.png",
        "this machine's core beside the paper's Pi 2 and Azure D2",
    ),
    Exhibit(
        "cep",
        "figure 2",
        "what queries draw, at peak and at set rates",
        "headwater bench device --output out/device",
        "figure2.png",
        "share of a core; watts only where a counter may be read. `headwater profile --device` for the machine itself",
    ),
    Exhibit(
        "cep",
        "figure 3",
        "latency and bandwidth between two devices",
        "headwater bench device --output out/device",
        "figure3.png",
        "two threads over loopback: the floor under a network",
    ),
    Exhibit(
        "cep",
        "table III",
        "the 45 dataflows",
        "headwater bench cep-cases --output out/cep-cases",
        "table3.png",
        "replicas: the paper's own are not published",
    ),
    Exhibit("cep", "figure 4", "latency, genetic and brute force", _PLACED, "cep-latency.png"),
    Exhibit("cep", "figure 5", "latency, genetic, all sizes", _PLACED, "cep-latency.png"),
    Exhibit("cep", "table IV", "quality of the searches", _PLACED, "cep-placement.txt"),
    Exhibit("cep", "figure 6", "queries per device", _PLACED, "cep-time.png", "right"),
    Exhibit("cep", "figure 7", "seconds to search", _PLACED, "cep-time.png", "left"),
    Exhibit("cep", "figure 8", "seconds over expected complexity", _PLACED, "cep-complexity.png"),
)


def run() -> dict[str, Any]:
    """The list as plain data."""
    return {
        "papers": PAPERS,
        "exhibits": [asdict(exhibit) | {"status": exhibit.status} for exhibit in EXHIBITS],
        "made": sum(exhibit.status == "made" for exhibit in EXHIBITS),
        "not_yet": sum(exhibit.status == "not yet" for exhibit in EXHIBITS),
        "words": sum(exhibit.status == "words" for exhibit in EXHIBITS),
    }


def table(answer: dict[str, Any]) -> str:
    """The list for a terminal."""
    lines = []
    for paper, title in answer["papers"].items():
        rows = [
            (e["name"], _does(e), e["shows"] + (f" ({e['note']})" if e["note"] and e["command"] else ""))
            for e in answer["exhibits"]
            if e["paper"] == paper
        ]
        lines += [title, *("  " + line for line in _open_points(rows)), ""]
    lines.append(f"{answer['made']} made, {answer['not_yet']} not yet, {answer['words']} drawings and lists")
    return "\n".join(lines)


def _does(exhibit: dict[str, Any]) -> str:
    if exhibit["command"]:
        return str(exhibit["command"])
    return "(a drawing or a list)" if exhibit["words"] else f"not yet: waits for {exhibit['note']}"


def _open_points(rows: list[tuple[str, str, str]]) -> list[str]:
    widths = [max(len(row[at]) for row in rows) for at in (0, 1)]
    return [f"{a:<{widths[0]}}  {b:<{widths[1]}}  {c}".rstrip() for a, b, c in rows]


def page() -> str:
    """The list as `docs/papers.md`."""
    lines = [
        "# The papers, table by table",
        "",
        "Headwater puts four published systems into one. This is every table and figure of the papers, with the command",
        "that makes it here; `headwater bench papers` prints the same, `--json` as data, `--markdown` this page. Each",
        "experiment checks its own answer before it reports a number, and writes CSV, a table and pictures to its",
        "`--output`; `--quick` is a first look. What is a drawing or a list in the paper has nothing to measure, and is",
        "marked so.",
    ]
    for paper, title in PAPERS.items():
        lines += ["", f"## {title}", "", "| | shows | command | in its output | |", "|---|---|---|---|---|"]
        for e in EXHIBITS:
            if e.paper == paper:
                lines.append(f"| {e.name} | {e.shows} | {_cell(e)} | {e.file or ''} | {e.note if e.command else ''} |")
    lines += ["", f"{run()['made']} are made, {run()['not_yet']} are not yet.", ""]
    return "\n".join(lines)


def _cell(exhibit: Exhibit) -> str:
    if exhibit.command:
        return f"`{exhibit.command}`"
    return "a drawing or a list" if exhibit.words else f"**not yet**: waits for {exhibit.note}"
