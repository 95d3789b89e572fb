/* SPDX-License-Identifier: Apache-2.0 */
#include "driver/nvml.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "driver/silence.h"
#include "util/macro.h"
#include "util/thread.h"
#include "util/time.h"

/*
 * The part of the library's interface that is used, as its documentation has it:
 * results are 0 for success, handles are pointers.
 */
typedef struct nvml_device *nvml_device_t;       /* opaque */
typedef struct nvml_event_set *nvml_event_set_t; /* opaque */

struct nvml_utilization {
        unsigned gpu, memory;
};
struct nvml_memory {
        unsigned long long total, free, used;
};
struct nvml_event {
        nvml_device_t device;
        unsigned long long type, data;
        unsigned gpu_instance, compute_instance;
};

#define CLOCK_SM            1
#define CLOCK_MEMORY        2
#define TEMPERATURE_GPU     0
#define ECC_CORRECTED       0
#define ECC_UNCORRECTED     1
#define ECC_SINCE_LOAD      0
#define EVENT_XID           8ULL
#define TIMEOUT             10 /* result of a wait */
#define WAIT_MS             500
#define WAIT_AFTER_ERROR_MS 1000
#define LOOK_MS             50 /* between two looks at whether the driver is silent */

/* Name, whether it cannot be done without, parameters. */
#define FUNCTIONS(F)                                                                               \
        F(nvmlInit_v2, true, (void))                                                               \
        F(nvmlShutdown, true, (void))                                                              \
        F(nvmlDeviceGetCount_v2, true, (unsigned *))                                               \
        F(nvmlDeviceGetHandleByIndex_v2, true, (unsigned, nvml_device_t *))                        \
        F(nvmlDeviceGetMinorNumber, false, (nvml_device_t, unsigned *))                            \
        F(nvmlDeviceGetUUID, false, (nvml_device_t, char *, unsigned))                             \
        F(nvmlDeviceGetName, false, (nvml_device_t, char *, unsigned))                             \
        F(nvmlDeviceGetUtilizationRates, false, (nvml_device_t, struct nvml_utilization *))        \
        F(nvmlDeviceGetMemoryInfo, false, (nvml_device_t, struct nvml_memory *))                   \
        F(nvmlDeviceGetClockInfo, false, (nvml_device_t, int, unsigned *))                         \
        F(nvmlDeviceGetPowerUsage, false, (nvml_device_t, unsigned *))                             \
        F(nvmlDeviceGetEnforcedPowerLimit, false, (nvml_device_t, unsigned *))                     \
        F(nvmlDeviceGetTemperature, false, (nvml_device_t, int, unsigned *))                       \
        F(nvmlDeviceGetTotalEccErrors, false, (nvml_device_t, int, int, unsigned long long *))     \
        F(nvmlDeviceGetCurrentClocksThrottleReasons, false, (nvml_device_t, unsigned long long *)) \
        F(nvmlEventSetCreate, false, (nvml_event_set_t *))                                         \
        F(nvmlEventSetFree, false, (nvml_event_set_t))                                             \
        F(nvmlDeviceRegisterEvents, false, (nvml_device_t, unsigned long long, nvml_event_set_t))  \
        F(nvmlEventSetWait_v2, false, (nvml_event_set_t, struct nvml_event *, unsigned))

struct functions {
#define F(name, required, parameters) int(*name) parameters;
        FUNCTIONS(F)
#undef F
};

struct xids {
        uint64_t count, at_ns;
        uint32_t last;
};

struct nvml {
        char *path;
        void *library;
        struct functions f;
        nvml_device_t devices[NVML_GPUS_MAX]; /* fixed once state is 0 */
        size_t count;
        pthread_t reader, watcher;
        struct silence silence; /* the reader's */

        pthread_mutex_t lock;
        pthread_cond_t wake;    /* the threads: something is asked for, or the end */
        pthread_cond_t changed; /* who waits for the reader */
        int state;              /* 0 works; -EAGAIN; what nvml_read() says */
        bool stop, ended, abandoned;
        uint64_t asked, answered;            /* questions, ever */
        struct nvml_gpu last[NVML_GPUS_MAX]; /* the last answer, but for Xid */
        struct xids xids[NVML_GPUS_MAX];
};

/* ---- opening ---- */

static int find_functions(struct nvml *n)
{
#define F(name, required, parameters)                                                              \
        n->f.name = (int(*) parameters)dlsym(n->library, #name);                                   \
        if (required && !n->f.name)                                                                \
                return -EIO;
        FUNCTIONS(F)
#undef F
        return 0;
}

static int find_devices(struct nvml *n)
{
        unsigned count = 0;

        if (n->f.nvmlDeviceGetCount_v2(&count) != 0)
                return -EIO;
        for (unsigned i = 0; i < count && n->count < NVML_GPUS_MAX; i++)
                if (n->f.nvmlDeviceGetHandleByIndex_v2(i, &n->devices[n->count]) == 0)
                        n->count++;
        return 0;
}

static int open_library(struct nvml *n)
{
        int r;

        n->library = dlopen(n->path, RTLD_NOW | RTLD_LOCAL);
        if (!n->library)
                return -ENOENT;
        r = find_functions(n);
        if (r == 0 && n->f.nvmlInit_v2() != 0)
                r = -EIO;
        if (r < 0)
                return r;
        r = find_devices(n);
        if (r < 0)
                n->f.nvmlShutdown();
        return r;
}

/* ---- asking; any call may not return ---- */

static void note(struct nvml_gpu *g, enum nvml_has bit, bool known)
{
        if (known)
                g->has |= bit;
}

static void read_identity(const struct nvml *n, nvml_device_t d, struct nvml_gpu *g)
{
        const struct functions *f = &n->f;

        note(g, NVML_HAS_MINOR,
             f->nvmlDeviceGetMinorNumber && f->nvmlDeviceGetMinorNumber(d, &g->minor) == 0);
        if (!f->nvmlDeviceGetUUID || f->nvmlDeviceGetUUID(d, g->uuid, sizeof(g->uuid)) != 0)
                g->uuid[0] = '\0';
        if (!f->nvmlDeviceGetName || f->nvmlDeviceGetName(d, g->name, sizeof(g->name)) != 0)
                g->name[0] = '\0';
        g->uuid[sizeof(g->uuid) - 1] = g->name[sizeof(g->name) - 1] = '\0';
}

static void read_load(const struct nvml *n, nvml_device_t d, struct nvml_gpu *g)
{
        const struct functions *f = &n->f;
        struct nvml_utilization u;
        struct nvml_memory m;

        if (f->nvmlDeviceGetUtilizationRates && f->nvmlDeviceGetUtilizationRates(d, &u) == 0) {
                g->utilization = u.gpu;
                g->memory_utilization = u.memory;
                g->has |= NVML_HAS_UTILIZATION;
        }
        if (f->nvmlDeviceGetMemoryInfo && f->nvmlDeviceGetMemoryInfo(d, &m) == 0) {
                g->memory_total = m.total;
                g->memory_used = m.used;
                g->has |= NVML_HAS_MEMORY;
        }
        if (f->nvmlDeviceGetClockInfo) {
                note(g, NVML_HAS_SM_CLOCK,
                     f->nvmlDeviceGetClockInfo(d, CLOCK_SM, &g->sm_clock) == 0);
                note(g, NVML_HAS_MEMORY_CLOCK,
                     f->nvmlDeviceGetClockInfo(d, CLOCK_MEMORY, &g->memory_clock) == 0);
        }
}

static void read_health(const struct nvml *n, nvml_device_t d, struct nvml_gpu *g)
{
        const struct functions *f = &n->f;
        unsigned long long corrected = 0, uncorrected = 0, throttle = 0;

        note(g, NVML_HAS_POWER,
             f->nvmlDeviceGetPowerUsage && f->nvmlDeviceGetPowerUsage(d, &g->power) == 0);
        note(g, NVML_HAS_POWER_LIMIT,
             f->nvmlDeviceGetEnforcedPowerLimit &&
                     f->nvmlDeviceGetEnforcedPowerLimit(d, &g->power_limit) == 0);
        note(g, NVML_HAS_TEMPERATURE,
             f->nvmlDeviceGetTemperature &&
                     f->nvmlDeviceGetTemperature(d, TEMPERATURE_GPU, &g->temperature) == 0);
        if (f->nvmlDeviceGetTotalEccErrors) {
                note(g, NVML_HAS_ECC_CORRECTED,
                     f->nvmlDeviceGetTotalEccErrors(d, ECC_CORRECTED, ECC_SINCE_LOAD, &corrected) ==
                             0);
                note(g, NVML_HAS_ECC_UNCORRECTED,
                     f->nvmlDeviceGetTotalEccErrors(d, ECC_UNCORRECTED, ECC_SINCE_LOAD,
                                                    &uncorrected) == 0);
        }
        note(g, NVML_HAS_THROTTLE,
             f->nvmlDeviceGetCurrentClocksThrottleReasons &&
                     f->nvmlDeviceGetCurrentClocksThrottleReasons(d, &throttle) == 0);
        g->ecc_corrected = corrected;
        g->ecc_uncorrected = uncorrected;
        g->throttle = throttle;
}

/* ---- the threads ---- */

static void set_state(struct nvml *n, int state)
{
        pthread_mutex_lock(&n->lock);
        n->state = state;
        pthread_mutex_unlock(&n->lock);
}

/* Wait, but for the end of the thread: true when it has come. */
static bool rest(struct nvml *n, uint64_t ms)
{
        uint64_t until = now_ns() + ms * NSEC_PER_MSEC;
        struct timespec t = {.tv_sec = (time_t)(until / NSEC_PER_SEC),
                             .tv_nsec = (long)(until % NSEC_PER_SEC)};
        bool stop;

        pthread_mutex_lock(&n->lock);
        if (!n->stop && ms)
                pthread_cond_timedwait(&n->wake, &n->lock, &t);
        stop = n->stop;
        pthread_mutex_unlock(&n->lock);
        return stop;
}

static void note_xid(struct nvml *n, const struct nvml_event *e)
{
        pthread_mutex_lock(&n->lock);
        for (size_t i = 0; i < n->count; i++) {
                if (n->devices[i] != e->device)
                        continue;
                n->xids[i].count++;
                n->xids[i].at_ns = now_ns();
                n->xids[i].last = (uint32_t)e->data;
        }
        pthread_mutex_unlock(&n->lock);
}

static bool register_events(struct nvml *n, nvml_event_set_t set)
{
        size_t registered = 0;

        for (size_t i = 0; i < n->count; i++)
                registered += n->f.nvmlDeviceRegisterEvents(n->devices[i], EVENT_XID, set) == 0;
        return registered > 0;
}

static void watch_events(struct nvml *n)
{
        nvml_event_set_t set = NULL;
        struct nvml_event e;

        if (!n->f.nvmlEventSetCreate || !n->f.nvmlEventSetFree || !n->f.nvmlDeviceRegisterEvents ||
            !n->f.nvmlEventSetWait_v2 || n->f.nvmlEventSetCreate(&set) != 0)
                return;
        if (register_events(n, set)) {
                while (!rest(n, 0)) {
                        int r = n->f.nvmlEventSetWait_v2(set, &e, WAIT_MS);

                        if (r == 0 && e.type == EVENT_XID)
                                note_xid(n, &e);
                        else if (r != 0 && r != TIMEOUT && rest(n, WAIT_AFTER_ERROR_MS))
                                break;
                }
        }
        n->f.nvmlEventSetFree(set);
}

static void *watcher_main(void *data)
{
        watch_events(data);
        return NULL;
}

/* False: the end has come. */
static bool wait_for_question(struct nvml *n, uint64_t *ret_asked)
{
        bool stop;

        pthread_mutex_lock(&n->lock);
        while (!n->stop && n->asked == n->answered)
                pthread_cond_wait(&n->wake, &n->lock);
        *ret_asked = n->asked;
        stop = n->stop;
        pthread_mutex_unlock(&n->lock);
        return !stop;
}

static void answer(struct nvml *n, uint64_t asked)
{
        struct nvml_gpu gpus[NVML_GPUS_MAX] = {0};

        for (size_t i = 0; i < n->count; i++) {
                silence_begin(&n->silence);
                read_identity(n, n->devices[i], &gpus[i]);
                read_load(n, n->devices[i], &gpus[i]);
                read_health(n, n->devices[i], &gpus[i]);
        }
        silence_end(&n->silence);
        pthread_mutex_lock(&n->lock);
        memcpy(n->last, gpus, sizeof(gpus));
        n->answered = asked;
        pthread_cond_broadcast(&n->changed);
        pthread_mutex_unlock(&n->lock);
}

static int open_all(struct nvml *n)
{
        int r;

        silence_begin(&n->silence);
        r = open_library(n);
        for (size_t i = 0; r == 0 && i < n->count; i++) {
                silence_begin(&n->silence);
                read_identity(n, n->devices[i], &n->last[i]);
        }
        silence_end(&n->silence);
        return r;
}

static void work(struct nvml *n)
{
        uint64_t asked;
        bool watched = pthread_create(&n->watcher, NULL, watcher_main, n) == 0;

        while (wait_for_question(n, &asked))
                answer(n, asked);
        if (watched)
                pthread_join(n->watcher, NULL);
        n->f.nvmlShutdown();
}

/* The library is not closed: threads that it may have made would lose their code. */
static void destroy(struct nvml *n)
{
        pthread_cond_destroy(&n->changed);
        pthread_cond_destroy(&n->wake);
        pthread_mutex_destroy(&n->lock);
        free(n->path);
        free(n);
}

/* Whoever would free it may not have waited. */
static void leave(struct nvml *n)
{
        bool abandoned;

        pthread_mutex_lock(&n->lock);
        n->ended = true;
        abandoned = n->abandoned;
        pthread_cond_broadcast(&n->changed);
        pthread_mutex_unlock(&n->lock);
        if (!abandoned)
                return;
        destroy(n);
        silence_returned();
}

static void *reader_main(void *data)
{
        struct nvml *n = data;
        int r;

        pthread_setname_np(pthread_self(), "gpuobsd-nvml");
        r = open_all(n);
        set_state(n, r);
        if (r == 0)
                work(n);
        leave(n);
        return NULL;
}

/* ---- life ---- */

struct nvml *nvml_new(const char *library)
{
        struct nvml *n = calloc(1, sizeof(*n));
        pthread_condattr_t monotonic;

        if (!n)
                return NULL;
        n->state = -EAGAIN;
        n->path = strdup(library);
        pthread_mutex_init(&n->lock, NULL);
        pthread_condattr_init(&monotonic);
        pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
        pthread_cond_init(&n->wake, &monotonic);
        pthread_cond_init(&n->changed, &monotonic);
        pthread_condattr_destroy(&monotonic);
        if (n->path && thread_start(&n->reader, reader_main, n) == 0)
                return n;
        destroy(n);
        return NULL;
}

static void wait_for_change(struct nvml *n, uint64_t ms)
{
        uint64_t until = now_ns() + ms * NSEC_PER_MSEC;
        struct timespec t = {.tv_sec = (time_t)(until / NSEC_PER_SEC),
                             .tv_nsec = (long)(until % NSEC_PER_SEC)};

        pthread_cond_timedwait(&n->changed, &n->lock, &t);
}

struct nvml *nvml_free(struct nvml *n)
{
        uint64_t until = now_ns() + SILENCE_END_NS;

        if (!n)
                return NULL;
        pthread_mutex_lock(&n->lock);
        n->stop = true;
        pthread_cond_broadcast(&n->wake);
        while (!n->ended && now_ns() < until)
                wait_for_change(n, LOOK_MS);
        n->abandoned = !n->ended;
        if (n->abandoned) {
                silence_abandon();
                pthread_detach(n->reader);
                pthread_mutex_unlock(&n->lock); /* from here on it is the reader's */
                return NULL;
        }
        pthread_mutex_unlock(&n->lock);
        pthread_join(n->reader, NULL);
        destroy(n);
        return NULL;
}

/* ---- what was answered; the lock is held ---- */

static void add_xid(const struct xids *x, struct nvml_gpu *g)
{
        if (!x->count)
                return;
        g->xid_count = x->count;
        g->xid_at_ns = x->at_ns;
        g->xid = x->last;
        g->has |= NVML_HAS_XID;
}

/* What is so whatever happens. */
static struct nvml_gpu identity_of(const struct nvml_gpu *g)
{
        struct nvml_gpu identity = {.has = g->has & NVML_HAS_MINOR, .minor = g->minor};

        memcpy(identity.uuid, g->uuid, sizeof(identity.uuid));
        memcpy(identity.name, g->name, sizeof(identity.name));
        return identity;
}

/* 0; or for how long the driver has been silent. */
static uint64_t wait_for_answer(struct nvml *n)
{
        uint64_t silent_ns, question = ++n->asked;

        pthread_cond_broadcast(&n->wake);
        while (n->answered < question) {
                silent_ns = silence_lasts_ns(&n->silence);
                if (silent_ns >= SILENCE_NS)
                        return silent_ns;
                wait_for_change(n, LOOK_MS);
        }
        return 0;
}

int nvml_read(struct nvml *n, struct nvml_gpu *ret_gpus, size_t max, uint64_t *ret_silent_ns)
{
        uint64_t silent_ns = 0;
        int r;

        pthread_mutex_lock(&n->lock);
        r = n->state;
        if (r == 0)
                silent_ns = wait_for_answer(n);
        else if (r == -EAGAIN)
                silent_ns = silence_lasts_ns(&n->silence);
        for (size_t i = 0; n->state == 0 && i < n->count && i < max; i++) {
                ret_gpus[i] = silent_ns ? identity_of(&n->last[i]) : n->last[i];
                add_xid(&n->xids[i], &ret_gpus[i]);
                r = (int)i + 1;
        }
        pthread_mutex_unlock(&n->lock);
        *ret_silent_ns = silent_ns >= SILENCE_NS ? silent_ns : 0;
        return r;
}

int nvml_state(struct nvml *n)
{
        int r;

        pthread_mutex_lock(&n->lock);
        r = n->state == 0 ? (int)n->count : n->state;
        pthread_mutex_unlock(&n->lock);
        return r;
}

const struct silence *nvml_silence(const struct nvml *n)
{
        return &n->silence;
}
