/* SPDX-License-Identifier: Apache-2.0 */
/* Names in an archive from a guest, which is not trusted. */
#ifndef HUTCH_TARNAME_H
#define HUTCH_TARNAME_H

/*
 * What a member's name, or a hard link's target, is below the directory that is unpacked to:
 * without "./" before it and "/" after it, "." for the directory itself. NULL: it leads outside, or
 * tries to (absolute, empty, a component ".."). The result lies in name, which may be changed.
 */
char *tarname(char *name);

#endif
