"""Plans that are run, to hold what was expected of them against what came.

ends    sources whose records fall due by the clock, and sinks that note how old what they get is
cases   the flows, their nets, and plans for them
trial   `headwater up` and `headwater deploy`, and what the sinks have noted
"""
