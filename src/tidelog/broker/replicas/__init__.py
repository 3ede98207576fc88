"""The partitions on this broker: led, followed, appended to, read, and the requests that wait for them."""
