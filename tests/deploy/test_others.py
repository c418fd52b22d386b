"""What others take of a site's machine, from a /proc that is written here; and a policy that is told nothing else."""

import dataclasses
import os
from itertools import pairwise

import msgspec
import pytest

from headwater.deploy.control.messages import Report, Resources
from headwater.deploy.policies.deciding import Decider
from headwater.deploy.policies.view import idlest_load, view_of
from headwater.deploy.site.others import Others
from headwater.deploy.site.resources import busy_of
from policed_tanks import MOVABLE, PRICES, at, carried_out, policed, tanks

TICKS = os.sysconf("SC_CLK_TCK")
SITE, PART, LANE, OTHER = 100, 101, 102, 50


class Machine:
    """The processor times of a machine with some processors; those that a site has started are below its own process."""

    def __init__(self, folder, processors=1):
        self.proc, self._processors = folder, processors
        self._busy, self._used = 0.0, {SITE: 0.0, PART: 0.0, LANE: 0.0, OTHER: 0.0}

    def work(self, seconds=1, **cores):
        """Have time pass in which processes use so many cores."""
        for name, used in cores.items():
            self._used[globals()[name]] += seconds * used
            self._busy += seconds * used

    def write(self):
        share = round(self._busy * TICKS / self._processors)
        self.proc.mkdir(exist_ok=True)
        rows = [f"cpu{number} {share} 0 0 999 999 0 0 0 0 0" for number in range(self._processors)]
        (self.proc / "stat").write_text("\n".join(["cpu  1 2 3", *rows, "ctxt 5"]))
        parents = {SITE: 1, PART: SITE, LANE: PART, OTHER: 1}
        for pid, used in self._used.items():
            (self.proc / str(pid)).mkdir(exist_ok=True)
            behind = [parents[pid], *[0] * 9, round(used * TICKS), 0]
            (self.proc / str(pid) / "stat").write_text(f"{pid} (a (b) c) S {' '.join(map(str, behind))}\n")


def test_what_a_site_has_started_is_no_load_and_what_others_run_is(tmp_path):
    machine = Machine(tmp_path / "proc", processors=2)
    machine.work(PART=500.0, OTHER=100.0)  # before anybody looked
    others = Others(SITE, range(2), machine.proc)
    seen = []
    for second in range(100):
        machine.work(SITE=0.05, PART=0.6, LANE=0.5, OTHER=0.25 if second < 50 else 0.75)
        machine.write()
        seen.append(others.cores(float(second)))
    assert seen[0] == 0.0
    assert seen[45] == pytest.approx(0.25, abs=0.02)
    assert seen[99] == pytest.approx(0.75, abs=0.02)  # of the last half minute


def test_a_process_that_ends_and_a_number_that_is_used_again_leave_the_count_right(tmp_path):
    machine = Machine(tmp_path / "proc")
    others, seen = Others(SITE, range(1), machine.proc), []
    for second in range(60):
        machine.work(PART=0.5, LANE=0.3, OTHER=0.1)
        if second == 30:
            machine._used[LANE] = 0.0  # a new one has its number
        machine.write()
        seen.append(others.cores(float(second)))
    assert seen[-1] == pytest.approx(0.1, abs=0.03)
    assert Others(SITE, range(1), tmp_path / "nowhere").cores(0.0) == 0.0


def test_others_first_take_the_cores_that_a_site_does_not_lend():
    assert busy_of(1.5, 2.0, 1.0) == 0.5
    assert busy_of(1.5, 2.0, 4.0) == 0.375
    assert busy_of(0.1, 2.0, 0.0) == 1.0


# -- a policy that looks on ------------------------------------------------------------------------------------------------


def moves_in(tmp_path, policy, cores, others, seconds=1800):
    """Return the decisions of a policy over equal edges: the flow takes `cores` where it is, `others` use what they say."""
    state = policed(policy, whole=True)
    steps = {name: dataclasses.replace(each) for name, each in state.asked.profile.steps.items()}
    for step in MOVABLE:
        steps[step] = dataclasses.replace(steps[step], time_s=cores / 1000.0 / len(MOVABLE), selectivity={"out": 1.0})
    state.asked = msgspec.structs.replace(state.asked, profile=dataclasses.replace(state.asked.profile, steps=steps))
    decider, sites, decisions = Decider(tanks(), state), at("edge1"), []
    machines = {name: Machine(tmp_path / name) for name in PRICES}
    counts = {name: Others(SITE, range(1), machine.proc) for name, machine in machines.items()}
    for second in range(0, seconds, 2):
        reports = {}
        for name, machine in machines.items():
            own = {"PART": cores} if name == sites["means"] else {"PART": 0.01}
            machine.work(2, **own, OTHER=others(name, second))
            machine.write()
            busy = busy_of(counts[name].cores(float(second)), 1.0, 1.0)
            found = Resources(cores=1.0, free_memory_bytes=0, busy=busy, capacity=0.9, price=0.25)
            reports[name] = Report([], 0.0, 0.0, 0, 0, found)
        idlest = idlest_load(reports)
        seen = {
            name: view_of(name, report, here=name != "cloud", pid=None, price=0.25, idlest=idlest)
            for name, report in reports.items()
        }
        seen["barn"] = dataclasses.replace(seen["barn"], why="it is a gate post")
        decision = decider.decide(float(second), seen, sites, {})
        if decision is not None:
            sites = carried_out(decider, decision, sites)
            decisions.append(decision)
    return decisions


@pytest.mark.parametrize(
    "policy",
    ["min-cost", *(pytest.param(name, marks=pytest.mark.thorough) for name in ("min-latency", "near-sources"))],
)
def test_a_flow_does_not_flee_from_its_own_load(tmp_path, policy):
    assert len(moves_in(tmp_path, policy, 0.66, lambda site, second: 0.05)) <= 1


@pytest.mark.thorough
def test_a_flow_that_others_crowd_out_moves_once_for_gain_and_says_why(tmp_path):
    decisions = moves_in(
        tmp_path, "min-cost", 0.66, lambda site, second: 0.3 * (site == "edge1" and second > 60) + 0.2, 600
    )
    assert decisions == []  # there is room for both
    decisions = moves_in(tmp_path, "min-cost", 0.66, lambda site, second: 0.7 * (site == "edge1" and second > 60), 600)
    (decision,) = decisions
    assert not decision.forced
    assert {to for _, to in decision.moves.values()} == {"edge2"}
    assert "load at 'edge1' 0 → " in decision.why
    assert "device 'edge1' would be" in decision.why
    was, would_be = decision.expects["busiest"]
    assert was > 1.0 > would_be


@pytest.mark.thorough
def test_load_that_goes_from_site_to_site_moves_a_flow_no_oftener_than_it_may_rest(tmp_path):
    def chasing(site, second):
        return 0.7 * ((second // 100) % 2 == (site == "edge1"))

    decisions = moves_in(tmp_path, "min-cost", 0.66, chasing, 900)
    assert decisions
    assert not any(each.forced for each in decisions)
    assert min((b.at_s - a.at_s for a, b in pairwise(decisions)), default=60.0) >= 60.0
