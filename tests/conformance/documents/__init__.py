"""The commands that the documents type, typed: with Kafka's own tools of three releases, on either store."""
