"""The partitions on this broker: led, followed, appended to, read, and who waits for them."""
