/* SPDX-License-Identifier: Apache-2.0 */
/* The sending half of a connection, between conn.c and conn_send.c. */
#ifndef HUTCH_GUEST_CONN_SEND_H
#define HUTCH_GUEST_CONN_SEND_H

#include "guest/conn.h"

/* The end-of-pass task's sending: pump, write what there is. May end in conn_lost. */
bool conn_flush(struct conn *c);
/* Watch for what the state needs. */
void conn_update_watch(struct conn *c);
/* All answers were sent. */
bool conn_sent_all(const struct conn *c);

#endif
