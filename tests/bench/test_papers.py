"""The list of the papers' tables and figures is whole, its commands exist, and the page says the same."""

import json
import re
import shlex
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from headwater.cli import add_commands, app
from headwater.engine import energy, machine
from headwater_bench.experiments import aels_cases, cep_cases, device, papers

#: how many tables and figures each paper numbers
COUNTS = {"edgewise": (0, 12), "storm-rts": (1, 12), "aels": (7, 10), "cep": (4, 8)}
ROMAN = {"I": 1, "II": 2, "III": 3, "IV": 4}


@pytest.fixture(scope="module")
def commands():
    add_commands()
    return typer.main.get_command(app)


def numbers(paper, kind):
    named = [e.name.split() for e in papers.EXHIBITS if e.paper == paper]
    return sorted(ROMAN.get(number) or int(number) for what, number in named if what == kind)


@pytest.mark.parametrize("paper", COUNTS)
def test_every_table_and_figure_of_a_paper_is_listed_once(paper):
    tables, figures = COUNTS[paper]
    assert numbers(paper, "table") == list(range(1, tables + 1))
    assert numbers(paper, "figure") == list(range(1, figures + 1))
    assert set(papers.PAPERS) == set(COUNTS) == {e.paper for e in papers.EXHIBITS}


def parsed(command, arguments, name="headwater"):
    """Parse a command line all the way down, and run nothing."""
    with command.make_context(name, list(arguments), resilient_parsing=False) as context:
        rest = [*getattr(context, "_protected_args", []), *context.args]
        if not hasattr(command, "resolve_command"):
            assert not rest
            return
        sub_name, sub, rest = command.resolve_command(context, rest)
        parsed(sub, rest, sub_name)


@pytest.mark.parametrize("command", sorted({e.command for e in papers.EXHIBITS if e.command}))
def test_a_listed_command_exists_with_its_options(commands, command):
    program, *arguments = shlex.split(command)
    assert program == "headwater"
    parsed(commands, arguments)


def test_a_command_with_a_slip_in_it_would_be_found(commands):
    with pytest.raises(Exception, match="No such option"):
        parsed(commands, ["bench", "aels", "--tme", "60"])
    with pytest.raises(Exception, match="No such command"):
        parsed(commands, ["bench", "papres"])


def test_all_that_is_no_drawing_has_a_command_and_names_what_that_writes():
    for exhibit in papers.EXHIBITS:
        assert exhibit.command or exhibit.words
        assert exhibit.file or not exhibit.command
    assert not [e.name for e in papers.EXHIBITS if e.status == "not yet"]


def test_the_command_lists_them_in_every_form():
    ran = CliRunner().invoke(app, ["bench", "papers", "--json"])
    answer = json.loads(ran.output)
    assert answer["made"] + answer["not_yet"] + answer["words"] == len(answer["exhibits"]) == 54
    shown = CliRunner().invoke(app, ["bench", "papers"]).output
    assert "headwater bench aels --time 60" in shown


def test_the_page_is_the_list():
    page = Path(__file__).parents[2] / "docs" / "papers.md"
    assert page.read_text() == papers.page(), "run: headwater bench papers --markdown > docs/papers.md"


@pytest.mark.thorough
def test_the_nets_and_applications_of_the_aels_paper(tmp_path):
    answer = aels_cases.run(output=tmp_path)
    assert answer["nets_by_class"] == {"regular": 15, "large": 9, "extra-large": 3}
    assert answer["table_3"][-1]["devices"] == 250_500
    assert answer["settings"] == 130
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"table3.csv", "table4.csv", "aels-cases.txt", "table3.png", "table4.png"}
    assert len((tmp_path / "table3.csv").read_text().splitlines()) == 28


def test_a_parameter_out_of_its_range_is_an_error():
    import numpy as np

    with pytest.raises(AssertionError, match="cpu: drawn from 900"):
        aels_cases._parameter("cpu", np.array([900.0, 2000.0]))


@pytest.mark.thorough
def test_the_queries_and_dataflows_of_the_cep_paper(tmp_path):
    answer = cep_cases.run(quick=True, output=tmp_path)
    assert [row["query"] for row in answer["table_i"]][:2] == ["filter", "sequence of 3"]
    assert all(row["results"] > 0 for row in answer["table_i"])
    assert len(answer["table_iii"]) == 45
    assert {row["dag"] for row in answer["table_iii"] if not row["near"]} == cep_cases.LOOSE
    assert {path.suffix for path in tmp_path.iterdir()} == {".csv", ".txt", ".png"}


def test_a_query_that_finds_something_else_is_an_error():
    wrong = cep_cases.Example("filter", cep_cases.EXAMPLES[0].query, lambda heights: [(h,) for h in heights if h < 149])
    with pytest.raises(AssertionError, match=r"filter: .* results, expected"):
        cep_cases._results(wrong, list(range(100, 200)))


@pytest.mark.thorough
def test_what_queries_take_of_this_machine(tmp_path):
    answer = device.run(quick=True, output=tmp_path, seconds=0.1, records=20_000)
    assert len(answer["peak"]) == 21
    assert {row["rate"] for row in answer["steady"]} == {100, 1_000, 10_000}
    assert all(row["core_share"] > 0 for row in answer["steady"])
    least, *_, most = answer["links"]["latency_s"]
    assert 0 < least <= most
    assert {path.name for path in tmp_path.iterdir()} >= {"figure2.png", "figure3.png", "figure2.csv", "device.txt"}
    assert "no network" in device.table(answer)


def test_a_device_is_described_and_can_be_planned_with(tmp_path):
    from headwater import net as nets

    ran = CliRunner().invoke(app, ["profile", "--device", "--json", "--output", str(tmp_path / "here.toml")])
    found = json.loads(ran.output)
    assert found["cores"] >= 1
    assert found["cpu_ips"] == pytest.approx(found["cores"] * found["operations_per_s"])
    assert set(found["records_per_s"]) == set(machine.QUERIES)
    net = nets.read(tmp_path / "here.toml")
    assert net.classes[0].name == found["name"] == machine.name()
    assert net.classes[0].cpu_ips == pytest.approx(found["cpu_ips"])


@pytest.mark.parametrize("arguments", [["profile"], ["profile", "riot:etl", "--device"]])
def test_profiling_needs_a_flow_or_the_machine_and_not_both(arguments):
    ran = CliRunner().invoke(app, arguments)
    assert ran.exit_code != 0
    assert re.search("--device", str(ran.exception))


def test_energy_is_read_where_there_is_a_counter_and_told_where_there_is_none(tmp_path):
    assert "no energy counter" in energy.meter(tmp_path / "none")
    zone = tmp_path / "intel-rapl:0"
    zone.mkdir()
    (zone / "max_energy_range_uj").write_text("10000000")
    (zone / "energy_uj").write_text("9000000")
    meter = energy.meter(tmp_path)
    (zone / "energy_uj").write_text("9500000")
    assert meter.joules() == pytest.approx(0.5)
    (zone / "energy_uj").write_text("500000")  # it starts over at its end
    assert meter.joules() == pytest.approx(1.5)
    (zone / "energy_uj").write_text("nothing")
    assert "may not be read" in energy.meter(tmp_path)
