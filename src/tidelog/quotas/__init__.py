"""Client quotas, counted as Kafka counts them: what is limited, and how long a client over its quota waits. Pure."""
