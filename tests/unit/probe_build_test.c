/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Programs compiled by the driver's linker, which here hands out fixtures: machine code that
 * keeps something of a lane in a uniform register for a text as it is, and such as does
 * not where the text has the lines that are there against it.
 */
#include <errno.h>

#include "agent/probe_build.h"
#include "agent/splice.h"
#include "unit/test.h"
#include "unit/test_file.h"

enum { CUDA_ERROR = 218 };

#define PLAIN  "{ //or.b64 %b1, %b1, %zl; }"
#define LOOSE  "{ or.b64 %b1, %b1, %zl; }"
#define LOOSED "{ @O@or.b64 %b1, %b1, %zl; }"

static struct {
        uint8_t *bytes;
        size_t size;
} entries_only, anywhere;

static unsigned linked; /* texts */
static bool refuse_plain, refuse_loose;
static bool is_loose, helps = true;

static int link_create(unsigned count, int *options, void **values, cuda_handle *ret_state)
{
        *ret_state = &linked;
        return 0;
}

static int link_add_data(cuda_handle state, int type, void *data, size_t size, const char *name,
                         unsigned count, int *options, void **values)
{
        const char *text = data;

        CHECK(state == &linked && text[size - 1] == '\0' && strlen(text) == size - 1);
        CHECK(!strstr(text, "@O@"));
        linked++;
        is_loose = strstr(text, LOOSE) != NULL;
        CHECK(is_loose || strstr(text, PLAIN) || strstr(text, "{ ret; }"));
        return (is_loose ? refuse_loose : refuse_plain) ? CUDA_ERROR : 0;
}

static int link_complete(cuda_handle state, void **cubin, size_t *size)
{
        bool good = is_loose && helps;

        *cubin = good ? anywhere.bytes : entries_only.bytes;
        *size = good ? anywhere.size : entries_only.size;
        return 0;
}

static int link_destroy(cuda_handle state)
{
        return 0;
}

static const struct cuda_api api = {.link_create = link_create,
                                    .link_add_data = link_add_data,
                                    .link_complete = link_complete,
                                    .link_destroy = link_destroy};

/* 0 and whether it can be at exits, or the error; ret_linked: how many texts that took. */
static int build(const char *fragment, bool *ret_exits, unsigned *ret_linked)
{
        char error[PROBE_ERROR_BYTES] = "left from before";
        struct probe_code *code = NULL;
        int r;

        linked = 0;
        r = probe_build(&api, fragment, 90, NULL, &code, error);
        CHECK_EQ(r == 0, error[0] == '\0');
        CHECK_EQ(r == 0, code != NULL);
        *ret_exits = code && !probe_code_exit_refusal(code);
        *ret_linked = linked;
        probe_code_free(code);
        return r;
}

/* What serves only at entries is built again, if there is another way to. */
static void test_again(void)
{
        bool exits;
        unsigned n;

        CHECK_EQ(build(LOOSED, &exits, &n), 0);
        CHECK(exits && n == 2);
        CHECK_EQ(build("{ ret; }", &exits, &n), 0);
        CHECK(!exits && n == 1);
}

/* What came out first stays when that is no better, or does not compile. */
static void test_no_better(void)
{
        bool exits;
        unsigned n;

        helps = false;
        CHECK_EQ(build(LOOSED, &exits, &n), 0);
        CHECK(!exits && n == 2);
        helps = true;
        refuse_loose = true;
        CHECK_EQ(build(LOOSED, &exits, &n), 0);
        CHECK(!exits && n == 2);
        refuse_loose = false;
}

static void test_errors(void)
{
        bool exits;
        unsigned n;

        refuse_plain = true;
        CHECK_EQ(build(LOOSED, &exits, &n), 0);
        CHECK(exits && n == 2);
        CHECK_EQ(build("{ ret; }", &exits, &n), -EINVAL);
        CHECK_EQ(n, 1);
        refuse_loose = true;
        CHECK_EQ(build(LOOSED, &exits, &n), -EINVAL);
        CHECK_EQ(n, 2);
        refuse_plain = refuse_loose = false;
}

static void load(const char *directory)
{
        const uint64_t voteu[] = {0x0000000000057886, 0x000fe200038e0100};
        char path[4096];
        uint8_t *at;

        snprintf(path, sizeof(path), "%s/exit.cubin", directory);
        anywhere.bytes = test_read_file(path, &anywhere.size);
        entries_only.bytes = test_read_file(path, &entries_only.size);
        /* VOTEU in place of the first ULDC.64 of the descriptor of memory */
        at = memmem(entries_only.bytes, entries_only.size, "\xb9\x7a\x0a\x00\x00\x82", 6);
        CHECK(at);
        memcpy(at, voteu, sizeof(voteu));
}

int main(int argc, char **argv)
{
        CHECK(argc == 2);
        load(argv[1]);
        TEST(test_again);
        TEST(test_no_better);
        TEST(test_errors);
        free(entries_only.bytes);
        free(anywhere.bytes);
        return 0;
}
