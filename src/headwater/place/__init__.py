"""Which step runs where: a problem of frozen arrays, one strategy per file, and the account of the answer.

problem     what is asked: steps, streams, net        score, verify   what an answer is worth, and whether
it counts from_flow   a problem from a flow and its profile     wishes          pins, company, trust,
targets strategies  all strategies by name                    account, tell   the answer explained; picture
draws it explain     why nothing fits                          fleet, repair   several flows; mending after
a loss what_if     the least that meets a target             cases/          the published problems
"""

from headwater.place.objective import Objective
from headwater.place.placement import Budget, Placement
from headwater.place.problem import Model, Problem, Taken
from headwater.place.score import Score, score
from headwater.place.strategies import strategy
from headwater.place.verify import Violation, violations
from headwater.place.wishes import Wishes, wished

__all__ = [
    "Budget",
    "Model",
    "Objective",
    "Placement",
    "Problem",
    "Score",
    "Taken",
    "Violation",
    "Wishes",
    "score",
    "strategy",
    "violations",
    "wished",
]
