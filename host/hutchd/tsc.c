/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host's TSC frequency, from two readings against CLOCK_MONOTONIC_RAW, which no NTP daemon
 * bends.
 */
#include "host/hutchd/tsc.h"

#include <errno.h>
#include <stdbool.h>
#include <time.h>

#define TSC_BASELINE_NS 200000000ll
#define TSC_QUICK_NS	10000000ll
#define TSC_TRIES	16

#if defined(__x86_64__)
#include <x86intrin.h>
#define HAVE_TSC 1
static uint64_t read_tsc(void)
{
	_mm_lfence();
	return __rdtsc();
}
#else
#define HAVE_TSC 0
static uint64_t read_tsc(void)
{
	return 0;
}
#endif

struct reading {
	int64_t ns;
	uint64_t tsc;
};

static struct reading first;
static uint32_t khz, quick_khz;

static int64_t raw_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC_RAW, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/*
 * The tightest of several attempts: being scheduled away between clock and TSC would be an error.
 */
static struct reading take_reading(void)
{
	struct reading best = {0, 0};
	int64_t width = INT64_MAX;

	for (int i = 0; i < TSC_TRIES; i++) {
		int64_t before = raw_ns();
		uint64_t tsc = read_tsc();
		int64_t after = raw_ns();

		if (after - before < width) {
			width = after - before;
			best = (struct reading){before + width / 2, tsc};
		}
	}
	return best;
}

void tsc_start(void)
{
	if (HAVE_TSC)
		first = take_reading();
}

/* From a second reading at least baseline ns after the first; the rest of that time is waited for. */
static uint32_t measure(int64_t baseline)
{
	struct reading second;
	int64_t left;

	if (first.ns == 0)
		tsc_start();
	left = first.ns + baseline - raw_ns();
	if (left > 0) {
		struct timespec t = {0, left};

		while (nanosleep(&t, &t) < 0 && errno == EINTR)
			;
	}
	second = take_reading();
	return (uint32_t)((double)(second.tsc - first.tsc) * 1e6 / (double)(second.ns - first.ns) +
			  0.5);
}

uint32_t tsc_khz(void)
{
	if (HAVE_TSC && khz == 0)
		khz = measure(TSC_BASELINE_NS);
	return khz;
}

uint32_t tsc_khz_quick(void)
{
	if (HAVE_TSC && khz == 0 && quick_khz == 0)
		quick_khz = measure(TSC_QUICK_NS);
	return khz ? khz : quick_khz;
}
