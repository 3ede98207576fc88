"""What makes the tests the same every day: hypothesis's profiles and the order; which share a worker says `schedule`.

`make test` and a plain `pytest` draw the same examples and keep the same order each time; no database of examples
remembers what another run met. The profile "thorough" draws more of them (tests/amount.py). For chance ask:
`--hypothesis-profile=nightly --hypothesis-seed=N --randomly-seed=N`.
"""

from __future__ import annotations

import gc
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from tests.certificates import Authority
from tests.schedule import ByFile

ORDER_SEED: Final = 12
"""The order of tests is shuffled, for none may need another; but with this seed, so that it is the same each time."""

# Parallel workers on two busy cores make single examples slow now and then; the examples are what counts.
_COMMON: Final = settings(deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("tidelog", _COMMON, derandomize=True)
settings.register_profile("thorough", _COMMON, derandomize=True)
settings.register_profile("nightly", _COMMON, derandomize=False, print_blob=True)
settings.load_profile("tidelog")


def _no_local_constants() -> providers.Constants:
    """Hypothesis mixes constants of the project's modules into what it draws, of those that happen to be loaded.

    Which are loaded depends on the tests that this worker has run before, so the examples would, too.
    """
    return providers._local_constants


providers._get_local_constants = _no_local_constants


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Fixes the order, unless one is asked for; the option is not there with `-p no:randomly`."""
    if config.getoption("randomly_seed", None) == "default":
        config.option.randomly_seed = ORDER_SEED


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What is imported and collected stays: no collector of garbage goes through it, neither meanwhile nor later.

    It would take two fifths of the CPU time of collecting.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile | None:
    """Ours for `--dist loadfile`."""
    return ByFile(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.fixture(scope="module")
def left_sockets_collected() -> Iterator[None]:
    """For modules whose clients leave sockets behind, as kafka-python does when it is closed while it connects.

    They are collected before the module ends: a collection later on would tell of them in the midst of another test.
    """
    yield
    for thread in threading.enumerate():
        if thread.name.startswith("kafka-io-"):
            thread.join(10)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(autouse=True)
def no_files_left_open() -> Iterator[None]:
    """Logs that a test has left open would hold their files until some garbage collection, and select() knows 1,024."""
    yield
    support = sys.modules.get("tests.unit.storage.support")
    if support is not None:
        support.let_go()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """A CA for the certificates of one module's brokers and clients."""
    return Authority(tmp_path_factory.mktemp("ca"))
