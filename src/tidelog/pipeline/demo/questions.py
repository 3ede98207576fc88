"""What the tables are asked: two questions that need a join each, and a third for the picture."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidelog.pipeline.demo.data import DATA_SETS
from tidelog.pipeline.reading import read_delta

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

AIRLINES = """
    select a.name, count(*) as flights, avg(f.arr_delay) as delay,
           100 * avg(case when f.arr_delay > 30 then 1.0 when f.arr_delay is not null then 0.0 end) as late,
           100 * avg(case when f.dep_time is null then 1.0 else 0.0 end) as cancelled
    from flights f join airlines a on f.carrier = a.carrier
    group by a.name having count(*) >= 500
    order by delay
"""
"""Which airlines arrive on time? Delays in minutes, against the schedule; shares in per cent."""

DESTINATIONS = """
    select p.faa, p.name, p.lat, p.lon, count(*) as flights, avg(f.arr_delay) as delay,
           avg(f.air_time) as minutes, avg(2013 - t.year) as age
    from flights f join airports p on f.dest = p.faa left join planes t on f.tailnum = t.tailnum
    group by p.faa, p.name, p.lat, p.lon having count(*) >= 100
    order by delay desc
"""
"""Which destinations are reached late, and how old are the planes that fly there, in years?"""

HOURS = """
    select month, hour, avg(dep_delay) as delay
    from flights where hour >= 5 group by month, hour
"""
"""When do departures slip? By month and scheduled hour."""

AIRPORTS = """
    select lat, lon from airports where lon between -125 and -66 and lat between 24 and 50
"""
"""Where there are airports on the mainland."""


@dataclass(frozen=True, slots=True)
class Answers:
    """Rows of each question."""

    airlines: list[Any]
    destinations: list[Any]
    hours: list[Any]
    airports: list[Any]
    """All of them: on the map they draw the country."""


def ask(spark: "SparkSession", tables: "Path") -> Answers:
    """The answers, from the Delta tables in a folder."""
    for each in DATA_SETS:
        read_delta(spark, str(tables / each.name)).createOrReplaceTempView(each.name)
    return Answers(
        spark.sql(AIRLINES).collect(),
        spark.sql(DESTINATIONS).collect(),
        spark.sql(HOURS).collect(),
        spark.sql(AIRPORTS).collect(),
    )
