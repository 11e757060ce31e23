/* SPDX-License-Identifier: Apache-2.0 */
/* Methods that this agent lacks. */
#include "guest/fs.h"

static int lacks(struct fs *fs)
{
	return hutch_error_set(&fs->err, HUTCH_E_UNSUPPORTED, 0, "this agent has no %s",
			       fs_method_name(fs->p.method));
}

int fs_tar_out(struct fs *fs)
{
	return lacks(fs);
}

int fs_watch(struct fs *fs)
{
	return lacks(fs);
}

int fs_copy(struct fs *fs)
{
	return lacks(fs);
}

int fs_tar_in(struct fs *fs)
{
	return lacks(fs);
}
