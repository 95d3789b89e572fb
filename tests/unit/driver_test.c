/* SPDX-License-Identifier: Apache-2.0 */

/*
 * RM client and GPU clock against a fake driver: the order of calls, the
 * structs on the wire (offsets spelled out, not taken from the code under
 * test), every step failing in turn, nothing left open.
 */
#include <errno.h>
#include <stdbool.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include "driver/ptimer.h"
#include "driver/rm.h"
#include "unit/bytes.h"
#include "unit/test.h"
#include "util/macro.h"

#define CONTROL_FD 100
#define GPU_FD     101

static struct {
        int open_files, mappings, clients;
        int calls, fail_at;      /* the fail_at-th system call fails; 0: none */
        uint32_t usermode_class; /* the one class this GPU has */
        uint32_t objects;
        uint32_t registers[65536 / 4];
        uint32_t gid_length;
} fake;

static bool fails(void)
{
        if (++fake.calls != fake.fail_at)
                return false;
        errno = EIO;
        return true;
}

static int fake_open(const char *path, int flags)
{
        if (fails())
                return -1;
        fake.open_files++;
        return strcmp(path, "/dev/nvidiactl") == 0 ? CONTROL_FD : GPU_FD;
}

static int fake_close(int fd)
{
        CHECK(fd == CONTROL_FD || fd == GPU_FD);
        fake.open_files--;
        return 0;
}

/* NVOS64: root, parent, new, class at 0, 4, 8, 12; parameters at 16; size at 32; status at 40. */
static void fake_alloc(void *a)
{
        uint32_t class = get32(a, 12);

        if (class == 0x41) {
                fake.clients++;
                put32(a, 8, 0xc1d00001);
                put32(a, 40, 0);
                return;
        }
        CHECK_EQ(get32(a, 0), 0xc1d00001);
        if (class == 0x80) {
                CHECK_EQ(get32(a, 4), 0xc1d00001);
                CHECK_EQ(get32(a, 32), 56);
                CHECK_EQ(get32((void *)(uintptr_t)get64(a, 16), 0), 3); /* the instance asked for */
        } else if (class == 0x2080) {
                CHECK_EQ(get32(a, 32), 4);
        } else if (class != fake.usermode_class) {
                put32(a, 40, 0x22);
                return;
        }
        fake.objects++;
        put32(a, 40, 0);
}

/* NVOS54: client, object, command at 0, 4, 8; parameters at 16; size at 24; status at 28. */
static void fake_control(void *a)
{
        char *p = (char *)(uintptr_t)get64(a, 16);

        CHECK_EQ(get32(a, 8), 0x2080014a);
        CHECK_EQ(get32(a, 24), 12 + 256);
        CHECK_EQ(get32(p, 4), 2);
        put32(p, 8, fake.gid_length);
        for (int i = 0; i < 16; i++)
                p[12 + i] = (char)i;
        put32(a, 28, 0);
}

static int fake_ioctl(int fd, unsigned long request, void *a)
{
        if (request == 0xc0104629) { /* free: must work even after a failure */
                CHECK_EQ(get32(a, 0), 0xc1d00001);
                fake.clients--;
                return 0;
        }
        if (fails())
                return -1;
        switch (request) {
        case 0xc00446c9:
                CHECK_EQ(fd, GPU_FD);
                CHECK_EQ(get32(a, 0), CONTROL_FD);
                return 0;
        case 0xc030462b:
                CHECK_EQ(fd, CONTROL_FD);
                fake_alloc(a);
                return 0;
        case 0xc020462a:
                fake_control(a);
                return 0;
        case 0xc038464e: /* length at 24, status at 40, fd at 48 */
                CHECK_EQ(get64(a, 24), 65536);
                CHECK_EQ(get32(a, 48), GPU_FD);
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
        CHECK_EQ(fd, GPU_FD);
        fake.mappings++;
        return fake.registers;
}

static int fake_munmap(void *address, size_t length)
{
        CHECK(address == fake.registers && length == 65536);
        fake.mappings--;
        return 0;
}

static const struct rm_system fake_system = {fake_open, fake_close, fake_ioctl, fake_mmap,
                                             fake_munmap};
static const struct ptimer_gpu gpu = {.instance = 3, .minor = 2};

static void reset(uint32_t usermode_class)
{
        memset(&fake, 0, sizeof(fake));
        fake.usermode_class = usermode_class;
        fake.gid_length = 16;
        fake.registers[0x84 / 4] = 0x18000000;
        fake.registers[0x80 / 4] = 0x12345678;
}

static void check_nothing_is_left(void)
{
        CHECK_EQ(fake.open_files, 0);
        CHECK_EQ(fake.mappings, 0);
        CHECK_EQ(fake.clients, 0);
}

static void every_generation_is_read(void)
{
        static const uint32_t classes[] = {0xc761, 0xc661, 0xc561, 0xc461, 0xc361};

        for (size_t i = 0; i < ARRAY_SIZE(classes); i++) {
                struct clock_sample r;
                struct ptimer *p;
                uint8_t uuid[16];

                reset(classes[i]);
                CHECK_EQ(ptimer_new(&fake_system, &gpu, &p), 0);
                CHECK_EQ(fake.objects, 3);
                CHECK_EQ(ptimer_read(p, 4, &r), 0);
                CHECK(r.gpu_ns == 0x1800000012345678ULL);
                CHECK(r.raw_before_ns <= r.raw_after_ns);
                CHECK_EQ(ptimer_uuid(p, uuid), 0);
                CHECK_EQ(uuid[15], 15);
                ptimer_free(p);
                check_nothing_is_left();
        }
}

static void unknown_generation_is_refused(void)
{
        struct ptimer *p = NULL;

        reset(0xdead);
        CHECK_EQ(ptimer_new(&fake_system, &gpu, &p), -ENOTSUP);
        CHECK(!p);
        check_nothing_is_left();
}

static void a_gpu_off_the_bus_is_noticed(void)
{
        struct clock_sample r;
        struct ptimer *p;

        reset(0xc661);
        CHECK_EQ(ptimer_new(&fake_system, &gpu, &p), 0);
        fake.registers[0x84 / 4] = fake.registers[0x80 / 4] = 0xffffffff;
        CHECK_EQ(ptimer_read(p, 4, &r), -EIO);
        ptimer_free(p);
}

static void every_failure_leaves_nothing_open(void)
{
        int failures = 0;

        for (int at = 1; at < 100; at++) {
                struct ptimer *p = NULL;

                reset(0xc361); /* the last class tried: the longest way */
                fake.fail_at = at;
                if (ptimer_new(&fake_system, &gpu, &p) == 0) {
                        /* A failed attempt at an unsupported class changes nothing. */
                        ptimer_free(p);
                        check_nothing_is_left();
                        if (fake.calls < at)
                                break;
                        continue;
                }
                failures++;
                CHECK(!p);
                check_nothing_is_left();
        }
        CHECK(failures >= 8); /* 2 opens, register, client, device, subdevice, class, map, mmap */
}

static void a_strange_uuid_is_refused(void)
{
        struct ptimer *p;
        uint8_t uuid[16];

        reset(0xc661);
        fake.gid_length = 20;
        CHECK_EQ(ptimer_new(&fake_system, &gpu, &p), 0);
        CHECK_EQ(ptimer_uuid(p, uuid), -EPROTO);
        ptimer_free(p);
}

static void status_codes_are_translated(void)
{
        CHECK_EQ(rm_status_to_errno(0), 0);
        CHECK_EQ(rm_status_to_errno(0x56), -ENOTSUP);
        CHECK_EQ(rm_status_to_errno(0x1b), -EACCES);
        CHECK_EQ(rm_status_to_errno(0x57), -ENOENT);
        CHECK_EQ(rm_status_to_errno(0xffff), -EIO);
}

int main(void)
{
        TEST(every_generation_is_read);
        TEST(unknown_generation_is_refused);
        TEST(a_gpu_off_the_bus_is_noticed);
        TEST(every_failure_leaves_nothing_open);
        TEST(a_strange_uuid_is_refused);
        TEST(status_codes_are_translated);
        return 0;
}
