/* SPDX-License-Identifier: Apache-2.0 */
/* One thread for what would block the loop. */
#include "host/hutchd/worker.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "host/hutchd/fdutil.h"

STAILQ_HEAD(job_list, worker_job);

struct worker {
	struct event ended;
	int wake_fd; /* eventfd: a job has ended */
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t more;
	/* Under lock. */
	struct job_list todo, done;
	struct worker_job *running;
	bool stop;
};

static void *work(void *arg)
{
	const uint64_t one = 1;
	struct worker *w = arg;
	struct worker_job *job;

	pthread_mutex_lock(&w->lock);
	for (;;) {
		while (STAILQ_EMPTY(&w->todo) && !w->stop)
			pthread_cond_wait(&w->more, &w->lock);
		if (w->stop)
			break;
		job = STAILQ_FIRST(&w->todo);
		STAILQ_REMOVE_HEAD(&w->todo, next);
		w->running = job;
		pthread_mutex_unlock(&w->lock);
		if (!atomic_load(&job->canceled))
			job->run(job);
		pthread_mutex_lock(&w->lock);
		w->running = NULL;
		STAILQ_INSERT_TAIL(&w->done, job, next);
		if (write_all(w->wake_fd, &one, sizeof(one)) < 0)
			abort(); /* an eventfd takes 2^64 - 2 of them */
	}
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

static struct worker_job *take(struct worker *w, struct job_list *list)
{
	struct worker_job *job;

	pthread_mutex_lock(&w->lock);
	job = STAILQ_FIRST(list);
	if (job)
		STAILQ_REMOVE_HEAD(list, next);
	pthread_mutex_unlock(&w->lock);
	return job;
}

static void on_ended(evutil_socket_t fd, short what, void *arg)
{
	struct worker *w = arg;
	struct worker_job *job;
	uint64_t count;

	(void)what;
	if (read((int)fd, &count, sizeof(count)) < 0)
		return;
	while ((job = take(w, &w->done)) != NULL)
		job->done(job);
}

struct worker *worker_new(struct loop *l)
{
	struct worker *w = calloc(1, sizeof(*w));
	sigset_t all, before;
	int rc;

	if (!w)
		return NULL;
	w->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (w->wake_fd < 0) {
		free(w);
		return NULL;
	}
	STAILQ_INIT(&w->todo);
	STAILQ_INIT(&w->done);
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->more, NULL);
	event_assign(&w->ended, l->base, w->wake_fd, EV_READ | EV_PERSIST, on_ended, w);
	event_add(&w->ended, NULL);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = pthread_create(&w->thread, NULL, work, w);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (rc == 0)
		return w;
	event_del(&w->ended);
	fd_close(&w->wake_fd);
	free(w);
	errno = rc;
	return NULL;
}

void worker_free(struct worker *w)
{
	struct worker_job *job;

	if (!w)
		return;
	pthread_mutex_lock(&w->lock);
	w->stop = true;
	if (w->running)
		atomic_store(&w->running->canceled, true);
	pthread_cond_signal(&w->more);
	pthread_mutex_unlock(&w->lock);
	pthread_join(w->thread, NULL);
	while ((job = take(w, &w->done)) != NULL || (job = take(w, &w->todo)) != NULL) {
		atomic_store(&job->canceled, true);
		job->done(job);
	}
	event_del(&w->ended);
	fd_close(&w->wake_fd);
	pthread_cond_destroy(&w->more);
	pthread_mutex_destroy(&w->lock);
	free(w);
}

void worker_add(struct worker *w, struct worker_job *job)
{
	pthread_mutex_lock(&w->lock);
	STAILQ_INSERT_TAIL(&w->todo, job, next);
	pthread_cond_signal(&w->more);
	pthread_mutex_unlock(&w->lock);
}

void worker_cancel(struct worker_job *job)
{
	atomic_store(&job->canceled, true);
}
