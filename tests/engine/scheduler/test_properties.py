"""The scheduler alone, without threads: whatever the graph, the policy, the bounds and the order in which work comes back,
every record is run once per step and in order, nobody is run twice at once, queues are bounded and nothing stands still."""

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from headwater.engine.policy import POLICIES
from headwater.engine.scheduler import Scheduler
from properties import examples

#: what a record costs, in ns: of cheap steps several run on inline, of dear ones each activation is long
COSTS = st.lists(st.one_of(st.floats(10, 5_000), st.floats(5_000, 3e6)), min_size=8, max_size=8)
EMIT, BEGIN, END, REST = range(4)
#: what happens next, and to whom; many, since who is run twice at once, say, has to be known to be slow first
TURN = st.tuples(st.sampled_from([EMIT, EMIT, BEGIN, BEGIN, END, END, REST]), st.integers(0, 7))
TURNS = st.lists(TURN, min_size=40, max_size=90)


@st.composite
def graphs(draw):
    """Senders before receivers; the first few are sources; whoever feeds nobody is a sink."""
    n, sources = draw(st.integers(2, 8)), draw(st.integers(1, 2))
    downstream = [[] for _ in range(n)]
    for i in range(1, n):
        if i >= sources:
            for sender in draw(st.sets(st.integers(0, i - 1), min_size=1, max_size=3)):
                downstream[sender].append(i)
    return downstream, min(sources, n)


class World:
    """Queues of numbered records, and workers that come back in any order; it checks what it sees."""

    def __init__(self, downstream, sources, policy, take, workers, limit, costs):
        limits = [limit] * len(downstream)
        self.scheduler = Scheduler(downstream, POLICIES[policy](), take=take, workers=workers, limits=limits)
        self.downstream, self.sources, self.limit, self.costs = downstream, sources, limit, costs
        self.queues = [deque() for _ in downstream]
        self.ran = [[] for _ in downstream]
        self.under_way, self.busy = [], set()
        self.now_ns = 0

    def occupy(self, activation):
        held = {activation.instance, *activation.inline} if not activation.by_source else set(activation.inline)
        assert not held & self.busy, "an instance was given out twice"
        self.busy |= held

    def at_it(self, source):
        """Whether a source is handing something over: it does so one batch after the other."""
        return any(each.by_source and each.instance == source for each, _ in self.under_way)

    def emit(self, source, records):
        activation = self.scheduler.admit(source, len(records), self.now_ns)
        if activation is None:
            assert any(len(self.queues[i]) >= 0.4 * self.limit for i in range(len(self.queues)))
            return False
        self.occupy(activation)
        self.under_way.append((activation, records))
        return True

    def begin(self):
        activation = self.scheduler.next(self.now_ns)
        if activation is None:
            return False
        self.occupy(activation)
        queue = self.queues[activation.instance]
        self.under_way.append((activation, [queue.popleft() for _ in range(activation.records)]))
        return True

    def end(self, which):
        activation, records = self.under_way.pop(which % len(self.under_way))
        self.run(activation.instance, records, activation.inline)
        self.busy -= {activation.instance, *activation.inline}
        elapsed_ns = int(self.costs[activation.instance] * activation.records)
        self.now_ns += elapsed_ns
        self.scheduler.finished(activation, elapsed_ns, out=activation.records)

    def rest(self, instance):
        """Have an instance served no more for a while, as one whose sink is away."""
        self.scheduler.rest(instance, self.now_ns + 1_000_000)

    def run(self, instance, records, inline):
        self.ran[instance] += records
        records = [((*way, instance), number) for way, number in records]
        for to in self.downstream[instance]:
            if to in inline:
                self.scheduler.learn(to, len(records), int(self.costs[to] * len(records)))
                self.run(to, records, inline)
            else:
                self.queues[to] += records
                self.scheduler.arrived(to, len(records), 1)


@given(
    graphs(),
    st.sampled_from(sorted(POLICIES)),
    st.sampled_from(["all", "half", 1, 7]),
    st.integers(1, 3),
    st.integers(1, 30),
    COSTS,
    st.lists(st.tuples(st.integers(0, 1), st.integers(1, 12)), min_size=5, max_size=40),
    TURNS,
)
@examples(400)
def test_whatever_comes_the_scheduler_keeps_its_promises(graph, policy, take, workers, limit, costs, arrivals, turns):
    downstream, sources = graph
    world = World(downstream, sources, policy, take, workers, limit, costs)
    made = [0] * len(downstream)
    pending = deque((source % sources, count) for source, count in arrivals)

    def emit():
        source, count = pending[0] if pending else (0, 0)
        if world.at_it(source) or not count:
            return False
        if not world.emit(source, [((), made[source] + i) for i in range(count)]):
            return False
        made[source] += count
        pending.popleft()
        return True

    for turn, which in turns:
        if turn == EMIT:
            emit()
        elif turn == BEGIN:
            world.begin()
        elif turn == REST:
            world.rest(which % len(downstream))
        elif world.under_way:
            world.end(which)
    while emit() or world.begin() or world.under_way or world.scheduler.resting:
        if world.under_way:
            world.end(0)
        else:
            world.now_ns += world.scheduler.rest_ns(world.now_ns) or 0
    assert not pending, "a source was held for ever"
    assert world.scheduler.idle(), "something stood still"
    paths = _paths(downstream, sources)
    for instance, ran in enumerate(world.ran):
        by_way = {}
        for way, number in ran:
            by_way.setdefault(way, []).append(number)
        for numbers in by_way.values():
            assert numbers == sorted(numbers), "records overtook each other"
        assert len(ran) == sum(paths[source][instance] * made[source] for source in range(sources))


@given(graphs(), st.sampled_from(["all", "half", 1, 7]), st.integers(1, 20), st.lists(st.integers(1, 12), max_size=30))
def test_queues_are_bounded_by_their_limit_and_one_activation_of_each_sender(graph, take, limit, counts):
    downstream, sources = graph
    world = World(downstream, sources, "longest_queue", take, 2, limit, [1e6] * 8)
    largest = 0
    for turn, count in enumerate(counts):
        if not world.at_it(turn % sources):
            world.emit(turn % sources, [((), 0)] * count)
        while world.begin():
            pass
        largest = max(largest, *(activation.records for activation, _ in world.under_way), 0)
        if world.under_way:
            world.end(turn)
        for instance, queue in enumerate(world.queues):
            senders = sum(targets.count(instance) for targets in downstream)
            assert len(queue) <= limit + senders * max(largest, 12)


def _paths(downstream, sources):
    """How many ways lead from each source to each instance: so many times each record is run there."""
    ways = []
    for source in range(sources):
        count = [0] * len(downstream)
        count[source] = 1
        for sender, targets in enumerate(downstream):
            for target in targets:
                count[target] += count[sender]
        ways.append(count)
    return ways
