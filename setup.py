"""Builds the compiled kernels where that is possible; everything else is declared in pyproject.toml.

They need a C compiler and Python's headers. Where either is missing nothing is built, and the wheel is one of plain
Python (`py3-none-any`): the twins `records/_pure.py` and `records/_pure_compaction.py` do the same, slower,
`storage/log.py` appends without `storage/_append.pyx` and reads without `storage/_read.pyx`, connections handle what
they receive without `broker/connections/_single_requests.pyx`, and the broker's dispatcher handles what
`broker/handlers/_produce_frames.pyx` and its neighbours would have, and answers fetches and heartbeats
without `broker/handlers/_fetch_frames.pyx` and `_heartbeat_frames.pyx`; a broker says so when it starts.
`ports/system_calls.py` calls the C library by ctypes then.
"""

import sys
import tempfile
from pathlib import Path

from setuptools import Distribution, Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import BaseError, CCompilerError

COMPILED = (
    "ports/_system_calls",
    "records/_sections",
    "records/_column_builder",
    "records/_row_builder",
    "records/_encoding",
    "records/_integrity",
    "records/_compaction",
    "storage/_append",
    "storage/_append_followed",
    "storage/_read",
    "broker/connections/_single_requests",
    "broker/handlers/_produce_partition",
    "broker/handlers/_produce_several",
    "broker/handlers/_produce_frames",
    "broker/handlers/_fetch_bytes",
    "broker/handlers/_fetch_frames",
    "broker/handlers/_heartbeat_frames",
)
PROBE = "#include <Python.h>\nPyMODINIT_FUNC PyInit_probe(void) { return NULL; }\n"


def why_not() -> str:
    """What keeps this machine from building extensions, found by building an empty one; "" if nothing does."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "probe.c")
        source.write_text(PROBE)
        command = build_ext(Distribution({"name": "probe", "ext_modules": [Extension("probe", [str(source)])]}))
        command.build_lib = command.build_temp = folder
        try:
            command.ensure_finalized()
            command.run()
        # What cannot be started is an OSError, unless setuptools has wrapped it.
        except (BaseError, CCompilerError, OSError) as error:
            return str(error) or type(error).__name__
    return ""


def kernels() -> list[Extension]:
    """The extensions to build: none where they cannot be."""
    reason = why_not()
    if reason:
        print(
            f"tidelog: the compiled kernels are left out ({reason}). They need a C compiler and Python's headers; on "
            "Debian and Ubuntu: apt install gcc python3-dev. Without them plain Python does their work, far slower.",
            file=sys.stderr,
        )
        return []
    from Cython.Build import cythonize

    extensions = [
        Extension(
            f"tidelog.{name}".replace("/", "."),
            [f"src/tidelog/{name}.pyx"],
            extra_compile_args=["-O3"],
            optional=True,  # A compiler that builds the probe but not this leaves it out, too.
        )
        for name in COMPILED
    ]
    return cythonize(extensions, language_level=3)


# As many compilers at once as there are cores.
setup(ext_modules=kernels(), options={"build_ext": {"parallel": True}})
