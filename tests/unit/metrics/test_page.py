"""The page as others read it: Prometheus's own client library parses what the renderer writes."""

import math

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from tidelog.metrics.histogram import Histogram
from tidelog.metrics.page import LINES_PER_CHUNK, Page, labels_text, pairs_text
from tidelog.metrics.traffic import TrafficByTopic

texts = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\r\x00\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029")
)


def parsed(page: Page) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """[name of a sample][labels] -> value"""
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(b"".join(page.chunks()).decode()):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return found


@given(texts, st.one_of(st.integers(-(1 << 60), 1 << 60), st.floats()))
def test_any_label_and_any_value(label: str, value: float) -> None:
    """What stands in a label, such as a client's name, cannot break the page."""
    page = Page()
    page.family("a", "gauge", "Some \\ help\nin two lines.").add(value, labels_text(x=label))
    found = parsed(page)["a"][(("x", label),)]
    assert found == value or (math.isnan(found) and math.isnan(value))


def test_a_summary_has_kafkas_quantiles() -> None:
    """Six quantiles by the texts that dashboards compare, in milliseconds, a sum and a count; NaN before anything."""
    histogram = Histogram()
    page = Page()
    family = page.family("times", "summary", "Times.")
    family.add_summary(histogram, pairs_text(request="Fetch"))
    histogram.observe(1500)
    family.add_summary(histogram, pairs_text(request="Produce"))
    found = parsed(page)
    quantiles = {dict(labels)["quantile"] for labels in found["times"]}
    assert quantiles == {"0.50", "0.75", "0.95", "0.98", "0.99", "0.999"}
    assert found["times"][(("quantile", "0.99"), ("request", "Produce"))] == 1.535
    assert math.isnan(found["times"][(("quantile", "0.99"), ("request", "Fetch"))])
    assert found["times_sum"][(("request", "Produce"),)] == 1.5
    assert found["times_count"][(("request", "Fetch"),)] == 0


def test_a_histogram_is_cumulative() -> None:
    """Buckets by their upper bound in seconds, the last one is all."""
    histogram = Histogram()
    for duration in (10, 100, 5_000, 1 << 35):
        histogram.observe(duration)
    page = Page()
    page.family("seconds", "histogram", "Times.").add_histogram(histogram)
    buckets = [
        value for _, value in sorted((float(dict(k)["le"]), v) for k, v in parsed(page)["seconds_bucket"].items())
    ]
    assert buckets == sorted(buckets)
    assert (buckets[0], buckets[-1]) == (1, 4)


def test_a_family_without_samples_is_not_there() -> None:
    """Nor its comments: a page of a small broker is short."""
    page = Page()
    page.family("a_total", "counter", "Never.")
    assert b"".join(page.chunks()) == b""


def test_a_large_family_is_written_in_parts() -> None:
    """No part has more lines than a turn of the loop may take; comments come once."""
    page = Page()
    family = page.family("a", "gauge", "Many.")
    for number in range(2 * LINES_PER_CHUNK + 1):
        family.add(number, labels_text(n=number))
    chunks = list(page.chunks())
    assert [chunk.count(b"\n") - 2 * (not index) for index, chunk in enumerate(chunks)] == [LINES_PER_CHUNK] * 2 + [1]
    assert page.samples == len(parsed(page)["a"]) == 2 * LINES_PER_CHUNK + 1


def test_a_table_gives_the_lines_that_its_families_would() -> None:
    """A column for each, of a meter for both of its names, behind the samples that were added by themselves."""
    one, two = Page(), Page()
    labels = [labels_text(topic=f"t{number}") for number in range(LINES_PER_CHUNK + 7)]
    counter, gauge = one.meter("traffic", "Bytes."), one.family("lag", "gauge", "Seconds.")
    counter.add(9)
    same, also = one.family("same", "gauge", "Same."), one.family("also", "gauge", "Lag.")
    table = one.table(counter, (gauge, also), same)
    for number, each in enumerate(labels):
        table.add(each, (number, number / 4, number // LINES_PER_CHUNK))
    counter, gauge = two.meter("traffic", "Bytes."), two.family("lag", "gauge", "Seconds.")
    counter.add(9)
    same, also = two.family("same", "gauge", "Same."), two.family("also", "gauge", "Lag.")
    for number, each in enumerate(labels):
        counter.add(number, each)
        gauge.add(number / 4, each)
        also.add(number / 4, each)
        same.add(number // LINES_PER_CHUNK, each)
    assert b"".join(one.chunks()) == b"".join(two.chunks())
    assert one.samples == two.samples == 5 * len(labels) + 2
    assert max(chunk.count(b"\n") for chunk in one.chunks()) <= LINES_PER_CHUNK + 2
    empty = Page()
    empty.table(empty.family("a", "gauge", "None."))
    assert b"".join(empty.chunks()) == b""


def test_the_sum_of_all_topics_never_goes_back() -> None:
    """A topic that is gone keeps its part in the sum; one that comes back begins at zero."""
    traffic = TrafficByTopic()
    traffic.of("a").bytes_in += 10
    traffic.of("b").bytes_in += 5
    traffic.forget("a")
    assert "a" not in traffic.topics
    departed, topics = traffic.parts()
    assert (departed.bytes_in, [(name, counts.bytes_in) for name, counts in topics]) == (10, [("b", 5)])
    traffic.forget("b")
    assert departed.bytes_in == 10
    assert traffic.of("a").bytes_in == 0
