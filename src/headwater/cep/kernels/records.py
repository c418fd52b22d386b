"""Shows records, and the passing of time, to the attempts that `nfa` keeps: each to those that it can change."""

# Numba infers the types of kernels
# mypy: disable-error-code="no-untyped-def,no-untyped-call"
from __future__ import annotations

from headwater.cep.kernels import nfa as k
from headwater.cep.kernels import waiting as w
from headwater.data.jit import small_kernel as kernel


@kernel
def _fits(p, side, row, plan, s):
    for c in range(plan.sides[side, k.CONDITION], plan.sides[side, k.CONDITIONS_END]):
        earlier = s.rows[p, plan.conditions[c, 2]]
        other = s.values[plan.conditions[c, 3], earlier] if earlier >= 0 else w.NULL
        if not w.holds(plan.conditions[c, 0], s.values[plan.conditions[c, 1], row], other):
            return False
    return True


@kernel
def _offer(p, pos, i, row, time, passes, plan, s):
    """Offer a record to an attempt at a stage; say whether that was the place for it."""
    own = s.pool[p, k.POS] == pos
    kind = plan.stages[pos, k.KIND]
    for side in range(plan.stages[pos, k.SIDE], plan.stages[pos, k.SIDE] + plan.stages[pos, k.SIDES]):
        if not passes[side, i] or not _fits(p, side, row, plan, s):
            continue
        if plan.sides[side, k.IS_WAIT]:
            if not own or s.pool[p, k.PASSED]:
                continue
            if kind == k.OR:
                k.stop_waiting(p, s)  # the other side may still come
            else:
                k.die(p, time, True, plan, s)
            return True
        if kind == k.ACCEPT:
            fits = not own or plan.stages[pos, k.MOST] == k.NONE or s.pool[p, k.COUNT] < plan.stages[pos, k.MOST]
        else:
            fits = not own or s.pool[p, k.COUNT] & plan.sides[side, k.BIT] == 0
        if fits:
            k.take(p, pos, side, row, time, plan, s)
            return True
    return False


@kernel
def _show(p, i, row, time, passes, plan, s):
    """Show a record to an attempt: what follows a count that has enough comes first."""
    pos = s.pool[p, k.POS]
    if plan.stages[pos, k.KIND] == k.ACCEPT and s.pool[p, k.COUNT] >= plan.stages[pos, k.LEAST]:
        for later in range(pos + 1, len(plan.stages)):
            if _offer(p, later, i, row, time, passes, plan, s):
                return
            if plan.stages[later, k.KIND] != k.ACCEPT or plan.stages[later, k.LEAST] > 0:
                break
    _offer(p, pos, i, row, time, passes, plan, s)


@kernel
def _candidates(key, i, row, passes, plan, s):
    """Write the attempts that this record could move to `candidates`, in the order they came to their stages."""
    n = 0
    last = len(plan.sides) - 1
    sides = range(last, last + 1) if plan.rules[k.STRICT] else range(last)
    per = plan.rules[k.PER_ATTEMPT]
    for side in sides:
        if side < last and not passes[side, i]:
            continue
        kind, c = plan.sides[side, k.INDEX], plan.sides[side, k.BY]
        before = n
        if kind <= w.HASH:
            value = 0 if kind == w.ALL else s.values[plan.conditions[c, 1], row]
            if kind == w.ALL or value > w.NAN:
                link = s.heads[w.bucket_of(side, key, value, len(s.heads))]
                while link >= 0:
                    if (
                        s.links[link, w.STATE] == side
                        and s.links[link, w.SLOT] == key
                        and s.links[link, w.VALUE] == value
                    ):
                        s.candidates[n] = link
                        n += 1
                    link = s.links[link, w.NEXT]
        else:
            op = plan.conditions[c, 0]
            value = s.values[plan.conditions[c, 1], row]
            at = key * len(plan.sides) + side
            n += w.in_reach(at, value, kind, op in (w.GT, w.LT), s.links, s.roots, s.candidates, n)
        # an attempt that waits at several sides is found once
        unique = before
        for j in range(before, n):
            p = s.candidates[j] // per
            if s.pool[p, k.SEEN] != s.meta[k.SEQ]:
                s.pool[p, k.SEEN] = s.meta[k.SEQ]
                s.candidates[unique] = p
                unique += 1
        n = unique
    w.sort(s.candidates, n, s.pool, k.CAME)
    return n


@kernel
def _has_room(s, matches):
    return s.meta[k.LIVE] + k.SPARE <= len(s.pool) and s.meta[k.MATCHES] + matches <= len(s.out)


@kernel
def pass_time(key, time, last, plan, s):
    """Let time pass for a key: absences are waited out, attempts grow too old; False when it stopped for want of room.

    What was born after number `last` waits for nothing any more.
    """
    s.meta[k.CLOCK] = max(s.meta[k.CLOCK], time)
    within = plan.rules[k.WITHIN]
    first = key * len(plan.stages)
    while True:
        deadline, next_ = k.NEVER, -1
        for queue in range(first, first + len(plan.stages)):
            p = s.queues[queue, 0]
            if p >= 0 and s.pool[p, k.DEADLINE] < deadline:
                deadline, next_ = s.pool[p, k.DEADLINE], p
        oldest = s.keys[key, k.OLDEST_OF_KEY]
        too_old = s.pool[oldest, k.FIRST] + within + 1 if within >= 0 and oldest >= 0 else k.NEVER
        if min(deadline, too_old) > time:
            return True
        if not _has_room(s, 1):
            return False
        if too_old <= deadline:
            k.die(oldest, too_old, False, plan, s)
        else:
            k.stop_waiting(next_, s)
            if s.pool[next_, k.BORN] <= last:
                _wait_out(next_, deadline, plan, s)


@kernel
def pass_time_for_all(time, last, plan, s):
    """Let time pass for every key, as `pass_time` does for one."""
    if s.meta[k.LIVE]:
        for key in range(len(s.keys)):
            if s.keys[key, k.ATTEMPTS] and not pass_time(key, time, last, plan, s):
                return False
    return True


@kernel
def _wait_out(p, time, plan, s):
    key, pos = s.pool[p, k.KEY], s.pool[p, k.POS]
    k.leave(p, plan, s)
    if s.pool[p, k.FIRST] == k.NOTHING_YET:
        k.begin(p, time, s)  # time is counted from the first thing that happens, here the absence itself
    if plan.stages[pos, k.KIND] == k.AND and s.pool[p, k.COUNT] == 0:
        s.pool[p, k.PASSED] = 1
        k.stay(p, plan, s)
    else:
        k.move_on(p, time, plan, s)
    k.restart(key, time, plan, s)


@kernel
def _rearm(key, time, plan, s):
    """Let a sequence with `every` start anew when nothing waits at its first place."""
    if plan.rules[k.OPEN_UNTIL] == 0 and s.places[key * plan.rules[k.PLACES]] < 0:
        p = k.arm(key, time, plan, s)
        if s.meta[k.BROKEN]:
            k.bear_again(p, s)
    s.meta[k.BROKEN] = 0


@kernel
def _show_in_turn(key, i, row, time, n, passes, plan, s):
    """Show a record to all attempts at a sequence, at their last stages first; who does not take it is over."""
    for j in range(n):
        k.leave_places(s.candidates[j], plan, s)
    left_out = False
    for stage in range(len(plan.stages) - 1, -1, -1):
        for j in range(n):
            p = s.candidates[j]
            if p < 0 or not s.pool[p, k.WAITS] >> stage & 1:
                continue
            new = s.pool[p, k.FIRST] == k.NOTHING_YET
            if _show_at(p, stage, i, row, time, passes, plan, s):
                s.candidates[j] = -1
                left_out |= new and stage > 0
    if left_out and plan.rules[k.OPEN_UNTIL] == 0:
        # an attempt began beyond the first place, where the record may begin another
        _show_at(k.arm(key, time, plan, s), 0, i, row, time, passes, plan, s)
    _rearm(key, time, plan, s)
    # the record that broke a sequence may begin the next attempt
    again, s.meta[k.REBORN] = s.meta[k.REBORN], 0
    for j in range(again):
        p = s.meta[k.REBORN_AT + j]
        for stage in range(len(plan.stages) - 1, -1, -1):
            if s.pool[p, k.WAITS] >> stage & 1 and _show_at(p, stage, i, row, time, passes, plan, s):
                break
    _rearm(key, time, plan, s)


@kernel
def _show_at(p, stage, i, row, time, passes, plan, s):
    """Show a record to an attempt at one of the stages where it waits; say whether that settles what becomes of it."""
    if _offer(p, stage, i, row, time, passes, plan, s):
        if s.pool[p, k.POS] >= 0 and s.pool[p, k.WAITS] == 0:
            k.die(p, time, False, plan, s)  # others wait wherever it would
        return True
    if s.pool[p, k.WAITS] & ((1 << stage) - 1):
        return False  # an earlier stage may take it
    if s.pool[p, k.FIRST] != k.NOTHING_YET:
        k.die(p, time, True, plan, s)
        return True
    k.leave(p, plan, s)
    k.stay(p, plan, s)
    if s.pool[p, k.WAITS] == 0:
        k.die(p, time, False, plan, s)
    return True


@kernel
def _show_to_all(key, i, row, time, n, passes, plan, s):
    if plan.rules[k.STRICT]:
        _show_in_turn(key, i, row, time, n, passes, plan, s)
    else:
        for j in range(n):
            _show(s.candidates[j], i, row, time, passes, plan, s)
    while s.meta[k.BUSY] > plan.rules[k.CAP]:
        s.meta[k.EVICTED] += 1
        k.die(s.meta[k.OLDEST], time, False, plan, s)
    k.restart(key, time, plan, s)
    s.meta[k.REBORN] = 0


@kernel
def _suits_none(i, passes):
    suits = False
    for side in range(len(passes)):
        suits |= passes[side, i]
    return not suits


@kernel
def match(start, stop, base, times, slots, stamps, passes, plan, s):
    """Show records start … stop - 1 (rows base + i of `values`) to all attempts; return the one before which it stopped.

    It stops for want of room; what was done by then for that record may be done again.
    """
    timed = plan.rules[k.WITHIN] >= 0
    for pos in range(len(plan.stages)):
        timed |= plan.stages[pos, k.WAIT] >= 0
    for i in range(start, stop):
        key = slots[i]
        if timed and not pass_time(key, times[i], k.NEVER, plan, s):
            return i
        if not _has_room(s, 0):
            return i
        k.restart(key, times[i], plan, s)
        if plan.rules[k.STRICT]:
            _rearm(key, times[i], plan, s)
        s.meta[k.SEQ] += 1  # marks what this record has found
        n = _candidates(key, i, base + i, passes, plan, s)
        if not _has_room(s, n + k.SPARE):
            return i
        s.meta[k.CREATED], s.meta[k.ENTERED] = stamps[i, 0], stamps[i, 1]
        if (
            plan.rules[k.STRICT]
            and n == 1
            and s.pool[s.candidates[0], k.FIRST] == k.NOTHING_YET
            and _suits_none(i, passes)
        ):
            continue  # it changes nothing: the one attempt there is has not begun
        _show_to_all(key, i, base + i, times[i], n, passes, plan, s)
    return stop


@kernel
def plant(by_arrival, by_age, by_deadline, plan, s):
    """Put attempts, whose rows of the pool are complete, into all chains, heaps, queues and lists, in these orders."""
    for p in by_age:
        k.begin(p, s.pool[p, k.FIRST], s)
    for p in by_deadline:
        k.wait(p, s.pool[p, k.DEADLINE], s)
    for p in by_arrival:
        s.keys[s.pool[p, k.KEY], k.ATTEMPTS] += 1
        if plan.rules[k.STRICT]:
            k.wait_in_place(p, plan, s)
        else:
            k.stay(p, plan, s)


@kernel
def number_by_age(pool, meta, place):
    """Write to `place` where each attempt stands in the list by age."""
    p, n = meta[k.OLDEST], 0
    while p >= 0:
        place[p] = n
        n += 1
        p = pool[p, k.YOUNGER]
