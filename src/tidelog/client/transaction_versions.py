"""The highest versions in which a broker takes a request as of the older transactions (KIP-98, before KIP-890).

In later versions a partition is added to a transaction by producing to it, and each end raises the producer's epoch.
"""

from __future__ import annotations

from typing import Final

PRODUCE_EXPLICIT_MAX: Final = 11
TXN_OFFSET_COMMIT_EXPLICIT_MAX: Final = 4
END_TXN_EXPLICIT_MAX: Final = 4
ADD_PARTITIONS_BY_CLIENTS_MAX: Final = 3
"""Later versions are for brokers."""
