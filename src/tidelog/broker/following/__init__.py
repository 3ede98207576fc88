"""What followers do: one fetcher for each leader, and the partitions that it copies."""
