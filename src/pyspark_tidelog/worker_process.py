"""What a Python worker process of Spark's does once, for all the tasks that it is given."""

import gc
from functools import cache

from pyspark import TaskContext


def spare_collections() -> None:
    """To be called at the end of a task: in a process's first one, takes all that is loaded by then out of the garbage
    collector's sight.

    Spark's workers collect garbage after every task. Going through all of PySpark, Arrow and tidelog takes 43 ms of CPU
    time each time; a task with few records takes 6 ms beside that. Outside of tasks nothing happens: the objects of a
    driver are its user's.
    """
    if TaskContext.get() is not None:
        _freeze()


@cache
def _freeze() -> None:
    gc.collect()  # Garbage would be kept for good.
    gc.freeze()
