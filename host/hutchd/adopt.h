/* SPDX-License-Identifier: Apache-2.0 */
/* What an earlier broker left in <state>/vm: taken over, or ended and removed. */
#ifndef HUTCH_HOST_ADOPT_H
#define HUTCH_HOST_ADOPT_H

#include "host/hutchd/broker.h"

/*
 * Go through all run directories, before the socket listens. Afterwards every VM that lives is in the list, running, and
 * nothing is left of the others.
 */
void adopt_all(struct broker *b);

#endif
