"""What a Python process of Spark's does once, for all that it is asked: tasks, plans, commits."""

import gc
import sys
from functools import cache

from pyspark import TaskContext


def spare_collections() -> None:
    """To be called at the end of a task, a plan or a commit: in a process's first one, takes all that is loaded by then
    out of the garbage collector's sight.

    Spark's processes collect garbage after everything that they are asked. Going through all of PySpark, Arrow and
    tidelog takes 43 ms of CPU time each time; a task with few records takes 6 ms beside that. Outside of Spark's
    processes nothing happens: the objects of a driver are its user's.
    """
    if TaskContext.get() is not None or _is_sparks():
        _freeze()


def _is_sparks() -> bool:
    """Whether Spark started this process, by `python -m pyspark.daemon` or the module that it is to run."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and str(spec.name).startswith("pyspark.")


@cache
def _freeze() -> None:
    gc.collect()  # Garbage would be kept for good.
    gc.freeze()
