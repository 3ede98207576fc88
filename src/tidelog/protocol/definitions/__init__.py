"""The table of Kafka's messages, a line a field, by subject; `tidelog.protocol.schema` explains the notation."""
