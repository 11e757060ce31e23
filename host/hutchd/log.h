/* SPDX-License-Identifier: Apache-2.0 */
/* Log lines of the broker and the launcher, on stderr: level, object, text. errno is preserved. */
#ifndef HUTCH_HOST_LOG_H
#define HUTCH_HOST_LOG_H

enum log_level { LOG_LEVEL_DEBUG, LOG_LEVEL_INFO, LOG_LEVEL_WARN, LOG_LEVEL_ERROR };

/* json: one JSON object a line instead of text. who: "hutchd", "launcher". */
void log_setup(const char *who, enum log_level least, int json);

/* For a process that was forked with another's settings. */
void log_set_who(const char *who);

/* object names what the line is about: "vm 3f2a...", "client 12 (uid 1000)", "broker". */
void log_at(enum log_level level, const char *object, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* The same with ": strerror(errno)" behind it. */
void log_errno(enum log_level level, const char *object, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

#define log_debug(object, ...) log_at(LOG_LEVEL_DEBUG, object, __VA_ARGS__)
#define log_info(object, ...)  log_at(LOG_LEVEL_INFO, object, __VA_ARGS__)
#define log_warn(object, ...)  log_at(LOG_LEVEL_WARN, object, __VA_ARGS__)
#define log_error(object, ...) log_at(LOG_LEVEL_ERROR, object, __VA_ARGS__)

#endif
