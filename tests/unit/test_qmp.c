/* SPDX-License-Identifier: Apache-2.0 */
/* QMP: lines, messages, and a client against a server that says what the test wants. */
#include "host/hutchd/qmp.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "host/hutchd/fdutil.h"
#include "host/hutchd/linebuf.h"
#include "host/hutchd/qmp_parse.h"
#include "tests/unit/vmm_rig.h"

#define GREETING                                                                           \
	"{\"QMP\": {\"version\": {\"qemu\": {\"micro\": 22, \"minor\": 2, \"major\": 7}, " \
	"\"package\": \"Debian\"}, \"capabilities\": [\"oob\"]}}\r\n"

/* ---- lines ---- */

START_TEST(lines_in_pieces)
{
	struct linebuf b = {.max = 100};
	char *line;
	size_t len;

	ck_assert_int_eq(linebuf_add(&b, "on", 2), 0);
	ck_assert(!linebuf_next(&b, &line, &len));
	ck_assert_int_eq(linebuf_add(&b, "e\r\n\ntwo\nthr", 11), 0);
	ck_assert(linebuf_next(&b, &line, &len));
	ck_assert_str_eq(line, "one");
	ck_assert(linebuf_next(&b, &line, &len));
	ck_assert_uint_eq(len, 0);
	ck_assert(linebuf_next(&b, &line, &len));
	ck_assert_str_eq(line, "two");
	ck_assert(!linebuf_next(&b, &line, &len));
	ck_assert_int_eq(linebuf_add(&b, "ee\n", 3), 0);
	ck_assert(linebuf_next(&b, &line, &len));
	ck_assert_str_eq(line, "three");
	ck_assert(!linebuf_next(&b, &line, &len));
	ck_assert_ptr_null(b.data);
}
END_TEST

START_TEST(a_line_has_a_limit)
{
	struct linebuf b = {.max = 5000};
	char text[5001];
	char *line;
	size_t len;

	memset(text, 'x', sizeof(text));
	ck_assert_int_eq(linebuf_add(&b, text, 5000), 0);
	ck_assert_int_eq(linebuf_add(&b, "x", 1), -1);
	ck_assert_int_eq(errno, EMSGSIZE);
	ck_assert_int_eq(linebuf_add(&b, "\n", 1), 0);
	ck_assert(linebuf_next(&b, &line, &len));
	ck_assert_uint_eq(len, 5000);
	ck_assert_int_eq(linebuf_add(&b, text, 5001), -1);
	linebuf_free(&b);
}
END_TEST

/* ---- messages ---- */

static int parse(struct qmp_message *m, const char *text)
{
	return qmp_parse(m, text, strlen(text));
}

START_TEST(messages)
{
	struct qmp_message m;

	ck_assert_int_eq(parse(&m, GREETING), 0);
	ck_assert_int_eq(m.kind, QMP_GREETING);
	ck_assert_str_eq(m.version, "7.2.22");
	ck_assert_int_eq(parse(&m, "{\"return\": {\"a\": 1}, \"id\": 5}"), 0);
	ck_assert_int_eq(m.kind, QMP_RETURN);
	ck_assert_uint_eq(m.id, 5);
	ck_assert_int_eq(json_integer_value(json_object_get(m.body, "a")), 1);
	qmp_message_clear(&m);
	ck_assert_int_eq(parse(&m, "{\"return\": []}"), 0);
	ck_assert_uint_eq(m.id, 0);
	qmp_message_clear(&m);
	ck_assert_int_eq(parse(&m,
			       "{\"id\":7,\"error\":{\"class\":\"GenericError\",\"desc\":\"no\"}}"),
			 0);
	ck_assert_int_eq(m.kind, QMP_ERROR);
	ck_assert_str_eq(m.error, "GenericError: no");
	ck_assert_int_eq(parse(&m, "{\"timestamp\":{\"seconds\":1,\"microseconds\":2},"
				   "\"event\":\"SHUTDOWN\",\"data\":{\"reason\":\"guest-reset\"}}"),
			 0);
	ck_assert_int_eq(m.kind, QMP_EVENT);
	ck_assert_str_eq(m.event, "SHUTDOWN");
	qmp_message_clear(&m);
	ck_assert_int_eq(parse(&m, "{\"event\":\"STOP\"}"), 0);
	ck_assert_ptr_null(m.body);
}
END_TEST

static const char *const no_messages[] = {
	"",
	"x",
	"[]",
	"{}",
	"{\"return\":{},\"id\":\"1\"}",
	"{\"return\":{},\"id\":0}",
	"{\"return\":{},\"id\":-1}",
	"{\"return\":{},\"id\":1.0}",
	"{\"return\":{},\"return\":{}}",
	"{\"error\":{}}",
	"{\"error\":{\"class\":\"x\"}}",
	"{\"error\":{\"class\":1,\"desc\":2}}",
	"{\"error\":\"x\"}",
	"{\"event\":1}",
	"{\"event\":\"0123456789012345678901234567890123456789012345678901234567890123456789\"}",
	"{\"event\":\"X\",\"data\":[]}",
	"{\"QMP\":{}}",
	"{\"QMP\":{\"version\":{\"qemu\":{\"major\":\"7\",\"minor\":2,\"micro\":1}}}}",
	"{\"return\":{}} {}",
};
#define NO_MESSAGES ((int)(sizeof(no_messages) / sizeof(no_messages[0])))

START_TEST(what_is_no_message)
{
	struct qmp_message m;

	ck_assert_int_eq(parse(&m, no_messages[_i]), -1);
	ck_assert_ptr_null(m.body);
}
END_TEST

START_TEST(deep_nesting_is_no_danger)
{
	char *text = malloc(QMP_MAX_LINE);
	struct qmp_message m;

	memset(text, '[', QMP_MAX_LINE);
	memcpy(text, "{\"return\":", 10);
	ck_assert_int_eq(qmp_parse(&m, text, QMP_MAX_LINE), -1);
	free(text);
}
END_TEST

/* ---- the client ---- */

static struct event_base *base;
static struct qmp *client;
static int listener, server = -1;

static struct {
	bool greeted, lost, broken, done;
	char version[64], why[128], event[64], error[128];
	int events, answers;
	bool free_on_event, free_on_greeting;
} seen;

static void on_greeting(void *arg, const char *version)
{
	ck_assert_ptr_eq(arg, &seen);
	seen.greeted = true;
	snprintf(seen.version, sizeof(seen.version), "%s", version);
	if (seen.free_on_greeting) {
		qmp_free(client);
		client = NULL;
	}
}

static void on_event(void *arg, const char *name, const json_t *data)
{
	(void)arg;
	(void)data;
	seen.events++;
	snprintf(seen.event, sizeof(seen.event), "%s", name);
	if (seen.free_on_event) {
		qmp_free(client);
		client = NULL;
		seen.done = true;
	}
}

static void on_lost(void *arg, const char *why, bool broken)
{
	(void)arg;
	seen.lost = true;
	seen.broken = broken;
	snprintf(seen.why, sizeof(seen.why), "%s", why);
}

static const struct qmp_callbacks callbacks = {on_greeting, on_event, on_lost};

static void on_done(void *arg, const json_t *value, const char *error)
{
	(void)value;
	ck_assert_ptr_eq(arg, &seen);
	seen.answers++;
	seen.done = true;
	snprintf(seen.error, sizeof(seen.error), "%s", value ? "" : error);
}

static void make(void)
{
	rig_make();
	memset(&seen, 0, sizeof(seen));
	base = event_base_new();
	listener = unix_listen(rig_dir_fd, "qmp", SOCK_STREAM, 4);
	ck_assert_int_ge(listener, 0);
	client = qmp_connect(base, rig_dir_fd, "qmp", &callbacks, &seen);
	ck_assert_ptr_nonnull(client);
	server = accept(listener, NULL, NULL);
	ck_assert_int_ge(server, 0);
}

static void remove_all(void)
{
	qmp_free(client);
	client = NULL;
	fd_close(&server);
	fd_close(&listener);
	event_base_free(base);
	rig_remove();
}

static void say(const char *text)
{
	ck_assert_int_eq(send(server, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
}

/* What the server is asked next. */
static const char *asked(void)
{
	static char text[4096];
	ssize_t n = read(server, text, sizeof(text) - 1);

	ck_assert_int_gt(n, 0);
	text[n] = '\0';
	return text;
}

static int command(const char *name, uint32_t timeout_ms)
{
	return qmp_command(client, name, NULL, timeout_ms, on_done, &seen);
}

START_TEST(greeting_command_and_event)
{
	say(GREETING);
	rig_run(base, &seen.greeted);
	ck_assert_str_eq(seen.version, "7.2.22");
	ck_assert_int_eq(qmp_command(client, "x", json_pack("{s:i}", "a", 1), 5000, on_done, &seen),
			 0);
	ck_assert_int_eq(command("y", 5000), 0);
	ck_assert_str_eq(asked(), "{\"execute\":\"x\",\"arguments\":{\"a\":1},\"id\":1}\n");
	say("{\"event\":\"STOP\"}\r\n{\"ret");
	say("urn\":{},\"id\":1}\r\n");
	rig_run(base, &seen.done);
	ck_assert_str_eq(seen.error, "");
	ck_assert_str_eq(seen.event, "STOP");
	ck_assert_str_eq(asked(), "{\"execute\":\"y\",\"id\":2}\n");
	seen.done = false;
	say("{\"error\":{\"class\":\"CommandNotFound\",\"desc\":\"no y\"},\"id\":2}\r\n");
	rig_run(base, &seen.done);
	ck_assert_str_eq(seen.error, "CommandNotFound: no y");
	ck_assert(!seen.lost);
}
END_TEST

START_TEST(commands_end_with_the_connection)
{
	ck_assert_int_eq(command("x", 5000), 0);
	ck_assert_int_eq(command("y", 5000), 0);
	fd_close(&server);
	rig_run(base, &seen.lost);
	ck_assert(!seen.broken);
	ck_assert_int_eq(seen.answers, 2);
	ck_assert_str_eq(seen.error, "it closed its QMP socket");
	ck_assert_int_eq(command("z", 5000), -1);
	ck_assert_int_eq(errno, ENOTCONN);
}
END_TEST

START_TEST(the_queue_has_an_end)
{
	for (unsigned i = 0; i < QMP_MAX_QUEUE; i++)
		ck_assert_int_eq(command("x", 5000), 0);
	ck_assert_int_eq(command("x", 5000), -1);
	ck_assert_int_eq(errno, EBUSY);
	ck_assert_int_eq(qmp_command(client, "x", json_object(), 5000, on_done, &seen), -1);
}
END_TEST

START_TEST(a_command_that_is_not_answered)
{
	ck_assert_int_eq(command("x", 30), 0);
	say("{\"event\":\"STOP\"}\n{\"return\":");
	rig_run(base, &seen.lost);
	ck_assert(!seen.broken);
	ck_assert_str_eq(seen.error, "it did not answer a command in time");
}
END_TEST

static const char *const hostile[] = {
	"garbage\n",
	"{\"return\":{},\"id\":2}\n",
	"{\"return\":{}}\n",
	"{\"return\":{},\"id\":1}\n{\"return\":{},\"id\":1}\n",
	"{\"error\":{\"class\":\"a\",\"desc\":\"b\"}}\n",
	"\n",
};
#define HOSTILE ((int)(sizeof(hostile) / sizeof(hostile[0])))

START_TEST(a_server_that_breaks_the_protocol)
{
	ck_assert_int_eq(command("x", 5000), 0);
	say(hostile[_i]);
	rig_run(base, &seen.lost);
	ck_assert(seen.broken);
	ck_assert_int_eq(seen.answers, 1);
}
END_TEST

static void *write_much(void *arg)
{
	const char *line = arg;

	for (int i = 0; i < 200000; i++)
		if (send(server, line, strlen(line), MSG_NOSIGNAL) < 0)
			break;
	return NULL;
}

static void flood(const char *line)
{
	pid_t pid = fork();

	if (pid == 0) {
		write_much((void *)(uintptr_t)line);
		_exit(0);
	}
	fd_close(&server);
	rig_run(base, &seen.lost);
	ck_assert(seen.broken);
}

START_TEST(a_line_without_an_end)
{
	flood("xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx");
	ck_assert_str_eq(seen.why, "it sent a line of more than 64 KiB");
}
END_TEST

START_TEST(a_flood_of_events)
{
	flood("{\"event\":\"X\",\"data\":{\"a\":\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"}}\n");
	ck_assert_str_eq(seen.why, "it sends more than a QMP server would");
}
END_TEST

START_TEST(freed_from_a_callback)
{
	seen.free_on_event = true;
	ck_assert_int_eq(command("x", 5000), 0);
	say("{\"event\":\"A\"}\n{\"event\":\"B\"}\n{\"return\":{},\"id\":1}\n");
	rig_run(base, &seen.done);
	ck_assert_int_eq(seen.events, 1);
	ck_assert_int_eq(seen.answers, 0);
}
END_TEST

START_TEST(freed_while_drained)
{
	seen.free_on_event = true;
	say("{\"event\":\"A\"}\n{\"event\":\"B\"}\n");
	fd_close(&server);
	qmp_drain(client);
	ck_assert_int_eq(seen.events, 1);
	ck_assert(!seen.lost);
}
END_TEST

START_TEST(last_words)
{
	say(GREETING "{\"event\":\"SHUTDOWN\",\"data\":{\"reason\":\"guest-shutdown\"}}\n");
	fd_close(&server);
	qmp_drain(client);
	ck_assert_str_eq(seen.event, "SHUTDOWN");
	ck_assert(seen.lost && !seen.broken);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("qmp");
	TCase *text = tcase_create("text"), *tc = tcase_create("client");
	SRunner *sr;
	int failed;

	tcase_add_test(text, lines_in_pieces);
	tcase_add_test(text, a_line_has_a_limit);
	tcase_add_test(text, messages);
	tcase_add_loop_test(text, what_is_no_message, 0, NO_MESSAGES);
	tcase_add_test(text, deep_nesting_is_no_danger);
	suite_add_tcase(s, text);
	tcase_add_checked_fixture(tc, make, remove_all);
	tcase_set_timeout(tc, 30);
	tcase_add_test(tc, greeting_command_and_event);
	tcase_add_test(tc, commands_end_with_the_connection);
	tcase_add_test(tc, the_queue_has_an_end);
	tcase_add_test(tc, a_command_that_is_not_answered);
	tcase_add_loop_test(tc, a_server_that_breaks_the_protocol, 0, HOSTILE);
	tcase_add_test(tc, a_line_without_an_end);
	tcase_add_test(tc, a_flood_of_events);
	tcase_add_test(tc, freed_from_a_callback);
	tcase_add_test(tc, freed_while_drained);
	tcase_add_test(tc, last_words);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
