"""The header of a request as it lies in the receive buffer, for the APIs whose ordinary requests are read there."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int16_t, int32_t, uint8_t
from libc.string cimport memcmp

from tidelog.records._big_endian cimport read_int16, read_int32


cdef struct Header:
    int16_t version
    int32_t correlation_id
    bint has_client_id


cdef inline const uint8_t* read_header(
    const uint8_t* p, const uint8_t* end, int16_t first_flexible, bytes known_client_id, Header* header
) noexcept:
    """Reads the header of the request at `p`, which ends at `end`, and gives where its body begins.

    NULL where that is out of the ordinary: under another client id than the known one, or with tagged fields.
    """
    cdef int16_t client_id_size
    if end - p < 10:
        return NULL
    header.version = read_int16(p + 2)
    header.correlation_id = read_int32(p + 4)
    client_id_size = read_int16(p + 8)
    header.has_client_id = client_id_size >= 0
    p += 10
    if client_id_size >= 0:
        if client_id_size > end - p or PyBytes_GET_SIZE(known_client_id) != client_id_size:
            return NULL
        if memcmp(PyBytes_AS_STRING(known_client_id), p, client_id_size):
            return NULL
        p += client_id_size
    if header.version >= first_flexible:
        if p == end or p[0]:
            return NULL
        p += 1
    return p
