/* SPDX-License-Identifier: Apache-2.0 */

/* Files that are read whole, and some that do not answer: pipes that nobody writes to. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
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
        CHECK(now_ns() - start >= SLURP_PATIENCE_NS && now_ns() - start < 8 * SLURP_PATIENCE_NS);
        CHECK_EQ(slurp_left(), 1);
        start = now_ns();
        CHECK_EQ(slurp(path_of("pipe"), &text, &size), -EBUSY); /* no second thread for it */
        CHECK_EQ(slurp(path_of("file"), &text, &size), 0);
        CHECK(now_ns() - start < SLURP_PATIENCE_NS);
        answer(path_of("pipe"));
        wait_until_back(0);
        CHECK_EQ(unlink(path_of("pipe")), 0);
        write_file(path_of("pipe"), 3); /* now it does answer */
        free(TAKE_PTR(text));
        CHECK_EQ(slurp(path_of("pipe"), &text, &size), 0);
        CHECK_EQ(size, 3);
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

int main(void)
{
        char command[128];

        CHECK(mkdtemp(directory));
        TEST(files_are_read_whole);
        TEST(errors_are_told);
        TEST(a_file_that_does_not_answer_holds_nobody);
        TEST(not_too_many_are_left);
        snprintf(command, sizeof(command), "rm -r %s", directory);
        return system(command) != 0;
}
