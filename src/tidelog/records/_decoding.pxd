"""What the compiled builders of columns and of rows share: the names of columns, and why a builder has stopped."""

cdef enum:
    OFFSET = 1
    TIMESTAMP = 2
    TIMESTAMP_TYPE = 4
    KEY = 8
    VALUE = 16
    HEADERS = 32

cdef enum:
    DONE = 0
    LIMIT = 1
    END = 2
    MALFORMED = -1
