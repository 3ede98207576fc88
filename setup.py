"""Builds the optional compiled kernel; everything else is declared in pyproject.toml."""

from Cython.Build import cythonize
from setuptools import Extension, setup

setup(
    ext_modules=cythonize(
        [
            Extension(
                "tidelog.records._kernel",
                ["src/tidelog/records/_kernel.pyx"],
                extra_compile_args=["-O3"],
                optional=True,  # Without a C compiler the pure Python twin serves; it says so once.
            )
        ],
        language_level=3,
    )
)
