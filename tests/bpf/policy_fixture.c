/* SPDX-License-Identifier: Apache-2.0 */
#include "bpf/policy_fixture.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <unistd.h>

#include "unit/test.h"
#include "util/macro.h"

const char *fixture_policies;

void fixture_need_bpf(void)
{
        int fd = bpf_map_create(BPF_MAP_TYPE_ARRAY, "policy_test", 4, 4, 1, NULL);

        if (fd < 0)
                test_skip("eBPF needs root and a kernel that allows it");
        close(fd);
}

void *fixture_object(const char *name, size_t *ret_size)
{
        _cleanup_free_ char *path = NULL;
        const size_t room = 1 << 20;
        char *bytes = malloc(room);
        FILE *f;

        CHECK(bytes && asprintf(&path, "%s/%s.bpf.o", fixture_policies, name) > 0);
        f = fopen(path, "rbe");
        if (!f)
                fprintf(stderr, "%s: %s\n", path, strerror(errno));
        CHECK(f);
        *ret_size = fread(bytes, 1, room, f);
        CHECK(*ret_size > 0 && *ret_size < room);
        fclose(f);
        return bytes;
}

static void set(struct policy_engine *e, const char *name, char *setting)
{
        char *equals = strchr(setting, '='), error[200] = "";
        int r;

        CHECK(equals);
        *equals = '\0';
        r = policy_engine_set(e, name, setting, equals + 1, error, sizeof(error));
        if (r < 0)
                fprintf(stderr, "%s %s: %s\n", name, setting, error);
        CHECK_EQ(r, 0);
}

void fixture_load_limited(struct policy_engine *e, const char *text, int32_t precedence,
                          const struct policy_limits *limits)
{
        _cleanup_free_ char *copy = strdup(text);
        char *next = copy, *name = strsep(&next, " "), *word, error[400] = "";
        struct policy_options options = {.name = name, .precedence = precedence, .limits = *limits};
        _cleanup_free_ void *object = NULL;
        size_t size;
        int r;

        object = fixture_object(name, &size);
        r = policy_engine_load(e, &options, object, size, 0, error, sizeof(error));
        if (r < 0)
                fprintf(stderr, "%s: %s\n", name, error);
        CHECK_EQ(r, 0);
        while ((word = strsep(&next, " ")))
                set(e, name, word);
}

void fixture_load(struct policy_engine *e, const char *text, int32_t precedence)
{
        const struct policy_limits limits = {UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX};

        fixture_load_limited(e, text, precedence, &limits);
}

struct wanted {
        const char *name;
        struct policy_stats stats;
        enum policy_state state;
        uint64_t settings;
        char reason[POLICY_REASON_MAX];
        bool found;
};

static int look(void *data, const struct policy_info *info)
{
        struct wanted *w = data;

        if (strcmp(info->options->name, w->name) != 0)
                return 0;
        w->found = true;
        w->stats = *info->stats;
        w->state = info->state;
        w->settings = info->settings;
        snprintf(w->reason, sizeof(w->reason), "%s", info->reason);
        return 1;
}

static struct wanted want(const struct policy_engine *e, const char *name)
{
        struct wanted w = {.name = name};

        policy_engine_each(e, look, &w);
        CHECK(w.found);
        return w;
}

struct policy_stats fixture_stats(const struct policy_engine *e, const char *name)
{
        return want(e, name).stats;
}

enum policy_state fixture_state(const struct policy_engine *e, const char *name, char *ret_reason)
{
        struct wanted w = want(e, name);

        if (ret_reason)
                snprintf(ret_reason, POLICY_REASON_MAX, "%s", w.reason);
        return w.state;
}

uint64_t fixture_settings(const struct policy_engine *e, const char *name)
{
        return want(e, name).settings;
}
