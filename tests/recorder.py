"""A scheduler that writes down what it is told and what it decides, so that both can be played again."""

import threading

from headwater.engine.scheduler import Scheduler


class Recorder(Scheduler):
    """Keeps every event and every decision, in the order in which they were made."""

    def __init__(self, *args, **options):
        self.lock, self.depth, self.trace, self.how = threading.RLock(), 0, [], (args, options)
        super().__init__(*args, **options)

    def replayed(self):
        """Tell a new scheduler the same, and return what it was told and decides."""
        (downstream, policy), options = self.how
        fresh = Scheduler(downstream, type(policy)(), **{**options, "throttle": None})
        return [(name, args, getattr(fresh, name)(*args)) for name, args, _ in self.trace]


def _recorded(name):
    method = getattr(Scheduler, name)

    def call(self, *args):
        with self.lock:
            self.depth += 1
            answer = method(self, *args)
            self.depth -= 1
            if not self.depth:  # what it tells itself is no event
                self.trace.append((name, args, answer))
        return answer

    return call


for event in ("arrived", "finished", "learn", "admit", "next"):
    setattr(Recorder, event, _recorded(event))
