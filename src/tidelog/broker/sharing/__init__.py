"""Share groups at the leaders of their partitions.

state_requests   what is asked of share coordinators, here or on another broker, and tried again
partitions       the share partitions led here: loaded, changed, written
fetching         a ShareFetch: what it waits for, reads and acquires
acknowledging    what members acknowledge, by ShareFetch or ShareAcknowledge, and the ends of their sessions
offsets          offsets of share groups, for tools
"""
