"""Software that others have written for Kafka, unchanged, on tidelog: `make ecosystem`."""
