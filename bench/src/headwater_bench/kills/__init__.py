"""Runs of the engine that are killed with SIGKILL, again and again, over every source and sink that runs here.

`case` is a source, a sum by key and a sink, and what must be there in the end; `origins` and `targets` are the sources and
the sinks, `everything` the case with every kind of state. `servers` starts what they need, `points` are moments at which a
run kills itself, `children` forks, `rounds` kills a case until its flow has ended.
"""
