/* SPDX-License-Identifier: Apache-2.0 */
#include "sim_config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void read_u64(const char *name, uint64_t *value)
{
        const char *text = getenv(name);
        unsigned long long parsed;
        char *end;

        if (!text || !*text)
                return;
        errno = 0;
        parsed = strtoull(text, &end, 0);
        if (errno == 0 && *end == '\0')
                *value = parsed;
}

static void read_unsigned(const char *name, unsigned low, unsigned high, unsigned *value)
{
        uint64_t wide = *value;

        read_u64(name, &wide);
        if (wide >= low && wide <= high)
                *value = (unsigned)wide;
}

static void read_double(const char *name, double *value)
{
        const char *text = getenv(name);
        double parsed;
        char *end;

        if (!text || !*text)
                return;
        parsed = strtod(text, &end);
        if (*end == '\0')
                *value = parsed;
}

static void read_choice(const char *name, struct sim_choice *choice)
{
        const char *text = getenv(name);
        char *end;

        choice->number = 0;
        choice->how = SIM_CHOICE_ONCE;
        atomic_init(&choice->seen, 0);
        if (!text)
                return;
        if (*text == '/') {
                choice->how = SIM_CHOICE_EVERY;
                text++;
        }
        choice->number = strtoull(text, &end, 0);
        if (*end == '+' && choice->how == SIM_CHOICE_ONCE) {
                choice->how = SIM_CHOICE_FROM;
                end++;
        }
        if (*end)
                choice->number = 0;
}

static void read_grid_words(const char *name, enum sim_grid_words *value)
{
        const char *text = getenv(name);

        *value = SIM_GRID_WORDS_DRIVER;
        if (text && strcmp(text, "none") == 0)
                *value = SIM_GRID_WORDS_NONE;
        if (text && strcmp(text, "garbled") == 0)
                *value = SIM_GRID_WORDS_GARBLED;
}

void sim_config_load(struct sim_config *config)
{
        uint64_t offset = 1700000000000000000ULL, apart = 0;

        config->clock_drift_ppm = 4.78;
        config->clock_step_ns = 32;
        config->clock_jitter_ns = 0;
        config->workers = 4;
        config->spin_ns = 5000;
        config->queue_entries = 512;
        config->memory_bytes = 8ULL << 30;
        config->devices = 1;
        config->start_delay_ns = 0;
        config->instruction_ns = 0;
        read_u64("GPUOBS_SIM_CLOCK_OFFSET_NS", &offset);
        config->clock_offset_ns = (int64_t)offset;
        read_u64("GPUOBS_SIM_CLOCK_APART_NS", &apart);
        config->clock_apart_ns = (int64_t)apart;
        read_double("GPUOBS_SIM_CLOCK_DRIFT_PPM", &config->clock_drift_ppm);
        read_u64("GPUOBS_SIM_CLOCK_STEP_NS", &config->clock_step_ns);
        read_u64("GPUOBS_SIM_CLOCK_JITTER_NS", &config->clock_jitter_ns);
        read_unsigned("GPUOBS_SIM_WORKERS", 1, 64, &config->workers);
        read_u64("GPUOBS_SIM_SPIN_NS", &config->spin_ns);
        read_unsigned("GPUOBS_SIM_QUEUE", 2, 65536, &config->queue_entries);
        read_u64("GPUOBS_SIM_MEMORY_BYTES", &config->memory_bytes);
        read_unsigned("GPUOBS_SIM_DEVICES", 1, 8, &config->devices);
        read_u64("GPUOBS_SIM_START_DELAY_NS", &config->start_delay_ns);
        read_u64("GPUOBS_SIM_INSTRUCTION_NS", &config->instruction_ns);
        read_choice("GPUOBS_SIM_FAIL_LOAD", &config->fail_load);
        read_choice("GPUOBS_SIM_FAIL_LAUNCH", &config->fail_launch);
        read_choice("GPUOBS_SIM_FAIL_ALLOC", &config->fail_alloc);
        read_choice("GPUOBS_SIM_DROP_RECORDS", &config->drop_records);
        read_choice("GPUOBS_SIM_DROP_STORES", &config->drop_stores);
        read_grid_words("GPUOBS_SIM_GRID_WORDS", &config->grid_words);
        if (config->clock_step_ns == 0)
                config->clock_step_ns = 1;
}

bool sim_choice_hit(struct sim_choice *choice)
{
        uint64_t n;

        if (choice->number == 0)
                return false;
        n = atomic_fetch_add(&choice->seen, 1) + 1;
        switch (choice->how) {
        case SIM_CHOICE_FROM:
                return n >= choice->number;
        case SIM_CHOICE_EVERY:
                return n % choice->number == 0;
        default:
                return n == choice->number;
        }
}

static uint64_t read_clock(clockid_t clock)
{
        struct timespec now;

        clock_gettime(clock, &now);
        return (uint64_t)now.tv_sec * 1000000000ULL + (uint64_t)now.tv_nsec;
}

uint64_t sim_monotonic_ns(void)
{
        return read_clock(CLOCK_MONOTONIC);
}

uint64_t sim_raw_ns(void)
{
        return read_clock(CLOCK_MONOTONIC_RAW);
}

uint64_t sim_clock_device_ns(const struct sim_config *config, uint64_t raw_ns)
{
        int64_t drift = (int64_t)((double)raw_ns * config->clock_drift_ppm * 1e-6);
        uint64_t device = raw_ns + (uint64_t)config->clock_offset_ns + (uint64_t)drift;

        return device - device % config->clock_step_ns;
}
