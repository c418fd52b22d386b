import urllib.request

import pytest

from headwater import Flow, col, engine, io
from headwater.errors import RunError
from headwater.web.prometheus import serve
from waiting import PATIENCE_S


@pytest.fixture
def finished():
    flow = Flow("metrics")
    flow.read("r", io.Items([{"x": float(i)} for i in range(100)])).filter("f", col.x >= 40).write("w", io.Discard())
    run = engine.start(flow)
    run.wait()
    return run


def scraped(run):
    server = serve(run, 0)
    try:
        url = f"http://127.0.0.1:{server.server_address[1]}/metrics"
        return urllib.request.urlopen(url, timeout=PATIENCE_S).read().decode()
    finally:
        server.shutdown()
        server.server_close()


def test_prometheus_reads_every_step(finished):
    text = scraped(finished)
    assert 'headwater_records_in_total{flow="metrics",step="f"} 100.0' in text
    assert 'headwater_records_out_total{flow="metrics",step="f"} 60.0' in text
    assert 'headwater_latency_quantile_seconds{flow="metrics",quantile="0.99"}' in text


def test_prometheus_reads_the_windows_of_a_promise(finished, monkeypatch):
    taken = "processor taken by others"
    causes = {taken: 1, f"{taken} in real time: jackd (7)": 1, f"{taken} in real time: jackd (8)": 2}
    told = {"kept": 9, "windows": 13, "causes": causes, "reserved_cores": 0.5, "used_cores": 0.4}
    monkeypatch.setattr(type(finished), "promise", lambda self: told, raising=False)
    text = scraped(finished)
    assert 'headwater_promise_windows{cause="",flow="metrics",outcome="kept"} 9.0' in text
    assert f'headwater_promise_windows{{cause="{taken}",flow="metrics",outcome="broken"}} 1.0' in text
    assert f'headwater_promise_windows{{cause="{taken} in real time",flow="metrics",outcome="broken"}} 3.0' in text
    assert 'headwater_promise_cores{flow="metrics",which="reserved"} 0.5' in text


def test_a_port_that_is_taken_is_told(finished):
    server = serve(finished, 0)
    try:
        with pytest.raises(RunError, match="is the port taken"):
            serve(finished, server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()
