"""Which addresses may be sent to."""

import pytest

from app.domain.addresses import networks, refusal


@pytest.mark.parametrize("address", ["93.184.216.34", "8.8.8.8", "2606:2800:220:1::1"])
def test_public_addresses_may(address: str) -> None:
    assert refusal(address, ()) is None


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("127.0.0.1", "loopback"),
        ("127.8.9.10", "loopback"),
        ("::1", "loopback"),
        ("::ffff:127.0.0.1", "loopback"),
        ("64:ff9b::7f00:1", "loopback"),
        ("2002:7f00:1::", "loopback"),
        ("169.254.169.254", "link-local"),
        ("::ffff:169.254.169.254", "link-local"),
        ("fe80::1%eth0", "link-local"),
        ("10.0.0.1", "private"),
        ("172.16.5.5", "private"),
        ("192.168.1.1", "private"),
        ("fd00:ec2::254", "private"),
        ("0.0.0.0", "unspecified"),  # noqa: S104
        ("::", "unspecified"),
        ("224.0.0.1", "multicast"),
        ("255.255.255.255", "private"),
        ("100.64.0.1", "not a public"),
    ],
)
def test_others_may_not_however_they_are_written(address: str, kind: str) -> None:
    assert kind in (refusal(address, ()) or "")


def test_what_the_settings_name_may() -> None:
    local = networks(["loopback"])
    assert refusal("127.0.0.1", local) is None
    assert refusal("::ffff:127.0.0.1", local) is None
    assert refusal("::1", local) is None
    assert refusal("10.0.0.1", local)
    assert refusal("10.0.0.1", networks(["private"])) is None
    assert refusal("169.254.169.254", networks(["private", "loopback"]))
    assert refusal("169.254.1.2", networks(["169.254.1.0/24"])) is None


def test_a_network_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="lan"):
        networks(["lan"])
