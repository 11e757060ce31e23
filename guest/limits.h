/* SPDX-License-Identifier: Apache-2.0 */
/* Every bound of the agent in one table, each with what happens when it is reached. */
#ifndef HUTCH_GUEST_LIMITS_H
#define HUTCH_GUEST_LIMITS_H

/* Connections; one more is closed at once. */
#define AGENT_MAX_CONNS 1024
/* Execs whose process lives or whose output is still read; one more is ERROR busy. */
#define AGENT_MAX_EXECS 512
/* Records of ended execs; the oldest is forgotten. */
#define AGENT_MAX_RECORDS 256
/* A record is forgotten after this; a collected one, when places are short, after the second. */
#define AGENT_RECORD_MS	   60000
#define AGENT_COLLECTED_MS 5000
/* An exec whose owner's connection was lost is ended after this, unless a new owner attached. */
#define AGENT_ORPHAN_MS 60000

/* Output kept per stream: first allocation, kept for late readers, and the most that back-pressure allows. */
#define RING_MIN     512u
#define RING_HISTORY (64u << 10)
#define RING_MAX     (256u << 10)
/*
 * All rings together. Beyond RING_PRESSURE ended execs lose their output, oldest first. At RING_TOTAL no ring
 * grows beyond RING_FLOOR: history is shorter, and an owner that does not read stalls its program sooner.
 */
#define RING_PRESSURE (4u << 20)
#define RING_TOTAL    (8u << 20)
#define RING_FLOOR    (4u << 10)

/* Payload of one STDOUT or STDERR frame; also what is buffered for a connection that does not read. */
#define AGENT_DATA_FRAME (32u << 10)
/* Frames up to this are copied into the connection's buffer, so that output and result leave in one write. */
#define AGENT_COPY_FRAME (4u << 10)
/* Unsent answers of one connection; at the bound the connection is dropped. */
#define AGENT_OUT_MAX (2u << 20)
/* Bytes read from a connection at once; what input waits for its program is at most this. */
#define AGENT_READ_CHUNK (64u << 10)
/* Half-received CALLs above AGENT_READ_CHUNK, all connections together; one more is ERROR busy, and closed. */
#define AGENT_CALL_TOTAL (4u << 20)
/* A connection that ends with an error has this long to read it. */
#define AGENT_LINGER_MS 1000

/*
 * The output of a command without input is first looked at when the command ends, or after HOLD_STARTS times
 * what its start took, within these bounds: most commands are that short, and then cost no wake-up but their end.
 */
#define AGENT_HOLD_STARTS 4
#define AGENT_HOLD_MIN_MS 2
#define AGENT_HOLD_MAX_MS 12
/* Pipes that background processes still hold after their exec ended; at the bound the oldest is closed. */
#define AGENT_MAX_LEFTOVERS 512
/* Each of them is read once per this, at most a pipe's worth, and discarded. */
#define AGENT_LEFTOVER_MS 100
/* A killed process tree that is not gone after this (uninterruptible sleep) is no longer waited for. */
#define AGENT_KILL_WAIT_MS 10000

/* Memory that commands never get, as PID 1: the larger of this and a 32nd of what is available at boot. */
#define AGENT_MEMORY_RESERVE (6u << 20)
/* Cgroups kept for the next execs; more are removed when they are empty. */
#define AGENT_CGROUP_POOL 64

/* Bytes of argv kept per exec for exec.list; the rest is left out. */
#define AGENT_ARGV_KEPT 384
/* A line of /etc/passwd, /etc/group or the list of modules beyond this is skipped. */
#define AGENT_LINE 1024
/* Supplementary groups; the rest is left out. */
#define AGENT_MAX_GROUPS 64

/* Processes that serve fs.*; one more call is ERROR busy. */
#define AGENT_MAX_WORKERS 64
/* A free one is kept this long; the last of them longer. */
#define AGENT_WORKER_IDLE_MS 5000
#define AGENT_WORKER_KEEP_MS 60000
/* One whose connection ended is killed after this. */
#define AGENT_WORKER_KILL_MS 2000
/* Params and early input that go to a kept one; for more a new one is forked. */
#define AGENT_WORKER_JOB (96u << 10)

/* Directories one in the other that a worker walks; deeper ones are ELOOP. */
#define AGENT_TREE_DEPTH 1024
/* What a worker keeps of files with several names; more count as single files. */
#define AGENT_LINKS_BYTES (32u << 20)

/* Boot failures kept for agent.info. */
#define AGENT_MAX_FAILURES 32
/* Redial of the host after the control connection was lost: first and longest pause. */
#define AGENT_DIAL_MIN_MS 5
#define AGENT_DIAL_MAX_MS 30000

/* Descriptors: connections, three pipes and two cgroup files per exec, leftovers, and a few. */
#define AGENT_NOFILE 8192

#endif
