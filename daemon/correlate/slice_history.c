/* SPDX-License-Identifier: Apache-2.0 */
#include "correlate/slice_history.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "util/macro.h"

/* Processes of an engine that are remembered to have had slices. */
#define PROCESSES_MAX 64

/* One engine's pieces: a ring, ordered by time and by sequence. */
struct track {
        uint32_t gpu;
        struct slices_engine engine;
        uint64_t advanced_ns;
        struct kept_slice *pieces; /* SLICE_HISTORY_PIECES */
        uint64_t head, tail;       /* positions, never going back */
        uint64_t processes[PROCESSES_MAX];
        size_t process_count, process_next;
};

struct slice_history {
        pthread_mutex_t lock;
        struct track *tracks[SLICE_HISTORY_ENGINES];
        size_t track_count;
        uint64_t sequence;
};

struct slice_history *slice_history_new(void)
{
        struct slice_history *h = calloc(1, sizeof(*h));

        if (h)
                pthread_mutex_init(&h->lock, NULL);
        return h;
}

struct slice_history *slice_history_free(struct slice_history *h)
{
        if (!h)
                return NULL;
        for (size_t i = 0; i < h->track_count; i++) {
                free(h->tracks[i]->pieces);
                free(h->tracks[i]);
        }
        pthread_mutex_destroy(&h->lock);
        free(h);
        return NULL;
}

static struct kept_slice *piece_at(const struct track *t, uint64_t position)
{
        return &t->pieces[position % SLICE_HISTORY_PIECES];
}

/* ---- adding ---- */

static struct track *find_track(const struct slice_history *h, uint32_t gpu,
                                struct slices_engine engine)
{
        for (size_t i = 0; i < h->track_count; i++) {
                struct track *t = h->tracks[i];

                if (t->gpu == gpu && t->engine.mig_gpu == engine.mig_gpu &&
                    t->engine.mig_compute == engine.mig_compute)
                        return t;
        }
        return NULL;
}

static int new_track(struct slice_history *h, uint32_t gpu, struct slices_engine engine,
                     struct track **ret_track)
{
        struct track *t;

        if (h->track_count == SLICE_HISTORY_ENGINES)
                return -ENOBUFS;
        t = calloc(1, sizeof(*t));
        if (!t)
                return -ENOMEM;
        t->pieces = malloc(SLICE_HISTORY_PIECES * sizeof(*t->pieces));
        if (!t->pieces) {
                free(t);
                return -ENOMEM;
        }
        t->gpu = gpu;
        t->engine = engine;
        h->tracks[h->track_count++] = t;
        *ret_track = t;
        return 0;
}

static bool has_process(const struct track *t, uint64_t process_key)
{
        for (size_t i = 0; i < t->process_count; i++)
                if (t->processes[i] == process_key)
                        return true;
        return false;
}

static void note_process(struct track *t, uint64_t process_key)
{
        if (!process_key || has_process(t, process_key))
                return;
        t->processes[t->process_next] = process_key;
        t->process_next = (t->process_next + 1) % PROCESSES_MAX;
        if (t->process_count < PROCESSES_MAX)
                t->process_count++;
}

int slice_history_add(struct slice_history *h, uint32_t gpu, uint64_t process_key,
                      const struct slice *s, uint64_t *ret_sequence)
{
        struct track *t;
        int r = 0;

        pthread_mutex_lock(&h->lock);
        t = find_track(h, gpu, s->engine);
        if (!t)
                r = new_track(h, gpu, s->engine, &t);
        if (r == 0) {
                if (t->tail - t->head == SLICE_HISTORY_PIECES)
                        t->head++;
                *piece_at(t, t->tail++) = (struct kept_slice){
                        .sequence = ++h->sequence,
                        .process_key = process_key,
                        .gpu = gpu,
                        .slice = *s,
                };
                note_process(t, process_key);
                if (s->end_ns > t->advanced_ns)
                        t->advanced_ns = s->end_ns;
                *ret_sequence = h->sequence;
        }
        pthread_mutex_unlock(&h->lock);
        return r;
}

void slice_history_advance(struct slice_history *h, uint32_t gpu, uint64_t now_ns)
{
        pthread_mutex_lock(&h->lock);
        for (size_t i = 0; i < h->track_count; i++)
                if (h->tracks[i]->gpu == gpu && now_ns > h->tracks[i]->advanced_ns)
                        h->tracks[i]->advanced_ns = now_ns;
        pthread_mutex_unlock(&h->lock);
}

/* ---- asking ---- */

bool slice_history_reaches(struct slice_history *h, uint64_t ns)
{
        bool reaches;

        pthread_mutex_lock(&h->lock);
        reaches = h->track_count > 0;
        for (size_t i = 0; i < h->track_count; i++)
                reaches = reaches && h->tracks[i]->advanced_ns >= ns;
        pthread_mutex_unlock(&h->lock);
        return reaches;
}

/* The first piece that ends after a time. */
static uint64_t first_after(const struct track *t, uint64_t ns)
{
        uint64_t low = t->head, high = t->tail, middle;

        while (low < high) {
                middle = low + (high - low) / 2;
                if (piece_at(t, middle)->slice.end_ns > ns)
                        high = middle;
                else
                        low = middle + 1;
        }
        return low;
}

/* The one engine where the process has been. */
static const struct track *track_of(const struct slice_history *h, uint64_t process_key)
{
        const struct track *found = NULL;

        for (size_t i = 0; i < h->track_count; i++) {
                if (!has_process(h->tracks[i], process_key))
                        continue;
                if (found)
                        return NULL;
                found = h->tracks[i];
        }
        return found;
}

static bool others(const struct track *t, uint64_t process_key, uint64_t from_ns, uint64_t to_ns,
                   uint64_t *ret_ns)
{
        uint64_t sum = 0;

        if (t->head == t->tail || from_ns < piece_at(t, t->head)->slice.start_ns ||
            to_ns > t->advanced_ns)
                return false;
        for (uint64_t i = first_after(t, from_ns); i < t->tail; i++) {
                const struct kept_slice *k = piece_at(t, i);
                uint64_t start = k->slice.start_ns > from_ns ? k->slice.start_ns : from_ns;
                uint64_t end = k->slice.end_ns < to_ns ? k->slice.end_ns : to_ns;

                if (k->slice.start_ns >= to_ns)
                        break;
                if (k->slice.unknown)
                        return false;
                if (k->process_key != process_key && end > start)
                        sum += end - start;
        }
        *ret_ns = sum;
        return true;
}

bool slice_history_others(struct slice_history *h, uint64_t process_key, uint64_t from_ns,
                          uint64_t to_ns, uint64_t *ret_ns)
{
        const struct track *t;
        bool known;

        pthread_mutex_lock(&h->lock);
        t = track_of(h, process_key);
        known = t && others(t, process_key, from_ns, to_ns, ret_ns);
        pthread_mutex_unlock(&h->lock);
        return known;
}

/* The first piece with a greater sequence number. */
static uint64_t first_later(const struct track *t, uint64_t sequence)
{
        uint64_t low = t->head, high = t->tail, middle;

        while (low < high) {
                middle = low + (high - low) / 2;
                if (piece_at(t, middle)->sequence > sequence)
                        high = middle;
                else
                        low = middle + 1;
        }
        return low;
}

static bool in_range(const struct kept_slice *k, uint64_t since_ns, uint64_t until_ns)
{
        return k->slice.end_ns > since_ns && k->slice.start_ns < until_ns;
}

size_t slice_history_copy(struct slice_history *h, uint64_t after, uint64_t since_ns,
                          uint64_t until_ns, struct kept_slice *ret_slices, size_t max)
{
        uint64_t at[SLICE_HISTORY_ENGINES];
        size_t n = 0;

        pthread_mutex_lock(&h->lock);
        for (size_t i = 0; i < h->track_count; i++)
                at[i] = first_later(h->tracks[i], after);
        /* Merge the engines by sequence. */
        while (n < max) {
                const struct kept_slice *next = NULL;
                size_t from = 0;

                for (size_t i = 0; i < h->track_count; i++) {
                        const struct kept_slice *k = piece_at(h->tracks[i], at[i]);

                        if (at[i] == h->tracks[i]->tail || (next && k->sequence > next->sequence))
                                continue;
                        next = k;
                        from = i;
                }
                if (!next)
                        break;
                at[from]++;
                if (in_range(next, since_ns, until_ns))
                        ret_slices[n++] = *next;
        }
        pthread_mutex_unlock(&h->lock);
        return n;
}
