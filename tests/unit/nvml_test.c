/* SPDX-License-Identifier: Apache-2.0 */

/* The management library: a simulated one, a broken one, none.
 *   nvml_test LIBRARY
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "driver/nvml.h"
#include "driver/silence.h"
#include "unit/test.h"
#include "util/time.h"

static const char *library;
static struct nvml_gpu gpus[NVML_GPUS_MAX];
static uint64_t silent_ns;
static char hang_file[] = "/tmp/nvml-test-hang-XXXXXX";

/* Wait until it has been opened. */
static int read_when_open(struct nvml *n)
{
        int r = -EAGAIN;

        for (int i = 0; r == -EAGAIN && i < 10000; i++) {
                r = nvml_read(n, gpus, NVML_GPUS_MAX, &silent_ns);
                if (r == -EAGAIN)
                        usleep(5000);
        }
        return r;
}

static void what_is_known_is_told(void)
{
        struct nvml *n = nvml_new(library);

        CHECK_EQ(read_when_open(n), 2);
        CHECK_STR(gpus[0].name, "Simulated New");
        CHECK_STR(gpus[0].uuid, "GPU-new");
        CHECK_EQ(gpus[0].has, (NVML_HAS_XID - 1)); /* all but Xid */
        CHECK_EQ(gpus[0].minor, 4);
        CHECK_EQ(gpus[0].utilization, 97);
        CHECK_EQ(gpus[0].memory_utilization, 41);
        CHECK_EQ(gpus[0].memory_used, 60ULL << 30);
        CHECK_EQ(gpus[0].memory_total, 80ULL << 30);
        CHECK_EQ(gpus[0].sm_clock, 1980);
        CHECK_EQ(gpus[0].memory_clock, 3201);
        CHECK_EQ(gpus[0].power, 612345);
        CHECK_EQ(gpus[0].power_limit, 700000);
        CHECK_EQ(gpus[0].temperature, 64);
        CHECK_EQ(gpus[0].ecc_corrected, 12);
        CHECK_EQ(gpus[0].ecc_uncorrected, 1);
        CHECK_EQ(gpus[0].throttle, NVML_THROTTLE_POWER_CAP | NVML_THROTTLE_HW_THERMAL);
        nvml_free(n);
}

static void what_is_not_supported_is_not_known(void)
{
        struct nvml *n = nvml_new(library);

        CHECK_EQ(read_when_open(n), 2);
        CHECK_EQ(gpus[1].has, NVML_HAS_MINOR | NVML_HAS_MEMORY | NVML_HAS_TEMPERATURE);
        CHECK_EQ(gpus[1].minor, 7);
        CHECK_EQ(nvml_read(n, gpus, 1, &silent_ns), 1); /* no more than there is room for */
        nvml_free(n);
}

static void error_events_are_noted(void)
{
        uint64_t before = now_ns();
        struct nvml *n;

        setenv("SIM_NVML_XID", "79", 1);
        n = nvml_new(library);
        for (int i = 0; i < 10000; i++) {
                CHECK_EQ(read_when_open(n), 2);
                if (gpus[0].has & NVML_HAS_XID)
                        break;
                usleep(5000);
        }
        CHECK(gpus[0].has & NVML_HAS_XID);
        CHECK_EQ(gpus[0].xid, 79);
        CHECK_EQ(gpus[0].xid_count, 1);
        CHECK(gpus[0].xid_at_ns >= before && gpus[0].xid_at_ns <= now_ns());
        CHECK(!(gpus[1].has & NVML_HAS_XID));
        nvml_free(n);
        unsetenv("SIM_NVML_XID");
}

static void a_machine_without_it_has_nothing(void)
{
        struct nvml *n = nvml_new("/nonexistent/libnvidia-ml.so.1");

        CHECK_EQ(read_when_open(n), -ENOENT);
        nvml_free(n);
        setenv("SIM_NVML", "broken", 1);
        n = nvml_new(library);
        CHECK_EQ(read_when_open(n), -EIO);
        nvml_free(n);
        unsetenv("SIM_NVML");
        n = nvml_new("libm.so.6"); /* a library, but not that one */
        CHECK_EQ(read_when_open(n), -EIO);
        nvml_free(n);
}

/* Also while it is just being opened, and many times. */
static void it_ends_at_any_moment(void)
{
        for (int i = 0; i < 20; i++) {
                struct nvml *n = nvml_new(library);

                usleep((useconds_t)i * 500);
                nvml_free(n);
                CHECK_EQ(silence_abandoned(), 0);
        }
        nvml_free(NULL);
}

/* ---- a driver that hangs ---- */

static void hang(void)
{
        int fd = open(hang_file, O_CREAT | O_RDWR | O_CLOEXEC, 0600);

        CHECK(fd >= 0);
        close(fd);
}

static void answer_again(void)
{
        CHECK_EQ(unlink(hang_file), 0);
}

static void check_within(uint64_t start, double least_s, double most_s)
{
        double s = (double)(now_ns() - start) / NSEC_PER_SEC;

        CHECK(s >= least_s && s < most_s);
}

static void wait_for_threads(void)
{
        for (int i = 0; silence_abandoned() && i < 10000; i++)
                usleep(5000);
        CHECK_EQ(silence_abandoned(), 0);
}

static void who_asks_is_told_of_a_silence(void)
{
        struct nvml *n = nvml_new(library);
        uint64_t start;

        CHECK_EQ(read_when_open(n), 2);
        CHECK_EQ(silent_ns, 0);
        hang();
        start = now_ns();
        CHECK_EQ(nvml_read(n, gpus, NVML_GPUS_MAX, &silent_ns), 2);
        check_within(start, 1.9, 40);
        CHECK(silent_ns >= SILENCE_NS);
        CHECK_STR(gpus[0].uuid, "GPU-new");
        CHECK_EQ(gpus[0].has,
                 NVML_HAS_MINOR); /* nothing of what was before is told as if it were now */
        CHECK_EQ(gpus[0].utilization, 0);
        start = now_ns();
        CHECK_EQ(nvml_read(n, gpus, NVML_GPUS_MAX, &silent_ns), 2);
        CHECK_EQ(nvml_state(n), 2);
        check_within(start, 0, 1.9); /* nobody else waits */
        CHECK(silent_ns >= SILENCE_NS);
        CHECK_EQ(silence_count(nvml_silence(n)), 1);
        answer_again();
        for (int i = 0; silence_lasts_ns(nvml_silence(n)) >= SILENCE_NS && i < 10000; i++)
                usleep(5000);
        CHECK_EQ(nvml_read(n, gpus, NVML_GPUS_MAX, &silent_ns), 2);
        CHECK_EQ(silent_ns, 0);
        CHECK_EQ(gpus[0].utilization, 97);
        CHECK_EQ(silence_count(nvml_silence(n)), 1);
        CHECK(silence_total_ns(nvml_silence(n)) >= SILENCE_NS);
        CHECK_EQ(silence_lasts_ns(nvml_silence(n)), 0);
        nvml_free(n);
        wait_for_threads();
}

static void an_opening_that_hangs_is_told(void)
{
        uint64_t start = now_ns();
        struct nvml *n;

        hang();
        n = nvml_new(library);
        CHECK_EQ(nvml_read(n, gpus, NVML_GPUS_MAX, &silent_ns), -EAGAIN);
        CHECK_EQ(silent_ns, 0);
        check_within(start, 0, 1.9);
        while (silent_ns == 0 && now_ns() - start < 60 * NSEC_PER_SEC) {
                usleep(10000);
                CHECK_EQ(nvml_read(n, gpus, NVML_GPUS_MAX, &silent_ns), -EAGAIN);
        }
        CHECK(silent_ns >= SILENCE_NS);
        CHECK_EQ(nvml_state(n), -EAGAIN);
        answer_again();
        CHECK_EQ(read_when_open(n), 2);
        CHECK_EQ(gpus[0].utilization, 97);
        nvml_free(n);
        wait_for_threads();
}

/* Whether it hangs while it is opened or later; the thread cleans up when it returns. */
static void it_ends_in_the_midst_of_a_silence(void)
{
        for (int later = 0; later < 2; later++) {
                struct nvml *n;
                uint64_t start;

                if (!later)
                        hang();
                n = nvml_new(library);
                if (later) {
                        CHECK_EQ(read_when_open(n), 2);
                        hang();
                }
                start = now_ns();
                nvml_free(n);
                check_within(start, 1.9, 40);
                CHECK_EQ(silence_abandoned(), 1);
                answer_again();
                wait_for_threads();
        }
}

int main(int argc, char **argv)
{
        CHECK_EQ(argc, 2);
        library = argv[1];
        CHECK(mkdtemp(hang_file));
        CHECK_EQ(rmdir(hang_file), 0);
        setenv("SIM_NVML_HANG", hang_file, 1);
        TEST(what_is_known_is_told);
        TEST(what_is_not_supported_is_not_known);
        TEST(error_events_are_noted);
        TEST(a_machine_without_it_has_nothing);
        TEST(it_ends_at_any_moment);
        TEST(who_asks_is_told_of_a_silence);
        TEST(an_opening_that_hangs_is_told);
        TEST(it_ends_in_the_midst_of_a_silence);
        return 0;
}
