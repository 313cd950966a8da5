"""Who may read."""

import pytest

from drivetrain.report.live.access import Access, is_loopback, new_token

LOCAL = Access(token=None, cookie="c")
GUARDED = Access(token="right", cookie="c")


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST:1",
        "127.0.0.1:8421",
        "[::1]:8421",
        "127.0.0.1",
        "127.8.9.1:1",
        "localhost:9000",
    ],
)
def test_local_names_are_known_behind_any_tunnel(host: str) -> None:
    assert LOCAL.knows_host([host])


@pytest.mark.parametrize(
    "hosts",
    [
        [],
        [""],
        ["evil.example"],
        ["evil.example:8421"],
        ["localhost.evil.example"],
        ["127.0.0.1.evil.example"],
        ["localhost@evil.example"],
        ["evil.example@localhost"],
        ["localhost/"],
        ["localhost:x"],
        ["localhost:99999999"],
        ["[::1"],
        ["0.0.0.0"],
        ["localhost", "localhost"],
        ["localhost", "evil.example"],
    ],
)
def test_other_names_are_refused(hosts: list[str]) -> None:
    assert not LOCAL.knows_host(hosts)


def test_with_a_token_any_one_name_will_do() -> None:
    assert GUARDED.knows_host(["gpu-7.lab.example:8421"])
    assert not GUARDED.knows_host([])


@pytest.mark.parametrize("cookies", ["c=right", "a=1; c=right", "c=wrong; c=right"])
def test_the_cookie_opens(cookies: str) -> None:
    assert GUARDED.has_token(cookies)


@pytest.mark.parametrize("cookies", ["", "c", "c=", "c=wrong", "d=right", "c=right2", "c=\udcff", "c=é"])
def test_another_cookie_does_not(cookies: str) -> None:
    assert not GUARDED.has_token(cookies)


def test_without_a_token_nothing_is_one() -> None:
    assert LOCAL.has_token("")
    assert not LOCAL.is_token("")
    assert not LOCAL.is_token("None")


def test_the_cookie_is_kept_from_scripts_and_other_sites() -> None:
    assert GUARDED.new_cookie() == "c=right; Path=/; HttpOnly; SameSite=Strict"
    assert len({new_token() for _ in range(10)}) == 10
    assert len(new_token()) >= 40


def test_which_addresses_are_of_this_host() -> None:
    assert [is_loopback(host) for host in ("127.0.0.1", "127.8.9.1", "::1", "localhost")] == [True] * 4
    assert [is_loopback(host) for host in ("0.0.0.0", "::", "10.0.0.1", "gpu-7", "")] == [False] * 5
