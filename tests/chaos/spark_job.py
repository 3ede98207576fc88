"""The job that `--fault spark` breaks: a query from one topic into another, started again by its caller when it fails.

    python -m tests.chaos.spark_job BOOTSTRAP SOURCE TARGET FOLDER

It runs on two executor processes with speculation, until FOLDER/stop is there and all that there is has been written.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from tidelog.pipeline.session import spark_session

OFFSETS_OF_A_BATCH: Final = 4000
ERROR_SHOWN_MAX: Final = 600
"""Characters."""
SETTINGS: Final = {
    "spark.master": "local-cluster[2,1,600]",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    # Executors die for as long as this runs.
    "spark.deploy.maxExecutorRetries": "-1",
    "spark.task.maxFailures": "10",
    # A task that stands still for a moment gets a rival.
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.2",
    "spark.speculation.minTaskRuntime": "200ms",
}


def main() -> int:
    """Runs until it is told to stop."""
    from pyspark.errors import StreamingQueryException

    bootstrap, source, target = sys.argv[1:4]
    folder = Path(sys.argv[4])
    spark = spark_session("chaos", scratch=folder / "scratch", settings=SETTINGS)
    # Workers of a local cluster keep their files in Spark's own folder: who has started this removes them.
    print(f"application: {spark.sparkContext.applicationId}", flush=True)
    brokers = {"kafka.bootstrap.servers": bootstrap}
    rows = (
        spark.readStream.format("tidelog")
        .options(**brokers)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(OFFSETS_OF_A_BATCH))
        .load()
        .select("key", "value")
    )
    writer = rows.writeStream.format("tidelog").options(**brokers).option("topic", target)
    writer = writer.option("checkpointLocation", str(folder / "checkpoint")).option("kafka.compression.type", "lz4")
    while True:
        query = writer.start()
        try:
            while not (folder / "stop").exists():
                query.awaitTermination(0.2)
            query.processAllAvailable()
            query.stop()
            return 0
        except StreamingQueryException as error:
            print("the batch failed, and is written again:", str(error)[:ERROR_SHOWN_MAX], flush=True)


if __name__ == "__main__":
    sys.exit(main())
