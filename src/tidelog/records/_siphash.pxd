"""SipHash-2-4 with 128 bits, in C: with a secret key no two application keys of one digest can be made up."""

from libc.stdint cimport uint8_t, uint64_t

cdef extern from * nogil:
    """
    #include <stddef.h>
    #include <stdint.h>
    #include <string.h>

    #define TIDELOG_ROTATE(x, b) ((x) << (b) | (x) >> (64 - (b)))
    #define TIDELOG_ROUND \\
        v0 += v1; v1 = TIDELOG_ROTATE(v1, 13); v1 ^= v0; v0 = TIDELOG_ROTATE(v0, 32); \\
        v2 += v3; v3 = TIDELOG_ROTATE(v3, 16); v3 ^= v2; \\
        v0 += v3; v3 = TIDELOG_ROTATE(v3, 21); v3 ^= v0; \\
        v2 += v1; v1 = TIDELOG_ROTATE(v1, 17); v1 ^= v2; v2 = TIDELOG_ROTATE(v2, 32);

    static void tidelog_siphash(uint64_t k0, uint64_t k1, const uint8_t *p, size_t size, uint64_t *low, uint64_t *high) {
        uint64_t v0 = k0 ^ 0x736f6d6570736575ULL, v1 = k1 ^ 0x646f72616e646f6dULL ^ 0xee;
        uint64_t v2 = k0 ^ 0x6c7967656e657261ULL, v3 = k1 ^ 0x7465646279746573ULL;
        uint64_t m, last = (uint64_t)size << 56;
        for (; size >= 8; size -= 8, p += 8) {
            memcpy(&m, p, 8);
            v3 ^= m; TIDELOG_ROUND TIDELOG_ROUND v0 ^= m;
        }
        for (size_t i = 0; i < size; i++) last |= (uint64_t)p[i] << 8 * i;
        v3 ^= last; TIDELOG_ROUND TIDELOG_ROUND v0 ^= last;
        v2 ^= 0xee; TIDELOG_ROUND TIDELOG_ROUND TIDELOG_ROUND TIDELOG_ROUND
        *low = v0 ^ v1 ^ v2 ^ v3;
        v1 ^= 0xdd; TIDELOG_ROUND TIDELOG_ROUND TIDELOG_ROUND TIDELOG_ROUND
        *high = v0 ^ v1 ^ v2 ^ v3;
    }
    """
    void siphash "tidelog_siphash"(uint64_t, uint64_t, const uint8_t*, size_t, uint64_t*, uint64_t*)
