"""Family `murmur2`: the hash of keys, and the partition that follows from it, as Kafka's producers compute them."""

from typing import Any

from tidelog.client.partitioners import murmur2, partition_for_key, to_positive

FILES: tuple[str, ...] = ("murmur2.json.gz",)


def check(case: dict[str, Any]) -> None:
    """Raises AssertionError where our hash or partition is not Kafka's."""
    key = bytes.fromhex(case["input"]["key"])
    expected = case["expected"]
    assert murmur2(key) == expected["murmur2"]
    assert to_positive(murmur2(key)) == expected["to_positive"]
    assert [partition_for_key(key, count) for count in case["input"]["partition_counts"]] == expected["partitions"]
