"""The documents are true and the house is tidy: what a reviewer would otherwise have to check by hand."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted([*ROOT.glob("src/**/*.py"), *ROOT.glob("sim/**/*.py")])
STATES = {"works", "partly", "later"}

ENTRY_POINTS = {
    "tidelog.config.reference",
    "tidelog.metrics.board",
    "tidelog.protocol.stubs",
    "tidelog.pipeline.demo",
    "tidelog.pipeline.workers.sitecustomize",
    "tidelog.testing.plugin",
    "sim.__main__",
}
"""Modules that nothing imports because people or tools run them."""

LOG_METHODS = {"debug", "info", "warning", "error", "exception", "critical"}

LOADED_BY_FOLDER = {"tidelog.broker.handlers": "KEY", "tidelog.protocol.definitions": "DEFINITIONS"}
"""Packages whose modules are found by listing them -> the name that each of these must define."""


def tracked(*patterns: str) -> list[Path]:
    """Files that git knows, or will know once committed."""
    names = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return [path for name in names.splitlines() if (path := ROOT / name).is_file()]


def module_name(path: Path) -> str:
    relative = path.relative_to(ROOT / "src" if "src" in path.relative_to(ROOT).parts[:1] else ROOT).with_suffix("")
    parts = relative.parts[:-1] if relative.name == "__init__" else relative.parts
    return ".".join(parts)


class Source(NamedTuple):
    """What these tests ask of a module's syntax tree, which takes a second for each hundred modules to make."""

    docstring: str | None
    imports: list[ast.Import | ast.ImportFrom]
    strings: list[str]
    """Short ones."""
    calls: list[ast.Call]
    """Of methods that have the names of a logger's."""


@functools.cache
def parsed(path: Path) -> Source:
    tree = ast.parse(path.read_text())
    source = Source(ast.get_docstring(tree), [], [], [])
    for node in ast.walk(tree):
        match node:
            case ast.Import() | ast.ImportFrom():
                source.imports.append(node)
            case ast.Constant(value=str(text)) if len(text) < 100:
                source.strings.append(text)
            case ast.Call(func=ast.Attribute(attr=name)) if name in LOG_METHODS:
                source.calls.append(node)
    return source


def is_found_by_listing(path: Path) -> bool:
    """Whether a package lists its folder to find this module, which has what the package looks for."""
    wanted = LOADED_BY_FOLDER.get(module_name(path).rpartition(".")[0])
    return wanted is not None and re.search(rf"^{wanted}: ", path.read_text(), re.MULTILINE) is not None


def test_every_module_says_what_it_is() -> None:
    """Each module of the product and of the simulator opens with a docstring, empty package markers aside."""
    silent = [
        str(path.relative_to(ROOT)) for path in SOURCES if path.read_text().strip() and parsed(path).docstring is None
    ]
    assert silent == []


def test_no_module_is_dead() -> None:
    """Every module is imported by another one, loaded by name, or is an entry point."""
    mentioned = set()
    for path in [*SOURCES, *ROOT.glob("tests/**/conftest.py")]:
        package = module_name(path) if path.name == "__init__.py" else module_name(path).rpartition(".")[0]
        for text in parsed(path).strings:
            mentioned |= {text, f"{package}.{text}"}
        for node in parsed(path).imports:
            if isinstance(node, ast.ImportFrom):
                base = node.module or ""
                if node.level:
                    outer = package.split(".")[: len(package.split(".")) - node.level + 1]
                    base = ".".join([*outer, base] if base else outer)
                mentioned.add(base)
                mentioned.update(f"{base}.{alias.name}" for alias in node.names)
            else:
                mentioned.update(alias.name for alias in node.names)
    dead = [
        name
        for path in SOURCES
        if path.name not in ("__init__.py", "__main__.py")
        and (name := module_name(path)) not in mentioned
        and name not in ENTRY_POINTS
        and not is_found_by_listing(path)
    ]
    assert dead == []


def test_the_folder_map_is_true() -> None:
    """docs/where-is-it.md names every folder of the house, and no other."""
    text = (ROOT / "docs/where-is-it.md").read_text()
    block = re.search(r"<!-- folder map -->\n```\n(.*?)```", text, re.DOTALL)
    assert block, "docs/where-is-it.md has no folder map between its marker and a code fence"
    named = set(re.findall(r"^([\w./]+)/\s", block.group(1), re.MULTILINE))
    packages = {
        str(path.parent.relative_to(ROOT))
        for path in tracked("src/*", "sim/*", "tests/*", "bench/*", "docs/*")
        if path.suffix in (".py", ".md", ".pyx", ".sh", ".c")
    }
    tops = {"src/tidelog", "src/pyspark_tidelog", "sim", "tests", "bench", "docs"}
    expected = {name for name in packages if name.startswith("src/tidelog/") and name.count("/") == 2} | tops
    assert named & expected == expected, f"not in the folder map: {sorted(expected - named)}"
    gone = {name for name in named if not (ROOT / name).is_dir()}
    assert gone == set()


PAGES_ABOUT_THE_CODE = ["architecture", "where-is-it", "glossary", "flows", "extending", "decisions"]


@pytest.mark.parametrize("page", PAGES_ABOUT_THE_CODE)
def test_the_names_in_the_page_exist(page: str) -> None:
    """Each file that the page names is there, and defines the names in brackets behind it."""
    text = (ROOT / f"docs/{page}.md").read_text()
    wrong = []
    for name, bracket in re.findall(r"`([\w/]+(?:/|\.pyx?))`(?:(?:,\s|\s\()((?:`\w+`(?:, |,\n *)?)+))?", text):
        places = [base / name for base in (ROOT / "src/tidelog", ROOT / "src", ROOT) if (base / name).exists()]
        if not places:
            wrong.append(name)
            continue
        if places[0].is_dir():
            continue
        content = places[0].read_text()
        wrong += [
            f"{name}: {word}"
            for word in re.findall(r"`(\w+)`", bracket)
            if not re.search(rf"(?:def|class)(?: \w+)* {word}\b|^\s*{word}\b[^=\n]*=", content, re.MULTILINE)
        ]
    assert wrong == []


@pytest.mark.parametrize("page", ["where-is-it", "glossary"])
def test_the_other_names_of_a_row_are_in_its_files(page: str) -> None:
    """A name that stands elsewhere in a table's row, "`_expire` of the same", occurs in one of the files of the row."""
    wrong = []
    for row in re.findall(r"^\|.*$", (ROOT / f"docs/{page}.md").read_text(), re.MULTILINE):
        named = [
            base / name
            for name in re.findall(r"`([\w/]+(?:/|\.pyx?|\.pxd))`", row)
            for base in (ROOT / "src/tidelog", ROOT / "src", ROOT)
            if (base / name).exists()
        ]
        files = [each for path in named for each in (path.glob("*.py") if path.is_dir() else [path])]
        content = "\n".join(path.read_text() for path in files)
        words = re.findall(r"`(?!__)([a-zA-Z_]\w*)`", row) if files else []  # `__consumer_offsets` is a topic.
        wrong += [f"{word}: {row[:60]}" for word in words if not re.search(rf"\b{word}\b", content)]
    assert wrong == []


def compatibility_rows() -> dict[str, tuple[str, str]]:
    """Row -> (state, where), from docs/compatibility.md."""
    text = (ROOT / "docs/compatibility.md").read_text()
    found = re.findall(r"^\| (R\d\d) \| [^|]* \| (\w+) \| ([^|]*) \|", text, re.MULTILINE)
    return {row: (state, where) for row, state, where in found}


def test_every_row_of_the_mission_has_a_state() -> None:
    """docs/compatibility.md lists R01 to R38, each with a state; what works names tests marked with the row."""
    rows = compatibility_rows()
    assert sorted(rows) == [f"R{number:02}" for number in range(1, 39)]
    assert {state for state, _ in rows.values()} <= STATES
    marked = set()
    for path in tracked("tests/*.py"):
        marked.update(re.findall(r"mark\.row\(\"(R\d\d)\"", path.read_text()))
    unproven = [row for row, (state, _) in rows.items() if state in ("works", "partly") and row not in marked]
    assert unproven == [], "rows said to work without a test marked @pytest.mark.row"


def test_every_api_served_is_documented() -> None:
    """The table of APIs in docs/compatibility.md holds exactly the handlers' keys, names and version ranges."""
    from tidelog.broker.handlers import load_handlers
    from tidelog.protocol.apis import ApiKey

    text = (ROOT / "docs/compatibility.md").read_text()
    documented = {
        (int(key), name, f"{low}-{high}" if high else low)
        for key, name, low, high in re.findall(r"^\| (\d+) \| (\w+) \| (\d+)(?:-(\d+))? \|", text, re.MULTILINE)
    }
    served = set()
    for key, handler in load_handlers().items():
        low, high = handler.versions.lowest, handler.versions.highest
        name = "".join(word.capitalize() for word in ApiKey(key).name.split("_"))
        served.add((int(key), name, f"{low}-{high}" if high != low else str(low)))
    assert documented == served


def test_the_configuration_reference_is_current() -> None:
    """docs/configuration.md is what the registry generates: run `make reference`."""
    generated = subprocess.run(
        [sys.executable, "-m", "tidelog.config.reference"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert (ROOT / "docs/configuration.md").read_text() == generated


def test_every_option_of_spark_is_documented() -> None:
    """docs/spark.md names each option of the source and of the sink, and each client's setting that they use."""
    from pyspark_tidelog import kafka_settings, options
    from pyspark_tidelog.sink import options as sink_options

    page = (ROOT / "docs/spark.md").read_text()
    own = {*options._OWN, *sink_options._OWN}
    taken = own | {f"kafka.{name}" for name in kafka_settings.USED | sink_options._KAFKA_USED}
    named = re.findall(r"[\w.]+(?:\*|<\w+>[\w.]+)?", page)
    # `kafka.sasl.*` and `kafka.compression.<codec>.level` stand for many.
    patterns = {re.sub(r"\*|<\w+>", "*", each) for each in named}
    assert {name for name in taken if not any(fnmatchcase(name, each) for each in patterns)} == set()


def test_the_log_lines_of_the_page_are_written() -> None:
    """Each event in the table under "Logs" of docs/operations.md begins some string of the product's sources."""
    page = (ROOT / "docs/operations.md").read_text()
    table = page.split("| Event | Level | Means |\n|---|---|---|\n")[1].split("\n\n")[0]
    quoted = [each for row in table.splitlines() for each in re.findall(r"`([^`]+)`", row.split(" | ")[0])]
    events = [each.partition(": ")[0].strip(". ") for each in quoted]
    # What varies in a line is a number, an address, a chroot or a name of a partition: up to there it is compared.
    fixed = {re.split(r"\d| /kafka", each)[0].strip() for each in events} - {""}
    written = "\n".join(re.sub(r'"\s*\n\s*f?"', "", path.read_text()) for path in SOURCES)
    assert len(fixed) > 50
    fixed -= {"is accepted without effect"}  # A setting's name stands before it.
    assert {each for each in fixed if f'"{each}' not in written} == set()


@pytest.mark.parametrize(
    "target",
    [
        "help",
        "venv",
        "demo",
        "test",
        "lint",
        "tests",
        "unit",
        "interop",
        "spark",
        "vectors",
        "fuzz",
        "conformance",
        "bench",
    ],
)
def test_make_has_the_target(target: str) -> None:
    """`make help` lists each task that the documents promise."""
    assert re.search(rf"^{target}:.*## \w", (ROOT / "Makefile").read_text(), re.MULTILINE)


def test_the_readme_opens_with_the_two_commands() -> None:
    """The first screen shows `make demo` and `make test`."""
    first_screen = "\n".join((ROOT / "README.md").read_text().splitlines()[:40])
    assert "make demo" in first_screen
    assert "make test" in first_screen


def test_no_path_of_a_developers_machine() -> None:
    """Nothing tracked names a home or a work folder of the machine it was written on."""
    pattern = re.compile(r"(?<![\w.])/(?:work|root|home/\w+)/")
    guilty = []
    for path in tracked():
        if path == Path(__file__) or path.suffix in (".gz", ".png"):
            continue
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        guilty += [f"{path.relative_to(ROOT)}: {line}" for line in text.splitlines() if pattern.search(line)]
    assert guilty == []


def test_documents_link_to_files_that_exist() -> None:
    """Relative links in the Markdown files lead somewhere."""
    broken = [
        f"{path.relative_to(ROOT)} -> {target}"
        for path in tracked("*.md")
        for target in re.findall(r"\]\((?!https?://|#|mailto:)([^)#\s]+)", path.read_text())
        if not (path.parent / target).exists()
    ]
    assert broken == []


LOG_LINE = re.compile(r"[^%:]+(: .*)?", re.DOTALL)
SPEAK_TO_USERS = ("src/tidelog/launcher/", "src/pyspark_tidelog/")
"""Whose log lines are what a user of a command, or of Spark, reads in a terminal: sentences."""
LOOKED_FOR = ("broker %d controls the cluster", "unclean election: broker %d")
"""Beginnings of lines that scripts of users and the documents look for as they are."""
SENTENCES = {
    "the metadata store has older data than this cluster has seen (controller epoch %d, here %d): "
    "what was changed since is lost",
    "broker id %d is registered by session %#x: waiting for it to end",
    "listener %s accepts bearer tokens without a signature: whoever can connect can be whoever it likes",
    "the chroot %s of the metadata store was missing: it is created, empty",
}
"""Lines that docs/operations.md and the checks of `make conformance` quote."""


def test_log_lines_have_one_form() -> None:
    """`event` or `event: key=value key=value`, by a module's `logger`: what varies stands behind the event's name."""
    wrong = []
    for path in SOURCES:
        name = str(path.relative_to(ROOT))
        for node in parsed(path).calls:
            owner = node.func.value if isinstance(node.func, ast.Attribute) else None
            if not isinstance(owner, ast.Name) or "log" not in owner.id.lower():
                continue
            message = node.args[0].value if isinstance(node.args[0], ast.Constant) else None
            if owner.id not in ("logger", "kazoo_logger"):
                wrong.append(f"{name}:{node.lineno}: {owner.id}")
            if name.startswith(SPEAK_TO_USERS):
                continue
            text = str(message)
            if text not in SENTENCES and not text.startswith(LOOKED_FOR) and not LOG_LINE.fullmatch(text):
                wrong.append(f"{name}:{node.lineno}: {message!r}")
    assert wrong == []


def test_versions_have_one_suffix() -> None:
    """The version from which something holds is NAME_SINCE."""
    wrong = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in SOURCES
        for name in re.findall(r"^(_?[A-Z_]+_FROM)\b.* = \d+$", path.read_text(), re.MULTILINE)
    ]
    assert wrong == []
