"""Two runs of the tests see the same: what tests/conftest.py promises."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.internal.conjecture import providers
from tests.schedule import DOCUMENTS, ON_MACHINES, ON_SPARK, ByFile

ROOT = Path(__file__).parents[2]


def drawn() -> list[tuple[int, str]]:
    """The examples of a property."""
    examples: list[tuple[int, str]] = []

    @settings(max_examples=50)
    @given(st.integers(), st.text())
    def note(number: int, text: str) -> None:
        examples.append((number, text))

    note()
    return examples


def test_a_property_draws_the_same_each_time(request: pytest.FixtureRequest) -> None:
    """Unless the nightly profile is asked for."""
    if request.config.getoption("--hypothesis-profile") == "nightly":
        pytest.skip("the nightly profile draws others each time")
    assert settings.default is not None
    assert settings.default.derandomize
    assert settings.default.database is None
    assert drawn() == drawn()


def test_the_modules_that_are_loaded_do_not_matter() -> None:
    """Hypothesis's pool of constants from the project's modules stays empty, however much of it is imported."""
    drawn()
    pool = providers.HypothesisProvider(None)._local_constants
    assert [len(pool.set_for_type(kind)) for kind in ("integer", "float", "bytes", "string")] == [0, 0, 0, 0]


def test_the_order_is_fixed(request: pytest.FixtureRequest) -> None:
    """Unless a seed is asked for; without the plugin the order is that of the files."""
    assert request.config.getoption("randomly_seed", 0) != "default"


def test_one_worker_has_all_tests_on_spark() -> None:
    """A second one would start a session of its own, which takes as long as ten of these tests."""
    marked = [
        str(path.relative_to(ROOT))
        for path in sorted(ROOT.glob("tests/**/test_*.py"))
        if re.search(r"^(pytestmark =|@).*\bmark\.spark\b", path.read_text(), re.MULTILINE)
    ]
    assert marked
    assert [path for path in marked if not path.startswith(ON_SPARK)] == []


def unit(name: str) -> str:
    """What a test shares a worker with."""
    found: str = ByFile._split_scope(ByFile.__new__(ByFile), name)
    return found


def test_one_worker_has_all_checks_on_the_pages_machines() -> None:
    """Beside each other they find their addresses in use, and skip."""
    using = [
        str(path.relative_to(ROOT))
        for path in sorted(ROOT.glob("tests/conformance/check_*.py"))
        if re.search(r"\bwith running\(\w*Site\(", path.read_text())
    ]
    assert using == list(ON_MACHINES)
    assert len({unit(f"{path}::test") for path in using}) == 1


def test_a_worker_has_all_that_is_typed_in_one_way() -> None:
    """A file's clusters are made for each way; another worker with some of its checks would make them again."""
    check = f"{DOCUMENTS}check_besides.py::test_{{}}".format
    names = [
        check("settings[2.8.2-zk-embedded]"),
        f"{DOCUMENTS}check_growing_topics.py::test_made[2.8.2-zk-embedded-3]",
        check("settings[2.8.2-zk-zookeeper]"),
        check("settings[2.8.2-api-embedded]"),
        f"{DOCUMENTS}check_commands.py::test_every_command_is_typed",
        f"{DOCUMENTS}check_commands.py::test_another[2.8]",
    ]
    assert [unit(name) for name in names] == [
        *[f"{DOCUMENTS}2.8.2-zk-embedded"] * 2,
        f"{DOCUMENTS}2.8.2-zk-zookeeper",
        f"{DOCUMENTS}2.8.2-api-embedded",
        *[f"{DOCUMENTS}check_commands.py"] * 2,
    ]
