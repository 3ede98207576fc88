/* A server that does the least that can be done for a reader: the limit of this machine for reads.
 *
 *   source PORT TOPIC PARTITION_AT OFFSET_AT BYTES_MAX FILE...
 *
 * Answers Fetch v12 requests of one partition each: whole batches from the offset asked for, BYTES_MAX bytes at most (the first batch in any case). FILE i is
 * the log of partition i, one segment that ends with a whole batch; it is not written meanwhile. PARTITION_AT and OFFSET_AT are where a request has its
 * partition and offset (mkreq.py). A request is not looked at beyond them. Each connection has a thread. Answers are sendfile(2) from the file.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <endian.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PARTITIONS_MAX = 64, REQUEST_MAX = 4096, HEADER_MAX = 512, SEND_BUFFER = 262144 };

struct batch {
    uint64_t offset; /* of its last record */
    off_t end;       /* where it ends in the file */
};

struct partition {
    int fd;
    size_t batches;
    struct batch *batch;
};

static struct partition partitions[PARTITIONS_MAX];
static int count, partition_at, offset_at;
static off_t bytes_max;
static const char *topic;

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static uint64_t u64(const char *at) {
    uint64_t value;
    memcpy(&value, at, 8);
    return be64toh(value);
}

static uint32_t u32(const char *at) {
    uint32_t value;
    memcpy(&value, at, 4);
    return be32toh(value);
}

static char *put(char *to, const void *data, size_t size) {
    memcpy(to, data, size);
    return to + size;
}

static char *put_u32(char *to, uint32_t value) {
    value = htobe32(value);
    return put(to, &value, 4);
}

static char *put_u64(char *to, uint64_t value) {
    value = htobe64(value);
    return put(to, &value, 8);
}

static void index_log(struct partition *p, const char *path) {
    struct stat stat;
    p->fd = open(path, O_RDONLY);
    if (p->fd < 0 || fstat(p->fd, &stat)) fail(path);
    size_t room = 0;
    char header[27]; /* base offset, size, leader epoch, magic, checksum, attributes, last offset delta */
    for (off_t at = 0; at < stat.st_size; at = p->batch[p->batches++].end) {
        if (pread(p->fd, header, sizeof header, at) != sizeof header) fail(path);
        if (p->batches == room) p->batch = realloc(p->batch, (room = room * 2 + 1024) * sizeof *p->batch);
        p->batch[p->batches] = (struct batch){u64(header) + u32(header + 23), at + 12 + u32(header + 8)};
    }
    if (!p->batches) fail("a log without a batch");
}

static size_t find(const struct partition *p, uint64_t offset) {
    size_t low = 0, high = p->batches;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (p->batch[middle].offset < offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void send_all(int to, const char *data, size_t size, int flags) {
    for (ssize_t sent; size; data += sent, size -= sent)
        if ((sent = send(to, data, size, flags | MSG_NOSIGNAL)) <= 0) pthread_exit(NULL);
}

static void answer(int to, const char *request) {
    uint32_t index = u32(request + partition_at);
    if (index >= (uint32_t)count) exit(3);
    const struct partition *p = partitions + index;
    size_t first = find(p, u64(request + offset_at)), last = first;
    off_t at = first ? p->batch[first - 1].end : 0;
    while (last < p->batches && (last == first || p->batch[last].end - at <= bytes_max)) last++;
    size_t size = last > first ? p->batch[last - 1].end - at : 0;
    uint64_t end = p->batch[p->batches - 1].offset + 1;

    char header[HEADER_MAX], *h = header + 4;
    h = put(h, request + 8, 4);                     /* correlation id */
    h = put(h, "\0\0\0\0\0\0\0\0\0\0\0\2", 12);     /* tags, throttle time, error, session, one topic */
    *h++ = strlen(topic) + 1;
    h = put(h, topic, strlen(topic));
    *h++ = 2; /* one partition */
    h = put_u32(h, index);
    h = put(h, "\0\0", 2); /* error */
    h = put_u64(h, end);   /* high watermark */
    h = put_u64(h, end);   /* last stable offset */
    h = put_u64(h, 0);     /* log start */
    *h++ = 1;              /* no aborted transaction */
    h = put_u32(h, -1);    /* preferred replica */
    for (size_t left = size + 1;; left >>= 7) {
        *h++ = (left & 0x7f) | (left > 0x7f ? 0x80 : 0);
        if (left <= 0x7f) break;
    }
    put_u32(header, h - header - 4 + size + 3);
    send_all(to, header, h - header, MSG_MORE);
    while (size) {
        ssize_t sent = sendfile(to, p->fd, &at, size);
        if (sent <= 0) pthread_exit(NULL);
        size -= sent;
    }
    send_all(to, "\0\0\0", 3, 0); /* tags of partition, topic, answer */
}

static void *serve(void *socket) {
    int from = (int)(intptr_t)socket;
    char request[REQUEST_MAX];
    for (size_t held = 0;;) {
        ssize_t more = recv(from, request + held, sizeof request - held, 0);
        if (more <= 0) break;
        held += more;
        while (held >= 4 && held >= 4 + (size_t)u32(request)) {
            size_t size = 4 + u32(request);
            answer(from, request);
            memmove(request, request + size, held -= size);
        }
    }
    close(from);
    return NULL;
}

int main(int words, char **word) {
    if (words < 7 || words - 6 > PARTITIONS_MAX) return fprintf(stderr, "see the head of source.c\n"), 2;
    topic = word[2], partition_at = atoi(word[3]), offset_at = atoi(word[4]), bytes_max = atol(word[5]);
    for (count = 0; count < words - 6; count++) index_log(partitions + count, word[6 + count]);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(word[1])), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1, buffer = SEND_BUFFER;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (void *)&address, sizeof address) || listen(listener, 64)) fail("bind");
    printf("READY\n");
    fflush(stdout);
    for (;;) {
        int connection = accept(listener, NULL, NULL);
        if (connection < 0) fail("accept");
        setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        setsockopt(connection, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer);
        pthread_t thread;
        if (pthread_create(&thread, NULL, serve, (void *)(intptr_t)connection)) fail("pthread_create");
        pthread_detach(thread);
    }
}
