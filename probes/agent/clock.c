/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "agent.h"
#include "clock.h"
#include "monotonic.h"
#include "own_thread.h"

#define BURST_ROUNDS  8 /* rounds at the start ... */
#define BURST_MS      35
#define ROUND_MS      1000
#define SAMPLES       5          /* of a round, the narrowest is sent */
#define SPIN_NS       200000     /* how long to wait without giving the CPU away */
#define WIDEST_NS     1000000000 /* a bracket wider than this is of no use */
#define STUCK_MS      2          /* between looks at a launch that does not start */
#define LAST_WAIT_NS  50000000   /* for a reading when the process wants to end */
#define LAST_POLL_US  20
#define STOP_WAIT_MS  300
#define FIRST_WAIT_MS 100
#define HOST_PAGE     4096

static const char clock_ptx[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                                ".visible .entry gpuobs_clock(.param .u64 where)\n{\n"
                                ".reg .b64 %rd<3>;\n"
                                "ld.param.u64 %rd1, [where];\n"
                                "mov.u64 %rd2, %globaltimer;\n"
                                "st.global.u64 [%rd1], %rd2;\n"
                                "ret;\n}\n";

/* Where a clock is read: a device, in its primary context, once the process has one there. */
struct place {
        bool ready;  /* what follows is there */
        bool failed; /* it cannot be read, and the daemon was told why */
        cuda_handle context, module, function, stream;
        volatile uint64_t *word; /* host memory the kernel writes */
        cuda_address word_address;
};

static struct {
        const struct cuda_api *api;
        struct wire *wire;
        uint64_t devices;         /* whose clocks are to be sent */
        pthread_mutex_t sampling; /* held while a place is used */
        struct place places[AGENT_DEVICES_MAX];

        pthread_t thread;
        pthread_mutex_t lock;
        pthread_cond_t wake;
        unsigned rounds; /* done so far */
        bool stop;
        bool registered; /* to be stopped at exit */
        pid_t pid;       /* of the process the thread is in; 0: no thread */
} sampler = {.lock = PTHREAD_MUTEX_INITIALIZER, .sampling = PTHREAD_MUTEX_INITIALIZER};

/* Sleep unless asked to stop; true when asked. */
static bool pause_or_stop(unsigned ms)
{
        struct timespec until = monotonic_in_ms(ms);
        bool stop;

        pthread_mutex_lock(&sampler.lock);
        while (!sampler.stop &&
               pthread_cond_clockwait(&sampler.wake, &sampler.lock, CLOCK_MONOTONIC, &until) == 0)
                ;
        stop = sampler.stop;
        pthread_mutex_unlock(&sampler.lock);
        return stop;
}

static int launch(const struct place *p)
{
        cuda_address where = p->word_address;
        void *parameters[] = {&where};

        return sampler.api->launch_kernel(p->function, 1, 1, 1, 1, 1, 1, 0, p->stream, parameters,
                                          NULL);
}

/* One bracketed reading. 1 a usable one; 0 too wide; -1 stop. */
static int sample(const struct place *p, struct agent_clock *ret_clock)
{
        uint64_t before, after, gpu;
        int r;

        *p->word = 0;
        before = raw_now_ns();
        r = launch(p);
        if (r != CUDA_OK) {
                wire_note(sampler.wire, AGENT_NOTE_ERROR, "clock: the launch failed: %s",
                          cuda_error_name(sampler.api, r));
                return -1;
        }
        do {
                gpu = *p->word;
                after = raw_now_ns();
        } while (!gpu && after - before < SPIN_NS);
        /* The GPU is busy. The launch must end before the word is used again. */
        while (!gpu) {
                if (pause_or_stop(STUCK_MS)) {
                        if (after - before > LAST_WAIT_NS)
                                return -1;
                        usleep(LAST_POLL_US);
                }
                gpu = *p->word;
                after = raw_now_ns();
        }
        ret_clock->raw_before_ns = before;
        ret_clock->gpu_ns = gpu;
        ret_clock->raw_after_ns = after;
        return after - before < WIDEST_NS;
}

/* False: the device cannot be read any more. */
static bool sample_place(const struct place *p, uint32_t device)
{
        struct agent_clock best = {0}, one = {.device = device};
        int r;

        for (int i = 0; i < SAMPLES; i++) {
                r = sample(p, &one);
                if (r < 0)
                        return false;
                if (r > 0 && (!best.gpu_ns || one.raw_after_ns - one.raw_before_ns <
                                                      best.raw_after_ns - best.raw_before_ns))
                        best = one;
        }
        if (best.gpu_ns)
                (void)wire_send(sampler.wire, AGENT_CLOCK, &best, sizeof(best));
        return true;
}

static int prepare_memory(struct place *p)
{
        void *page =
                mmap(NULL, HOST_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        int r;

        if (page == MAP_FAILED)
                return CUDA_INVALID_VALUE;
        r = sampler.api->host_register(page, HOST_PAGE,
                                       CUDA_HOST_REGISTER_PORTABLE | CUDA_HOST_REGISTER_DEVICEMAP);
        if (r == CUDA_OK)
                r = sampler.api->host_device_pointer(&p->word_address, page, 0);
        p->word = page;
        return r;
}

/* In the place's context. */
static int prepare(struct place *p)
{
        struct agent_handle handle = {0};
        int r;

        r = sampler.api->module_load_data(&p->module, clock_ptx);
        if (r == CUDA_OK)
                r = sampler.api->module_get_function(&p->function, p->module, "gpuobs_clock");
        if (r == CUDA_OK)
                r = sampler.api->stream_create(&p->stream, CUDA_STREAM_NON_BLOCKING);
        if (r == CUDA_OK)
                r = prepare_memory(p);
        if (r != CUDA_OK) {
                wire_note(sampler.wire, AGENT_NOTE_ERROR, "clock: cannot be set up: %s",
                          cuda_error_name(sampler.api, r));
                return -EIO;
        }
        handle.func = (uint64_t)(uintptr_t)p->function;
        return wire_send(sampler.wire, AGENT_HANDLE, &handle, sizeof(handle));
}

/* The process works there; asking does not make it. The context is kept from then on. */
static bool find_context(struct place *p, int device)
{
        unsigned flags;
        int active = 0;

        if (p->context)
                return true;
        return sampler.api->primary_get_state &&
               sampler.api->primary_get_state(device, &flags, &active) == CUDA_OK && active &&
               sampler.api->primary_retain(&p->context, device) == CUDA_OK;
}

/* true: it is new, and should be read often for a while. */
static bool round_at(struct place *p, int device)
{
        bool fresh = false;
        cuda_handle popped;

        if (p->failed || !find_context(p, device) ||
            sampler.api->context_push(p->context) != CUDA_OK)
                return false;
        if (!p->ready) {
                fresh = p->ready = prepare(p) == 0;
                p->failed = !fresh;
        }
        if (p->ready && !sample_place(p, (uint32_t)device))
                p->failed = true;
        sampler.api->context_pop(&popped);
        return fresh && !p->failed;
}

/* *ret_fresh: a device came to it. False: there is nobody to send to. */
static bool round_of_samples(bool *ret_fresh)
{
        *ret_fresh = false;
        for (int d = 0; d < AGENT_DEVICES_MAX; d++) {
                if (!(sampler.devices >> d & 1))
                        continue;
                pthread_mutex_lock(&sampler.sampling);
                *ret_fresh |= round_at(&sampler.places[d], d);
                pthread_mutex_unlock(&sampler.sampling);
        }
        return wire_alive(sampler.wire);
}

static void announce(unsigned rounds)
{
        pthread_mutex_lock(&sampler.lock);
        sampler.rounds = rounds;
        pthread_cond_broadcast(&sampler.wake);
        pthread_mutex_unlock(&sampler.lock);
}

static void *run(void *unused)
{
        bool going = true, stopped = false, fresh;
        unsigned rounds = 0, burst = 0;

        own_thread_begin();
        while (going && !stopped) {
                going = round_of_samples(&fresh);
                burst = fresh ? 1 : burst + 1;
                announce(++rounds);
                stopped = pause_or_stop(burst < BURST_ROUNDS ? BURST_MS : ROUND_MS);
        }
        /* A last one: a process that was short has two ends to draw a line through. */
        if (going)
                round_of_samples(&fresh);
        announce(rounds + 1);
        return NULL;
}

/* The first reading comes before the application's first kernel, if it comes soon. */
static void wait_for_first_round(void)
{
        struct timespec until = monotonic_in_ms(FIRST_WAIT_MS);

        pthread_mutex_lock(&sampler.lock);
        while (!sampler.rounds &&
               pthread_cond_clockwait(&sampler.wake, &sampler.lock, CLOCK_MONOTONIC, &until) == 0)
                ;
        pthread_mutex_unlock(&sampler.lock);
}

int clock_start(const struct cuda_api *api, struct wire *wire, cuda_handle context, int device,
                uint64_t devices)
{
        int r;

        if (sampler.pid)
                return -EALREADY;
        pthread_cond_init(&sampler.wake, NULL);
        sampler.api = api;
        sampler.wire = wire;
        sampler.devices = devices;
        if (device >= 0 && device < AGENT_DEVICES_MAX)
                sampler.places[device] = (struct place){.context = context};
        sampler.stop = false;
        sampler.rounds = 0;
        r = own_thread_start(&sampler.thread, "gpuobs-clock", run);
        if (r < 0)
                return r;
        sampler.pid = getpid();
        /*
         * Registered after the driver came up, so run before it goes down. The
         * library itself is never unloaded.
         */
        if (!sampler.registered)
                atexit(clock_stop);
        sampler.registered = true;
        wait_for_first_round();
        return 0;
}

void clock_forget(int device)
{
        struct timespec until = monotonic_in_ms(STOP_WAIT_MS);
        bool locked;

        if (!sampler.pid || sampler.pid != getpid() || device < 0 || device >= AGENT_DEVICES_MAX)
                return;
        locked = pthread_mutex_clocklock(&sampler.sampling, CLOCK_MONOTONIC, &until) == 0;
        sampler.places[device].failed = true;
        if (locked)
                pthread_mutex_unlock(&sampler.sampling);
}

void clock_stop(void)
{
        struct timespec until;

        /* A forked child has no such thread, and perhaps a lock nobody will release. */
        if (!sampler.pid || sampler.pid != getpid())
                return;
        pthread_mutex_lock(&sampler.lock);
        sampler.stop = true;
        pthread_cond_broadcast(&sampler.wake);
        pthread_mutex_unlock(&sampler.lock);
        until = monotonic_in_ms(STOP_WAIT_MS);
        if (pthread_clockjoin_np(sampler.thread, NULL, CLOCK_MONOTONIC, &until) == 0)
                sampler.pid = 0;
}
