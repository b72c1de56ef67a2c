/* bench/serve_load.c - many clients of a server in one thread: what it carries, and how smoothly.
 *
 *     serve_load --port P --streams 64 --tokens 256 --seconds 5     tokens/s, gaps, events a read
 *     serve_load --port P --whole 16 --tokens 1                     requests/s, latencies
 *     serve_load --port P --idle 10000 --streams 64 --server-pid N  CPU time a token meanwhile
 *     serve_load --port P --vanish 2000 --after 3                   clients that go away
 *
 * Everything is HTTP/1.1 over plain sockets and one epoll set. Answers are taken apart only as far
 * as counting needs: heads, chunks, and the empty line that ends a server-sent event; JSON is
 * never looked at, so that the client is cheaper than what it measures. Connections of streams and
 * of whole answers are kept and used again at once (a closed loop).
 *
 * Tokens: an answer that has ended counts as --tokens (the requests ask the server to
 * ignore the model's own end), one under way as the events that came. A *gap* is the time between
 * two events of one stream; a *lag* is the time from the first event of a burst (a step of the
 * engine) to each of the others, which is what sending adds for a client behind 63 others.
 *
 * Without --port it says so and ends with 0, so that `make bench` passes over it;
 * tools/bench_server starts a server and asks the questions that count.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/mem.h"

enum {
    HEAD_BYTES = 2048,
    READ_BYTES = 1 << 18,
    EVENTS_A_WAIT = 512,
    OPENING_MAX = 128,   /* connections that are being made at one time */
    SOURCE_PORTS = 5000, /* connections from one loopback address */
    REQUEST_BYTES_MAX = 1 << 20,
    OPEN_TIMEOUT_S = 60,
    SLOTS_PER_OCTAVE = 32,
    HIST_SLOTS = 64 * SLOTS_PER_OCTAVE,
};
static const int64_t NS_PER_S = 1000000000;
static const double NS_PER_US = 1e3;

enum role { ROLE_IDLE, ROLE_STREAM, ROLE_WHOLE, ROLE_VANISH, ROLES };
enum phase { PHASE_CLOSED, PHASE_CONNECTING, PHASE_SENDING, PHASE_HEAD, PHASE_BODY, PHASE_REST };
enum chunk_part { CHUNK_SIZE, CHUNK_DATA, CHUNK_GAP, CHUNK_LAST };

struct client {
    int fd;
    enum role role;
    enum phase phase;
    uint32_t sent_bytes, head_bytes;
    enum chunk_part part;
    uint64_t left;       /* of the chunk or of the body */
    uint32_t line_bytes; /* of the chunk's size line, or of the trailer's */
    bool is_chunked, ends_with_connection, after_newline;
    uint32_t events; /* of this answer */
    int64_t asked_ns, event_ns;
    char head[HEAD_BYTES];
};

/* Logarithmic slots: a quantile is right to 3 %. */
struct hist {
    uint64_t slots[HIST_SLOTS], total;
};

struct numbers {
    uint64_t answers, refused, failed, events, reads, bytes, vanished;
    uint64_t tokens_of_ended; /* of answers that began and ended while measuring, and parts */
    struct hist gap_ns, lag_ns, latency_ns, first_ns;
};

struct options {
    const char *host, *model, *api, *key;
    uint16_t port;
    uint32_t streams, whole, idle, vanish, after, tokens, prompt_words;
    double seconds, warm_s, linger_s;
    int core, server_pid;
    bool as_json, resets;
};

struct load {
    struct options o;
    int epoll;
    struct client *clients;
    uint32_t count, opening, opened[ROLES], ready[ROLES];
    struct buf requests[ROLES];
    struct numbers n;
    bool measuring;
    int64_t burst_ns, last_event_ns; /* the burst under way */
    char read_buffer[READ_BYTES];
};

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * NS_PER_S + t.tv_nsec;
}

/* ---- quantiles ---- */

static uint32_t slot_of(uint64_t v) {
    if (v < SLOTS_PER_OCTAVE) return (uint32_t)v;
    uint32_t top = 63u - (uint32_t)__builtin_clzll(v);
    uint32_t shift = top - 5;
    return (shift + 1) * SLOTS_PER_OCTAVE + (uint32_t)((v >> shift) & (SLOTS_PER_OCTAVE - 1));
}

static double value_of(uint32_t slot) {
    if (slot < SLOTS_PER_OCTAVE) return slot;
    uint32_t shift = slot / SLOTS_PER_OCTAVE - 1;
    return (double)((uint64_t)(SLOTS_PER_OCTAVE + slot % SLOTS_PER_OCTAVE) << shift);
}

static void hist_add(struct hist *h, int64_t v) {
    h->slots[slot_of(v < 0 ? 0 : (uint64_t)v)]++;
    h->total++;
}

static double hist_us(const struct hist *h, double share) {
    uint64_t wanted = (uint64_t)((double)h->total * share), seen = 0;
    for (uint32_t i = 0; i < HIST_SLOTS; i++) {
        seen += h->slots[i];
        if (seen > wanted) return value_of(i) / NS_PER_US;
    }
    return 0.0;
}

/* ---- the server's process, as /proc tells it ---- */

struct process {
    double cpu_s, rss_kib;
    uint32_t fds;
};

static uint32_t count_entries(const char *path) {
    DIR *dir = opendir(path);
    if (!dir) return 0;
    uint32_t count = 0;
    for (const struct dirent *e; (e = readdir(dir));) count += e->d_name[0] != '.';
    closedir(dir);
    return count;
}

/* Nanoseconds on a processor, of all threads: finer than the ticks of /proc/PID/stat. */
static double read_cpu_s(int pid) {
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/task", pid);
    DIR *dir = opendir(path);
    if (!dir) return 0.0;
    double total = 0.0;
    for (const struct dirent *e; (e = readdir(dir));) {
        char file[400];
        uint64_t ns = 0;
        if (e->d_name[0] == '.') continue;
        snprintf(file, sizeof(file), "%s/%s/schedstat", path, e->d_name);
        FILE *f = fopen(file, "r");
        if (f && fscanf(f, "%" SCNu64, &ns) == 1) total += (double)ns * 1e-9;
        if (f) fclose(f);
    }
    closedir(dir);
    return total;
}

static double read_rss_kib(int pid) {
    char path[64], line[256];
    double kib = 0.0;
    snprintf(path, sizeof(path), "/proc/%d/status", pid);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof(line), f))
        if (strncmp(line, "VmRSS:", 6) == 0) kib = strtod(line + 6, NULL);
    if (f) fclose(f);
    return kib;
}

static struct process read_process(int pid) {
    char path[64];
    if (pid <= 0) return (struct process){0};
    snprintf(path, sizeof(path), "/proc/%d/fd", pid);
    return (struct process){
        .cpu_s = read_cpu_s(pid), .rss_kib = read_rss_kib(pid), .fds = count_entries(path)};
}

/* ---- what is sent ---- */

static void put_body(const struct options *o, bool stream, struct buf *out) {
    bool chat = strcmp(o->api, "chat") == 0;
    buf_printf(out, "{\"model\":\"%s\",\"max_tokens\":%u,\"ignore_eos\":true,\"temperature\":0,",
               o->model, o->tokens);
    buf_printf(out, "\"stream\":%s,", stream ? "true" : "false");
    buf_put_text(out, chat ? "\"messages\":[{\"role\":\"user\",\"content\":\"" : "\"prompt\":\"");
    for (uint32_t i = 0; i < o->prompt_words; i++) buf_put_text(out, i ? " word" : "word");
    buf_put_text(out, chat ? "\"}]}" : "\"}");
}

static void make_request(struct load *l, enum role role) {
    const struct options *o = &l->o;
    struct buf *out = &l->requests[role], body;
    buf_init(out, REQUEST_BYTES_MAX);
    if (role == ROLE_IDLE) {
        buf_printf(out, "GET /livez HTTP/1.1\r\nhost: %s:%u\r\n\r\n", o->host, o->port);
        return;
    }
    buf_init(&body, REQUEST_BYTES_MAX);
    put_body(o, role != ROLE_WHOLE, &body);
    buf_printf(out, "POST /v1/%s HTTP/1.1\r\nhost: %s:%u\r\n",
               strcmp(o->api, "chat") == 0 ? "chat/completions" : "completions", o->host, o->port);
    buf_put_text(out, "content-type: application/json\r\n");
    if (o->key) buf_printf(out, "authorization: Bearer %s\r\n", o->key);
    buf_printf(out, "content-length: %zu\r\n\r\n", body.len);
    buf_put_str(out, buf_str(&body));
    CHECK(buf_status(out) == ST_OK);
    buf_deinit(&body);
}

/* ---- connections ---- */

static void watch(struct load *l, struct client *c, uint32_t events, int op) {
    struct epoll_event e = {.events = events, .data = {.ptr = c}};
    CHECK(epoll_ctl(l->epoll, op, c->fd, &e) == 0);
}

static void shut(struct load *l, struct client *c) {
    if (c->phase == PHASE_CLOSED) return;
    if (c->phase == PHASE_CONNECTING) l->opening--;
    if (l->o.resets) {
        struct linger none = {.l_onoff = 1, .l_linger = 0};
        setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &none, sizeof(none));
    }
    close(c->fd);
    c->phase = PHASE_CLOSED;
}

/* Many connections to one port need several addresses to come from. */
static bool open_socket(struct load *l, struct client *c) {
    uint32_t index = (uint32_t)(c - l->clients);
    struct sockaddr_in from = {.sin_family = AF_INET}, to = {.sin_family = AF_INET};
    int on = 1;
    from.sin_addr.s_addr = htonl(INADDR_LOOPBACK + index / SOURCE_PORTS);
    to.sin_port = htons(l->o.port);
    if (inet_pton(AF_INET, l->o.host, &to.sin_addr) != 1) return false;
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (c->fd < 0) return false;
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    setsockopt(c->fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof(on));
    bool is_loopback = (ntohl(to.sin_addr.s_addr) >> 24) == 127;
    if (is_loopback && bind(c->fd, (struct sockaddr *)&from, sizeof(from)) != 0) return false;
    if (connect(c->fd, (struct sockaddr *)&to, sizeof(to)) == 0) return true;
    return errno == EINPROGRESS;
}

static bool open_client(struct load *l, struct client *c) {
    if (!open_socket(l, c)) {
        fprintf(stderr, "serve_load: no connection to %s:%u: %s\n", l->o.host, l->o.port,
                strerror(errno));
        if (c->fd >= 0) close(c->fd);
        return false;
    }
    c->phase = PHASE_CONNECTING;
    l->opening++;
    l->opened[c->role]++;
    watch(l, c, EPOLLIN | EPOLLOUT, EPOLL_CTL_ADD);
    return true;
}

static void send_request(struct load *l, struct client *c) {
    const struct buf *r = &l->requests[c->role];
    ssize_t put = send(c->fd, r->ptr + c->sent_bytes, r->len - c->sent_bytes, MSG_NOSIGNAL);
    if (put < 0 && errno != EAGAIN) {
        l->n.failed++;
        shut(l, c);
        return;
    }
    bool was_waiting = c->phase == PHASE_SENDING;
    c->sent_bytes += put > 0 ? (uint32_t)put : 0;
    if (c->sent_bytes < r->len) {
        if (!was_waiting) watch(l, c, EPOLLIN | EPOLLOUT, EPOLL_CTL_MOD);
        c->phase = PHASE_SENDING;
        return;
    }
    if (was_waiting) watch(l, c, EPOLLIN, EPOLL_CTL_MOD);
    c->phase = PHASE_HEAD;
}

static void ask(struct load *l, struct client *c) {
    c->sent_bytes = c->head_bytes = c->events = c->line_bytes = 0;
    c->part = CHUNK_SIZE;
    c->left = 0;
    c->is_chunked = c->ends_with_connection = c->after_newline = false;
    c->asked_ns = now_ns();
    c->event_ns = 0;
    c->phase = PHASE_HEAD;
    send_request(l, c);
}

/* ---- what comes ---- */

static void note_event(struct load *l, struct client *c, int64_t t) {
    enum { QUIET_NS = 300000 }; /* a new burst begins after so long a silence */
    c->events++;
    if (l->measuring) {
        l->n.events++;
        hist_add(c->event_ns ? &l->n.gap_ns : &l->n.first_ns,
                 t - (c->event_ns ? c->event_ns : c->asked_ns));
        if (t - l->last_event_ns > QUIET_NS) l->burst_ns = t;
        hist_add(&l->n.lag_ns, t - l->burst_ns);
    }
    l->last_event_ns = c->event_ns = t;
}

/* An event ends with an empty line. */
static void scan_events(struct load *l, struct client *c, const char *p, size_t len, int64_t t) {
    const char *end = p + len;
    if (c->after_newline && len > 0 && *p == '\n') {
        note_event(l, c, t);
        p++;
    }
    c->after_newline = false;
    while (p < end) {
        const char *nl = memchr(p, '\n', (size_t)(end - p));
        if (!nl) return;
        if (nl + 1 == end) {
            c->after_newline = true;
            return;
        }
        if (nl[1] == '\n') note_event(l, c, t);
        p = nl + (nl[1] == '\n' ? 2 : 1);
    }
}

static void end_answer(struct load *l, struct client *c) {
    if (l->measuring && c->role != ROLE_IDLE) {
        l->n.answers++;
        hist_add(&l->n.latency_ns, now_ns() - c->asked_ns);
    }
    if (c->role == ROLE_IDLE || c->role == ROLE_VANISH) {
        l->ready[c->role]++;
        c->phase = PHASE_REST;
    } else if (c->ends_with_connection) {
        shut(l, c);
        open_client(l, c);
    } else {
        ask(l, c);
    }
}

static int hex_digit(char ch) {
    if (ch >= '0' && ch <= '9') return ch - '0';
    ch |= 0x20;
    return ch >= 'a' && ch <= 'f' ? ch - 'a' + 10 : -1;
}

/* One byte of a chunk's frame; true when the answer has ended. */
static bool take_frame_byte(struct client *c, char ch) {
    int digit = hex_digit(ch);
    if (c->part == CHUNK_SIZE && ch == '\n') {
        c->part = c->left ? CHUNK_DATA : CHUNK_LAST;
        c->line_bytes = 0;
    } else if (c->part == CHUNK_SIZE && digit >= 0) {
        c->left = c->left * 16 + (uint64_t)digit;
    } else if (c->part == CHUNK_GAP && ch == '\n') {
        c->part = CHUNK_SIZE;
    } else if (c->part == CHUNK_LAST && ch == '\n') {
        bool is_empty = c->line_bytes == 0;
        c->line_bytes = 0;
        return is_empty;
    } else if (c->part == CHUNK_LAST && ch != '\r') {
        c->line_bytes++;
    }
    return false;
}

static void take_chunks(struct load *l, struct client *c, const char *p, size_t len, int64_t t) {
    while (len > 0) {
        if (c->part != CHUNK_DATA) {
            bool ended = take_frame_byte(c, *p++);
            len--;
            if (!ended) continue;
            end_answer(l, c);
            return;
        }
        size_t some = c->left < len ? (size_t)c->left : len;
        scan_events(l, c, p, some, t);
        p += some;
        len -= some;
        c->left -= some;
        if (c->left == 0) c->part = CHUNK_GAP;
    }
}

static void take_body(struct load *l, struct client *c, const char *p, size_t len, int64_t t) {
    if (c->is_chunked) {
        take_chunks(l, c, p, len, t);
        return;
    }
    scan_events(l, c, p, len, t);
    c->left -= c->left < len ? c->left : len;
    if (c->left == 0 && !c->ends_with_connection) end_answer(l, c);
}

/* Names are in lower case here: the server writes them so, and so does the test that it does. */
static void read_head(struct load *l, struct client *c) {
    const char *length = strcasestr(c->head, "\r\ncontent-length:");
    c->is_chunked = strcasestr(c->head, "\r\ntransfer-encoding: chunked") != NULL;
    c->left = length ? strtoull(length + 17, NULL, 10) : 0;
    c->ends_with_connection = !c->is_chunked && !length;
    long status = strlen(c->head) > 9 ? strtol(c->head + 9, NULL, 10) : 0;
    if (status != 200) l->n.refused++;
    c->phase = PHASE_BODY;
}

static void take_head(struct load *l, struct client *c, const char *p, size_t len, int64_t t) {
    size_t room = HEAD_BYTES - 1 - c->head_bytes, some = len < room ? len : room;
    uint32_t had = c->head_bytes;
    memcpy(c->head + had, p, some);
    c->head_bytes += (uint32_t)some;
    c->head[c->head_bytes] = 0;
    char *end = strstr(c->head, "\r\n\r\n");
    if (!end) {
        if (c->head_bytes + 1 < HEAD_BYTES) return;
        l->n.failed++;
        shut(l, c);
        return;
    }
    size_t head = (size_t)(end + 4 - c->head);
    end[2] = 0;
    read_head(l, c);
    size_t used = head - had;
    if (len > used || (!c->is_chunked && c->left == 0)) take_body(l, c, p + used, len - used, t);
}

static void on_readable(struct load *l, struct client *c) {
    ssize_t got = recv(c->fd, l->read_buffer, READ_BYTES, 0);
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) {
        if (c->phase == PHASE_BODY && c->ends_with_connection && got == 0) {
            l->n.answers++;
        } else if (c->phase != PHASE_REST || c->role == ROLE_IDLE) {
            l->n.failed++;
        }
        shut(l, c);
        return;
    }
    if (l->measuring) {
        l->n.reads++;
        l->n.bytes += (uint64_t)got;
    }
    int64_t t = now_ns();
    if (c->phase == PHASE_HEAD)
        take_head(l, c, l->read_buffer, (size_t)got, t);
    else if (c->phase == PHASE_BODY)
        take_body(l, c, l->read_buffer, (size_t)got, t);
}

/* A client that goes away once it has seen enough; one that waits for nothing goes later, in
 * vanish_rest. */
static void maybe_vanish(struct load *l, struct client *c) {
    if (c->role != ROLE_VANISH || l->o.after == 0 || c->events < l->o.after) return;
    l->n.vanished++;
    shut(l, c);
}

static void on_connected(struct load *l, struct client *c) {
    int error = 0;
    socklen_t len = sizeof(error);
    l->opening--;
    c->phase = PHASE_HEAD;
    getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &error, &len);
    if (error) {
        l->n.failed++;
        shut(l, c);
        return;
    }
    watch(l, c, EPOLLIN, EPOLL_CTL_MOD);
    ask(l, c);
}

static void handle(struct load *l, const struct epoll_event *e) {
    struct client *c = e->data.ptr;
    if (c->phase == PHASE_CLOSED) return;
    if (c->phase == PHASE_CONNECTING && (e->events & (EPOLLOUT | EPOLLERR | EPOLLHUP)))
        on_connected(l, c);
    else if (c->phase == PHASE_SENDING && (e->events & EPOLLOUT))
        send_request(l, c);
    else if (e->events & (EPOLLIN | EPOLLERR | EPOLLHUP))
        on_readable(l, c);
    maybe_vanish(l, c);
}

static void turn(struct load *l, int wait_ms) {
    struct epoll_event events[EVENTS_A_WAIT];
    int count = epoll_wait(l->epoll, events, EVENTS_A_WAIT, wait_ms);
    for (int i = 0; i < count; i++) handle(l, &events[i]);
}

static void run_for(struct load *l, double seconds) {
    int64_t end = now_ns() + (int64_t)(seconds * (double)NS_PER_S);
    while (now_ns() < end) turn(l, 10);
}

/* Open every client of a role, a few at a time; with `settle`, until each has its first answer. */
static bool open_role(struct load *l, enum role role, bool settle) {
    int64_t late = now_ns() + (int64_t)OPEN_TIMEOUT_S * NS_PER_S;
    uint32_t wanted = 0;
    for (uint32_t i = 0; i < l->count; i++) {
        if (l->clients[i].role != role) continue;
        wanted++;
        while (l->opening >= OPENING_MAX && now_ns() < late) turn(l, 10);
        if (!open_client(l, &l->clients[i])) return false;
    }
    while (l->opening > 0 && now_ns() < late) turn(l, 10);
    while (settle && l->ready[role] < wanted && now_ns() < late) turn(l, 10);
    return now_ns() < late;
}

static void vanish_rest(struct load *l) {
    for (uint32_t i = 0; i < l->count; i++) {
        struct client *c = &l->clients[i];
        if (c->role != ROLE_VANISH || c->phase == PHASE_CLOSED) continue;
        l->n.vanished++;
        shut(l, c);
    }
}

/* ---- the run ---- */

struct result {
    struct process before, idle, begin, end; /* empty; with idle ones; around the measuring */
    double seconds;
};

static uint64_t events_under_way(const struct load *l) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < l->count; i++)
        if (l->clients[i].role == ROLE_STREAM && l->clients[i].phase == PHASE_BODY)
            sum += l->clients[i].events;
    return sum;
}

static bool measure(struct load *l, struct result *r) {
    const struct options *o = &l->o;
    r->before = read_process(o->server_pid);
    if (!open_role(l, ROLE_IDLE, true)) return false;
    r->idle = read_process(o->server_pid);
    if (!open_role(l, ROLE_STREAM, false) || !open_role(l, ROLE_WHOLE, false)) return false;
    run_for(l, o->warm_s);
    uint64_t open_events = events_under_way(l);
    l->measuring = true;
    l->burst_ns = l->last_event_ns = now_ns();
    r->begin = read_process(o->server_pid);
    int64_t start = now_ns();
    if (!open_role(l, ROLE_VANISH, false)) return false;
    run_for(l, o->vanish ? o->linger_s : o->seconds);
    vanish_rest(l);
    r->seconds = (double)(now_ns() - start) / (double)NS_PER_S;
    r->end = read_process(o->server_pid);
    l->measuring = false;
    /* An answer that was under way at the start brought only the rest of its tokens. */
    uint64_t ended = o->streams || o->whole ? l->n.answers * o->tokens : 0;
    uint64_t partly = events_under_way(l) + ended;
    l->n.tokens_of_ended = partly > open_events ? partly - open_events : 0;
    return true;
}

static void put_number(struct buf *out, bool as_json, const char *name, double value) {
    if (as_json)
        buf_printf(out, "%s\"%s\":%.10g", out->len > 1 ? "," : "", name, value);
    else
        buf_printf(out, "%-26s %.10g\n", name, value);
}

static void put_quantiles(struct buf *out, bool as_json, const char *name, const struct hist *h) {
    static const struct {
        const char *name;
        double share;
    } wanted[] = {{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"max", 0.9999999}};
    char full[64];
    if (h->total == 0) return;
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        snprintf(full, sizeof(full), "%s_%s_us", name, wanted[i].name);
        put_number(out, as_json, full, hist_us(h, wanted[i].share));
    }
}

static void put_process(struct buf *out, const struct load *l, const struct result *r) {
    bool j = l->o.as_json;
    double cpu_s = r->end.cpu_s - r->begin.cpu_s;
    put_number(out, j, "server_cpu_share", cpu_s / r->seconds);
    if (l->n.tokens_of_ended)
        put_number(out, j, "server_cpu_us_a_token", cpu_s * 1e6 / (double)l->n.tokens_of_ended);
    if (l->o.idle)
        put_number(out, j, "server_kib_an_idle", (r->idle.rss_kib - r->before.rss_kib) / l->o.idle);
    put_number(out, j, "server_fds_before", r->before.fds);
    put_number(out, j, "server_fds_end", r->end.fds);
    put_number(out, j, "server_rss_kib", r->end.rss_kib);
}

static void report(const struct load *l, const struct result *r) {
    const struct numbers *n = &l->n;
    bool j = l->o.as_json;
    struct buf out;
    buf_init(&out, REQUEST_BYTES_MAX);
    if (j) buf_put_char(&out, '{');
    put_number(&out, j, "seconds", r->seconds);
    put_number(&out, j, "answers", (double)n->answers);
    put_number(&out, j, "answers_a_s", (double)n->answers / r->seconds);
    put_number(&out, j, "tokens_a_s", (double)n->tokens_of_ended / r->seconds);
    put_number(&out, j, "events", (double)n->events);
    put_number(&out, j, "events_a_read", n->reads ? (double)n->events / (double)n->reads : 0.0);
    put_number(&out, j, "reads", (double)n->reads);
    put_number(&out, j, "bytes", (double)n->bytes);
    put_number(&out, j, "refused", (double)n->refused);
    put_number(&out, j, "failed", (double)n->failed);
    put_number(&out, j, "vanished", (double)n->vanished);
    put_quantiles(&out, j, "gap", &n->gap_ns);
    put_quantiles(&out, j, "lag", &n->lag_ns);
    put_quantiles(&out, j, "first", &n->first_ns);
    put_quantiles(&out, j, "latency", &n->latency_ns);
    if (l->o.server_pid) put_process(&out, l, r);
    if (j) buf_put_text(&out, "}\n");
    fputs(buf_text(&out), stdout);
    buf_deinit(&out);
}

static bool set_up(struct load *l) {
    const uint32_t counts[ROLES] = {l->o.idle, l->o.streams, l->o.whole, l->o.vanish};
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    for (uint32_t role = 0; role < ROLES; role++) {
        l->count += counts[role];
        make_request(l, (enum role)role);
    }
    l->epoll = epoll_create1(EPOLL_CLOEXEC);
    l->clients = mem_zalloc_array(l->count ? l->count : 1, sizeof(l->clients[0]));
    if (l->epoll < 0 || !l->clients) return false;
    uint32_t i = 0;
    for (uint32_t role = 0; role < ROLES; role++)
        for (uint32_t k = 0; k < counts[role]; k++) l->clients[i++].role = (enum role)role;
    if (l->o.core < 0) return true;
    cpu_set_t cores;
    CPU_ZERO(&cores);
    CPU_SET(l->o.core, &cores);
    return sched_setaffinity(0, sizeof(cores), &cores) == 0;
}

static void tear_down(struct load *l) {
    for (uint32_t i = 0; l->clients && i < l->count; i++) shut(l, &l->clients[i]);
    for (uint32_t role = 0; role < ROLES; role++) buf_deinit(&l->requests[role]);
    if (l->epoll >= 0) close(l->epoll);
    mem_free(l->clients);
    mem_free(l);
}

/* ---- options ---- */

static const char USAGE[] =
    "usage: serve_load --port P [OPTION]...\n"
    "  --host ADDRESS     127.0.0.1\n"
    "  --streams N        clients that read streamed answers, one after the other\n"
    "  --whole N          clients that read whole answers, one after the other\n"
    "  --idle N           connections that ask once and then stay silent\n"
    "  --vanish N         clients that go away in the middle of an answer; ends the run\n"
    "  --after N          events that such a client waits for; 0: it goes when --linger is over\n"
    "  --linger S         how long clients have to vanish by themselves (1)\n"
    "  --reset            connections end with RST instead of FIN\n"
    "  --tokens N         of each answer (128)\n"
    "  --prompt N         words of each prompt (4)\n"
    "  --seconds S        to measure (5), after --warm S (0.5)\n"
    "  --api WORD         chat or completions (chat)\n"
    "  --model NAME       smollm2\n"
    "  --key KEY          an API key to send\n"
    "  --core N           run on that processor\n"
    "  --server-pid PID   look at that process: CPU time, memory, descriptors\n"
    "  --json             one JSON object\n";

enum flag {
    F_HOST = 1,
    F_PORT,
    F_STREAMS,
    F_WHOLE,
    F_IDLE,
    F_VANISH,
    F_AFTER,
    F_LINGER,
    F_RESET,
    F_TOKENS,
    F_PROMPT,
    F_SECONDS,
    F_WARM,
    F_API,
    F_MODEL,
    F_KEY,
    F_CORE,
    F_PID,
    F_JSON,
    F_HELP,
};

static bool set_option(struct options *o, int flag, const char *value) {
    uint32_t number = value ? (uint32_t)strtoul(value, NULL, 10) : 0;
    double real = value ? strtod(value, NULL) : 0.0;
    switch (flag) {
    case F_HOST:
        o->host = value;
        return true;
    case F_PORT:
        o->port = (uint16_t)number;
        return true;
    case F_STREAMS:
        o->streams = number;
        return true;
    case F_WHOLE:
        o->whole = number;
        return true;
    case F_IDLE:
        o->idle = number;
        return true;
    case F_VANISH:
        o->vanish = number;
        return true;
    case F_AFTER:
        o->after = number;
        return true;
    case F_LINGER:
        o->linger_s = real;
        return true;
    case F_RESET:
        o->resets = true;
        return true;
    case F_TOKENS:
        o->tokens = number;
        return true;
    case F_PROMPT:
        o->prompt_words = number;
        return true;
    case F_SECONDS:
        o->seconds = real;
        return true;
    case F_WARM:
        o->warm_s = real;
        return true;
    case F_API:
        o->api = value;
        return true;
    case F_MODEL:
        o->model = value;
        return true;
    case F_KEY:
        o->key = value;
        return true;
    case F_CORE:
        o->core = (int)number;
        return true;
    case F_PID:
        o->server_pid = (int)number;
        return true;
    case F_JSON:
        o->as_json = true;
        return true;
    default:
        return false;
    }
}

static bool read_options(int argc, char **argv, struct options *o) {
    static const struct option flags[] = {
        {"host", 1, NULL, F_HOST},
        {"port", 1, NULL, F_PORT},
        {"streams", 1, NULL, F_STREAMS},
        {"whole", 1, NULL, F_WHOLE},
        {"idle", 1, NULL, F_IDLE},
        {"vanish", 1, NULL, F_VANISH},
        {"after", 1, NULL, F_AFTER},
        {"linger", 1, NULL, F_LINGER},
        {"reset", 0, NULL, F_RESET},
        {"tokens", 1, NULL, F_TOKENS},
        {"prompt", 1, NULL, F_PROMPT},
        {"seconds", 1, NULL, F_SECONDS},
        {"warm", 1, NULL, F_WARM},
        {"api", 1, NULL, F_API},
        {"model", 1, NULL, F_MODEL},
        {"key", 1, NULL, F_KEY},
        {"core", 1, NULL, F_CORE},
        {"server-pid", 1, NULL, F_PID},
        {"json", 0, NULL, F_JSON},
        {"help", 0, NULL, F_HELP},
        {0},
    };
    for (int flag; (flag = getopt_long(argc, argv, "", flags, NULL)) != -1;)
        if (!set_option(o, flag, optarg)) return false;
    return optind == argc;
}

int main(int argc, char **argv) {
    struct load *l = mem_zalloc(sizeof(*l));
    if (!l) return 1;
    l->epoll = -1;
    l->o = (struct options){.host = "127.0.0.1",
                            .model = "smollm2",
                            .api = "chat",
                            .tokens = 128,
                            .prompt_words = 4,
                            .seconds = 5,
                            .warm_s = 0.5,
                            .linger_s = 1,
                            .core = -1};
    bool understood = read_options(argc, argv, &l->o);
    if (!understood || l->o.port == 0) {
        fputs(understood ? "serve_load: needs a server, passed over; see --help\n" : USAGE, stdout);
        mem_free(l);
        return 0;
    }
    struct result r = {0};
    bool done = set_up(l) && measure(l, &r);
    if (done) report(l, &r);
    if (!done) fprintf(stderr, "serve_load: the clients could not be opened in time\n");
    tear_down(l);
    return done ? 0 : 1;
}
