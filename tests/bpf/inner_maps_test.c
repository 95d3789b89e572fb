/* SPDX-License-Identifier: Apache-2.0 */

/* Elements of a map of maps of this kernel's, more of them changed at a time than there are
 * threads. */
#include <bpf/bpf.h>
#include <errno.h>
#include <unistd.h>

#include "probe/inner_maps.h"
#include "unit/test.h"

#define KEYS 40

static struct inner_maps *maps;
static int outer;

static int new_inner(void)
{
        int fd = bpf_map_create(BPF_MAP_TYPE_ARRAY, "inner", 4, 8, 1, NULL);

        CHECK(fd >= 0);
        return fd;
}

static uint32_t id_of(int fd)
{
        struct bpf_map_info info = {0};
        uint32_t size = sizeof(info);

        CHECK_EQ(bpf_obj_get_info_by_fd(fd, &info, &size), 0);
        return info.id;
}

/* The id of the map in there, 0 none. */
static uint32_t there(uint32_t key)
{
        uint32_t id = 0;

        return bpf_map_lookup_elem(outer, &key, &id) < 0 ? 0 : id;
}

static bool exists(uint32_t id)
{
        int fd = bpf_map_get_fd_by_id(id);

        if (fd >= 0)
                close(fd);
        return fd >= 0;
}

static void in_force_at_once(void)
{
        int inner[2] = {new_inner(), new_inner()};

        for (int turn = 0; turn < 3; turn++) {
                for (uint32_t key = 0; key < KEYS; key++) {
                        CHECK_EQ(inner_maps_set(maps, outer, key, inner[key % 2]), 0);
                        CHECK_EQ(there(key), id_of(inner[key % 2]));
                }
                /* The same again, and another one in its place. */
                CHECK_EQ(inner_maps_set(maps, outer, 0, inner[0]), 0);
                CHECK_EQ(inner_maps_set(maps, outer, 0, inner[1]), 0);
                CHECK_EQ(there(0), id_of(inner[1]));
                for (uint32_t key = 0; key < KEYS; key++) {
                        CHECK_EQ(inner_maps_remove(maps, outer, key), 0);
                        CHECK_EQ(there(key), 0);
                        CHECK_EQ(inner_maps_remove(maps, outer, key), -ENOENT);
                }
                inner_maps_settle(maps, KEYS - 1);
                inner_maps_settle(maps, KEYS + 1); /* nothing of it is under way */
        }
        close(inner[0]);
        close(inner[1]);
}

static void what_cannot_be(void)
{
        int inner = new_inner(),
            other = bpf_map_create(BPF_MAP_TYPE_ARRAY, "other", 4, 16, 1, NULL);

        CHECK(other >= 0);
        CHECK(inner_maps_set(maps, outer, 1, other) < 0); /* not what the map of maps holds */
        CHECK(inner_maps_set(maps, outer, 1, -1) < 0);
        CHECK_EQ(there(1), 0);
        for (uint32_t key = 0; key < KEYS; key++)
                CHECK_EQ(inner_maps_set(maps, outer, key, inner), 0);
        CHECK_EQ(inner_maps_set(maps, outer, KEYS, inner), -E2BIG);
        for (uint32_t key = 0; key < KEYS; key++)
                CHECK_EQ(inner_maps_remove(maps, outer, key), 0);
        close(other);
        close(inner);
}

/* Whoever may still look at a map that was taken out has it, and nobody keeps it after that. */
static void nothing_is_kept(void)
{
        int inner = new_inner();
        uint32_t id = id_of(inner);

        CHECK_EQ(inner_maps_set(maps, outer, 7, inner), 0);
        close(inner);
        CHECK(exists(id));
        CHECK_EQ(inner_maps_remove(maps, outer, 7), 0);
        inner_maps_settle(maps, 7);
        for (int i = 0; i < 5000 && exists(id); i++)
                usleep(1000);
        CHECK(!exists(id));
        /* With a change under way. */
        inner = new_inner();
        CHECK_EQ(inner_maps_set(maps, outer, 7, inner), 0);
        maps = inner_maps_free(maps);
        CHECK_EQ(there(7), id_of(inner));
        close(inner);
        CHECK(!inner_maps_free(NULL));
}

int main(void)
{
        LIBBPF_OPTS(bpf_map_create_opts, options);
        int inner;

        if (geteuid() != 0)
                test_skip("eBPF needs root");
        inner = new_inner();
        options.inner_map_fd = (uint32_t)inner;
        outer = bpf_map_create(BPF_MAP_TYPE_HASH_OF_MAPS, "outer", 4, 4, KEYS, &options);
        CHECK(outer >= 0);
        close(inner);
        CHECK_EQ(inner_maps_new(&maps), 0);
        TEST(in_force_at_once);
        TEST(what_cannot_be);
        TEST(nothing_is_kept);
        close(outer);
        return 0;
}
