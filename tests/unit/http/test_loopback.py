import pytest

from app.http.loopback import is_loopback


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.8.7", "::1", "::ffff:127.0.0.1", "::1%lo0"])
def test_this_machine_is_known_however_it_is_written(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host", ["192.0.2.10", "::ffff:192.0.2.10", "fe80::1%eth0", "", "localhost"]
)
def test_nobody_else_is_taken_for_it(host: str) -> None:
    assert not is_loopback(host)
