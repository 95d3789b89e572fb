/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Pages of maps, end to end over a socket: those of one snapshot are of one reading,
 * whatever is read meanwhile, and what is kept for it has bounds.
 *
 *     api_maps_test BLOCK_TIME.bpf.o
 */
#include <errno.h>
#include <unistd.h>

#include "api/kept_map.h"
#include "device/device_abi.h"
#include "libclient/gpuobs.h"
#include "unit/api_fixture.h"
#include "unit/test.h"

#define PAGE 6000 /* elements; the map has so many that there are three */

static struct fixture f;

static const struct gpuobs_map_dump_params first = {
        .probe = "made_up", .map = "began", .has_merge = true, .has_limit = true, .limit = PAGE};

static struct gpuobs_map_dump *dump(struct gpuobs *g, const struct gpuobs_map_dump_params *p)
{
        struct gpuobs_map_dump *d;

        CHECK_EQ(gpuobs_maps_dump(g, p, &d), 0);
        CHECK(d->n_elements);
        return d;
}

static void check_values(const struct gpuobs_map_dump *d, uint64_t want)
{
        for (size_t i = 0; i < d->n_elements; i++) {
                uint64_t value = 0;

                CHECK_EQ(d->elements[i].n_value, sizeof(value));
                memcpy(&value, d->elements[i].value, sizeof(value));
                CHECK_EQ(value, want);
        }
}

/* Where an answer said to go on. */
static struct gpuobs_map_dump_params page_after(struct gpuobs_map_dump *d)
{
        struct gpuobs_map_dump_params p = first;

        CHECK(d->has_next && d->has_snapshot);
        p.has_from = true;
        p.from = d->next;
        p.has_snapshot = true;
        p.snapshot = d->snapshot;
        gpuobs_map_dump_free(d);
        return p;
}

static void is_refused(struct gpuobs *g, const struct gpuobs_map_dump_params *p)
{
        struct gpuobs_map_dump *d;

        CHECK(gpuobs_maps_dump(g, p, &d) < 0);
        CHECK_EQ(gpuobs_error(g)->number, GPUOBS_ERROR_BAD_PARAMS);
        CHECK(strstr(gpuobs_error(g)->detail, "snapshot"));
}

static void pages_are_of_one_reading(void)
{
        struct gpuobs *g = fixture_client(&f), *other = fixture_client(&f);
        struct gpuobs_map_dump *d = dump(g, &first);
        struct gpuobs_map_dump_params p;
        uint64_t reading = f.readings;
        size_t count = d->n_elements;

        check_values(d, reading);
        p = page_after(d);
        gpuobs_map_dump_free(dump(other, &first));
        CHECK_EQ(f.readings, reading + 1);
        while (p.has_from) {
                d = dump(g, &p);
                check_values(d, reading);
                CHECK_EQ(d->pid, 101);
                count += d->n_elements;
                if (d->has_next) {
                        p = page_after(d);
                        continue;
                }
                CHECK(!d->has_snapshot);
                gpuobs_map_dump_free(d);
                break;
        }
        CHECK_EQ(f.readings, reading + 1);
        CHECK_EQ(count, device_spread_copies(DEVICE_PER_WARP));
        is_refused(g, &p); /* the last page was read */
        gpuobs_free(other);
        gpuobs_free(g);
}

static void is_of_its_client_and_map(void)
{
        struct gpuobs *g = fixture_client(&f), *other = fixture_client(&f);
        struct gpuobs_map_dump_params p = page_after(dump(g, &first)), wrong = p;

        is_refused(other, &p);
        wrong.map = "kernels";
        is_refused(g, &wrong);
        gpuobs_map_dump_free(dump(g, &p));
        gpuobs_free(other);
        gpuobs_free(g);
}

static void a_client_has_two(void)
{
        struct gpuobs_map_dump_params p[KEPT_MAPS_PER_CONNECTION + 1];
        struct gpuobs *g = fixture_client(&f);

        for (size_t i = 0; i < KEPT_MAPS_PER_CONNECTION + 1; i++)
                p[i] = page_after(dump(g, &first));
        is_refused(g, &p[0]);
        for (size_t i = 1; i < KEPT_MAPS_PER_CONNECTION + 1; i++)
                gpuobs_map_dump_free(dump(g, &p[i]));
        gpuobs_free(g);
}

static void all_have_eight(void)
{
        struct gpuobs *clients[KEPT_MAPS_MAX + 1];
        struct gpuobs_map_dump_params p[KEPT_MAPS_MAX + 1];

        for (size_t i = 0; i < KEPT_MAPS_MAX + 1; i++) {
                clients[i] = fixture_client(&f);
                p[i] = page_after(dump(clients[i], &first));
        }
        is_refused(clients[0], &p[0]);
        gpuobs_map_dump_free(dump(clients[1], &p[1]));
        gpuobs_map_dump_free(dump(clients[KEPT_MAPS_MAX], &p[KEPT_MAPS_MAX]));
        for (size_t i = 0; i < KEPT_MAPS_MAX + 1; i++)
                gpuobs_free(clients[i]);
}

static void who_waits_long_has_none(void)
{
        struct gpuobs *g = fixture_client(&f);
        struct gpuobs_map_dump_params p = page_after(dump(g, &first));

        usleep((f.limits.snapshot_timeout_ms + 2500) * 1000);
        is_refused(g, &p);
        gpuobs_map_dump_free(dump(g, &first));
        gpuobs_free(g);
}

int main(int argc, char **argv)
{
        CHECK_EQ(argc, 2);
        fixture_init(&f);
        f.limits.snapshot_timeout_ms = 60000; /* whoever is not slow has it in time */
        if (!fixture_load_object(&f, argv[1]))
                test_skip("eBPF programs cannot be verified here");
        fixture_start(&f);
        TEST(pages_are_of_one_reading);
        TEST(is_of_its_client_and_map);
        TEST(a_client_has_two);
        TEST(all_have_eight);
        fixture_stop(&f);
        fixture_init(&f);
        f.limits.snapshot_timeout_ms = 2000;
        CHECK(fixture_load_object(&f, argv[1]));
        fixture_start(&f);
        TEST(who_waits_long_has_none);
        fixture_stop(&f);
        return 0;
}
