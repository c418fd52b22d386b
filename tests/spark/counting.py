"""A flow with state by key, over records of cities."""

from headwater import Flow


def counted(state, record):
    state = (state or 0) + 1
    return state, {"n": record["n"], "city": record["city"], "place": state}


def counting(source, sink):
    """Number the records of each city, which takes state."""
    flow = Flow("counting")
    read = flow.read("r", source).key_by("city")
    read.process("count", counted, out={"n": int, "city": str, "place": int}).write("out", sink)
    return flow
