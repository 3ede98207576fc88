/* Producers and consumers of one broker at the same time, many connections of each in one thread.
 *
 *   mixed PORT PRODUCERS CONSUMERS RATE SECONDS PARTITIONS PRODUCE PARTITION_AT FETCH WAIT_AT PARTITION_AT OFFSET_AT FIXED
 *
 * Producer i sends the Produce request of the file PRODUCE to partition i % PARTITIONS: RATE requests a second in all, evenly in turns, whether the
 * ones before are answered or not (a latency counts from when the request is due); RATE 0: each sends the next when the one before is answered.
 * Consumer i asks for partition i % PARTITIONS again and again, by the Fetch request of the file FETCH, which the broker holds until there is
 * something, from the end of the log on. WAIT_AT, PARTITION_AT and OFFSET_AT are where the request has its longest wait, partition and offset, FIXED the
 * bytes of an answer before the partition's high watermark (mkreq.py). A batch has one record. The first second is not counted.
 *
 * Prints as JSON: requests a second, records delivered a second; percentiles in microseconds of acknowledgements, and of deliveries (from the request's
 * due time to the consumer that has read its batch).
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { IN_FLIGHT_MAX = 4096, READ_MAX = 2 << 20, OFFSETS_MAX = 4 << 20, DELIVERIES_MAX = 32 << 20 };
static const double WARM_UP_S = 1, DRAIN_S = 2;

struct connection {
    int fd, partition, is_consumer, is_placed;
    char *request;
    size_t size;
    uint64_t offset;
    double due[IN_FLIGHT_MAX]; /* of what is not answered, a ring */
    unsigned sent, answered;
    char *buffer;
    size_t held;
};

struct delivery {
    int partition;
    uint64_t offset;
    double at;
};

static int partition_at, wait_at, fetch_partition_at, offset_at, fixed, partitions;
static double *due_of[1024]; /* [partition][offset - first_offset] */
static uint64_t first_offset[1024];
static struct delivery *deliveries;
static size_t delivered, acknowledged;
static float *acknowledgements;
static double counted_from, counted_to;
static long errors;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

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

static char *read_file(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    if (!file) fail(path);
    char *data = malloc(1 << 16);
    *size = fread(data, 1, 1 << 16, file);
    fclose(file);
    return data;
}

static void open_connection(struct connection *c, int port, int number, int is_consumer, const char *request, size_t size) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int one = 1;
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(c->fd, (void *)&address, sizeof address)) fail("connect");
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    c->partition = number % partitions;
    c->is_consumer = is_consumer;
    c->size = size;
    c->request = malloc(size);
    memcpy(c->request, request, size);
    uint32_t partition = htobe32(c->partition);
    memcpy(c->request + (is_consumer ? fetch_partition_at : partition_at), &partition, 4);
    c->buffer = malloc(READ_MAX);
}

/* Requests are small: a socket's buffer takes them whole. */
static void write_request(struct connection *c) {
    if (write(c->fd, c->request, c->size) != (ssize_t)c->size) fail("write");
}

static void produce(struct connection *c, double due) {
    if (c->sent - c->answered == IN_FLIGHT_MAX) {
        fprintf(stderr, "the broker is more than %d requests of a connection behind\n", IN_FLIGHT_MAX);
        exit(3);
    }
    c->due[c->sent++ % IN_FLIGHT_MAX] = due;
    write_request(c);
}

static void fetch(struct connection *c) {
    uint64_t offset = htobe64(c->offset);
    memcpy(c->request + offset_at, &offset, 8);
    write_request(c);
}

/* size, correlation id, tags, topics, name, partitions, index, error, base offset */
static void take_acknowledgement(struct connection *c, const char *answer, double at) {
    const char *index = answer + 4 + 4 + 1 + 1 + (unsigned char)answer[10] + 1;
    double due = c->due[c->answered++ % IN_FLIGHT_MAX];
    uint16_t error;
    memcpy(&error, index + 4, 2);
    if (error) {
        errors++;
        return;
    }
    uint64_t place = u64(index + 6) - first_offset[c->partition];
    if (place < OFFSETS_MAX) due_of[c->partition][place] = due;
    if (due >= counted_from && due < counted_to) acknowledgements[acknowledged++] = (at - due) * 1e6;
}

static void take_batches(struct connection *c, const char *answer, double at) {
    const char *p = answer + fixed;
    uint16_t error;
    memcpy(&error, p - 2, 2);
    if (error) { /* A new topic may have no leader yet. */
        if (c->is_placed) errors++;
        usleep(1000);
        return;
    }
    uint64_t high_watermark = u64(p), size = 0;
    p += 8 + 8 + 8 + 1 + 4; /* last stable offset, log start, aborted transactions, preferred replica */
    for (int shift = 0;; shift += 7) {
        unsigned char byte = *p++;
        size |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) break;
    }
    if (!c->is_placed) { /* The first answer tells only where the log ends. */
        c->is_placed = 1;
        c->offset = high_watermark;
        return;
    }
    const char *end = p + (size ? size - 1 : 0);
    for (; p + 61 <= end && p + 12 + u32(p + 8) <= end; p += 12 + u32(p + 8)) {
        uint64_t offset = u64(p);
        if (offset < c->offset) continue;
        c->offset = offset + 1;
        if (at >= counted_from && delivered < DELIVERIES_MAX) deliveries[delivered++] = (struct delivery){c->partition, offset, at};
    }
}

static void take_answers(struct connection *c, int is_closed_loop, double stop) {
    ssize_t count = read(c->fd, c->buffer + c->held, READ_MAX - c->held);
    if (count <= 0) fail("read");
    c->held += count;
    double at = now();
    size_t taken = 0;
    while (c->held - taken >= 4 && c->held - taken >= 4 + (size_t)u32(c->buffer + taken)) {
        const char *answer = c->buffer + taken;
        taken += 4 + u32(answer);
        if (c->is_consumer) {
            take_batches(c, answer, at);
            fetch(c);
        } else {
            take_acknowledgement(c, answer, at);
            if (is_closed_loop && at < stop) produce(c, at);
        }
    }
    memmove(c->buffer, c->buffer + taken, c->held - taken);
    c->held -= taken;
}

/* Learns where its log ends, by a request that does not wait for records, and asks for the next one. */
static void place(struct connection *c) {
    uint32_t wait;
    memcpy(&wait, c->request + wait_at, 4);
    memset(c->request + wait_at, 0, 4);
    fetch(c);
    memcpy(c->request + wait_at, &wait, 4);
    while (!c->is_placed) take_answers(c, 0, 0);
    first_offset[c->partition] = c->offset;
}

static int ascending(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static void print_percentiles(const char *name, float *values, size_t count) {
    qsort(values, count, sizeof *values, ascending);
    printf(", \"%s_p50_us\": %.0f, \"%s_p99_us\": %.0f, \"%s_max_us\": %.0f", name, count ? values[count / 2] : 0, name,
           count ? values[(size_t)(count * .99)] : 0, name, count ? values[count - 1] : 0);
}

int main(int count, char **words) {
    if (count != 14) return fprintf(stderr, "see the head of mixed.c\n"), 2;
    int port = atoi(words[1]), producers = atoi(words[2]), consumers = atoi(words[3]);
    double rate = atof(words[4]), seconds = atof(words[5]);
    partitions = atoi(words[6]), partition_at = atoi(words[8]);
    wait_at = atoi(words[10]), fetch_partition_at = atoi(words[11]), offset_at = atoi(words[12]), fixed = atoi(words[13]);
    size_t produce_size, fetch_size;
    char *produce_request = read_file(words[7], &produce_size), *fetch_request = read_file(words[9], &fetch_size);
    int all = producers + consumers, epoll = epoll_create1(0);
    struct connection *connections = calloc(all, sizeof *connections);
    deliveries = malloc(sizeof *deliveries * DELIVERIES_MAX); /* Pages are taken when they are written. */
    acknowledgements = malloc(sizeof(float) * DELIVERIES_MAX);
    for (int i = 0; i < partitions; i++) due_of[i] = calloc(OFFSETS_MAX, sizeof(double));
    prctl(PR_SET_TIMERSLACK, 1);

    counted_from = counted_to = 1e18;
    for (int i = 0; i < all; i++) { /* Consumers first: each learns where its log ends before anything is sent. */
        struct connection *c = connections + i;
        int is_consumer = i < consumers;
        open_connection(c, port, is_consumer ? i : i - consumers, is_consumer, is_consumer ? fetch_request : produce_request,
                        is_consumer ? fetch_size : produce_size);
        if (is_consumer) place(c);
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = i};
        epoll_ctl(epoll, EPOLL_CTL_ADD, c->fd, &event);
    }

    double began = now(), stop = began + WARM_UP_S + seconds;
    counted_from = began + WARM_UP_S, counted_to = stop;
    uint64_t sent = 0;
    if (rate == 0)
        for (int i = consumers; i < all; i++) produce(connections + i, began);
    for (double at = began; at < stop + DRAIN_S; at = now()) {
        double next = stop + DRAIN_S;
        while (rate > 0) { /* In turns, each when it is due. */
            next = began + sent / rate;
            if (next > at || next >= stop) break;
            produce(connections + consumers + sent++ % producers, next);
        }
        if (next >= stop) next = stop + DRAIN_S;
        double wait = next > at ? next - at : 0;
        struct timespec timeout = {(time_t)wait, (long)((wait - (time_t)wait) * 1e9)};
        struct epoll_event events[256];
        int ready = epoll_pwait2(epoll, events, 256, &timeout, NULL);
        if (ready < 0 && errno != EINTR) fail("epoll_pwait2");
        for (int i = 0; i < ready; i++) take_answers(connections + events[i].data.u32, rate == 0, stop);
    }

    float *latencies = malloc(sizeof(float) * (delivered + 1));
    size_t matched = 0;
    for (size_t i = 0; i < delivered; i++) {
        uint64_t place = deliveries[i].offset - first_offset[deliveries[i].partition];
        double due = place < OFFSETS_MAX ? due_of[deliveries[i].partition][place] : 0;
        if (due >= counted_from && due < counted_to) latencies[matched++] = (deliveries[i].at - due) * 1e6;
    }
    printf("{\"requests_s\": %.0f, \"delivered_s\": %.0f, \"errors\": %ld", acknowledged / seconds, matched / seconds, errors);
    print_percentiles("acknowledged", acknowledgements, acknowledged);
    print_percentiles("delivered", latencies, matched);
    printf("}\n");
    return 0;
}
