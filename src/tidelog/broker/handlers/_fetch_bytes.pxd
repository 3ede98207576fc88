"""The bytes of ordinary Fetch requests and of their answers."""

from libc.stdint cimport int32_t, uint8_t


# The request whose body lies at `body`, an `AskedFetch`; None where it is not ordinary.
cdef object asked_in(int version, const uint8_t* body, Py_ssize_t size)
# The whole answer with its size, of `Found`s: bytes, or a list of those and of ranges.
cdef object answer_with(int version, int32_t correlation_id, int32_t session_id, bint committed_only, list found)
