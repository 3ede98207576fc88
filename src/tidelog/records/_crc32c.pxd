"""CRC-32C in C, for whole batches of which many lie in one buffer: a call from Python for each costs more than the sum.

With the processor's instruction (SSE 4.2, found out at run time) three streams of a block are summed side by side, since
one instruction waits three cycles for the one before it, and joined by shifting a sum over the bytes of the streams
behind it, which is linear and so a table. Elsewhere eight bytes at a time go through eight tables. `crc32c_prepare`
fills the tables, once, before the first sum.
"""

from libc.stdint cimport uint8_t, uint32_t

cdef extern from * nogil:
    """
    #include <stddef.h>
    #include <stdint.h>
    #include <string.h>

    #if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
    #define TIDELOG_CRC_INSTRUCTION 1
    #else
    #define TIDELOG_CRC_INSTRUCTION 0
    #endif

    #define TIDELOG_LONG 2048  /* bytes of each of three streams */
    #define TIDELOG_SHORT 256

    static uint32_t tidelog_crc_bytes[8][256];
    static uint32_t tidelog_crc_long[4][256];
    static uint32_t tidelog_crc_short[4][256];
    static int tidelog_crc_instruction = 0;

    /* What a sum becomes when `count` zero bytes follow. */
    static void tidelog_crc_shift_table(uint32_t table[4][256], size_t count) {
        uint32_t of_bit[32];
        for (int bit = 0; bit < 32; bit++) {
            uint32_t sum = (uint32_t)1 << bit;
            for (size_t each = 0; each < count; each++)
                sum = tidelog_crc_bytes[0][sum & 0xff] ^ (sum >> 8);
            of_bit[bit] = sum;
        }
        for (int part = 0; part < 4; part++)
            for (int value = 0; value < 256; value++) {
                uint32_t sum = 0;
                for (int bit = 0; bit < 8; bit++)
                    if (value >> bit & 1) sum ^= of_bit[8 * part + bit];
                table[part][value] = sum;
            }
    }

    static void crc32c_prepare(void) {
        for (int value = 0; value < 256; value++) {
            uint32_t sum = (uint32_t)value;
            for (int bit = 0; bit < 8; bit++) sum = sum & 1 ? sum >> 1 ^ 0x82f63b78u : sum >> 1;
            tidelog_crc_bytes[0][value] = sum;
        }
        for (int table = 1; table < 8; table++)
            for (int value = 0; value < 256; value++) {
                uint32_t sum = tidelog_crc_bytes[table - 1][value];
                tidelog_crc_bytes[table][value] = tidelog_crc_bytes[0][sum & 0xff] ^ sum >> 8;
            }
        tidelog_crc_shift_table(tidelog_crc_long, TIDELOG_LONG);
        tidelog_crc_shift_table(tidelog_crc_short, TIDELOG_SHORT);
    #if TIDELOG_CRC_INSTRUCTION
        __builtin_cpu_init();
        tidelog_crc_instruction = __builtin_cpu_supports("sse4.2") != 0;
    #endif
    }

    static uint32_t tidelog_crc_by_tables(uint32_t sum, const uint8_t *p, size_t size) {
        for (; size >= 8; size -= 8, p += 8) {
            uint32_t low = sum ^ ((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24);
            sum = tidelog_crc_bytes[7][low & 0xff] ^ tidelog_crc_bytes[6][low >> 8 & 0xff]
                ^ tidelog_crc_bytes[5][low >> 16 & 0xff] ^ tidelog_crc_bytes[4][low >> 24]
                ^ tidelog_crc_bytes[3][p[4]] ^ tidelog_crc_bytes[2][p[5]]
                ^ tidelog_crc_bytes[1][p[6]] ^ tidelog_crc_bytes[0][p[7]];
        }
        for (; size; size--, p++) sum = tidelog_crc_bytes[0][(sum ^ *p) & 0xff] ^ sum >> 8;
        return sum;
    }

    #if TIDELOG_CRC_INSTRUCTION
    static inline uint64_t tidelog_word(const uint8_t *p) {
        uint64_t word;
        memcpy(&word, p, 8);
        return word;
    }

    static inline uint32_t tidelog_crc_shift(uint32_t table[4][256], uint32_t sum) {
        return table[0][sum & 0xff] ^ table[1][sum >> 8 & 0xff] ^ table[2][sum >> 16 & 0xff] ^ table[3][sum >> 24];
    }

    __attribute__((target("sse4.2")))
    static uint32_t tidelog_crc_streams(
        uint32_t sum, const uint8_t **cursor, size_t *size, size_t stream, uint32_t table[4][256]
    ) {
        const uint8_t *p = *cursor;
        for (; *size >= 3 * stream; *size -= 3 * stream, p += 3 * stream) {
            uint64_t first = sum, second = 0, third = 0;
            for (size_t at = 0; at < stream; at += 8) {
                first = __builtin_ia32_crc32di(first, tidelog_word(p + at));
                second = __builtin_ia32_crc32di(second, tidelog_word(p + stream + at));
                third = __builtin_ia32_crc32di(third, tidelog_word(p + 2 * stream + at));
            }
            sum = tidelog_crc_shift(table, (uint32_t)first) ^ (uint32_t)second;
            sum = tidelog_crc_shift(table, sum) ^ (uint32_t)third;
        }
        *cursor = p;
        return sum;
    }

    __attribute__((target("sse4.2")))
    static uint32_t tidelog_crc_by_instruction(uint32_t sum, const uint8_t *p, size_t size) {
        sum = tidelog_crc_streams(sum, &p, &size, TIDELOG_LONG, tidelog_crc_long);
        sum = tidelog_crc_streams(sum, &p, &size, TIDELOG_SHORT, tidelog_crc_short);
        uint64_t wide = sum;
        for (; size >= 8; size -= 8, p += 8) wide = __builtin_ia32_crc32di(wide, tidelog_word(p));
        sum = (uint32_t)wide;
        for (; size; size--, p++) sum = __builtin_ia32_crc32qi(sum, *p);
        return sum;
    }
    #endif

    /* `sum` is that of the bytes before these. */
    static inline uint32_t crc32c_on(uint32_t sum, const uint8_t *p, size_t size) {
    #if TIDELOG_CRC_INSTRUCTION
        if (tidelog_crc_instruction) return ~tidelog_crc_by_instruction(~sum, p, size);
    #endif
        return ~tidelog_crc_by_tables(~sum, p, size);
    }

    static uint32_t crc32c_of(const uint8_t *p, size_t size, int by_tables) {
    #if TIDELOG_CRC_INSTRUCTION
        if (tidelog_crc_instruction && !by_tables) return ~tidelog_crc_by_instruction(~(uint32_t)0, p, size);
    #endif
        return ~tidelog_crc_by_tables(~(uint32_t)0, p, size);
    }
    """
    int tidelog_crc_instruction
    void crc32c_prepare()
    uint32_t crc32c_on(uint32_t sum, const uint8_t* p, size_t size)
    uint32_t crc32c_of(const uint8_t* p, size_t size, int by_tables)
