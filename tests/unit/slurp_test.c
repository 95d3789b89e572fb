/* SPDX-License-Identifier: Apache-2.0 */

/* Files that are read whole, and some that do not answer: pipes that nobody writes to. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unit/test.h"
#include "util/macro.h"
#include "util/slurp.h"
#include "util/time.h"

static char directory[] = "/tmp/slurp-test-XXXXXX";

static const char *path_of(const char *name)
{
        static char path[64];

        snprintf(path, sizeof(path), "%s/%s", directory, name);
        return path;
}

static void write_file(const char *path, size_t bytes)
{
        _cleanup_fclose_ FILE *f = fopen(path, "we");

        CHECK(f);
        for (size_t i = 0; i < bytes; i++)
                fputc('a' + (int)(i % 26), f);
}

/* Let a reader of the pipe go. */
static void answer(const char *path)
{
        int fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);

        CHECK(fd >= 0);
        close(fd);
}

static void wait_until_back(unsigned count)
{
        for (int i = 0; slurp_left() > count && i < 1000; i++)
                usleep(5000);
        CHECK_EQ(slurp_left(), count);
}

static void files_are_read_whole(void)
{
        static const size_t sizes[] = {0, 1, 65535, 65536, 65537, 300000};

        for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
                _cleanup_free_ char *text = NULL;
                size_t size = 1;

                write_file(path_of("file"), sizes[i]);
                CHECK_EQ(slurp(path_of("file"), &text, &size), 0);
                CHECK_EQ(size, sizes[i]);
                CHECK_EQ(strlen(text), size);
                for (size_t k = 0; k < size; k++)
                        CHECK_EQ(text[k], 'a' + (int)(k % 26));
        }
        CHECK_EQ(slurp_left(), 0);
}

static void errors_are_told(void)
{
        char *text = NULL;
        size_t size;

        CHECK_EQ(slurp(path_of("none"), &text, &size), -ENOENT);
        CHECK_EQ(slurp(directory, &text, &size), -EISDIR);
        CHECK(!text);
}

static void a_file_that_does_not_answer_holds_nobody(void)
{
        _cleanup_free_ char *text = NULL;
        uint64_t start = now_ns();
        size_t size;

        CHECK_EQ(mkfifo(path_of("pipe"), 0600), 0);
        CHECK_EQ(slurp(path_of("pipe"), &text, &size), -ETIMEDOUT);
        CHECK(now_ns() - start >= SLURP_PATIENCE_NS);
        CHECK_EQ(slurp_left(), 1);
        CHECK_EQ(slurp(path_of("pipe"), &text, &size), -EBUSY); /* no second thread for it */
        CHECK_EQ(slurp(path_of("file"), &text, &size), 0);
        answer(path_of("pipe"));
        wait_until_back(0);
        CHECK_EQ(unlink(path_of("pipe")), 0);
        write_file(path_of("pipe"), 3); /* now it does answer */
        free(TAKE_PTR(text));
        CHECK_EQ(slurp(path_of("pipe"), &text, &size), 0);
        CHECK_EQ(size, 3);
}

static void only_regular_files_are_opened(void)
{
        char bytes[4] = "";
        int fd;

        write_file(path_of("file"), 3);
        fd = slurp_open(path_of("file"));
        CHECK(fd >= 0);
        CHECK_EQ(read(fd, bytes, sizeof(bytes)), 3);
        CHECK_EQ(strcmp(bytes, "abc"), 0);
        CHECK_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
        close(fd);
        CHECK_EQ(slurp_open(path_of("none")), -ENOENT);
        CHECK_EQ(slurp_open(directory), -EBADF);
        CHECK_EQ(slurp_open("/dev/null"), -EBADF);
        CHECK_EQ(mkfifo(path_of("pipe to open"), 0600), 0);
        CHECK_EQ(slurp_open(path_of("pipe to open")), -EBADF);
        CHECK_EQ(slurp_left(), 0);
}

/* A pipe among the files of a process, here its own. */
static void who_waits_for_a_process_asks_it_for_nothing_more(void)
{
        char path[64], *text = NULL;
        size_t size;
        int place;

        CHECK_EQ(mkfifo(path_of("pipe of its own"), 0600), 0);
        place = open(path_of("pipe of its own"), O_PATH | O_CLOEXEC);
        CHECK(place >= 0);
        snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)getpid(), place);
        CHECK_EQ(slurp(path, &text, &size), -ETIMEDOUT);
        snprintf(path, sizeof(path), "/proc/%d/maps", (int)getpid());
        CHECK_EQ(slurp(path, &text, &size), -EBUSY);
        CHECK_EQ(slurp_open(path), -EBUSY);
        CHECK_EQ(slurp("/proc/1/stat", &text, &size), 0);
        free(TAKE_PTR(text));
        CHECK_EQ(slurp("/proc/self/maps", &text, &size), 0);
        free(TAKE_PTR(text));
        answer(path_of("pipe of its own"));
        wait_until_back(0);
        CHECK_EQ(slurp(path, &text, &size), 0);
        free(text);
        close(place);
}

static void not_too_many_are_left(void)
{
        char name[16], *text = NULL;
        size_t size;

        for (unsigned i = 0; i < SLURP_LEFT_MAX; i++) {
                snprintf(name, sizeof(name), "pipe%u", i);
                CHECK_EQ(mkfifo(path_of(name), 0600), 0);
                CHECK_EQ(slurp(path_of(name), &text, &size), -ETIMEDOUT);
        }
        CHECK_EQ(slurp_left(), SLURP_LEFT_MAX);
        CHECK_EQ(slurp(path_of("file"), &text, &size), -EBUSY);
        answer(path_of("pipe3"));
        wait_until_back(SLURP_LEFT_MAX - 1);
        CHECK_EQ(slurp(path_of("file"), &text, &size), 0);
        free(text);
        for (unsigned i = 0; i < SLURP_LEFT_MAX; i++) {
                snprintf(name, sizeof(name), "pipe%u", i);
                if (i != 3)
                        answer(path_of(name));
        }
        wait_until_back(0);
}

/* ---- a machine that stands still ---- */

static uint64_t *begun_ns; /* shared with the child */

static pid_t child_that_reads(const char *path, int writer)
{
        pid_t child;

        *begun_ns = 0;
        child = fork();
        CHECK(child >= 0);
        if (child == 0) {
                char *text;
                size_t size;

                prctl(PR_SET_PDEATHSIG, SIGKILL); /* a failed test leaves nobody behind */
                close(writer);
                __atomic_store_n(begun_ns, now_ns(), __ATOMIC_RELEASE);
                _exit(slurp(path, &text, &size) == 0 ? 0 : 1);
        }
        while (!__atomic_load_n(begun_ns, __ATOMIC_ACQUIRE))
                usleep(100);
        return child;
}

/* The file answers while nobody runs. Returns whether they were stopped in the midst of reading. */
static bool stop_and_answer(const char *path)
{
        int status, writer = open(path, O_RDWR | O_CLOEXEC);
        pid_t child = child_that_reads(path, writer);
        bool in_time;

        CHECK(writer >= 0);
        usleep(SLURP_PATIENCE_NS / 10000);
        CHECK_EQ(kill(child, SIGSTOP), 0);
        CHECK_EQ(waitpid(child, &status, WUNTRACED), child);
        close(writer);
        if (!WIFSTOPPED(status))
                return false;
        in_time = now_ns() - *begun_ns < SLURP_PATIENCE_NS / 2;
        usleep(2 * SLURP_PATIENCE_NS / 1000);
        CHECK_EQ(kill(child, SIGCONT), 0);
        CHECK_EQ(waitpid(child, &status, 0), child);
        if (in_time)
                CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        return in_time;
}

/* Time that went by while nobody ran is no silence. Before there are threads here: it forks. */
static void time_that_stood_still_is_given_back(void)
{
        bool done = false;

        begun_ns = mmap(NULL, sizeof(*begun_ns), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                        -1, 0);
        CHECK(begun_ns != MAP_FAILED);
        CHECK_EQ(mkfifo(path_of("still"), 0600), 0);
        for (int i = 0; i < 100 && !done; i++)
                done = stop_and_answer(path_of("still"));
        CHECK(done);
        munmap(begun_ns, sizeof(*begun_ns));
}

int main(void)
{
        char command[128];

        CHECK(mkdtemp(directory));
        TEST(time_that_stood_still_is_given_back);
        TEST(files_are_read_whole);
        TEST(errors_are_told);
        TEST(a_file_that_does_not_answer_holds_nobody);
        TEST(only_regular_files_are_opened);
        TEST(who_waits_for_a_process_asks_it_for_nothing_more);
        TEST(not_too_many_are_left);
        snprintf(command, sizeof(command), "rm -r %s", directory);
        return system(command) != 0;
}
