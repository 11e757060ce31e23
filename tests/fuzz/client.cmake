hutch_fuzz_target(client LIBS libhutch)
