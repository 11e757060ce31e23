/* SPDX-License-Identifier: Apache-2.0 */
/* hutchd: the broker of hutch. See README.md beside this file. */
#include <stdio.h>
#include <sys/stat.h>

#include "host/hutchd/broker.h"
#include "host/hutchd/log.h"

int main(int argc, char **argv)
{
	struct config config;
	struct hutch_error err;

	hutch_error_clear(&err);
	switch (config_load(&config, argc, argv, &err)) {
	case CONFIG_EXIT:
		return 0;
	case CONFIG_BAD:
		fprintf(stderr, "hutchd: %s\n", err.message);
		return 2;
	case CONFIG_RUN:
		break;
	}
	umask(077);
	log_setup("hutchd", config.log_level, config.log_json);
	return broker_run(&config);
}
