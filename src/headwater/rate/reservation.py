"""A promise that was given: what is held for it, how, and what has been of it before where its lane died."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.flow.contract import Contract
from headwater.flow.profile import Demand
from headwater.rate import fork_context
from headwater.rate.messages import Ask, Findings, Tell


@dataclass(frozen=True, slots=True)
class Reservation:
    """What the supervisor holds for a flow, and what was found out for that."""

    id: str
    contract: Contract
    demand: Demand
    estimated: float
    measured: float | None  #: cores that the trial used; None where there was none
    cores: float  #: reserved
    grade: str
    how: str
    lanes: int = 1
    before: Tell | None = None  #: the last words of a lane that died, and whose place this one takes
    silent_s: float = 0.0  #: how long ago those were

    def ask(self, flow: str, *, best_effort: bool) -> Ask:
        """Return the words by which to ask for the same once more."""
        findings = Findings(self.demand, self.estimated, self.measured)
        keeper = 0 if fork_context.keeper is None else fork_context.keeper.pid
        return Ask(flow, self.contract, self.cores, best_effort, self.lanes, keeper, findings)
