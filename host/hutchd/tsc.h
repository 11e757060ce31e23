/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host's TSC frequency. A TCG guest sees the host's TSC, and a microvm has no timer that Linux
 * could calibrate it against reliably: on a busy host the guest then marks it unstable and never
 * gets a timer tick. The kernel parameter tsc_early_khz tells it instead.
 */
#ifndef HUTCH_HOST_TSC_H
#define HUTCH_HOST_TSC_H

#include <stdint.h>

/* Take the first of two readings. */
void tsc_start(void);
/*
 * kHz, from a second reading at least 200 ms after the first (the rest of that time is waited for);
 * the same value ever after. 0 where there is no TSC.
 */
uint32_t tsc_khz(void);
/*
 * The same from a second reading at least 10 ms after the first: good to some 10 ppm, and at once
 * in a process that is not brand new. Not remembered by tsc_khz.
 */
uint32_t tsc_khz_quick(void);

#endif
