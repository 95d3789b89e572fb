/* SPDX-License-Identifier: Apache-2.0 */
#include "util/slurp.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <utlist.h>

#include "util/macro.h"
#include "util/thread.h"
#include "util/time.h"

#define ROOM_FIRST     65536
#define PATIENCE_PARTS 5

/* A thread, and the file that it reads. */
struct reader {
        struct reader *prev, *next; /* of those that are left */
        pthread_cond_t changed;
        char path[64];
        bool asked, answered, left;
        int error;
        char *text;
        size_t size;
};

static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct reader *reader; /* takes the next file; NULL: none */
static struct reader *left;
static unsigned left_count;

/* ---- the thread ---- */

static int read_all(int fd, char **ret_text, size_t *ret_size)
{
        size_t room = ROOM_FIRST, size = 0;
        _cleanup_free_ char *text = malloc(room + 1);
        ssize_t n = 1;

        while (text && n > 0) {
                if (size == room) {
                        char *grown = realloc(text, 2 * room + 1);

                        if (!grown)
                                return -ENOMEM;
                        text = grown;
                        room *= 2;
                }
                n = read(fd, text + size, room - size);
                if (n < 0)
                        return -errno;
                size += (size_t)n;
        }
        if (!text)
                return -ENOMEM;
        text[size] = '\0';
        *ret_text = TAKE_PTR(text);
        *ret_size = size;
        return 0;
}

static int read_file(const char *path, char **ret_text, size_t *ret_size)
{
        _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);

        return fd < 0 ? -errno : read_all(fd, ret_text, ret_size);
}

static void reader_free(struct reader *r)
{
        pthread_cond_destroy(&r->changed);
        free(r->text);
        free(r);
}

/* Ends when it has been left; a thread that is not lives as long as the daemon. */
static void *work(void *data)
{
        struct reader *r = data;

        pthread_mutex_lock(&lock);
        while (!r->left) {
                while (!r->asked)
                        pthread_cond_wait(&r->changed, &lock);
                r->asked = false;
                pthread_mutex_unlock(&lock);
                r->error = read_file(r->path, &r->text, &r->size);
                pthread_mutex_lock(&lock);
                r->answered = true;
                pthread_cond_broadcast(&r->changed);
        }
        DL_DELETE(left, r);
        left_count--;
        pthread_mutex_unlock(&lock);
        reader_free(r);
        return NULL;
}

/* ---- who asks; the lock is held ---- */

static int start(struct reader *r)
{
        pthread_t thread;
        int error = thread_start(&thread, work, r);

        if (error == 0)
                pthread_detach(thread);
        return error;
}

static int need_reader(void)
{
        struct reader *r = reader ? NULL : calloc(1, sizeof(*r));
        pthread_condattr_t monotonic;
        int error;

        if (reader)
                return 0;
        if (!r)
                return -ENOMEM;
        pthread_condattr_init(&monotonic);
        pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
        pthread_cond_init(&r->changed, &monotonic);
        pthread_condattr_destroy(&monotonic);
        error = start(r);
        if (error < 0)
                reader_free(r);
        else
                reader = r;
        return error;
}

static bool is_left(const char *path)
{
        const struct reader *r;

        DL_FOREACH(left, r)
        {
                if (strcmp(r->path, path) == 0)
                        return true;
        }
        return left_count == SLURP_LEFT_MAX;
}

static void wait_a_part(struct reader *r)
{
        uint64_t until_ns = now_ns() + SLURP_PATIENCE_NS / PATIENCE_PARTS;
        const struct timespec until = {.tv_sec = (time_t)(until_ns / NSEC_PER_SEC),
                                       .tv_nsec = (long)(until_ns % NSEC_PER_SEC)};

        while (!r->answered)
                if (pthread_cond_timedwait(&r->changed, &lock, &until) == ETIMEDOUT)
                        break;
}

/* In parts: where the whole machine stood still, one of them is over, and the thread has the
 * others. */
static bool wait_for_answer(struct reader *r)
{
        for (int i = 0; i < PATIENCE_PARTS && !r->answered; i++)
                wait_a_part(r);
        return r->answered;
}

static int ask(const char *path, char **ret_text, size_t *ret_size)
{
        struct reader *r = reader;

        snprintf(r->path, sizeof(r->path), "%s", path);
        r->answered = false;
        r->asked = true;
        pthread_cond_broadcast(&r->changed);
        if (!wait_for_answer(r)) {
                r->left = true;
                DL_APPEND(left, r);
                left_count++;
                reader = NULL;
                return -ETIMEDOUT;
        }
        if (r->error == 0) {
                *ret_text = TAKE_PTR(r->text);
                *ret_size = r->size;
        }
        return r->error;
}

int slurp(const char *path, char **ret_text, size_t *ret_size)
{
        int r;

        if (strlen(path) >= sizeof(reader->path))
                return -ENAMETOOLONG;
        pthread_mutex_lock(&one_at_a_time);
        pthread_mutex_lock(&lock);
        r = is_left(path) ? -EBUSY : need_reader();
        if (r == 0)
                r = ask(path, ret_text, ret_size);
        pthread_mutex_unlock(&lock);
        pthread_mutex_unlock(&one_at_a_time);
        return r;
}

unsigned slurp_left(void)
{
        unsigned n;

        pthread_mutex_lock(&lock);
        n = left_count;
        pthread_mutex_unlock(&lock);
        return n;
}
