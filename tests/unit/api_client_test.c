/* SPDX-License-Identifier: Apache-2.0 */

/* libgpuobs against daemons that are absent, silent, confused or hostile. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "libclient/codec.h"
#include "libclient/gpuobs.h"
#include "unit/test.h"

#define NSEC_PER_MSEC 1000000ULL

static uint64_t now_ns(void)
{
        struct timespec t;

        clock_gettime(CLOCK_MONOTONIC, &t);
        return (uint64_t)t.tv_sec * 1000000000ULL + (uint64_t)t.tv_nsec;
}

/* ---- a daemon that says what it is told, whatever it is asked ---- */

static char path[64];
static int listener;
static const char *script; /* sent for the first request, then again for each further one */
static size_t script_size;
static bool script_close;
static pthread_t daemon_thread;

static void *scripted_daemon(void *unused)
{
        char request[4096];
        int fd = accept(listener, NULL, NULL);

        CHECK(fd >= 0);
        while (recv(fd, request, sizeof(request), 0) > 0) {
                if (script_size)
                        send(fd, script, script_size, MSG_NOSIGNAL);
                if (script_close)
                        break;
        }
        close(fd);
        return NULL;
}

static struct gpuobs *connected_to(const void *bytes, size_t size, bool then_close, int timeout_ms)
{
        struct gpuobs *g = NULL;

        script = bytes;
        script_size = size;
        script_close = then_close;
        CHECK_EQ(pthread_create(&daemon_thread, NULL, scripted_daemon, NULL), 0);
        CHECK_EQ(gpuobs_connect(path, timeout_ms, &g), 0);
        return g;
}

static void disconnect(struct gpuobs *g)
{
        gpuobs_free(g);
        pthread_join(daemon_thread, NULL);
}

static void listen_at_path(void)
{
        struct sockaddr_un address = {.sun_family = AF_UNIX};

        snprintf(path, sizeof(path), "/tmp/gpuobs-client-test-%d.sock", getpid());
        strcpy(address.sun_path, path);
        listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        CHECK(listener >= 0);
        unlink(path);
        CHECK_EQ(bind(listener, (struct sockaddr *)&address, sizeof(address)), 0);
        CHECK_EQ(listen(listener, 8), 0);
}

/* ---- connecting ---- */

static void absent_daemons_are_told_apart(void)
{
        struct gpuobs *g = (struct gpuobs *)&g;
        char long_path[200];

        CHECK_EQ(gpuobs_connect("/nonexistent/gpuobsd.sock", 0, &g), -ENOENT);
        memset(long_path, 'x', sizeof(long_path));
        long_path[199] = '\0';
        CHECK_EQ(gpuobs_connect(long_path, 0, &g), -ENAMETOOLONG);
        close(listener); /* the file stays: nobody listens */
        CHECK_EQ(gpuobs_connect(path, 0, &g), -ECONNREFUSED);
        CHECK(g == (struct gpuobs *)&g); /* not clobbered */
        listen_at_path();
        setenv("GPUOBS_SOCKET", "/nonexistent/other.sock", 1);
        CHECK_EQ(gpuobs_connect(NULL, 0, &g), -ENOENT);
        setenv("GPUOBS_SOCKET", path, 1);
        CHECK_EQ(gpuobs_connect(NULL, 0, &g), 0);
        gpuobs_free(g);
        close(accept(listener, NULL, NULL));
        unsetenv("GPUOBS_SOCKET");
        CHECK(!gpuobs_free(NULL));
        CHECK_STR(gpuobs_version(), "0.1.0");
}

/* ---- answers ---- */

static void silence_ends_in_time(void)
{
        struct gpuobs *g = connected_to(NULL, 0, false, 300);
        struct gpuobs_status *s = NULL;
        uint64_t start = now_ns();

        CHECK_EQ(gpuobs_status(g, NULL, &s), -ETIMEDOUT);
        CHECK(now_ns() - start >= 290 * NSEC_PER_MSEC);
        CHECK(now_ns() - start <
              4500 * NSEC_PER_MSEC); /* nor only in the time there is by default */
        CHECK(!s);
        CHECK_EQ(gpuobs_error(g)->number, GPUOBS_ERROR_NONE);
        CHECK(strstr(gpuobs_error(g)->message, "in time"));
        disconnect(g);
}

static void closing_is_told(void)
{
        struct gpuobs *g = connected_to(NULL, 0, true, 0);
        struct gpuobs_status *s;

        CHECK_EQ(gpuobs_status(g, NULL, &s), -ECONNRESET);
        CHECK_EQ(gpuobs_status(g, NULL, &s), -ECONNRESET); /* broken stays broken */
        CHECK_EQ(gpuobs_dispatch(g), -ECONNRESET);
        disconnect(g);
}

static void nonsense(const void *bytes, size_t size)
{
        struct gpuobs *g = connected_to(bytes, size, false, 0);
        struct gpuobs_status *s = NULL;

        CHECK_EQ(gpuobs_status(g, NULL, &s), -EBADMSG);
        CHECK(!s);
        disconnect(g);
}
#define NONSENSE(bytes) nonsense(bytes, sizeof(bytes) - 1)

static void nonsense_is_refused(void)
{
        NONSENSE("\xff\xff\xff\xff");
        NONSENSE("\x00\x00\x00\x00");
        NONSENSE("\x01\x00\x00\x00\xc1");
        NONSENSE("\x01\x00\x00\x00\x80");
        NONSENSE("\x05\x00\x00\x00\x81\xa2id\x01");
        /* a result without its mandatory members */
        NONSENSE("\x0d\x00\x00\x00\x82\xa2id\x01\xa6result\x80");
        /* ten million claimed elements */
        NONSENSE("\x17\x00\x00\x00\x82\xa2id\x01\xa6result\x81\xa4gpus\xdd\x00\x98\x96\x80");
}

static void errors_are_translated(void)
{
        struct wire_buffer b = {0};
        struct gpuobs_status *s;
        struct gpuobs *g;

        CHECK_EQ(codec_error_encode(&b, 1, GPUOBS_ERROR_PERMISSION_DENIED, "No.", "why"), 0);
        g = connected_to(b.data, b.size, false, 0);
        CHECK_EQ(gpuobs_status(g, NULL, &s), -EPERM);
        CHECK_EQ(gpuobs_error(g)->number, GPUOBS_ERROR_PERMISSION_DENIED);
        CHECK_STR(gpuobs_error(g)->code, "permission_denied");
        CHECK_STR(gpuobs_error(g)->message, "No.");
        CHECK_STR(gpuobs_error(g)->detail, "why");
        disconnect(g);
        wire_buffer_done(&b);
}

static void refused_connections_say_why(void)
{
        struct wire_buffer b = {0};
        struct gpuobs_status *s;
        struct gpuobs *g;

        CHECK_EQ(codec_error_encode(&b, 0, GPUOBS_ERROR_TOO_MANY_CONNECTIONS, NULL, NULL), 0);
        g = connected_to(b.data, b.size, true, 0);
        CHECK_EQ(gpuobs_status(g, NULL, &s), -EUSERS);
        CHECK_STR(gpuobs_error(g)->code, "too_many_connections");
        CHECK_EQ(gpuobs_status(g, NULL, &s), -EUSERS);
        CHECK_STR(gpuobs_error(g)->code, "too_many_connections"); /* the reason stays */
        disconnect(g);
        wire_buffer_done(&b);
}

/* ---- asynchronous calls ---- */

struct outcome {
        int calls;
        int error;
        int inside; /* what a call from within the callback returned */
        struct gpuobs *g;
        struct gpuobs_call *other;
        bool free_it;
};

static void on_cancelled(void *data, int error, const struct gpuobs_cancelled *c)
{
        struct outcome *o = data;
        struct gpuobs_status *s;

        o->calls++;
        o->error = error;
        CHECK(!error == !!c);
        if (!o->g)
                return;
        o->inside = gpuobs_status(o->g, NULL, &s);
        CHECK_EQ(gpuobs_dispatch(o->g), -EBUSY);
        gpuobs_cancel(o->other);
        if (o->free_it)
                gpuobs_free(o->g);
}

/* {id: 1, result: {cancelled: true}} */
#define CANCELLED_ANSWER                                                                           \
        "\x18\x00\x00\x00\x82\xa2id\x01\xa6result\x81\xa9"                                         \
        "cancelled\xc3"

static int dispatch_once(struct gpuobs *g)
{
        struct pollfd p = {.fd = gpuobs_fd(g), .events = gpuobs_events(g)};

        CHECK(poll(&p, 1, 60000) > 0);
        return gpuobs_dispatch(g);
}

static void callbacks_may_not_wait(void)
{
        struct gpuobs *g = connected_to(CANCELLED_ANSWER, sizeof(CANCELLED_ANSWER) - 1, false, 0);
        struct gpuobs_cancel_params p = {.stream = 5};
        struct outcome o = {.g = g}, other = {0};

        CHECK_EQ(gpuobs_stream_cancel_async(g, &p, on_cancelled, &o, NULL), 0);
        CHECK_EQ(gpuobs_stream_cancel_async(g, &p, on_cancelled, &other, &o.other), 0);
        CHECK_EQ(dispatch_once(g), 1);
        CHECK_EQ(o.calls, 1);
        CHECK_EQ(o.error, 0);
        CHECK_EQ(o.inside, -EBUSY);
        disconnect(g);
        CHECK_EQ(other.calls, 0); /* cancelled, and freed without a callback */
}

static void handles_may_be_freed_in_callbacks(void)
{
        struct gpuobs *g = connected_to(CANCELLED_ANSWER, sizeof(CANCELLED_ANSWER) - 1, false, 0);
        struct gpuobs_cancel_params p = {.stream = 5};
        struct outcome o = {.g = g, .free_it = true};

        CHECK_EQ(gpuobs_stream_cancel_async(g, &p, on_cancelled, &o, NULL), 0);
        CHECK_EQ(dispatch_once(g), -ECANCELED);
        pthread_join(daemon_thread, NULL);
        CHECK_EQ(o.calls, 1);
}

static void async_calls_time_out(void)
{
        struct gpuobs *g = connected_to(NULL, 0, false, 3000);
        struct gpuobs_cancel_params p = {.stream = 5};
        struct outcome first = {0}, second = {0};

        CHECK_EQ(gpuobs_stream_cancel_async(g, &p, on_cancelled, &first, NULL), 0);
        gpuobs_set_timeout(g, -1);
        CHECK_EQ(gpuobs_stream_cancel_async(g, &p, on_cancelled, &second, NULL), 0);
        CHECK(gpuobs_timeout_ms(g) > 0 && gpuobs_timeout_ms(g) <= 3000);
        usleep(3010000);
        CHECK_EQ(gpuobs_timeout_ms(g), 0);
        CHECK_EQ(gpuobs_dispatch(g), 1);
        CHECK_EQ(first.error, -ETIMEDOUT);
        CHECK_EQ(second.calls, 0);
        CHECK_EQ(gpuobs_timeout_ms(g), -1);
        disconnect(g);
}

static void broken_connections_end_all_calls(void)
{
        struct gpuobs *g = connected_to(NULL, 0, true, 0);
        struct gpuobs_cancel_params p = {.stream = 5};
        struct outcome first = {0}, second = {0};

        CHECK_EQ(gpuobs_stream_cancel_async(g, &p, on_cancelled, &first, NULL), 0);
        CHECK_EQ(gpuobs_stream_cancel_async(g, &p, on_cancelled, &second, NULL), 0);
        CHECK_EQ(dispatch_once(g), -ECONNRESET);
        CHECK_EQ(first.error, -ECONNRESET);
        CHECK_EQ(second.error, -ECONNRESET);
        CHECK_EQ(gpuobs_stream_cancel_async(g, &p, on_cancelled, &first, NULL), -ECONNRESET);
        disconnect(g);
}

int main(void)
{
        listen_at_path();
        TEST(absent_daemons_are_told_apart);
        TEST(silence_ends_in_time);
        TEST(closing_is_told);
        TEST(nonsense_is_refused);
        TEST(errors_are_translated);
        TEST(refused_connections_say_why);
        TEST(callbacks_may_not_wait);
        TEST(handles_may_be_freed_in_callbacks);
        TEST(async_calls_time_out);
        TEST(broken_connections_end_all_calls);
        unlink(path);
        return 0;
}
