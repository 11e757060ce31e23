# host/hutchd: what a VMM writes to its QMP socket.
hutch_fuzz_target(qmp LIBS hutch_vmm)
# Overlays that a VMM wrote.
hutch_fuzz_target(qcow2 LIBS hutch_vmm)
