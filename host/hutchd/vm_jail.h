/* SPDX-License-Identifier: Apache-2.0 */
/* A new VM's part in isolation: a uid for its VMM, and what of a jail it will have. */
#ifndef HUTCH_HOST_VM_JAIL_H
#define HUTCH_HOST_VM_JAIL_H

#include "host/hutchd/vm.h"

/* r->id is set. Its uid is one that no living VM of this broker has; 0 where there are none to give. */
void vm_jail_fill(struct vm_record *r, const struct broker *b);

#endif
