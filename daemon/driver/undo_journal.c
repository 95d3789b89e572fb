/* SPDX-License-Identifier: Apache-2.0 */
#include "driver/undo_journal.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/macro.h"

#define RECORD_MAGIC 0x314a5547u /* "GUJ1" */

/* The file is begun anew when it has this many records, most of which are of undone entries. */
#define RECORDS_MAX (4 * UNDO_ENTRIES_MAX)

struct record {
        uint32_t magic;
        uint32_t kind;
        uint64_t id;
        uint64_t start_ticks;
        uint64_t values[UNDO_VALUES];
        uint8_t uuid[UNDO_UUID_BYTES];
        uint8_t boot[16];
        char owner[UNDO_OWNER_BYTES];
        uint32_t pid;
        uint32_t checksum; /* of all before it */
};
_Static_assert(sizeof(struct record) == 128, "records do not straddle a sector");

struct undo_journal {
        const struct undo_io *io;
        char *path, *path_new;
        int fd;
        uint8_t boot[16];
        pthread_mutex_t lock;
        struct undo_entry *entries;
        size_t count;
        size_t records; /* in the file */
        bool torn;      /* the file has to be begun anew before anything is added */
        uint64_t next_id;
        uint64_t damaged;
        struct undo_failures failures;
};

const struct undo_io undo_io_default = {.write = write,
                                        .sync = fdatasync,
                                        .truncate = ftruncate,
                                        .rename = rename,
                                        .unlink = unlink,
                                        .lock = flock};

/* ---- records ---- */

/* CRC-32 (IEEE 802.3), a bit at a time: records are few. */
static uint32_t checksum(const struct record *r)
{
        const uint8_t *bytes = (const uint8_t *)r;
        uint32_t crc = ~0u;

        for (size_t i = 0; i < offsetof(struct record, checksum); i++) {
                crc ^= bytes[i];
                for (int bit = 0; bit < 8; bit++)
                        crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
        }
        return ~crc;
}

static void encode(const struct undo_journal *j, const struct undo_entry *e, enum undo_kind kind,
                   struct record *ret_record)
{
        *ret_record = (struct record){.magic = RECORD_MAGIC,
                                      .kind = kind,
                                      .id = e->id,
                                      .start_ticks = e->start_ticks,
                                      .pid = (uint32_t)e->pid};
        memcpy(ret_record->values, e->values, sizeof(e->values));
        memcpy(ret_record->uuid, e->uuid, sizeof(e->uuid));
        memcpy(ret_record->boot, j->boot, sizeof(j->boot));
        memcpy(ret_record->owner, e->owner, sizeof(e->owner));
        ret_record->checksum = checksum(ret_record);
}

static bool is_record(const struct record *r)
{
        return r->magic == RECORD_MAGIC && r->kind < UNDO_KINDS && r->id != 0 && r->pid != 0 &&
               r->pid <= INT32_MAX && r->checksum == checksum(r);
}

static void decode(const struct record *r, struct undo_entry *ret_entry)
{
        *ret_entry = (struct undo_entry){.id = r->id,
                                         .kind = (enum undo_kind)r->kind,
                                         .pid = (pid_t)r->pid,
                                         .start_ticks = r->start_ticks};
        memcpy(ret_entry->values, r->values, sizeof(r->values));
        memcpy(ret_entry->uuid, r->uuid, sizeof(r->uuid));
        memcpy(ret_entry->owner, r->owner, sizeof(r->owner));
        ret_entry->owner[UNDO_OWNER_BYTES - 1] = '\0';
}

/* ---- entries in memory ---- */

static struct undo_entry *find(struct undo_journal *j, uint64_t id)
{
        for (size_t i = 0; i < j->count; i++)
                if (j->entries[i].id == id)
                        return &j->entries[i];
        return NULL;
}

static void drop(struct undo_journal *j, struct undo_entry *e)
{
        size_t at = (size_t)(e - j->entries);

        j->count--;
        memmove(e, e + 1, (j->count - at) * sizeof(*e));
}

static void take_record(struct undo_journal *j, const struct record *r)
{
        struct undo_entry *known;

        if (!is_record(r)) {
                j->damaged++;
                return;
        }
        if (memcmp(r->boot, j->boot, sizeof(j->boot)) != 0)
                return;
        known = find(j, r->id);
        if (r->kind == UNDO_NONE && known)
                drop(j, known);
        else if (r->kind != UNDO_NONE && !known && j->count < UNDO_ENTRIES_MAX)
                decode(r, &j->entries[j->count++]);
}

/* ---- the file ---- */

static int write_record(struct undo_journal *j, int fd, const struct undo_entry *e,
                        enum undo_kind kind)
{
        struct record r;
        ssize_t n;

        encode(j, e, kind, &r);
        n = j->io->write(fd, &r, sizeof(r));
        if (n < 0)
                return -errno;
        return n == (ssize_t)sizeof(r) ? 0 : -ENOSPC;
}

static int sync_directory(const struct undo_journal *j)
{
        _cleanup_free_ char *directory = strdup(j->path);
        _cleanup_close_ int fd = -1;
        char *slash;

        if (!directory)
                return -ENOMEM;
        slash = strrchr(directory, '/');
        if (slash)
                *slash = '\0';
        fd = open(slash ? directory : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0)
                return -errno;
        return fsync(fd) < 0 ? -errno : 0;
}

static bool has_name(int fd, const char *path)
{
        struct stat st, named;

        return fstat(fd, &st) == 0 && stat(path, &named) == 0 && st.st_dev == named.st_dev &&
               st.st_ino == named.st_ino;
}

/*
 * Locks the file against a second daemon; the new one is locked before it takes the name. Who had
 * the lock may have put another in its place before we got it: what we locked is no journal then.
 */
static int open_locked(const struct undo_io *io, const char *path, int flags)
{
        int fd, r;

        for (;;) {
                fd = open(path, flags | O_CLOEXEC, 0600);
                if (fd < 0)
                        return -errno;
                if (io->lock(fd, LOCK_EX | LOCK_NB) < 0) {
                        r = errno == EWOULDBLOCK ? -EBUSY : -errno;
                        close(fd);
                        return r;
                }
                if (has_name(fd, path))
                        return fd;
                close(fd);
        }
}

/* A file with what is in force alone, in place of the old one at once. */
static int begin_anew(struct undo_journal *j)
{
        _cleanup_close_ int fd = -1;
        int r = 0;

        fd = open_locked(j->io, j->path_new, O_WRONLY | O_APPEND | O_CREAT | O_TRUNC);
        if (fd < 0)
                return fd;
        for (size_t i = 0; r == 0 && i < j->count; i++)
                r = write_record(j, fd, &j->entries[i], j->entries[i].kind);
        if (r == 0 && j->io->sync(fd) < 0)
                r = -errno;
        if (r == 0 && j->io->rename(j->path_new, j->path) < 0)
                r = -errno;
        if (r < 0) {
                (void)j->io->unlink(j->path_new);
                return r;
        }
        close(j->fd);
        j->fd = TAKE_FD(fd);
        j->records = j->count;
        j->torn = false;
        return sync_directory(j);
}

static int read_records(struct undo_journal *j)
{
        struct record r;
        struct stat st;
        ssize_t n;

        if (fstat(j->fd, &st) < 0)
                return -errno;
        if (!S_ISREG(st.st_mode))
                return -EMEDIUMTYPE;
        while ((n = read(j->fd, &r, sizeof(r))) == (ssize_t)sizeof(r)) {
                take_record(j, &r);
                j->records++;
        }
        if (n < 0)
                return -errno;
        /* Nothing in it makes sense: rather leave somebody's file alone than replace it. */
        if (j->records > 0 && j->damaged == j->records)
                return -EMEDIUMTYPE;
        j->damaged += n > 0;
        j->torn = n > 0;
        return 0;
}

/* Entries get the first numbers: those in a file, damaged as it may be, could be used up. */
static void renumber(struct undo_journal *j)
{
        for (size_t i = 0; i < j->count; i++)
                j->entries[i].id = j->next_id++;
}

/*
 * Records after these were of entries that failed, or part of one: those to come must stay aligned,
 * and who reads the file must not take for done what was not. Where that fails, too, the file is
 * begun anew before anything is added.
 */
static bool cut(struct undo_journal *j, size_t records)
{
        bool done = j->io->truncate(j->fd, (off_t)(records * sizeof(struct record))) == 0;

        j->records = records;
        j->torn = j->torn || !done;
        return done;
}

/*
 * Room in a file that is whole, and that the next daemon finds: somebody may have removed it, with
 * the database perhaps. What another daemon has put in its place stays (-EEXIST). 0 or -errno.
 */
static int make_ready(struct undo_journal *j, size_t count)
{
        bool is_there = j->fd >= 0 && has_name(j->fd, j->path);

        if (j->fd < 0)
                return -EBADF;
        if (!is_there && access(j->path, F_OK) == 0)
                return -EEXIST;
        if (!is_there || j->torn || j->records + count > RECORDS_MAX)
                return begin_anew(j);
        return 0;
}

static int append(struct undo_journal *j, const struct undo_entry *e, enum undo_kind kind)
{
        int r = write_record(j, j->fd, e, kind);

        if (r == 0)
                j->records++;
        return r;
}

/* ---- interface ---- */

static int hex_digit(char c)
{
        return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int undo_boot_id(uint8_t ret_boot[16])
{
        _cleanup_fclose_ FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
        char text[64] = "";
        int digits = 0;

        if (!f)
                return -errno;
        if (!fgets(text, sizeof(text), f))
                return -EIO;
        memset(ret_boot, 0, 16);
        for (const char *c = text; *c && digits < 32; c++) {
                int v = hex_digit(*c);

                if (v < 0)
                        continue;
                ret_boot[digits / 2] |= (uint8_t)(digits % 2 ? v : v << 4);
                digits++;
        }
        return digits == 32 ? 0 : -EBADMSG;
}

int undo_journal_open(const struct undo_io *io, const char *path, const uint8_t boot[16],
                      struct undo_journal **ret_journal)
{
        struct undo_journal *j = calloc(1, sizeof(*j));
        int r;

        if (!j)
                return -ENOMEM;
        j->io = io;
        j->next_id = 1;
        pthread_mutex_init(&j->lock, NULL);
        memcpy(j->boot, boot, sizeof(j->boot));
        j->path = strdup(path);
        if (asprintf(&j->path_new, "%s.new", path) < 0)
                j->path_new = NULL;
        j->entries = calloc(UNDO_ENTRIES_MAX, sizeof(j->entries[0]));
        j->fd = -1;
        r = j->path && j->path_new && j->entries ? 0 : -ENOMEM;
        if (r == 0) {
                j->fd = open_locked(io, path, O_RDWR | O_APPEND | O_CREAT);
                r = j->fd < 0 ? j->fd : read_records(j);
        }
        if (r < 0) {
                undo_journal_free(j);
                return r;
        }
        renumber(j);
        /* With a full disk what is in force can still be read and undone; adding tries again. */
        if ((j->torn || j->records > 0) && begin_anew(j) < 0)
                j->torn = true;
        *ret_journal = j;
        return 0;
}

struct undo_journal *undo_journal_free(struct undo_journal *j)
{
        if (!j)
                return NULL;
        closep(&j->fd);
        pthread_mutex_destroy(&j->lock);
        free(j->entries);
        free(j->path_new);
        free(j->path);
        free(j);
        return NULL;
}

void undo_journal_shut(struct undo_journal *j)
{
        pthread_mutex_lock(&j->lock);
        closep(&j->fd);
        j->fd = -1;
        pthread_mutex_unlock(&j->lock);
}

static int add_records(struct undo_journal *j, struct undo_entry *entries, size_t count)
{
        int r = 0;

        for (size_t i = 0; r == 0 && i < count; i++) {
                /* Never again, even if only part of the record gets to the disk. */
                entries[i].id = j->next_id++;
                r = append(j, &entries[i], entries[i].kind);
                if (r == 0)
                        j->entries[j->count++] = entries[i];
        }
        return r;
}

/* None of them is there. */
static void take_out(struct undo_journal *j, size_t count, size_t records)
{
        size_t written = j->count - count;

        j->count = count;
        if (!cut(j, records))
                j->failures.left += written;
}

static int add_locked(struct undo_journal *j, struct undo_entry *entries, size_t count)
{
        size_t before = j->count, room = UNDO_ENTRIES_MAX - before, records;
        size_t n = count < room ? count : room;
        int r = n ? make_ready(j, n) : 0;

        records = j->records;
        if (r < 0 || n == 0)
                return r;
        r = add_records(j, entries, n);
        if (r == 0 && j->io->sync(j->fd) < 0) {
                r = -errno;
                j->torn = true; /* what the disk has of this file nobody knows: it is begun anew */
        }
        if (r < 0)
                take_out(j, before, records);
        return r;
}

static void count_failure(struct undo_journal *j, uint64_t *counter, size_t n, int error)
{
        *counter += n;
        j->failures.error = error;
}

static bool is_entry(const struct undo_entry *e)
{
        return e->kind > UNDO_NONE && e->kind < UNDO_KINDS && e->pid > 0;
}

int undo_journal_add_all(struct undo_journal *j, struct undo_entry *entries, size_t count,
                         size_t *ret_added)
{
        size_t before;
        int r;

        for (size_t i = 0; i < count; i++)
                if (!is_entry(&entries[i]))
                        return -EINVAL;
        pthread_mutex_lock(&j->lock);
        before = j->count;
        r = add_locked(j, entries, count);
        if (r == 0)
                *ret_added = j->count - before;
        else
                count_failure(j, &j->failures.entries, count, r);
        pthread_mutex_unlock(&j->lock);
        return r;
}

int undo_journal_add(struct undo_journal *j, const struct undo_entry *entry, uint64_t *ret_id)
{
        struct undo_entry e = *entry;
        size_t added = 0;
        int r = undo_journal_add_all(j, &e, 1, &added);

        if (r < 0)
                return r;
        if (!added)
                return -ENOSPC;
        *ret_id = e.id;
        return 0;
}

static int note_undone(struct undo_journal *j, const struct undo_entry *e)
{
        int r = make_ready(j, 1);

        if (r == 0) {
                r = append(j, e, UNDO_NONE);
                if (r < 0)
                        (void)cut(j, j->records);
        }
        if (r < 0)
                count_failure(j, &j->failures.undone, 1, r);
        return r;
}

int undo_journal_done(struct undo_journal *j, uint64_t id)
{
        struct undo_entry *e;
        int r = -ENOENT;

        pthread_mutex_lock(&j->lock);
        e = find(j, id);
        if (e) {
                struct undo_entry copy = *e;

                /* Out of memory first: it is undone, whatever becomes of the record. */
                drop(j, e);
                r = note_undone(j, &copy);
        }
        pthread_mutex_unlock(&j->lock);
        return r;
}

size_t undo_journal_list(struct undo_journal *j, struct undo_entry *ret_entries, size_t max)
{
        size_t count;

        pthread_mutex_lock(&j->lock);
        count = j->count;
        memcpy(ret_entries, j->entries, (count < max ? count : max) * sizeof(ret_entries[0]));
        pthread_mutex_unlock(&j->lock);
        return count;
}

uint64_t undo_journal_damaged(const struct undo_journal *j)
{
        return j->damaged;
}

void undo_journal_failures(struct undo_journal *j, struct undo_failures *ret_failures)
{
        pthread_mutex_lock(&j->lock);
        *ret_failures = j->failures;
        pthread_mutex_unlock(&j->lock);
}
