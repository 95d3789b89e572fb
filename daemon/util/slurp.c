/* SPDX-License-Identifier: Apache-2.0 */
#include "util/slurp.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <utlist.h>

#include "util/macro.h"
#include "util/thread.h"
#include "util/time.h"

#define ROOM_FIRST     65536
#define PATIENCE_PARTS 5

/* A thread, and the file that it reads or opens. */
struct reader {
        struct reader *prev, *next; /* of those that are left */
        pthread_cond_t changed;
        void (*run)(struct reader *r);
        char path[PATH_MAX];
        bool asked, answered, left;
        int error;
        char *text;
        size_t size;
        int fd; /* -1: none is open */
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

static void read_file(struct reader *r)
{
        _cleanup_close_ int fd = open(r->path, O_RDONLY | O_CLOEXEC);

        r->error = fd < 0 ? -errno : read_all(fd, &r->text, &r->size);
}

/* Look before opening: the names are another's, and opening a device can do things. */
static int open_regular(const char *path)
{
        _cleanup_close_ int place = open(path, O_PATH | O_CLOEXEC);
        char again[64];
        struct stat st;
        int fd;

        if (place < 0 || fstat(place, &st) < 0)
                return -errno;
        if (!S_ISREG(st.st_mode))
                return -EBADF;
        snprintf(again, sizeof(again), "/proc/self/fd/%d", place);
        fd = open(again, O_RDONLY | O_CLOEXEC);
        return fd < 0 ? -errno : fd;
}

static void open_file(struct reader *r)
{
        r->fd = open_regular(r->path);
        r->error = r->fd < 0 ? r->fd : 0;
}

static void reader_free(struct reader *r)
{
        closep(&r->fd);
        pthread_cond_destroy(&r->changed);
        free(r->text);
        free(r);
}

/* Ends when it has read what it was left with; one that is not lives as long as the daemon. */
static void *work(void *data)
{
        struct reader *r = data;

        pthread_mutex_lock(&lock);
        do {
                while (!r->asked)
                        pthread_cond_wait(&r->changed, &lock);
                r->asked = false;
                pthread_mutex_unlock(&lock);
                r->run(r);
                pthread_mutex_lock(&lock);
                r->answered = true;
                pthread_cond_broadcast(&r->changed);
        } while (!r->left);
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
        r->fd = -1;
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

/* 0: it is no file of a process. */
static int process_of(const char *path)
{
        int pid;

        return sscanf(path, "/proc/%d/", &pid) == 1 ? pid : 0;
}

/* The lock that one file of a process waits for others would wait for, too. */
static bool is_left(const char *path)
{
        int pid = process_of(path);
        const struct reader *r;

        DL_FOREACH(left, r)
        {
                if (strcmp(r->path, path) == 0 || (pid && process_of(r->path) == pid))
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

/* In parts: where the machine stood still one of them is over, and the thread has the others. */
static bool wait_for_answer(struct reader *r)
{
        for (int i = 0; i < PATIENCE_PARTS && !r->answered; i++)
                wait_a_part(r);
        return r->answered;
}

static int ask(const char *path, void (*run)(struct reader *r))
{
        struct reader *r = reader;

        snprintf(r->path, sizeof(r->path), "%s", path);
        r->run = run;
        r->answered = false;
        r->asked = true;
        pthread_cond_broadcast(&r->changed);
        if (wait_for_answer(r))
                return r->error;
        r->left = true;
        DL_APPEND(left, r);
        left_count++;
        reader = NULL;
        return -ETIMEDOUT;
}

/* Takes the locks; on 0 the answer is in the reader until give_way(). */
static int have(const char *path, void (*run)(struct reader *r))
{
        int r;

        pthread_mutex_lock(&one_at_a_time);
        pthread_mutex_lock(&lock);
        r = strlen(path) >= sizeof(reader->path) ? -ENAMETOOLONG : 0;
        if (r == 0)
                r = is_left(path) ? -EBUSY : need_reader();
        return r < 0 ? r : ask(path, run);
}

static void give_way(void)
{
        pthread_mutex_unlock(&lock);
        pthread_mutex_unlock(&one_at_a_time);
}

int slurp(const char *path, char **ret_text, size_t *ret_size)
{
        int r = have(path, read_file);

        if (r == 0) {
                *ret_text = TAKE_PTR(reader->text);
                *ret_size = reader->size;
        }
        give_way();
        return r;
}

int slurp_open(const char *path)
{
        int r = have(path, open_file);

        if (r == 0)
                r = TAKE_FD(reader->fd);
        give_way();
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
