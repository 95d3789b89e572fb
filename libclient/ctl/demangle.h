/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A kernel's name as its author wrote it, through libstdc++'s demangler when that
 * is installed; else, and for names that are not mangled, the name itself.
 * Remembered: the text lives until the program ends. NULL gives NULL.
 */
const char *demangle(const char *name);
