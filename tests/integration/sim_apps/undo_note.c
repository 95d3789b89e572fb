/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A note in a journal of what is to be undone, as a daemon leaves it that is killed:
 *      undo_note JOURNAL PID DESCRIPTOR MICROSECONDS [FILE]
 * FILE: of undo_driver.c's files the one that this is, from 0 on. The time slice of a channel group
 * that process PID reaches through DESCRIPTOR was so long.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver/undo_journal.h"
#include "util/proc_stat.h"

int main(int argc, char **argv)
{
        struct undo_entry entry = {.kind = UNDO_TIME_SLICE, .owner = "undo_note"};
        struct undo_journal *journal;
        uint8_t boot[16];
        int r;

        if (argc != 5 && argc != 6)
                return 2;
        entry.pid = atoi(argv[2]);
        entry.values[0] = 0xc1d00003 + (argc == 6 ? strtoull(argv[5], NULL, 10) : 0);
        entry.values[1] = 0x5c000010;
        entry.values[2] = strtoull(argv[4], NULL, 10);
        entry.values[3] = strtoull(argv[3], NULL, 10);
        r = process_start_ticks(entry.pid, &entry.start_ticks);
        if (r == 0)
                r = undo_boot_id(boot);
        if (r == 0)
                r = undo_journal_open(&undo_io_default, argv[1], boot, &journal);
        if (r == 0) {
                r = undo_journal_add(journal, &entry, &entry.id);
                undo_journal_free(journal);
        }
        if (r < 0)
                fprintf(stderr, "undo_note: %s: %s\n", argv[1], strerror(-r));
        return r < 0;
}
