/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What has to be set back in other processes when a policy goes, or the daemon
 * dies: a file of fixed records, an entry written and synced before the thing is
 * done, and a second record when it has been undone. Whoever opens the journal
 * after a crash finds exactly what may still be in force; undoing what was never
 * done must be harmless, as it cannot be told apart.
 *
 * Entries name their process by pid and start time and hold for one boot; those
 * of an earlier boot are dropped at opening. A torn or damaged record is
 * skipped: an entry whose own write was cut short was not acted upon yet.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define UNDO_OWNER_BYTES 32 /* with the NUL */
#define UNDO_VALUES      4
#define UNDO_UUID_BYTES  16
#define UNDO_ENTRIES_MAX 4096

enum undo_kind {
        UNDO_NONE,                 /* on disk: the entry with this id has been undone */
        UNDO_UVM_PREFERRED,        /* values: address, bytes */
        UNDO_UVM_ACCESSED_BY,      /* values: address, bytes; uuid: the processor */
        UNDO_UVM_READ_DUPLICATION, /* values: address, bytes */
        UNDO_TIME_SLICE, /* values: client, channel group, microseconds before, descriptor */
        UNDO_KINDS
};

struct undo_entry {
        uint64_t id; /* given by undo_journal_add() */
        enum undo_kind kind;
        pid_t pid;
        uint64_t start_ticks;
        char owner[UNDO_OWNER_BYTES]; /* the policy, or who else is responsible */
        uint64_t values[UNDO_VALUES];
        uint8_t uuid[UNDO_UUID_BYTES];
};

/* The calls this module makes; tests die in them, and have others come between. */
struct undo_io {
        ssize_t (*write)(int fd, const void *bytes, size_t size);
        int (*sync)(int fd);
        int (*truncate)(int fd, off_t size);
        int (*rename)(const char *from, const char *to);
        int (*unlink)(const char *path);
        int (*lock)(int fd, int operation); /* flock() */
};

extern const struct undo_io undo_io_default;

struct undo_journal;

/* This boot's id. 0 or -errno. */
int undo_boot_id(uint8_t ret_boot[16]);

/*
 * Open or create, and keep the entries of this boot that were not undone. 0;
 * -ENOMEM; -EMEDIUMTYPE: the file is not a journal; other -errno of the file. One
 * process at a time (-EBUSY).
 */
int undo_journal_open(const struct undo_io *io, const char *path, const uint8_t boot[16],
                      struct undo_journal **ret_journal);
struct undo_journal *undo_journal_free(struct undo_journal *j);

/*
 * Instead of freeing it while a thread is in a call that does not return: let another process have
 * the file. Nothing can be added any more (-EBADF).
 */
void undo_journal_shut(struct undo_journal *j);

/*
 * Note what is about to be done, before it is done: on return 0 it is on disk.
 * -ENOSPC: more than UNDO_ENTRIES_MAX are in force; -errno: do not do it. Any thread.
 */
int undo_journal_add(struct undo_journal *j, const struct undo_entry *entry, uint64_t *ret_id);

/*
 * The same for several, with one wait for the disk. On return 0 the first ret_added of them are
 * there, less than count where there was no room for more, and have their ids; -errno: none is, nor
 * will whoever opens the file next find one.
 */
int undo_journal_add_all(struct undo_journal *j, struct undo_entry *entries, size_t count,
                         size_t *ret_added);

/*
 * It has been undone (or the process is gone, or it was never done). Not synced:
 * should the record be lost, it is undone once more. -ENOENT no such entry. Any thread.
 */
int undo_journal_done(struct undo_journal *j, uint64_t id);

/* Entries in force into ret[max], oldest first; the number in force. Any thread. */
size_t undo_journal_list(struct undo_journal *j, struct undo_entry *ret_entries, size_t max);

/* Records that were no records when the file was opened. */
uint64_t undo_journal_damaged(const struct undo_journal *j);

/* What could not be written since it was opened. */
struct undo_failures {
        uint64_t entries; /* not added, so that what they are about was not done */
        uint64_t undone;  /* that something has been undone: a daemon after a crash does it again */
        uint64_t left; /* of the entries: those whose records could not be taken out of the file */
        int error;     /* -errno of the last; 0: none */
};

/* Any thread. */
void undo_journal_failures(struct undo_journal *j, struct undo_failures *ret_failures);
