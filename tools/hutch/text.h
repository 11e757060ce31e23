/* SPDX-License-Identifier: Apache-2.0 */
/* Texts from others, made fit for a terminal; tables. */
#ifndef HUTCH_TEXT_H
#define HUTCH_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Bytes of the valid UTF-8 character at s, n bytes at hand; 0: there is none. */
size_t utf8_char(const char *s, size_t n);
bool utf8_valid(const char *s, size_t n);

/*
 * Write s so that a terminal takes it for text: control characters (C0, DEL, C1) and bytes that are
 * not UTF-8 become \xNN. lines: newlines and tabs pass.
 */
void text_put(FILE *f, const char *s, size_t n, bool lines);

/* "59m 58s" */
void text_duration(char *out, size_t size, uint64_t ms);
/* "2031-05-06 07:08:09 UTC" */
void text_date(char *out, size_t size, uint64_t unix_ms);
/* "12.3 MiB" */
void text_bytes(char *out, size_t size, uint64_t bytes);

/* A table that is as wide as its cells. The first row is the header. */
#define TABLE_COLUMNS 8
struct table {
	unsigned columns;
	size_t count, room;
	char **cells;
	bool failed;
};
void table_cell(struct table *t, const char *text); /* row by row; copied and sanitised */
void table_number(struct table *t, uint64_t n);
/* Print and free it. -1: memory was short. */
int table_print(struct table *t);
void table_free(struct table *t);

#endif
