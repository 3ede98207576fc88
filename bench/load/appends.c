/* What io_uring would give a broker's appends: the same bytes to the end of a file in three ways.
 *
 *   cc -O2 -o appends appends.c && ./appends FILE
 *
 * One request is 15 KB, or 1 MB. `pwrite`: a call for each. `pwritev`: eight that came together in one call. `io_uring`:
 * eight entries submitted, and waited for, by one io_uring_enter; `io_uring alone`: one entry by each. No fsync, as a
 * broker appends; the file is cut to nothing before each way. Prints wall and CPU time (user + system, of the process and
 * of the kernel's workers for it) a request, the least of five rounds: on a busy machine the CPU time is the one to read.
 * No liburing: the rings are mapped by hand. Exits with 2 where the kernel has no io_uring, or refuses it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { DEPTH = 8, ROUNDS = 5 };

static struct {
    int fd;
    unsigned *sq_tail, *sq_mask, *sq_array, *cq_head, *cq_tail, *cq_mask;
    struct io_uring_sqe *sqes;
    struct io_uring_cqe *cqes;
} ring;

static void must(int good, const char *what) {
    if (good) return;
    perror(what);
    exit(1);
}

static void *mapped(size_t size, off_t offset) {
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring.fd, offset);
    must(at != MAP_FAILED, "mmap of the rings");
    return at;
}

static void set_up(void) {
    struct io_uring_params p;
    memset(&p, 0, sizeof p);
    ring.fd = (int)syscall(SYS_io_uring_setup, DEPTH, &p);
    if (ring.fd < 0) {
        printf("io_uring is not available: %s\n", strerror(errno));
        exit(2);
    }
    char *sq = mapped(p.sq_off.array + p.sq_entries * sizeof(unsigned), IORING_OFF_SQ_RING);
    char *cq = mapped(p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe), IORING_OFF_CQ_RING);
    ring.sqes = mapped(p.sq_entries * sizeof(struct io_uring_sqe), IORING_OFF_SQES);
    ring.sq_tail = (unsigned *)(sq + p.sq_off.tail);
    ring.sq_mask = (unsigned *)(sq + p.sq_off.ring_mask);
    ring.sq_array = (unsigned *)(sq + p.sq_off.array);
    ring.cq_head = (unsigned *)(cq + p.cq_off.head);
    ring.cq_tail = (unsigned *)(cq + p.cq_off.tail);
    ring.cq_mask = (unsigned *)(cq + p.cq_off.ring_mask);
    ring.cqes = (struct io_uring_cqe *)(cq + p.cq_off.cqes);
}

/* Submits `count` writes of `size` bytes from `offset` on, and waits for all. */
static void by_ring(int file, const char *data, size_t size, off_t offset, unsigned count) {
    unsigned tail = *ring.sq_tail;
    for (unsigned i = 0; i < count; i++, tail++) {
        unsigned index = tail & *ring.sq_mask;
        struct io_uring_sqe *sqe = &ring.sqes[index];
        memset(sqe, 0, sizeof *sqe);
        sqe->opcode = IORING_OP_WRITE;
        sqe->fd = file;
        sqe->addr = (unsigned long)data;
        sqe->len = (unsigned)size;
        sqe->off = (unsigned long long)(offset + (off_t)(i * size));
        ring.sq_array[index] = index;
    }
    __atomic_store_n(ring.sq_tail, tail, __ATOMIC_RELEASE);
    must(syscall(SYS_io_uring_enter, ring.fd, count, count, IORING_ENTER_GETEVENTS, NULL, 0) == (long)count, "enter");
    unsigned head = *ring.cq_head;
    for (unsigned i = 0; i < count; i++, head++) {
        while (head == __atomic_load_n(ring.cq_tail, __ATOMIC_ACQUIRE)) continue;
        must(ring.cqes[head & *ring.cq_mask].res == (int)size, "a write by the ring");
    }
    __atomic_store_n(ring.cq_head, head, __ATOMIC_RELEASE);
}

static void append(int way, int file, const char *data, size_t size, off_t offset) {
    struct iovec parts[DEPTH];
    switch (way) {
    case 0:
        for (int i = 0; i < DEPTH; i++)
            must(pwrite(file, data, size, offset + (off_t)(i * size)) == (ssize_t)size, "pwrite");
        break;
    case 1:
        for (int i = 0; i < DEPTH; i++) parts[i] = (struct iovec){(void *)data, size};
        must(pwritev(file, parts, DEPTH, offset) == (ssize_t)(DEPTH * size), "pwritev");
        break;
    case 2:
        by_ring(file, data, size, offset, DEPTH);
        break;
    default:
        for (int i = 0; i < DEPTH; i++) by_ring(file, data, size, offset + (off_t)(i * size), 1);
    }
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static double cpu(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return u.ru_utime.tv_sec + u.ru_stime.tv_sec + (u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

int main(int argc, char **argv) {
    static const char *const ways[] = {"pwrite", "pwritev of 8", "io_uring, 8 by an enter", "io_uring alone"};
    static const struct { const char *name; size_t size; int requests; } shapes[] = {
        {"15 KB", 15 << 10, 4096}, {"1 MB", 1 << 20, 64}};
    must(argc == 2, "appends FILE");
    set_up();
    char *data = malloc(1 << 20);
    memset(data, 'x', 1 << 20);
    int file = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0644);
    must(file >= 0, argv[1]);
    for (int shape = 0; shape < 2; shape++)
        for (int way = 0; way < 4; way++) {
            double wall = 1e9, used = 1e9;
            for (int round = 0; round < ROUNDS; round++) {
                must(ftruncate(file, 0) == 0, "ftruncate");
                double w = now(), c = cpu();
                for (int i = 0; i < shapes[shape].requests; i += DEPTH)
                    append(way, file, data, shapes[shape].size, (off_t)i * (off_t)shapes[shape].size);
                w = now() - w, c = cpu() - c;
                wall = w < wall ? w : wall, used = c < used ? c : used;
            }
            printf("%-6s %-24s %8.1f us wall %8.1f us CPU a request\n", shapes[shape].name, ways[way],
                   wall * 1e6 / shapes[shape].requests, used * 1e6 / shapes[shape].requests);
        }
    unlink(argv[1]);
    return 0;
}
