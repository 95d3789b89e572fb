/* SPDX-License-Identifier: Apache-2.0 */

/* Clients that are broken, hostile, many or slow: each gets a clear error, the server lives. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "libclient/codec.h"
#include "libclient/gpuobs.h"
#include "unit/api_fixture.h"
#include "unit/test.h"
#include "util/macro.h"
#include "util/time.h"

static struct fixture f;

/* ---- raw sockets ---- */

static void send_bytes(int fd, const void *bytes, size_t size)
{
        CHECK_EQ(send(fd, bytes, size, MSG_NOSIGNAL), size);
}

static void send_frame(int fd, const void *body, uint32_t size)
{
        send_bytes(fd, &size, 4);
        send_bytes(fd, body, size);
}
#define SEND(fd, body) send_frame(fd, body, sizeof(body) - 1)

/* Exactly n bytes; false at the end of the connection. */
static bool receive(int fd, void *bytes, size_t n)
{
        size_t got = 0;

        while (got < n) {
                struct pollfd p = {.fd = fd, .events = POLLIN};
                ssize_t r;

                CHECK_EQ(poll(&p, 1, 60000), 1);
                r = recv(fd, (char *)bytes + got, n - got, 0);
                if (r <= 0)
                        return false;
                got += (size_t)r;
        }
        return true;
}

struct reply {
        uint64_t id;
        bool is_error, more, closed;
        enum gpuobs_error_number number;
        char detail[200];
};

static struct reply get_reply(int fd)
{
        static char body[GPUOBS_FRAME_MAX];
        struct codec_arena arena = {0};
        struct codec_answer a;
        struct reply r = {0};
        const char *why = "";
        uint32_t size;

        if (!receive(fd, &size, 4)) {
                r.closed = true;
                return r;
        }
        CHECK(size && size <= sizeof(body));
        CHECK(receive(fd, body, size));
        CHECK_EQ(wire_check(body, size, &why), 0);
        CHECK_EQ(codec_answer_decode(body, size, &arena, &a), 0);
        r.id = a.id;
        r.is_error = a.is_error;
        r.more = a.more;
        if (a.is_error) {
                r.number = (enum gpuobs_error_number)a.error->number;
                snprintf(r.detail, sizeof(r.detail), "%s", a.detail ? a.detail : "");
        }
        codec_arena_done(&arena);
        return r;
}

static void expect_error(int fd, uint64_t id, enum gpuobs_error_number number, const char *detail)
{
        struct reply r = get_reply(fd);

        CHECK(!r.closed && r.is_error);
        CHECK_EQ(r.id, id);
        CHECK_EQ(r.number, number);
        if (!strstr(r.detail, detail))
                CHECK_STR(r.detail, detail);
}

static void expect_closed(int fd)
{
        CHECK(get_reply(fd).closed);
        close(fd);
}

static bool is_served(const struct fixture *fx)
{
        struct gpuobs_status *s = NULL;
        struct gpuobs *g;
        int r;

        CHECK_EQ(gpuobs_connect(fx->path, 10000, &g), 0);
        r = gpuobs_status(g, NULL, &s);
        gpuobs_status_free(s);
        gpuobs_free(g);
        return r == 0;
}

static void expect_alive(void)
{
        CHECK(is_served(&f));
}

/* That somebody has left is noticed by and by. */
static void wait_until_served(const struct fixture *fx)
{
        int tries = 0;

        while (!is_served(fx) && ++tries < 1000)
                usleep(10000);
        CHECK(tries < 1000);
}

#define STATUS(id) "\x82\xa2id" id "\xa6method\xa6status"

/* ---- frames ---- */

static void bad_frames_close_the_connection(void)
{
        int fd = fixture_connect(&f);

        SEND(fd, "\xc1");
        expect_error(fd, 0, GPUOBS_ERROR_BAD_FRAME, "not allowed");
        expect_closed(fd);
        fd = fixture_connect(&f);
        SEND(fd, STATUS("\x01") "\xc0");
        expect_error(fd, 0, GPUOBS_ERROR_BAD_FRAME, "after the value");
        expect_closed(fd);
        fd = fixture_connect(&f);
        send_bytes(fd, "\0\0\0\0", 4);
        expect_error(fd, 0, GPUOBS_ERROR_BAD_FRAME, "empty");
        expect_closed(fd);
        fd = fixture_connect(&f);
        send_bytes(fd, "\xff\xff\xff\xff", 4);
        expect_error(fd, 0, GPUOBS_ERROR_FRAME_TOO_LARGE, "");
        expect_closed(fd);
        fd = fixture_connect(&f);
        send_bytes(fd, "GET / HTTP/1.0\r\n\r\n", 18);
        expect_error(fd, 0, GPUOBS_ERROR_FRAME_TOO_LARGE, "");
        expect_closed(fd);
}

/* The answers that were owed before the mistake still come. */
static void good_requests_before_a_bad_frame_are_answered(void)
{
        int fd = fixture_connect(&f);

        SEND(fd, STATUS("\x01"));
        SEND(fd, STATUS("\x02"));
        SEND(fd, "\xc1");
        CHECK_EQ(get_reply(fd).id, 1);
        CHECK_EQ(get_reply(fd).id, 2);
        expect_error(fd, 0, GPUOBS_ERROR_BAD_FRAME, "");
        expect_closed(fd);
}

static void truncated_frames_are_harmless(void)
{
        static const char whole[] = "\x13\0\0\0" STATUS("\x01");

        for (size_t n = 0; n < sizeof(whole) - 1; n++) {
                int fd = fixture_connect(&f);

                send_bytes(fd, whole, n);
                shutdown(fd, SHUT_WR);
                expect_closed(fd);
        }
        expect_alive();
}

static void frames_may_come_byte_by_byte(void)
{
        static const char whole[] = "\x13\0\0\0" STATUS("\x05");
        int fd = fixture_connect(&f);

        CHECK_EQ((size_t)whole[0], sizeof(whole) - 1 - 4);
        for (size_t n = 0; n < sizeof(whole) - 1; n++) {
                send_bytes(fd, whole + n, 1);
                usleep(500);
        }
        CHECK_EQ(get_reply(fd).id, 5);
        close(fd);
}

static void random_bytes_are_survived(void)
{
        uint64_t seed = 3;

        for (int i = 0; i < 300; i++) {
                int fd = fixture_connect(&f);
                uint8_t bytes[512];

                for (size_t k = 0; k < sizeof(bytes); k++)
                        bytes[k] = (uint8_t)test_random(&seed);
                /* Half of them within a frame of the right length. */
                if (i % 2)
                        memcpy(bytes, &(uint32_t){sizeof(bytes) - 4}, 4);
                send_bytes(fd, bytes, sizeof(bytes));
                shutdown(fd, SHUT_WR);
                while (!get_reply(fd).closed)
                        ;
                close(fd);
        }
        expect_alive();
}

/* ---- requests ---- */

static void bad_requests_are_named(void)
{
        int fd = fixture_connect(&f);

        SEND(fd, "\x82\xa2id\x07\xa6method\x01");
        expect_error(fd, 7, GPUOBS_ERROR_BAD_REQUEST, "method is not a text");
        SEND(fd, "\x81\xa2id\x07");
        expect_error(fd, 7, GPUOBS_ERROR_BAD_REQUEST, "method is missing");
        SEND(fd, "\x82\xa2id\x07\xa6method\xa4nope");
        expect_error(fd, 7, GPUOBS_ERROR_UNKNOWN_METHOD, "nope");
        SEND(fd, "\x83\xa2id\x07\xa6method\xa6status\xa6params\x01");
        expect_error(fd, 7, GPUOBS_ERROR_BAD_PARAMS, "not a map");
        SEND(fd, "\x83\xa2id\x07\xa6method\xaelaunches.query\xa6params\x81\xa5limit\xa1x");
        expect_error(fd, 7, GPUOBS_ERROR_BAD_PARAMS, "limit is not an integer");
        SEND(fd, "\x82\xa2id\x07\xa6method\xadstream.cancel");
        expect_error(fd, 7, GPUOBS_ERROR_BAD_PARAMS, "stream is missing");
        SEND(fd, STATUS("\x08")); /* none of it closed the connection */
        CHECK_EQ(get_reply(fd).id, 8);
        SEND(fd, "\x81\xa6method\xa6status");
        expect_error(fd, 0, GPUOBS_ERROR_BAD_REQUEST, "id is missing");
        expect_closed(fd);
        fd = fixture_connect(&f);
        SEND(fd, STATUS("\x00"));
        expect_error(fd, 0, GPUOBS_ERROR_BAD_REQUEST, "id is 0");
        expect_closed(fd);
}

static void ids_are_used_once_at_a_time(void)
{
        int fd = fixture_connect(&f);

        SEND(fd, "\x82\xa2id\x07\xa6method\xb2launches.subscribe");
        CHECK(get_reply(fd).more);
        SEND(fd, STATUS("\x07"));
        expect_error(fd, 0, GPUOBS_ERROR_BAD_REQUEST, "id is in use");
        expect_closed(fd);
}

/* ---- many ---- */

static void raise_file_limit(void)
{
        struct rlimit limit;

        CHECK_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
        limit.rlim_cur = limit.rlim_max < 8192 ? limit.rlim_max : 8192;
        CHECK_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
        if (limit.rlim_cur < 4096)
                test_skip("not enough file descriptors are allowed");
}

static void a_thousand_idle_clients_are_fine(void)
{
        struct gpuobs_status *s;
        struct gpuobs *g;
        uint64_t start, took, least = UINT64_MAX;
        int fds[1000];

        for (int i = 0; i < 1000; i++)
                fds[i] = fixture_connect(&f);
        CHECK_EQ(gpuobs_connect(f.path, 10000, &g), 0);
        for (int i = 0; i < 20; i++) {
                start = now_ns();
                CHECK_EQ(gpuobs_status(g, NULL, &s), 0);
                took = now_ns() - start;
                least = took < least ? took : least;
                CHECK_EQ(s->connections, 1001);
                gpuobs_status_free(s);
        }
        /* Whom the thousand hold up is held up each time, by the machine only now and then. */
        CHECK(least < 50 * NSEC_PER_MSEC);
        SEND(fds[999], STATUS("\x01"));
        CHECK_EQ(get_reply(fds[999]).id, 1);
        for (int i = 0; i < 1000; i++)
                close(fds[i]);
        gpuobs_free(g);
}

static void over_the_limit_of_all(void)
{
        struct fixture small = f;
        int fds[16], extra;

        fixture_init(&f);
        f.limits.connections = 16;
        fixture_start(&f);
        for (int i = 0; i < 16; i++) {
                fds[i] = fixture_connect(&f);
                SEND(fds[i], STATUS("\x01"));
                CHECK_EQ(get_reply(fds[i]).id, 1);
        }
        extra = fixture_connect(&f);
        expect_error(extra, 0, GPUOBS_ERROR_TOO_MANY_CONNECTIONS, "");
        expect_closed(extra);
        close(fds[0]);
        wait_until_served(&f);
        for (int i = 1; i < 16; i++)
                close(fds[i]);
        fixture_stop(&f);
        f = small;
}

/* ---- quotas of a user ---- */

static void connects_too_often(struct fixture *fx)
{
        int fds[5];

        for (int i = 0; i < 4; i++) {
                fds[i] = fixture_connect(fx);
                SEND(fds[i], STATUS("\x01"));
                CHECK_EQ(get_reply(fds[i]).id, 1);
        }
        fds[4] = fixture_connect(fx);
        expect_error(fds[4], 0, GPUOBS_ERROR_QUOTA_EXCEEDED, "connections");
        expect_closed(fds[4]);
        close(fds[0]);
        wait_until_served(fx);
}

#define QUERY(id)        "\x82\xa2id" id "\xa6method\xaelaunches.query"
#define FRAMED_QUERY(id) "\x1b\0\0\0" QUERY(id)

static void asks_too_much(struct fixture *fx)
{
        /* In one piece, so that all are there before the first is answered. */
        static const char five[] = FRAMED_QUERY("\x01") FRAMED_QUERY("\x02") FRAMED_QUERY("\x03")
                FRAMED_QUERY("\x04") FRAMED_QUERY("\x05");
        int fd = fixture_connect(fx);
        int refused = 0;

        CHECK_EQ((size_t)five[0], sizeof(QUERY("\x01")) - 1);
        send_bytes(fd, five, sizeof(five) - 1);
        for (int i = 0; i < 5; i++) {
                struct reply r = get_reply(fd);

                CHECK(!r.is_error || r.number == GPUOBS_ERROR_QUOTA_EXCEEDED);
                refused += r.is_error;
        }
        CHECK_EQ(refused, 2); /* three may be worked on */
}

static void streams_too_much(struct fixture *fx)
{
        int fd = fixture_connect(fx);

        SEND(fd, "\x82\xa2id\x01\xa6method\xb2launches.subscribe");
        SEND(fd, "\x82\xa2id\x02\xa6method\xb2launches.subscribe");
        SEND(fd, "\x82\xa2id\x03\xa6method\xb2launches.subscribe");
        CHECK(get_reply(fd).more);
        CHECK(get_reply(fd).more);
        expect_error(fd, 3, GPUOBS_ERROR_QUOTA_EXCEEDED, "streams");
}

/* Large frames that never become whole: the user's bytes are bounded, over all its connections. */
static void sends_half_frames(struct fixture *fx)
{
        static char half[1 << 20];
        struct pollfd p[4];
        bool refused = false;

        memcpy(half, &(uint32_t){GPUOBS_FRAME_MAX}, 4);
        for (int i = 0; i < 4 && !refused; i++) {
                p[i] = (struct pollfd){.fd = fixture_connect(fx), .events = POLLIN};
                for (size_t sent = 0; sent < sizeof(half);) {
                        ssize_t n = send(p[i].fd, half + sent, sizeof(half) - sent, MSG_NOSIGNAL);

                        if (n <= 0)
                                break;
                        sent += (size_t)n;
                }
                /* It may be told late of one of those before. */
                refused = poll(p, (nfds_t)i + 1, i == 3 ? 60000 : 200) > 0;
                for (int k = 0; k <= i; k++)
                        if (p[k].revents)
                                expect_error(p[k].fd, 0, GPUOBS_ERROR_QUOTA_EXCEEDED, "partial");
        }
        CHECK(refused);
}

static void users_have_quotas(void)
{
        struct fixture outer = f;

        fixture_init(&f);
        f.limits.connections_per_uid = 4;
        f.limits.requests_per_uid = 3;
        f.limits.streams_per_uid = 2;
        f.limits.bytes_per_uid = 3u << 20;
        fixture_start(&f);
        fixture_as(&f, FIXTURE_UID, 65534, connects_too_often);
        fake_store_delay_ms = 10; /* a second a query */
        fixture_as(&f, FIXTURE_UID, 65534, asks_too_much);
        fixture_as(&f, FIXTURE_UID, 65534, streams_too_much);
        fixture_as(&f, FIXTURE_UID, 65534, sends_half_frames);
        expect_alive();
        fixture_stop(&f);
        f = outer;
}

/* ---- clients that do not read ---- */

static uint64_t rss_bytes(void)
{
        unsigned long long pages = 0;
        FILE *file = fopen("/proc/self/statm", "re");

        CHECK(file && fscanf(file, "%*u %llu", &pages) == 1);
        fclose(file);
        return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Whoever else was connected has been disconnected. */
static void wait_until_alone(struct gpuobs *g)
{
        struct gpuobs_status *s;
        uint64_t connections, subscriptions;
        int tries = 0;

        do {
                usleep(50000);
                CHECK_EQ(gpuobs_status(g, NULL, &s), 0);
                connections = s->connections;
                subscriptions = s->subscriptions;
                gpuobs_status_free(s);
        } while (connections > 1 && ++tries < 1200);
        CHECK_EQ(connections, 1);
        CHECK_EQ(subscriptions, 0);
}

/* Asks and asks without taking an answer: it comes to a halt, then to an end. */
static void unread_answers_are_bounded(void)
{
        static const char ask[] = "\x15\0\0\0\x82\xa2id\x01\xa6method\xa8"
                                  "describe";
        struct fixture outer = f;
        struct gpuobs *g;
        uint64_t before;
        size_t sent = 0;
        int fd;

        fixture_init(&f);
        f.limits.bytes_per_connection = 256 << 10;
        f.limits.stall_timeout_ms = 1500;
        fixture_start(&f);
        fd = fixture_connect(&f);
        before = rss_bytes();
        for (bool open = true; open; sent += open) {
                struct pollfd p = {.fd = fd, .events = POLLOUT};

                open = poll(&p, 1, 1000) == 1 && !(p.revents & POLLHUP) &&
                       send(fd, ask, sizeof(ask) - 1, MSG_NOSIGNAL | MSG_DONTWAIT) ==
                               (ssize_t)sizeof(ask) - 1;
                CHECK(sent < 200000);
        }
        CHECK(sent > 10); /* each answer is some 20 KiB, the socket holds some too */
        CHECK_EQ(gpuobs_connect(f.path, 10000, &g), 0);
        wait_until_alone(g);
        if (!getenv("ASAN_OPTIONS")) /* a sanitizer's quarantine is not the server's memory */
                CHECK(rss_bytes() < before + (64u << 20));
        gpuobs_free(g);
        close(fd);
        fixture_stop(&f);
        f = outer;
}

static void dead_subscribers_are_disconnected(void)
{
        struct fixture outer = f;
        struct gpuobs_status *s;
        struct gpuobs *g;
        int fd;

        fixture_init(&f);
        f.limits.stall_timeout_ms = 5000; /* publishing takes a small part of that */
        fixture_start(&f);
        fd = fixture_connect(&f);
        SEND(fd, "\x82\xa2id\x01\xa6method\xb2launches.subscribe");
        CHECK(get_reply(fd).more);
        fixture_publish(&f, 50000, 1000);
        CHECK(f.slow > 10000);
        CHECK(f.slow < 50000);
        CHECK_EQ(gpuobs_connect(f.path, 10000, &g), 0);
        CHECK_EQ(gpuobs_status(g, NULL, &s), 0);
        CHECK_EQ(s->subscriptions, 1);
        gpuobs_status_free(s);
        wait_until_alone(g);
        fixture_publish(&f, 1000, 100);
        gpuobs_free(g);
        close(fd);
        fixture_stop(&f);
        f = outer;
}

/* Closing with queries under way, streams open, output unwritten. */
static void the_server_closes_in_the_middle(void)
{
        struct fixture outer = f;
        int fds[6];

        fixture_init(&f);
        fake_store_delay_ms = 5;
        fixture_start(&f);
        for (int i = 0; i < 6; i++) {
                fds[i] = fixture_connect(&f);
                SEND(fds[i], QUERY("\x01"));
                SEND(fds[i], QUERY("\x02"));
                SEND(fds[i], "\x82\xa2id\x03\xa6method\xb2launches.subscribe");
                CHECK(get_reply(fds[i]).more);
        }
        fixture_publish(&f, 50000, 1000);
        fixture_stop(&f);
        for (int i = 0; i < 6; i++)
                close(fds[i]);
        f = outer;
}

/* ---- sockets ---- */

static void sockets_are_not_stolen(void)
{
        struct api_server_options options = {.listen_fd = -1, .path = f.path};
        struct api_server *s;
        uv_loop_t loop;
        int fd;

        api_limits_default(&options.limits);
        CHECK_EQ(uv_loop_init(&loop), 0);
        CHECK_EQ(api_server_new(&loop, &options, NULL, NULL, &s), -EADDRINUSE);
        expect_alive();
        options.path = "/nonexistent/directory/socket";
        CHECK_EQ(api_server_new(&loop, &options, NULL, NULL, &s), -ENOENT);
        fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
        options.listen_fd = fd;
        CHECK_EQ(api_server_new(&loop, &options, NULL, NULL, &s), -EINVAL);
        CHECK_EQ(close(fd), -1); /* it was the server's */
        CHECK_EQ(uv_loop_close(&loop), 0);
}

int main(void)
{
        if (geteuid() != 0)
                test_skip("changing user ids needs root");
        raise_file_limit();
        fixture_init(&f);
        fixture_start(&f);
        TEST(bad_frames_close_the_connection);
        TEST(good_requests_before_a_bad_frame_are_answered);
        TEST(truncated_frames_are_harmless);
        TEST(frames_may_come_byte_by_byte);
        TEST(random_bytes_are_survived);
        TEST(bad_requests_are_named);
        TEST(ids_are_used_once_at_a_time);
        TEST(a_thousand_idle_clients_are_fine);
        TEST(sockets_are_not_stolen);
        fixture_stop(&f);
        TEST(over_the_limit_of_all);
        TEST(users_have_quotas);
        TEST(unread_answers_are_bounded);
        TEST(dead_subscribers_are_disconnected);
        TEST(the_server_closes_in_the_middle);
        return 0;
}
