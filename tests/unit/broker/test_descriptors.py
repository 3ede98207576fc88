"""Descriptors: nobody gets another one's, and a limit that cannot do is refused."""

import resource

import pytest

from tidelog.broker.descriptors import FIXED, LIMIT_MIN, allot, raise_file_limit, store_connections
from tidelog.broker.failure import BrokerFailed


@pytest.mark.parametrize("limit", [LIMIT_MIN, 128, 256, 257, 1_000, 1_024, 4_096, 65_536, 1 << 20])
@pytest.mark.parametrize("brokers_here", [1, 2, 3])
def test_the_parts_are_not_more_than_the_whole(limit: int, brokers_here: int) -> None:
    """With all clients, other brokers both ways, the store's clients and what is always open, the limit holds."""
    try:
        each = allot(limit, brokers_here)
    except BrokerFailed:
        assert limit < 192
        assert brokers_here > 1
        return
    taken = brokers_here * (each.log + each.connections + 2 * each.brokers)
    assert FIXED + store_connections(limit, beside_brokers=True) + taken <= limit
    assert each.log >= 16
    assert each.connections >= 8
    assert each.brokers >= 4


@pytest.mark.parametrize("limit", [0, 8, 32, 64, LIMIT_MIN - 1])
def test_a_limit_that_cannot_do_is_refused(limit: int) -> None:
    """With what it is, what it must be, and how to change it."""
    with pytest.raises(BrokerFailed, match=rf"limit on open files is {limit}, and a broker needs at least {LIMIT_MIN}"):
        allot(limit)


def test_what_is_told() -> None:
    """One line, with the parts by name."""
    assert str(allot(1_024)) == "limit=1024 log=366 connections=472 brokers=69"


def test_the_soft_limit_is_raised() -> None:
    """To the hard one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(512, soft), hard))
    try:
        assert raise_file_limit() == hard
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == hard
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
