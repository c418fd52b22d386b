"""Which step runs where: a problem of frozen arrays, one strategy per file, and the account of the answer.

problem         what is asked: steps, streams, net, and the model of time
from_flow       a problem from a flow, its profile and a net
constraints     pins, company, trust, targets, as a user asks for them
constraint_table  every constraint once: as arrays, as a linear form, in words; all but verify read it
strategies      all strategies by name; each is a file of its own
score           what an answer is worth; fast_score and capacity are the same in the forms that searches need
verify          whether an answer counts, reckoned independently (recount)
account, render the answer explained, as data and in words; picture draws it
explain         why nothing fits
fleet, repair   several flows on one net; mending after a loss
what_if         the least that meets a target
plan            the answer as a file that runs
cases/          the published problems
"""

from headwater.place.constraints import Constraints, constrain
from headwater.place.objective import Objective
from headwater.place.placement import Budget, Placement
from headwater.place.plan import Plan
from headwater.place.problem import DeviceUse, Model, Problem
from headwater.place.score import Score, score
from headwater.place.strategies import strategy
from headwater.place.verify import Violation, violations

__all__ = [
    "Budget",
    "Constraints",
    "DeviceUse",
    "Model",
    "Objective",
    "Placement",
    "Plan",
    "Problem",
    "Score",
    "Violation",
    "constrain",
    "score",
    "strategy",
    "violations",
]
