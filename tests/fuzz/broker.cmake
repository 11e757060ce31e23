# The broker's two sides: what a client may send, and what a guest may answer.
hutch_fuzz_target(broker_client LIBS hutch_core)
hutch_fuzz_target(guest_link LIBS hutch_core)
# What lies in the state directory.
hutch_fuzz_target(state LIBS hutch_core)
