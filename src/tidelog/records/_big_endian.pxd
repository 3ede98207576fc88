"""Integers as they stand in batches and requests, most significant byte first; what the compiled modules share."""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t


cdef inline int16_t read_int16(const uint8_t* p) noexcept nogil:
    return <int16_t>(<uint16_t>p[0] << 8 | <uint16_t>p[1])


cdef inline uint32_t read_uint32(const uint8_t* p) noexcept nogil:
    return <uint32_t>p[0] << 24 | <uint32_t>p[1] << 16 | <uint32_t>p[2] << 8 | <uint32_t>p[3]


cdef inline int32_t read_int32(const uint8_t* p) noexcept nogil:
    return <int32_t>read_uint32(p)


cdef inline uint64_t read_uint64(const uint8_t* p) noexcept nogil:
    return <uint64_t>read_uint32(p) << 32 | <uint64_t>read_uint32(p + 4)


cdef inline int64_t read_int64(const uint8_t* p) noexcept nogil:
    return <int64_t>read_uint64(p)


cdef inline void write_uint32(uint8_t* p, uint32_t value) noexcept nogil:
    p[0] = <uint8_t>(value >> 24)
    p[1] = <uint8_t>(value >> 16)
    p[2] = <uint8_t>(value >> 8)
    p[3] = <uint8_t>value


cdef inline void write_int64(uint8_t* p, int64_t value) noexcept nogil:
    write_uint32(p, <uint32_t>(<uint64_t>value >> 32))
    write_uint32(p + 4, <uint32_t><uint64_t>value)
