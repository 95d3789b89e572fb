/* SPDX-License-Identifier: Apache-2.0 */
#include "gpuobsd.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <systemd/sd-daemon.h>

#include "api/agent_server.h"
#include "api/server.h"
#include "asking.h"
#include "correlate/correlator.h"
#include "correlate/held.h"
#include "daemon.h"
#include "device/program.h"
#include "driver/nvml.h"
#include "driver/tsg.h"
#include "driver_flow.h"
#include "driver_silence.h"
#include "earlier_groups.h"
#include "gpu_clocks.h"
#include "gpu_switches.h"
#include "group_slices.h"
#include "managed.h"
#include "managed_decisions.h"
#include "policies.h"
#include "programs.h"
#include "probe/cpu_probes.h"
#include "settings.h"
#include "probe/driver_probes.h"
#include "sockets.h"
#include "store/store.h"
#include "trace.h"
#include "util/log.h"
#include "util/time.h"

#define IDLE_INTERVAL_MS  50  /* between looks at the rings when nothing happens */
#define SLOW_INTERVAL_MS  250 /* the GPU clocks are read so often */
#define SLOW_PER_SECOND   (1000 / SLOW_INTERVAL_MS)
#define SLOW_PER_SCAN     (60 * SLOW_PER_SECOND)
#define SHARE_INTERVAL_MS 50 /* the switches of GPUs, while policies are to hear of shares */
#define OPEN_LIMIT_NS     (10 * NSEC_PER_SEC) /* then GPUs come later, if at all */
#define FINAL_FLUSH_NS    (5 * NSEC_PER_SEC)

/* ---- the event loop's handles ---- */

static void ring_turn(struct gpuobsd *d);

static void on_ring_timer(uv_timer_t *t)
{
        ring_turn(t->data);
}

static void on_ring_idle(uv_idle_t *idle)
{
        ring_turn(idle->data);
}

/*
 * While there is more, turns alternate with clients: libuv calls an idle handle once between
 * two looks at its files, but a timer of 0 ms again and again before it looks at any.
 */
static void ring_turn(struct gpuobsd *d)
{
        enum flow_work work = flow_turn(d);
        uint64_t interval = d->config->poll_ms;

        if (work == FLOW_MORE) {
                uv_idle_start(&d->ring_idle, on_ring_idle);
                return;
        }
        uv_idle_stop(&d->ring_idle);
        if (work == FLOW_IDLE) {
                interval = 2 * (d->ring_interval_ms ? d->ring_interval_ms : d->config->poll_ms);
                if (interval > IDLE_INTERVAL_MS)
                        interval = IDLE_INTERVAL_MS > d->config->poll_ms ? IDLE_INTERVAL_MS
                                                                         : d->config->poll_ms;
        }
        d->ring_interval_ms = interval;
        uv_timer_start(&d->ring_timer, on_ring_timer, interval, 0);
}

static void on_slow_timer(uv_timer_t *t)
{
        struct gpuobsd *d = t->data;

        gpu_clocks_tick(d->clocks);
        d->slow_turns++;
        if (d->slow_turns % SLOW_PER_SECOND == 0) {
                flow_second(d);
                earlier_groups_second(d);
                driver_silence_second(d);
                sd_notify(0, "WATCHDOG=1");
        }
        if (d->slow_turns % SLOW_PER_SCAN == 0)
                (void)cpu_probes_scan(d->probes); /* again in a minute */
}

static void on_switch_timer(uv_timer_t *t)
{
        struct gpuobsd *d = t->data;

        gpu_switches_tick(d->switches);
        programs_tick(d);
        uv_timer_start(t, on_switch_timer,
                       policies_want_shares(d) ? SHARE_INTERVAL_MS : SLOW_INTERVAL_MS, 0);
}

static void on_mapped(uv_poll_t *p, int status, int events)
{
        struct gpuobsd *d = p->data;

        if (status == 0)
                flow_turn(d);
}

static void reload(struct gpuobsd *d)
{
        sd_notifyf(0, "RELOADING=1\nMONOTONIC_USEC=%llu",
                   (unsigned long long)(now_ns() / NSEC_PER_USEC));
        settings_reload(d);
        api_server_reload(d->api);
        (void)cpu_probes_scan(d->probes);
        sd_notify(0, "READY=1");
}

static void on_signal(uv_signal_t *s, int number)
{
        struct gpuobsd *d = s->data;

        if (number == SIGHUP)
                reload(d);
        else
                gpuobsd_stop(d);
}

static int open_handles(struct gpuobsd *d)
{
        static const int numbers[] = {SIGTERM, SIGINT, SIGHUP};
        int r;

        uv_timer_init(d->loop, &d->ring_timer);
        uv_idle_init(d->loop, &d->ring_idle);
        uv_timer_init(d->loop, &d->slow_timer);
        uv_timer_init(d->loop, &d->switch_timer);
        for (size_t i = 0; i < ARRAY_SIZE(numbers); i++)
                uv_signal_init(d->loop, &d->signals[i]);
        r = uv_poll_init(d->loop, &d->mapped_poll, cpu_probes_fd(d->probes));
        if (r < 0)
                return r;
        d->handles_open = true;

        d->ring_timer.data = d->ring_idle.data = d->slow_timer.data = d->switch_timer.data =
                d->mapped_poll.data = d;
        d->ring_interval_ms = d->config->poll_ms;
        uv_timer_start(&d->ring_timer, on_ring_timer, d->ring_interval_ms, 0);
        uv_timer_start(&d->slow_timer, on_slow_timer, SLOW_INTERVAL_MS, SLOW_INTERVAL_MS);
        uv_timer_start(&d->switch_timer, on_switch_timer, SLOW_INTERVAL_MS, 0);
        uv_poll_start(&d->mapped_poll, UV_READABLE, on_mapped);
        for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
                d->signals[i].data = d;
                uv_signal_start(&d->signals[i], on_signal, numbers[i]);
        }
        return 0;
}

static void close_handles(struct gpuobsd *d)
{
        if (!d->handles_open)
                return;
        uv_close((uv_handle_t *)&d->ring_timer, NULL);
        uv_close((uv_handle_t *)&d->ring_idle, NULL);
        uv_close((uv_handle_t *)&d->slow_timer, NULL);
        uv_close((uv_handle_t *)&d->switch_timer, NULL);
        uv_close((uv_handle_t *)&d->mapped_poll, NULL);
        for (size_t i = 0; i < ARRAY_SIZE(d->signals); i++)
                uv_close((uv_handle_t *)&d->signals[i], NULL);
        d->handles_open = false;
}

/* ---- parts, in the order they depend on each other ---- */

static int open_store(struct gpuobsd *d, char *error, size_t error_size)
{
        const struct store_options options = {
                .path = d->config->database,
                .max_bytes = d->config->retention_bytes,
                .max_age_s = d->config->retention_age_s,
                .max_sums_age_s = d->config->retention_sums_s,
        };
        uint64_t next_process_key;
        int r;

        d->names = intern_new();
        if (!d->names)
                return -ENOMEM;
        r = store_open(&options, d->names, error, error_size, &d->store, &d->next_launch_id,
                       &next_process_key);
        if (r < 0)
                return r;
        if (error[0])
                log_warning("%s", error); /* it goes on without the disk for now */
        error[0] = '\0';
        observed_table_init(&d->observed, next_process_key);
        return 0;
}

static int open_probes(struct gpuobsd *d, char *error, size_t error_size)
{
        const char *libraries[CONFIG_LIBRARIES_MAX + 1] = {0};
        const struct cpu_probes_options options = {
                .ring_bytes = d->config->ring_bytes,
                .libraries = libraries,
        };
        int r;

        for (size_t i = 0; i < d->config->library_count; i++)
                libraries[i] = d->config->libraries[i];
        r = cpu_probes_new(&options, &flow_probe_ops, d, &d->probes);
        if (r == -EPERM)
                snprintf(error, error_size,
                         "the kernel does not let gpuobsd load eBPF: run it as root (systemctl "
                         "start gpuobsd)");
        else if (r < 0)
                snprintf(error, error_size,
                         "the eBPF programs could not be loaded (%s): Linux 6.1 or later with BTF "
                         "is needed",
                         strerror(-r));
        return r;
}

static int open_servers(struct gpuobsd *d, char *error, size_t error_size)
{
        struct sockets sockets;
        struct api_server_options options = {.store_path = d->config->database};
        struct agent_limits limits;
        int r;

        r = sockets_open(d->config->api_socket, d->config->agent_socket, error, error_size,
                         &sockets);
        if (r < 0)
                return r;
        settings_limits(d->config, &options.limits);
        options.listen_fd = sockets.api;
        r = agent_server_new(d->loop, sockets.agent, &agents_ops, d, &d->agents);
        if (r < 0) {
                close(sockets.agent);
                close(sockets.api);
                return r;
        }
        settings_agent_limits(d->config, &limits);
        agent_server_set_limits(d->agents, &limits);
        return api_server_new(d->loop, &options, &backend_ops, d, &d->api);
}

static void on_clocks_opened(void *data)
{
        struct gpuobsd *d = data;

        gpu_switches_open(d->switches);
}

/* What a driver that hangs does not tell by then is taken in when it does. */
static int open_gpus(struct gpuobsd *d)
{
        uint64_t until_ns = now_ns() + OPEN_LIMIT_NS;
        int r = asking_open(d);

        if (r < 0)
                return r;
        d->clocks = gpu_clocks_new(d->driver, d->trace, on_clocks_opened, d);
        d->switches = gpu_switches_new(d);
        if (!d->clocks || !d->switches)
                return -ENOMEM;
        if (!d->config->agent_clock)
                gpu_clocks_open(d->clocks);
        if (gpu_clocks_wait(d->clocks, until_ns))
                gpu_switches_wait(d->switches, until_ns);
        return 0;
}

int gpuobsd_new(uv_loop_t *loop, const struct settings_source *source, struct config *config,
                char *error, size_t error_size, struct gpuobsd **ret_daemon)
{
        struct gpuobsd *d = calloc(1, sizeof(*d));
        int r;

        if (!d)
                return -ENOMEM;
        *ret_daemon = d;
        d->loop = loop;
        d->source = source;
        d->config = config;
        d->blob_fd = -1;
        d->started_ns = now_ns();

        r = open_store(d, error, error_size);
        if (r < 0)
                return r;
        d->correlator = correlator_new(&flow_correlator_ops, d, d->names);
        if (!d->correlator)
                return -ENOMEM;
        if (config->trace[0]) {
                r = trace_new(config->trace, &d->trace);
                if (r < 0) {
                        snprintf(error, error_size, "%s: %s", config->trace, strerror(-r));
                        return r;
                }
        }
        r = open_gpus(d);
        if (r < 0)
                return r;
        if (config->nvml)
                d->nvml = nvml_new(NVML_LIBRARY); /* a machine can do without */
        d->decisions = managed_decisions_new(d);
        if (!d->decisions)
                return -ENOMEM;
        r = managed_open(d);
        if (r == 0)
                r = policies_open(d);
        if (r < 0)
                return r;
        d->group_slices = group_slices_new(&tsg_system_default);
        if (!d->group_slices)
                return -ENOMEM;
        agents_load_program(d);
        d->programs = programs_new();
        if (!d->programs)
                return -ENOMEM;
        r = open_probes(d, error, error_size);
        if (r == 0)
                driver_flow_open(d);
        if (r == 0)
                r = earlier_groups_open(d);
        if (r == 0)
                r = open_servers(d, error, error_size);
        if (r == 0)
                r = open_handles(d);
        if (r < 0)
                return r;
        log_info("started: %zu libraries probed, %zu GPU clocks",
                 cpu_probes_library_count(d->probes), gpu_clocks_count(d->clocks));
        sd_notify(0, "READY=1");
        return 0;
}

/* The database takes what is held in as many turns as it needs, unless it is in trouble. */
static void finish_held(struct gpuobsd *d)
{
        size_t left, before = SIZE_MAX;

        if (!d->held)
                return;
        while ((left = held_finish(d->held)) && left < before &&
               store_flush(d->store, FINAL_FLUSH_NS) == 0)
                before = left;
        held_drop(d->held);
}

/* Bring everything that is known into the database. */
static void finish(struct gpuobsd *d)
{
        struct observed *o, *next;

        if (!d->probes || !d->store)
                return;
        flow_catch_up(d);
        gpu_switches_finish(d->switches);
        flow_settle(d);
        HASH_ITER (by_pid, d->observed.by_pid, o, next)
                flow_process_ended(d, o);
        finish_held(d);
        flow_settle(d);
        (void)store_flush(d->store, FINAL_FLUSH_NS); /* store_free() tries again and gives up */
        flow_settle(d);
}

void gpuobsd_stop(struct gpuobsd *d)
{
        if (!d || d->stopping)
                return;
        d->stopping = true;
        sd_notify(0, "STOPPING=1");
        close_handles(d);
        asking_close(d);
        if (d->agents)
                agent_server_close(d->agents);
        earlier_groups_close(d);
        policies_close(d);
        managed_close(d);
        finish(d);
        if (d->api)
                api_server_close(d->api, NULL, NULL);
        d->agents = NULL;
        d->api = NULL;
}

struct gpuobsd *gpuobsd_free(struct gpuobsd *d)
{
        if (!d)
                return NULL;
        cpu_probes_free(d->probes);
        driver_probes_free(d->driver_probes);
        managed_decisions_free(d->decisions);
        gpu_switches_close(d->switches);
        gpu_clocks_close(d->clocks);
        policies_end(d);
        asking_free(d);
        group_slices_free(d->group_slices);
        held_free(d->held);
        gpu_switches_free(d->switches);
        nvml_free(d->nvml);
        correlator_free(d->correlator);
        gpu_clocks_free(d->clocks);
        device_object_free(d->device_object);
        closep(&d->blob_fd);
        earlier_groups_free(d);
        policies_free(d);
        programs_free(d->programs);
        managed_free(d);
        observed_table_done(&d->observed);
        store_free(d->store);
        intern_free(d->names);
        trace_free(d->trace);
        free(d);
        return NULL;
}
