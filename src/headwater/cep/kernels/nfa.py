"""Chains of every kind: attempts that wait at a stage for several things at once, each found by the value it must have.

The counterpart of `pattern` for counts, `and`, `or` and absence. A stage has one side, or two beside `and` and `or`.
An attempt hangs, by a link each, at all sides that could take its next record: those of its own stage, and of later ones
once its count has enough. An attempt that waits for an absence is also in the queue of its key and stage, by the time at
which the wait is over; one that has taken something is in its key's list by age, from which attempts expire, and in that of
all, from which they are evicted. Each key has a time of its own. `every` may stand before the first stage, or a group that
begins with it.

Attempts at a sequence hang at one side for all. `places` says which of them waits at which place of a key: whoever comes to
a place where another waits already is refused there, and an attempt that is refused everywhere is over.
"""

# Numba infers the types of kernels
# mypy: disable-error-code="no-untyped-def,no-untyped-call"
from __future__ import annotations

from typing import Any, NamedTuple

from headwater.cep.kernels import waiting as w
from headwater.data.jit import small_kernel as kernel

SPARE = 8  #: attempts that one record or one moment may begin, at most
#: columns of the pool: one row per attempt
KEY, POS, FIRST, OPEN, COUNT, PASSED, CAME, DEADLINE, BORN, OLDER, YOUNGER, EARLIER, LATER, SEEN, LINKS, WAITS = range(
    16
)  # WAITS: of an attempt at a sequence, the stages where it waits, a bit each
OLDER_OF_KEY, YOUNGER_OF_KEY = 16, 17
FIELDS = 18
#: columns of `stages`
KIND, SIDE, SIDES, LEAST, MOST, WAIT, LAST, PLACE = range(8)
STAGE_FIELDS = 8
ACCEPT, ABSENT, AND, OR = range(4)
#: columns of `sides`: the records that a side took first and last are kept in columns of `rows`
IS_WAIT, BIT, FROM_FIRST, FIRSTS, FROM_LAST, LASTS, CONDITION, CONDITIONS_END, INDEX, BY = range(10)
SIDE_FIELDS = 10
#: entries of `rules`; OPEN_UNTIL is the last stage of what `every` stands before
STRICT, OPEN_UNTIL, WITHIN, CAP, PER_ATTEMPT, PLACES = range(6)
#: columns of `keys`
ATTEMPTS, DONE, OLDEST_OF_KEY, YOUNGEST_OF_KEY = range(4)
KEY_FIELDS = 4
#: entries of `meta`
FREE, OLDEST, YOUNGEST, LIVE, BUSY, SEQ, EVICTED, CLOCK, BROKEN, REBORN, MATCHES, CREATED, ENTERED = range(13)
REBORN_AT = 13  #: and those after it: attempts that a record is shown to once more
META = REBORN_AT + SPARE

NONE = -1  #: no upper bound, no wait, no `every`, no `within`
NEVER = 2**63 - 1
NOTHING_YET = -(2**63)  #: the FIRST of an attempt that has taken nothing


class Plan(NamedTuple):
    """What a chain says, as tables."""

    stages: Any
    sides: Any  #: the last row stands for the one place where attempts at a sequence wait
    conditions: Any  #: operator, this record's value, column of `rows` with the earlier record, its value
    rules: Any


class State(NamedTuple):
    """All attempts of all keys, and where their matches are written."""

    pool: Any
    rows: Any  #: the records that an attempt holds
    links: Any
    heads: Any
    tails: Any
    roots: Any
    places: Any  #: by key and place of a sequence, the attempt that waits there, -1 for none
    queues: Any  #: by key and stage, the attempts whose wait is over first and last
    keys: Any
    meta: Any
    candidates: Any
    values: Any  #: of the records, what is compared
    out: Any
    stamps: Any  #: of the matches
    moments: Any  #: at which they were complete


# -- where attempts wait ----------------------------------------------------------------------------------------------


@kernel
def _hang(p, side, plan, s):
    """Let an attempt wait at a side."""
    link = p * plan.rules[PER_ATTEMPT] + s.pool[p, LINKS]
    s.pool[p, LINKS] += 1
    key = s.pool[p, KEY]
    s.links[link, w.SLOT], s.links[link, w.STATE] = key, side
    kind = plan.sides[side, INDEX]
    value = 0
    if kind != w.ALL:
        c = plan.sides[side, BY]
        row = s.rows[p, plan.conditions[c, 2]]
        value = s.values[plan.conditions[c, 3], row] if row >= 0 else w.NULL
    if kind <= w.HASH:
        s.links[link, w.VALUE] = value
        w.enter_chain(link, w.bucket_of(side, key, value, len(s.heads)), s.links, s.heads, s.tails)
    else:
        w.enter_heap(link, key * len(plan.sides) + side, value, kind, s.links, s.roots)


@kernel
def stay(p, plan, s):
    """Let an attempt wait at every side that could take its next record."""
    pos, count = s.pool[p, POS], s.pool[p, COUNT]
    if plan.rules[STRICT]:
        _find_places(p, plan, s)
        wait_in_place(p, plan, s)
        return
    side = plan.stages[pos, SIDE]
    if plan.stages[pos, KIND] != ACCEPT:
        for j in range(side, side + plan.stages[pos, SIDES]):
            if plan.sides[j, IS_WAIT]:
                if not s.pool[p, PASSED]:
                    _hang(p, j, plan, s)
            elif count & plan.sides[j, BIT] == 0:
                _hang(p, j, plan, s)
        return
    if not _has_all_it_needs(pos, count, plan):
        _hang(p, side, plan, s)
    if count >= plan.stages[pos, LEAST]:
        for later in range(pos + 1, len(plan.stages)):
            side = plan.stages[later, SIDE]
            for j in range(side, side + plan.stages[later, SIDES]):
                if not plan.sides[j, IS_WAIT]:
                    _hang(p, j, plan, s)
            if plan.stages[later, KIND] != ACCEPT or plan.stages[later, LEAST] > 0:
                return


@kernel
def _own_place(p, plan, s):
    """Return the place, among those of all keys, where an attempt at a sequence waits at its own stage."""
    pos, count = s.pool[p, POS], s.pool[p, COUNT]
    least = plan.stages[pos, LEAST]
    inner = 0
    if plan.stages[pos, KIND] != ACCEPT or count < least:
        inner = count
    elif pos == 0 and least == 0:
        inner = min(count, 1)
    return s.pool[p, KEY] * plan.rules[PLACES] + plan.stages[pos, PLACE] + inner


@kernel
def _find_places(p, plan, s):
    """Note at which stages an attempt at a sequence may wait: those that could take its next record, if nobody is there."""
    pos, count = s.pool[p, POS], s.pool[p, COUNT]
    takes = plan.stages[pos, KIND] == ACCEPT
    waits = 0
    more = not takes or plan.stages[pos, MOST] == NONE or count < plan.stages[pos, MOST]
    if more and s.places[_own_place(p, plan, s)] < 0:
        waits |= 1 << pos
    if takes and count >= plan.stages[pos, LEAST]:
        key_at = s.pool[p, KEY] * plan.rules[PLACES]
        for later in range(pos + 1, len(plan.stages)):
            if s.places[key_at + plan.stages[later, PLACE]] < 0:
                waits |= 1 << later
            if plan.stages[later, KIND] != ACCEPT or plan.stages[later, LEAST] > 0:
                break
    s.pool[p, WAITS] = waits


@kernel
def wait_in_place(p, plan, s):
    """Let an attempt at a sequence wait at the stages that were found for it; all of a key hang at one side throughout."""
    if s.pool[p, LINKS] == 0:
        _hang(p, len(plan.sides) - 1, plan, s)
    _change_places(p, -1, p, plan, s)


@kernel
def leave_places(p, plan, s):
    """Make room for others where an attempt at a sequence waits."""
    _change_places(p, p, -1, plan, s)


@kernel
def _change_places(p, old, new, plan, s):
    """Write `new` to the places where an attempt waits and that `old` holds."""
    pos = s.pool[p, POS]
    waits = s.pool[p, WAITS] >> pos
    if waits & 1:
        at = _own_place(p, plan, s)
        if s.places[at] == old:
            s.places[at] = new
    stage, waits = pos + 1, waits >> 1
    while waits:
        at = s.pool[p, KEY] * plan.rules[PLACES] + plan.stages[stage, PLACE]
        if waits & 1 and s.places[at] == old:
            s.places[at] = new
        stage, waits = stage + 1, waits >> 1


@kernel
def _has_all_it_needs(pos, count, plan):
    """Say whether more records would change nothing: the count has enough, no end, and nobody reads its last ones."""
    side = plan.stages[pos, SIDE]
    enough = max(plan.stages[pos, LEAST], 1, plan.sides[side, FIRSTS])
    return plan.stages[pos, MOST] == NONE and plan.sides[side, LASTS] == 0 and count >= enough


@kernel
def leave(p, plan, s):
    """Take an attempt away from all sides where it waits."""
    if plan.rules[STRICT]:
        leave_places(p, plan, s)
    else:
        _unhang(p, plan, s)


@kernel
def _unhang(p, plan, s):
    first = p * plan.rules[PER_ATTEMPT]
    for link in range(first, first + s.pool[p, LINKS]):
        side = s.links[link, w.STATE]
        if plan.sides[side, INDEX] <= w.HASH:
            w.leave_chain(link, s.links, s.heads, s.tails)
        else:
            w.leave_heap(link, s.links[link, w.SLOT] * len(plan.sides) + side, s.links, s.roots)
    s.pool[p, LINKS] = 0


@kernel
def _queue(p, s):
    return s.pool[p, KEY] * (len(s.queues) // len(s.keys)) + s.pool[p, POS]


@kernel
def wait(p, deadline, s):
    """Put an attempt at the end of the queue of its key and stage: whoever comes later waits longer."""
    queue = _queue(p, s)
    last = s.queues[queue, 1]
    s.pool[p, DEADLINE], s.pool[p, EARLIER], s.pool[p, LATER] = deadline, last, -1
    if last >= 0:
        s.pool[last, LATER] = p
    else:
        s.queues[queue, 0] = p
    s.queues[queue, 1] = p


@kernel
def stop_waiting(p, s):
    """Take an attempt out of its queue, if it is in one."""
    if s.pool[p, DEADLINE] == NEVER:
        return
    queue, earlier, later = _queue(p, s), s.pool[p, EARLIER], s.pool[p, LATER]
    if earlier >= 0:
        s.pool[earlier, LATER] = later
    else:
        s.queues[queue, 0] = later
    if later >= 0:
        s.pool[later, EARLIER] = earlier
    else:
        s.queues[queue, 1] = earlier
    s.pool[p, DEADLINE] = NEVER


# -- how attempts begin and end ---------------------------------------------------------------------------------------


@kernel
def arm(key, time, plan, s):
    """Begin an attempt that has taken nothing yet."""
    p = s.meta[FREE]
    s.meta[FREE] = s.pool[p, LATER]
    s.meta[LIVE] += 1
    s.meta[SEQ] += 1
    s.pool[p, KEY], s.pool[p, BORN], s.pool[p, FIRST], s.pool[p, LINKS] = key, s.meta[SEQ], NOTHING_YET, 0
    s.pool[p, DEADLINE], s.pool[p, SEEN], s.pool[p, OPEN] = NEVER, -1, plan.rules[OPEN_UNTIL] >= 0
    for j in range(s.rows.shape[1]):
        s.rows[p, j] = -1
    s.keys[key, ATTEMPTS] += 1
    _enter(p, 0, time, plan, s)
    stay(p, plan, s)
    return p


@kernel
def restart(key, time, plan, s):
    """Begin an attempt if the key has none and its chain was not matched for good."""
    if s.keys[key, ATTEMPTS] == 0 and s.keys[key, DONE] == 0:
        return arm(key, time, plan, s)
    return -1


@kernel
def begin(p, time, s):
    """Note when an attempt took its first record."""
    s.pool[p, FIRST], s.pool[p, OLDER], s.pool[p, YOUNGER] = time, s.meta[YOUNGEST], -1
    if s.meta[YOUNGEST] >= 0:
        s.pool[s.meta[YOUNGEST], YOUNGER] = p
    else:
        s.meta[OLDEST] = p
    s.meta[YOUNGEST] = p
    key = s.pool[p, KEY]
    last = s.keys[key, YOUNGEST_OF_KEY]
    s.pool[p, OLDER_OF_KEY], s.pool[p, YOUNGER_OF_KEY] = last, -1
    if last >= 0:
        s.pool[last, YOUNGER_OF_KEY] = p
    else:
        s.keys[key, OLDEST_OF_KEY] = p
    s.keys[key, YOUNGEST_OF_KEY] = p
    s.meta[BUSY] += 1


@kernel
def _drop(p, plan, s):
    leave(p, plan, s)
    _unhang(p, plan, s)
    stop_waiting(p, s)
    if s.pool[p, FIRST] != NOTHING_YET:
        older, younger = s.pool[p, OLDER], s.pool[p, YOUNGER]
        if older >= 0:
            s.pool[older, YOUNGER] = younger
        else:
            s.meta[OLDEST] = younger
        if younger >= 0:
            s.pool[younger, OLDER] = older
        else:
            s.meta[YOUNGEST] = older
        key, older, younger = s.pool[p, KEY], s.pool[p, OLDER_OF_KEY], s.pool[p, YOUNGER_OF_KEY]
        if older >= 0:
            s.pool[older, YOUNGER_OF_KEY] = younger
        else:
            s.keys[key, OLDEST_OF_KEY] = younger
        if younger >= 0:
            s.pool[younger, OLDER_OF_KEY] = older
        else:
            s.keys[key, YOUNGEST_OF_KEY] = older
        s.meta[BUSY] -= 1
    s.keys[s.pool[p, KEY], ATTEMPTS] -= 1
    s.pool[p, POS], s.pool[p, LATER] = -1, s.meta[FREE]
    s.meta[FREE] = p
    s.meta[LIVE] -= 1


@kernel
def die(p, time, again, plan, s):
    """End an attempt that failed; `every`, and a chain that was never matched, start anew."""
    key, was_open, had_begun = s.pool[p, KEY], s.pool[p, OPEN], s.pool[p, FIRST] != NOTHING_YET
    starts_at_each = plan.rules[STRICT] and plan.rules[OPEN_UNTIL] == 0
    if starts_at_each and again and had_begun and s.pool[p, POS] == 0 and s.pool[p, COUNT] >= plan.stages[0, LEAST] > 0:
        s.meta[BROKEN] = 1
    _drop(p, plan, s)
    new = -1
    if was_open and not starts_at_each:
        new = arm(key, time, plan, s)
    other = restart(key, time, plan, s)
    new = other if other >= 0 else new
    if new >= 0 and plan.rules[STRICT] and again and had_begun:
        bear_again(new, s)


@kernel
def bear_again(p, s):
    """Remember an attempt that began because this record broke another: the record may be its first."""
    s.meta[REBORN_AT + s.meta[REBORN]] = p
    s.meta[REBORN] += 1


@kernel
def _finish(p, time, plan, s):
    m = s.meta[MATCHES]
    for j in range(s.rows.shape[1]):
        s.out[m, j] = s.rows[p, j]
    s.stamps[m, 0], s.stamps[m, 1] = s.meta[CREATED], s.meta[ENTERED]
    s.moments[m] = time
    s.meta[MATCHES] = m + 1
    key, was_open = s.pool[p, KEY], s.pool[p, OPEN]
    _drop(p, plan, s)
    if was_open and not (plan.rules[STRICT] and plan.rules[OPEN_UNTIL] == 0):
        # `every` before optional last places, which were never entered
        arm(key, time, plan, s)
    elif plan.rules[OPEN_UNTIL] < 0:
        s.keys[key, DONE] = 1


# -- from stage to stage ----------------------------------------------------------------------------------------------


@kernel
def _enter(p, pos, time, plan, s):
    stop_waiting(p, s)
    before = s.pool[p, POS]
    has_come = (
        before >= 0 and plan.stages[before, KIND] == ACCEPT and s.pool[p, COUNT] >= max(plan.stages[before, LEAST], 1)
    )
    s.pool[p, POS], s.pool[p, COUNT], s.pool[p, PASSED] = pos, 0, 0
    if plan.rules[STRICT] or not has_come:
        _come(p, s)
    if plan.stages[pos, WAIT] >= 0:
        wait(p, time + plan.stages[pos, WAIT], s)


@kernel
def _come(p, s):
    """Put an attempt behind all others; of a pattern, one whose count has enough has come to what follows."""
    s.meta[SEQ] += 1
    s.pool[p, CAME] = s.meta[SEQ]


@kernel
def _pass(p, plan, s):
    """Say whether what `every` stands before is complete, so that it starts anew once this attempt has found its place."""
    if s.pool[p, OPEN] and plan.rules[OPEN_UNTIL] == s.pool[p, POS]:
        s.pool[p, OPEN] = 0
        # a sequence of which each record may begin one starts anew when its first place is free
        return not (plan.rules[STRICT] and plan.rules[OPEN_UNTIL] == 0)
    return False


@kernel
def move_on(p, time, plan, s):
    """Leave a stage that is complete for the next one, or be done: optional places at the end stay empty."""
    key, anew = s.pool[p, KEY], _pass(p, plan, s)
    if plan.stages[s.pool[p, POS], LAST]:
        _finish(p, time, plan, s)
    else:
        _enter(p, s.pool[p, POS] + 1, time, plan, s)
        stay(p, plan, s)
    if anew:
        arm(key, time, plan, s)


@kernel
def take(p, pos, side, row, time, plan, s):
    """Let an attempt take a record at a side of a stage, and go where that leads it."""
    leave(p, plan, s)
    if s.pool[p, FIRST] == NOTHING_YET:
        begin(p, time, s)
    key, anew = s.pool[p, KEY], False
    while s.pool[p, POS] < pos:
        anew |= _pass(p, plan, s)
        _enter(p, s.pool[p, POS] + 1, time, plan, s)
    _note(p, side, row, plan, s)
    kind = plan.stages[pos, KIND]
    if kind == ACCEPT:
        s.pool[p, COUNT] += 1
        count, enough = s.pool[p, COUNT], max(plan.stages[pos, LEAST], 1)
        full = count >= enough
        if count == enough and not plan.rules[STRICT]:
            _come(p, s)
        more = plan.stages[pos, MOST] == NONE or count < plan.stages[pos, MOST]
        if full and more and pos + 1 < len(plan.stages):
            if count == enough:
                anew |= _pass(p, plan, s)
            full = False  # it waits for what follows, and takes more meanwhile
    else:
        s.pool[p, COUNT] |= plan.sides[side, BIT]
        full = kind == OR or s.pool[p, COUNT] == 3
        if kind == AND and _beside_absence(pos, plan):
            full = s.pool[p, PASSED] or plan.stages[pos, WAIT] == NONE
    if full:
        move_on(p, time, plan, s)
    else:
        stay(p, plan, s)
    if anew:
        arm(key, time, plan, s)


@kernel
def _beside_absence(pos, plan):
    side = plan.stages[pos, SIDE]
    return plan.sides[side, IS_WAIT] or plan.sides[side + 1, IS_WAIT]


@kernel
def _note(p, side, row, plan, s):
    """Keep a record among the first and the last that a side took."""
    count, first, last = s.pool[p, COUNT], plan.sides[side, FROM_FIRST], plan.sides[side, FROM_LAST]
    if count < plan.sides[side, FIRSTS]:
        s.rows[p, first + count] = row
    lasts = plan.sides[side, LASTS]
    for j in range(lasts - 1, 0, -1):
        s.rows[p, last + j] = s.rows[p, last + j - 1]
    if lasts:
        s.rows[p, last] = row
