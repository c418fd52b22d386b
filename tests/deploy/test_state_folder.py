"""The folder of a coordinator, which `headwater up` and `headwater deploy` may both be the first to use."""

from concurrent.futures import ThreadPoolExecutor

from headwater.deploy.coordinator.state import StateFolder


def test_all_who_ask_at_the_same_time_hear_of_one_address(tmp_path):
    ports = range(15_001, 15_009)
    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(lambda port: StateFolder(tmp_path / "deploy").settled_address("127.0.0.1", port), ports))
    assert found == {StateFolder(tmp_path / "deploy").address}
    assert StateFolder(tmp_path / "deploy").settled_address("127.0.0.1", 1) in found
