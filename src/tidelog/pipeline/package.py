"""What Spark's executors need of tidelog, as one archive for `--archives`: nothing is installed on the workers.

The archive has the packages of tidelog with the compiled kernel, and the libraries that tasks load besides PySpark and
pyarrow, as they are installed here. Compiled code is that of this machine: executors have its system, processor and
Python. Their own Python needs pyarrow, as for anything of Spark's with Arrow.
"""

import importlib.util
import tarfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path, PurePosixPath
from typing import Final

from tidelog.pipeline.errors import PipelineError

PACKAGES: Final = ("tidelog", "pyspark_tidelog")
LIBRARIES: Final = ("fastcrc", "cramjam", "deltalake", "arro3-core", "deprecated", "wrapt", "typing-extensions")
"""Distributions that tasks load: checksums, compression, and delta-rs with what it needs, for tables."""


def write_package(path: Path) -> int:
    """Writes the archive to `path`, replacing what is there when it is whole; its number of files.

    Raises `PipelineError` where the archive is to have a suffix that Spark does not unpack, or a package is not there.
    """
    if not path.name.endswith((".tar.gz", ".tgz")):
        raise PipelineError(f"{path} must end with .tar.gz or .tgz, for Spark to unpack it")
    files = dict(_packages()) | dict(_libraries())
    unfinished = path.with_name(f".{path.name}.unfinished")
    with tarfile.open(unfinished, "w:gz", compresslevel=6) as archive:
        for name, source in sorted(files.items()):
            archive.add(source, arcname=name, recursive=False)
    unfinished.replace(path)
    return len(files)


def _packages() -> Iterator[tuple[str, Path]]:
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        if spec is None or not spec.submodule_search_locations:
            raise PipelineError(f"the package {name} is not installed here")
        root = Path(next(iter(spec.submodule_search_locations)))
        for each in root.rglob("*"):
            if each.is_file() and "__pycache__" not in each.parts and each.suffix not in (".pyx", ".c"):
                yield f"{name}/{each.relative_to(root).as_posix()}", each


def _libraries() -> Iterator[tuple[str, Path]]:
    for name in LIBRARIES:
        try:
            files = distribution(name).files or []
        except PackageNotFoundError:
            continue  # Versions of delta-rs differ in what they need; what is missing is missed at the first import.
        for each in files:
            inside = PurePosixPath(each)
            if ".." not in inside.parts and "__pycache__" not in inside.parts:
                yield str(inside), Path(str(each.locate()))
