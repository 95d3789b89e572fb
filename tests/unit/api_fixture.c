/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/api_fixture.h"

#include <errno.h>
#include <grp.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "correlate/slice_history.h"
#include "device/program.h"
#include "driver/nvml.h"
#include "libclient/gpuobs.h"
#include "policy/engine.h"
#include "unit/test.h"
#include "util/macro.h"
#include "util/time.h"

/* ---- the made-up daemon ---- */

static void state(void *data, struct api_state *ret_state)
{
        static const struct api_gpu gpu = {.gpu = 0,
                                           .uuid = "GPU-1",
                                           .clock = GPUOBS_CLOCK_PTIMER,
                                           .has_drift = true,
                                           .drift_ppb = -4780};
        static const struct api_problem problem = {"no_agent", "no process has an agent"};

        *ret_state = (struct api_state){
                .started_ns = now_ns() - 5 * NSEC_PER_SEC,
                .libraries = 2,
                .processes = FIXTURE_PROCESSES,
                .agents = 1,
                .gpus = &gpu,
                .gpu_count = 1,
                .problems = &problem,
                .problem_count = 1,
                .store_path = "/nowhere.db",
                .store = {.bytes = 4096, .launches = 12, .failing = true, .error = "disk full"},
        };
}

static uint32_t uid_of(uint64_t key)
{
        return key % 2 ? 0 : FIXTURE_UID;
}

static struct ledger ledger_of(uint64_t key)
{
        struct ledger l = {.produced = 10 * key, .stored = 8 * key};

        l.lost[LOSS_cpu_ring_full] = key;
        l.lost[LOSS_store_failed] = key;
        return l;
}

/* Made once, in the loop's thread: three kinds of calls, two channel groups on one GPU. */
static const struct calls *driver_calls(void)
{
        static const struct {
                uint32_t request, what, object, status, detail;
        } made[] = {{0xc030462b, 0x0080, 0x10, 0, 3},
                    {0xc030462b, 0xa06c, 0x20, 0, 1},
                    {0xc030462b, 0xa06c, 0x30, 0, 9},
                    {0xc030462b, 0xa06c, 0x40, 0x1a, 1},
                    {0xc01046ee, 0, 0, 0, 0}};
        static struct calls *calls;

        if (calls)
                return calls;
        calls = calls_new();
        for (size_t i = 0; i < sizeof(made) / sizeof(made[0]); i++) {
                struct driver_call_event e = {
                        .enter_ns = 1000 + i,
                        .duration_ns = 200,
                        .request = made[i].request,
                        .client = 0xc1d00001,
                        .parent = 0x10,
                        .object = made[i].object,
                        .what = made[i].what,
                        .status = made[i].status,
                        .detail = made[i].detail,
                        .fd = 7,
                        .minor = DRIVER_RM_CONTROL_MINOR,
                        .device = DRIVER_DEVICE_RM,
                        .has = DRIVER_HAS_ARGUMENT | DRIVER_HAS_STATUS | DRIVER_HAS_DETAIL,
                };

                CHECK(calls_add(calls, &e));
        }
        return calls;
}

/*
 * Managed memory of the first two processes, made once, in the loop's thread: three
 * allocations, of which the second faults most; the first process is watched.
 */
static struct uvm_process *managed(uint64_t key)
{
        static struct uvm_process *made[2];
        struct uvm_event fault = {.kind = UVM_KIND_GPU_FAULT, .source = 1, .address = 0x600000};
        struct uvm_event moved = {.kind = UVM_KIND_MIGRATION,
                                  .cause = UVM_MIGRATED_PREFETCH,
                                  .target = 1,
                                  .address = 0x400000,
                                  .bytes = 65536};
        struct uvm_process *p;

        if (key > 2)
                return NULL;
        if (made[key - 1])
                return made[key - 1];
        p = made[key - 1] = uvm_process_new();
        CHECK(p);
        for (uint64_t i = 0; i < 3; i++)
                CHECK_EQ(uvm_allocations_add(&p->allocations, 0x400000 + i * 0x200000, 0x200000, i),
                         0);
        for (uint64_t i = 0; i < 5 * key; i++)
                uvm_process_event(p, &fault, 1000);
        uvm_process_event(p, &moved, 100000);
        uvm_join_launch(p->join, 1, 900, 1500);
        uvm_process_second(p, UINT64_MAX);
        p->watch = key == 1 ? UVM_WATCH_ON : UVM_WATCH_REFUSED;
        snprintf(p->reason, sizeof(p->reason), "%s", key == 1 ? "" : "made up");
        p->events = (struct uvm_tracker_counts){.read = 6, .dropped = 4};
        return p;
}

static void processes(void *data, uint64_t after,
                      int (*row)(void *row_data, const struct api_process *p), void *row_data)
{
        for (uint64_t key = after + 1; key <= FIXTURE_PROCESSES; key++) {
                struct ledger ledger = ledger_of(key);
                struct process_info info = {.process_key = key,
                                            .pid = (uint32_t)(100 + key),
                                            .uid = uid_of(key),
                                            .start_ticks = 7 * key,
                                            .started_realtime_ns = 1,
                                            .exe = "/bin/app",
                                            .cgroup = ""};
                struct api_process p = {.info = &info,
                                        .ledger = &ledger,
                                        .alive = true,
                                        .agent = key == 1 ? GPUOBS_AGENT_ACTIVE : GPUOBS_AGENT_NONE,
                                        .contexts = 1,
                                        .has_depth = key == 1,
                                        .depth = 3,
                                        .images = 2,
                                        .kernels = 6,
                                        .kernels_start = 6,
                                        .kernels_end = 4,
                                        .calls = key == 3 ? NULL : driver_calls(),
                                        .managed = managed(key)};

                /* 16 bytes without a NUL, one of them not UTF-8 */
                memcpy(info.comm, "sixteen-bytes-\xff!", 16);
                if (row(row_data, &p))
                        return;
        }
}

static void images(void *data, uint64_t process_key, uint32_t after,
                   int (*row)(void *row_data, const struct api_image *image), void *row_data)
{
        for (uint32_t id = after + 1; id <= 2; id++) {
                struct api_image image = {.image_id = id,
                                          .kernels = 3,
                                          .rewritten = id == 1,
                                          .handle = 0xabc,
                                          .bytes = 1000,
                                          .reason = id == 1 ? NULL : "no machine code for sm_90"};

                if (row(row_data, &image))
                        return;
        }
}

static void kernels(void *data, uint64_t process_key, uint32_t image_id, uint32_t after,
                    int (*row)(void *row_data, const struct api_kernel *kernel), void *row_data)
{
        for (uint32_t id = 3 * (image_id - 1) + 1; id <= 3 * image_id; id++) {
                struct api_kernel kernel = {.kernel_id = id,
                                            .start = GPUOBS_HOW_SASS,
                                            .end = id % 3 ? GPUOBS_HOW_SASS : GPUOBS_HOW_NONE,
                                            .name = "_Z3addPfS_",
                                            .reason = id % 3 ? NULL : "no free uniform register"};

                if (id > after && row(row_data, &kernel))
                        return;
        }
}

static void losses(void *data, uint32_t uid, struct ledger *ret_ledger)
{
        *ret_ledger = (struct ledger){0};
        for (uint64_t key = 1; key <= FIXTURE_PROCESSES; key++) {
                struct ledger l = ledger_of(key);

                if (uid == API_ANY_UID || uid == uid_of(key))
                        ledger_add(ret_ledger, &l);
        }
}

static const struct process_info *process(void *data, uint64_t process_key)
{
        static struct process_info info;

        if (process_key == 0 || process_key > FIXTURE_PROCESSES)
                return NULL;
        info = (struct process_info){.process_key = process_key,
                                     .pid = (uint32_t)(100 + process_key),
                                     .uid = uid_of(process_key),
                                     .start_ticks = 7 * process_key,
                                     .comm = "app"};
        return &info;
}

/*
 * GPU 0: processes 1 and 2 take turns of 100 ns from 1000 ns on, then 100 ns that
 * nothing is known of. Made once.
 */
static struct slice_history *slices(void *data)
{
        static struct slice_history *history;

        if (history)
                return history;
        history = slice_history_new();
        for (uint64_t i = 0; i <= 20; i++) {
                const struct slice s = {.start_ns = 1000 + 100 * i,
                                        .end_ns = 1100 + 100 * i,
                                        .since_ns = 1000 + 100 * i,
                                        .pid = i == 20 ? 0 : 101 + i % 2,
                                        .context_id = 7,
                                        .engine = {CTXSW_NO_MIG, CTXSW_NO_MIG},
                                        .begins = i < 20,
                                        .ends = i < 20,
                                        .unknown = i == 20};
                uint64_t sequence;

                CHECK_EQ(slice_history_add(history, 0, i == 20 ? 0 : 1 + i % 2, &s, &sequence), 0);
        }
        return history;
}

/* The simulated library where the environment names it; made once. */
static struct nvml *nvml(void *data)
{
        const char *path = getenv("FIXTURE_NVML");
        static struct nvml *library;

        if (!library && path)
                library = nvml_new(path);
        return library;
}

static bool gpu_of_instance(void *data, uint32_t instance, uint32_t *ret_gpu)
{
        *ret_gpu = instance + 4;
        return instance < 4;
}

/* The first of two groups tells. */
static bool time_slice(void *data, const struct process_info *process,
                       const struct call_group *group, uint64_t *ret_us)
{
        *ret_us = 2048;
        return group->object == 0x20;
}

static const char *name(void *data, uint64_t id)
{
        return id == 1 ? "_Z3addPfS_" : NULL;
}

/* The first process can be watched or not, the second never, others are not known. */
static int watch(void *data, uint32_t pid, bool on, const struct uvm_process **ret_process)
{
        *ret_process = NULL;
        if (pid != 101 && pid != 102)
                return -ESRCH;
        *ret_process = managed(pid - 100);
        if (pid == 102)
                return -ENODEV;
        managed(1)->watch = on ? UVM_WATCH_ON : UVM_WATCH_OFF;
        return 0;
}

static void subscriber_slow(void *data, uint64_t process_key, uint64_t n)
{
        struct fixture *f = data;

        CHECK(process_key >= 1 && process_key <= FIXTURE_PROCESSES);
        atomic_fetch_add(&f->slow, n);
}

static const struct config *settings(void *data)
{
        return &((struct fixture *)data)->config;
}

static int set(void *data, const char *name, const char *value, char *error, size_t error_size)
{
        struct fixture *f = data;

        return config_set(&f->config, name, value, error, error_size);
}

/* The fake store has no insides. */
static struct store *store(void *data)
{
        return NULL;
}

/* Nobody who carries out orders: policies can be loaded and looked at. */
static bool submit_nothing(void *data, const struct policy_order *order)
{
        return false;
}

static void flush_nothing(void *data)
{
}

static struct policy_engine *engine;

static struct policy_engine *policies(void *data)
{
        static const struct policy_actuator_ops ops = {.submit = submit_nothing,
                                                       .flush = flush_nothing};

        if (!engine)
                engine = policy_engine_new(&ops, NULL);
        CHECK(engine);
        return engine;
}

/* One event of each kind: of nobody, of the first process, of the second. */
static struct uvm_tier *decided(void)
{
        static struct uvm_tier *tier;
        struct uvm_tier_event e[4] = {
                {.probe = {.point = UVM_POINT_BATCH,
                           .has = UVM_PROBE_HAS_UUID | UVM_PROBE_HAS_FAULTS,
                           .uuid = {[15] = 0xab},
                           .faults = 12,
                           .distinct = 9,
                           .duplicates = 3,
                           .batch = 5,
                           .enter_ns = 100,
                           .duration_ns = 4000}},
                {.probe = {.point = UVM_POINT_PREFETCH,
                           .has = UVM_PROBE_HAS_BLOCK | UVM_PROBE_HAS_REGION | UVM_PROBE_HAS_HINT |
                                  UVM_PROBE_HAS_PROCESSOR,
                           .start = 0x200000,
                           .end = 0x3fffff,
                           .first = 16,
                           .outer = 32,
                           .processor = 1,
                           .chosen = 1,
                           .pages = {[1] = 0xff}},
                 .process_key = 1},
                {.probe = {.point = UVM_POINT_PICK,
                           .has = UVM_PROBE_HAS_CHUNK | UVM_PROBE_HAS_CAUSE,
                           .physical = 0x800000},
                 .cause = UVM_CAUSE_ALLOCATION,
                 .state = UVM_CHUNK_ALLOCATED},
                {.probe = {.point = UVM_POINT_MOVE, .has = UVM_PROBE_HAS_CAUSE, .status = 0x51},
                 .process_key = 2,
                 .cause = UVM_CAUSE_EVICTION},
        };

        if (tier)
                return tier;
        tier = uvm_tier_new();
        CHECK(tier);
        for (size_t i = 0; i < sizeof(e) / sizeof(e[0]); i++)
                uvm_tier_add(tier, &e[i]);
        return tier;
}

static void decisions(void *data, struct api_decisions *ret_decisions)
{
        *ret_decisions = (struct api_decisions){
                .tier = decided(),
                .probed = true,
                .struct_ops = "gpu_mem_ops",
                .lost = 3,
                .points = {[UVM_POINT_BATCH] = {.function = "service_fault_batch",
                                                .probed = true,
                                                .form = GPUOBS_UVM_FORM_FENTRY,
                                                .arguments = true},
                           [UVM_POINT_PICK] = {.reason = "made up"}},
        };
}

static void doctor(void *data, void (*row)(void *row_data, const struct api_check *check),
                   void *row_data)
{
        const struct api_check checks[] = {
                {"fine", GPUOBS_CHECK_STATE_OK, "it works", NULL},
                {"bad", GPUOBS_CHECK_STATE_BROKEN, "it does not", "Do something."},
        };

        for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]); i++)
                row(row_data, &checks[i]);
}

/* ---- device programs ---- */

static void probes(void *data, int (*row)(void *row_data, const struct api_probe *p),
                   void *row_data)
{
        const struct fixture *f = data;
        const struct api_probe p = {.id = 1, .name = "made_up", .object = f->object, .all = true};

        if (f->object)
                row(row_data, &p);
}

static void attachments(void *data, uint64_t id,
                        int (*row)(void *row_data, const struct api_attachment *a), void *row_data)
{
}

static int map_read(void *data, const struct api_map_request *request, api_map_done *done,
                    void *done_data, uint32_t *ret_pid, char *error, size_t error_size)
{
        struct fixture *f = data;
        int number = device_object_find_map(f->object, request->map);
        struct api_map_reading reading = {.settled = true};
        uint64_t *words;

        CHECK(number >= 0);
        reading.size = device_object_map(f->object, (size_t)number)->bytes;
        words = malloc(reading.size);
        CHECK(words);
        f->readings++;
        for (uint64_t i = 0; i < reading.size / sizeof(*words); i++)
                words[i] = f->readings;
        reading.bytes = reading.heap = (uint8_t *)words;
        *ret_pid = 101;
        done(done_data, 0, &reading);
        free(reading.heap);
        return 0;
}

bool fixture_load_object(struct fixture *f, const char *path)
{
        FILE *file = fopen(path, "rbe");
        char *bytes = malloc(1 << 20), error[512] = "";
        size_t size;
        int r;

        CHECK(file && bytes);
        size = fread(bytes, 1, 1 << 20, file);
        fclose(file);
        r = device_object_load(bytes, size, NULL, error, sizeof(error), &f->object);
        free(bytes);
        if (r < 0 && r != -EPERM)
                fprintf(stderr, "%s\n", error);
        CHECK(r == 0 || r == -EPERM);
        return r == 0;
}

static const struct api_backend backend = {
        .state = state,
        .processes = processes,
        .images = images,
        .kernels = kernels,
        .losses = losses,
        .process = process,
        .slices = slices,
        .nvml = nvml,
        .gpu_of_instance = gpu_of_instance,
        .time_slice = time_slice,
        .name = name,
        .watch = watch,
        .subscriber_slow = subscriber_slow,
        .doctor = doctor,
        .decisions = decisions,
        .policies = policies,
        .settings = settings,
        .set = set,
        .store = store,
        .probes = probes,
        .attachments = attachments,
        .map_read = map_read,
};

/* ---- the loop's thread ---- */

static struct store_launch make_launch(uint64_t id)
{
        static char names[10][16];
        uint64_t key = id % FIXTURE_PROCESSES + 1;
        struct store_launch l = {
                .record = {.launch_id = id,
                           .process_key = key,
                           .cpu_enter_ns = 1000 * id,
                           .cpu_return_ns = 1000 * id + 100,
                           .gpu_start_ns = 1000 * id + 50,
                           .gpu_end_ns = 1000 * id + 700,
                           .gpu = (uint32_t)(id % 2),
                           .has = LAUNCH_HAS_GPU | LAUNCH_HAS_GPU_START | LAUNCH_HAS_GPU_END |
                                  LAUNCH_HAS_KERNEL,
                           .match = MATCH_EXACT,
                           .end = END_MEASURED},
                .comm = "app",
                .cgroup = "",
                .pid = (uint32_t)(100 + key),
                .uid = uid_of(key),
                .start_ticks = 7 * key,
        };

        if (!names[id % 10][0])
                snprintf(names[id % 10], sizeof(names[0]), "kernel_%d", (int)(id % 10));
        l.kernel = names[id % 10];
        return l;
}

/* An event beside each launch, of the same process. */
static void publish_event(struct fixture *f, const struct store_launch *l)
{
        uint64_t id = l->record.launch_id;
        const struct process_info info = {.process_key = l->record.process_key,
                                          .pid = l->pid,
                                          .uid = l->uid,
                                          .start_ticks = l->start_ticks};
        const struct api_uvm_event e = {
                .process = &info,
                .event = {.kind = id % 2 ? UVM_KIND_GPU_FAULT : UVM_KIND_MIGRATION,
                          .access = id % 2 ? UVM_ACCESS_WRITE : UVM_ACCESS_UNKNOWN,
                          .cause = id % 2 ? 0 : UVM_MIGRATED_COHERENCE,
                          .address = id * 0x10000,
                          .bytes = id % 2 ? 0 : 0x10000},
                .when = {.at_ns = 1000 * id, .error_ns = (uint32_t)id},
                .allocation = id % 4 ? 0 : id * 0x10000 - 0x1000,
                .source = id % 2 ? 0 : API_UVM_CPU,
                .target = id % 4 ? API_UVM_UNKNOWN : 0,
        };

        api_server_publish_uvm(f->server, &e, 1);
}

/* A slice beside each launch, of the same process, that ends now. */
static void publish_slice(struct fixture *f, const struct store_launch *l)
{
        uint64_t now = now_ns();
        const struct kept_slice k = {
                .sequence = l->record.launch_id,
                .process_key = l->record.process_key,
                .slice = {.start_ns = now - NSEC_PER_MSEC,
                          .end_ns = now,
                          .since_ns = now - NSEC_PER_MSEC,
                          .pid = l->pid,
                          .engine = {CTXSW_NO_MIG, CTXSW_NO_MIG},
                          .begins = true,
                          .ends = true},
        };

        api_server_publish_slices(f->server, &k, 1);
}

static void on_publish(uv_async_t *async)
{
        struct fixture *f = async->data;
        struct store_launch *batch = calloc(f->publish_batch, sizeof(*batch));

        CHECK(batch);
        if (f->to_publish) {
                uint32_t n = 0;

                while (n < f->publish_batch && f->to_publish) {
                        batch[n++] = make_launch(f->next_launch_id++);
                        f->to_publish--;
                }
                api_server_publish(f->server, batch, n);
                if (api_server_has_uvm_subscribers(f->server))
                        for (uint32_t i = 0; i < n; i++)
                                publish_event(f, &batch[i]);
                for (uint32_t i = 0; i < n; i++)
                        publish_slice(f, &batch[i]);
                atomic_fetch_add(&f->published, n);
                /* Let the loop write in between. */
                uv_async_send(async);
        }
        free(batch);
}

static void on_closed(void *data)
{
        struct fixture *f = data;

        f->closed = true;
        uv_close((uv_handle_t *)&f->stop, NULL);
        uv_close((uv_handle_t *)&f->publish, NULL);
}

static void on_stop(uv_async_t *async)
{
        struct fixture *f = async->data;

        api_server_close(f->server, on_closed, f);
}

static void thread(void *data)
{
        struct fixture *f = data;
        struct api_server_options options = {.listen_fd = -1,
                                             .path = f->path,
                                             .store_path = "fake",
                                             .group = FIXTURE_GROUP,
                                             .limits = f->limits};

        CHECK_EQ(uv_loop_init(&f->loop), 0);
        CHECK_EQ(uv_async_init(&f->loop, &f->stop, on_stop), 0);
        CHECK_EQ(uv_async_init(&f->loop, &f->publish, on_publish), 0);
        f->stop.data = f->publish.data = f;
        CHECK_EQ(api_server_new(&f->loop, &options, &backend, f, &f->server), 0);
        uv_sem_post(&f->ready);
        uv_run(&f->loop, UV_RUN_DEFAULT);
        CHECK_EQ(uv_loop_close(&f->loop), 0);
}

void fixture_init(struct fixture *f)
{
        static int serial;

        *f = (struct fixture){.next_launch_id = 1, .publish_batch = 1};
        snprintf(f->path, sizeof(f->path), "/tmp/gpuobs-api-test-%d-%d.sock", getpid(), serial++);
        api_limits_default(&f->limits);
        CHECK_EQ(config_init(&f->config), 0);
        fake_store_delay_ms = 0;
        fake_store_turn = fake_store_let_go = fake_store_waiting = 0;
        fake_store_error = 0;
        fake_store_rows = 100;
        fake_store_peak = 0;
}

void fixture_start(struct fixture *f)
{
        signal(SIGPIPE, SIG_IGN); /* as the daemon does */
        CHECK_EQ(uv_sem_init(&f->ready, 0), 0);
        CHECK_EQ(uv_thread_create(&f->thread, thread, f), 0);
        uv_sem_wait(&f->ready);
        uv_sem_destroy(&f->ready);
}

void fixture_stop(struct fixture *f)
{
        uv_async_send(&f->stop);
        uv_thread_join(&f->thread);
        CHECK(f->closed);
        CHECK(access(f->path, F_OK) < 0);
        CHECK_EQ(fake_store_readers, 0);
        device_object_free(f->object);
        config_done(&f->config);
}

void fixture_publish(struct fixture *f, uint64_t n, uint32_t batch)
{
        uint64_t until = atomic_load(&f->published) + n;

        f->to_publish = n;
        f->publish_batch = batch;
        uv_async_send(&f->publish);
        while (atomic_load(&f->published) < until)
                usleep(1000);
}

/* ---- clients ---- */

int fixture_connect(const struct fixture *f)
{
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

        CHECK(fd >= 0);
        strcpy(address.sun_path, f->path);
        CHECK_EQ(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
        return fd;
}

struct gpuobs *fixture_client(const struct fixture *f)
{
        struct gpuobs *g = NULL;

        CHECK_EQ(gpuobs_connect(f->path, 10000, &g), 0);
        return g;
}

void fixture_as(struct fixture *f, uid_t uid, gid_t supplementary, void (*body)(struct fixture *f))
{
        pid_t pid = fork();
        int status;

        CHECK(pid >= 0);
        if (pid == 0) {
                CHECK_EQ(setgroups(1, &supplementary), 0);
                CHECK_EQ(setresgid(65534, 65534, 65534), 0);
                CHECK_EQ(setresuid(uid, uid, uid), 0);
                body(f);
                fflush(NULL);
                _exit(0);
        }
        CHECK_EQ(waitpid(pid, &status, 0), pid);
        CHECK(WIFEXITED(status));
        CHECK_EQ(WEXITSTATUS(status), 0);
}
