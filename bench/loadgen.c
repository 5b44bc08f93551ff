/*
 * loadgen: a raw Kafka load generator for one thread and one epoll, made so that the broker is what is measured.
 *
 * It sends request frames that were built beforehand (bench/requests.py), checks the error codes of every answer, and
 * prints one JSON object. Three kinds of connection share the loop:
 *
 *   senders  send the frames of --requests, each sender walking the file from its own place in it.
 *            Closed loop (--inflight K): every sender keeps K requests in flight.
 *            Open loop (--rate R): request k is due at start + k/R whatever the broker does, and its latency counts
 *            from the time it was due, so that a stall of the broker is seen by all requests it delayed.
 *   tailers  (--consumers N --fetch FILE) long-poll at the end of the log with an incremental fetch session. With
 *            --stamp each produced batch carries the time it was due in the first eight bytes of its first record's
 *            value; a tailer's latency is the time of arrival less that stamp.
 *   idlers   (--idle N) send one ApiVersions request and then stay open.
 *
 * --pid P (repeatable) names the broker's processes, whose CPU time over the run is reported.
 *
 * The body of a large Fetch answer is dropped inside the kernel (MSG_TRUNC), so that reading costs the client little.
 *
 * Request file, little-endian: "HRLOAD1\0", uint32 count, then `count` entries of ten uint32 (struct entry), then the
 * frames. Places in an entry count from the frame's first byte; 0 means that the frame has no such thing.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { PRODUCE = 0, FETCH = 1, API_VERSIONS = 18 };
enum { HEAD_LIMIT = 512, SCRATCH_SIZE = 1 << 20, MAX_IOV = 64, MAX_PARTITIONS = 1 << 16, MAX_CODES = 256, MAX_PIDS = 64 };
enum { CONNECTS_AT_ONCE = 16 };
#define DRAIN_NS 5000000000LL

struct entry {
    uint32_t size, api_key, partition, records;
    uint32_t batch_at, batch_size, stamp_at; /* the batch, and the first record's value in it */
    uint32_t session_at, offset_at;          /* session id and epoch, and fetch offset, of a Fetch */
    uint32_t reserved;
};

struct request_file {
    struct entry *entries;
    const uint8_t **frames;
    uint32_t count;
};

/* Counts of latencies in 64 steps per power of two: at most 1.6 % off. */
struct histogram {
    uint64_t counts[64 * 64], total, max;
    double sum;
};

struct connection {
    int fd;
    bool tailer, idler, want_write;
    /* sending */
    uint32_t next_frame, step_frame;
    uint64_t quota, sent, done;
    uint64_t due;       /* requests that may be sent: open loop only */
    size_t frame_sent;  /* bytes of the frame under way that went out */
    uint8_t *copy;      /* the frame under way, when it is changed before sending */
    size_t copy_size;
    /* times, one per request in flight or due */
    int64_t *times;
    uint32_t times_head, times_tail, times_mask;
    /* receiving */
    uint8_t size_bytes[4], *head;
    uint32_t size_have, frame_size, frame_have, head_limit, head_capacity, expect_frame;
    bool in_frame;
    /* tailers */
    uint32_t session_id, session_epoch, partition;
    int64_t offset;
};

static struct request_file load, tail;
static struct connection *connections;
static int connection_count, epoll_fd;
static uint8_t scratch[SCRATCH_SIZE];
static struct histogram round_trips, deliveries;
static uint64_t sent_total, done_total, records_acked, bytes_out, bytes_in, payload_in, empty_fetches;
static uint64_t errors_total, error_codes[MAX_CODES], mismatches, broken_connections, records_delivered;
static uint64_t records_sent[MAX_PARTITIONS];
static int64_t last_response;
static bool stopping;
static uint32_t crc_table[256];

struct options {
    const char *host, *requests, *fetch;
    int port, connections, inflight, consumers, idle;
    double rate, seconds;
    uint64_t count;
    bool stamp;
    int pids[MAX_PIDS], pid_count;
};

static struct options options = {.host = "127.0.0.1", .connections = 1, .inflight = 1};

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static double cpu_seconds(clockid_t clock) {
    struct timespec t;
    return clock_gettime(clock, &t) ? 0 : t.tv_sec + t.tv_nsec / 1e9;
}

/* CPU of all threads of the measured processes, of ended threads too: Linux has a clock per process id. */
static double server_cpu_seconds(void) {
    double total = 0;
    for (int i = 0; i < options.pid_count; i++) total += cpu_seconds((clockid_t)(~(unsigned)options.pids[i] << 3 | 2));
    return total;
}

static void die(const char *what) {
    fprintf(stderr, "loadgen: %s: %s\n", what, strerror(errno));
    exit(2);
}

static void *checked(void *memory) {
    if (!memory) die("memory");
    return memory;
}

/* ---- numbers on the wire ---- */

static uint32_t get32(const uint8_t *p) { return (uint32_t)p[0] << 24 | p[1] << 16 | p[2] << 8 | p[3]; }
static uint64_t get64(const uint8_t *p) { return (uint64_t)get32(p) << 32 | get32(p + 4); }
static int16_t get16(const uint8_t *p) { return (int16_t)(p[0] << 8 | p[1]); }
static void put32(uint8_t *p, uint32_t v) { p[0] = v >> 24, p[1] = v >> 16, p[2] = v >> 8, p[3] = v; }
static void put64(uint8_t *p, uint64_t v) { put32(p, v >> 32), put32(p + 4, v); }

/* A reader that goes bad, and stays so, instead of reading beyond its end. */
struct reader {
    const uint8_t *at, *end;
    bool bad;
};

static const uint8_t *take(struct reader *r, size_t size) {
    static const uint8_t zeros[16];
    if (r->bad || (size_t)(r->end - r->at) < size) {
        r->bad = true;
        return zeros;
    }
    const uint8_t *p = r->at;
    r->at += size;
    return p;
}

static void skip(struct reader *r, size_t size) {
    if ((size_t)(r->end - r->at) < size) r->bad = true;
    else r->at += size;
}

static uint64_t uvarint(struct reader *r) {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        uint8_t byte = *take(r, 1);
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) break;
    }
    return value;
}

static void skip_tags(struct reader *r) {
    for (uint64_t left = uvarint(r); left && !r->bad; left--) {
        uvarint(r);
        skip(r, uvarint(r));
    }
}

static void skip_compact(struct reader *r) {
    uint64_t size = uvarint(r);
    if (size) skip(r, size - 1);
}

static void make_crc_table(void) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int k = 0; k < 8; k++) c = c & 1 ? c >> 1 ^ 0x82f63b78 : c >> 1;
        crc_table[i] = c;
    }
}

static uint32_t crc32c(const uint8_t *p, size_t size) {
    uint32_t c = ~0u;
    while (size--) c = crc_table[(c ^ *p++) & 0xff] ^ c >> 8;
    return ~c;
}

/* ---- latencies ---- */

static void observe(struct histogram *h, int64_t ns) {
    uint64_t v = ns < 1 ? 1 : ns;
    int power = 63 - __builtin_clzll(v);
    int step = power < 6 ? 0 : (v >> (power - 6)) & 63;
    h->counts[power * 64 + step]++;
    h->total++;
    h->sum += v;
    if (v > h->max) h->max = v;
}

static double quantile_us(const struct histogram *h, double q) {
    uint64_t rank = (uint64_t)(q * h->total), seen = 0;
    for (int i = 0; i < 64 * 64; i++) {
        seen += h->counts[i];
        if (seen > rank) {
            int power = i / 64, step = i % 64;
            double low = power < 6 ? (double)(1ULL << power) : (1ULL << power) * (1 + step / 64.0);
            return low * (1 + 1 / 128.0) / 1e3;
        }
    }
    return h->max / 1e3;
}

/* ---- the request files ---- */

static struct request_file read_requests(const char *path) {
    int fd = open(path, O_RDONLY);
    struct stat status;
    if (fd < 0 || fstat(fd, &status)) die(path);
    uint8_t *file = mmap(NULL, status.st_size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd, 0);
    if (file == MAP_FAILED) die(path);
    close(fd);
    struct request_file result;
    if (memcmp(file, "HRLOAD1", 8)) {
        fprintf(stderr, "loadgen: %s is not a request file\n", path);
        exit(2);
    }
    memcpy(&result.count, file + 8, 4);
    result.entries = (struct entry *)(file + 12);
    result.frames = checked(malloc(result.count * sizeof *result.frames));
    const uint8_t *frame = file + 12 + result.count * sizeof(struct entry);
    for (uint32_t i = 0; i < result.count; i++) {
        result.frames[i] = frame;
        frame += result.entries[i].size;
    }
    return result;
}

/* ---- times of requests in flight ---- */

static void push_time(struct connection *c, int64_t time) {
    if (((c->times_tail + 1) & c->times_mask) == c->times_head) {
        uint32_t old = c->times_mask + 1, used = 0;
        int64_t *grown = checked(malloc(old * 2 * sizeof *grown));
        while (c->times_head != c->times_tail) {
            grown[used++] = c->times[c->times_head];
            c->times_head = (c->times_head + 1) & c->times_mask;
        }
        free(c->times);
        c->times = grown, c->times_head = 0, c->times_tail = used, c->times_mask = old * 2 - 1;
    }
    c->times[c->times_tail] = time;
    c->times_tail = (c->times_tail + 1) & c->times_mask;
}

static int64_t pop_time(struct connection *c) {
    int64_t time = c->times[c->times_head];
    c->times_head = (c->times_head + 1) & c->times_mask;
    return time;
}

/* ---- connections ---- */

static void watch(struct connection *c, bool writable) {
    if (c->want_write == writable) return;
    c->want_write = writable;
    struct epoll_event event = {.events = EPOLLIN | (writable ? EPOLLOUT : 0), .data.ptr = c};
    epoll_ctl(epoll_fd, EPOLL_CTL_MOD, c->fd, &event);
}

static void lose(struct connection *c, const char *why) {
    if (c->fd < 0) return;
    if (!broken_connections++) fprintf(stderr, "loadgen: a connection ended: %s\n", why);
    close(c->fd);
    c->fd = -1;
    c->quota = c->sent = c->due = 0;
}

static void open_connection(struct connection *c) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(options.port)};
    inet_pton(AF_INET, options.host, &address.sin_addr);
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&address, sizeof address)) die("connect");
    int one = 1;
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    c->times_mask = 3;
    c->times = checked(malloc(4 * sizeof *c->times));
    c->head_limit = c->tailer ? UINT32_MAX : HEAD_LIMIT;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, c->fd, &event)) die("epoll_ctl");
}

/* ---- sending ---- */

static uint64_t may_send(const struct connection *c) {
    uint64_t room = options.rate ? c->due : (uint64_t)options.inflight - (c->sent - c->done);
    uint64_t left = c->quota - c->sent;
    if (stopping && !options.rate) return c->frame_sent ? 1 : 0;
    return room < left ? room : left;
}

static void frame_went_out(struct connection *c, int64_t now) {
    const struct entry *entry = &load.entries[c->next_frame];
    records_sent[entry->partition % MAX_PARTITIONS] += entry->records;
    if (options.rate) c->due--;
    else push_time(c, now);
    c->next_frame = (c->next_frame + c->step_frame) % load.count;
    c->frame_sent = 0;
    c->sent++;
    sent_total++;
}

/* The oldest due time that has no answer and was not sent yet. */
static int64_t due_time(const struct connection *c) {
    return c->times[(c->times_head + (uint32_t)(c->sent - c->done)) & c->times_mask];
}

static ssize_t send_stamped(struct connection *c) {
    const struct entry *entry = &load.entries[c->next_frame];
    if (!c->frame_sent) {
        if (c->copy_size < entry->size) {
            c->copy = checked(realloc(c->copy, entry->size));
            c->copy_size = entry->size;
        }
        memcpy(c->copy, load.frames[c->next_frame], entry->size);
        put64(c->copy + entry->stamp_at, options.rate ? due_time(c) : now_ns());
        uint8_t *batch = c->copy + entry->batch_at;
        put32(batch + 17, crc32c(batch + 21, entry->batch_size - 21));
    }
    return send(c->fd, c->copy + c->frame_sent, entry->size - c->frame_sent, MSG_NOSIGNAL);
}

static ssize_t send_plain(struct connection *c, uint64_t frames) {
    struct iovec pieces[MAX_IOV];
    uint32_t frame = c->next_frame;
    int used = 0;
    size_t skip_bytes = c->frame_sent;
    for (; used < MAX_IOV && (uint64_t)used < frames; used++) {
        pieces[used].iov_base = (uint8_t *)load.frames[frame] + skip_bytes;
        pieces[used].iov_len = load.entries[frame].size - skip_bytes;
        skip_bytes = 0;
        frame = (frame + c->step_frame) % load.count;
    }
    struct msghdr message = {.msg_iov = pieces, .msg_iovlen = used};
    return sendmsg(c->fd, &message, MSG_NOSIGNAL);
}

static void send_some(struct connection *c) {
    uint64_t frames;
    while (c->fd >= 0 && (frames = may_send(c)) > 0) {
        int64_t now = now_ns();
        ssize_t n = options.stamp ? send_stamped(c) : send_plain(c, frames);
        if (n < 0 && errno == EAGAIN) {
            watch(c, true);
            return;
        }
        if (n < 0) {
            lose(c, strerror(errno));
            return;
        }
        bytes_out += n;
        c->frame_sent += n;
        while (c->frame_sent && c->frame_sent >= load.entries[c->next_frame].size) {
            size_t more = c->frame_sent - load.entries[c->next_frame].size;
            frame_went_out(c, now);
            c->frame_sent = more;
        }
    }
    if (c->fd >= 0) watch(c, false);
}

static void send_all(struct connection *c, const uint8_t *data, size_t size) {
    if (c->fd < 0) return;
    ssize_t n = send(c->fd, data, size, MSG_NOSIGNAL);
    if (n != (ssize_t)size) lose(c, "a small request did not fit the socket");
    else bytes_out += n;
}

static void send_fetch(struct connection *c) {
    const struct entry *entry = &tail.entries[c->next_frame];
    put32(c->copy + entry->session_at, c->session_id);
    put32(c->copy + entry->session_at + 4, c->session_epoch);
    put64(c->copy + entry->offset_at, c->offset);
    send_all(c, c->copy, entry->size);
}

static void send_api_versions(struct connection *c) {
    static const uint8_t frame[] = {0, 0, 0, 14, 0, 18, 0, 0, 0, 0, 0, 0, 0, 4, 'i', 'd', 'l', 'e'};
    send_all(c, frame, sizeof frame);
}

/* ---- answers ---- */

static void count_error(int16_t code) {
    errors_total++;
    error_codes[(uint8_t)code]++;
}

static bool check_produce(struct reader *r) {
    skip_tags(r);
    for (uint64_t topics = uvarint(r); topics > 1 && !r->bad; topics--) {
        skip_compact(r);
        for (uint64_t partitions = uvarint(r); partitions > 1 && !r->bad; partitions--) {
            skip(r, 4);
            int16_t code = get16(take(r, 2));
            if (code) {
                count_error(code);
                return false;
            }
            skip(r, 24);
            for (uint64_t record_errors = uvarint(r); record_errors > 1 && !r->bad; record_errors--) {
                skip(r, 4);
                skip_compact(r);
                skip_tags(r);
            }
            skip_compact(r);
            skip_tags(r);
        }
        skip_tags(r);
    }
    return !r->bad;
}

/* Reads batches: their stamps into `deliveries`, the next offset into the connection. */
static void read_batches(struct connection *c, const uint8_t *p, size_t size, int64_t now) {
    while (size >= 61) {
        size_t batch_size = 12 + (size_t)get32(p + 8);
        if (batch_size > size) return;
        int64_t next = (int64_t)get64(p) + get32(p + 23) + 1;
        if (next > c->offset) {
            c->offset = next;
            records_delivered += get32(p + 57);
            struct reader r = {p + 61, p + batch_size, false};
            uvarint(&r), skip(&r, 1), uvarint(&r), uvarint(&r);
            uint64_t key = uvarint(&r);
            if (!(key & 1)) skip(&r, key >> 1);
            uvarint(&r);
            int64_t stamp = get64(take(&r, 8));
            if (!r.bad && options.stamp) observe(&deliveries, now - stamp);
        }
        p += batch_size, size -= batch_size;
    }
}

/* A Fetch answer, as much of it as there is in memory: the first partition for senders, all for tailers. */
static bool check_fetch(struct connection *c, struct reader *r, int64_t now) {
    skip_tags(r);
    skip(r, 4);
    int16_t code = get16(take(r, 2));
    uint32_t session_id = get32(take(r, 4));
    if (code) {
        count_error(code);
        return false;
    }
    if (c->tailer) {
        c->session_id = session_id;
        c->session_epoch = session_id ? c->session_epoch + 1 : 0;
    }
    uint64_t payload = 0;
    for (uint64_t topics = uvarint(r); topics > 1 && !r->bad; topics--) {
        skip_compact(r);
        for (uint64_t partitions = uvarint(r); partitions > 1 && !r->bad; partitions--) {
            skip(r, 4);
            code = get16(take(r, 2));
            if (code) {
                count_error(code);
                return false;
            }
            skip(r, 24);
            uint64_t aborted = uvarint(r);
            skip(r, aborted ? (aborted - 1) * 17 : 0);
            skip(r, 4);
            uint64_t size = uvarint(r);
            size = size ? size - 1 : 0;
            payload += size;
            if (!c->tailer) goto counted; /* the body was dropped */
            if (r->bad || size > (size_t)(r->end - r->at)) return false;
            read_batches(c, r->at, size, now);
            skip(r, size);
            skip_tags(r);
        }
        skip_tags(r);
    }
counted:
    payload_in += payload;
    if (!payload) empty_fetches++;
    return !r->bad;
}

static void on_answer(struct connection *c, int64_t now) {
    struct reader r = {c->head, c->head + (c->frame_have < c->head_limit ? c->frame_have : c->head_limit), false};
    uint32_t correlation = get32(take(&r, 4));
    if (c->idler) {
        int16_t code = get16(take(&r, 2));
        if (code || r.bad) count_error(code);
        c->done++;
        return;
    }
    if (c->tailer) {
        if (!check_fetch(c, &r, now)) {
            if (r.bad) mismatches++;
            lose(c, "a tail consumer was refused");
            return;
        }
        if (!stopping) send_fetch(c);
        return;
    }
    const struct entry *entry = &load.entries[c->expect_frame];
    if (correlation != c->expect_frame) mismatches++;
    c->expect_frame = (c->expect_frame + c->step_frame) % load.count;
    observe(&round_trips, now - pop_time(c));
    bool good = entry->api_key == PRODUCE ? check_produce(&r) : check_fetch(c, &r, now);
    if (good) records_acked += entry->records;
    if (r.bad) mismatches++;
    c->done++;
    done_total++;
    last_response = now;
}

static void keep_head(struct connection *c, const uint8_t *data, uint32_t size) {
    if (c->frame_have >= c->head_limit) return;
    if (size > c->head_limit - c->frame_have) size = c->head_limit - c->frame_have;
    if (c->frame_have + size > c->head_capacity) {
        c->head_capacity = c->tailer ? c->frame_size : HEAD_LIMIT;
        c->head = checked(realloc(c->head, c->head_capacity));
    }
    memcpy(c->head + c->frame_have, data, size);
}

static void feed(struct connection *c, const uint8_t *data, size_t size, int64_t now) {
    while (size && c->fd >= 0) {
        if (!c->in_frame) {
            c->size_bytes[c->size_have++] = *data++, size--;
            if (c->size_have == 4) {
                c->frame_size = get32(c->size_bytes);
                c->size_have = c->frame_have = 0;
                c->in_frame = true;
            }
            continue;
        }
        uint32_t part = c->frame_size - c->frame_have;
        if (part > size) part = size;
        keep_head(c, data, part);
        c->frame_have += part, data += part, size -= part;
        if (c->frame_have == c->frame_size) {
            c->in_frame = false;
            on_answer(c, now);
        }
    }
}

static void receive(struct connection *c) {
    for (int turns = 0; turns < 16 && c->fd >= 0; turns++) {
        bool drop = c->in_frame && c->frame_have >= c->head_limit;
        size_t left = c->frame_size - c->frame_have;
        size_t limit = drop && left < SCRATCH_SIZE ? left : SCRATCH_SIZE;
        ssize_t n = recv(c->fd, scratch, limit, drop ? MSG_TRUNC : 0);
        if (n < 0 && errno == EAGAIN) return;
        if (n <= 0) {
            lose(c, n ? strerror(errno) : "closed by the broker");
            return;
        }
        bytes_in += n;
        feed(c, scratch, n, now_ns());
        if ((size_t)n < limit) return;
    }
}

/* ---- the run ---- */

static void set_up(void) {
    connection_count = options.connections + options.consumers + options.idle;
    connections = checked(calloc(connection_count, sizeof *connections));
    epoll_fd = epoll_create1(0);
    for (int i = 0; i < connection_count; i++) {
        struct connection *c = &connections[i];
        c->tailer = i >= options.connections && i < options.connections + options.consumers;
        c->idler = i >= options.connections + options.consumers;
        /* Accept queues are short (Kafka's holds 50): a dropped handshake would cost a second. */
        if (i % CONNECTS_AT_ONCE == CONNECTS_AT_ONCE - 1) usleep(2000);
        open_connection(c);
        if (c->idler) {
            send_api_versions(c);
        } else if (c->tailer) {
            c->next_frame = (i - options.connections) % tail.count;
            const struct entry *entry = &tail.entries[c->next_frame];
            c->copy = checked(malloc(entry->size));
            memcpy(c->copy, tail.frames[c->next_frame], entry->size);
            c->partition = entry->partition;
            c->offset = (int64_t)get64(c->copy + entry->offset_at);
            send_fetch(c);
        } else {
            c->next_frame = c->expect_frame = (uint64_t)i * load.count / options.connections;
            c->step_frame = 1;
            c->quota = UINT64_MAX;
            if (options.count) {
                c->quota = options.count / options.connections;
                if ((uint64_t)i < options.count % options.connections) c->quota++;
            }
        }
    }
}

static int64_t schedule_due(int64_t start, uint64_t *scheduled, uint64_t limit, int64_t now) {
    double period = 1e9 / options.rate;
    int64_t due = start + (int64_t)(*scheduled * period);
    while (due <= now && *scheduled < limit) {
        struct connection *c = &connections[*scheduled % options.connections];
        if (c->fd >= 0) {
            push_time(c, due);
            c->due++;
            send_some(c);
        }
        due = start + (int64_t)(++*scheduled * period);
    }
    return due;
}

static uint64_t expected_deliveries(void) {
    uint64_t expected = 0;
    for (int i = options.connections; i < options.connections + options.consumers; i++)
        expected += records_sent[connections[i].partition % MAX_PARTITIONS];
    return expected;
}

static uint64_t silent_idlers(void) {
    uint64_t silent = 0;
    for (int i = options.connections + options.consumers; i < connection_count; i++)
        if (connections[i].fd >= 0 && !connections[i].done) silent++;
    return silent;
}

static bool senders_left(void) {
    for (int i = 0; i < options.connections; i++)
        if (connections[i].fd >= 0) return true;
    return false;
}

static void poll_once(int64_t wait_ns) {
    struct epoll_event events[256];
    if (wait_ns < 0) wait_ns = 0;
    struct timespec timeout = {wait_ns / 1000000000LL, wait_ns % 1000000000LL};
    int n = epoll_pwait2(epoll_fd, events, 256, &timeout, NULL);
    for (int i = 0; i < n; i++) {
        struct connection *c = events[i].data.ptr;
        if (c->fd >= 0 && events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) receive(c);
        if (c->fd >= 0 && !c->tailer && !c->idler) send_some(c);
    }
}

static void wait_for_idlers(void) {
    int64_t limit = now_ns() + 60000000000LL;
    while (silent_idlers() && now_ns() < limit) poll_once(100000000LL);
}

/* Sends until the count or the time is reached, then waits for what is in flight. Returns the start time. */
static int64_t run(void) {
    int64_t start = now_ns();
    int64_t deadline = options.seconds ? start + (int64_t)(options.seconds * 1e9) : INT64_MAX;
    uint64_t limit = options.count ? options.count : UINT64_MAX, scheduled = 0;
    if (options.rate && options.seconds && options.rate * options.seconds < limit)
        limit = (uint64_t)(options.rate * options.seconds);
    if (!options.rate)
        for (int i = 0; i < options.connections; i++) send_some(&connections[i]);
    int64_t drain_until = INT64_MAX;
    for (;;) {
        int64_t now = now_ns(), next = now + 100000000LL;
        if (options.rate && scheduled < limit) {
            int64_t due = schedule_due(start, &scheduled, limit, now);
            if (due < next) next = due;
        }
        bool all_sent = options.rate ? scheduled >= limit : now >= deadline || sent_total >= limit;
        if (all_sent && drain_until == INT64_MAX) {
            stopping = !options.rate && !options.consumers;
            drain_until = now + DRAIN_NS;
        }
        uint64_t target = options.rate ? scheduled : sent_total;
        bool delivered = !options.consumers || records_delivered >= expected_deliveries();
        if (all_sent && done_total >= target && delivered) break;
        if (now > drain_until || !senders_left()) break;
        if (drain_until != INT64_MAX && next > now + 1000000) next = now + 1000000;
        poll_once(next - now_ns());
    }
    return start;
}

static void print_latencies(const char *name, const struct histogram *h) {
    printf(", \"%s\": {\"count\": %lu, \"mean_us\": %.1f, \"p50_us\": %.1f, \"p90_us\": %.1f, \"p99_us\": %.1f, "
           "\"p999_us\": %.1f, \"max_us\": %.1f}",
           name, h->total, h->total ? h->sum / h->total / 1e3 : 0.0, quantile_us(h, 0.5), quantile_us(h, 0.9),
           quantile_us(h, 0.99), quantile_us(h, 0.999), h->max / 1e3);
}

static void print_result(double seconds, double connect_seconds, double client_cpu, double server_cpu) {
    uint64_t expected = expected_deliveries();
    printf("{\"requests\": %lu, \"sent\": %lu, \"records_acked\": %lu, \"seconds\": %.6f, \"bytes_out\": %lu, "
           "\"bytes_in\": %lu, \"payload_in\": %lu, \"empty_fetches\": %lu, \"errors\": %lu, \"mismatches\": %lu, "
           "\"broken_connections\": %lu, \"records_delivered\": %lu, \"undelivered\": %lu, \"silent_idlers\": %lu, "
           "\"connect_seconds\": %.4f, "
           "\"client_cpu_seconds\": %.4f, \"server_cpu_seconds\": %.6f",
           done_total, sent_total, records_acked, seconds, bytes_out, bytes_in, payload_in, empty_fetches,
           errors_total, mismatches, broken_connections, records_delivered,
           expected > records_delivered ? expected - records_delivered : 0, silent_idlers(), connect_seconds, client_cpu,
           server_cpu);
    print_latencies("round_trip", &round_trips);
    print_latencies("delivery", &deliveries);
    printf(", \"error_codes\": {");
    const char *comma = "";
    for (int code = 0; code < MAX_CODES; code++)
        if (error_codes[code]) {
            printf("%s\"%d\": %lu", comma, (int8_t)code, error_codes[code]);
            comma = ", ";
        }
    printf("}}\n");
}

static void read_options(int argc, char **argv) {
    static const struct option names[] = {
        {"host", 1, 0, 'h'},      {"port", 1, 0, 'p'},  {"requests", 1, 0, 'r'}, {"connections", 1, 0, 'c'},
        {"inflight", 1, 0, 'i'},  {"rate", 1, 0, 'R'},  {"count", 1, 0, 'n'},    {"seconds", 1, 0, 's'},
        {"consumers", 1, 0, 't'}, {"fetch", 1, 0, 'f'}, {"idle", 1, 0, 'I'},     {"stamp", 0, 0, 'S'},
        {"pid", 1, 0, 'P'},
        {0, 0, 0, 0}};
    int option;
    while ((option = getopt_long(argc, argv, "", names, NULL)) != -1) {
        switch (option) {
        case 'h': options.host = optarg; break;
        case 'p': options.port = atoi(optarg); break;
        case 'r': options.requests = optarg; break;
        case 'c': options.connections = atoi(optarg); break;
        case 'i': options.inflight = atoi(optarg); break;
        case 'R': options.rate = atof(optarg); break;
        case 'n': options.count = strtoull(optarg, NULL, 10); break;
        case 's': options.seconds = atof(optarg); break;
        case 't': options.consumers = atoi(optarg); break;
        case 'f': options.fetch = optarg; break;
        case 'I': options.idle = atoi(optarg); break;
        case 'S': options.stamp = true; break;
        case 'P':
            if (options.pid_count < MAX_PIDS) options.pids[options.pid_count++] = atoi(optarg);
            break;
        default: exit(2);
        }
    }
    if (!options.port || !options.requests || (!options.count && !options.seconds)) {
        fprintf(stderr, "loadgen: --port, --requests and one of --count and --seconds are needed\n");
        exit(2);
    }
}

int main(int argc, char **argv) {
    read_options(argc, argv);
    prctl(PR_SET_TIMERSLACK, 1);
    make_crc_table();
    load = read_requests(options.requests);
    if (options.fetch) tail = read_requests(options.fetch);
    int64_t before = now_ns();
    set_up();
    wait_for_idlers();
    double connect_seconds = (now_ns() - before) / 1e9;
    double client_before = cpu_seconds(CLOCK_PROCESS_CPUTIME_ID), server_before = server_cpu_seconds();
    int64_t start = run();
    double server_cpu = server_cpu_seconds() - server_before;
    double client_cpu = cpu_seconds(CLOCK_PROCESS_CPUTIME_ID) - client_before;
    int64_t end = last_response > start ? last_response : now_ns();
    print_result((end - start) / 1e9, connect_seconds, client_cpu, server_cpu);
    return 0;
}
