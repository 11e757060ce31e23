/* SPDX-License-Identifier: Apache-2.0 */
/* Power-off in order: every process gets its chance, nothing is waited for without end. */
#include "guest/power.h"

#include <signal.h>
#include <stdbool.h>
#include <sys/reboot.h>
#include <unistd.h>

#include "guest/log.h"
#include "guest/loop.h"

/* After SIGKILL; what is left then is stuck in the kernel. */
#define POWER_KILL_MS 2000u

static enum { UP, TERM_SENT, KILL_SENT } stage;

static void due(struct loop_timer *t);
static struct loop_timer timer = {.due = due, .always = true};

void power_off(void)
{
	sync();
	reboot(RB_POWER_OFF);
	/* No ACPI, or it failed: a VMM started with -no-reboot ends at a reset as well. */
	reboot(RB_AUTOBOOT);
	for (;;)
		pause();
}

static void due(struct loop_timer *t)
{
	if (stage == TERM_SENT && kill(-1, SIGKILL) == 0) {
		stage = KILL_SENT;
		loop_timer_after_ms(t, POWER_KILL_MS);
		return;
	}
	log_info("power off");
	power_off();
}

void power_down(uint32_t grace_ms)
{
	if (stage != UP)
		return;
	log_info("shutting down");
	stage = TERM_SENT;
	if (kill(-1, SIGTERM) < 0)
		grace_ms = 0; /* nobody is there */
	kill(-1, SIGCONT);
	loop_timer_after_ms(&timer, grace_ms);
}

void power_no_children(void)
{
	if (stage != UP)
		loop_timer_after_ms(&timer, 0);
}
