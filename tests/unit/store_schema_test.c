/* SPDX-License-Identifier: Apache-2.0 */

/* Old, newer, foreign, damaged and misplaced files. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>

#include "store/schema.h"
#include "unit/store_helpers.h"

#define LAUNCHES 20000

/*
 * A file as schema version 1 wrote it, frozen here: the tables without segments.
 * Two boots, three processes, 20000 launches.
 */
static const char version_1[] =
        "PRAGMA application_id = 1196447055;"
        "CREATE TABLE meta(key TEXT PRIMARY KEY, value) WITHOUT ROWID;"
        "INSERT INTO meta VALUES('schema_version', 1), ('schema_compatible', 1),"
        " ('next_launch_id', 30001), ('next_process_key', 10);"
        "CREATE TABLE boot(id INTEGER PRIMARY KEY, boot_id TEXT NOT NULL UNIQUE);"
        "CREATE TABLE process(process_key INTEGER PRIMARY KEY, boot INTEGER NOT NULL,"
        " pid INTEGER NOT NULL, start_ticks INTEGER NOT NULL, uid INTEGER NOT NULL,"
        " comm TEXT NOT NULL, exe TEXT, cgroup TEXT, started_realtime_ns INTEGER NOT NULL);"
        "CREATE TABLE name(id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE);"
        "CREATE TABLE launch(launch_id INTEGER PRIMARY KEY, process INTEGER NOT NULL,"
        " kernel INTEGER, cpu_enter_ns INTEGER NOT NULL, cpu_return INTEGER NOT NULL,"
        " gpu_start INTEGER, gpu_end INTEGER, gpu INTEGER, match INTEGER NOT NULL,"
        " end_kind INTEGER NOT NULL, result INTEGER NOT NULL, tid INTEGER NOT NULL,"
        " context INTEGER, stream INTEGER NOT NULL, graph_exec INTEGER, gridid INTEGER,"
        " smid INTEGER, clock_error_ns INTEGER, grid_x INTEGER, grid_y INTEGER, grid_z INTEGER,"
        " block_x INTEGER, block_y INTEGER, block_z INTEGER, shared_bytes INTEGER);"
        "CREATE TABLE ledger(process INTEGER NOT NULL, counter TEXT NOT NULL,"
        " value INTEGER NOT NULL, PRIMARY KEY(process, counter)) WITHOUT ROWID;"
        "CREATE VIEW launches AS SELECT 1;"
        "INSERT INTO boot VALUES(1, 'an-older-boot');"
        "INSERT INTO process VALUES(1, 1, 11, 1, 0, 'one', NULL, NULL, 5),"
        " (2, 2, 22, 2, 0, 'two', '/x', '/y', 6), (3, 2, 33, 3, 0, 'three', NULL, NULL, 7);"
        "INSERT INTO name VALUES(4, 'kernel');"
        "INSERT INTO ledger VALUES(1, 'produced', 5000), (1, 'a_loss_of_the_future', 3);"
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)"
        " INSERT INTO launch SELECT i, CASE WHEN i <= 5000 THEN 1 ELSE 2 + i % 2 END, 4, i * 1000,"
        " 10, 20, 30, NULL, 3, 2, 0, 1, NULL, 0, NULL, i, NULL, NULL,"
        " NULL, NULL, NULL, NULL, NULL, NULL, NULL FROM n;";

static void read_line(const char *path, char *line, size_t size)
{
        FILE *f = fopen(path, "re");

        CHECK(f && fgets(line, (int)size, f));
        fclose(f);
        line[strcspn(line, "\n")] = '\0';
}

static void make_version_1(void)
{
        char boot[64], sql[160];

        new_test_directory();
        sql_run(test_path, version_1);
        read_line("/proc/sys/kernel/random/boot_id", boot, sizeof(boot));
        snprintf(sql, sizeof(sql), "INSERT INTO boot VALUES(2, '%s')", boot);
        sql_run(test_path, sql);
}

static int count_row(void *data, const struct store_launch *l)
{
        CHECK_STR(l->kernel, "kernel");
        ++*(size_t *)data;
        return 0;
}

static size_t count(struct store_filter f)
{
        struct store_reader *r;
        size_t n = 0;

        CHECK_EQ(store_reader_new(test_path, &r), 0);
        CHECK_EQ(store_query_launches(r, &f, 0, count_row, &n), 0);
        store_reader_free(r);
        return n;
}

static void version_1_is_migrated(void)
{
        struct store_filter f = any_launch();
        struct store_reader *r;
        struct store_status status;
        struct opened o;

        make_version_1();
        CHECK_EQ(store_reader_new(test_path, &r), -EPROTONOSUPPORT); /* not yet */
        open_plain(&o);
        CHECK_EQ(o.next_launch_id, 30001);
        CHECK_EQ(o.next_process_key, 10);
        store_get_status(o.store, &status);
        CHECK_EQ(status.launches, LAUNCHES);
        CHECK_EQ(sql_int(test_path, "SELECT value FROM meta WHERE key = 'schema_version'"),
                 STORE_SCHEMA_VERSION);
        CHECK_EQ(sql_int(test_path, "SELECT count(*) FROM segment"),
                 4); /* 1 of a boot, 3 of the other */
        CHECK_EQ(sql_int(test_path, "SELECT sum(launches) FROM segment_process"), LAUNCHES);
        f.since_ns = 15000 * 1000;
        CHECK_EQ(count(f), 5001);
        f.pid = 33;
        CHECK_EQ(count(f), 2500);
        f = any_launch();
        f.until_ns = 5001 * 1000;
        CHECK_EQ(count(f), 0);
        f.all_boots = true;
        CHECK_EQ(count(f), 5000);

        put_process(&o, 10, 44, 0, "four");
        put_many(&o, 30001, 100, 10, name_of(&o, "kernel"));
        flush(&o);
        CHECK_EQ(sql_int(test_path, "SELECT count(*) FROM name"), 1);
        f = any_launch();
        f.pid = 44;
        CHECK_EQ(count(f), 100);
        close_store(&o);
        CHECK_EQ(sql_int(test_path, "SELECT count(*) FROM pragma_integrity_check"), 1);
}

static int see_name(void *data, const struct store_kernel_stats *k)
{
        return k->kernel ? 0 : ++*(int *)data > 1;
}

/*
 * A file that the program of schema version 2 wrote: 300 launches of two
 * processes, a second apart, in another boot.
 */
static void version_2_is_migrated(const char *data)
{
        struct store_filter f = any_launch();
        struct store_reader *r;
        char command[512];
        struct opened o;
        int nameless = 0;
        uint64_t deleted, rows_from_ns;

        new_test_directory();
        snprintf(command, sizeof(command), "cp %s/version_2.db %s", data, test_path);
        CHECK_EQ(system(command), 0);
        CHECK_EQ(sql_int(test_path, "SELECT value FROM meta WHERE key = 'schema_version'"), 2);
        CHECK_EQ(store_reader_new(test_path, &r), -EPROTONOSUPPORT); /* not yet */
        open_with(&o, &(struct store_options){.boot_id = "a-boot-of-version-2"});
        CHECK_EQ(o.next_launch_id, 301);
        CHECK_EQ(o.next_process_key, 3);
        CHECK_EQ(sql_int(test_path, "SELECT value FROM meta WHERE key = 'schema_version'"),
                 STORE_SCHEMA_VERSION);
        CHECK_EQ(sql_int(test_path, "SELECT count(*) FROM launches WHERE kernel = 'gemm' AND comm"
                                    " = 'serve'"),
                 sql_int(test_path, "SELECT count(*) FROM launch WHERE kernel = (SELECT id FROM"
                                    " name WHERE text = 'gemm') AND process = 2"));
        CHECK_EQ(sql_int(test_path, "SELECT value FROM ledger WHERE counter = 'cpu_ring_full'"),
                 20);
        /* The launches are there; sums there are from now on. */
        f.all_boots = true;
        CHECK_EQ(store_reader_new(test_path, &r), 0);
        CHECK_EQ(store_query_kernels(r, &f, 0, see_name, &nameless, &rows_from_ns), 0);
        CHECK_EQ(nameless, 1);
        store_reader_free(r);
        CHECK_EQ(sql_int(test_path, "SELECT count(*) FROM minute"), 0);
        put_process(&o, 3, 103, 0, "new");
        put_many(&o, 301, 100, 3, name_of(&o, "gemm"));
        flush(&o);
        CHECK_EQ(sql_int(test_path, "SELECT sum(launches) FROM minutes WHERE kernel = 'gemm'"),
                 100);
        CHECK_EQ(sql_int(test_path, "SELECT count(*) FROM launch"), 400);
        /* Of what was stored before, nobody knows how much of its wait was others'. */
        CHECK_EQ(sql_int(test_path, "SELECT count(*) FROM launches WHERE queue_others_ns IS NULL"),
                 300);
        CHECK_EQ(sql_int(test_path, "SELECT count(*) FROM launches WHERE queue_others_ns = 2500"),
                 100);
        CHECK_EQ(store_prune(o.store, 0, false, 10 * NSEC_PER_SEC, &deleted), 0);
        CHECK_EQ(deleted, 400);
        close_store(&o);
        CHECK_EQ(sql_int(test_path, "SELECT integrity_check = 'ok' FROM pragma_integrity_check"),
                 1);
}

/* A migration cut short (here: by a name that is taken) leaves the old version, whole. */
static void failed_migration_changes_nothing(void)
{
        struct opened o;

        make_version_1();
        sql_run(test_path, "CREATE TABLE segment_process(x)");
        CHECK_EQ(try_open(&o, &(struct store_options){0}), 0);
        CHECK(o.error[0]);
        close_store(&o);
        CHECK_EQ(sql_int(test_path, "SELECT value FROM meta WHERE key = 'schema_version'"), 1);
        CHECK_EQ(sql_int(test_path, "SELECT count(*) FROM sqlite_schema WHERE name = 'segment'"),
                 0);
        CHECK_EQ(sql_int(test_path, "SELECT count(*) FROM launch"), LAUNCHES);
        sql_run(test_path, "DROP TABLE segment_process");
        open_plain(&o);
        close_store(&o);
}

static void newer_but_compatible_is_used(void)
{
        struct opened o;

        new_test_directory();
        open_plain(&o);
        put_process(&o, 1, 1, 0, "app");
        put_many(&o, 1, 10, 1, name_of(&o, "kernel"));
        close_store(&o);
        sql_run(test_path, "ALTER TABLE segment ADD COLUMN more;"
                           "ALTER TABLE process ADD COLUMN container TEXT;"
                           "CREATE TABLE extra(x); INSERT INTO extra VALUES(1);"
                           "INSERT INTO ledger VALUES(1, 'a_loss_of_the_future', 3);"
                           "UPDATE meta SET value = value + 1 WHERE key = 'schema_version'");
        CHECK_EQ(count(any_launch()), 10);
        open_plain(&o);
        CHECK_EQ(o.next_launch_id, 11);
        put_process(&o, 2, 2, 0, "app");
        put_many(&o, 11, 10, 2, name_of(&o, "kernel"));
        flush(&o);
        CHECK_EQ(count(any_launch()), 20);
        close_store(&o);
        CHECK_EQ(sql_int(test_path, "SELECT value FROM meta WHERE key = 'schema_version'"),
                 STORE_SCHEMA_VERSION + 1);
}

static void newer_and_incompatible_is_refused(void)
{
        struct store_reader *r;
        struct opened o;

        new_test_directory();
        open_plain(&o);
        close_store(&o);
        sql_run(test_path, "UPDATE meta SET value = 99");
        CHECK_EQ(try_open(&o, &(struct store_options){0}), -EPROTONOSUPPORT);
        CHECK(strstr(o.error, "newer gpuobsd"));
        close_store(&o);
        CHECK_EQ(store_reader_new(test_path, &r), -EPROTONOSUPPORT);
}

static void foreign_files_are_left_alone(void)
{
        struct store_reader *r;
        struct opened o;

        new_test_directory();
        sql_run(test_path, "CREATE TABLE photos(x); INSERT INTO photos VALUES(1)");
        CHECK_EQ(try_open(&o, &(struct store_options){0}), -EMEDIUMTYPE);
        CHECK(strstr(o.error, "another program"));
        close_store(&o);
        CHECK_EQ(store_reader_new(test_path, &r), -EPROTONOSUPPORT);
        CHECK_EQ(sql_int(test_path, "SELECT count(*) FROM sqlite_schema"), 1);
        CHECK_EQ(sql_int(test_path, "SELECT count(*) FROM photos"), 1);
        CHECK_EQ(sql_int(test_path, "SELECT journal_mode = 'delete' FROM pragma_journal_mode"), 1);
}

static void impossible_paths_are_said(void)
{
        char path[160];
        struct opened o;

        new_test_directory();
        snprintf(path, sizeof(path), "%s/not/there.db", test_directory);
        CHECK_EQ(try_open(&o, &(struct store_options){.path = path}), -ENOENT);
        CHECK(strstr(o.error, "directory"));
        close_store(&o);
        sql_run(test_path, "CREATE TABLE t(x)");
        snprintf(path, sizeof(path), "%s/launches.db/in-a-file.db", test_directory);
        CHECK_EQ(try_open(&o, &(struct store_options){.path = path}), -ENOTDIR);
        close_store(&o);
        CHECK_EQ(try_open(&o, &(struct store_options){.path = test_directory}), -EISDIR);
        close_store(&o);
        CHECK_EQ(try_open(&o, &(struct store_options){.path = ""}), -EINVAL);
        CHECK(o.error[0]);
        close_store(&o);
}

/* ---- damage ---- */

/* Databases moved aside, their logs not counted. */
static int count_moved(void)
{
        DIR *d = opendir(test_directory);
        struct dirent *e;
        int n = 0;

        CHECK(d);
        while ((e = readdir(d)))
                n += strstr(e->d_name, ".corrupt-") && !strstr(e->d_name, "-wal");
        closedir(d);
        return n;
}

static void write_garbage(off_t offset, size_t size)
{
        char *garbage = malloc(size);
        int fd = open(test_path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

        CHECK(fd >= 0 && garbage);
        memset(garbage, 0xa5, size);
        CHECK_EQ(pwrite(fd, garbage, size, offset), size);
        close(fd);
        free(garbage);
}

static void garbage_is_moved_aside(void)
{
        struct store_status status;
        struct store_reader *r;
        struct opened o;

        new_test_directory();
        write_garbage(0, 100000);
        CHECK_EQ(store_reader_new(test_path, &r), -EBADMSG);
        CHECK_EQ(try_open(&o, &(struct store_options){0}), 0);
        CHECK(strstr(o.error, "damaged"));
        CHECK_EQ(count_moved(), 1);
        store_get_status(o.store, &status);
        CHECK(!status.failing);
        CHECK(strstr(status.error, "damaged"));
        put_process(&o, 1, 1, 0, "app");
        put_many(&o, 1, 10, 1, name_of(&o, "kernel"));
        flush(&o);
        CHECK_EQ(count(any_launch()), 10);
        store_get_status(o.store, &status);
        CHECK(!status.failing);
        CHECK(strstr(status.error, "moved to"));
        close_store(&o);
}

/* The pages of the launches are overwritten under the running store. */
static void damage_while_running_loses_nothing_new(void)
{
        struct store_options options = {.commit_interval_ms = 20};
        struct store_status status;
        struct store_reader *r;
        size_t rows = 0;
        struct store_filter f = any_launch();
        struct opened o;

        new_test_directory();
        open_with(&o, &options);
        put_process(&o, 1, 1, 0, "app");
        put_many(&o, 1, 200000, 1, name_of(&o, "kernel"));
        close_store(&o);
        open_with(&o, &options); /* nothing cached */
        CHECK_EQ(store_reader_new(test_path, &r), 0);
        put_process(&o, 2, 2, 0, "app");
        flush(&o);
        write_garbage(4096, 4096 * 400);
        put_many(&o, 200001, 50000, 2, name_of(&o, "kernel"));
        flush(&o);
        CHECK_EQ(count_moved(), 1);
        CHECK_EQ(collect(&o, 2).stored, 50000);
        store_get_status(o.store, &status);
        CHECK(!status.failing);
        CHECK_EQ(status.launches, 50000);
        /* A reader that was open before follows to the new file. */
        f.pid = 2;
        f.limit = 100;
        CHECK_EQ(store_query_launches(r, &f, 0, count_row, &rows), 0);
        CHECK_EQ(rows, 100);
        store_reader_free(r);
        close_store(&o);
        CHECK_EQ(sql_int(test_path, "SELECT count(*) FROM process"), 1);
        CHECK_EQ(sql_int(test_path, "SELECT integrity_check = 'ok' FROM pragma_integrity_check"),
                 1);
}

static void readers_say_when_there_is_nothing(void)
{
        struct store_reader *r;

        new_test_directory();
        CHECK_EQ(store_reader_new(test_path, &r), -ENOENT);
}

int main(int argc, char **argv)
{
        CHECK_EQ(argc, 2);
        TEST(version_1_is_migrated);
        version_2_is_migrated(argv[1]);
        printf("ok version_2_is_migrated\n");
        TEST(failed_migration_changes_nothing);
        TEST(newer_but_compatible_is_used);
        TEST(newer_and_incompatible_is_refused);
        TEST(foreign_files_are_left_alone);
        TEST(impossible_paths_are_said);
        TEST(garbage_is_moved_aside);
        TEST(damage_while_running_loses_nothing_new);
        TEST(readers_say_when_there_is_nothing);
        return 0;
}
