"""How the workers of a test run share its files out: one has Spark from the beginning, the others come to it last.

Tests of Spark compute much, in a session that takes long to start; the others wait a lot, for brokers, children and clocks.
So both go on at once. Beside the threads of a session no lanes can be forked: a worker that has one keeps to such tests.
"""

from xdist.scheduler import LoadFileScheduling

#: all in these is a test of Spark; elsewhere the name of one that asks for the session ends with `on_spark`
FOLDERS = ("tests/spark/", "tests/runners/", "src/headwater/spark/", "bench/src/headwater_bench/mllib/")
_APART = " on Spark"


def is_on_spark(name):
    """Say whether a test may start a session of Spark in the process that runs it, by its name with its path."""
    return name.startswith(FOLDERS) or name.rstrip("]").endswith("on_spark")


class Sharing(LoadFileScheduling):  # type: ignore[misc] # whose types are not known
    """Hands out files in order: to one worker those on Spark, to others first those that are not."""

    def _split_scope(self, nodeid):
        return super()._split_scope(nodeid) + (_APART if is_on_spark(nodeid) else "")

    def _assign_work_unit(self, node):
        wanted = self._wanted(node)
        if wanted is None:  # it has a session, and nothing is left that needs one
            node.shutdown()
            return
        self.workqueue.move_to_end(wanted, last=False)
        super()._assign_work_unit(node)

    def _wanted(self, node):
        """Return which of the files that wait a worker should have next; None where it can have none of them."""
        first = {scope.endswith(_APART): scope for scope in reversed(self.workqueue)}
        has_session = any(scope.endswith(_APART) for scope in self.assigned_work[node])
        if has_session or (True in first and node is self.nodes[0]):
            return first.get(True)
        return first.get(False) or first[True]
