"""Run by Python as a Python process of Spark's starts: has it load PySpark from where it is installed.

Spark puts an archive of PySpark's sources first on the path of its Python processes. What is imported from an archive
without bytecode is compiled again by each process: half a second of CPU time, for each of the dozen that a first
query starts. Where the archive lies inside an installed PySpark, that one has the same modules, compiled.

`session` puts this folder on the path of Spark's JVM, whose processes inherit it. A sitecustomize of the machine's own
is run after this one.
"""

import importlib
import os
import sys


def installed_first(path: list[str]) -> list[str]:
    """`path` with PySpark's archives last where it has the folder, too, that PySpark is installed in."""
    archives = [each for each in path if _is_of_installed(each, path)]
    return [each for each in path if each not in archives] + archives


def _is_of_installed(entry: str, path: list[str]) -> bool:
    """Whether `entry` is FOLDER/pyspark/python/lib/NAME.zip, with FOLDER on the path."""
    folder, name = os.path.split(entry)
    package = os.path.dirname(os.path.dirname(folder))
    is_archive = name.endswith(".zip") and os.path.join(package, "python", "lib") == folder
    return (
        is_archive
        and os.path.basename(package) == "pyspark"
        and os.path.dirname(package) in path
        and os.path.isfile(os.path.join(package, "__init__.py"))
    )


def _run() -> None:
    own = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = installed_first([each for each in sys.path if os.path.abspath(each) != own])
    # Python looks for one module of this name: the machine's own comes after this one.
    this = sys.modules.pop(__name__)
    try:
        importlib.import_module(__name__)
    except ModuleNotFoundError as error:
        if error.name != __name__:
            raise
        sys.modules[__name__] = this


if __name__ == "sitecustomize":
    _run()
