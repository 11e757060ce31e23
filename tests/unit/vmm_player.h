/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A test program that is also its own VMM: started by the launcher with "--id" as its first
 * argument, it plays the part that HUTCH_PLAY in its environment names, or the file "play" in its run
 * directory.
 */
#ifndef HUTCH_TEST_VMM_PLAYER_H
#define HUTCH_TEST_VMM_PLAYER_H

/* Call it first in main. Returns only when this is not a VMM. */
void vmm_play(int argc, char **argv);

#endif
