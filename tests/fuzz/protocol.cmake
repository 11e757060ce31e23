# protocol/: the frame header, the gate, and each family of messages.
foreach(target frame codec msg msg_exec msg_vm)
	hutch_fuzz_target(${target} LIBS hutch_protocol)
endforeach()
