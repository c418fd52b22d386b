"""The protocols that seeds try: checkpoints, the log, and bridges between sites."""

from __future__ import annotations

from collections import Counter

from headwater_bench.faults.bridge import trial as bridged
from headwater_bench.faults.log import LogTrial
from headwater_bench.faults.trial import Trial, ViolationError

_TURNS = ("checkpoint", "log", "checkpoint", "bridge")


def protocol_of(seed: int) -> str:
    """Return the protocol that a seed tries: of four, two are of checkpoints."""
    return _TURNS[seed % len(_TURNS)]


def tried(seed: int) -> Counter[str]:
    """Try a seed; return what happened, or raise ViolationError."""
    protocol = protocol_of(seed)
    if protocol == "checkpoint":
        return Trial(seed).run()
    try:
        return LogTrial(seed).run() if protocol == "log" else _bridged(seed)
    except Exception as error:  # what breaks is as wrong as what does not hold
        raise ViolationError(f"seed {seed}, {protocol}: {type(error).__name__}: {error}") from error


def _bridged(seed: int) -> Counter[str]:
    trial = bridged(seed)
    assert trial.is_right, f"lost {trial.lost}, twice {trial.twice}, stuck {trial.stuck}, {trial.faults}"
    powers = trial.faults.get("power", 0)
    killed = trial.faults.get("kill sender", 0) + trial.faults.get("kill receiver", 0)
    return Counter({"kills": killed, "power cuts": powers, "network cuts": trial.faults.get("cut", 0)})
