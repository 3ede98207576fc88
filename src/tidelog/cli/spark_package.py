"""`tidelog spark-package`: the archive that Spark's executors unpack, so that nothing is installed on them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tidelog.cli.errors import Refused
from tidelog.cli.output import size

app = typer.Typer(add_completion=False)


@app.command()
def spark_package(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="The archive to write, such as tidelog.tar.gz.")],
) -> None:
    """Write what Spark's executors need of tidelog, with the compiled kernel, to FILE.

    For executors with this machine's system, processor and Python version, and pyarrow.
    """
    from tidelog.pipeline.errors import PipelineError
    from tidelog.pipeline.package import write_package

    try:
        count = write_package(path)
    except PipelineError as error:
        raise Refused([str(error)]) from error
    print(f"{path}: {count} files, {size(path.stat().st_size)}. Give spark-submit, or tidelog table:")
    print(f"  --conf spark.archives={path}#tidelog --conf spark.executorEnv.PYTHONPATH=tidelog")
