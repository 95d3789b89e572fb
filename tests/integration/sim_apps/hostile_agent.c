/* SPDX-License-Identifier: Apache-2.0 */

/*
 * An agent that keeps to the form of messages and shared maps, and lies in all of them.
 * The daemon has to count what it refuses, and nobody else may notice.
 *
 *     hostile_agent SOCKET images|answers|rings|nonsense|twice|crowd
 *
 * Prints "ready" when its lies are told, then waits for the end of its input.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "device/device_abi.h"
#include "probes/agent/agent_abi.h"
#include "probes/agent/launch_abi.h"
#include "tests/unit/test.h"

#define MESSAGES   200000
#define NAME_BYTES 104
#define LOOPS      400
#define CROWD      3000

static uint64_t seed = 1;

static uint64_t any(void)
{
        return test_random(&seed);
}

/* Often a value at an edge. */
static uint64_t edge(void)
{
        static const uint64_t edges[] = {0,     1,          2,          63,        64,
                                         65535, UINT32_MAX, 1ull << 63, UINT64_MAX};

        return any() % 3 ? edges[any() % (sizeof(edges) / sizeof(edges[0]))] : any();
}

struct connection {
        int fd;
        int fds[3]; /* start/end map, programs, launch map; -1 */
        bool welcome;
};

static int dial(const char *path)
{
        struct sockaddr_un a = {.sun_family = AF_UNIX};
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

        CHECK(strlen(path) < sizeof(a.sun_path));
        strcpy(a.sun_path, path);
        if (fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0) {
                close(fd);
                fd = -1;
        }
        return fd;
}

static bool say(int fd, enum agent_message type, void *message, size_t size)
{
        struct agent_header h = {(uint16_t)type, AGENT_ABI_VERSION, (uint32_t)size};

        memcpy(message, &h, sizeof(h));
        return send(fd, message, size, MSG_NOSIGNAL) == (ssize_t)size;
}

static struct connection introduce(const char *path)
{
        static uint8_t packet[AGENT_PACKET_MAX];
        union {
                struct cmsghdr head;
                char room[CMSG_SPACE(sizeof(int) * 3)];
        } control;
        struct iovec v = {packet, sizeof(packet)};
        struct msghdr m = {.msg_iov = &v,
                           .msg_iovlen = 1,
                           .msg_control = &control,
                           .msg_controllen = sizeof(control)};
        struct agent_hello hello = {.driver_version = 13000, .device_count = 1, .sm = 70};
        struct connection c = {.fd = dial(path), .fds = {-1, -1, -1}};
        struct agent_header h;

        CHECK(c.fd >= 0 && say(c.fd, AGENT_HELLO, &hello, sizeof(hello)));
        CHECK(recvmsg(c.fd, &m, MSG_CMSG_CLOEXEC) >= (ssize_t)sizeof(h));
        memcpy(&h, packet, sizeof(h));
        c.welcome = h.type == AGENT_WELCOME;
        if (c.welcome && CMSG_FIRSTHDR(&m))
                memcpy(c.fds, CMSG_DATA(CMSG_FIRSTHDR(&m)),
                       CMSG_FIRSTHDR(&m)->cmsg_len - CMSG_LEN(0));
        return c;
}

/* ---- what it says ---- */

static void say_image(int fd)
{
        struct agent_image image = {.image_id = any() % 2 ? (uint32_t)edge() : any() % 70000,
                                    .status = AGENT_IMAGE_REWRITTEN,
                                    .kernel_count = UINT32_MAX,
                                    .rewrite_us = UINT32_MAX,
                                    .handle = edge(),
                                    .bytes = edge(),
                                    .is_library = any() % 2};

        image.status += any() % 2;
        snprintf(image.reason, sizeof(image.reason), "a reason, %llx", (long long)any());
        CHECK(say(fd, AGENT_IMAGE, &image, sizeof(image)));
}

/* As many kernels as a packet takes, each with a name of its own. */
static void say_kernels(int fd)
{
        static uint8_t packet[AGENT_PACKET_MAX];
        struct agent_kernels head = {.image_id = any() % 1000};
        struct agent_kernel k = {.entry = AGENT_PROBE_PTX, .exit = AGENT_PROBE_PTX};
        size_t at = sizeof(head);

        k.name_bytes = 200;
        k.size = sizeof(k) + 200;
        for (; at + k.size <= sizeof(packet); at += k.size, head.count++) {
                k.kernel_id = (uint32_t)edge();
                memcpy(packet + at, &k, sizeof(k));
                memset(packet + at + sizeof(k), 'k', 200);
                snprintf((char *)packet + at + sizeof(k), 32, "%llx", (long long)any());
        }
        memcpy(packet, &head, sizeof(head));
        CHECK(say(fd, AGENT_KERNELS, packet, at));
}

static void tell_images(struct connection *c)
{
        for (unsigned i = 0; i < MESSAGES / 10; i++) {
                say_image(c->fd);
                if (i % 20 == 0)
                        say_kernels(c->fd);
        }
}

static void answer(int fd)
{
        struct agent_function head = {.func = any(), .image = edge(), .name_bytes = NAME_BYTES};
        uint8_t function[sizeof(head) + NAME_BYTES];
        struct agent_map_done done = {.request = edge(), .settled = 1, .after_ns = edge()};
        struct agent_clock clock = {.raw_before_ns = edge(),
                                    .gpu_ns = edge(),
                                    .raw_after_ns = edge(),
                                    .device = (uint32_t)edge()};
        struct agent_attached attached = {.id = edge(), .code = 1, .gpu_bytes = edge()};
        struct agent_detached detached = {.id = edge(), .kept_bytes = edge()};
        struct agent_handle handle = {.func = any()};
        struct agent_wake wake;

        memcpy(function, &head, sizeof(head));
        memset(function + sizeof(head), 'f', NAME_BYTES);
        snprintf((char *)function + sizeof(head), 32, "%llx", (long long)any());
        CHECK(say(fd, AGENT_FUNCTION, function, sizeof(function)));
        CHECK(say(fd, AGENT_MAP_DONE, &done, sizeof(done)));
        CHECK(say(fd, AGENT_CLOCK, &clock, sizeof(clock)));
        CHECK(say(fd, AGENT_ATTACHED, &attached, sizeof(attached)));
        CHECK(say(fd, AGENT_DETACHED, &detached, sizeof(detached)));
        CHECK(say(fd, AGENT_HANDLE, &handle, sizeof(handle)));
        CHECK(say(fd, AGENT_WAKE, &wake, sizeof(wake)));
}

static void tell_answers(struct connection *c)
{
        for (unsigned i = 0; i < MESSAGES / 7; i++)
                answer(c->fd);
}

/* ---- what it writes ---- */

static uint64_t clock_ns(void)
{
        struct timespec ts;

        clock_gettime(CLOCK_MONOTONIC, &ts);
        return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

/* Sealed as it should be, for a position that may be far away. */
static void write_record(struct device_record *ring, uint64_t position)
{
        struct device_record r = {.time_ns = any() % 2 ? edge() : clock_ns(),
                                  .grid = any() % 1000 | (1 + any() % 4) << 40 | edge() << 48,
                                  .who = edge() & 0xffffff};

        r.check = (position + 1) ^ r.time_ns ^ (r.grid * DEVICE_SEAL_GRID) ^
                  (r.who * DEVICE_SEAL_WHO);
        ring[position % DEVICE_RING_ENTRIES] = r;
}

static void write_launch(struct agent_launch_map *map, uint64_t position)
{
        struct agent_launch *l = &map->records[position % AGENT_LAUNCH_ENTRIES];

        l->enter_ns = any() % 2 ? clock_ns() : edge();
        l->duration_ns = (uint32_t)edge();
        l->func = edge();
        l->stream = edge();
        l->seq = (uint32_t)edge();
        l->tid = (uint32_t)edge();
        l->type = (uint8_t)any();
        l->grid_x = (uint32_t)edge();
        __atomic_store_n(&l->turn,
                         ((position + 1) & AGENT_LAUNCH_TURN_MASK) |
                                 any() << AGENT_LAUNCH_SLOT_SHIFT,
                         __ATOMIC_RELEASE);
}

static void jump(struct agent_launch_map *map)
{
        static const uint64_t by[] = {1ull << 63, (uint64_t)-1, 1ull << 32, AGENT_LAUNCH_ENTRIES,
                                      7};
        uint64_t head = map->producer.head + by[any() % 5];

        __atomic_store_n(&map->producer.head, head, __ATOMIC_RELEASE);
        map->producer.dropped = any() % 4 ? map->producer.dropped + 1 : edge();
        for (unsigned i = 0; i < AGENT_LAUNCH_CONTEXTS; i++)
                map->contexts[i] = (struct agent_launch_context){
                        .handle = edge(), .entered = (uint32_t)edge(), .retired = (uint32_t)edge()};
}

/* Both maps that it is given, all over. */
static void write_rings(struct connection *c)
{
        struct device_record *ring =
                mmap(NULL, DEVICE_RING_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, c->fds[0], 0);
        struct agent_launch_map *map =
                mmap(NULL, AGENT_LAUNCH_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, c->fds[2], 0);
        uint64_t at = 0, launch = 0;

        CHECK(ring != MAP_FAILED && map != MAP_FAILED);
        map->producer.recording = 1;
        for (unsigned i = 0; i < LOOPS; i++) {
                for (unsigned k = 0; k < 500; k++) {
                        write_record(ring, any() % 8 ? at++ : at + (edge() << 16));
                        write_launch(map, any() % 8 ? launch++ : launch + edge());
                }
                if (i % 5 == 0)
                        jump(map);
                else
                        map->producer.head = launch;
                /* All of the argument rings as well. */
                for (unsigned k = 0; k < 64; k++)
                        ((uint64_t *)&map->arguments)[any() % (sizeof(map->arguments) / 8)] =
                                edge();
                usleep(5000);
        }
}

/* ---- how it connects ---- */

/* One impossible message, and it is cut off for good. */
static void talk_nonsense(const char *path)
{
        struct connection c = introduce(path);
        struct agent_image image = {.status = 77};
        char byte;

        CHECK(c.welcome && say(c.fd, AGENT_IMAGE, &image, sizeof(image)));
        CHECK_EQ(recv(c.fd, &byte, 1, 0), 0);
        CHECK(!introduce(path).welcome);
}

static void come_twice(const char *path)
{
        CHECK(introduce(path).welcome);
        for (unsigned i = 0; i < 20; i++)
                CHECK(!introduce(path).welcome);
}

/* Silent ones, as many as there can be, and again when they are turned away. */
static void be_a_crowd(const char *path)
{
        for (unsigned i = 0; i < CROWD; i++)
                if (dial(path) < 0 && errno == EMFILE)
                        break;
}

int main(int argc, char **argv)
{
        static const struct {
                const char *name;
                void (*tell)(struct connection *c);
                void (*connect)(const char *path);
        } modes[] = {
                {"images", tell_images, NULL}, {"answers", tell_answers, NULL},
                {"rings", write_rings, NULL},  {"nonsense", NULL, talk_nonsense},
                {"twice", NULL, come_twice},   {"crowd", NULL, be_a_crowd},
        };
        struct connection c;
        char byte;

        CHECK_EQ(argc, 3);
        for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
                if (strcmp(argv[2], modes[i].name) != 0)
                        continue;
                if (modes[i].connect) {
                        modes[i].connect(argv[1]);
                } else {
                        c = introduce(argv[1]);
                        CHECK(c.welcome);
                        modes[i].tell(&c);
                }
        }
        printf("ready\n");
        fflush(stdout);
        return read(0, &byte, 1) < 0;
}
