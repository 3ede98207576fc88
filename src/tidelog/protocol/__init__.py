"""Kafka's wire protocol: frames, headers, and a decoder and an encoder for each message and version. Pure: no I/O."""
