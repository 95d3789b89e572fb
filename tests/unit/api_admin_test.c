/* SPDX-License-Identifier: Apache-2.0 */

/* What administrators may change through the API, and that nobody else may. */
#include <errno.h>
#include <unistd.h>

#include "libclient/gpuobs.h"
#include "unit/api_fixture.h"
#include "unit/test.h"

static struct fixture f;

/* Looks at the setting in all settings. */
static void check_setting(struct gpuobs *g, const char *name, const char *value)
{
        struct gpuobs_settings *all;
        bool found = false;

        CHECK_EQ(gpuobs_settings_get(g, NULL, &all), 0);
        CHECK_EQ(all->n_settings, config_setting_count);
        for (size_t i = 0; i < all->n_settings; i++) {
                if (strcmp(all->settings[i].name, name) != 0)
                        continue;
                CHECK_STR(all->settings[i].value, value);
                CHECK(all->settings[i].doc[0]);
                found = true;
        }
        CHECK(found);
        gpuobs_settings_free(all);
}

static void settings_are_told_and_changed(void)
{
        struct gpuobs *g = fixture_client(&f);
        struct gpuobs_set_params p = {.name = "retention_age", .value = "48h"};
        struct gpuobs_set_result *r;

        check_setting(g, "retention_age", "7d");
        CHECK_EQ(gpuobs_settings_set(g, &p, &r), 0);
        CHECK_STR(r->setting.name, "retention_age");
        CHECK_STR(r->setting.value, "2d");
        CHECK(r->setting.run_time);
        gpuobs_set_result_free(r);
        check_setting(g, "retention_age", "2d");
        gpuobs_free(g);
}

static void mistakes_are_explained(void)
{
        struct gpuobs *g = fixture_client(&f);
        struct gpuobs_set_params p = {.name = "retention_age", .value = "yesterday"};
        struct gpuobs_set_result *r;

        CHECK_EQ(gpuobs_settings_set(g, &p, &r), -EINVAL);
        CHECK_STR(gpuobs_error(g)->code, "bad_params");
        CHECK(strstr(gpuobs_error(g)->detail, "a time such as"));
        p = (struct gpuobs_set_params){.name = "colour", .value = "red"};
        CHECK_EQ(gpuobs_settings_set(g, &p, &r), -EINVAL);
        CHECK(strstr(gpuobs_error(g)->detail, "no setting \"colour\""));
        gpuobs_free(g);
}

static void store_is_flushed_and_pruned(void)
{
        struct gpuobs *g = fixture_client(&f);
        struct gpuobs_prune_params p = {.older_than_s = 77, .has_sums = true, .sums = true};
        struct gpuobs_flushed *flushed;
        struct gpuobs_pruned *pruned;

        CHECK_EQ(gpuobs_store_flush(g, NULL, &flushed), 0);
        CHECK_EQ(flushed->launches, 1234);
        gpuobs_flushed_free(flushed);
        CHECK_EQ(gpuobs_store_prune(g, &p, &pruned), 0);
        CHECK_EQ(pruned->launches, 1077);
        gpuobs_pruned_free(pruned);
        p.has_sums = false;
        CHECK_EQ(gpuobs_store_prune(g, &p, &pruned), 0);
        CHECK_EQ(pruned->launches, 77);
        gpuobs_pruned_free(pruned);
        p.older_than_s = UINT64_MAX / 2;
        CHECK_EQ(gpuobs_store_prune(g, &p, &pruned), -EINVAL);
        gpuobs_free(g);
}

static void trouble_of_the_writer_is_told(void)
{
        struct gpuobs *g = fixture_client(&f);
        struct gpuobs_flushed *flushed;

        fake_store_error = -ENOSPC;
        CHECK_EQ(gpuobs_store_flush(g, NULL, &flushed), -EIO);
        CHECK_STR(gpuobs_error(g)->code, "store_failed");
        CHECK_STR(gpuobs_error(g)->detail, "disk full");
        fake_store_error = 0;
        gpuobs_free(g);
}

static void on_flushed(void *data, int error, const struct gpuobs_flushed *result)
{
}

/* A worker waits for the disk; everybody else is answered meanwhile. */
static void waiting_holds_nobody_up(void)
{
        struct gpuobs *g = fixture_client(&f), *other = fixture_client(&f);
        struct gpuobs_flushed *flushed;
        struct gpuobs_settings *all;
        struct gpuobs_call *call;

        fake_store_turn = fake_store_let_go + 1;
        fake_store_waiting = 0;
        CHECK_EQ(gpuobs_store_flush_async(g, NULL, on_flushed, NULL, &call), 0);
        while (!fake_store_waiting)
                usleep(1000);
        fake_store_turn = 0; /* for others */
        CHECK_EQ(gpuobs_settings_get(other, NULL, &all), 0);
        gpuobs_settings_free(all);
        CHECK_EQ(gpuobs_store_flush(other, NULL, &flushed), 0); /* by the other worker */
        gpuobs_flushed_free(flushed);
        fake_store_let_go++;
        gpuobs_free(other);
        gpuobs_free(g);
}

/* ---- who may ---- */

static void may_not_change(struct fixture *fx)
{
        struct gpuobs *g = fixture_client(&f);
        struct gpuobs_set_params set = {.name = "retention_age", .value = "1s"};
        struct gpuobs_prune_params all = {0};
        struct gpuobs_set_result *r;
        struct gpuobs_flushed *flushed;
        struct gpuobs_pruned *pruned;

        CHECK_EQ(gpuobs_settings_set(g, &set, &r), -EPERM);
        CHECK_STR(gpuobs_error(g)->code, "permission_denied");
        CHECK_EQ(gpuobs_store_flush(g, NULL, &flushed), -EPERM);
        CHECK_EQ(gpuobs_store_prune(g, &all, &pruned), -EPERM);
        check_setting(g, "retention_age", "2d"); /* may look, and it is as it was */
        gpuobs_free(g);
}

static void may_change(struct fixture *fx)
{
        struct gpuobs *g = fixture_client(&f);
        struct gpuobs_set_params set = {.name = "poll_ms", .value = "7"};
        struct gpuobs_set_result *r;

        CHECK_EQ(gpuobs_settings_set(g, &set, &r), 0);
        gpuobs_set_result_free(r);
        gpuobs_free(g);
}

static void only_administrators_change_things(void)
{
        fixture_as(&f, FIXTURE_UID, 65534, may_not_change);
        fixture_as(&f, 12345, 65534, may_not_change);
        fixture_as(&f, 12345, FIXTURE_GID, may_change);
        fixture_as(&f, 0, 65534, may_change);
}

static void checks_are_told_to_all(struct fixture *fx)
{
        struct gpuobs_doctor *d;
        struct gpuobs *g = NULL;

        CHECK_EQ(gpuobs_connect(fx->path, 10000, &g), 0);
        CHECK_EQ(gpuobs_doctor_get(g, NULL, &d), 0);
        CHECK_EQ(d->n_checks, 2);
        CHECK(d->checks[0].state == GPUOBS_CHECK_STATE_OK && !d->checks[0].advice);
        CHECK_STR(d->checks[0].finding, "it works");
        CHECK_STR(d->checks[1].name, "bad");
        CHECK_STR(d->checks[1].advice, "Do something.");
        CHECK_EQ(d->checks[1].state, GPUOBS_CHECK_STATE_BROKEN);
        gpuobs_doctor_free(d);
        gpuobs_free(g);
}

static void what_works_is_told(void)
{
        checks_are_told_to_all(&f);
        fixture_as(&f, FIXTURE_UID, 65534, checks_are_told_to_all);
}

int main(void)
{
        if (geteuid() != 0)
                test_skip("changing user ids needs root");
        fixture_init(&f);
        fixture_start(&f);
        TEST(settings_are_told_and_changed);
        TEST(mistakes_are_explained);
        TEST(store_is_flushed_and_pruned);
        TEST(trouble_of_the_writer_is_told);
        TEST(what_works_is_told);
        TEST(only_administrators_change_things);
        TEST(waiting_holds_nobody_up);
        fixture_stop(&f);
        return 0;
}
