/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The policy engine with an actuator that records: what policies are told, what
 * they may ask for, who wins, what happens to those that misbehave, and that
 * everything is undone and accounted whatever comes in between.
 *      policy_engine_test DIRECTORY_OF_OBJECTS [SOURCE OBJECT]...
 */
#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bpf/policy_fixture.h"
#include "policy/targets.h"
#include "unit/test.h"
#include "util/macro.h"
#include "util/time.h"

#define MIB  (1ull << 20)
#define BASE 0x700000000000ull
#define ALL  UINT64_MAX

/* ---- the recording actuator ---- */

#define ORDERS_KEPT 8192

struct recorder {
        struct policy_engine *engine;
        struct policy_order orders[ORDERS_KEPT]; /* all, in order */
        size_t count;
        size_t answered;     /* of these */
        bool deferred;       /* results come when asked for */
        bool full;           /* takes nothing */
        int error;           /* of results */
        bool in_part;        /* and of what failed some is in force */
        const char *failing; /* policy whose orders fail, whatever error says */
        size_t not_undone;
        size_t flushes;
        uint64_t slices[64]; /* of process keys below 64: time slice in force on GPU 0 */
        uint64_t others[64]; /* and on GPU 1 */
        uint64_t paces[64];
        bool has_two[64];  /* it has channel groups on both */
        uint64_t sticking; /* key of a process for which the driver does not return; 0: none */
        struct policy_order stuck; /* the order it is at; id 0: none */
        size_t stuck_told, returned_told;
        bool held; /* a policy runs */
        size_t held_orders;
};

static struct recorder recorder;

/* As the worker does: the first order for the process is given up, those after it are refused. */
static bool sticks(struct recorder *r, const struct policy_order *o, struct policy_result *result)
{
        if (!r->sticking || o->action.process != r->sticking)
                return false;
        result->error = -EINPROGRESS;
        result->given_up = !r->stuck.id;
        if (!r->stuck.id)
                r->stuck = *o;
        return true;
}

static void carry_out(struct recorder *r, const struct policy_order *o,
                      struct policy_result *result);

static void answer(struct recorder *r)
{
        const struct policy_order *o = &r->orders[r->answered++ % ORDERS_KEPT];
        struct policy_result result = {.id = o->id, .error = r->error};

        if (!sticks(r, o, &result))
                carry_out(r, o, &result);
        policy_engine_done(r->engine, &result);
}

/* The driver returns: what it was at took effect, and the process can be acted on again. */
static void come_back(struct recorder *r)
{
        struct policy_result result = {.id = r->stuck.id, .error = r->error, .late = true};

        carry_out(r, &r->stuck, &result);
        r->sticking = r->stuck.id = 0;
        policy_engine_done(r->engine, &result);
}

/* As the driver's actuator does it: on two GPUs each gets back what is noted of it. */
static void set_value(struct recorder *r, const struct policy_order *o,
                      struct policy_result *result)
{
        uint64_t key = o->action.process;
        uint64_t value = o->undo && (o->noted || r->has_two[key]) ? 2048 : o->action.value;

        if (o->action.kind == POLICY_ACTION_pace)
                r->paces[key] = o->action.value;
        if (o->action.kind != POLICY_ACTION_time_slice)
                return;
        result->before = o->action.to == POLICY_ON_GPU(1) ? r->others[key] : r->slices[key];
        if (o->action.to != POLICY_ON_GPU(1))
                r->slices[key] = value;
        if (o->action.to != POLICY_ON_GPU(0))
                r->others[key] = value;
}

static void carry_out(struct recorder *r, const struct policy_order *o,
                      struct policy_result *ret_result)
{
        struct policy_result result = *ret_result;

        if (r->failing && strcmp(o->owner, r->failing) == 0)
                result.error = -EIO;
        result.in_part = result.error < 0 && r->in_part && !o->undo;
        if (result.error == 0 && o->action.kind == POLICY_ACTION_migrate)
                result.bytes = o->action.bytes;
        if ((result.error == 0 || result.in_part) && o->action.process < 64)
                set_value(r, o, &result);
        *ret_result = result;
}

static bool submit(void *data, const struct policy_order *order)
{
        struct recorder *r = data;

        if (r->full)
                return false;
        r->held_orders += r->held;
        r->orders[r->count++ % ORDERS_KEPT] = *order;
        if (!r->deferred)
                answer(r);
        return true;
}

static void flush(void *data)
{
        struct recorder *r = data;

        r->flushes++;
        while (r->answered < r->count)
                answer(r);
}

static void not_undone(void *data, const char *policy, const struct policy_action *action,
                       int error)
{
        struct recorder *r = data;

        CHECK(*policy && action->kind != POLICY_ACTION_migrate && error < 0);
        r->not_undone++;
}

static void stuck(void *data, const char *policy, const struct policy_action *action, uint32_t pid,
                  bool returned)
{
        struct recorder *r = data;

        CHECK(*policy && action->process == r->stuck.action.process && pid == r->stuck.pid);
        r->stuck_told += !returned;
        r->returned_told += returned;
}

static void hold(void *data, bool on)
{
        struct recorder *r = data;

        CHECK(r->held != on);
        r->held = on;
}

static const struct policy_actuator_ops recorder_ops = {
        .submit = submit, .hold = hold, .not_undone = not_undone, .stuck = stuck, .flush = flush};

/* ---- a small world ---- */

static const struct policy_order *last_order(void)
{
        CHECK(recorder.count > 0);
        return &recorder.orders[(recorder.count - 1) % ORDERS_KEPT];
}

static void add_process(struct policy_engine *e, uint64_t key, const char *comm, const char *cgroup)
{
        struct policy_process p = {.key = key,
                                   .start_ticks = 1000 + key,
                                   .pid = (uint32_t)(100 + key),
                                   .comm = comm,
                                   .cgroup = cgroup};

        if (key < 64)
                recorder.slices[key] = recorder.others[key] = 2048;
        CHECK_EQ(policy_engine_process_start(e, &p, 1), 0);
}

/* Process 1 with 64 MiB at BASE. */
static struct policy_engine *world(void)
{
        struct policy_engine *e = policy_engine_new(&recorder_ops, &recorder);

        CHECK(e);
        recorder = (struct recorder){.engine = e};
        add_process(e, 1, "trainer", "/jobs/train");
        policy_engine_alloc(e, 1, BASE, 64 * MIB, 1);
        return e;
}

static int load_as(struct policy_engine *e, const char *object, struct policy_options options,
                   char *error, size_t error_size)
{
        _cleanup_free_ void *bytes = NULL;
        size_t size;

        bytes = fixture_object(object, &size);
        return policy_engine_load(e, &options, bytes, size, 1, error, error_size);
}

static void load(struct policy_engine *e, struct policy_options options)
{
        char error[400] = "";
        int r = load_as(e, "policy_scripted", options, error, sizeof(error));

        if (r < 0)
                fprintf(stderr, "%s\n", error);
        CHECK_EQ(r, 0);
}

static void load_named(struct policy_engine *e, const char *name, int32_t precedence)
{
        load(e, (struct policy_options){
                        .name = name, .precedence = precedence, .limits = {ALL, ALL, ALL, ALL}});
}

static void set(struct policy_engine *e, const char *name, const char *variable, uint64_t value)
{
        char text[32], error[200] = "";

        snprintf(text, sizeof(text), "%" PRIu64, value);
        CHECK_EQ(policy_engine_set(e, name, variable, text, error, sizeof(error)), 0);
}

struct reading {
        const char *name;
        char value[256];
};

static int read_one(void *data, const struct policy_variable *v)
{
        struct reading *r = data;

        if (strcmp(v->name, r->name) != 0)
                return 0;
        snprintf(r->value, sizeof(r->value), "%s", v->value);
        return 1;
}

/* A variable of a policy as text. */
static const char *get(struct policy_engine *e, const char *name, const char *variable)
{
        static struct reading r;

        r = (struct reading){.name = variable};
        CHECK_EQ(policy_engine_variables(e, name, read_one, &r), 0);
        return r.value;
}

/* Ask for one action on the next tick. */
static void ask(struct policy_engine *e, const char *name, struct policy_action a)
{
        set(e, name, "kind", a.kind);
        set(e, name, "to", a.to);
        set(e, name, "process", a.process);
        set(e, name, "address", a.address);
        set(e, name, "bytes", a.bytes);
        set(e, name, "value", a.value);
}

static uint64_t refused(const struct policy_stats *s)
{
        uint64_t n = 0;

        for (int i = 0; i < POLICY_REFUSED_COUNT; i++)
                n += s->refused[i];
        return n;
}

static void check_account(const struct policy_stats *s)
{
        CHECK_EQ(s->asked, s->done + refused(s) + s->waiting);
}

/* ---- loading ---- */

static char **bad_objects;
static int bad_count;

/* "/\* EXPECT: text *\/" of a source. */
static void read_expectation(const char *path, char *text, size_t size)
{
        _cleanup_fclose_ FILE *f = fopen(path, "re");
        char line[300], *from, *to;

        CHECK(f);
        while (fgets(line, sizeof(line), f)) {
                from = strstr(line, "EXPECT: ");
                to = from ? strstr(from, " */") : NULL;
                if (!to)
                        continue;
                *to = '\0';
                snprintf(text, size, "%s", from + 8);
                return;
        }
        CHECK(!"the source says what is expected");
}

static void test_bad_objects(void)
{
        struct policy_engine *e = world();

        CHECK(bad_count >= 26);
        for (int i = 0; i + 1 < bad_count; i += 2) {
                const struct policy_options options = {.name = "bad"};
                char expected[200], error[400] = "", bytes[65536];
                FILE *f = fopen(bad_objects[i + 1], "rbe");
                size_t size;

                CHECK(f);
                size = fread(bytes, 1, sizeof(bytes), f);
                fclose(f);
                read_expectation(bad_objects[i], expected, sizeof(expected));
                if (policy_engine_load(e, &options, bytes, size, 1, error, sizeof(error)) == 0)
                        fprintf(stderr, "%s was loaded\n", bad_objects[i]);
                if (!strstr(error, expected))
                        fprintf(stderr, "%s: \"%s\" is not \"%s\"\n", bad_objects[i], error,
                                expected);
                CHECK(strstr(error, expected));
        }
        policy_engine_free(e);
}

/* Objects cut short or with bytes changed load or are refused with a sentence. */
static void test_damaged_objects(void)
{
        struct policy_engine *e = world();
        const struct policy_options options = {.name = "damaged"};
        _cleanup_free_ char *bytes = NULL;
        uint64_t seed = 7;
        size_t size;

        bytes = fixture_object("policy_scripted", &size);
        for (int i = 0; i < 300; i++) {
                _cleanup_free_ char *copy = malloc(size);
                size_t cut = i % 3 ? size : test_random(&seed) % size;
                char error[400] = "";
                int r;

                CHECK(copy);
                memcpy(copy, bytes, size);
                for (int k = 0; k < 4; k++)
                        copy[test_random(&seed) % size] = (char)test_random(&seed);
                r = policy_engine_load(e, &options, copy, cut, 1, error, sizeof(error));
                CHECK(r == 0 || error[0]);
                if (r == 0)
                        CHECK_EQ(policy_engine_unload(e, "damaged"), 0);
        }
        policy_engine_free(e);
}

static void test_names(void)
{
        static const char *const bad[] = {"", "a b", "../x", "ä",
                                          "a-name-that-is-longer-than-it-may-be"};
        struct policy_engine *e = world();
        char error[400];

        for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
                CHECK_EQ(load_as(e, "policy_scripted", (struct policy_options){.name = bad[i]},
                                 error, sizeof(error)),
                         -EINVAL);
        load_named(e, "one", 0);
        CHECK_EQ(load_as(e, "policy_scripted", (struct policy_options){.name = "one"}, error,
                         sizeof(error)),
                 -EEXIST);
        CHECK_EQ(policy_engine_unload(e, "two"), -ENOENT);
        CHECK_EQ(policy_engine_disable(e, "two"), -ENOENT);
        CHECK_EQ(policy_engine_unload(e, "one"), 0);
        policy_engine_free(e);
}

/* ---- parameters ---- */

static int try_set(struct policy_engine *e, const char *variable, const char *value)
{
        char error[200] = "";
        int r = policy_engine_set(e, "p", variable, value, error, sizeof(error));

        CHECK(r == 0 || error[0]);
        return r;
}

static void test_variables(void)
{
        struct policy_engine *e = world();

        load_named(e, "p", 0);
        CHECK_EQ(try_set(e, "repeat", "12"), 0);
        CHECK_STR(get(e, "p", "repeat"), "12");
        CHECK_EQ(try_set(e, "repeat", "1000001"), -ERANGE);
        CHECK_EQ(try_set(e, "repeat", "-1"), -EINVAL);
        CHECK_EQ(try_set(e, "repeat", "4294967296"), -EINVAL);
        CHECK_EQ(try_set(e, "repeat", "12x"), -EINVAL);
        CHECK_EQ(try_set(e, "repeat", ""), -EINVAL);
        CHECK_EQ(try_set(e, "repeat[0]", "1"), -EINVAL);
        CHECK_STR(get(e, "p", "repeat"), "12");
        CHECK_EQ(try_set(e, "answer", "-7"), 0);
        CHECK_STR(get(e, "p", "answer"), "-7");
        CHECK_EQ(try_set(e, "value", "18446744073709551615"), 0);
        CHECK_STR(get(e, "p", "value"), "18446744073709551615");
        CHECK_EQ(try_set(e, "nothing", "1"), -ENOENT);
        CHECK_EQ(try_set(e, "policy_abi", "2"), -ENOENT); /* read-only memory */
        CHECK_EQ(try_set(e, "numbers[1]", "15"), 0);
        CHECK_EQ(try_set(e, "numbers[1]", "21"), -ERANGE);
        CHECK_EQ(try_set(e, "numbers[3]", "15"), -EINVAL);
        CHECK_EQ(try_set(e, "numbers", "15"), -EINVAL);
        CHECK_EQ(try_set(e, "numbers[", "15"), -ENOENT);
        CHECK_STR(get(e, "p", "numbers"), "0,15,0");
        CHECK_EQ(try_set(e, "words[1]", "/jobs/*"), 0);
        CHECK_STR(get(e, "p", "words"), ",/jobs/*");
        CHECK_EQ(try_set(e, "words[0]",
                         "0123456789012345678901234567890123456789012345678901234567890123"),
                 -EINVAL);
        policy_engine_free(e);
}

/* ---- events and scopes ---- */

static void test_events(void)
{
        struct policy_range ranges[600] = {{.address = BASE + 4096, .bytes = 4096}};
        struct policy_fault fault = {.address = BASE};
        struct policy_moved moved = {.address = BASE, .bytes = 2 * MIB};
        struct policy_share share = {.process = 1, .active_ns = 5, .period_ns = 10};
        struct policy_engine *e = world();

        load_named(e, "p", 0);
        CHECK_STR(get(e, "p", "seen"), "1,0,1,0,0,0,0,0,0,0,0"); /* told of what was there */
        policy_engine_memory(e, 0, 100, 40);
        policy_engine_launches(e, 1, 0, 3, 2, ranges, ARRAY_SIZE(ranges), 2);
        policy_engine_faults(e, 1, &fault, 1, 2);
        policy_engine_moved(e, 1, &moved, 1, 2);
        policy_engine_shares(e, POLICY_GPUS_MAX, &share, 1, 2);
        policy_engine_pressure(e, 0, 2);
        policy_engine_tick(e, 2);
        policy_engine_freed(e, 1, BASE, 2);
        policy_engine_freed(e, 1, BASE, 2); /* gone already: no event */
        policy_engine_faults(e, 77, &fault, 1, 2);
        policy_engine_process_exit(e, 1, 2);
        policy_engine_process_exit(e, 1, 2);
        CHECK_STR(get(e, "p", "seen"), "1,1,1,1,2,1,1,1,1,1,0");
        CHECK_STR(get(e, "p", "seen_items"), "0,0,1,1,600,1,1,1,0,0,0");
        CHECK_STR(get(e, "p", "last_free"), "40");
        CHECK_EQ(fixture_stats(e, "p").runs, 11);
        CHECK_EQ(fixture_stats(e, "p").events, 600 + 9);
        policy_engine_free(e);
}

/* What was ordered, against what the driver was seen to move. */
static void test_moves_are_seen(void)
{
        struct policy_moved moved = {.address = BASE + MIB,
                                     .bytes = 2 * MIB,
                                     .cause = POLICY_BY_REQUEST,
                                     .from = POLICY_FROM_HOST};
        struct policy_engine *e = world();

        load_named(e, "p", 0);
        load_named(e, "other", 0);
        set(e, "other", "on", POLICY_EVENT_free);
        ask(e, "p", (struct policy_action){1, 0, 1, BASE, 4 * MIB, 0});
        policy_engine_tick(e, 1);
        CHECK_EQ(fixture_stats(e, "p").bytes, 4 * MIB);
        CHECK_EQ(fixture_stats(e, "p").bytes_seen, 0);
        policy_engine_moved(e, 1, &moved, 1, 2);
        CHECK_EQ(fixture_stats(e, "p").bytes_seen, 2 * MIB);

        /* Not by request, elsewhere, another process, the other way. */
        moved.cause = POLICY_BY_FAULT;
        policy_engine_moved(e, 1, &moved, 1, 2);
        moved.cause = POLICY_BY_REQUEST;
        moved.address = BASE + 4 * MIB;
        policy_engine_moved(e, 1, &moved, 1, 2);
        moved.address = BASE;
        add_process(e, 2, "another", "/jobs/train");
        policy_engine_moved(e, 2, &moved, 1, 2);
        moved.to = POLICY_HOST;
        policy_engine_moved(e, 1, &moved, 1, 2);
        CHECK_EQ(fixture_stats(e, "p").bytes_seen, 2 * MIB);

        /* The process asks for the same: no more than was ordered counts, nor for long. */
        moved.to = 0;
        moved.bytes = 8 * MIB;
        policy_engine_moved(e, 1, &moved, 1, 3);
        policy_engine_moved(e, 1, &moved, 1, 3);
        CHECK_EQ(fixture_stats(e, "p").bytes_seen, 4 * MIB);
        policy_engine_tick(e, 4);
        policy_engine_moved(e, 1, &moved, 1, 20 * NSEC_PER_SEC);
        CHECK_EQ(fixture_stats(e, "p").bytes_seen, 4 * MIB);
        CHECK_EQ(fixture_stats(e, "other").bytes_seen, 0);
        policy_engine_free(e);
}

static void test_scopes(void)
{
        struct policy_fault fault = {.address = BASE};
        struct policy_share shares[2] = {{.process = 1}, {.process = 2}};
        struct policy_engine *e = world();

        add_process(e, 2, "server", "/services/web");
        load(e, (struct policy_options){.name = "jobs", .cgroup = "/jobs/*"});
        load(e, (struct policy_options){.name = "servers", .process = "serv*"});
        load(e, (struct policy_options){.name = "gpu1", .has_gpu = true, .gpu = 1});
        policy_engine_faults(e, 1, &fault, 1, 2);
        policy_engine_faults(e, 2, &fault, 1, 2);
        policy_engine_faults(e, 2, &fault, 1, 2);
        policy_engine_shares(e, POLICY_GPUS_MAX, shares, 2, 2);
        CHECK_STR(get(e, "jobs", "seen"), "1,0,1,0,0,1,0,1,0,0,0");
        CHECK_STR(get(e, "servers", "seen"), "1,0,0,0,0,2,0,1,0,0,0");
        CHECK_STR(get(e, "jobs", "seen_items"), "0,0,1,0,0,1,0,1,0,0,0");
        CHECK_STR(get(e, "gpu1", "seen"), "0,0,0,0,0,0,0,0,0,0,0");

        ask(e, "jobs", (struct policy_action){.kind = POLICY_ACTION_preempt, .process = 2});
        policy_engine_tick(e, 3);
        CHECK_EQ(fixture_stats(e, "jobs").refused[POLICY_REFUSED_foreign], 1);
        policy_engine_free(e);
}

/* A process is known by the first GPU it was seen to use, and may use several. */
static void test_gpus(void)
{
        const struct policy_fault faults[3] = {
                {.address = BASE, .gpu = 1}, {.address = BASE, .gpu = 1}, {.address = BASE}};
        const struct policy_moved moved[3] = {
                {.address = BASE, .bytes = MIB, .to = 1, .from = POLICY_FROM_HOST},
                {.address = BASE, .bytes = MIB, .to = POLICY_HOST, .from = 1},
                {.address = BASE, .bytes = MIB, .to = POLICY_HOST, .from = 0}};
        const struct policy_process p = {
                .key = 7, .start_ticks = 1, .pid = 7, .gpu = POLICY_GPUS_MAX, .comm = "late"};
        const struct policy_share share = {.process = 7};
        const struct policy_action to_1 = {1, 1, 7, BASE, MIB, 0}, to_2 = {1, 2, 7, BASE, MIB, 0};
        struct policy_engine *e = world();

        CHECK_EQ(policy_engine_process_start(e, &p, 1), 0);
        policy_engine_alloc(e, 7, BASE, 64 * MIB, 1);
        load(e, (struct policy_options){.name = "one", .has_gpu = true, .gpu = 1});
        load(e, (struct policy_options){.name = "all", .process = "late"});
        load(e, (struct policy_options){.name = "asker", .process = "late"});
        CHECK_STR(get(e, "one", "seen"), "0,0,0,0,0,0,0,0,0,0,0");
        CHECK_STR(get(e, "all", "seen"), "1,0,1,0,0,0,0,0,0,0,0");
        ask(e, "asker", to_1);
        policy_engine_tick(e, 2);
        CHECK_EQ(fixture_stats(e, "asker").refused[POLICY_REFUSED_nonsense], 1);

        policy_engine_memory(e, 1, 100, 30);
        policy_engine_process_gpu(e, 7, 1, 3);
        policy_engine_process_gpu(e, 7, 1, 3);
        policy_engine_process_gpu(e, 7, POLICY_GPUS_MAX, 3);
        policy_engine_process_gpu(e, 99, 1, 3);
        CHECK_STR(get(e, "one", "seen"), "1,0,1,0,0,0,0,0,0,1,0");
        CHECK_STR(get(e, "all", "seen"), "2,0,1,0,0,0,0,0,0,1,0");
        CHECK_STR(get(e, "all", "last_gpu"), "1");
        policy_engine_process_gpu(e, 7, 0, 3); /* another one: it stays the process it was */
        CHECK_STR(get(e, "all", "seen"), "2,0,1,0,0,0,0,0,0,1,0");

        policy_engine_faults(e, 7, faults, 2, 4);
        CHECK_STR(get(e, "one", "seen"), "1,0,1,0,0,1,0,0,0,1,0");
        CHECK_STR(get(e, "all", "last_gpu"), "1");
        CHECK_STR(get(e, "all", "last_free"), "30");
        policy_engine_faults(e, 7, faults, 3, 4);
        CHECK_STR(get(e, "all", "last_gpu"), "0");
        CHECK_STR(get(e, "all", "seen"), "2,0,1,0,0,3,0,0,0,1,0");
        CHECK_STR(get(e, "all", "seen_items"), "0,0,1,0,0,5,0,0,0,0,0");
        policy_engine_moved(e, 7, moved, 3, 4); /* the first two are about GPU 1 */
        CHECK_STR(get(e, "all", "seen"), "2,0,1,0,0,3,2,0,0,1,0");
        CHECK_STR(get(e, "all", "last_gpu"), "0");
        policy_engine_launches(e, 7, 1, 1, 0, NULL, 0, 5);
        CHECK_STR(get(e, "all", "last_gpu"), "1");
        policy_engine_launches(e, 7, POLICY_GPUS_MAX, 1, 0, NULL, 0, 5);
        CHECK_STR(get(e, "all", "last_gpu"), "1"); /* the process's first */

        /* Shares: of its GPU to the one, of all together to the others. */
        policy_engine_shares(e, 0, &share, 1, 5);
        CHECK_STR(get(e, "one", "seen"), "1,0,1,0,1,2,1,0,0,1,0");
        policy_engine_shares(e, 1, &share, 1, 5);
        CHECK_STR(get(e, "one", "seen"), "1,0,1,0,1,2,1,1,0,1,0");
        CHECK_STR(get(e, "all", "seen"), "2,0,1,0,2,3,2,0,0,1,0");
        policy_engine_shares(e, POLICY_GPUS_MAX, &share, 1, 5);
        CHECK_STR(get(e, "one", "seen"), "1,0,1,0,1,2,1,1,0,1,0");
        CHECK_STR(get(e, "all", "seen"), "2,0,1,0,2,3,2,1,0,1,0");

        ask(e, "asker", to_1);
        policy_engine_tick(e, 6);
        CHECK(fixture_stats(e, "asker").done > 0);
        ask(e, "asker", to_2);
        policy_engine_tick(e, 7);
        CHECK(fixture_stats(e, "asker").refused[POLICY_REFUSED_nonsense] > 1);
        policy_engine_free(e);
}

/* Process 7 uses GPUs 0 and 1; "one" is loaded for GPU 1. */
static struct policy_engine *world_of_two(void)
{
        const struct policy_process p = {
                .key = 7, .start_ticks = 1, .pid = 7, .gpu = POLICY_GPUS_MAX, .comm = "both"};
        struct policy_engine *e = world();

        CHECK_EQ(policy_engine_process_start(e, &p, 1), 0);
        recorder.slices[7] = 2048;
        policy_engine_alloc(e, 7, BASE, 64 * MIB, 1);
        policy_engine_process_gpu(e, 7, 0, 1);
        policy_engine_process_gpu(e, 7, 1, 1);
        load(e, (struct policy_options){
                        .name = "one", .has_gpu = true, .gpu = 1, .limits = {ALL, ALL, ALL, ALL}});
        return e;
}

/* It hears of its GPU alone, and every event has that one's number. */
static void test_gpu_scope_of_events(void)
{
        const struct policy_fault faults[4] = {{.address = BASE, .gpu = 0},
                                               {.address = BASE + MIB, .gpu = 1},
                                               {.address = BASE, .gpu = 0},
                                               {.address = BASE + 2 * MIB, .gpu = POLICY_HOST}};
        const struct policy_moved moved[4] = {
                {.address = BASE, .bytes = MIB, .to = 0, .from = POLICY_FROM_HOST},
                {.address = BASE + 4 * MIB, .bytes = MIB, .to = 0, .from = 1},
                {.address = BASE, .bytes = MIB, .to = POLICY_HOST, .from = 0},
                {.address = BASE, .bytes = MIB, .to = 1, .from = POLICY_FROM_HOST}};
        static struct policy_fault many[2 * POLICY_ITEMS_MAX];
        struct policy_engine *e = world_of_two();

        CHECK_STR(get(e, "one", "seen"), "1,0,1,0,0,0,0,0,0,0,0");
        CHECK_STR(get(e, "one", "last_gpu"), "1");
        policy_engine_faults(e, 7, faults, 4, 2);
        CHECK_STR(get(e, "one", "seen_items"), "0,0,1,0,0,2,0,0,0,0,0");
        CHECK_STR(get(e, "one", "last_address"), "123145303359488"); /* BASE + 1 MiB */
        CHECK_STR(get(e, "one", "last_gpu"), "1");
        policy_engine_faults(e, 7, faults, 1, 2);
        CHECK_STR(get(e, "one", "seen"), "1,0,1,0,0,1,0,0,0,0,0");
        policy_engine_moved(e, 7, moved, 4, 2); /* the second leaves its GPU for another */
        CHECK_STR(get(e, "one", "seen_items"), "0,0,1,0,0,2,2,0,0,0,0");
        CHECK_STR(get(e, "one", "last_gpu"), "1");

        policy_engine_launches(e, 7, 0, 1, 0, NULL, 0, 3);
        policy_engine_launches(e, 7, POLICY_GPUS_MAX, 1, 0, NULL, 0, 3); /* one or the other */
        CHECK_STR(get(e, "one", "seen"), "1,0,1,0,0,1,1,0,0,0,0");
        policy_engine_launches(e, 7, 1, 1, 0, NULL, 0, 3);
        CHECK_STR(get(e, "one", "seen"), "1,0,1,0,1,1,1,0,0,0,0");
        policy_engine_pressure(e, 0, 4);
        policy_engine_pressure(e, 1, 4);
        policy_engine_tick(e, 5); /* though nothing is known of its memory */
        CHECK_STR(get(e, "one", "seen"), "1,0,1,0,1,1,1,0,1,1,0");

        /* Those of its GPU among more than one run takes. */
        for (size_t i = 0; i < ARRAY_SIZE(many); i++)
                many[i] = (struct policy_fault){.address = BASE, .gpu = i % 4 != 0};
        policy_engine_faults(e, 7, many, ARRAY_SIZE(many), 6);
        CHECK_STR(get(e, "one", "seen"), "1,0,1,0,1,3,1,0,1,1,0");
        CHECK_STR(get(e, "one", "seen_items"), "0,0,1,0,0,770,2,0,0,0,0");
        policy_engine_free(e);
}

static bool may(struct policy_engine *e, struct policy_action a)
{
        uint64_t foreign = fixture_stats(e, "one").refused[POLICY_REFUSED_foreign];
        uint64_t done = fixture_stats(e, "one").done;
        struct policy_stats s;

        ask(e, "one", a);
        policy_engine_tick(e, 10);
        s = fixture_stats(e, "one");
        check_account(&s);
        CHECK_EQ(s.done + s.refused[POLICY_REFUSED_foreign], done + foreign + 1);
        return s.done > done;
}

/* It cannot act on another GPU of the same process. */
static void test_gpu_scope_of_actions(void)
{
        const struct policy_moved to_0 = {
                .address = BASE + 2 * MIB, .bytes = 2 * MIB, .to = 0, .from = POLICY_FROM_HOST};
        const struct policy_moved to_1 = {
                .address = BASE + 2 * MIB, .bytes = 2 * MIB, .to = 1, .from = 0};
        const struct policy_moved away = {
                .address = BASE + 2 * MIB, .bytes = 2 * MIB, .to = POLICY_HOST, .from = 0};
        const struct policy_moved block_to_0 = {
                .address = BASE + 100 * MIB, .bytes = 2 * MIB, .to = 0, .from = POLICY_FROM_HOST};
        struct policy_engine *e = world_of_two();

        CHECK(may(e, (struct policy_action){1, 1, 7, BASE, MIB, 0}));
        CHECK(!may(e, (struct policy_action){1, 0, 7, BASE, MIB, 0}));
        CHECK(!may(e, (struct policy_action){3, 0, 7, BASE, MIB, 0}));
        CHECK(!may(e, (struct policy_action){4, 0, 7, BASE, MIB, 1}));
        CHECK(may(e, (struct policy_action){3, 1, 7, BASE, MIB, 0}));
        CHECK(may(e, (struct policy_action){3, POLICY_NOWHERE, 7, BASE, MIB, 0}));

        /* Evicting: what is not known to be elsewhere. */
        CHECK(may(e, (struct policy_action){1, POLICY_HOST, 7, BASE, 4 * MIB, 0}));
        policy_engine_moved(e, 7, &to_0, 1, 11);
        CHECK(!may(e, (struct policy_action){1, POLICY_HOST, 7, BASE, 4 * MIB, 0}));
        CHECK(!may(e, (struct policy_action){5, 0, 7, BASE + 3 * MIB, MIB, 1}));
        CHECK(may(e, (struct policy_action){1, POLICY_HOST, 7, BASE, 2 * MIB, 0}));
        CHECK(may(e, (struct policy_action){1, POLICY_HOST, 7, BASE + 4 * MIB, 2 * MIB, 0}));
        CHECK(may(e, (struct policy_action){1, 1, 7, BASE + 2 * MIB, 2 * MIB, 0}));
        policy_engine_moved(e, 7, &to_1, 1, 12);
        CHECK(may(e, (struct policy_action){1, POLICY_HOST, 7, BASE, 4 * MIB, 0}));
        policy_engine_moved(e, 7, &to_0, 1, 13);
        policy_engine_moved(e, 7, &away, 1, 13);
        CHECK(may(e, (struct policy_action){1, POLICY_HOST, 7, BASE, 4 * MIB, 0}));

        /* All allocations that lie in the block that moves. */
        policy_engine_alloc(e, 7, BASE + 100 * MIB, MIB, 14);
        policy_engine_alloc(e, 7, BASE + 101 * MIB, MIB, 14);
        CHECK(may(e, (struct policy_action){1, POLICY_HOST, 7, BASE + 101 * MIB, MIB, 0}));
        policy_engine_moved(e, 7, &block_to_0, 1, 14);
        CHECK(!may(e, (struct policy_action){1, POLICY_HOST, 7, BASE + 100 * MIB, MIB, 0}));
        CHECK(!may(e, (struct policy_action){1, POLICY_HOST, 7, BASE + 101 * MIB, MIB, 0}));

        /* Channel groups: those on its own. */
        CHECK(may(e, (struct policy_action){6, 0, 7, 0, 0, 8000}));
        CHECK_EQ(last_order()->action.to, POLICY_ON_GPU(1));
        CHECK(may(e, (struct policy_action){6, POLICY_ON_GPU(1), 7, 0, 0, 7000}));
        CHECK(!may(e, (struct policy_action){6, POLICY_ON_GPU(0), 7, 0, 0, 8000}));
        CHECK(may(e, (struct policy_action){7, 0, 7, 0, 0, 0}));
        CHECK_EQ(last_order()->action.to, POLICY_ON_GPU(1));
        CHECK(!may(e, (struct policy_action){7, POLICY_ON_GPU(0), 7, 0, 0, 0}));
        CHECK_EQ(recorder.slices[7], 2048);
        CHECK_EQ(recorder.others[7], 7000);
        CHECK_EQ(fixture_settings(e, "one"), 1);

        /* What is of the whole process. */
        CHECK(!may(e, (struct policy_action){8, 0, 7, 0, 0, 2}));
        policy_engine_free(e);
}

/* A process comes to use another GPU: what was set for all of it is set back. */
static void test_gpu_scope_is_left(void)
{
        const struct policy_process p[2] = {
                {.key = 3, .start_ticks = 1, .pid = 3, .gpu = 1, .comm = "first"},
                {.key = 2, .start_ticks = 1, .pid = 2, .gpu = 1, .comm = "second"}};
        struct policy_engine *e = world();

        for (int i = 0; i < 2; i++) {
                CHECK_EQ(policy_engine_process_start(e, &p[i], 1), 0);
                policy_engine_alloc(e, p[i].key, BASE, 64 * MIB, 1);
                recorder.slices[p[i].key] = recorder.others[p[i].key] = 2048;
        }
        load(e, (struct policy_options){
                        .name = "one", .has_gpu = true, .gpu = 1, .limits = {ALL, ALL, ALL, ALL}});
        CHECK(may(e, (struct policy_action){3, 1, 3, BASE, MIB, 0}));
        CHECK(may(e, (struct policy_action){6, 0, 3, 0, 0, 8000}));
        CHECK(may(e, (struct policy_action){8, 0, 3, 0, 0, 2}));
        set(e, "one", "on", POLICY_EVENT_pressure);
        CHECK_EQ(recorder.others[3], 8000);
        CHECK_EQ(recorder.slices[3], 2048);
        CHECK_EQ(recorder.paces[3], 2);
        policy_engine_process_gpu(e, 3, 0, 2);
        CHECK_EQ(recorder.paces[3], 0);
        CHECK_EQ(recorder.others[3], 8000);
        CHECK_EQ(fixture_settings(e, "one"), 2); /* the memory stays preferred, the slice set */

        /* The same while it waits. */
        recorder.deferred = true;
        ask(e, "one", (struct policy_action){8, 0, 2, 0, 0, 2});
        policy_engine_pressure(e, 1, 4);
        policy_engine_process_gpu(e, 2, 0, 5);
        flush(&recorder);
        CHECK_EQ(recorder.paces[2], 0);
        CHECK_EQ(fixture_settings(e, "one"), 2);
        policy_engine_free(e);
}

/* ---- what may be asked for ---- */

static void test_validation(void)
{
        const uint64_t all = BASE + 64 * MIB;
        const struct {
                struct policy_action action;
                enum policy_refusal refusal; /* POLICY_REFUSED_COUNT: done */
                uint64_t address, bytes;     /* of the order then */
        } cases[] = {
                {{.kind = 0, .process = 1}, POLICY_REFUSED_nonsense, 0, 0},
                {{.kind = 99, .process = 1}, POLICY_REFUSED_nonsense, 0, 0},
                {{.kind = POLICY_ACTION_preempt, .process = 0}, POLICY_REFUSED_gone, 0, 0},
                {{.kind = POLICY_ACTION_preempt, .process = 9}, POLICY_REFUSED_gone, 0, 0},
                {{1, 0, 1, BASE, 0, 0}, POLICY_REFUSED_nonsense, 0, 0},
                {{1, 0, 1, BASE, 2ull << 30, 0}, POLICY_REFUSED_nonsense, 0, 0},
                {{1, 0, 1, UINT64_MAX - 4095, 8192, 0}, POLICY_REFUSED_nonsense, 0, 0},
                {{1, 5, 1, BASE, MIB, 0},
                 POLICY_REFUSED_nonsense,
                 0,
                 0}, /* a GPU it does not use */
                {{1, POLICY_NOWHERE, 1, BASE, MIB, 0}, POLICY_REFUSED_nonsense, 0, 0},
                {{1, 0, 1, BASE - 4 * MIB, 4 * MIB, 0}, POLICY_REFUSED_not_managed, 0, 0},
                {{1, 0, 1, all, MIB, 0}, POLICY_REFUSED_not_managed, 0, 0},
                {{1, 0, 1, BASE, MIB, 0}, POLICY_REFUSED_COUNT, BASE, MIB},
                {{1, 0, 1, BASE + 100, 1, 7}, POLICY_REFUSED_COUNT, BASE, 4096},
                {{1, POLICY_HOST, 1, all - MIB, 2 * MIB, 0}, POLICY_REFUSED_COUNT, all - MIB, MIB},
                {{1, 0, 1, BASE - MIB, 2 * MIB, 0}, POLICY_REFUSED_COUNT, BASE, MIB},
                {{3, POLICY_NOWHERE, 1, BASE, MIB, 0}, POLICY_REFUSED_COUNT, BASE, MIB},
                {{4, 0, 1, BASE, MIB, 2}, POLICY_REFUSED_nonsense, 0, 0},
                {{5, 0, 1, BASE, MIB, 2}, POLICY_REFUSED_nonsense, 0, 0},
                {{6, 0, 1, 0, 0, 99}, POLICY_REFUSED_nonsense, 0, 0},
                {{6, 0, 1, 0, 0, 100001}, POLICY_REFUSED_nonsense, 0, 0},
                {{6, 0, 1, 0, 0, UINT64_MAX}, POLICY_REFUSED_nonsense, 0, 0},
                {{6, 3, 1, 55, 66, 8000}, POLICY_REFUSED_COUNT, 0, 0},
                {{6, POLICY_ON_GPU(0), 1, 55, 66, 8000}, POLICY_REFUSED_COUNT, 0, 0},
                {{6, POLICY_ON_GPU(1), 1, 0, 0, 8000}, POLICY_REFUSED_nonsense, 0, 0},
                {{6, POLICY_ON_GPU(64), 1, 0, 0, 8000}, POLICY_REFUSED_nonsense, 0, 0},
                {{7, POLICY_ON_GPU(65535), 1, 0, 0, 0}, POLICY_REFUSED_nonsense, 0, 0},
                {{8, 0, 1, 0, 0, 4097}, POLICY_REFUSED_nonsense, 0, 0},
        };
        struct policy_engine *e = world();

        load_named(e, "p", 0);
        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                struct policy_stats before = fixture_stats(e, "p"), after;
                size_t orders = recorder.count;

                ask(e, "p", cases[i].action);
                policy_engine_tick(e, i * NSEC_PER_SEC);
                after = fixture_stats(e, "p");
                check_account(&after);
                CHECK_EQ(after.asked, before.asked + 1);
                if (cases[i].refusal != POLICY_REFUSED_COUNT) {
                        CHECK_EQ(after.refused[cases[i].refusal],
                                 before.refused[cases[i].refusal] + 1);
                        CHECK_EQ(recorder.count, orders);
                        continue;
                }
                CHECK_EQ(after.done, before.done + 1);
                CHECK_EQ(last_order()->action.address, cases[i].address);
                CHECK_EQ(last_order()->action.bytes, cases[i].bytes);
                CHECK_EQ(last_order()->pid, 101);
                CHECK_EQ(last_order()->start_ticks, 1001);
                CHECK_STR(last_order()->owner, "p");
        }
        policy_engine_free(e);
}

/* What is too short or too long to be an action is one that was refused. */
static void test_garbled_answers(void)
{
        struct policy_engine *e = world();
        struct policy_stats s;

        load_named(e, "p", 0);
        ask(e, "p", (struct policy_action){7, 0, 1, 0, 0, 0});
        set(e, "p", "garbled", 10);
        policy_engine_tick(e, 1);
        s = fixture_stats(e, "p");
        check_account(&s);
        CHECK(s.asked == 11 && s.done == 1 && s.refused[POLICY_REFUSED_nonsense] == 10);
        CHECK_EQ(recorder.count, 1);
        policy_engine_free(e);
}

static void test_failures(void)
{
        static const struct {
                int error;
                enum policy_refusal refusal;
        } cases[] = {{-ESRCH, POLICY_REFUSED_gone},
                     {-EBUSY, POLICY_REFUSED_overruled},
                     {-ENOSPC, POLICY_REFUSED_no_room},
                     {-ENODATA, POLICY_REFUSED_not_known},
                     {-EOPNOTSUPP, POLICY_REFUSED_unsupported},
                     {-EIO, POLICY_REFUSED_failed}};
        struct policy_engine *e = world();

        load_named(e, "p", 0);
        ask(e, "p", (struct policy_action){3, 0, 1, BASE, MIB, 0});
        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                recorder.error = cases[i].error;
                policy_engine_tick(e, 1);
                CHECK_EQ(fixture_stats(e, "p").refused[cases[i].refusal], 1);
                CHECK_EQ(fixture_settings(e, "p"), 0); /* what failed is not undone */
        }
        recorder.error = 0;
        recorder.full = true;
        policy_engine_tick(e, 1);
        CHECK_EQ(fixture_stats(e, "p").refused[POLICY_REFUSED_queue_full], 1);
        CHECK_EQ(fixture_stats(e, "p").waiting, 0);
        recorder.full = false;
        policy_engine_free(e);
}

/* ---- conflicts ---- */

static void test_precedence(void)
{
        struct policy_engine *e = world();

        load_named(e, "low", 1);
        load_named(e, "high", 2);
        ask(e, "high", (struct policy_action){1, 0, 1, BASE, 4 * MIB, 0});
        ask(e, "low", (struct policy_action){1, POLICY_HOST, 1, BASE + 2 * MIB, 4 * MIB, 0});
        policy_engine_tick(e, 10);
        CHECK_EQ(fixture_stats(e, "high").done, 1);
        CHECK_EQ(fixture_stats(e, "low").refused[POLICY_REFUSED_overruled], 1);

        /* The same wish is no conflict, nor is other memory, nor a claim that has run out. */
        set(e, "high", "on", POLICY_EVENT_pressure);
        set(e, "low", "to", 0);
        policy_engine_tick(e, 11);
        set(e, "low", "to", POLICY_HOST);
        set(e, "low", "address", BASE + 32 * MIB);
        policy_engine_tick(e, 12);
        set(e, "low", "address", BASE + 2 * MIB);
        policy_engine_tick(e, 12 + NSEC_PER_SEC);
        CHECK_EQ(fixture_stats(e, "low").done, 3);

        /* The higher one takes over what the lower one has just decided. */
        policy_engine_pressure(e, 0, 13 + NSEC_PER_SEC);
        CHECK_EQ(fixture_stats(e, "high").overrode, 1);
        policy_engine_free(e);
}

/* Settings hold as long as their policy does; of equals, the first. */
static void test_setting_conflicts(void)
{
        struct policy_engine *e = world();

        load_named(e, "first", 5);
        load_named(e, "second", 5);
        ask(e, "first", (struct policy_action){6, 0, 1, 0, 0, 8000});
        ask(e, "second", (struct policy_action){6, 0, 1, 0, 0, 200});
        policy_engine_tick(e, 10);
        CHECK_EQ(recorder.slices[1], 8000);
        policy_engine_tick(e, 100 * NSEC_PER_SEC);
        CHECK_EQ(fixture_stats(e, "second").refused[POLICY_REFUSED_overruled], 2);
        CHECK_EQ(policy_engine_unload(e, "first"), 0);
        CHECK_EQ(recorder.slices[1], 2048);
        policy_engine_tick(e, 101 * NSEC_PER_SEC);
        CHECK_EQ(recorder.slices[1], 200);
        policy_engine_free(e);
        CHECK_EQ(recorder.slices[1], 2048);
}

/* What the first set while it was alone counts against the second: both ways. */
static void test_conflicts_with_the_only_one(void)
{
        struct policy_engine *e = world();

        load_named(e, "first", 5);
        ask(e, "first", (struct policy_action){6, 0, 1, 0, 0, 8000});
        policy_engine_tick(e, 10);
        ask(e, "first", (struct policy_action){3, 0, 1, BASE, 8 * MIB, 0});
        policy_engine_tick(e, 11);
        set(e, "first", "on", POLICY_EVENT_pressure);
        load_named(e, "low", 1);
        ask(e, "low", (struct policy_action){6, 0, 1, 0, 0, 200});
        policy_engine_tick(e, 100 * NSEC_PER_SEC);
        CHECK_EQ(recorder.slices[1], 8000);
        CHECK_EQ(fixture_stats(e, "low").refused[POLICY_REFUSED_overruled], 1);
        set(e, "low", "on", POLICY_EVENT_pressure);
        load_named(e, "high", 9);
        ask(e, "high", (struct policy_action){3, POLICY_HOST, 1, BASE, 2 * MIB, 0});
        policy_engine_tick(e, 101 * NSEC_PER_SEC);
        CHECK_EQ(fixture_stats(e, "high").overrode, 1);
        CHECK_EQ(fixture_stats(e, "high").done, 1);
        CHECK_EQ(fixture_settings(e, "first"), 1);
        policy_engine_free(e);
}

/* Neither what was taken back nor what could not be done keeps others from anything. */
static void test_conflicts_with_nothing(void)
{
        struct policy_engine *e = world();

        load_named(e, "first", 5);
        load_named(e, "second", 5);
        set(e, "second", "on", POLICY_EVENT_pressure);
        ask(e, "first", (struct policy_action){3, 0, 1, BASE, MIB, 0});
        policy_engine_tick(e, 10);
        set(e, "first", "to", POLICY_NOWHERE);
        policy_engine_tick(e, 11);
        ask(e, "second", (struct policy_action){3, POLICY_HOST, 1, BASE, MIB, 0});
        policy_engine_pressure(e, 0, NSEC_PER_SEC);
        CHECK_EQ(fixture_stats(e, "second").done, 1);

        recorder.error = -EIO;
        ask(e, "first", (struct policy_action){6, 0, 1, 0, 0, 8000});
        policy_engine_tick(e, 2 * NSEC_PER_SEC);
        CHECK_EQ(fixture_stats(e, "first").refused[POLICY_REFUSED_failed], 1);
        recorder.error = 0;
        ask(e, "second", (struct policy_action){6, 0, 1, 0, 0, 200});
        policy_engine_pressure(e, 0, 3 * NSEC_PER_SEC);
        CHECK_EQ(recorder.slices[1], 200);

        /* What failed leaves what was in force before in force. */
        recorder.error = -EIO;
        set(e, "second", "value", 300);
        policy_engine_pressure(e, 0, 4 * NSEC_PER_SEC);
        recorder.error = 0;
        policy_engine_tick(e, 5 * NSEC_PER_SEC);
        CHECK_EQ(recorder.slices[1], 200);
        CHECK_EQ(fixture_stats(e, "first").refused[POLICY_REFUSED_overruled], 1);
        policy_engine_free(e);
}

/* ---- budgets and ejection ---- */

static void test_budgets(void)
{
        struct policy_engine *e = world();

        load(e, (struct policy_options){.name = "p",
                                        .limits = {.runs = 10, .actions = 5, .bytes = 3 * MIB}});
        ask(e, "p", (struct policy_action){1, 0, 1, BASE, MIB, 0});
        for (int i = 0; i < 20; i++)
                policy_engine_tick(e, 10 * NSEC_PER_SEC + (uint64_t)i);
        CHECK_EQ(fixture_stats(e, "p").skipped, 10);
        CHECK_EQ(fixture_stats(e, "p").done, 3); /* bytes */
        set(e, "p", "kind", POLICY_ACTION_preempt);
        for (int i = 0; i < 8; i++)
                policy_engine_tick(e, 11 * NSEC_PER_SEC);
        CHECK_EQ(fixture_stats(e, "p").done, 3 + 5);
        CHECK_EQ(fixture_stats(e, "p").refused[POLICY_REFUSED_over_budget], 7 + 3);
        CHECK_EQ(fixture_state(e, "p", NULL), POLICY_ACTIVE);
        policy_engine_free(e);
}

/* "seen" or "seen_items" of one event. */
static uint64_t event_count(struct policy_engine *e, const char *variable,
                            enum policy_event_type type)
{
        const char *text = get(e, "p", variable);

        for (int i = 0; i < (int)type; i++)
                text = strchr(text, ',') + 1;
        return strtoull(text, NULL, 10);
}

/* What was refused at once, and what the driver refused, with the next tick. */
static void test_refused_is_told(void)
{
        struct policy_engine *e = world();
        struct policy_stats s;

        load_named(e, "p", 0);
        ask(e, "p", (struct policy_action){1, 0, 1, BASE + 5000, 10, 0});
        recorder.full = true;
        policy_engine_tick(e, 1);
        CHECK_EQ(event_count(e, "seen", POLICY_EVENT_refused), 0);
        set(e, "p", "on", POLICY_EVENT_pressure);
        recorder.full = false;
        policy_engine_tick(e, 2);
        CHECK_EQ(event_count(e, "seen_items", POLICY_EVENT_refused), 1);
        CHECK_STR(get(e, "p", "last_refused_address"), "123145302315008"); /* its page */
        CHECK_STR(get(e, "p", "last_reason"), "7");

        ask(e, "p", (struct policy_action){6, 0, 1, 0, 0, 8000});
        recorder.error = -EOPNOTSUPP;
        recorder.deferred = true;
        policy_engine_pressure(e, 0, 3);
        flush(&recorder);
        policy_engine_tick(e, 4);
        policy_engine_tick(e, 5);
        CHECK_EQ(event_count(e, "seen_items", POLICY_EVENT_refused), 2);
        CHECK_STR(get(e, "p", "last_refused_value"), "8000");
        CHECK_STR(get(e, "p", "last_reason"), "10");

        /* Its own mistakes it is not told of, nor what has ended. */
        ask(e, "p", (struct policy_action){6, 0, 1, 0, 0, 1});
        policy_engine_pressure(e, 0, 6);
        ask(e, "p", (struct policy_action){6, 0, 77, 0, 0, 8000});
        policy_engine_pressure(e, 0, 6);
        policy_engine_tick(e, 7);
        CHECK_EQ(event_count(e, "seen_items", POLICY_EVENT_refused), 2);
        s = fixture_stats(e, "p");
        CHECK_EQ(refused(&s), 4);
        policy_engine_free(e);
}

/* For its budget: once it has one again. What is kept is bounded, and the rest is counted. */
static void test_refused_is_told_later(void)
{
        struct policy_engine *e = world();

        load(e, (struct policy_options){.name = "p", .limits = {.actions = 5}});
        ask(e, "p", (struct policy_action){POLICY_ACTION_preempt, 0, 1, 0, 0, 0});
        set(e, "p", "repeat", 5005);
        policy_engine_tick(e, NSEC_PER_SEC);
        set(e, "p", "repeat", 0);
        policy_engine_tick(e, NSEC_PER_SEC + 900000000);
        CHECK_EQ(event_count(e, "seen", POLICY_EVENT_refused), 0);
        policy_engine_tick(e, 2 * NSEC_PER_SEC);
        CHECK_EQ(event_count(e, "seen_items", POLICY_EVENT_refused), 4096);
        CHECK_EQ(event_count(e, "seen", POLICY_EVENT_refused), 4096 / POLICY_ITEMS_MAX);
        CHECK_STR(get(e, "p", "last_reason"), "5");
        CHECK_EQ(fixture_stats(e, "p").untold, 5000 - 4096);
        CHECK_EQ(fixture_stats(e, "p").refused[POLICY_REFUSED_over_budget], 5000);

        /* One that is stopped hears nothing of before when it goes on. */
        set(e, "p", "repeat", 100);
        policy_engine_tick(e, 2 * NSEC_PER_SEC);
        CHECK_EQ(policy_engine_disable(e, "p"), 0);
        set(e, "p", "repeat", 0);
        CHECK_EQ(policy_engine_enable(e, "p", 3 * NSEC_PER_SEC), 0);
        policy_engine_tick(e, 3 * NSEC_PER_SEC);
        CHECK_EQ(event_count(e, "seen_items", POLICY_EVENT_refused), 4096);
        policy_engine_free(e);
}

/* A policy that asks again whatever was said is heard once a second, at once or by the driver. */
static void test_asking_again_for_ever(void)
{
        struct policy_engine *e = world();
        struct policy_stats s;

        load_named(e, "p", 0);
        ask(e, "p", (struct policy_action){1, 0, 1, BASE, 10, 0});
        set(e, "p", "on", POLICY_EVENT_pressure);
        recorder.error = -ENOSPC;
        policy_engine_pressure(e, 0, NSEC_PER_SEC);
        set(e, "p", "on", POLICY_EVENT_refused);
        for (uint64_t tick = 0; tick < 30; tick++) {
                recorder.full = tick >= 15;
                policy_engine_tick(e, NSEC_PER_SEC + tick * 100 * NSEC_PER_MSEC);
        }
        CHECK_EQ(event_count(e, "seen_items", POLICY_EVENT_refused), 3);
        s = fixture_stats(e, "p");
        CHECK(s.asked == 4 && s.refused[POLICY_REFUSED_no_room] == 3 &&
              s.refused[POLICY_REFUSED_queue_full] == 1);

        /* Those that come in one by one do not put it off further. */
        recorder.full = false;
        recorder.deferred = true;
        set(e, "p", "repeat", 100);
        for (uint64_t tick = 0; tick < 24; tick++) {
                policy_engine_tick(e, 5 * NSEC_PER_SEC + tick * 100 * NSEC_PER_MSEC);
                answer(&recorder);
        }
        CHECK_EQ(event_count(e, "seen", POLICY_EVENT_refused), 3 + 3);
        policy_engine_free(e);
}

/* What is in force may be taken back by a policy that has nothing left to spend. */
static void test_take_back_over_budget(void)
{
        static const struct policy_action sets[] = {{3, 0, 1, BASE, MIB, 0},
                                                    {4, 0, 1, BASE, MIB, 1},
                                                    {5, 0, 1, BASE, MIB, 1},
                                                    {6, 0, 1, 0, 0, 8000},
                                                    {8, 0, 1, 0, 0, 4}};
        struct policy_engine *e = world();

        load(e, (struct policy_options){.name = "p", .limits = {.actions = ARRAY_SIZE(sets)}});
        load_named(e, "other", 0);
        set(e, "other", "on", POLICY_EVENT_pressure);
        for (size_t i = 0; i < ARRAY_SIZE(sets); i++) {
                ask(e, "p", sets[i]);
                policy_engine_tick(e, 1);
        }
        CHECK_EQ(fixture_settings(e, "p"), ARRAY_SIZE(sets));
        for (size_t i = 0; i < ARRAY_SIZE(sets); i++) {
                struct policy_action back = sets[i];

                back.value = 0;
                back.to = back.kind == POLICY_ACTION_prefer ? POLICY_NOWHERE : back.to;
                ask(e, "p", back);
                policy_engine_tick(e, 2);
                CHECK_EQ(fixture_settings(e, "p"), ARRAY_SIZE(sets) - 1 - i);
                CHECK(last_order()->undo && last_order()->action.kind == back.kind);
                /* Nobody else is kept from it any more. */
                ask(e, "other", sets[i]);
                if (sets[i].kind == POLICY_ACTION_prefer)
                        set(e, "other", "to", POLICY_HOST);
                else
                        set(e, "other", "value", sets[i].bytes ? 0 : 300);
                policy_engine_pressure(e, 0, 3);
        }
        CHECK_EQ(fixture_stats(e, "other").refused[POLICY_REFUSED_overruled], 0);
        CHECK_EQ(fixture_stats(e, "p").undone, ARRAY_SIZE(sets));
        CHECK_EQ(fixture_stats(e, "p").done, 2 * ARRAY_SIZE(sets));
        /* Once: there is nothing more that was paid for. */
        policy_engine_tick(e, 4);
        CHECK_EQ(fixture_stats(e, "p").refused[POLICY_REFUSED_over_budget], 1);
        policy_engine_free(e);
}

/* A value that is taken back before it came into force does not stay. */
static void test_take_back_while_waiting(void)
{
        struct policy_engine *e = world();
        struct policy_stats s;

        load_named(e, "p", 0);
        ask(e, "p", (struct policy_action){6, 0, 1, 0, 0, 4000});
        policy_engine_tick(e, 1);
        recorder.deferred = true;
        set(e, "p", "value", 8000);
        policy_engine_tick(e, 2);
        set(e, "p", "value", 0);
        policy_engine_tick(e, 3);
        flush(&recorder);
        CHECK_EQ(recorder.slices[1], 2048);
        CHECK_EQ(fixture_settings(e, "p"), 0);
        CHECK_EQ(fixture_stats(e, "p").undone, 1);

        /* Unless it asks for another meanwhile. */
        for (uint64_t value = 6000; value < 6003; value++) {
                set(e, "p", "value", value == 6001 ? 0 : value);
                policy_engine_tick(e, 4);
        }
        flush(&recorder);
        CHECK_EQ(recorder.slices[1], 6002);
        CHECK_EQ(fixture_settings(e, "p"), 1);

        /* One that is refused, or fails, leaves it taken back. */
        for (int fails = 0; fails < 2; fails++) {
                set(e, "p", "value", 6003);
                policy_engine_tick(e, 4);
                set(e, "p", "value", 0);
                policy_engine_tick(e, 4);
                set(e, "p", "value", 6004);
                recorder.full = !fails;
                policy_engine_tick(e, 4);
                recorder.full = false;
                answer(&recorder);
                recorder.error = fails ? -EIO : 0;
                answer(&recorder);
                recorder.error = 0;
                flush(&recorder);
                CHECK_EQ(recorder.slices[1], 2048);
                CHECK_EQ(fixture_settings(e, "p"), 0);
        }

        /* What was in force is set back, too, when the order that takes its place fails. */
        set(e, "p", "value", 7000);
        policy_engine_tick(e, 5);
        set(e, "p", "value", 0);
        policy_engine_tick(e, 6);
        recorder.error = -EIO;
        answer(&recorder);
        recorder.error = 0;
        flush(&recorder);
        CHECK_EQ(recorder.slices[1], 2048);
        CHECK_EQ(fixture_settings(e, "p"), 0);
        s = fixture_stats(e, "p");
        check_account(&s);
        policy_engine_free(e);
}

/* The same of advice on memory, though there is no budget for more. */
static void test_take_advice_back_while_waiting(void)
{
        struct policy_engine *e = world();

        load(e, (struct policy_options){.name = "p", .limits = {.actions = 2}});
        ask(e, "p", (struct policy_action){POLICY_ACTION_prefer, 0, 1, BASE, MIB, 0});
        policy_engine_tick(e, 1);
        recorder.deferred = true;
        set(e, "p", "to", POLICY_HOST);
        policy_engine_tick(e, 2);
        set(e, "p", "to", POLICY_NOWHERE);
        policy_engine_tick(e, 3);
        CHECK_EQ(fixture_stats(e, "p").refused[POLICY_REFUSED_over_budget], 0);
        CHECK_EQ(fixture_settings(e, "p"), 1);
        flush(&recorder);
        CHECK(last_order()->undo && last_order()->action.to == POLICY_NOWHERE);
        CHECK_EQ(fixture_settings(e, "p"), 0);
        CHECK_EQ(fixture_stats(e, "p").undone, 1);
        policy_engine_free(e);
}

static void check_ejected(struct policy_engine *e, const char *name, const char *why)
{
        char reason[POLICY_REASON_MAX];

        CHECK_EQ(fixture_state(e, name, reason), POLICY_EJECTED);
        if (!strstr(reason, why))
                fprintf(stderr, "\"%s\" is not \"%s\"\n", reason, why);
        CHECK(strstr(reason, why));
}

static void test_ejection(void)
{
        struct policy_engine *e = world();
        struct policy_stats s;
        uint64_t runs;

        load_named(e, "p", 0);
        ask(e, "p", (struct policy_action){6, 0, 1, 0, 0, 8000});
        policy_engine_tick(e, 1);
        CHECK_EQ(recorder.slices[1], 8000);

        CHECK_EQ(policy_engine_set(e, "p", "answer", "-22", (char[200]){0}, 200), 0);
        policy_engine_tick(e, 2);
        check_ejected(e, "p", "it returned -22");
        CHECK_EQ(recorder.slices[1], 2048); /* undone */
        runs = fixture_stats(e, "p").runs;
        policy_engine_tick(e, 3);
        CHECK_EQ(fixture_stats(e, "p").runs, runs); /* and not run any more */

        /* More answers than there is room for. */
        set(e, "p", "answer", 0);
        set(e, "p", "repeat", 100000);
        CHECK_EQ(policy_engine_enable(e, "p", 4), 0);
        CHECK_EQ(fixture_state(e, "p", NULL), POLICY_ACTIVE);
        policy_engine_tick(e, 4);
        check_ejected(e, "p", "more actions in one run than there is room for");
        s = fixture_stats(e, "p");
        check_account(&s);
        CHECK_EQ(recorder.slices[1], 2048);
        policy_engine_free(e);
}

/* Loops within loops end, whatever they ask for, and the policy with them. */
static void test_nested_loops(void)
{
        struct policy_engine *e = world();
        uint64_t began_ns = now_ns();

        load(e, (struct policy_options){.name = "p", .limits = {.run_ns = 20 * NSEC_PER_SEC}});
        set(e, "p", "on", POLICY_EVENT_pressure);
        set(e, "p", "spin", 1000);
        set(e, "p", "nested", 1000);
        policy_engine_pressure(e, 0, 1);
        CHECK_STR(get(e, "p", "wasted"), "1000000");
        CHECK_EQ(fixture_state(e, "p", NULL), POLICY_ACTIVE);
        set(e, "p", "spin", 8000000);
        set(e, "p", "nested", 8000000);
        policy_engine_pressure(e, 0, 2);
        check_ejected(e, "p", "its loops wanted more than the 33554432 steps a run has");
        CHECK(now_ns() - began_ns < 20 * NSEC_PER_SEC);

        /* Each run has its steps anew. */
        set(e, "p", "spin", 8);
        set(e, "p", "nested", 2000000);
        CHECK_EQ(policy_engine_enable(e, "p", 3), 0);
        for (uint64_t i = 0; i < 4; i++)
                policy_engine_pressure(e, 0, 4 + i * NSEC_PER_SEC);
        CHECK_EQ(fixture_state(e, "p", NULL), POLICY_ACTIVE);

        /* All of them, and not one more. */
        set(e, "p", "repeat", 0);
        set(e, "p", "nested", POLICY_STEPS_MAX / 8 - 1);
        policy_engine_pressure(e, 0, 10 * NSEC_PER_SEC);
        CHECK_EQ(fixture_state(e, "p", NULL), POLICY_ACTIVE);
        set(e, "p", "repeat", 1);
        policy_engine_pressure(e, 0, 12 * NSEC_PER_SEC);
        check_ejected(e, "p", "its loops wanted more");
        policy_engine_free(e);
}

static void test_run_time(void)
{
        struct policy_engine *e = world();

        load(e, (struct policy_options){.name = "slow", .limits = {.run_ns = 3 * NSEC_PER_MSEC}});
        load_named(e, "other", 0);
        set(e, "slow", "spin", 8000000); /* tens of milliseconds */
        policy_engine_tick(e, 1);
        check_ejected(e, "slow", "its programs ran for");
        CHECK_EQ(fixture_stats(e, "other").asked, 1); /* the others go on */
        CHECK_EQ(fixture_state(e, "other", NULL), POLICY_ACTIVE);
        policy_engine_free(e);
}

#define STOPS       4
#define STOPPED_MS  700
#define RUNNING_MS  150
#define STOP_RUN_NS (500 * NSEC_PER_MSEC)

/* Runs of tens of milliseconds, one after the other, each in a second of its own. */
static _Noreturn void run_for_ever(void)
{
        struct policy_engine *e = world();

        load(e, (struct policy_options){.name = "p", .limits = {.run_ns = STOP_RUN_NS}});
        set(e, "p", "spin", 8000000);
        for (uint64_t i = 1;; i++) {
                policy_engine_tick(e, i * NSEC_PER_SEC);
                CHECK_EQ(fixture_state(e, "p", NULL), POLICY_ACTIVE);
        }
}

/* A thread that is stopped within a run for longer than it may take: not the policy's fault. */
static void test_stopped_meanwhile(void)
{
        int status;
        pid_t pid;

        fflush(stdout);
        pid = fork();
        CHECK(pid >= 0);
        if (pid == 0)
                run_for_ever();
        for (int i = 0; i < STOPS; i++) {
                usleep(RUNNING_MS * 1000);
                CHECK_EQ(kill(pid, SIGSTOP), 0);
                usleep(STOPPED_MS * 1000);
                CHECK_EQ(kill(pid, SIGCONT), 0);
        }
        usleep(RUNNING_MS * 1000);
        CHECK_EQ(kill(pid, SIGKILL), 0);
        CHECK_EQ(waitpid(pid, &status, 0), pid);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

/* ---- undoing ---- */

static void test_undo(void)
{
        struct policy_engine *e = world();

        load_named(e, "a", 1);
        load_named(e, "b", 2);
        set(e, "b", "on", POLICY_EVENT_pressure);

        /* The slice is turned up twice, then by the other: each goes in its turn. */
        ask(e, "a", (struct policy_action){6, 0, 1, 0, 0, 4000});
        policy_engine_tick(e, 1);
        set(e, "a", "value", 5000);
        policy_engine_tick(e, 2);
        CHECK_EQ(fixture_settings(e, "a"), 1);
        ask(e, "b", (struct policy_action){6, 0, 1, 0, 0, 300});
        policy_engine_pressure(e, 0, 3);
        CHECK_EQ(recorder.slices[1], 300);
        CHECK_EQ(policy_engine_unload(e, "a"), 0);
        CHECK_EQ(recorder.slices[1], 300); /* b's still holds */
        CHECK_EQ(policy_engine_disable(e, "b"), 0);
        CHECK_EQ(recorder.slices[1], 2048); /* what was before a */
        CHECK_EQ(fixture_stats(e, "b").undone, 1);

        /* Taking a setting back leaves nothing to undo. */
        CHECK_EQ(policy_engine_enable(e, "b", 4), 0);
        ask(e, "b", (struct policy_action){3, 0, 1, BASE, MIB, 0});
        policy_engine_pressure(e, 0, 5);
        CHECK_EQ(fixture_settings(e, "b"), 1);
        set(e, "b", "to", POLICY_NOWHERE);
        policy_engine_pressure(e, 0, 6);
        CHECK_EQ(fixture_settings(e, "b"), 0);

        /* Memory has not been left where it was, but that is no setting. */
        ask(e, "b", (struct policy_action){1, 0, 1, BASE, MIB, 0});
        policy_engine_pressure(e, 0, 7);
        CHECK_EQ(fixture_settings(e, "b"), 0);
        policy_engine_free(e);
}

/* Advice does not replace advice: what the higher policy decides about is taken back first. */
static void test_undo_overridden(void)
{
        struct policy_engine *e = world();

        load_named(e, "a", 1);
        load_named(e, "b", 2);
        set(e, "b", "on", POLICY_EVENT_pressure);
        ask(e, "a", (struct policy_action){3, 0, 1, BASE, 8 * MIB, 0});
        ask(e, "b", (struct policy_action){3, POLICY_HOST, 1, BASE + 2 * MIB, 2 * MIB, 0});
        policy_engine_tick(e, 1);
        policy_engine_pressure(e, 0, 2);
        CHECK_EQ(recorder.count, 3);
        CHECK_EQ(recorder.orders[1].action.to, POLICY_NOWHERE);
        CHECK_EQ(recorder.orders[1].action.bytes, 8 * MIB);
        CHECK_STR(recorder.orders[1].owner, "a");
        CHECK_EQ(last_order()->action.to, POLICY_HOST);
        CHECK_STR(last_order()->owner, "b");
        CHECK_EQ(fixture_settings(e, "a"), 0);
        CHECK_EQ(fixture_stats(e, "a").undone, 1);
        CHECK_EQ(fixture_settings(e, "b"), 1);
        policy_engine_free(e);
        CHECK_EQ(last_order()->action.to, POLICY_NOWHERE);
        CHECK_EQ(recorder.count, 4);
}

/* Of events process_start. */
static uint64_t starts_told(struct policy_engine *e, const char *name)
{
        return strtoull(get(e, name, "seen"), NULL, 10);
}

/* Two policies, of which b is to take the place of a's advice. */
static struct policy_engine *overriding_world(void)
{
        struct policy_engine *e = world();

        load_named(e, "a", 1);
        load_named(e, "b", 2);
        set(e, "b", "on", POLICY_EVENT_pressure);
        ask(e, "a", (struct policy_action){3, 0, 1, BASE, 8 * MIB, 0});
        ask(e, "b", (struct policy_action){3, POLICY_HOST, 1, BASE + 2 * MIB, 2 * MIB, 0});
        policy_engine_tick(e, 1);
        set(e, "a", "on", POLICY_EVENT_free);
        return e;
}

/* What fails leaves nothing of the place it took: the lower policy's advice is in force again. */
static void test_override_fails(void)
{
        struct policy_engine *e = overriding_world();

        recorder.failing = "b";
        policy_engine_pressure(e, 0, 2);
        CHECK_EQ(fixture_stats(e, "b").refused[POLICY_REFUSED_failed], 1);
        CHECK_EQ(recorder.count, 4);
        CHECK_STR(last_order()->owner, "a");
        CHECK(!last_order()->undo && last_order()->action.to == 0);
        CHECK_EQ(last_order()->action.bytes, 8 * MIB);
        CHECK_EQ(fixture_settings(e, "a"), 1);
        CHECK_EQ(fixture_settings(e, "b"), 0);
        CHECK_EQ(fixture_stats(e, "a").renewed, 1);

        /* It is claimed again, too. */
        load_named(e, "c", 1);
        ask(e, "c", (struct policy_action){3, POLICY_HOST, 1, BASE, MIB, 0});
        policy_engine_tick(e, 3);
        CHECK_EQ(fixture_stats(e, "c").refused[POLICY_REFUSED_overruled], 1);
        policy_engine_free(e);
        CHECK_EQ(last_order()->action.to, POLICY_NOWHERE);
        CHECK_EQ(last_order()->action.bytes, 8 * MIB);
}

/* The same for an order that is not even taken, and for one whose policy goes meanwhile. */
static void test_override_is_dropped(void)
{
        struct policy_engine *e = overriding_world();

        recorder.deferred = true;
        policy_engine_pressure(e, 0, 2);
        CHECK_EQ(policy_engine_unload(e, "b"), 0);
        flush(&recorder);
        CHECK_EQ(fixture_settings(e, "a"), 1);
        CHECK_STR(last_order()->owner, "a");
        CHECK_EQ(last_order()->action.to, 0);
        policy_engine_free(e);
}

/* Advice that cannot be put back is lost: its policy is told of its processes, and so it is when
 * the one that had its way has gone. */
static void test_lost_is_told(void)
{
        struct policy_engine *e = overriding_world();
        uint64_t told;

        recorder.error = -EIO;
        policy_engine_pressure(e, 0, 2);
        recorder.error = 0;
        CHECK_EQ(fixture_stats(e, "a").unrenewed, 1);
        CHECK_EQ(fixture_settings(e, "a"), 0);
        told = starts_told(e, "a");
        policy_engine_tick(e, 3);
        CHECK_EQ(starts_told(e, "a"), told + 1);
        policy_engine_tick(e, 4);
        CHECK_EQ(starts_told(e, "a"), told + 1);
        CHECK_EQ(policy_engine_unload(e, "b"), 0);
        policy_engine_tick(e, 5);
        CHECK_EQ(starts_told(e, "a"), told + 2);
        policy_engine_free(e);
}

/* Two that want the same share it: it is in force until the second has gone too. */
static void test_undo_shared(void)
{
        struct policy_engine *e = world();

        load_named(e, "a", 1);
        load_named(e, "b", 1);
        ask(e, "a", (struct policy_action){3, 0, 1, BASE, 8 * MIB, 0});
        ask(e, "b", (struct policy_action){3, 0, 1, BASE + 2 * MIB, 2 * MIB, 0});
        policy_engine_tick(e, 1);
        CHECK_EQ(recorder.count, 2);
        CHECK_EQ(policy_engine_unload(e, "a"), 0);
        CHECK_EQ(recorder.count, 4);
        CHECK_EQ(recorder.orders[2].action.to, POLICY_NOWHERE);
        CHECK_EQ(last_order()->action.to, 0);
        CHECK_EQ(last_order()->action.bytes, 2 * MIB);
        CHECK_STR(last_order()->owner, "b");
        policy_engine_free(e);
        CHECK_EQ(last_order()->action.to, POLICY_NOWHERE);
        CHECK_EQ(recorder.count, 5);
}

/* A setting that stays in force is told of, also when its policy is gone. */
static void test_undo_fails(void)
{
        struct policy_engine *e = world();

        load_named(e, "p", 0);
        ask(e, "p", (struct policy_action){6, 0, 1, 0, 0, 8000});
        policy_engine_tick(e, 1);
        recorder.error = -EIO;
        CHECK_EQ(policy_engine_disable(e, "p"), 0);
        CHECK_EQ(fixture_stats(e, "p").undone, 1);
        CHECK_EQ(fixture_stats(e, "p").not_undone, 1);
        recorder.error = 0;
        CHECK_EQ(policy_engine_enable(e, "p", 2), 0);
        policy_engine_tick(e, 3);
        recorder.deferred = true;
        CHECK_EQ(policy_engine_unload(e, "p"), 0);
        recorder.error = -EIO;
        flush(&recorder);
        CHECK_EQ(recorder.not_undone, 2);
        policy_engine_free(e);
}

/* Undoing is not skipped where there is no room for orders, nor does anybody wait for it. */
static void test_undo_waits_for_room(void)
{
        struct policy_engine *e = world();

        load_named(e, "p", 0);
        load_named(e, "other", 0);
        set(e, "other", "on", POLICY_EVENT_pressure);
        ask(e, "p", (struct policy_action){6, 0, 1, 0, 0, 8000});
        policy_engine_tick(e, 1);
        ask(e, "p", (struct policy_action){3, 0, 1, BASE, MIB, 0});
        policy_engine_tick(e, 2);
        recorder.full = true;
        CHECK_EQ(policy_engine_unload(e, "p"), 0);
        CHECK_EQ(recorder.flushes, 0);
        CHECK_EQ(recorder.slices[1], 8000);
        recorder.full = false;

        /* Nothing overtakes it. */
        ask(e, "other", (struct policy_action){6, 0, 1, 0, 0, 300});
        policy_engine_pressure(e, 0, 3);
        CHECK_EQ(fixture_stats(e, "other").refused[POLICY_REFUSED_queue_full], 1);
        recorder.deferred = true;
        policy_engine_tick(e, 4);
        CHECK_EQ(recorder.count, 4);
        CHECK_EQ(recorder.orders[2].action.kind, POLICY_ACTION_prefer);
        CHECK(last_order()->undo && last_order()->action.kind == POLICY_ACTION_time_slice);
        flush(&recorder);
        CHECK_EQ(recorder.slices[1], 2048);

        /* Ending waits for what can be done, and says what cannot. */
        recorder.deferred = false;
        policy_engine_pressure(e, 0, 5);
        CHECK_EQ(recorder.slices[1], 300);
        recorder.full = true;
        CHECK_EQ(policy_engine_disable(e, "other"), 0);
        CHECK_EQ(recorder.not_undone, 0);
        policy_engine_unload_all(e);
        CHECK_EQ(recorder.not_undone, 1);
        policy_engine_free(e);
}

/* What waits to be set back goes with its process: nothing is left, and nobody waits for it. */
static void test_undo_waits_for_the_dead(void)
{
        struct policy_engine *e = world();

        load_named(e, "p", 0);
        ask(e, "p", (struct policy_action){6, 0, 1, 0, 0, 8000});
        policy_engine_tick(e, 1);
        ask(e, "p", (struct policy_action){3, 0, 1, BASE, MIB, 0});
        policy_engine_tick(e, 2);
        recorder.full = true;
        CHECK_EQ(policy_engine_disable(e, "p"), 0);
        policy_engine_process_exit(e, 1, 3);
        recorder.full = false;
        add_process(e, 2, "next", "/");
        set(e, "p", "process", 2);
        set(e, "p", "kind", POLICY_ACTION_preempt);
        CHECK_EQ(policy_engine_enable(e, "p", 4), 0);
        policy_engine_tick(e, 4);
        CHECK_EQ(recorder.count, 3);
        CHECK_EQ(last_order()->action.process, 2);
        CHECK_EQ(recorder.not_undone, 0);
        policy_engine_free(e);
        CHECK_EQ(recorder.count, 3);
}

/* Results make room: what waits for it follows at once. */
static void test_undo_follows_results(void)
{
        struct policy_engine *e = world();

        load_named(e, "p", 0);
        ask(e, "p", (struct policy_action){6, 0, 1, 0, 0, 8000});
        policy_engine_tick(e, 1);
        recorder.deferred = true;
        ask(e, "p", (struct policy_action){1, 0, 1, BASE, MIB, 0});
        policy_engine_tick(e, 2);
        recorder.full = true;
        CHECK_EQ(policy_engine_disable(e, "p"), 0);
        recorder.full = false;
        answer(&recorder);
        CHECK(last_order()->undo);
        flush(&recorder);
        CHECK_EQ(recorder.slices[1], 2048);
        policy_engine_free(e);
}

/* What was set about memory goes with it: nothing to undo, and nobody is kept from what comes. */
static void test_memory_is_freed(void)
{
        struct policy_engine *e = world();

        policy_engine_alloc(e, 1, BASE + 64 * MIB, 64 * MIB, 1); /* right behind */
        load_named(e, "a", 5);
        load_named(e, "b", 1);
        set(e, "b", "on", POLICY_EVENT_pressure);
        for (uint64_t i = 0; i < 3; i++) {
                ask(e, "a",
                    (struct policy_action){3, 0, 1, BASE + 48 * MIB + i * 16 * MIB, 16 * MIB, 0});
                policy_engine_tick(e, 1 + i);
        }
        CHECK_EQ(fixture_settings(e, "a"), 3);
        policy_engine_freed(e, 1, BASE + 64 * MIB, 5);
        CHECK_EQ(fixture_settings(e, "a"), 1);
        policy_engine_alloc(e, 1, BASE + 64 * MIB, 64 * MIB, 6);
        ask(e, "b", (struct policy_action){3, POLICY_HOST, 1, BASE + 64 * MIB, 16 * MIB, 0});
        policy_engine_pressure(e, 0, 7);
        CHECK_EQ(fixture_stats(e, "b").done, 1);
        set(e, "b", "address", BASE + 48 * MIB);
        policy_engine_pressure(e, 0, 8);
        CHECK_EQ(fixture_stats(e, "b").refused[POLICY_REFUSED_overruled], 1);

        /* Advice that is given while the memory goes is nothing to undo either. */
        recorder.deferred = true;
        set(e, "b", "address", BASE + 96 * MIB);
        policy_engine_pressure(e, 0, 9);
        policy_engine_freed(e, 1, BASE + 64 * MIB, 10);
        flush(&recorder);
        CHECK_EQ(fixture_settings(e, "b"), 0);
        policy_engine_free(e);
}

/* Policies know of so many allocations; one beyond that is said not to be told of. */
static void test_too_much_memory(void)
{
        struct policy_engine *e = world();

        add_process(e, 2, "many", "/jobs/many");
        for (uint64_t i = 0; i < TARGET_RANGES_MAX; i++)
                CHECK_EQ(policy_engine_alloc(e, 2, BASE + i * MIB, 4096, 1), 0);
        CHECK_EQ(policy_engine_alloc(e, 2, BASE - MIB, 4096, 2), -ENOSPC);
        CHECK_EQ(policy_engine_alloc(e, 2, BASE, 4096, 2),
                 0); /* takes the place of the one there */
        CHECK_EQ(policy_engine_alloc(e, 2, 0, 4096, 2), -EINVAL);
        CHECK_EQ(policy_engine_alloc(e, 99, BASE, 4096, 2), 0);
        policy_engine_free(e);
}

/* Contents are thrown away only for policies that were loaded with the right to. */
static void test_discard(void)
{
        struct policy_engine *e = world();

        load_named(e, "careful", 0);
        load(e, (struct policy_options){.name = "careless", .may_discard = true});
        ask(e, "careful", (struct policy_action){2, 0, 1, BASE, MIB, 0});
        ask(e, "careless", (struct policy_action){2, 0, 1, BASE, MIB, 0});
        policy_engine_tick(e, 1);
        CHECK_EQ(fixture_stats(e, "careful").refused[POLICY_REFUSED_not_allowed], 1);
        CHECK_EQ(fixture_stats(e, "careless").done, 1);
        policy_engine_free(e);
}

/* ---- between decision and action ---- */

static void test_unload_while_waiting(void)
{
        struct policy_engine *e = world();

        load_named(e, "p", 0);
        recorder.deferred = true;
        ask(e, "p", (struct policy_action){6, 0, 1, 0, 0, 8000});
        policy_engine_tick(e, 1);
        CHECK_EQ(fixture_stats(e, "p").waiting, 1);
        CHECK_EQ(policy_engine_unload(e, "p"), 0);
        CHECK_EQ(recorder.slices[1], 2048);
        flush(&recorder);                   /* it takes effect now, after its policy has gone ... */
        CHECK_EQ(recorder.slices[1], 2048); /* ... and was set back at once */
        CHECK(last_order()->undo);
        policy_engine_free(e);
}

/* The same for a policy that is kept but must not have anything in force. */
static void test_disable_while_waiting(void)
{
        struct policy_engine *e = world();

        load_named(e, "p", 0);
        recorder.deferred = true;
        ask(e, "p", (struct policy_action){6, 0, 1, 0, 0, 8000});
        policy_engine_tick(e, 1);
        CHECK_EQ(policy_engine_disable(e, "p"), 0);
        flush(&recorder);
        CHECK_EQ(recorder.slices[1], 2048);
        CHECK_EQ(fixture_settings(e, "p"), 0);
        CHECK_EQ(fixture_stats(e, "p").done, 1);
        policy_engine_free(e);
}

/* What a process does to its channel groups: the slice in force is set again, boundedly. */
static void test_slices_changed(void)
{
        struct policy_engine *e = world();
        struct policy_stats s;
        size_t orders;

        load_named(e, "p", 0);
        policy_engine_slices_changed(e, 1, POLICY_GPUS_MAX); /* nothing is in force */
        CHECK_EQ(recorder.count, 0);
        ask(e, "p", (struct policy_action){6, 0, 1, 0, 0, 8000});
        policy_engine_tick(e, 1);
        set(e, "p", "on", POLICY_EVENT_pressure);
        add_process(e, 2, "other", "/jobs/other");
        recorder.slices[1] = 1500;
        policy_engine_slices_changed(e, 2, POLICY_GPUS_MAX); /* another process */
        policy_engine_slices_changed(e, 99, POLICY_GPUS_MAX);
        CHECK_EQ(recorder.slices[1], 1500);
        policy_engine_slices_changed(e, 1, POLICY_GPUS_MAX);
        CHECK_EQ(recorder.slices[1], 8000);
        CHECK(!last_order()->undo);
        CHECK_STR(last_order()->owner, "p");

        /* A thousand changes before it is carried out: one order more when it has been. */
        recorder.deferred = true;
        orders = recorder.count;
        for (int i = 0; i < 1000; i++)
                policy_engine_slices_changed(e, 1, POLICY_GPUS_MAX);
        CHECK_EQ(recorder.count, orders + 1);
        recorder.deferred = false;
        answer(&recorder);
        CHECK_EQ(recorder.count, orders + 2);
        s = fixture_stats(e, "p");
        CHECK_EQ(s.renewed, 3);
        CHECK_EQ(s.asked, 1); /* the policy did not ask for these */
        CHECK_EQ(fixture_settings(e, "p"), 1);

        recorder.error = -EIO;
        policy_engine_slices_changed(e, 1, POLICY_GPUS_MAX);
        recorder.error = 0;
        recorder.full = true;
        policy_engine_slices_changed(e, 1, POLICY_GPUS_MAX);
        recorder.full = false;
        CHECK_EQ(fixture_stats(e, "p").unrenewed, 2);

        CHECK_EQ(policy_engine_disable(e, "p"), 0);
        CHECK_EQ(recorder.slices[1], 2048);
        policy_engine_slices_changed(e, 1, POLICY_GPUS_MAX);
        CHECK_EQ(recorder.slices[1], 2048);
        s = fixture_stats(e, "p");
        check_account(&s);
        CHECK_EQ(s.renewed, 3);
        policy_engine_free(e);
}

/* What was taken back before it came into force is claimed no more. */
static void test_take_back_is_no_claim(void)
{
        struct policy_engine *e = world();

        load_named(e, "low", 0);
        load_named(e, "high", 1);
        set(e, "low", "on", POLICY_EVENT_pressure);
        recorder.deferred = true;
        for (uint32_t kind = POLICY_ACTION_accessed_by; kind <= POLICY_ACTION_time_slice; kind++) {
                uint64_t bytes = kind == POLICY_ACTION_time_slice ? 0 : MIB;
                uint64_t value = bytes ? 1 : 8000;

                ask(e, "high", (struct policy_action){kind, 0, 1, BASE, bytes, value});
                policy_engine_tick(e, 1);
                set(e, "high", "value", 0);
                policy_engine_tick(e, 2);
                flush(&recorder);
                CHECK_EQ(fixture_settings(e, "high"), 0);
                ask(e, "low", (struct policy_action){kind, 0, 1, BASE, bytes, bytes ? 1 : 300});
                policy_engine_pressure(e, 0, NSEC_PER_SEC);
                flush(&recorder);
        }
        CHECK_EQ(fixture_stats(e, "low").done, 3);
        policy_engine_free(e);
}

/* A group made while the first order was under way is not missed, nor is one unloaded meanwhile. */
static void test_slices_changed_while_waiting(void)
{
        struct policy_engine *e = world();

        load_named(e, "p", 0);
        recorder.deferred = true;
        ask(e, "p", (struct policy_action){6, 0, 1, 0, 0, 8000});
        policy_engine_tick(e, 1);
        policy_engine_slices_changed(e, 1, POLICY_GPUS_MAX);
        CHECK_EQ(recorder.count, 1);
        answer(&recorder);
        CHECK_EQ(recorder.count, 2);
        policy_engine_slices_changed(e, 1, POLICY_GPUS_MAX);
        CHECK_EQ(policy_engine_unload(e, "p"), 0);
        flush(&recorder);
        CHECK_EQ(recorder.slices[1], 2048);
        CHECK(last_order()->undo);
        policy_engine_free(e);
}

/* Setting back reaches all groups of a process: a slice in force since is set again. */
static void test_slice_set_back_under_another(void)
{
        struct policy_engine *e = world();

        load_named(e, "low", 0);
        load_named(e, "high", 1);
        set(e, "high", "on", POLICY_EVENT_pressure);
        ask(e, "low", (struct policy_action){6, 0, 1, 0, 0, 8000});
        policy_engine_tick(e, 1);
        ask(e, "high", (struct policy_action){6, 0, 1, 0, 0, 300});
        recorder.deferred = true;
        policy_engine_pressure(e, 0, 2);
        CHECK_EQ(policy_engine_unload(e, "low"), 0);
        flush(&recorder);
        CHECK_EQ(recorder.slices[1], 300);
        CHECK_EQ(fixture_stats(e, "high").renewed, 1);
        policy_engine_free(e);
}

/* What fails in part is set back at once, and what it had taken the place of is in force again. */
static void test_fails_in_part(void)
{
        struct policy_engine *e = world();

        load_named(e, "low", 0);
        load_named(e, "high", 1);
        set(e, "high", "on", POLICY_EVENT_pressure);
        recorder.failing = "high";
        recorder.in_part = true;
        ask(e, "low", (struct policy_action){6, 0, 1, 0, 0, 8000});
        policy_engine_tick(e, 1);
        ask(e, "high", (struct policy_action){6, 0, 1, 0, 0, 300});
        policy_engine_pressure(e, 0, 2);
        CHECK_EQ(recorder.slices[1], 8000);
        CHECK_EQ(fixture_stats(e, "high").refused[POLICY_REFUSED_failed], 1);
        CHECK_EQ(fixture_settings(e, "high"), 0);

        ask(e, "high", (struct policy_action){3, 0, 1, BASE, MIB, 0});
        policy_engine_pressure(e, 0, 3);
        CHECK(last_order()->undo && last_order()->action.to == POLICY_NOWHERE);
        CHECK_EQ(last_order()->action.bytes, MIB);

        /* One that renews what is in force does not go on for ever. */
        recorder.failing = "low";
        policy_engine_slices_changed(e, 1, POLICY_GPUS_MAX);
        CHECK_EQ(fixture_settings(e, "low"), 1);
        recorder.failing = NULL;
        CHECK_EQ(policy_engine_unload(e, "low"), 0);
        CHECK_EQ(recorder.slices[1], 2048);
        policy_engine_free(e);
}

/* What one run asks for is known as a whole before any of it is carried out. */
static void test_a_run_is_held(void)
{
        struct policy_engine *e = world();

        load_named(e, "p", 0);
        ask(e, "p", (struct policy_action){1, 0, 1, BASE, MIB, 0});
        set(e, "p", "step", MIB);
        set(e, "p", "repeat", 10);
        policy_engine_tick(e, 1);
        CHECK_EQ(recorder.count, 10);
        CHECK_EQ(recorder.held_orders, 10);
        CHECK(!recorder.held);
        policy_engine_free(e);
}

/* ---- calls that do not return ---- */

static const struct policy_action slice_8000 = {6, 0, 1, 0, 0, 8000};

/* The action fails with the reason; other processes go on; what takes effect late is set back. */
static void test_stuck(void)
{
        struct policy_engine *e = world();
        struct policy_stats s;

        load_named(e, "p", 0);
        add_process(e, 2, "other", "/jobs/other");
        recorder.sticking = 1;
        ask(e, "p", slice_8000);
        policy_engine_tick(e, 1);
        policy_engine_tick(e, 2);
        s = fixture_stats(e, "p");
        CHECK_EQ(s.refused[POLICY_REFUSED_stuck], 2);
        CHECK_EQ(s.waiting, 0);
        CHECK_EQ(recorder.stuck_told, 1);
        CHECK_EQ(fixture_settings(e, "p"), 0);
        ask(e, "p", (struct policy_action){6, 0, 2, 0, 0, 8000});
        policy_engine_tick(e, 3);
        CHECK_EQ(recorder.slices[2], 8000);
        set(e, "p", "on", POLICY_EVENT_pressure);

        come_back(&recorder);
        CHECK_EQ(recorder.returned_told, 1);
        CHECK_EQ(recorder.slices[1], 2048); /* nobody has it in force */
        CHECK(recorder.orders[recorder.count - 1].undo);
        s = fixture_stats(e, "p");
        check_account(&s);

        /* It is told of its processes, so that it can ask again. */
        set(e, "p", "on", POLICY_EVENT_process_start);
        ask(e, "p", slice_8000);
        set(e, "p", "on", POLICY_EVENT_pressure);
        recorder.slices[1] = 2048;
        policy_engine_tick(e, 4);
        CHECK_EQ(fixture_settings(e, "p"), 2);
        policy_engine_free(e);
        CHECK_EQ(recorder.not_undone, 0);
}

/* "p" has given a slice, and the driver does not return from the next call. */
static struct policy_engine *world_that_sticks(void)
{
        struct policy_engine *e = world();

        load_named(e, "p", 0);
        ask(e, "p", slice_8000);
        policy_engine_tick(e, 1);
        recorder.sticking = 1;
        return e;
}

/*
 * What was noted for an order that was refused, and may never have been set, is taken out when the
 * driver returns: once, however many were refused. What is in force stays so.
 */
static void test_stuck_leaves_no_note(void)
{
        struct policy_engine *e = world_that_sticks();
        struct policy_stats s;
        size_t orders;

        ask(e, "p", (struct policy_action){7, 0, 1, 0, 0, 0});
        policy_engine_tick(e, 2);
        ask(e, "p", (struct policy_action){6, 0, 1, 0, 0, 4000});
        policy_engine_tick(e, 3);
        policy_engine_tick(e, 4);
        set(e, "p", "on", POLICY_EVENT_pressure);
        CHECK_EQ(fixture_stats(e, "p").refused[POLICY_REFUSED_stuck], 3);
        orders = recorder.count;
        come_back(&recorder);
        CHECK_EQ(recorder.count, orders + 2);
        CHECK(recorder.orders[orders].undo && recorder.orders[orders].noted);
        CHECK(!last_order()->undo);
        CHECK_EQ(recorder.slices[1], 8000);
        CHECK_EQ(fixture_settings(e, "p"), 1);
        CHECK_EQ(recorder.not_undone, 0);
        s = fixture_stats(e, "p");
        check_account(&s);
        policy_engine_free(e);
        CHECK_EQ(recorder.slices[1], 2048);
}

/* What is in force stays so, as the driver has it. */
static void test_stuck_renewal(void)
{
        struct policy_engine *e = world_that_sticks();

        ask(e, "p", (struct policy_action){6, 0, 1, 0, 0, 4000});
        policy_engine_tick(e, 2);
        set(e, "p", "on", POLICY_EVENT_pressure);
        CHECK_EQ(fixture_settings(e, "p"), 1);
        come_back(&recorder);
        CHECK_EQ(recorder.slices[1], 8000);
        policy_engine_free(e);
        CHECK_EQ(recorder.slices[1], 2048);
}

/* Disabling does not wait; what is to be set back is, when the driver returns. */
static void test_stuck_undo(void)
{
        struct policy_engine *e = world_that_sticks();

        set(e, "p", "kind", POLICY_ACTION_migrate);
        set(e, "p", "address", BASE);
        set(e, "p", "bytes", MIB);
        policy_engine_tick(e, 2);
        CHECK_EQ(recorder.stuck_told, 1);
        CHECK_EQ(policy_engine_disable(e, "p"), 0);
        CHECK_EQ(recorder.slices[1], 8000);
        CHECK_EQ(recorder.not_undone, 1);
        CHECK_EQ(fixture_stats(e, "p").not_undone, 1);
        come_back(&recorder);
        CHECK_EQ(recorder.slices[1], 2048);
        CHECK_EQ(recorder.not_undone, 1);

        /* The same when it is the undoing that does not return, or the process ends meanwhile. */
        CHECK_EQ(policy_engine_enable(e, "p", 3), 0);
        ask(e, "p", slice_8000);
        policy_engine_tick(e, 4);
        recorder.sticking = 1;
        CHECK_EQ(policy_engine_unload(e, "p"), 0);
        CHECK_EQ(recorder.slices[1], 8000);
        CHECK_EQ(recorder.not_undone, 2);
        come_back(&recorder);
        CHECK_EQ(recorder.slices[1], 2048);

        load_named(e, "p", 0);
        ask(e, "p", slice_8000);
        recorder.sticking = 1;
        policy_engine_tick(e, 5);
        policy_engine_process_exit(e, 1, 6);
        come_back(&recorder);
        CHECK(!last_order()->undo);
        policy_engine_free(e);
}

/* The daemon stops while one is stuck, and another undo waits for it. */
static void test_stuck_at_the_end(void)
{
        struct policy_engine *e = world_that_sticks();

        ask(e, "p", (struct policy_action){7, 0, 1, 0, 0, 0});
        policy_engine_tick(e, 2);
        policy_engine_unload_all(e);
        CHECK_EQ(recorder.not_undone, 1);
        CHECK_EQ(recorder.slices[1], 8000);
        policy_engine_free(e);
}

static void test_process_dies(void)
{
        struct policy_engine *e = world();
        struct policy_stats s;
        size_t orders;

        load_named(e, "p", 0);
        ask(e, "p", (struct policy_action){6, 0, 1, 0, 0, 8000});
        policy_engine_tick(e, 1);
        recorder.deferred = true;
        policy_engine_tick(e, 2);
        policy_engine_process_exit(e, 1, 3);
        recorder.error = -ESRCH;
        flush(&recorder);
        s = fixture_stats(e, "p");
        CHECK_EQ(s.refused[POLICY_REFUSED_gone], 1);
        check_account(&s);
        CHECK_EQ(fixture_settings(e, "p"), 0);
        orders = recorder.count;
        policy_engine_free(e);
        CHECK_EQ(recorder.count, orders); /* nothing is undone in what is not there */
}

/* The action won the race, the process ended before the result was heard. */
static void test_process_dies_after(void)
{
        struct policy_engine *e = world();
        size_t orders;

        load_named(e, "p", 0);
        recorder.deferred = true;
        ask(e, "p", (struct policy_action){6, 0, 1, 0, 0, 8000});
        policy_engine_tick(e, 1);
        policy_engine_process_exit(e, 1, 2);
        flush(&recorder);
        CHECK_EQ(fixture_stats(e, "p").done, 1);
        CHECK_EQ(fixture_settings(e, "p"), 0);
        orders = recorder.count;
        policy_engine_free(e);
        CHECK_EQ(recorder.count, orders);
}

/* ---- everything at once ---- */

#define STORM_PROCESSES 6
#define STORM_POLICIES  5

struct storm {
        struct policy_engine *engine;
        uint64_t seed, now_ns, next_key;
        uint64_t keys[STORM_PROCESSES]; /* 0: not there */
};

static int check_one_account(void *data, const struct policy_info *info)
{
        check_account(info->stats);
        return 0;
}

static struct policy_action any_action(struct storm *s)
{
        static const uint64_t values[] = {0, 1, 300, 8000, 99999, 1000000};
        static const uint32_t places[] = {0, POLICY_HOST,      POLICY_NOWHERE,
                                          3, POLICY_ON_GPU(0), POLICY_ON_GPU(1)};

        return (struct policy_action){
                .kind = (uint32_t)(test_random(&s->seed) % 10),
                .to = places[test_random(&s->seed) % ARRAY_SIZE(places)],
                .process = s->keys[test_random(&s->seed) % STORM_PROCESSES],
                .address = BASE + test_random(&s->seed) % 72 * MIB,
                .bytes = test_random(&s->seed) % 9 * MIB,
                .value = values[test_random(&s->seed) % 6],
        };
}

static void storm_process(struct storm *s, size_t i)
{
        if (s->keys[i]) {
                policy_engine_process_exit(s->engine, s->keys[i], s->now_ns);
                s->keys[i] = 0;
                return;
        }
        if (s->next_key >= 64)
                return; /* the recorder keeps so many slices */
        s->keys[i] = s->next_key++;
        add_process(s->engine, s->keys[i], "storm", "/storm");
        recorder.has_two[s->keys[i]] = i % 2;
        if (i % 2)
                policy_engine_process_gpu(s->engine, s->keys[i], 0, s->now_ns);
        if (i % 2)
                policy_engine_process_gpu(s->engine, s->keys[i], 1, s->now_ns);
        policy_engine_alloc(s->engine, s->keys[i], BASE, 64 * MIB, s->now_ns);
}

static void storm_policy(struct storm *s, const char *name, uint64_t what)
{
        switch (what) {
        case 0:
                if (policy_engine_unload(s->engine, name) < 0)
                        load(s->engine, (struct policy_options){
                                                .name = name,
                                                .precedence = (int32_t)(test_random(&s->seed) % 3),
                                                .has_gpu = test_random(&s->seed) % 3 == 0,
                                                .gpu = test_random(&s->seed) % 2,
                                                .limits = {.run_ns = ALL}});
                break;
        case 1:
                (void)policy_engine_disable(s->engine, name);
                break;
        case 2:
                (void)policy_engine_enable(s->engine, name, s->now_ns);
                break;
        default:
                if (policy_engine_disable(s->engine, name) == 0) {
                        ask(s->engine, name, any_action(s));
                        (void)policy_engine_enable(s->engine, name, s->now_ns);
                }
        }
}

/* The driver does not return from the next call for a process, or at last does. */
static void storm_stuck(struct storm *s)
{
        uint64_t key = 0;

        if (recorder.stuck.id) {
                come_back(&recorder);
                return;
        }
        for (int i = 0; i < STORM_PROCESSES && !key; i++)
                key = s->keys[test_random(&s->seed) % STORM_PROCESSES];
        recorder.sticking = key;
}

static void storm_step(struct storm *s)
{
        char name[4];

        s->now_ns += test_random(&s->seed) % (20 * NSEC_PER_MSEC);
        snprintf(name, sizeof(name), "p%u", (unsigned)(test_random(&s->seed) % STORM_POLICIES));
        switch (test_random(&s->seed) % 9) {
        case 0:
                storm_process(s, test_random(&s->seed) % STORM_PROCESSES);
                break;
        case 1:
        case 2:
                storm_policy(s, name, test_random(&s->seed) % 6);
                break;
        case 3:
                recorder.deferred = test_random(&s->seed) % 2;
                recorder.error = test_random(&s->seed) % 4 ? 0 : -EIO;
                break;
        case 4:
                flush(&recorder);
                break;
        case 5:
                policy_engine_slices_changed(s->engine,
                                             s->keys[test_random(&s->seed) % STORM_PROCESSES],
                                             test_random(&s->seed) % 2 ? 1 : POLICY_GPUS_MAX);
                break;
        case 6:
                storm_stuck(s);
                break;
        default:
                policy_engine_tick(s->engine, s->now_ns);
        }
}

/*
 * Policies and processes come and go, results are late, some fail, the driver hangs: in the end all
 * is accounted for, and every slice of a live process is what it was. (Undoing is
 * not made to fail here: then a setting does stay, and the journal has it.)
 */
static void test_storm(void)
{
        size_t stuck_told = 0;

        for (uint64_t seed = 1; seed <= 16; seed++) {
                struct storm s = {.engine = world(), .seed = seed, .next_key = 2};

                for (int i = 0; i < 1500; i++) {
                        storm_step(&s);
                        policy_engine_each(s.engine, check_one_account, NULL);
                        if (recorder.error)
                                flush(&recorder);
                        recorder.error = 0;
                }
                stuck_told += recorder.stuck_told;
                if (recorder.stuck.id)
                        come_back(&recorder);
                recorder.sticking = 0;
                flush(&recorder);
                policy_engine_free(s.engine);
                CHECK_EQ(recorder.answered, recorder.count);
                for (size_t i = 0; i < STORM_PROCESSES; i++)
                        CHECK(!s.keys[i] || (recorder.slices[s.keys[i]] == 2048 &&
                                             (i % 2 == 0 || recorder.others[s.keys[i]] == 2048)));
        }
        printf("%zu calls did not return\n", stuck_told);
        CHECK(stuck_told > 40);
}

int main(int argc, char **argv)
{
        CHECK(argc >= 2);
        fixture_policies = argv[1];
        bad_objects = argv + 2;
        bad_count = argc - 2;
        fixture_need_bpf();
        TEST(test_bad_objects);
        TEST(test_damaged_objects);
        TEST(test_names);
        TEST(test_variables);
        TEST(test_events);
        TEST(test_moves_are_seen);
        TEST(test_scopes);
        TEST(test_gpus);
        TEST(test_gpu_scope_of_events);
        TEST(test_gpu_scope_of_actions);
        TEST(test_gpu_scope_is_left);
        TEST(test_validation);
        TEST(test_garbled_answers);
        TEST(test_failures);
        TEST(test_precedence);
        TEST(test_setting_conflicts);
        TEST(test_conflicts_with_the_only_one);
        TEST(test_conflicts_with_nothing);
        TEST(test_budgets);
        TEST(test_refused_is_told);
        TEST(test_refused_is_told_later);
        TEST(test_asking_again_for_ever);
        TEST(test_take_back_over_budget);
        TEST(test_take_back_while_waiting);
        TEST(test_take_advice_back_while_waiting);
        TEST(test_take_back_is_no_claim);
        TEST(test_ejection);
        TEST(test_nested_loops);
        TEST(test_run_time);
        TEST(test_stopped_meanwhile);
        TEST(test_undo);
        TEST(test_undo_overridden);
        TEST(test_override_fails);
        TEST(test_override_is_dropped);
        TEST(test_lost_is_told);
        TEST(test_undo_shared);
        TEST(test_undo_fails);
        TEST(test_undo_waits_for_room);
        TEST(test_undo_waits_for_the_dead);
        TEST(test_undo_follows_results);
        TEST(test_memory_is_freed);
        TEST(test_too_much_memory);
        TEST(test_discard);
        TEST(test_unload_while_waiting);
        TEST(test_disable_while_waiting);
        TEST(test_slices_changed);
        TEST(test_slices_changed_while_waiting);
        TEST(test_slice_set_back_under_another);
        TEST(test_fails_in_part);
        TEST(test_a_run_is_held);
        TEST(test_stuck);
        TEST(test_stuck_leaves_no_note);
        TEST(test_stuck_renewal);
        TEST(test_stuck_undo);
        TEST(test_stuck_at_the_end);
        TEST(test_process_dies);
        TEST(test_process_dies_after);
        TEST(test_storm);
        return 0;
}
