/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Time slices on one of several GPUs, from what a policy asks for to the driver: the engine, the
 * worker's thread and the actuator with its journal, on a made-up RM that has a process with
 * channel groups on two GPUs. policy_slices_test DIRECTORY_OF_OBJECTS
 */
#include <errno.h>
#include <unistd.h>

#include "bpf/policy_fixture.h"
#include "policy/driver_actuator.h"
#include "policy/engine.h"
#include "policy/worker.h"
#include "unit/test.h"
#include "util/macro.h"

#define PATH    "policy_slices_test.journal"
#define PID     4711
#define TICKS   1234567
#define KEY     1
#define MANY    (ACTUATOR_GROUPS_MAX + 4)
#define OWN_US  2048
#define ALL     UINT64_MAX
#define SLICE   POLICY_ACTION_time_slice
#define PREEMPT POLICY_ACTION_preempt

/* Handles: a group's is its index and 1; devices and subdevices by GPU. */
#define DEVICE    0x1000u
#define SUBDEVICE 0x2000u

static const uint8_t boot[16] = {0xb0};
static const uint8_t uuids[3][16] = {{0xa0, 1}, {0xa1, 2}, {0xa2, 3}};

struct group {
        uint32_t gpu, seen; /* is on; was seen to be made on: 2 unknown */
        uint64_t slice_us;
        unsigned sets, reads, preempts;
        bool gone, failing;
        int reads_fail; /* that many, but for the first */
        int sets_fail;  /* that many, but for the first */
};

static struct group groups[MANY];
static size_t group_count;
static bool tells_gpu;      /* the driver does */
static bool has_subdevices; /* the process has made objects for them */

/* ---- the driver ---- */

static uint32_t group_control(struct group *g, uint32_t command, void *p)
{
        if (g->gone)
                return 0x57; /* NV_ERR_OBJECT_NOT_FOUND */
        switch (command) {
        case 0xa06c0103:
                if (g->failing || (g->sets && g->sets_fail && g->sets_fail--))
                        return 0xffff;
                memcpy(&g->slice_us, p, 8);
                g->sets++;
                return 0;
        case 0xa06c0104:
                if (g->reads++ && g->reads_fail && g->reads_fail--)
                        return 0xffff;
                memcpy(p, &g->slice_us, 8);
                return 0;
        case 0xa06c0105:
                g->preempts++;
                return 0;
        }
        return 0x1f;
}

/* Of the client, a device, a subdevice: what leads from a group to the GPU's UUID. */
static uint32_t other_control(uint32_t object, uint32_t command, char *p)
{
        uint32_t asked, length = 16, handle;
        uint64_t parent;

        if (!tells_gpu)
                return 0x56; /* NV_ERR_NOT_SUPPORTED */
        memcpy(&asked, p, 4);
        switch (command) {
        case 0xd02:
                CHECK(asked >= 1 && asked <= group_count);
                parent = DEVICE + groups[asked - 1].gpu;
                memcpy(p + 8, &parent, 8);
                return groups[asked - 1].gone ? 0x57 : 0;
        case 0x800293:
                if (!has_subdevices)
                        return 0x57;
                handle = SUBDEVICE + object - DEVICE;
                memcpy(p + 4, &handle, 4);
                return 0;
        case 0x2080014a:
                memcpy(p + 8, &length, 4);
                memcpy(p + 12, uuids[object - SUBDEVICE], 16);
                return 0;
        }
        return 0x1f;
}

/* NVOS54: object and command at 4 and 8, parameters at 16, status at 28. */
static int fake_ioctl(int fd, unsigned long request, void *argument)
{
        char *a = argument, *p;
        uint32_t object, command, status;

        memcpy(&object, a + 4, 4);
        memcpy(&command, a + 8, 4);
        memcpy(&p, a + 16, 8);
        if (object >= 1 && object <= group_count)
                status = group_control(&groups[object - 1], command, p);
        else
                status = other_control(object, command, p);
        memcpy(a + 28, &status, 4);
        return 0;
}

static int fake_close(int fd)
{
        return 0;
}

static int fake_pidfd_open(pid_t pid)
{
        return 1000;
}

static int fake_getfd(int pidfd, int fd)
{
        return 1001;
}

static int fake_ticks(pid_t pid, uint64_t *ret_ticks)
{
        *ret_ticks = TICKS;
        return 0;
}

static bool fake_alive(int pidfd)
{
        return true;
}

static bool fake_control(int fd)
{
        return true;
}

static int fake_list(pid_t pid, int *ret_fds, size_t max)
{
        return 0;
}

static const struct rm_system fake_rm = {.close = fake_close, .ioctl = fake_ioctl};
static const struct tsg_system fake_tsg = {.rm = &fake_rm,
                                           .pidfd_open = fake_pidfd_open,
                                           .pidfd_getfd = fake_getfd,
                                           .start_ticks = fake_ticks,
                                           .is_alive = fake_alive,
                                           .is_control = fake_control,
                                           .list_controls = fake_list};

/* ---- the daemon ---- */

struct world {
        struct policy_engine *engine;
        struct policy_worker *worker;
        struct undo_journal *journal;
        struct driver_actuator_options options;
        size_t not_undone;
};

static int find_process(void *data, uint32_t pid, uint64_t start_ticks,
                        struct actuator_process *process)
{
        for (uint32_t i = 0; i < group_count; i++) {
                struct tsg_target group = {.pid = PID,
                                           .start_ticks = TICKS,
                                           .fd = 9,
                                           .client = 0xc1d00001,
                                           .object = i + 1,
                                           .slice_us = OWN_US};

                if (groups[i].seen < 2)
                        memcpy(group.gpu, uuids[groups[i].seen], 16);
                CHECK_EQ(actuator_process_add(process, &group), 0);
        }
        return 0;
}

static int find_gpu(void *data, uint32_t number, uint8_t ret_uuid[16])
{
        if (number > 1)
                return -ENODEV; /* it uses one of which no more is known */
        memcpy(ret_uuid, uuids[number], 16);
        return 0;
}

static bool submit(void *data, const struct policy_order *order)
{
        struct world *w = data;

        return policy_worker_submit(w->worker, order);
}

static void hold(void *data, bool on)
{
        struct world *w = data;

        policy_worker_hold(w->worker, on);
}

static void on_result(void *data, const struct policy_result *result)
{
        struct world *w = data;

        policy_engine_done(w->engine, result);
}

static void flush(void *data)
{
        struct world *w = data;

        policy_worker_flush(w->worker, on_result, w);
}

static void on_not_undone(void *data, const char *policy, const struct policy_action *action,
                          int error)
{
        struct world *w = data;

        w->not_undone++;
}

static const struct policy_actuator_ops ops = {
        .submit = submit, .hold = hold, .not_undone = on_not_undone, .flush = flush};

/* A process on GPUs 0, 1 and 2, of which two are known. */
static void open_world(struct world *w)
{
        const struct policy_process p = {
                .key = KEY, .start_ticks = TICKS, .pid = PID, .gpu = 0, .comm = "both"};

        *w = (struct world){0};
        CHECK_EQ(undo_journal_open(&undo_io_default, PATH, boot, &w->journal), 0);
        w->options = (struct driver_actuator_options){.journal = w->journal,
                                                      .notes = actuator_notes_new(),
                                                      .tsg = &fake_tsg,
                                                      .process = find_process,
                                                      .gpu = find_gpu,
                                                      .data = w};
        CHECK_EQ(policy_worker_new(&driver_actuator_ops, &w->options, WORKER_LIMIT_NS, &w->worker),
                 0);
        w->engine = policy_engine_new(&ops, w);
        CHECK(w->engine);
        CHECK_EQ(policy_engine_process_start(w->engine, &p, 1), 0);
        policy_engine_process_gpu(w->engine, KEY, 1, 1);
        policy_engine_process_gpu(w->engine, KEY, 2, 1);
}

static void close_world(struct world *w)
{
        policy_engine_free(w->engine);
        policy_worker_free(w->worker);
        actuator_notes_free(w->options.notes);
        undo_journal_free(w->journal);
}

/* Groups on GPUs 0, 1, 0, 1. seen: the daemon saw on which they were made. */
static void begin(struct world *w, bool seen)
{
        unlink(PATH);
        group_count = 4;
        tells_gpu = has_subdevices = true;
        for (uint32_t i = 0; i < MANY; i++)
                groups[i] =
                        (struct group){.gpu = i % 2, .seen = seen ? i % 2 : 2, .slice_us = OWN_US};
        open_world(w);
}

static void load(struct world *w, const char *name, int32_t precedence, uint32_t gpu)
{
        const struct policy_options options = {.name = name,
                                               .precedence = precedence,
                                               .has_gpu = gpu < POLICY_GPUS_MAX,
                                               .gpu = gpu,
                                               .limits = {ALL, ALL, ALL, ALL}};
        _cleanup_free_ void *bytes = NULL;
        char error[400] = "";
        size_t size;

        bytes = fixture_object("policy_scripted", &size);
        if (policy_engine_load(w->engine, &options, bytes, size, 1, error, sizeof(error)) < 0)
                fprintf(stderr, "%s\n", error);
        CHECK_STR(error, "");
        CHECK_EQ(policy_engine_set(w->engine, name, "on", "8", error, sizeof(error)), 0);
}

static void set(struct world *w, const char *name, const char *variable, uint64_t value)
{
        char text[32], error[200] = "";

        snprintf(text, sizeof(text), "%" PRIu64, value);
        CHECK_EQ(policy_engine_set(w->engine, name, variable, text, error, sizeof(error)), 0);
}

/* Have a policy ask for it, and wait for what becomes of it. */
static void ask(struct world *w, const char *name, uint32_t kind, uint32_t to, uint64_t value)
{
        set(w, name, "kind", kind);
        set(w, name, "to", to);
        set(w, name, "process", KEY);
        set(w, name, "value", value);
        set(w, name, "on", POLICY_EVENT_tick);
        policy_engine_tick(w->engine, 2);
        set(w, name, "on", POLICY_EVENT_pressure);
        flush(w);
}

static uint64_t refused(struct world *w, const char *name, enum policy_refusal reason)
{
        return fixture_stats(w->engine, name).refused[reason];
}

static void unload(struct world *w, const char *name)
{
        CHECK_EQ(policy_engine_unload(w->engine, name), 0);
        flush(w);
}

static size_t journal_count(struct world *w)
{
        struct undo_entry entry;

        return undo_journal_list(w->journal, &entry, 1);
}

static void check_on(uint32_t gpu, uint64_t us)
{
        for (size_t i = 0; i < group_count; i++)
                if (groups[i].gpu == gpu)
                        CHECK_EQ(groups[i].slice_us, us);
}

static unsigned sets_on(uint32_t gpu)
{
        unsigned n = 0;

        for (size_t i = 0; i < group_count; i++)
                n += groups[i].gpu == gpu ? groups[i].sets : 0;
        return n;
}

/* ---- tests ---- */

/* A policy for a GPU, or an action that names one: nothing on the other is touched, ever. */
static void test_one_gpu(void)
{
        struct world w;

        for (int how = 0; how < 4; how++) {
                bool seen = how & 1, scoped = how & 2;
                uint32_t to = scoped ? 0 : POLICY_ON_GPU(1);

                begin(&w, seen);
                load(&w, "p", 0, scoped ? 1 : POLICY_GPUS_MAX);
                ask(&w, "p", SLICE, to, 8000);
                CHECK_EQ(fixture_stats(w.engine, "p").done, 1);
                CHECK_EQ(fixture_stats(w.engine, "p").missed, 0);
                check_on(1, 8000);
                CHECK_EQ(sets_on(1), 2);
                CHECK_EQ(journal_count(&w), 2);
                ask(&w, "p", SLICE, to, 4000);
                check_on(1, 4000);
                ask(&w, "p", PREEMPT, to, 0);
                CHECK(groups[1].preempts == 1 && groups[3].preempts == 1);
                CHECK_EQ(groups[0].preempts + groups[2].preempts, 0);

                /* Taken back by itself, and with the policy. */
                ask(&w, "p", SLICE, to, 0);
                check_on(1, OWN_US);
                CHECK_EQ(journal_count(&w), 0);
                ask(&w, "p", SLICE, to, 6000);
                unload(&w, "p");
                check_on(1, OWN_US);
                CHECK_EQ(journal_count(&w), 0);
                check_on(0, OWN_US);
                CHECK_EQ(sets_on(0), 0);
                CHECK_EQ(w.not_undone, 0);
                close_world(&w);
        }
}

/* Neither scope nor name: all of them. */
static void test_all_gpus(void)
{
        struct world w;

        begin(&w, true);
        load(&w, "p", 0, POLICY_GPUS_MAX);
        ask(&w, "p", SLICE, 0, 8000);
        check_on(0, 8000);
        check_on(1, 8000);
        CHECK_EQ(journal_count(&w), 4);
        ask(&w, "p", PREEMPT, 0, 0);
        for (size_t i = 0; i < group_count; i++)
                CHECK_EQ(groups[i].preempts, 1);
        unload(&w, "p");
        check_on(0, OWN_US);
        check_on(1, OWN_US);
        close_world(&w);
}

/* CUDA sets slices, and makes groups: renewed on that GPU, and by what is in force there. */
static void test_renewed(void)
{
        struct world w;

        begin(&w, true);
        group_count = 3;
        load(&w, "p", 0, 1);
        ask(&w, "p", SLICE, 0, 8000);
        groups[1].slice_us = OWN_US;
        policy_engine_slices_changed(w.engine, KEY, 0);
        flush(&w);
        CHECK_EQ(groups[1].slice_us, OWN_US);
        CHECK_EQ(fixture_stats(w.engine, "p").renewed, 0);
        group_count = 4; /* another on GPU 1 */
        policy_engine_slices_changed(w.engine, KEY, 1);
        flush(&w);
        check_on(1, 8000);
        CHECK_EQ(fixture_stats(w.engine, "p").renewed, 1);
        groups[3].slice_us = OWN_US;
        policy_engine_slices_changed(w.engine, KEY, POLICY_GPUS_MAX);
        flush(&w);
        check_on(1, 8000);
        CHECK_EQ(sets_on(0), 0);
        unload(&w, "p");
        check_on(1, OWN_US);
        close_world(&w);
}

/* One says what is on all GPUs, others what is on one: whoever goes leaves what the rest say. */
static void test_several_policies(void)
{
        static const char *const names[] = {"all", "zero", "one"};
        static const uint64_t us[] = {4000, 300, 500};

        for (int order = 0; order < 6; order++) {
                int first = order % 3, second = (first + 1 + order / 3) % 3;
                bool there[3] = {true, true, true};
                struct world w;

                begin(&w, order % 2);
                load(&w, "all", 0, POLICY_GPUS_MAX);
                load(&w, "zero", 1, 0);
                load(&w, "one", 1, 1);
                for (int i = 0; i < 3; i++)
                        ask(&w, names[i], SLICE, 0, us[i]);
                check_on(0, 300);
                check_on(1, 500);
                for (int i = 0; i < 3; i++) {
                        int gone = i == 0 ? first : i == 1 ? second : 3 - first - second;
                        unsigned sets[2] = {sets_on(0), sets_on(1)};

                        unload(&w, names[gone]);
                        if (gone) /* what is of the other GPU is left alone */
                                CHECK_EQ(sets_on(2 - (uint32_t)gone), sets[2 - gone]);
                        there[gone] = false;
                        check_on(0, there[1] ? us[1] : there[0] ? us[0] : OWN_US);
                        check_on(1, there[2] ? us[2] : there[0] ? us[0] : OWN_US);
                }
                CHECK_EQ(journal_count(&w), 0);
                close_world(&w);
        }
}

/* Of the same precedence: they contradict each other on a GPU that both are about alone. */
static void test_conflicts(void)
{
        struct world w;

        begin(&w, true);
        load(&w, "zero", 0, 0);
        load(&w, "one", 0, 1);
        load(&w, "all", 0, POLICY_GPUS_MAX);
        ask(&w, "zero", SLICE, 0, 300);
        ask(&w, "one", SLICE, 0, 500);
        CHECK_EQ(refused(&w, "one", POLICY_REFUSED_overruled), 0);
        ask(&w, "all", SLICE, 0, 4000);
        ask(&w, "all", SLICE, POLICY_ON_GPU(1), 4000);
        CHECK_EQ(refused(&w, "all", POLICY_REFUSED_overruled), 2);
        unload(&w, "one");
        ask(&w, "all", SLICE, POLICY_ON_GPU(1), 4000);
        check_on(0, 300);
        check_on(1, 4000);

        /* What it takes back of one GPU, it lets others have there. */
        ask(&w, "all", SLICE, POLICY_ON_GPU(1), 0);
        load(&w, "one", 0, 1);
        ask(&w, "one", SLICE, 0, 600);
        check_on(1, 600);
        close_world(&w);

        /* The rest of what holds on all stays claimed; who asks for the same is not overruled. */
        begin(&w, true);
        load(&w, "high", 2, 0);
        load(&w, "all", 1, POLICY_GPUS_MAX);
        load(&w, "one", 0, 1);
        ask(&w, "all", SLICE, 0, 4000);
        ask(&w, "high", SLICE, 0, 300);
        ask(&w, "one", SLICE, 0, 500);
        CHECK_EQ(refused(&w, "one", POLICY_REFUSED_overruled), 1);
        ask(&w, "one", SLICE, 0, 4000);
        CHECK_EQ(fixture_stats(w.engine, "one").done, 1);
        unload(&w, "all");
        check_on(0, 300);
        check_on(1, 4000);
        close_world(&w);
}

/* The same policy: what it says of all takes the place of what it said of one, also when taken
 * back. */
static void test_one_policy(void)
{
        struct world w;

        begin(&w, true);
        load(&w, "p", 0, POLICY_GPUS_MAX);
        ask(&w, "p", SLICE, 0, 4000);
        ask(&w, "p", SLICE, POLICY_ON_GPU(0), 300);
        check_on(0, 300);
        check_on(1, 4000);
        CHECK_EQ(fixture_settings(w.engine, "p"), 2);
        ask(&w, "p", SLICE, POLICY_ON_GPU(0), 0);
        check_on(0, 4000);
        ask(&w, "p", SLICE, POLICY_ON_GPU(1), 500);
        ask(&w, "p", SLICE, 0, 0);
        check_on(0, OWN_US);
        check_on(1, OWN_US);
        CHECK_EQ(fixture_settings(w.engine, "p"), 0);
        ask(&w, "p", SLICE, POLICY_ON_GPU(1), 500);
        ask(&w, "p", SLICE, 0, 6000);
        CHECK_EQ(fixture_settings(w.engine, "p"), 1);
        unload(&w, "p");
        check_on(1, OWN_US);
        CHECK_EQ(journal_count(&w), 0);
        close_world(&w);
}

/* A handle may be another group's by now: the driver is asked as it is acted on. */
static void test_handle_is_another(void)
{
        struct world w;

        begin(&w, true);
        groups[1].gpu = 0;
        load(&w, "p", 0, 1);
        ask(&w, "p", SLICE, 0, 8000);
        CHECK_EQ(groups[1].sets, 0);
        CHECK_EQ(groups[3].slice_us, 8000);
        unload(&w, "p");
        CHECK_EQ(groups[3].slice_us, OWN_US);
        CHECK_EQ(groups[1].slice_us, OWN_US);
        close_world(&w);
}

static void test_refused(void)
{
        struct world w;

        begin(&w, true);
        load(&w, "p", 0, 1);
        groups[1].failing = groups[3].failing = true;
        ask(&w, "p", SLICE, 0, 8000);
        CHECK_EQ(refused(&w, "p", POLICY_REFUSED_failed), 1);
        groups[3].failing = false;
        ask(&w, "p", SLICE, 0, 8000);
        CHECK_EQ(fixture_stats(w.engine, "p").missed, 1);
        CHECK_EQ(sets_on(0), 0);
        ask(&w, "p", SLICE, POLICY_ON_GPU(0), 8000);
        CHECK_EQ(refused(&w, "p", POLICY_REFUSED_foreign), 1);
        unload(&w, "p");
        check_on(1, OWN_US);

        /* No group on it; the GPU is not known. */
        group_count = 1;
        load(&w, "q", 0, POLICY_GPUS_MAX);
        ask(&w, "q", SLICE, POLICY_ON_GPU(1), 8000);
        ask(&w, "q", SLICE, POLICY_ON_GPU(2), 8000);
        CHECK_EQ(refused(&w, "q", POLICY_REFUSED_not_known), 2);
        ask(&w, "q", SLICE, POLICY_ON_GPU(3), 8000);
        CHECK_EQ(refused(&w, "q", POLICY_REFUSED_nonsense), 1);
        CHECK_EQ(sets_on(0), 0);
        close_world(&w);
}

/*
 * It was set, but cannot be read back: the action has failed, so nothing of it stays. Also where
 * that fails at first, or the group was set before.
 */
static void test_read_back_fails(void)
{
        struct world w;

        for (int sets_fail = 0; sets_fail < 2; sets_fail++)
                for (int before = 0; before < 2; before++) {
                        begin(&w, true);
                        group_count = 1;
                        load(&w, "p", 0, POLICY_GPUS_MAX);
                        if (before)
                                ask(&w, "p", SLICE, 0, 4000);
                        groups[0].reads = groups[0].sets = 0;
                        groups[0].reads_fail = 1;
                        groups[0].sets_fail = sets_fail;
                        ask(&w, "p", SLICE, 0, 8000);
                        CHECK_EQ(refused(&w, "p", POLICY_REFUSED_failed), 1);
                        check_on(0, before ? 4000 : OWN_US);
                        unload(&w, "p");
                        check_on(0, OWN_US);
                        CHECK_EQ(journal_count(&w), 0);
                        close_world(&w);
                }
}

/* A driver that does not tell of what GPU a group is: only what was seen being made is touched. */
static void test_driver_does_not_tell(void)
{
        struct world w;

        begin(&w, true);
        groups[3].seen = groups[2].seen = 2;
        tells_gpu = false;
        load(&w, "p", 0, 1);
        ask(&w, "p", SLICE, 0, 8000);
        CHECK_EQ(groups[1].slice_us, 8000);
        CHECK_EQ(groups[3].sets, 0);
        CHECK_EQ(sets_on(0), 0);
        CHECK_EQ(fixture_stats(w.engine, "p").missed, 2);
        unload(&w, "p");
        check_on(1, OWN_US);
        CHECK_EQ(w.not_undone, 0);
        close_world(&w);
}

/* That the driver knows of no subdevice does not mean that the group has gone. */
static void test_no_subdevice(void)
{
        struct world w;

        begin(&w, true);
        groups[3].seen = 2;
        has_subdevices = false;
        load(&w, "all", 0, POLICY_GPUS_MAX);
        load(&w, "one", 1, 1);
        ask(&w, "all", SLICE, 0, 8000);
        ask(&w, "one", SLICE, 0, 3000);
        CHECK_EQ(groups[1].slice_us, 3000);
        CHECK_EQ(groups[3].slice_us, 8000);
        CHECK_EQ(fixture_stats(w.engine, "one").missed, 1);
        CHECK_EQ(journal_count(&w), 4);
        unload(&w, "one");
        CHECK_EQ(groups[1].slice_us, 8000);
        unload(&w, "all");
        check_on(0, OWN_US);
        check_on(1, OWN_US);
        CHECK_EQ(journal_count(&w), 0);
        close_world(&w);
}

/* So many groups on one GPU do not hide those on another. */
static void test_many_groups(void)
{
        struct world w;

        begin(&w, true);
        group_count = MANY;
        for (size_t i = 0; i < MANY; i++)
                groups[i].gpu = groups[i].seen = i >= MANY - 2;
        load(&w, "p", 0, 1);
        ask(&w, "p", SLICE, 0, 8000);
        check_on(1, 8000);
        CHECK_EQ(fixture_stats(w.engine, "p").missed, 0);
        CHECK_EQ(sets_on(0), 0);
        close_world(&w);
}

/* The daemon is killed: the next one sets back what was set on the GPU, and no more. */
static void test_killed(void)
{
        struct undo_entry entries[8];
        struct world w, next;
        size_t n;

        begin(&w, true);
        load(&w, "one", 1, 1);
        ask(&w, "one", SLICE, 0, 500);
        undo_journal_shut(w.journal); /* from here on nothing it does is noted */
        open_world(&next);
        n = undo_journal_list(next.journal, entries, ARRAY_SIZE(entries));
        CHECK_EQ(n, 2);
        for (size_t i = 0; i < n; i++) {
                CHECK(memcmp(entries[i].uuid, uuids[1], 16) == 0);
                CHECK_EQ(driver_actuator_undo(&next.options, &entries[i]), 0);
        }
        check_on(1, OWN_US);
        CHECK_EQ(sets_on(0), 0);
        CHECK_EQ(journal_count(&next), 0);
        close_world(&next);
        close_world(&w);
}

static int read_to(void *data, const struct policy_variable *v)
{
        if (strcmp(v->name, "last_refused_to") != 0)
                return 0;
        *(uint64_t *)data = strtoull(v->value, NULL, 10);
        return 1;
}

/* A refusal is told with the GPU, so that it can be asked for again as it was. */
static void test_refusal_is_told(void)
{
        uint64_t to = 0;
        struct world w;

        begin(&w, true);
        load(&w, "p", 0, 1);
        groups[1].failing = groups[3].failing = true;
        ask(&w, "p", SLICE, 0, 7000);
        policy_engine_tick(w.engine, 3);
        CHECK_EQ(policy_engine_variables(w.engine, "p", read_to, &to), 0);
        CHECK_EQ(to, POLICY_ON_GPU(1));
        close_world(&w);
}

int main(int argc, char **argv)
{
        CHECK(argc == 2);
        fixture_policies = argv[1];
        fixture_need_bpf();
        TEST(test_one_gpu);
        TEST(test_all_gpus);
        TEST(test_renewed);
        TEST(test_several_policies);
        TEST(test_conflicts);
        TEST(test_one_policy);
        TEST(test_handle_is_another);
        TEST(test_refused);
        TEST(test_read_back_fails);
        TEST(test_driver_does_not_tell);
        TEST(test_no_subdevice);
        TEST(test_many_groups);
        TEST(test_killed);
        TEST(test_refusal_is_told);
        unlink(PATH);
        return 0;
}
