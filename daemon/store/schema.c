/* SPDX-License-Identifier: Apache-2.0 */
#include "store/schema.h"

#include <stddef.h>
#include <stdio.h>

#include "util/macro.h"

#define LAUNCHES_COLUMNS                                                                           \
        " l.launch_id, p.pid, p.comm, p.cgroup, b.boot_id, l.process AS process_key, l.tid, "      \
        "l.gpu,"                                                                                   \
        " l.context, l.stream, l.graph_exec, n.text AS kernel,"                                    \
        " l.grid_x, l.grid_y, l.grid_z, l.block_x, l.block_y, l.block_z, l.shared_bytes,"          \
        " l.cpu_enter_ns, l.cpu_enter_ns + l.cpu_return AS cpu_return_ns,"                         \
        " l.cpu_enter_ns + l.gpu_start AS gpu_start_ns, l.cpu_enter_ns + l.gpu_end AS gpu_end_ns," \
        " l.smid, l.gridid, l.result,"                                                             \
        " CASE l.match WHEN 3 THEN 'exact' WHEN 2 THEN 'ordered' WHEN 1 THEN 'inferred' ELSE "     \
        "'none'"                                                                                   \
        " END AS match, l.clock_error_ns,"                                                         \
        " CASE l.end_kind WHEN 2 THEN 'measured' WHEN 1 THEN 'inferred' ELSE 'none' END AS "       \
        "end_kind"

#define LAUNCHES_FROM                                                                              \
        " FROM launch l LEFT JOIN process p ON p.process_key = l.process"                          \
        " LEFT JOIN boot b ON b.id = p.boot LEFT JOIN name n ON n.id = l.kernel;"

/*
 * What is not known is NULL. Times are CLOCK_MONOTONIC ns of the process's
 * boot; a launch's other times are kept as the distance from cpu_enter_ns,
 * which takes 2 to 4 bytes instead of 8. The view `launches` shows plain
 * columns.
 */
static const char version_1[] =
        "CREATE TABLE meta(key TEXT PRIMARY KEY, value) WITHOUT ROWID;"
        "INSERT INTO meta VALUES('schema_version', 0), ('schema_compatible', 1),"
        " ('next_launch_id', 1), ('next_process_key', 1);"

        "CREATE TABLE boot(id INTEGER PRIMARY KEY, boot_id TEXT NOT NULL UNIQUE);"

        "CREATE TABLE process("
        " process_key INTEGER PRIMARY KEY,"
        " boot INTEGER NOT NULL," /* boot.id */
        " pid INTEGER NOT NULL,"
        " start_ticks INTEGER NOT NULL," /* /proc/PID/stat field 22 */
        " uid INTEGER NOT NULL,"
        " comm TEXT NOT NULL, exe TEXT, cgroup TEXT,"
        " started_realtime_ns INTEGER NOT NULL);" /* CLOCK_REALTIME when first seen */

        "CREATE TABLE name(id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE);"

        /* First the columns that queries filter by: SQLite decodes a row from its start. */
        "CREATE TABLE launch("
        " launch_id INTEGER PRIMARY KEY,"
        " process INTEGER NOT NULL," /* process.process_key */
        " kernel INTEGER,"           /* name.id */
        " cpu_enter_ns INTEGER NOT NULL,"
        " cpu_return INTEGER NOT NULL," /* ns after cpu_enter_ns, as the next two */
        " gpu_start INTEGER,"
        " gpu_end INTEGER,"
        " gpu INTEGER,"
        " match INTEGER NOT NULL,"    /* enum launch_match */
        " end_kind INTEGER NOT NULL," /* enum launch_end */
        " result INTEGER NOT NULL,"   /* CUresult */
        " tid INTEGER NOT NULL,"
        " context INTEGER,"
        " stream INTEGER NOT NULL,"
        " graph_exec INTEGER,"
        " gridid INTEGER,"
        " smid INTEGER,"
        " clock_error_ns INTEGER,"
        " grid_x INTEGER, grid_y INTEGER, grid_z INTEGER,"
        " block_x INTEGER, block_y INTEGER, block_z INTEGER,"
        " shared_bytes INTEGER);"

        /* Counters by name, so that a new loss needs no new column; zero is no row. */
        "CREATE TABLE ledger("
        " process INTEGER NOT NULL, counter TEXT NOT NULL, value INTEGER NOT NULL,"
        " PRIMARY KEY(process, counter)) WITHOUT ROWID;"

        "CREATE VIEW launches AS SELECT" LAUNCHES_COLUMNS LAUNCHES_FROM;

/*
 * Segments: runs of some thousand consecutive launches with the span of their
 * times and the processes in them. They stand in for indexes on time and
 * process, which would double the cost of an insert, and are the unit in which
 * retention deletes.
 */
static const char version_2[] =
        "CREATE TABLE segment("
        " first_id INTEGER PRIMARY KEY," /* launch ids, both included */
        " last_id INTEGER NOT NULL,"
        " boot INTEGER NOT NULL," /* a segment never spans two boots */
        " launches INTEGER NOT NULL,"
        " min_enter_ns INTEGER NOT NULL,"
        " max_enter_ns INTEGER NOT NULL,"
        " written_realtime_ns INTEGER NOT NULL);" /* CLOCK_REALTIME of the last write */

        "CREATE TABLE segment_process("
        " process INTEGER NOT NULL, segment INTEGER NOT NULL," /* segment.first_id */
        " launches INTEGER NOT NULL,"
        " PRIMARY KEY(process, segment)) WITHOUT ROWID;"
        /* The way from a segment to its processes: for retention. */
        "CREATE INDEX segment_process_segment ON segment_process(segment);"

        /* The last segment a name was used in: names of deleted launches go some time after them.
         */
        "ALTER TABLE name ADD COLUMN last_segment INTEGER NOT NULL DEFAULT 0;"

        "INSERT INTO segment SELECT min(l.launch_id), max(l.launch_id), p.boot, count(*),"
        " min(l.cpu_enter_ns), max(l.cpu_enter_ns), CAST(strftime('%s') AS INTEGER) * 1000000000"
        " FROM launch l JOIN process p ON p.process_key = l.process"
        " GROUP BY p.boot, l.launch_id / 8192;"
        "INSERT INTO segment_process SELECT l.process, s.first_id, count(*)"
        " FROM segment s JOIN launch l ON l.launch_id BETWEEN s.first_id AND s.last_id"
        " GROUP BY 1, 2;"
        "UPDATE name SET last_segment = (SELECT coalesce(max(first_id), 0) FROM segment);";

/*
 * Sums per minute, process, kernel and GPU, which outlive the launches
 * (minutes.h). They begin with this version: a file of an older one has launches
 * whose minutes have none, and when those launches go, they are gone.
 */
static const char version_3[] =
        "CREATE TABLE period("
        " id INTEGER PRIMARY KEY," /* PERIOD_ID(boot, minute): grows with time */
        " boot INTEGER NOT NULL,"
        " minute INTEGER NOT NULL," /* of the boot's CLOCK_MONOTONIC */
        " rows INTEGER NOT NULL,"   /* of it in minute */
        " written_realtime_ns INTEGER NOT NULL);"

        "CREATE TABLE minute("
        " period INTEGER NOT NULL, process INTEGER NOT NULL,"
        " kernel INTEGER NOT NULL," /* name.id, 0 not known */
        " gpu INTEGER NOT NULL,"    /* -1 not known */
        " launches INTEGER NOT NULL,"
        /* gpu_start - cpu_return, below zero counted as 0; histogram.h */
        " queue_count INTEGER NOT NULL, queue_total_ns INTEGER NOT NULL,"
        " queue_min_ns INTEGER NOT NULL, queue_max_ns INTEGER NOT NULL, queue_histogram BLOB,"
        /* gpu_end - gpu_start */
        " execution_count INTEGER NOT NULL, execution_total_ns INTEGER NOT NULL,"
        " execution_min_ns INTEGER NOT NULL, execution_max_ns INTEGER NOT NULL,"
        " execution_histogram BLOB,"
        " PRIMARY KEY(period, process, kernel, gpu)) WITHOUT ROWID;"

        /* The last period with sums of it: until that goes, so do not the process and the name. */
        "ALTER TABLE process ADD COLUMN last_period INTEGER NOT NULL DEFAULT 0;"
        "ALTER TABLE name ADD COLUMN last_period INTEGER NOT NULL DEFAULT 0;"
        /* The first minute of the boot of whose launches none has been deleted. */
        "ALTER TABLE boot ADD COLUMN rows_from INTEGER NOT NULL DEFAULT 0;"

        "CREATE VIEW minutes AS SELECT"
        " b.boot_id, d.minute * 60000000000 AS minute_ns, d.written_realtime_ns,"
        " p.pid, p.comm, p.cgroup, m.process AS process_key, nullif(m.gpu, -1) AS gpu,"
        " n.text AS kernel, m.launches, m.queue_count, m.queue_total_ns, m.queue_min_ns,"
        " m.queue_max_ns, m.execution_count, m.execution_total_ns, m.execution_min_ns,"
        " m.execution_max_ns"
        " FROM minute m JOIN period d ON d.id = m.period"
        " LEFT JOIN process p ON p.process_key = m.process"
        " LEFT JOIN boot b ON b.id = d.boot LEFT JOIN name n ON n.id = m.kernel;";

/* Who had the GPUs, second by second (shares.h). */
static const char version_4[] =
        "CREATE TABLE share("
        " boot INTEGER NOT NULL,"     /* boot.id */
        " start_ns INTEGER NOT NULL," /* CLOCK_MONOTONIC of the boot */
        " gpu INTEGER NOT NULL,"      /* minor number */
        " mig INTEGER NOT NULL,"      /* GPU instance * 256 + compute instance; 65535 no MIG */
        " process INTEGER NOT NULL,"  /* process.process_key; 0 not known; -1 the engine itself */
        " context INTEGER NOT NULL,"  /* 2^32 + handle of the channel group, or, where that is not
                                          known, the driver's number of the channel; 0 for the
                                          engine */
        " span_ns INTEGER NOT NULL,"
        " active_ns INTEGER NOT NULL,"
        " slices INTEGER NOT NULL," /* of an engine: switches between them */
        " longest_ns INTEGER NOT NULL,"
        " switch_ns INTEGER NOT NULL, idle_ns INTEGER NOT NULL, unknown_ns INTEGER NOT NULL,"
        " lost INTEGER NOT NULL," /* records of switches */
        " PRIMARY KEY(boot, start_ns, gpu, mig, process, context)) WITHOUT ROWID;"

        "CREATE VIEW shares AS SELECT"
        " b.boot_id, s.start_ns, s.span_ns, s.gpu, nullif(s.mig, 65535) AS mig, p.pid, p.comm,"
        " p.cgroup, s.process AS process_key, s.context, s.active_ns, s.slices, s.longest_ns,"
        " s.switch_ns, s.idle_ns, s.unknown_ns, s.lost FROM share s"
        " LEFT JOIN process p ON p.process_key = s.process LEFT JOIN boot b ON b.id = s.boot;";

/*
 * Seconds in which something happened to managed memory, by process. Rows are in the
 * order they were written, so the first are the oldest.
 */
static const char version_5[] =
        "CREATE TABLE managed_second("
        " id INTEGER PRIMARY KEY,"
        " process INTEGER NOT NULL,"
        " end_ns INTEGER NOT NULL," /* of the boot's CLOCK_MONOTONIC */
        " written_realtime_ns INTEGER NOT NULL,"
        " events INTEGER NOT NULL,"
        " dropped INTEGER NOT NULL," /* by the driver: what the counts lack */
        " gpu_faults INTEGER NOT NULL,"
        " cpu_faults INTEGER NOT NULL,"
        " bytes_to_gpu INTEGER NOT NULL,"
        " bytes_to_cpu INTEGER NOT NULL,"
        " bytes_between_gpus INTEGER NOT NULL,"
        " bytes_evicted INTEGER NOT NULL,"
        " evictions INTEGER NOT NULL,"
        " thrashing INTEGER NOT NULL,"
        " throttled INTEGER NOT NULL,"
        " read_duplications INTEGER NOT NULL,"
        " remote_maps INTEGER NOT NULL,"
        " fatal_faults INTEGER NOT NULL);"

        "CREATE VIEW managed AS SELECT p.pid, p.comm, p.cgroup, b.boot_id, m.*"
        " FROM managed_second m LEFT JOIN process p ON p.process_key = m.process"
        " LEFT JOIN boot b ON b.id = p.boot;";

/* How much of the time that a launch waited others had the GPU; launches of before do not say. */
static const char version_6[] = "ALTER TABLE launch ADD COLUMN queue_others INTEGER;" /* ns */
                                "DROP VIEW launches;"
                                "CREATE VIEW launches AS SELECT" LAUNCHES_COLUMNS
                                ", l.queue_others AS queue_others_ns" LAUNCHES_FROM;

static const struct migration {
        const char *sql;
        int compatible; /* the oldest schema version whose program may use the result */
} migrations[] = {
        {version_1, 1},
        {version_2, 2}, /* a writer that does not keep segments would hide its rows */
        {version_3, 3}, /* one that does not keep sums would delete launches without a trace */
        {version_4, 3}, /* a table of its own, which another writer lets grow at most */
        {version_5, 3}, /* one that does not know them leaves the rows where they are */
        {version_6, 3}, /* one that does not know the column leaves it NULL */
};
_Static_assert(ARRAY_SIZE(migrations) == STORE_SCHEMA_VERSION, "one entry per version");

/* First column of a query's first row; SQLITE_DONE when there is none. */
static int query_int(sqlite3 *db, const char *sql, int *ret_value)
{
        sqlite3_stmt *stmt;
        int rc;

        rc = sqlite3_prepare_v2(db, sql, -1, &stmt, NULL);
        if (rc != SQLITE_OK)
                return rc;
        rc = sqlite3_step(stmt);
        if (rc == SQLITE_ROW) {
                *ret_value = sqlite3_column_int(stmt, 0);
                rc = SQLITE_OK;
        }
        sqlite3_finalize(stmt);
        return rc;
}

/* 0 for an empty file; SQLITE_MISMATCH with version 0 for somebody else's. */
static int read_version(sqlite3 *db, int *ret_version, int *ret_compatible)
{
        int application = 0, tables = 0, rc;

        *ret_version = *ret_compatible = 0;
        rc = query_int(db, "SELECT count(*) FROM sqlite_schema", &tables);
        if (rc != SQLITE_OK)
                return rc;
        rc = query_int(db, "PRAGMA application_id", &application);
        if (rc != SQLITE_OK)
                return rc;
        if (tables == 0 && application == 0)
                return SQLITE_OK;
        if (application != STORE_APPLICATION_ID)
                return SQLITE_MISMATCH;
        rc = query_int(db, "SELECT value FROM meta WHERE key = 'schema_version'", ret_version);
        if (rc != SQLITE_OK)
                return rc == SQLITE_DONE ? SQLITE_CORRUPT : rc;
        rc = query_int(db, "SELECT value FROM meta WHERE key = 'schema_compatible'",
                       ret_compatible);
        return rc == SQLITE_DONE ? SQLITE_CORRUPT : rc;
}

static int migrate_to(sqlite3 *db, int version)
{
        const struct migration *m = &migrations[version - 1];
        char *update;
        int rc;

        update = sqlite3_mprintf("PRAGMA application_id = %d;"
                                 "UPDATE meta SET value = %d WHERE key = 'schema_version';"
                                 "UPDATE meta SET value = %d WHERE key = 'schema_compatible';",
                                 STORE_APPLICATION_ID, version, m->compatible);
        if (!update)
                return SQLITE_NOMEM;
        rc = sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL);
        if (rc == SQLITE_OK)
                rc = sqlite3_exec(db, m->sql, NULL, NULL, NULL);
        if (rc == SQLITE_OK)
                rc = sqlite3_exec(db, update, NULL, NULL, NULL);
        if (rc == SQLITE_OK)
                rc = sqlite3_exec(db, "COMMIT", NULL, NULL, NULL);
        if (rc != SQLITE_OK && !sqlite3_get_autocommit(db))
                sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
        sqlite3_free(update);
        return rc;
}

int schema_migrate(sqlite3 *db, int *ret_version)
{
        int version, compatible, rc;

        rc = read_version(db, &version, &compatible);
        *ret_version = version;
        if (rc != SQLITE_OK)
                return rc;
        if (compatible > STORE_SCHEMA_VERSION)
                return SQLITE_MISMATCH;
        while (version < STORE_SCHEMA_VERSION) {
                rc = migrate_to(db, version + 1);
                if (rc != SQLITE_OK)
                        return rc;
                *ret_version = ++version;
        }
        return SQLITE_OK;
}

int schema_check(sqlite3 *db, int *ret_version)
{
        int version, compatible, rc;

        rc = read_version(db, &version, &compatible);
        *ret_version = version;
        if (rc != SQLITE_OK)
                return rc;
        /* An older file is migrated when the daemon opens it; until then its tables are not these.
         */
        if (compatible > STORE_SCHEMA_VERSION || version < STORE_SCHEMA_VERSION)
                return SQLITE_MISMATCH;
        return SQLITE_OK;
}
