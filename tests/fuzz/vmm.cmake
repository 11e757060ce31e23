# host/hutchd: what a VMM writes to its QMP socket.
hutch_fuzz_target(qmp LIBS hutch_vmm)
