/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The context-switch trace against a made-up driver: how it is set up (structs
 * spelled out as bytes), every step failing in turn, and what is read of a buffer
 * that wraps, drops, and holds garbage.
 */
#include <errno.h>
#include <stdbool.h>
#include <sys/mman.h>

#include "driver/ctxsw_reading.h"
#include "unit/bytes.h"
#include "unit/test.h"

#define CONTROL_FD 100
#define GPU_FD     101
#define CLIENT     0xc1d00001

static struct {
        int open_files, mappings, clients;
        int calls, fail_at; /* the fail_at-th system call fails; 0: none */
        uint32_t bind_status, bind_reason;
        uint32_t memories[2], buffer;
        int enabled, flushes;
        uint32_t get; /* as told */
        bool map_records;
        _Alignas(8) unsigned char header[4096];
        _Alignas(8) unsigned char records[CTXSW_ENTRIES * CTXSW_RECORD_BYTES];
} fake;

static bool fails(void)
{
        if (++fake.calls != fake.fail_at)
                return false;
        errno = EIO;
        return true;
}

/* ---- the driver ---- */

static int fake_open(const char *path, int flags)
{
        if (fails())
                return -1;
        fake.open_files++;
        return strcmp(path, "/dev/nvidiactl") == 0 ? CONTROL_FD : GPU_FD;
}

static int fake_close(int fd)
{
        fake.open_files--;
        return 0;
}

static void fake_alloc(char *a)
{
        char *p = (char *)(uintptr_t)get64(a, 16);
        uint32_t size = get32(a, 32);

        put32(a, 40, 0);
        switch (get32(a, 12)) {
        case 0x41:
                fake.clients++;
                put32(a, 8, CLIENT);
                return;
        case 0x80:
        case 0x2080:
                return;
        case 0x90ce: /* memory of no device, read-only for us */
                CHECK_EQ(get32(a, 4), CLIENT);
                CHECK_EQ(size, 128);
                CHECK_EQ(get32(p, 28), 1u << 22);
                CHECK_EQ(get64(p, 64), fake.memories[0] ? sizeof(fake.records) : 4096);
                fake.memories[fake.memories[0] ? 1 : 0] = get32(a, 8);
                return;
        case 0x90cd:
                CHECK_EQ(size, 72);
                CHECK_EQ(get32(p, 16), 32);
                CHECK_EQ(get32(p, 20), CTXSW_ENTRIES);
                CHECK_EQ(get32(p, 60), fake.memories[0]);
                CHECK_EQ(get32(p, 64), fake.memories[1]);
                fake.buffer = get32(a, 8);
                return;
        }
        CHECK(false);
}

static void fake_control(char *a)
{
        char *p = (char *)(uintptr_t)get64(a, 16);

        put32(a, 28, 0);
        switch (get32(a, 8)) {
        case 0x20801238: /* bind: all users, starts and ends only */
                CHECK_EQ(get32(a, 24), 24);
                CHECK_EQ(get32(p, 0), fake.buffer);
                CHECK_EQ(get32(p, 4), 32);
                CHECK_EQ(get32(p, 8), 1);
                CHECK_EQ(p[16], 1);
                put32(p, 20, fake.bind_reason);
                put32(a, 28, fake.bind_status);
                return;
        case 0x90cd0101: /* keep the oldest */
                CHECK_EQ(get32(a, 4), fake.buffer);
                CHECK_EQ(p[0], 1);
                CHECK_EQ(get32(p, 4), 1);
                fake.enabled++;
                return;
        case 0x90cd0102:
                fake.get = get32(p, 0);
                CHECK_EQ(get32(p, 4), 0);
                put64(fake.header, 16, 0);
                return;
        case 0x90cd0104:
                CHECK_EQ(get32(a, 24), 0);
                fake.flushes++;
                return;
        }
        CHECK(false);
}

static int fake_ioctl(int fd, unsigned long request, void *a)
{
        if (request == 0xc0104629) {
                fake.clients--;
                return 0;
        }
        if (fails())
                return -1;
        switch (request) {
        case 0xc00446c9:
                return 0;
        case 0xc030462b:
                fake_alloc(a);
                return 0;
        case 0xc020462a:
                fake_control(a);
                return 0;
        case 0xc038464e: /* of the client, not of a device; read-only; a file of its own */
                CHECK_EQ(get32(a, 4), CLIENT);
                CHECK_EQ(get32(a, 44), 1);
                CHECK_EQ(get32(a, 48), CONTROL_FD);
                fake.map_records = get32(a, 8) == fake.memories[1] && fake.memories[1];
                CHECK_EQ(get64(a, 24), fake.map_records ? sizeof(fake.records) : 4096);
                put32(a, 40, 0);
                return 0;
        }
        CHECK(false);
        return -1;
}

static void *fake_mmap(void *address, size_t length, int protection, int flags, int fd,
                       off_t offset)
{
        if (fails())
                return MAP_FAILED;
        CHECK_EQ(protection, PROT_READ);
        fake.mappings++;
        return fake.map_records ? fake.records : fake.header;
}

static int fake_munmap(void *address, size_t length)
{
        fake.mappings--;
        return 0;
}

static const struct rm_system fake_system = {fake_open, fake_close, fake_ioctl, fake_mmap,
                                             fake_munmap};

static void check_nothing_is_left(void)
{
        CHECK_EQ(fake.open_files, 0);
        CHECK_EQ(fake.mappings, 0);
        CHECK_EQ(fake.clients, 0);
}

/* ---- what the kernel writes ---- */

static uint32_t put_index;
static uint16_t next_sequence;

static void write_record(uint8_t tag, uint32_t pid, uint64_t ns)
{
        unsigned char *r = fake.records + (size_t)put_index * CTXSW_RECORD_BYTES;

        memset(r, 0, CTXSW_RECORD_BYTES);
        put16(r, 0, 2);
        r[8] = tag;
        put16(r, 10, next_sequence++);
        put32(r, 12, 1000 + pid);
        put32(r, 16, pid);
        r[22] = r[23] = 0xff;
        put64(r, 24, ns);
        put_index = (put_index + 1) % CTXSW_ENTRIES;
        put32(fake.header, 4, put_index);
}

static struct ctxsw_event events[CTXSW_ENTRIES];
static size_t event_count, raw_count;
static uint64_t lost;

static void on_event(void *data, const struct ctxsw_event *e)
{
        CHECK(event_count < CTXSW_ENTRIES);
        events[event_count++] = *e;
}

static void on_gap(void *data, uint64_t n)
{
        lost += n;
}

static void on_raw(void *data, const uint8_t bytes[CTXSW_RECORD_BYTES])
{
        raw_count++;
}

static const struct ctxsw_ops ops = {on_event, on_gap, on_raw};

static struct ctxsw *begin(void)
{
        struct ctxsw *c = NULL;

        memset(&fake, 0, sizeof(fake));
        put_index = 0;
        next_sequence = 0;
        event_count = raw_count = lost = 0;
        CHECK_EQ(ctxsw_new(&fake_system, 0, 0, &c), 0);
        CHECK_EQ(fake.enabled, 1);
        return c;
}

static void end(struct ctxsw *c)
{
        ctxsw_free(c);
        check_nothing_is_left();
}

/* ---- tests ---- */

static void switches_are_read(void)
{
        struct ctxsw *c = begin();

        CHECK_EQ(ctxsw_read(c, &ops, NULL), 0);
        CHECK_EQ(fake.flushes, 1);
        write_record(6, 10, 1000);
        write_record(7, 10, 2000);
        write_record(5, 11, 2100); /* the same, as administrators of a debug driver see it */
        write_record(3, 11, 2200);
        write_record(0xfe, 0, 2300);
        CHECK_EQ(ctxsw_read(c, &ops, NULL), 5);
        CHECK_EQ(event_count, 5);
        CHECK_EQ(raw_count, 5);
        CHECK_EQ(events[0].kind, CTXSW_START);
        CHECK_EQ(events[0].pid, 10);
        CHECK_EQ(events[0].context_id, 1010);
        CHECK_EQ(events[0].gpu_ns, 1000);
        CHECK_EQ(events[0].mig_gpu, CTXSW_NO_MIG);
        CHECK_EQ(events[1].kind, CTXSW_END);
        CHECK_EQ(events[2].kind, CTXSW_START);
        CHECK_EQ(events[3].kind, CTXSW_END);
        CHECK_EQ(events[4].kind, CTXSW_RESET);
        CHECK_EQ(fake.get, 5);
        CHECK_EQ(ctxsw_read(c, &ops, NULL), 0);
        CHECK_EQ(lost, 0);
        end(c);
}

/* Many times around, sequence numbers too: nothing twice, nothing missed. */
static void the_buffer_goes_round(void)
{
        struct ctxsw *c = begin();
        uint64_t ns = 0, seen = 0;

        for (int round = 0; round < 200; round++) {
                for (int i = 0; i < 1000; i++)
                        write_record(i % 2 ? 7 : 6, 1, ++ns);
                event_count = 0;
                CHECK_EQ(ctxsw_read(c, &ops, NULL), 1000);
                for (size_t i = 0; i < event_count; i++)
                        CHECK_EQ(events[i].gpu_ns, ++seen);
        }
        CHECK_EQ(seen, 200000);
        CHECK_EQ(lost, 0);
        end(c);
}

static void drops_are_counted(void)
{
        struct ctxsw *c = begin();

        write_record(6, 1, 1);
        next_sequence = (uint16_t)(next_sequence + 7);
        write_record(7, 1, 2);
        CHECK_EQ(ctxsw_read(c, &ops, NULL), 2);
        CHECK_EQ(lost, 7);
        /* More than sequence numbers can show: 3 times 65536 and 4. */
        put64(fake.header, 16, 3 * 65536 + 4);
        next_sequence = (uint16_t)(next_sequence + 4);
        write_record(6, 1, 3);
        CHECK_EQ(ctxsw_read(c, &ops, NULL), 1);
        CHECK_EQ(lost, 7 + 3 * 65536 + 4);
        end(c);
}

static void garbage_is_left_out(void)
{
        struct ctxsw *c = begin();

        write_record(6, 1, 1);
        write_record(0xff, 1, 2); /* invalid timestamp */
        write_record(0x42, 1, 3); /* no tag we know */
        put16(fake.records + 2 * CTXSW_RECORD_BYTES, 0, 134);
        write_record(7, 1, 4);
        CHECK_EQ(ctxsw_read(c, &ops, NULL), 4);
        CHECK_EQ(event_count, 2);
        CHECK_EQ(ctxsw_garbage(c), 2);
        CHECK_EQ(lost, 1); /* the one of another type took a number that nobody has */
        put32(fake.header, 4, CTXSW_ENTRIES);
        CHECK_EQ(ctxsw_read(c, &ops, NULL), -EIO);
        put32(fake.header, 4, UINT32_MAX);
        CHECK_EQ(ctxsw_read(c, &ops, NULL), -EIO);
        end(c);
}

/* Read in one place and looked at in another: the same, in the same order. */
static void what_was_read_is_told_later(void)
{
        struct ctxsw_reading r = {.trace = begin()};

        for (int round = 0; round < 3; round++) {
                event_count = lost = 0;
                write_record(6, 1, 10);
                next_sequence = (uint16_t)(next_sequence + 7);
                for (int i = 0; i < 5000; i++)
                        write_record(i % 2 ? 7 : 6, 2, 20 + (uint64_t)i);
                put16(fake.records + ((put_index + CTXSW_ENTRIES - 1) % CTXSW_ENTRIES) *
                                             CTXSW_RECORD_BYTES,
                      0, 134);
                ctxsw_reading_read(&r);
                CHECK_EQ(r.error, 0);
                CHECK_EQ(event_count, 0);
                CHECK_EQ(r.garbage, round + 1);
                CHECK(r.before_ns && r.after_ns >= r.before_ns);
                ctxsw_reading_replay(&r, &ops, NULL);
                CHECK_EQ(event_count, 5000);
                CHECK_EQ(lost, 7 + (round > 0)); /* one of another type took a number */
                for (size_t i = 1; i < event_count; i++)
                        CHECK_EQ(events[i].gpu_ns, 20 + i - 1);
        }
        event_count = lost = 0;
        ctxsw_reading_read(&r);
        ctxsw_reading_replay(&r, &ops, NULL);
        CHECK_EQ(event_count + lost, 0); /* nothing twice */
        ctxsw_reading_close(&r);
        ctxsw_reading_done(&r);
        check_nothing_is_left();
}

static void a_trace_that_fails_is_closed(void)
{
        struct ctxsw_reading r = {.trace = begin()};

        write_record(6, 1, 10);
        fake.fail_at = fake.calls + 2; /* the telling of what was read */
        ctxsw_reading_read(&r);
        CHECK_EQ(r.error, -EIO);
        CHECK(!r.trace);
        check_nothing_is_left();
        ctxsw_reading_replay(&r, &ops, NULL);
        CHECK_EQ(event_count, 1); /* it had been read */
        ctxsw_reading_done(&r);
        memset(&fake, 0, sizeof(fake));
        fake.fail_at = 1;
        ctxsw_reading_open(&r, &fake_system, 0, 0);
        CHECK_EQ(r.error, -EIO);
        CHECK(!r.trace);
        check_nothing_is_left();
}

static void mig_instances_are_told(void)
{
        struct ctxsw *c = begin();

        write_record(6, 1, 1);
        fake.records[22] = 5;
        fake.records[23] = 2;
        CHECK_EQ(ctxsw_read(c, &ops, NULL), 1);
        CHECK_EQ(events[0].mig_gpu, 5);
        CHECK_EQ(events[0].mig_compute, 2);
        end(c);
}

static void refusals_have_their_reason(void)
{
        static const struct {
                uint32_t status, reason;
                int error;
        } cases[] = {{0x56, 1, -ENOTSUP}, {0x56, 2, -ENOTSUP}, {0x56, 3, -ENOTSUP},
                     {0x56, 4, -EPERM},   {0x56, 5, -EPERM},   {0x1b, 0, -EACCES}};

        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                struct ctxsw *c = NULL;

                memset(&fake, 0, sizeof(fake));
                fake.bind_status = cases[i].status;
                fake.bind_reason = cases[i].reason;
                CHECK_EQ(ctxsw_new(&fake_system, 0, 0, &c), cases[i].error);
                CHECK(!c);
                check_nothing_is_left();
        }
}

static void every_failure_leaves_nothing_open(void)
{
        int failures = 0;

        for (int at = 1;; at++) {
                struct ctxsw *c = NULL;

                memset(&fake, 0, sizeof(fake));
                fake.fail_at = at;
                if (ctxsw_new(&fake_system, 0, 0, &c) == 0) {
                        ctxsw_free(c);
                        break;
                }
                failures++;
                CHECK(!c);
                check_nothing_is_left();
        }
        CHECK_EQ(failures, 17); /* 6 of the client; 2 memories of 4 each; buffer, bind, enable */
        check_nothing_is_left();
}

static void reading_fails_with_the_driver(void)
{
        struct ctxsw *c = begin();

        fake.fail_at = fake.calls + 1;
        CHECK_EQ(ctxsw_read(c, &ops, NULL), -EIO);
        fake.fail_at = fake.calls + 2;
        CHECK_EQ(ctxsw_read(c, &ops, NULL), -EIO);
        CHECK_EQ(ctxsw_read(c, &ops, NULL), 0);
        end(c);
}

int main(void)
{
        TEST(switches_are_read);
        TEST(the_buffer_goes_round);
        TEST(drops_are_counted);
        TEST(garbage_is_left_out);
        TEST(what_was_read_is_told_later);
        TEST(a_trace_that_fails_is_closed);
        TEST(mig_instances_are_told);
        TEST(refusals_have_their_reason);
        TEST(every_failure_leaves_nothing_open);
        TEST(reading_fails_with_the_driver);
        return 0;
}
