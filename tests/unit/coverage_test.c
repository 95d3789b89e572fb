/* SPDX-License-Identifier: Apache-2.0 */

/* The coverage list: what agents report is found again, bounded, in any order, and fast. */
#include "api/coverage.h"

#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

#include "unit/test.h"

#define SHUFFLED 100000

static const struct covered_image *add_image(struct coverage *c, struct intern *names, uint32_t id)
{
        struct agent_image image = {.image_id = id, .handle = 42 + id};

        return coverage_add_image(c, names, &image);
}

static bool add_kernel(struct coverage *c, struct intern *names, uint32_t image, uint32_t id)
{
        struct agent_kernel k = {.kernel_id = id, .entry = AGENT_PROBE_PTX, .name_bytes = 4};

        return coverage_add_kernel(c, names, image, &k, "vadd", NULL);
}

static void what_is_reported_is_kept(void)
{
        struct coverage c = {0};
        struct intern *names = intern_new();
        const struct covered_kernel *k = NULL;
        uint32_t n = 0;

        CHECK(!add_kernel(&c, names, 1, 7)); /* of no image */
        CHECK(add_image(&c, names, 1));
        CHECK(!add_image(&c, names, 0));
        for (uint32_t i = 1; i <= 1000; i++)
                CHECK(add_kernel(&c, names, 1, i));
        while ((k = coverage_next_kernel(&c, coverage_image(&c, 1), k)))
                CHECK_EQ(k->kernel_id, ++n);
        CHECK_EQ(n, 1000);
        CHECK_EQ(c.entry_count, 1000);
        CHECK_EQ(c.exit_count, 0);
        CHECK_STR(intern_text(names, c.kernels[999].name), "vadd");
        CHECK(!coverage_image(&c, 2));
        CHECK(!coverage_next_image(&c, 1));
        coverage_done(&c);
        intern_free(names);
}

static void kernels_of_several_images_do_not_mix(void)
{
        struct coverage c = {0};
        struct intern *names = intern_new();

        for (uint32_t image = 1; image <= 100; image++)
                CHECK(add_image(&c, names, image));
        for (uint32_t i = 0; i < 10000; i++)
                CHECK(add_kernel(&c, names, i % 100 + 1, i + 1));
        for (uint32_t image = 1; image <= 100; image++) {
                const struct covered_kernel *k = NULL;
                uint32_t next = image;

                while ((k = coverage_next_kernel(&c, coverage_image(&c, image), k))) {
                        CHECK_EQ(k->image_id, image);
                        CHECK_EQ(k->kernel_id, next);
                        next += 100;
                }
                CHECK_EQ(next, image + 10000);
        }
        coverage_done(&c);
        intern_free(names);
}

/* Ids 1..n in some order. */
static uint32_t *shuffled(uint32_t n)
{
        uint32_t *ids = malloc(n * sizeof(*ids));
        uint64_t seed = 7;

        CHECK(ids);
        for (uint32_t i = 0; i < n; i++) {
                uint32_t j = (uint32_t)(test_random(&seed) % (i + 1));

                ids[i] = ids[j];
                ids[j] = i + 1;
        }
        return ids;
}

/* Threads report at the same time, and a hostile process as it likes: no search may be long. */
static void images_out_of_order_are_found_fast(void)
{
        struct coverage c = {0};
        struct intern *names = intern_new();
        const struct covered_image *image = NULL;
        uint32_t *ids = shuffled(SHUFFLED), kept = 0, left_out = 0, after = 0;
        clock_t start = clock();

        for (uint32_t i = 0; i < SHUFFLED; i++) {
                if (add_image(&c, names, ids[i]))
                        kept++;
                else
                        left_out++;
                CHECK_EQ(add_kernel(&c, names, ids[i], i + 1), ids[i] <= COVERAGE_IMAGES_MAX);
        }
        for (uint32_t id = 1; id <= COVERAGE_IMAGES_MAX; id++)
                CHECK_EQ(coverage_image(&c, id)->handle, 42 + id);
        while ((image = coverage_next_image(&c, after)))
                CHECK_EQ(image->image_id, ++after); /* ascending, none missing */
        CHECK_EQ(after, COVERAGE_IMAGES_MAX);
        CHECK_EQ(kept, COVERAGE_IMAGES_MAX);
        CHECK_EQ(left_out, SHUFFLED - COVERAGE_IMAGES_MAX);
        /* Of this processor, some 20 ms; a linear search: minutes. */
        CHECK(clock() - start < 5 * CLOCKS_PER_SEC);
        free(ids);
        coverage_done(&c);
        intern_free(names);
}

static void kernels_and_texts_are_bounded(void)
{
        struct coverage c = {0};
        struct intern *names = intern_new();

        CHECK(add_image(&c, names, 1));
        for (uint32_t i = 0; i < COVERAGE_KERNELS_MAX; i++)
                CHECK(add_kernel(&c, names, 1, i + 1));
        CHECK(!add_kernel(&c, names, 1, COVERAGE_KERNELS_MAX + 1));
        CHECK_EQ(c.kernel_count, COVERAGE_KERNELS_MAX);
        CHECK_EQ(c.text_bytes, 4); /* the same text is kept once */
        coverage_done(&c);
        intern_free(names);
}

static bool tell_kernel(struct coverage *c, struct intern *names, uint32_t image, uint32_t id,
                        uint8_t entry, const char *reason)
{
        struct agent_kernel k = {.kernel_id = id,
                                 .entry = entry,
                                 .accesses = 7,
                                 .accesses_probed = entry == AGENT_PROBE_NONE ? 0 : 5,
                                 .name_bytes = 4,
                                 .reason_bytes = (uint16_t)strlen(reason)};

        return coverage_add_kernel(c, names, image, &k, "vadd", reason);
}

/* An image whose programs were changed: told again, whole, in the same order. */
static void images_may_be_told_again(void)
{
        struct agent_image other = {.image_id = 1, .handle = 7};
        struct coverage c = {0};
        struct intern *names = intern_new();
        const struct covered_kernel *k = NULL;

        CHECK(add_image(&c, names, 1));
        for (uint32_t i = 1; i <= 3; i++)
                CHECK(tell_kernel(&c, names, 1, i, AGENT_PROBE_NONE, "why not"));
        CHECK_EQ(c.entry_count, 0);
        CHECK(!coverage_add_image(&c, names, &other)); /* the id of another one */
        CHECK(add_image(&c, names, 1));
        CHECK(tell_kernel(&c, names, 1, 1, AGENT_PROBE_SASS, ""));
        CHECK(!tell_kernel(&c, names, 1, 3, AGENT_PROBE_SASS, "")); /* out of order */
        CHECK(tell_kernel(&c, names, 1, 2, AGENT_PROBE_NONE, "still not"));
        CHECK(tell_kernel(&c, names, 1, 3, AGENT_PROBE_SASS, ""));
        CHECK_EQ(c.kernel_count, 3);
        CHECK_EQ(c.entry_count, 2);
        k = coverage_next_kernel(&c, coverage_image(&c, 1), NULL);
        CHECK_EQ(k->entry, AGENT_PROBE_SASS);
        CHECK_EQ(k->reason, 0);
        CHECK_EQ(k->accesses_probed, 5);
        CHECK_EQ(k->accesses, 7);
        k = coverage_next_kernel(&c, coverage_image(&c, 1), k);
        CHECK_STR(intern_text(names, k->reason), "still not");
        CHECK_EQ(k->accesses_probed, 0);
        coverage_done(&c);
        intern_free(names);
}

int main(void)
{
        TEST(what_is_reported_is_kept);
        TEST(kernels_of_several_images_do_not_mix);
        TEST(images_out_of_order_are_found_fast);
        TEST(kernels_and_texts_are_bounded);
        TEST(images_may_be_told_again);
        return 0;
}
