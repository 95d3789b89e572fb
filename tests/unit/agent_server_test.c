/* SPDX-License-Identifier: Apache-2.0 */

/* The agent socket: handshake with descriptors, checked messages, nonsense cut off. */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <uv.h>

#include "api/agent_server.h"
#include "device/device_abi.h"
#include "unit/test.h"

#define AGENTS_PER_USER 20

static struct {
        int hellos, images, kernels, clocks, handles, functions, byes, notes, wakes, refusals,
                errors, gone;
        bool refuse;
        char name[64], reason[64], error[128];
        uint32_t image_id;
        int map_fd, blob_fd, launch_fd;
        int welcomes, answers;
} seen;

static int on_hello(void *data, struct agent *a, pid_t pid, uid_t uid, const struct agent_hello *h,
                    struct agent_offer *ret_offer, char *reason, size_t reason_size)
{
        seen.hellos++;
        CHECK_EQ(pid, getpid());
        CHECK_EQ(uid, getuid());
        if (seen.refuse) {
                snprintf(reason, reason_size, "not today");
                return -EBUSY;
        }
        *ret_offer = (struct agent_offer){.map_fd = seen.map_fd,
                                          .blob_fd = seen.blob_fd,
                                          .launch_fd = seen.launch_fd,
                                          .blob_bytes = 77,
                                          .clock_devices = 5};
        return 0;
}

static void on_image(void *data, struct agent *a, const struct agent_image *image)
{
        seen.images++;
        seen.image_id = image->image_id;
}

static void on_kernel(void *data, struct agent *a, uint32_t image_id, const struct agent_kernel *k,
                      const char *name, const char *reason)
{
        seen.kernels++;
        seen.image_id = image_id;
        snprintf(seen.name, sizeof(seen.name), "%.*s", k->name_bytes, name);
        snprintf(seen.reason, sizeof(seen.reason), "%.*s", k->reason_bytes, reason);
}

static void on_clock(void *data, struct agent *a, const struct agent_clock *c)
{
        seen.clocks++;
}

static void on_handle(void *data, struct agent *a, uint64_t func)
{
        seen.handles++;
}

static void on_note(void *data, struct agent *a, uint32_t kind, const char *text)
{
        seen.notes++;
}

static void on_refused(void *data, struct agent *a, const char *reason)
{
        CHECK_EQ(agent_pid(a), getpid());
        seen.refusals++;
        snprintf(seen.error, sizeof(seen.error), "%s", reason);
}

static void on_error(void *data, struct agent *a, const char *what)
{
        seen.errors++;
        snprintf(seen.error, sizeof(seen.error), "%s", what);
}

static void on_gone(void *data, struct agent *a)
{
        seen.gone++;
}

static void on_wake(void *data, struct agent *a)
{
        seen.wakes++;
}

static void on_welcomed(void *data, struct agent *a)
{
        seen.welcomes++;
}

static void on_attached(void *data, struct agent *a, const struct agent_attached *m)
{
        seen.answers++;
        snprintf(seen.reason, sizeof(seen.reason), "%.63s", m->reason);
}

static void on_detached(void *data, struct agent *a, const struct agent_detached *m)
{
        seen.answers++;
}

static void on_map_done(void *data, struct agent *a, const struct agent_map_done *m)
{
        seen.answers++;
}

static void on_function(void *data, struct agent *a, uint64_t func, uint64_t image,
                        const char *name, size_t name_length)
{
        seen.functions += func == 7 && image == 8 && name_length == 4 && !memcmp(name, "vadd", 4);
}

static void on_bye(void *data, struct agent *a)
{
        seen.byes++;
}

static const struct agent_server_ops ops = {.hello = on_hello,
                                            .image = on_image,
                                            .kernel = on_kernel,
                                            .clock = on_clock,
                                            .handle = on_handle,
                                            .function = on_function,
                                            .bye = on_bye,
                                            .note = on_note,
                                            .welcomed = on_welcomed,
                                            .attached = on_attached,
                                            .detached = on_detached,
                                            .map_done = on_map_done,
                                            .refused = on_refused,
                                            .protocol_error = on_error,
                                            .gone = on_gone,
                                            .wake = on_wake};

static uv_loop_t loop;
static struct agent_server *server;
static char path[108];

static void serve(void)
{
        struct sockaddr_un a = {.sun_family = AF_UNIX};
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

        memset(&seen, 0, sizeof(seen));
        seen.launch_fd = -1;
        seen.map_fd = memfd_create("map", MFD_CLOEXEC);
        seen.blob_fd = memfd_create("blob", MFD_CLOEXEC);
        snprintf(path, sizeof(path), "/tmp/gpuobs-agent-test.%d", getpid());
        strcpy(a.sun_path, path);
        unlink(path);
        CHECK_EQ(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
        CHECK_EQ(listen(fd, 16), 0);
        CHECK_EQ(uv_loop_init(&loop), 0);
        CHECK_EQ(agent_server_new(&loop, fd, &ops, NULL, &server), 0);
}

static void turn(void)
{
        for (int i = 0; i < 20; i++)
                uv_run(&loop, UV_RUN_NOWAIT);
}

static void stop(void)
{
        agent_server_close(server);
        CHECK_EQ(uv_run(&loop, UV_RUN_DEFAULT), 0);
        CHECK_EQ(uv_loop_close(&loop), 0);
        unlink(path);
        close(seen.map_fd);
        close(seen.blob_fd);
}

static void connect_on(int fd)
{
        struct sockaddr_un a = {.sun_family = AF_UNIX};

        strcpy(a.sun_path, path);
        CHECK_EQ(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
        turn();
}

static int connect_agent(void)
{
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

        connect_on(fd);
        return fd;
}

static void say(int fd, uint16_t type, void *message, size_t size)
{
        struct agent_header h = {type, AGENT_ABI_VERSION, (uint32_t)size};

        memcpy(message, &h, sizeof(h));
        CHECK_EQ(send(fd, message, size, MSG_NOSIGNAL), (ssize_t)size);
        turn();
}

static void greet(int fd)
{
        struct agent_hello hello = {.driver_version = 13000, .device_count = 1, .sm = 90};

        say(fd, AGENT_HELLO, &hello, sizeof(hello));
}

/* The reply with its descriptors; returns how many came. */
static int reply(int fd, void *packet, size_t size, int fds[3])
{
        char control[CMSG_SPACE(3 * sizeof(int))] __attribute__((aligned(8)));
        struct iovec iov = {packet, size};
        struct msghdr m = {.msg_iov = &iov,
                           .msg_iovlen = 1,
                           .msg_control = control,
                           .msg_controllen = sizeof(control)};
        struct cmsghdr *c;

        CHECK(recvmsg(fd, &m, MSG_DONTWAIT) > 0);
        c = CMSG_FIRSTHDR(&m);
        if (!c)
                return 0;
        memcpy(fds, CMSG_DATA(c), c->cmsg_len - CMSG_LEN(0));
        return (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
}

static void agent_is_welcomed_with_descriptors(void)
{
        struct agent_welcome w;
        int fds[3] = {-1, -1, -1}, fd;

        serve();
        fd = connect_agent();
        greet(fd);
        CHECK_EQ(reply(fd, &w, sizeof(w), fds), 2);
        CHECK_EQ(w.header.type, AGENT_WELCOME);
        CHECK_EQ(w.flags, 0);
        CHECK_EQ(w.clock_devices, 5);
        CHECK_EQ(w.ring_address, DEVICE_RING_ADDRESS);
        CHECK_EQ(w.blob_bytes, 77);
        CHECK(fcntl(fds[0], F_GETFD) >= 0 && fcntl(fds[1], F_GETFD) >= 0);
        close(fds[0]);
        close(fds[1]);
        close(fd);
        turn();
        CHECK_EQ(seen.gone, 1);
        stop();
}

static void agent_that_is_to_record_gets_a_map(void)
{
        struct agent_welcome w;
        int fds[3] = {-1, -1, -1}, fd;

        serve();
        seen.launch_fd = dup(seen.map_fd);
        fd = connect_agent();
        greet(fd);
        CHECK_EQ(reply(fd, &w, sizeof(w), fds), 3);
        CHECK_EQ(w.flags, AGENT_WELCOME_RECORD_LAUNCHES);
        for (int i = 0; i < 3; i++) {
                CHECK(fcntl(fds[i], F_GETFD) >= 0);
                close(fds[i]);
        }
        close(seen.launch_fd);
        close(fd);
        turn();
        stop();
}

static void refusal_carries_the_reason(void)
{
        struct agent_refused r;
        int fds[3], fd;

        serve();
        seen.refuse = true;
        fd = connect_agent();
        greet(fd);
        CHECK_EQ(reply(fd, &r, sizeof(r), fds), 0);
        CHECK_EQ(r.header.type, AGENT_REFUSED);
        CHECK_STR(r.reason, "not today");
        CHECK_EQ(seen.refusals, 1);
        CHECK_STR(seen.error, "not today");
        CHECK_EQ(seen.gone, 0);
        close(fd);
        stop();
}

/* One KERNELS packet with one kernel; sizes may be falsified. */
static size_t kernels_packet(uint8_t *out, const char *name, const char *reason)
{
        struct agent_kernels head = {.image_id = 3, .count = 1};
        struct agent_kernel k = {.kernel_id = 9,
                                 .entry = AGENT_PROBE_SASS,
                                 .exit = AGENT_PROBE_NONE,
                                 .accesses_probed = 3,
                                 .accesses = 5,
                                 .name_bytes = (uint16_t)strlen(name),
                                 .reason_bytes = (uint16_t)strlen(reason)};
        size_t size = sizeof(k) + strlen(name) + strlen(reason);

        k.size = (uint32_t)((size + 7) & ~7UL);
        memcpy(out, &head, sizeof(head));
        memcpy(out + sizeof(head), &k, sizeof(k));
        memcpy(out + sizeof(head) + sizeof(k), name, strlen(name));
        memcpy(out + sizeof(head) + sizeof(k) + strlen(name), reason, strlen(reason));
        return sizeof(head) + k.size;
}

static void sound_messages_reach_their_owner(void)
{
        struct agent_image image = {.image_id = 3, .status = AGENT_IMAGE_REWRITTEN};
        struct agent_clock clock = {.gpu_ns = 1};
        struct agent_handle handle = {.func = 5};
        struct agent_note note = {.text = "hello"};
        struct agent_wake wake;
        struct {
                struct agent_function head;
                char name[8];
        } function = {.head = {.func = 7, .image = 8, .name_bytes = 4}, .name = "vadd"};
        struct agent_bye bye = {0};
        uint8_t packet[256] = {0};
        size_t size;
        int fd;

        serve();
        fd = connect_agent();
        greet(fd);
        say(fd, AGENT_IMAGE, &image, sizeof(image));
        size = kernels_packet(packet, "vadd", "no free register");
        say(fd, AGENT_KERNELS, packet, size);
        say(fd, AGENT_CLOCK, &clock, sizeof(clock));
        say(fd, AGENT_HANDLE, &handle, sizeof(handle));
        say(fd, AGENT_NOTE, &note, sizeof(note));
        say(fd, AGENT_WAKE, &wake, sizeof(wake));
        say(fd, AGENT_FUNCTION, &function, sizeof(function.head) + 4);
        say(fd, AGENT_BYE, &bye, sizeof(bye));
        CHECK_EQ(seen.functions, 1);
        CHECK_EQ(seen.byes, 1);
        CHECK_EQ(seen.images + seen.kernels + seen.clocks + seen.handles + seen.notes + seen.wakes,
                 6);
        CHECK_STR(seen.name, "vadd");
        CHECK_STR(seen.reason, "no free register");
        CHECK_EQ(seen.image_id, 3);
        CHECK_EQ(seen.errors, 0);
        close(fd);
        turn();
        stop();
}

static void expect_cut_off(void *message, size_t size, const char *why)
{
        int fd;

        serve();
        fd = connect_agent();
        greet(fd);
        CHECK_EQ(seen.hellos, 1);
        CHECK_EQ(send(fd, message, size, MSG_NOSIGNAL), (ssize_t)size);
        turn();
        CHECK_EQ(seen.errors, 1);
        CHECK(strstr(seen.error, why));
        CHECK_EQ(seen.gone, 1);
        close(fd);
        stop();
}

static void nonsense_is_cut_off(void)
{
        static uint8_t large[AGENT_PACKET_MAX + 8];
        struct agent_header h = {AGENT_IMAGE, AGENT_ABI_VERSION, sizeof(h)};
        struct agent_image image = {.header = {AGENT_IMAGE, AGENT_ABI_VERSION, sizeof(image)},
                                    .status = 77};
        struct agent_note note = {.header = {AGENT_NOTE, AGENT_ABI_VERSION, sizeof(note)}};
        struct agent_header welcome = {AGENT_WELCOME, AGENT_ABI_VERSION, sizeof(welcome)};
        struct agent_header kernels_head = {AGENT_KERNELS, AGENT_ABI_VERSION, 0};
        uint8_t packet[256] = {0};
        uint32_t count = 2;
        size_t size;

        expect_cut_off((uint8_t[]){1}, 1, "shorter");
        expect_cut_off(&h, sizeof(h), "wrong size");
        expect_cut_off(&welcome, sizeof(welcome), "does not send");
        expect_cut_off(&image, sizeof(image), "out of range");
        memset(note.text, 'x', sizeof(note.text));
        expect_cut_off(&note, sizeof(note), "without an end");
        h.length = 99;
        expect_cut_off(&h, sizeof(h), "wrong version or length");
        expect_cut_off(large, sizeof(large), "longer than allowed");

        size = kernels_packet(packet, "vadd", "");
        kernels_head.length = (uint32_t)size;
        memcpy(packet, &kernels_head, sizeof(kernels_head));
        memcpy(packet + offsetof(struct agent_kernels, count), &count, sizeof(count));
        expect_cut_off(packet, size, "ends early");
        packet[sizeof(struct agent_kernels) + offsetof(struct agent_kernel, name_bytes)] = 200;
        expect_cut_off(packet, size, "impossible");
        size = kernels_packet(packet, "vadd", "");
        memcpy(packet, &kernels_head, sizeof(kernels_head));
        packet[sizeof(struct agent_kernels) + offsetof(struct agent_kernel, accesses_probed)] = 6;
        expect_cut_off(packet, size, "more accesses");
        memset(packet + sizeof(struct agent_kernels) + offsetof(struct agent_kernel, accesses),
               0xff, 4); /* not known, and six of them probed */
        expect_cut_off(packet, size, "more accesses");
}

static void hello_must_come_first(void)
{
        struct agent_clock clock = {.header = {AGENT_CLOCK, AGENT_ABI_VERSION, sizeof(clock)}};
        char byte;
        int fd;

        serve();
        fd = connect_agent();
        CHECK(send(fd, &clock, sizeof(clock), MSG_NOSIGNAL) > 0);
        turn();
        CHECK_EQ(recv(fd, &byte, 1, MSG_DONTWAIT), 0); /* closed */
        CHECK_EQ(seen.clocks + seen.hellos + seen.gone, 0);
        CHECK_EQ(seen.errors, 1); /* counted, though it is nobody's yet */
        close(fd);
        stop();
}

/* A first message that makes no sense: nobody is greeted, and it is counted. */
static void expect_turned_away(struct agent_hello *hello, size_t size)
{
        char byte;
        int fd;

        serve();
        fd = connect_agent();
        say(fd, AGENT_HELLO, hello, size);
        CHECK_EQ(recv(fd, &byte, 1, MSG_DONTWAIT), 0); /* closed */
        CHECK_EQ(seen.hellos, 0);
        CHECK_EQ(seen.errors, 1);
        close(fd);
        stop();
}

static void impossible_devices_are_turned_away(void)
{
        struct agent_hello hello = {.device_count = AGENT_DEVICES_MAX + 1};

        expect_turned_away(&hello, sizeof(hello));
        hello = (struct agent_hello){.device_count = ~0u, .device = ~0u};
        expect_turned_away(&hello, sizeof(hello));
        hello = (struct agent_hello){.device_count = 2, .device = 2};
        expect_turned_away(&hello, sizeof(hello));
        hello = (struct agent_hello){.device = 1};
        expect_turned_away(&hello, sizeof(hello));
        hello = (struct agent_hello){.device_count = 1};
        expect_turned_away(&hello, sizeof(hello) - 16);
}

/* An agent of another version is told so, whatever its HELLO is like. */
static void other_versions_are_told(void)
{
        struct {
                struct agent_header header;
                char rest[32];
        } hello = {.header = {AGENT_HELLO, AGENT_ABI_VERSION - 1, sizeof(hello)}};
        struct agent_refused refused;
        int fd;

        serve();
        fd = connect_agent();
        CHECK(send(fd, &hello, sizeof(hello), MSG_NOSIGNAL) > 0);
        turn();
        CHECK_EQ(recv(fd, &refused, sizeof(refused), MSG_DONTWAIT), (ssize_t)sizeof(refused));
        CHECK(strstr(refused.reason, "different versions"));
        CHECK_EQ(seen.refusals, 1);
        close(fd);
        stop();
}

/* One more than a user may have: told why, and counted. */
static void too_many_are_turned_away(void)
{
        struct agent_limits limits = AGENT_LIMITS_DEFAULT;
        struct agent_refused refused;
        int fds[AGENTS_PER_USER + 1];

        serve();
        limits.per_user = AGENTS_PER_USER;
        agent_server_set_limits(server, &limits);
        for (int i = 0; i <= AGENTS_PER_USER; i++) {
                CHECK_EQ(seen.refusals, 0);
                fds[i] = connect_agent();
        }
        CHECK_EQ(seen.refusals, 1);
        CHECK_EQ(recv(fds[AGENTS_PER_USER], &refused, sizeof(refused), MSG_DONTWAIT),
                 (ssize_t)sizeof(refused));
        CHECK_EQ(refused.header.type, AGENT_REFUSED);
        CHECK(strstr(refused.reason, "of one user 20 (agents_per_user)"));
        close(fds[0]);
        turn();
        close(fds[AGENTS_PER_USER]);
        fds[AGENTS_PER_USER] = connect_agent();
        greet(fds[AGENTS_PER_USER]);
        CHECK_EQ(seen.hellos, 1);
        CHECK_EQ(seen.refusals, 1);
        for (int i = 1; i <= AGENTS_PER_USER; i++)
                close(fds[i]);
        turn();
        stop();
}

/* Whoever connects and says nothing takes no place for ever; one that was welcomed keeps its. */
static void silent_one_is_turned_away(void)
{
        struct agent_limits limits = AGENT_LIMITS_DEFAULT;
        struct agent_refused refused;
        int silent, welcomed;

        serve();
        welcomed = connect_agent();
        greet(welcomed);
        limits.hello_ms = 1;
        agent_server_set_limits(server, &limits);
        silent = connect_agent();
        while (seen.refusals == 0)
                uv_run(&loop, UV_RUN_ONCE);
        CHECK_EQ(recv(silent, &refused, sizeof(refused), MSG_DONTWAIT), (ssize_t)sizeof(refused));
        CHECK_EQ(refused.header.type, AGENT_REFUSED);
        CHECK(strstr(refused.reason, "did not say who it is"));
        turn();
        CHECK_EQ(recv(silent, &refused, sizeof(refused), MSG_DONTWAIT), 0);
        CHECK_EQ(seen.refusals, 1);
        CHECK_EQ(seen.gone, 0);
        close(silent);
        close(welcomed);
        turn();
        CHECK_EQ(seen.gone, 1);
        stop();
}

/* Connections wait without the loop going round and round, and are taken when there are files. */
static void no_more_files_is_waited_for(void)
{
        struct rlimit limit, none;
        unsigned rounds = 0;
        uint64_t begun_ns;
        int fd;

        serve();
        CHECK_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
        none = limit;
        none.rlim_cur = 0;
        fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        CHECK_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
        connect_on(fd);
        /* A few rounds, for the timer; it would be tens of thousands. */
        begun_ns = uv_hrtime();
        for (; uv_hrtime() - begun_ns < 500000000; rounds++)
                uv_run(&loop, UV_RUN_ONCE);
        CHECK(rounds <= 4);
        CHECK_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
        uv_run(&loop, UV_RUN_ONCE);
        greet(fd);
        while (seen.hellos == 0)
                uv_run(&loop, UV_RUN_ONCE);
        CHECK_EQ(seen.refusals, 0);
        close(fd);
        turn();
        stop();
}

int main(void)
{
        TEST(agent_is_welcomed_with_descriptors);
        TEST(agent_that_is_to_record_gets_a_map);
        TEST(refusal_carries_the_reason);
        TEST(sound_messages_reach_their_owner);
        TEST(nonsense_is_cut_off);
        TEST(impossible_devices_are_turned_away);
        TEST(other_versions_are_told);
        TEST(hello_must_come_first);
        TEST(too_many_are_turned_away);
        TEST(silent_one_is_turned_away);
        TEST(no_more_files_is_waited_for);
        return 0;
}
