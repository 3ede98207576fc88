"""Builds the optional compiled kernels; everything else is declared in pyproject.toml."""

from Cython.Build import cythonize
from setuptools import Extension, setup

setup(
    ext_modules=cythonize(
        [
            Extension(
                f"tidelog.records.{name}",
                [f"src/tidelog/records/{name}.pyx"],
                extra_compile_args=["-O3"],
                optional=True,  # Without a C compiler the pure Python twin serves; it says so once.
            )
            for name in ("_kernel", "_compaction")
        ],
        language_level=3,
    )
)
