# The agent's files: archives from outside, parameters.
hutch_fuzz_target(tar SOURCES ${CMAKE_SOURCE_DIR}/guest/tar_read.c ${CMAKE_SOURCE_DIR}/guest/tar_write.c)
hutch_fuzz_target(msg_fs LIBS hutch_protocol)
