/* SPDX-License-Identifier: Apache-2.0 */

/*
 * libgpuobs-agent.so: the CUDA driver loads it into a process whose environment
 * has CUDA_INJECTION64_PATH and calls InitializeInjection() inside the first
 * cuInit. If the daemon answers, image loading is hooked; if not, nothing at all
 * happens. The environment is left alone, so that child processes are observed,
 * too: each loads its own copy in its own cuInit.
 *
 * The library has no constructor, no destructor, is never unloaded, and starts
 * no thread unless the daemon asks for the clock or images that are loaded are to run
 * other programs. It may also be brought into a running process (attach.c). A forked child keeps
 * hooks that do nothing (CUDA does not work there either) and drops the connection.
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "agent.h"
#include "../device/device_abi.h"
#include "agent_abi.h"
#include "attach.h"
#include "clock.h"
#include "control.h"
#include "hooked.h"
#include "image_memory.h"
#include "launches.h"
#include "memory_map.h"
#include "monotonic.h"
#include "probe_build.h"
#include "replace_image.h"
#include "session.h"
#include "wire.h"

#define DRIVER_NAME  "libcuda.so.1"
#define LOCK_WAIT_MS 10000 /* rather no probes than an application that stands still */

int InitializeInjection(void);

enum phase {
        PHASE_OFF = 0, /* no daemon, no hooks, or a failure that left nothing to do */
        PHASE_HOOKED,  /* waiting for the first image */
        PHASE_READY,   /* images are rewritten */
        PHASE_REFUSED, /* images are reported, with the reason */
};

static struct {
        pthread_mutex_t lock;
        enum phase phase; /* read without the lock */
        pid_t pid;
        struct cuda_api api;
        struct wire wire;
        struct session session;
        char refusal[SESSION_REASON_BYTES];
        char hook_note[SESSION_REASON_BYTES]; /* said once the daemon knows us */
        uint32_t next_image_id, next_kernel_id;
        uint32_t loading;   /* images that were rewritten and are not loaded yet */
        const char *socket; /* of the daemon, where who attached us said it; else NULL */
        bool late;          /* brought into the process while it ran */
        bool code_proven;   /* the driver has taken a spliced image */
        bool reset;         /* the session's context is gone, until it is retained again */
} agent = {.lock = PTHREAD_MUTEX_INITIALIZER,
           .wire = {.fd = -1},
           .next_image_id = 1,
           .next_kernel_id = 1};

/* Calls that the driver or the agent itself make while an image is being loaded. */
static __thread unsigned depth;

/* See agent_image_from(). */
static __thread const char *image_file;

void agent_image_from(const char *path)
{
        image_file = path;
}

const struct cuda_api *agent_api(void)
{
        return &agent.api;
}

bool agent_watching(void)
{
        return __atomic_load_n(&agent.phase, __ATOMIC_ACQUIRE) != PHASE_OFF && !depth &&
               agent.pid == getpid();
}

void agent_own_thread(void)
{
        launches_own_thread();
        depth++;
}

void agent_aside(void)
{
        depth++;
}

void agent_back(void)
{
        depth--;
}

static void set_phase(enum phase phase)
{
        __atomic_store_n(&agent.phase, phase, __ATOMIC_RELEASE);
}

static const char *socket_path(void)
{
        const char *path = agent.socket ?: secure_getenv(AGENT_SOCKET_ENV);

        return path && *path ? path : AGENT_SOCKET_DEFAULT;
}

/* The first image: do everything that had to wait for it. Called with the lock. */
static void open_session(void)
{
        int r;

        /* The daemon may have given up on a connection that said nothing for long. */
        if (!wire_fresh(&agent.wire)) {
                wire_close(&agent.wire);
                if (wire_connect(socket_path(), &agent.wire) < 0) {
                        set_phase(PHASE_OFF);
                        return;
                }
        }
        r = session_open(&agent.api, &agent.wire, agent.late, &agent.session, agent.refusal);
        if (agent.hook_note[0])
                wire_note(&agent.wire, AGENT_NOTE_INFO, "%s", agent.hook_note);
        if (r == 0) {
                set_phase(PHASE_READY);
                return;
        }
        wire_note(&agent.wire, AGENT_NOTE_REFUSED, "%s", agent.refusal);
        set_phase(wire_alive(&agent.wire) ? PHASE_REFUSED : PHASE_OFF);
}

/*
 * The driver looks at a library's code when a kernel is first needed, too late
 * to go back to the original. So the first spliced image is loaded once as a
 * module for a test; a driver that does not take it takes none.
 */
static void prove_code(struct rewrite *r)
{
        const struct cuda_api *api = &agent.api;
        cuda_handle module = NULL, popped;
        int error;

        if (agent.code_proven || r->is_ptx || api->context_push(agent.session.context) != CUDA_OK)
                return;
        error = api->module_load_data(&module, r->image);
        if (error == CUDA_OK)
                api->module_unload(module);
        api->context_pop(&popped);
        if (error == CUDA_OK) {
                agent.code_proven = true;
                return;
        }
        rewrite_refuse(r, "the driver refused the rewritten image: %s",
                       cuda_error_name(api, error));
}

/* Likewise PTX of a library is compiled now; what comes out is loaded. */
static void compile_library(struct rewrite *r, unsigned option_count, const int *options,
                            void *const *values)
{
        const struct cuda_api *api = &agent.api;
        char error[PROBE_ERROR_BYTES];
        cuda_handle popped;
        void *cubin = NULL;
        size_t size = 0;
        int failed;

        if (!r->is_ptx || api->context_push(agent.session.context) != CUDA_OK)
                return;
        failed = probe_link_ptx(api, r->image, r->image_bytes, option_count, options, values,
                                &cubin, &size, error);
        api->context_pop(&popped);
        if (failed == -ENOSYS)
                return; /* no linker: the driver must take the PTX as it is */
        if (failed < 0) {
                rewrite_refuse(r, "%s", error[0] ? error : strerror(-failed));
                return;
        }
        image_memory_free(r->image);
        r->image = cubin;
        r->image_bytes = size;
}

static void rewrite(struct agent_load *load, uint32_t *next_kernel_id)
{
        struct rewrite_probes probes;
        const char *refusal;

        refusal = agent.phase == PHASE_READY ? session_context_refusal(&agent.session)
                                             : agent.refusal;
        if (refusal) {
                rewrite_refuse(&load->rewrite, "%s", refusal);
                return;
        }
        probes = session_probes(&agent.session);
        /* Which file an image lies in takes a while to find: only when a rule wants to know. */
        if (agent.session.rules.count && !load->path[0])
                memory_file_path(load->image, load->path, sizeof(load->path));
        probes.list.path = load->path;
        rewrite_image(load->image, load->size, &probes, next_kernel_id, &load->rewrite);
        load->rewrite.generation = probe_set_generation(agent.session.set);
        if (load->library && load->rewrite.image)
                prove_code(&load->rewrite);
        if (load->library && load->rewrite.image)
                compile_library(&load->rewrite, load->option_count, load->options, load->values);
}

static uint32_t number_image(void)
{
        return __atomic_fetch_add(&agent.next_image_id, 1, __ATOMIC_RELAXED);
}

/* A lock held by a thread that waits for something this thread holds must not last. */
static bool lock_agent(void)
{
        struct timespec until = monotonic_in_ms(LOCK_WAIT_MS);

        return pthread_mutex_clocklock(&agent.lock, CLOCK_MONOTONIC, &until) == 0;
}

struct session *agent_session(void)
{
        return &agent.session;
}

struct session *agent_enter(void)
{
        struct session *s = &agent.session;

        if (!lock_agent())
                return NULL;
        if (agent.phase == PHASE_READY && !agent.reset &&
            agent.api.context_push(s->context) == CUDA_OK)
                return s;
        pthread_mutex_unlock(&agent.lock);
        return NULL;
}

bool agent_is_ready(void)
{
        return __atomic_load_n(&agent.phase, __ATOMIC_ACQUIRE) == PHASE_READY;
}

void agent_leave(void)
{
        cuda_handle popped;

        agent.api.context_pop(&popped);
        pthread_mutex_unlock(&agent.lock);
}

void agent_begin(struct agent_load *load, const void *image, size_t size, bool library,
                 unsigned option_count, const int *options, void *const *values)
{
        int mode = CUDA_CAPTURE_RELAXED, saved_errno = errno;
        uint64_t start;

        *load = (struct agent_load){.library = library,
                                    .image = image,
                                    .size = size,
                                    .option_count = option_count,
                                    .options = options,
                                    .values = values};
        if (image_file)
                snprintf(load->path, sizeof(load->path), "%s", image_file);
        image_file = NULL;
        load->watched = image && agent_watching();
        depth++;
        if (!load->watched)
                return;
        start = now_ns();
        /* What the agent calls now is no part of a capture the application has going. */
        if (agent.api.capture_mode)
                agent.api.capture_mode(&mode);
        if (!lock_agent()) {
                load->watched = false;
        } else {
                if (agent.phase == PHASE_HOOKED)
                        open_session();
                load->watched = agent.phase != PHASE_OFF && wire_alive(&agent.wire);
                if (load->watched) {
                        load->image_id = number_image();
                        rewrite(load, &agent.next_kernel_id);
                        load->counted = true;
                        __atomic_fetch_add(&agent.loading, 1, __ATOMIC_RELAXED);
                }
                pthread_mutex_unlock(&agent.lock);
        }
        if (agent.api.capture_mode)
                agent.api.capture_mode(&mode);
        load->spent_ns = now_ns() - start;
        errno = saved_errno;
}

void agent_load_failed(struct agent_load *load, int result)
{
        rewrite_refuse(&load->rewrite, "the driver refused the rewritten image: %s",
                       cuda_error_name(&agent.api, result));
}

static void report(const struct agent_load *load, cuda_handle handle)
{
        const struct rewrite *r = &load->rewrite;
        struct agent_image image = {
                .image_id = load->image_id,
                .status = r->image ? AGENT_IMAGE_REWRITTEN : AGENT_IMAGE_ORIGINAL,
                .kernel_count = (uint32_t)r->kernel_count,
                .rewrite_us = (uint32_t)(load->spent_ns / 1000),
                .handle = (uint64_t)(uintptr_t)handle,
                .bytes = r->chosen_bytes,
                .is_library = load->library,
                .is_ptx = r->is_ptx,
                .launches = r->launches,
        };

        memcpy(image.reason, r->reason, sizeof(image.reason));
        if (r->image)
                launches_probed();
        if (wire_send(&agent.wire, AGENT_IMAGE, &image, sizeof(image)) == 0 && r->kernel_count)
                wire_kernels(&agent.wire, load->image_id, r->kernels, r->kernel_count);
}

/* What the image was loaded from is still there. */
static void remember(const struct agent_load *load, cuda_handle handle)
{
        const struct replace_loaded loaded = {
                .image_id = load->image_id,
                .handle = handle,
                .library = load->library,
                .generation = load->rewrite.generation,
                .image = load->image,
                .size = load->size,
                .option_count = load->option_count,
                .options = load->options,
                .values = load->values,
                .path = load->path,
                .rewrite = &load->rewrite,
        };

        replace_loaded(&loaded);
}

void agent_end(struct agent_load *load, int result, cuda_handle handle)
{
        int saved_errno = errno;

        /* What the driver did not load at all is the application's affair. */
        if (load->watched && result == CUDA_OK) {
                report(load, handle);
                if (agent.phase == PHASE_READY)
                        remember(load, handle);
        }
        depth--;
        if (load->counted)
                __atomic_fetch_sub(&agent.loading, 1, __ATOMIC_RELEASE);
        rewrite_done(&load->rewrite);
        errno = saved_errno;
}

/* ---- images that are loaded already ---- */

static void rewrite_loaded(const void *image, size_t size, const char *path, bool library,
                           const struct image_options *options, uint32_t first_kernel_id,
                           struct rewrite *ret_rewrite)
{
        struct agent_load load = {.library = library,
                                  .image = image,
                                  .size = size,
                                  .option_count = options->count,
                                  .options = options->options,
                                  .values = options->values};

        snprintf(load.path, sizeof(load.path), "%s", path);
        if (lock_agent()) {
                rewrite(&load, first_kernel_id ? &first_kernel_id : &agent.next_kernel_id);
                pthread_mutex_unlock(&agent.lock);
        } else {
                rewrite_refuse(&load.rewrite, "the agent is busy");
        }
        *ret_rewrite = load.rewrite;
}

static uint32_t number_kernels(size_t count)
{
        uint32_t first = 0;

        if (!lock_agent())
                return 0;
        if (count <= DEVICE_KERNEL_ID_MAX + 1 - agent.next_kernel_id) {
                first = agent.next_kernel_id;
                agent.next_kernel_id += (uint32_t)count;
        }
        pthread_mutex_unlock(&agent.lock);
        return first;
}

void agent_replace_all(void)
{
        struct replace_plan plan = {
                .sm = agent.session.sm,
                .rewrite = rewrite_loaded,
                .number_image = number_image,
                .number_kernels = number_kernels,
        };

        if (agent.phase != PHASE_READY || !lock_agent())
                return;
        plan.generation = probe_set_generation(agent.session.set);
        pthread_mutex_unlock(&agent.lock);
        depth++;
        replace_all(&plan);
        depth--;
}

/*
 * Memory of objects that are gone is freed when no code that may run names it: not
 * while an image is between being rewritten and being known, nor while images or copies
 * of such a list of programs are loaded.
 */
bool agent_sweep(struct session *s, uint64_t *ret_id)
{
        if (__atomic_load_n(&agent.loading, __ATOMIC_ACQUIRE))
                return false;
        return probe_set_sweep(s->set, replace_lives, ret_id);
}

void agent_before_reset(int device)
{
        if (!agent_watching() || agent.phase != PHASE_READY)
                return;
        depth++;
        replace_context_gone(cuda_primary_context(&agent.api, device));
        if (device == agent.session.device) {
                clock_stop();
                __atomic_store_n(&agent.reset, true, __ATOMIC_RELEASE);
        } else {
                clock_forget(device);
        }
        depth--;
}

void agent_retained(int device, cuda_handle context)
{
        const char *refusal = NULL;

        if (!agent_watching() || !__atomic_load_n(&agent.reset, __ATOMIC_ACQUIRE) ||
            device != agent.session.device)
                return;
        depth++;
        if (lock_agent()) {
                if (agent.reset)
                        refusal = session_revive(&agent.session, context);
                if (refusal) {
                        snprintf(agent.refusal, sizeof(agent.refusal), "%s", refusal);
                        wire_note(&agent.wire, AGENT_NOTE_ERROR, "%s", refusal);
                        set_phase(PHASE_REFUSED);
                }
                __atomic_store_n(&agent.reset, false, __ATOMIC_RELEASE);
                pthread_mutex_unlock(&agent.lock);
        }
        depth--;
}

/* A child must not keep the daemon from seeing that its parent ended. */
static void forked(void)
{
        int fd = agent.wire.fd;

        set_phase(PHASE_OFF);
        agent.wire.pid = getpid();
        if (wire_alive(&agent.wire))
                close(fd);
        agent.wire.fd = -1;
        control_forked();
}

/* The libcuda that is calling us, if we can tell; else the one in the process. */
static void *open_driver(const void *caller)
{
        Dl_info info;
        void *library;

        if (dladdr(caller, &info) && info.dli_fname) {
                library = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
                if (library && dlsym(library, "cuModuleLoadData"))
                        return library;
        }
        return dlopen(DRIVER_NAME, RTLD_LAZY | RTLD_NOLOAD);
}

static bool hook_driver(void *driver, bool late)
{
        const char *reason = NULL;
        char refusals[200];
        int r;

        r = cuda_api_load(driver, &agent.api, &reason);
        if (r < 0) {
                snprintf(agent.hook_note, sizeof(agent.hook_note), "the driver lacks %s", reason);
                return false;
        }
        r = late ? hooked_prepare(driver, &agent.api, attach_add_patch, &reason, refusals,
                                  sizeof(refusals))
                 : hooked_install(driver, &agent.api, &reason, refusals, sizeof(refusals));
        if (r <= 0)
                snprintf(agent.hook_note, sizeof(agent.hook_note),
                         "image loading cannot be hooked: %s", reason ?: refusals);
        else if (refusals[0])
                snprintf(agent.hook_note, sizeof(agent.hook_note), "not hooked: %s", refusals);
        return r > 0;
}

/* Nothing will be done in this process: introduce it all the same and say why. */
static void give_up(void)
{
        struct wire_welcome welcome;
        struct agent_hello hello = {0};

        if (wire_hello(&agent.wire, &hello, &welcome) == 0) {
                wire_welcome_done(&welcome);
                wire_note(&agent.wire, AGENT_NOTE_REFUSED, "%s", agent.hook_note);
        }
        wire_close(&agent.wire);
}

static void hooks_are_there(void)
{
        pthread_atfork(NULL, NULL, forked);
        if (replace_open(&agent.api, &agent.wire) < 0 && !agent.hook_note[0])
                snprintf(agent.hook_note, sizeof(agent.hook_note),
                         "images that are loaded cannot be replaced: no memory");
}

__attribute__((visibility("default"))) int InitializeInjection(void)
{
        void *driver;

        if (agent.pid || wire_connect(socket_path(), &agent.wire) < 0)
                return 1;
        agent.pid = getpid();
        attach_set_state(ATTACH_INJECTED);
        driver = open_driver(__builtin_return_address(0));
        if (!driver || !hook_driver(driver, false)) {
                give_up();
                return 1;
        }
        hooks_are_there();
        set_phase(PHASE_HOOKED);
        return 1;
}

/* ---- brought into a running process (attach.c) ---- */

/*
 * Where the driver is not loaded yet it is loaded now: it does nothing before it is
 * initialised, and who loads it later by its name gets the one that is there, hooks and all.
 */
static void *driver_of_process(void)
{
        void *driver = dlopen(DRIVER_NAME, RTLD_LAZY | RTLD_NOLOAD);

        return driver ?: dlopen(DRIVER_NAME, RTLD_LAZY | RTLD_LOCAL);
}

static bool prepare_late(void)
{
        void *driver = driver_of_process();

        if (!driver) {
                attach_fail("it has not loaded the CUDA driver library, and cannot: %s", dlerror());
                return false;
        }
        agent.pid = getpid();
        agent.late = true;
        if (!hook_driver(driver, true)) {
                attach_fail("%s", agent.hook_note);
                return false;
        }
        hooks_are_there();
        return true;
}

bool agent_late_prepare(const char *socket)
{
        int r;

        agent.socket = socket;
        r = wire_connect(socket, &agent.wire);
        if (r < 0) {
                attach_fail("gpuobsd cannot be reached at %s: %s", socket, strerror(-r));
                return false;
        }
        /* Attached before: the hooks are planned, and were taken out. */
        if (agent.pid == getpid() && agent.late)
                return true;
        if (agent.pid) {
                attach_fail("the process has been started with the agent");
                return false;
        }
        return prepare_late();
}

static void open_late(void)
{
        /* Until their images are found launches make no records. */
        replace_find_earlier();
        if (lock_agent()) {
                if (agent.phase == PHASE_HOOKED)
                        open_session();
                pthread_mutex_unlock(&agent.lock);
        }
        if (agent.phase == PHASE_READY) {
                /* What the kernel's probes record has returned before kernels have probes. */
                (void)replace_wait_for_launches(REPLACE_WAIT_MS);
                agent_replace_all();
                attach_set_state(ATTACH_READY);
        } else {
                attach_fail("%s", agent.refusal[0] ? agent.refusal : "the daemon does not answer");
        }
}

void agent_late_start(uint32_t *ret_initialised)
{
        int mode = CUDA_CAPTURE_RELAXED, count = 0;

        if (agent.api.capture_mode)
                agent.api.capture_mode(&mode);
        set_phase(PHASE_HOOKED);
        *ret_initialised = agent.api.device_get_count(&count) == CUDA_OK;
        if (*ret_initialised)
                open_late();
        else
                attach_set_state(ATTACH_READY); /* the first image opens the session */
}

/* What has programs in it as it was loaded, and what graphs may still launch, needs the maps. */
static void say_what_stays(unsigned rewritten, unsigned kept)
{
        char *reason = gpuobs_attach_block.reason;
        size_t size = sizeof(gpuobs_attach_block.reason);

        reason[0] = '\0';
        if (rewritten || kept)
                snprintf(reason, size,
                         "programs stay in %u images that were loaded meanwhile and in %u that "
                         "graphs may launch, until the process unloads them or ends",
                         rewritten, kept);
}

void agent_late_end(void)
{
        bool known = false; /* to the daemon */
        unsigned rewritten, kept;
        struct agent_bye bye;

        clock_stop();
        /* While launches still say what they run: the kernel's probes cannot tell. */
        replace_run_originals();
        /* Its launches are known to be the agent's while the agent records them. */
        launches_end();
        if (lock_agent()) {
                known = agent.phase == PHASE_READY || agent.phase == PHASE_REFUSED;
                set_phase(PHASE_OFF);
                pthread_mutex_unlock(&agent.lock);
        }
        replace_nothing(&rewritten, &kept);
        say_what_stays(rewritten, kept);
        if (!rewritten && !kept)
                session_close(&agent.session);
        if (known)
                wire_send(&agent.wire, AGENT_BYE, &bye, sizeof(bye));
        control_stop();
        wire_close(&agent.wire);
        attach_set_state(ATTACH_UNHOOK);
}
