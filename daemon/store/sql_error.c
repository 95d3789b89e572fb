/* SPDX-License-Identifier: Apache-2.0 */
#include "store/sql_error.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/*
 * SQLite keeps the system's errno for most failures but not for those of a
 * COMMIT, and does not forget an old one; errno itself is the better witness
 * when the caller cleared it before the call.
 */
static int system_errno(sqlite3 *db)
{
        if (errno)
                return errno;
        return db ? sqlite3_system_errno(db) : 0;
}

static int errno_of_io(sqlite3 *db)
{
        switch (system_errno(db)) {
        case ENOSPC:
        case EDQUOT:
        case EFBIG: /* RLIMIT_FSIZE, or the file system's limit */
                return -ENOSPC;
        case EROFS:
                return -EROFS;
        case EACCES:
        case EPERM:
                return -EACCES;
        default:
                return -EIO;
        }
}

static int errno_of_open(sqlite3 *db)
{
        int error = system_errno(db);

        /* SQLite leaves EINTR, 0 and the like here when the cause was its own. */
        switch (error) {
        case EACCES:
        case EPERM:
        case EROFS:
        case ENOENT:
        case ENOTDIR:
        case EISDIR:
        case ENOSPC:
        case EMFILE:
        case ENFILE:
                return -error;
        default:
                return -EIO;
        }
}

int sql_errno(sqlite3 *db, int rc)
{
        switch (rc & 0xff) {
        case SQLITE_OK:
        case SQLITE_ROW:
        case SQLITE_DONE:
                return 0;
        case SQLITE_FULL:
                return -ENOSPC;
        case SQLITE_READONLY:
                return -EROFS;
        case SQLITE_PERM:
        case SQLITE_AUTH:
                return -EACCES;
        case SQLITE_CANTOPEN:
                return errno_of_open(db);
        case SQLITE_BUSY:
        case SQLITE_LOCKED:
                return -EBUSY;
        case SQLITE_CORRUPT:
        case SQLITE_NOTADB:
                return -EBADMSG;
        case SQLITE_NOMEM:
                return -ENOMEM;
        case SQLITE_INTERRUPT:
                return -ETIME;
        case SQLITE_CONSTRAINT:
                return -EEXIST;
        case SQLITE_TOOBIG:
                return -E2BIG;
        case SQLITE_IOERR:
                return errno_of_io(db);
        default:
                return -EPROTO; /* a statement that does not fit the schema */
        }
}

void sql_sentence(sqlite3 *db, int rc, const char *path, char *buffer, size_t size)
{
        int error = sql_errno(db, rc);

        switch (error) {
        case 0:
                buffer[0] = '\0';
                return;
        case -ENOSPC:
                snprintf(buffer, size,
                         "no space left for the database: free disk space or lower its size limit "
                         "(%s)",
                         path);
                return;
        case -EROFS:
        case -EACCES:
                snprintf(buffer, size,
                         "the database cannot be written (%s): make its directory writable (%s)",
                         strerror(-error), path);
                return;
        case -EBUSY:
                snprintf(buffer, size,
                         "the database is locked by another program: end that program (%s)", path);
                return;
        case -EBADMSG:
                snprintf(buffer, size,
                         "the database is damaged: it will be moved aside and begun anew (%s)",
                         path);
                return;
        case -ENOMEM:
                snprintf(buffer, size, "not enough memory to write the database (%s)", path);
                return;
        case -EIO:
                snprintf(buffer, size,
                         "reading or writing the database failed (%s): check the disk (%s)",
                         system_errno(db) ? strerror(system_errno(db)) : sqlite3_errstr(rc), path);
                return;
        default:
                snprintf(buffer, size, "the database cannot be used (%s) (%s)",
                         rc == SQLITE_ERROR && db ? sqlite3_errmsg(db) : strerror(-error), path);
                return;
        }
}
